//! Other settings while clients are there.

use super::Front;
use crate::gateway::ClientId;
use crate::gateway::http::Settings;
use crate::gateway::http::client::Client;
use crate::gateway::http::refusal::Refusal;
use crate::time::Time;

impl Front {
    /// The settings are these now. Who came in by a token that is gone, or opens something else now, goes; so does
    /// who came in without one, where one is needed now, and the other way round.
    pub(super) fn configure(&mut self, now: Time, settings: &Settings) {
        self.tokens.renew(&settings.tokens);
        self.clients_max = settings.clients_max;
        self.requests_per_second = settings.requests_per_second;
        let is_out = |client: &Client| self.tokens.access(client.token).is_none();
        let all = self.clients.iter().filter(|(_, client)| is_out(client));
        let out: Vec<ClientId> = all.map(|(client, _)| *client).collect();
        for client in out {
            self.remove(client, &Refusal::unknown_token());
        }
        if self.session_idle != settings.session_idle {
            self.session_idle = settings.session_idle;
            self.look_anew();
        }
        if self.keep_alive != settings.keep_alive {
            self.keep_alive = settings.keep_alive;
            let is_told = !self.exchanges.is_empty();
            self.sign_at = self.keep_alive.filter(|_| is_told).map(|interval| now + interval);
        }
    }

    /// Sessions are idle after another time.
    fn look_anew(&mut self) {
        let before = std::mem::take(&mut self.idle);
        for (_, client) in before {
            if let Some(its) = self.clients.get(&client) {
                self.look_later(its.used_at + self.session_idle, client);
            }
        }
    }
}
