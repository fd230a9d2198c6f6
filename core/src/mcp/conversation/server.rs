//! The server's side: what instances ask, tell and answer.

use super::super::envelope::{self, Id, Message, look, param};
use super::super::inflight::Flight;
use super::super::json;
use super::super::responses::{self, Why};
use super::{Conversation, Effect, Stage};
use crate::id::Generation;
use crate::limits::{ASKED_MAX, MESSAGE_BYTES_MAX, PONGS_MAX};

impl Conversation {
    pub(super) fn server(
        &mut self,
        generation: Generation,
        line: Vec<u8>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(instance) = self.instances.get_mut(&generation) else { return };
        self.health.was_heard |= self.serving == Some(generation);
        match look(&line) {
            Some(Message::Request { id, method, .. }) => {
                if instance.stage == Stage::Opening && method == "ping" {
                    instance.pongs += 1;
                    if instance.pongs <= PONGS_MAX {
                        self.tell_server(generation, responses::pong(&id), effects);
                    }
                    return;
                }
                if self.asked.len() >= ASKED_MAX {
                    return effects.push(Effect::Divert { generation: Some(generation), line });
                }
                // A text, and never a bare number: some clients take those for ids of their own.
                let ours = format!("\"s{generation}:{}\"", self.next_number);
                self.next_number += 1;
                if let Some(line) = envelope::with_id(&line, ours.as_bytes()) {
                    self.asked.insert(Id::new(ours.as_bytes()), (generation, id));
                    effects.push(Effect::ToClient(line));
                }
            }
            Some(Message::Notification { method }) => {
                self.server_tells(generation, &method, line, effects);
            }
            Some(Message::Response { id: Some(id), is_error }) => {
                self.server_answers(generation, &id, line, is_error, effects);
            }
            Some(Message::Batch) => {
                for element in json::elements(&line).unwrap_or_default() {
                    let line = line[element].to_vec();
                    match look(&line) {
                        // A batch of batches is nothing, and a stack ends.
                        Some(Message::Batch) => {
                            effects.push(Effect::Divert { generation: Some(generation), line });
                        }
                        _ => self.server(generation, line, effects),
                    }
                }
            }
            Some(Message::Response { id: None, .. } | Message::Invalid { .. }) | None => {
                effects.push(Effect::Divert { generation: Some(generation), line });
            }
        }
    }

    pub(super) fn server_tells(
        &mut self,
        generation: Generation,
        method: &str,
        line: Vec<u8>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(instance) = self.instances.get_mut(&generation) else { return };
        match method {
            "notifications/progress" => {
                // An unknown token makes some clients hang up.
                let token = param(&line, &["progressToken"]);
                let known = self.flights.values().any(|flight| {
                    flight.is_with(generation) && flight.progress_token.as_deref() == token
                });
                if token.is_none() || !known {
                    return;
                }
            }
            "notifications/cancelled" => {
                let theirs = param(&line, &["requestId"]).map(Id::new);
                let ours = self
                    .asked
                    .iter()
                    .find(|(_, (from, id))| *from == generation && theirs.as_ref() == Some(id));
                if let Some((ours, _)) = ours {
                    let ours = ours.clone();
                    self.asked.remove(&ours);
                    let request: String = json::text(ours.raw()).unwrap_or_default();
                    effects.push(Effect::ToClient(responses::cancelled(&request)));
                    return;
                }
            }
            "notifications/subscriptions/acknowledged" => {
                let path = ["_meta", "io.modelcontextprotocol/subscriptionId"];
                let id = param(&line, &path).map(Id::new);
                if id.as_ref().is_some_and(|id| instance.listening_again.remove(id)) {
                    return;
                }
                self.memory.acknowledged.extend(id);
            }
            // The whole list is compared when it serves; what it says before that is noise.
            _ if instance.stage == Stage::Opening && method.ends_with("/list_changed") => return,
            _ if self.is_being_compared(generation, method) => {
                return self.compare_again(method);
            }
            _ => {}
        }
        effects.push(Effect::ToClient(line));
    }

    pub(super) fn server_answers(
        &mut self,
        generation: Generation,
        id: &Id,
        line: Vec<u8>,
        is_error: bool,
        effects: &mut Vec<Effect>,
    ) {
        if self.own.get(id) == Some(&generation) {
            self.own.remove(id);
            return self.own_answered(generation, id, &line, is_error, effects);
        }
        let leaving = self.instances.get(&generation).is_some_and(|i| i.stage == Stage::Leaving);
        // On its way out a server says that the connection is closed, or that it ends a listen in
        // good order: to the client neither is true.
        let says_closed = || is_error && json::get(&line, &["error", "code"]) == Some(b"-32000");
        let is_answered = |flight: &Flight| {
            flight.is_with(generation) && !(leaving && (flight.is_listen() || says_closed()))
        };
        let Some(flight) = self.flights.remove_if(id, is_answered) else {
            // Twice, or never asked, or of another generation: nobody waits for it.
            return;
        };
        self.health.has_answered |= self.serving == Some(generation);
        self.memory.answered(id, &flight, &line, is_error);
        let line = match flight.method.as_str() {
            "initialize" | "server/discover" if !is_error => self.advertised(line),
            _ => self.listed(&flight, line, is_error),
        };
        if !flight.cancelled {
            effects.push(Effect::ToClient(line));
            self.compare_late(generation, &flight.method, effects);
        }
        self.open_idle(effects);
        self.note_drained(generation, effects);
    }

    pub(super) fn own_answered(
        &mut self,
        generation: Generation,
        id: &Id,
        line: &[u8],
        is_error: bool,
        effects: &mut Vec<Effect>,
    ) {
        if self.probe_answered(id, effects) || self.page_answered(id, line, is_error, effects) {
            return;
        }
        let Some(instance) = self.instances.get_mut(&generation) else { return };
        // One that is on its way out comes too late with its answer.
        if instance.opening.take_if(|opening| opening == id).is_none()
            || instance.stage == Stage::Leaving
        {
            return;
        }
        if is_error {
            instance.stage = Stage::Leaving;
            let said = json::get(line, &["error", "message"]).and_then(json::text);
            let why = said.unwrap_or_else(|| "it answered with an error".to_owned());
            effects.push(Effect::HandshakeFailed { generation, why });
        } else {
            self.serve(generation, effects);
        }
    }

    pub(super) fn too_long(
        &mut self,
        generation: Generation,
        beginning: &[u8],
        effects: &mut Vec<Effect>,
    ) {
        // The beginning has the id, or the request is found by being the only one.
        let here = |flight: &Flight| flight.is_with(generation);
        let mut candidates: Vec<Id> =
            self.flights.iter().filter(|(_, f)| here(f)).map(|(id, _)| id.clone()).collect();
        let named = candidates.iter().position(|id| {
            let needle = [b"\"id\":", id.raw(), b","].concat();
            memchr::memmem::find(&beginning[..beginning.len().min(256)], &needle).is_some()
        });
        let id = match (named, candidates.len()) {
            (Some(at), _) => candidates.swap_remove(at),
            (None, 1) => candidates.swap_remove(0),
            (None, _) => {
                let line = beginning.to_vec();
                return effects.push(Effect::Divert { generation: Some(generation), line });
            }
        };
        self.answer(&id, &Why::TooLong(MESSAGE_BYTES_MAX), effects);
    }
}
