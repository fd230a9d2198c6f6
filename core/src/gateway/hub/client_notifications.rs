//! What clients tell without wanting an answer, and what they answer to servers.

use serde_json::json;

use super::super::span::Outcome;
use super::super::{ClientId, LinkId};
use super::link::Stage;
use super::{Asked, Hub, What, edit, number_in, place, raw};
use crate::mcp::envelope::{Id, param, with_id};
use crate::mcp::{Era, responses};

/// How severe an entry of a log is, from the least.
pub(super) const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// The place among them of `info`.
pub(super) const INFO: usize = 1;

impl Hub {
    /// A notification of a client's.
    pub(super) fn tell(&mut self, client: ClientId, method: &str, line: &[u8]) {
        match method {
            "notifications/cancelled" => self.cancel(client, line),
            "notifications/progress" => {
                let token = param(line, &["progressToken"]);
                let asked = token
                    .and_then(|token| number_in(token, b's'))
                    .and_then(|number| self.asked.get(&number))
                    .filter(|asked| asked.client == client);
                if let Some(Asked { link, token: Some(theirs), .. }) = asked
                    && let Some(token) = token
                {
                    let edits = vec![(place(line, token), theirs.clone())];
                    let link = *link;
                    self.tell_link(link, edit(line, edits));
                }
            }
            "notifications/initialized" => self.is_ready(client),
            "notifications/roots/list_changed" => {
                for link in self.links_of(client) {
                    if self.has_roots_for(client, link) {
                        self.tell_link(link, line.to_vec());
                    }
                }
            }
            // The links have had their own, and others are nobody's.
            _ => {}
        }
    }

    fn cancel(&mut self, client: ClientId, line: &[u8]) {
        let Some(id) = param(line, &["requestId"]).map(Id::new) else { return };
        let Some(its) = self.clients.get_mut(&client) else { return };
        if its.listens.remove(&id).is_some() {
            for link in self.links_of(client) {
                self.sync_subscriptions(link);
            }
            return;
        }
        if let Some(number) = its.flights.remove(&id) {
            let reason = param(line, &["reason"]).and_then(raw::text).unwrap_or_default();
            return self.withdraw(number, &reason);
        }
        // It may not have gone anywhere yet.
        let is_it = |line: &[u8]| raw::get(line, &["id"]).is_some_and(|raw| Id::new(raw) == id);
        self.held.retain(|held| held.client != client || !is_it(&held.line));
        for link in self.links.values_mut() {
            link.waiting.retain(|(whose, line)| *whose != client || !is_it(line));
        }
    }

    /// A request of ours is not wanted any more: its answer will not matter.
    pub(super) fn withdraw(&mut self, number: u64, reason: &str) {
        let Some(flight) = self.take_flight(number) else { return };
        if let (What::Client { .. }, Some(link)) = (&flight.what, self.links.get_mut(&flight.link))
        {
            link.in_flight = link.in_flight.saturating_sub(1);
        }
        self.end_span(flight.span, Outcome::Cancelled);
        let params = json!({"requestId": format!("g{number}"), "reason": reason}).to_string();
        let line = responses::notification("notifications/cancelled", Some(params.as_bytes()));
        self.tell_link(flight.link, line);
    }

    /// A client's answer to a server.
    pub(super) fn reply(&mut self, client: ClientId, id: Option<&Id>, line: &[u8]) {
        let number = id.and_then(|id| number_in(id.raw(), b's'));
        let is_its = |asked: &Asked| asked.client == client;
        let Some(number) = number.filter(|number| self.asked.get(number).is_some_and(is_its))
        else {
            return;
        };
        if let Some(asked) = self.asked.remove(&number)
            && let Some(line) = with_id(line, asked.theirs.raw())
        {
            self.tell_link(asked.link, line);
        }
    }

    /// Answers a server in the client's place.
    pub(super) fn refuse(&mut self, number: u64, why: &str) {
        if let Some(asked) = self.asked.remove(&number) {
            let error = json!({"code": -32603, "message": why});
            self.tell_link(asked.link, responses::line(&asked.theirs, "error", &error));
        }
    }

    /// Asks a server for as much of its log as any of its clients wants.
    pub(super) fn set_level(&mut self, link: LinkId) {
        let users = self.users_of(link);
        let wanted = users
            .iter()
            .filter_map(|user| self.clients.get(user).and_then(|user| user.level))
            .min();
        let Some(its) = self.links.get_mut(&link) else { return };
        let is_asked = its.stage == Stage::Open
            && its.era == Era::Legacy
            && its.capabilities["logging"].is_object();
        if let Some(level) = wanted.filter(|_| is_asked && its.level != wanted) {
            its.level = Some(level);
            let params = json!({"level": LEVELS[level]}).to_string();
            self.request(link, "logging/setLevel", params.as_bytes(), What::Ignored);
        }
    }
}
