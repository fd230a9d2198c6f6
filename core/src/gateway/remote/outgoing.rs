//! The hub's side: what it asks, tells and answers.

use super::error_responses::Trouble;
use super::{At, Effect, Owed, Purpose, Remote, State, Waiting, headers};
use crate::limits::{FLIGHTS_BYTES_MAX, FLIGHTS_MAX, QUEUE_LEN_MAX, QUEUE_WAIT};
use crate::mcp::Era;
use crate::mcp::envelope::{self, Id, Message, Params, look, param};
use crate::mcp::inflight::{Class, Flight, Location};
use crate::mcp::replay::Memory;
use crate::time::Time;

impl Remote {
    pub(super) fn hub_says(&mut self, now: Time, line: Vec<u8>) {
        match look(&line) {
            Some(Message::Request { id, method, params }) => {
                self.hub_asks(now, id, method, &params, line);
            }
            Some(Message::Notification { method }) if method == "notifications/cancelled" => {
                self.hub_cancels(now, line);
            }
            Some(Message::Notification { method }) => {
                self.memory.notification(&method);
                self.notice(now, line);
            }
            Some(Message::Response { id: Some(id), .. }) => {
                // Unknown where the session is gone that asked: nobody waits for it.
                if let Some(asked) = self.asked.remove(&id)
                    && asked.session == self.session.number
                    && let Some(line) = envelope::with_id(&line, asked.id.raw())
                {
                    self.notice(now, line);
                }
            }
            Some(Message::Response { id: None, .. } | Message::Batch | Message::Invalid { .. })
            | None => self.log("what cannot be sent to it was dropped"),
        }
    }

    fn hub_asks(&mut self, now: Time, id: Id, method: String, params: &Params, line: Vec<u8>) {
        let class = Class::of(&method, params.task.is_some());
        let bytes = self.owed_bytes + line.len();
        let is_known = self.owed.contains_key(&id);
        if is_known || self.owed.len() >= FLIGHTS_MAX {
            return if is_known {
                self.log("it was asked twice by one id")
            } else {
                self.refuse(&id, &method)
            };
        }
        if bytes > FLIGHTS_BYTES_MAX && !self.owed.is_empty() {
            return self.refuse(&id, &method);
        }
        self.owed_bytes = bytes;
        if method == "initialize" && self.replayed().is_some() {
            self.begin_anew();
        }
        self.memory.request(&id, &method, params, &line);
        let is_modern = params.version.is_some();
        let mut headers = match is_modern {
            true => headers::of_modern(&method, params, &line),
            false => Vec::new(),
        };
        if is_modern && method == "tools/call" {
            headers.extend(self.marked.headers(&line));
        }
        let owed = Owed {
            flight: Flight::new(method, line, class, Location::Local, now),
            at: At::Waiting { until: Some(self.waits_until(now)) },
            sendings: 0,
            resumes: 0,
            last_event: None,
            headers,
            is_modern,
        };
        self.owed.insert(id.clone(), owed);
        self.waiting.push_back(Waiting::Request(id));
        self.wanted(now);
    }

    /// A request that finds no place is answered at once.
    pub(super) fn refuse(&mut self, id: &Id, method: &str) {
        let class = Class::of(method, false);
        let line = Trouble::TooMany.answer(id, class, self.memory.era, self.origin());
        self.effects.push(Effect::Tell { line, about: Some(id.clone()) });
    }

    /// The hub opens a session of its own once more: what was agreed on before is void.
    fn begin_anew(&mut self) {
        self.forget_session();
        self.memory = Memory::default();
    }

    /// Somebody waits: the next try must not be far.
    fn wanted(&mut self, now: Time) {
        if let State::Down { at, earliest, .. } = &mut self.state {
            let soon = now.max(*earliest);
            *at = Some(at.map_or(soon, |at| at.min(soon)));
            if soon > now + QUEUE_WAIT {
                self.answer_waiting();
            }
        }
    }

    pub(super) fn notice(&mut self, now: Time, line: Vec<u8>) {
        if self.waiting.len() >= QUEUE_LEN_MAX {
            return self.log("too much waits for it: a notification was dropped");
        }
        let until = self.waits_until(now);
        self.waiting.push_back(Waiting::Notice { line, until });
    }

    /// The hub wants no answer any more, and gets none.
    fn hub_cancels(&mut self, now: Time, line: Vec<u8>) {
        let Some(id) = param(&line, &["requestId"]).map(Id::new) else { return };
        let Some(owed) = self.owed.get(&id).filter(|owed| owed.flight.class != Class::Handshake)
        else {
            return;
        };
        let (at, is_modern) = (owed.at, owed.is_modern || self.memory.era == Era::Modern);
        self.take_owed(&id);
        self.memory.stop_listening(&id);
        if let At::Asked(exchange) = at {
            self.close(exchange);
        }
        // In the modern era a closed stream says it all, and before it was given there is nobody to tell.
        if !is_modern && !matches!(at, At::Waiting { .. }) {
            self.notice(now, line);
        }
    }

    /// Takes a request out of everything that knows it.
    pub(super) fn take_owed(&mut self, id: &Id) -> Option<Owed> {
        let owed = self.owed.remove(id)?;
        self.owed_bytes -= owed.flight.line.len();
        self.broken.remove(id);
        self.again.remove(id);
        self.handshake.take_if(|(handshake, _)| handshake == id);
        Some(owed)
    }

    /// Whether a line is the notification that ends the handshake.
    pub(super) fn purpose_of(line: Vec<u8>) -> Purpose {
        match look(&line) {
            Some(Message::Notification { method }) if method == "notifications/initialized" => {
                Purpose::Initialized
            }
            _ => Purpose::Notice(line),
        }
    }
}
