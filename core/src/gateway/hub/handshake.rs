//! How a session with a server is opened, in the era that its clients speak.

use serde_json::{Value, json};

use super::super::{ClientId, Effect, LinkId};
use super::link::Stage;
use super::session::{NEWEST_LEGACY, generic_meta};
use super::{Hub, What};
use crate::limits::{HANDSHAKE_MAX, PROBE_MAX};
use crate::mcp::{Era, Kind, json as raw, responses};

impl Hub {
    /// The first words over a link.
    pub(super) fn begin(&mut self, link: LinkId, client: ClientId, era: Era) {
        let Some(its) = self.clients.get(&client) else { return };
        let version = &self.settings.version;
        let knows_client = !self.is_generic(link);
        let meta = match its.meta.clone().filter(|_| knows_client) {
            Some(meta) => meta,
            None => generic_meta(version),
        };
        let opening = match its.opening.clone().filter(|_| knows_client) {
            Some(opening) => opening,
            None => json!({
                "protocolVersion": NEWEST_LEGACY,
                "capabilities": {"roots": {"listChanged": true}, "sampling": {}, "elicitation": {}},
                "clientInfo": {"name": "afresh", "version": version},
            })
            .to_string()
            .into_bytes(),
        };
        let Some(its) = self.links.get_mut(&link) else { return };
        (its.meta, its.opening, its.era) = (meta, opening, era);
        its.begun_at = self.now;
        self.open_session(link);
    }

    /// Whether a server is told what the gateway can do, for whichever client, and not what its one client can.
    pub(super) fn is_generic(&self, link: LinkId) -> bool {
        !self.settings.is_single && self.links.get(&link).is_some_and(|its| its.owner.is_none())
    }

    pub(super) fn open_session(&mut self, link: LinkId) {
        let Some(its) = self.links.get_mut(&link) else { return };
        its.stage = Stage::Opening;
        its.retry_at = None;
        let (method, params) = match its.era {
            Era::Modern => {
                ("server/discover", [br#"{"_meta":"#, its.meta.as_slice(), b"}"].concat())
            }
            Era::Legacy | Era::Unknown => ("initialize", its.opening.clone()),
        };
        let within = if its.era == Era::Modern { PROBE_MAX } else { HANDSHAKE_MAX };
        let number = self.request(link, method, &params, What::Opens);
        self.expect(number, within);
    }

    /// The first words were not answered in time.
    pub(super) fn opens_late(&mut self, link: LinkId, number: u64) {
        self.take_flight(number);
        let Some(its) = self.links.get(&link) else { return };
        match (its.era, its.absence()) {
            // Whatever it knows: it is not there.
            (_, Some(why)) => self.fail(link, &why),
            (Era::Modern, None) => self.fall_back(link),
            (Era::Legacy | Era::Unknown, None) => {
                self.refused(link, "it did not answer the handshake in time");
            }
        }
    }

    /// The server does not take the session.
    fn refused(&mut self, link: LinkId, why: &str) {
        self.effects.push(Effect::Refused { link, why: why.to_owned() });
        self.fail(link, why);
    }

    /// The server's answer to the first words.
    pub(super) fn opens(&mut self, link: LinkId, line: &[u8], is_error: bool) {
        let Some(its) = self.links.get_mut(&link) else { return };
        if is_error {
            let said = raw::get(line, &["error", "message"]).and_then(raw::text);
            let why = said.unwrap_or_else(|| "it refused the session".to_owned());
            // Said in its place, by whoever keeps it running.
            let is_ours = raw::get(line, &["error", "data", "retryable"]).is_some();
            return match its.era {
                _ if is_ours => self.fail(link, responses::without_consequence(&why)),
                Era::Modern => self.fall_back(link),
                Era::Legacy | Era::Unknown => self.refused(link, &why),
            };
        }
        let part = |key: &str| raw::get(line, &["result", key]);
        its.capabilities = part("capabilities")
            .and_then(|raw| serde_json::from_slice(raw).ok())
            .unwrap_or(Value::Null);
        its.instructions = part("instructions").and_then(raw::text);
        its.stage = Stage::Open;
        its.stage_told = None;
        its.has_failed = false;
        its.level = None;
        its.subscribed.clear();
        let is_modern = its.era == Era::Modern;
        if !is_modern {
            self.tell_link(link, responses::notification("notifications/initialized", None));
        }
        for kind in Kind::ALL {
            self.read_list(link, kind);
        }
        self.set_level(link);
        self.sync_subscriptions(link);
        self.send_waiting(link);
        self.settle();
    }

    /// The server does not know the modern era: it is spoken to as before.
    fn fall_back(&mut self, link: LinkId) {
        let Some(its) = self.links.get_mut(&link) else { return };
        its.era = Era::Legacy;
        let (slot, is_shared) = (its.slot, its.owner.is_none());
        self.servers[slot].is_legacy_only = true;
        if is_shared {
            let server = &mut self.servers[slot];
            server.modern = None;
            if server.legacy.is_some() {
                let waiting = self.links.get_mut(&link).map(|its| std::mem::take(&mut its.waiting));
                self.close(link, "it does not know the newer protocol");
                for (client, line) in waiting.into_iter().flatten() {
                    self.client(client, line, true);
                }
                return self.settle();
            }
            server.legacy = Some(link);
        }
        self.open_session(link);
    }
}
