//! The server's side: what it asks, tells and answers, over whichever stream.

use super::{Asked, At, Effect, ExchangeId, Own, Remote};
use crate::limits::ASKED_MAX;
use crate::mcp::envelope::{self, Id, Message, look, param};
use crate::mcp::json;
use crate::mcp::responses::cancelled;
use crate::time::Time;

impl Remote {
    /// A message came in an exchange; `about` is the request that this exchange is for.
    pub(super) fn message(
        &mut self,
        now: Time,
        exchange: ExchangeId,
        about: Option<&Id>,
        line: Vec<u8>,
    ) {
        match look(&line) {
            Some(Message::Request { id, .. }) => self.server_asks(exchange, about, &id, &line),
            Some(Message::Notification { method }) => self.server_tells(&method, about, line),
            Some(Message::Response { id: Some(id), is_error }) => {
                self.server_answers(now, &id, line, is_error);
            }
            Some(Message::Response { id: None, .. }) => {
                if let Some(id) = about {
                    self.answer_with_error(&id.clone(), &line);
                }
            }
            Some(Message::Batch) => {
                for element in json::elements(&line).unwrap_or_default() {
                    // A batch of batches is nothing, and a stack ends.
                    if !line[element.clone()].starts_with(b"[") {
                        self.message(now, exchange, about, line[element].to_vec());
                    }
                }
            }
            Some(Message::Invalid { .. }) | None => {
                self.log("it said something that is no message")
            }
        }
    }

    fn server_asks(&mut self, exchange: ExchangeId, about: Option<&Id>, id: &Id, line: &[u8]) {
        let session = self.exchanges.get(&exchange).map(|exchange| exchange.session);
        if session != Some(self.session.number) {
            // Its session is gone: there is nobody to answer to.
            return;
        }
        if self.asked.len() >= ASKED_MAX {
            return self.log("it asks more than is answered: a request of its was dropped");
        }
        // Another session begins to count anew: each id is made one that there is only once.
        let ours = format!("\"s{}:{}\"", self.session.number, self.next_number);
        self.next_number += 1;
        if let Some(line) = envelope::with_id(line, ours.as_bytes()) {
            let asked = Asked { session: self.session.number, id: id.clone() };
            self.asked.insert(Id::new(ours.as_bytes()), asked);
            self.effects.push(Effect::Tell { line, about: about.cloned() });
        }
    }

    fn server_tells(&mut self, method: &str, about: Option<&Id>, line: Vec<u8>) {
        match method {
            "notifications/cancelled" => {
                let theirs = param(&line, &["requestId"]).map(Id::new);
                let ours = self.asked.iter().find(|(_, asked)| theirs.as_ref() == Some(&asked.id));
                if let Some(ours) = ours.map(|(ours, _)| ours.clone()) {
                    self.asked.remove(&ours);
                    let ours: String = json::text(ours.raw()).unwrap_or_default();
                    let line = cancelled(&ours);
                    self.effects.push(Effect::Tell { line, about: about.cloned() });
                    return;
                }
            }
            "notifications/subscriptions/acknowledged" => {
                let path = ["_meta", "io.modelcontextprotocol/subscriptionId"];
                let named = param(&line, &path).map(Id::new);
                if let Some(id) = named.as_ref().or(about) {
                    if self.again.remove(id) {
                        return self.tell_changes(Some(&id.clone()));
                    }
                    if self.memory.listening.contains_key(id) {
                        self.memory.acknowledged.insert(id.clone());
                    }
                }
            }
            _ => {}
        }
        self.effects.push(Effect::Tell { line, about: about.cloned() });
    }

    fn server_answers(&mut self, now: Time, id: &Id, line: Vec<u8>, is_error: bool) {
        match self.own.remove(id) {
            Some(Own::Opening) => return self.opening_answered(now, &line, is_error),
            // It holds or it does not: there is nobody to tell.
            Some(Own::Restoring) => return,
            None => {}
        }
        let was_given = |at| !matches!(at, At::Waiting { .. });
        match self.owed.get(id) {
            Some(owed) if was_given(owed.at) || owed.sendings > 0 => {}
            Some(_) | None => return self.log("it answered what was not asked, or asked no more"),
        }
        let Some(owed) = self.take_owed(id) else { return };
        if owed.flight.method == "initialize" && !is_error {
            self.version_agreed(now, &line);
        }
        if owed.flight.method == "tools/list" && owed.is_modern {
            self.marked.learn(&line);
        }
        self.tell_answer(id, &owed, line, is_error);
    }
}
