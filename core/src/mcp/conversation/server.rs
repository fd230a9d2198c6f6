//! Handles the side of the server: the messages of instances, and their sessions from the start to the end.
//!
//! Driven by [`Conversation::handle`]. Never starts or stops a process.

use std::collections::BTreeSet;

use super::instances::{Received, SessionStage};
use super::lists::{Compared, PageAnswer};
use super::{Conversation, Effect};
use crate::id::Generation;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::mcp::envelope::{Id, Message, look, param};
use crate::mcp::inflight::{Class, Flight, Location, QueuedMessage};
use crate::mcp::json;
use crate::mcp::lists::{Kind, Pages};
use crate::mcp::replay::Era;
use crate::mcp::responses::{self, Why};
use crate::mcp::wedge::Input as WedgeInput;

impl Conversation {
    pub(super) fn server_message(
        &mut self,
        generation: Generation,
        line: Vec<u8>,
        effects: &mut Vec<Effect>,
    ) {
        if self.instances.serving() == Some(generation) {
            self.wedge.note_sent();
        }
        let Some(instance) = self.instances.get_mut(generation) else { return };
        match look(&line) {
            Some(Message::Request { id, method, .. }) => {
                if instance.is(SessionStage::Opening) && method == "ping" {
                    if instance.may_pong() {
                        self.instances.send(generation, responses::pong(&id), effects);
                    }
                } else if self.ids.is_full() {
                    effects.push(Effect::Divert { generation: Some(generation), line });
                } else {
                    let line = self.ids.relay_request(generation, id, &line);
                    effects.extend(line.map(Effect::ToClient));
                }
            }
            Some(Message::Notification { method }) => {
                self.server_notification(generation, &method, line, effects);
            }
            Some(Message::Response { id: Some(id), is_error }) => {
                self.server_response(generation, &id, line, is_error, effects);
            }
            Some(Message::Batch) => {
                for element in json::elements(&line).unwrap_or_default() {
                    let line = line[element].to_vec();
                    match look(&line) {
                        // A batch inside of a batch is invalid, and the stack is bounded.
                        Some(Message::Batch) => {
                            effects.push(Effect::Divert { generation: Some(generation), line });
                        }
                        _ => self.server_message(generation, line, effects),
                    }
                }
            }
            Some(Message::Response { id: None, .. } | Message::Invalid { .. }) | None => {
                effects.push(Effect::Divert { generation: Some(generation), line });
            }
        }
    }

    fn server_notification(
        &mut self,
        generation: Generation,
        method: &str,
        line: Vec<u8>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(instance) = self.instances.get_mut(generation) else { return };
        match method {
            "notifications/progress" => {
                // An unknown token makes some clients hang up.
                let token = param(&line, &["progressToken"]);
                let is_known = self.requests.all().any(|flight| {
                    flight.is_with(generation) && flight.progress_token.as_deref() == token
                });
                if token.is_none() || !is_known {
                    return;
                }
            }
            "notifications/cancelled" => {
                let theirs = param(&line, &["requestId"]).map(Id::new);
                if let Some(line) = self.ids.cancel(generation, theirs.as_ref()) {
                    return effects.push(Effect::ToClient(line));
                }
            }
            "notifications/subscriptions/acknowledged" => {
                let path = ["_meta", "io.modelcontextprotocol/subscriptionId"];
                let id = param(&line, &path).map(Id::new);
                if id.as_ref().is_some_and(|id| instance.is_acknowledged_again(id)) {
                    return;
                }
                self.memory.acknowledged.extend(id);
            }
            // The whole list is compared when the instance serves; what it says before that is noise.
            _ if instance.is(SessionStage::Opening) && method.ends_with("/list_changed") => return,
            _ if self.lists.take_notification(generation, method) => return,
            _ => {}
        }
        effects.push(Effect::ToClient(line));
    }

    fn server_response(
        &mut self,
        generation: Generation,
        id: &Id,
        line: Vec<u8>,
        is_error: bool,
        effects: &mut Vec<Effect>,
    ) {
        if self.ids.take_own(id, generation) {
            return self.own_answered(generation, id, &line, is_error, effects);
        }
        let leaving = self.instances.is(generation, SessionStage::Leaving);
        // On its way out a server says that the connection is closed, or that it ends a listen in
        // good order: to the client neither is true.
        let says_closed = || is_error && json::get(&line, &["error", "code"]) == Some(b"-32000");
        let is_answered = |flight: &Flight| {
            flight.is_with(generation) && !(leaving && (flight.is_listen() || says_closed()))
        };
        // An answer that comes twice, was never requested, or is of another generation is dropped.
        let Some(flight) = self.requests.remove_if(id, is_answered) else { return };
        if self.instances.serving() == Some(generation) {
            self.wedge.note_answered();
        }
        self.memory.answered(id, &flight, &line, is_error);
        let line = match flight.method.as_str() {
            "initialize" | "server/discover" if !is_error => self.lists.advertised(line),
            _ => self.lists.listed(&flight, line, is_error, self.memory.era),
        };
        if !flight.cancelled {
            effects.push(Effect::ToClient(line));
            if let Some(serving) = self.instances.serving().filter(|it| *it != generation)
                && let Some(kind) = self.lists.compare_late(self.now, serving, &flight.method)
            {
                self.request_page(serving, kind, Pages::default(), effects);
            }
        }
        self.open_idle(effects);
        self.note_drained(generation, effects);
    }

    /// An instance answers a request of afresh.
    fn own_answered(
        &mut self,
        generation: Generation,
        id: &Id,
        line: &[u8],
        is_error: bool,
        effects: &mut Vec<Effect>,
    ) {
        if self.wedge.take_probe(id) {
            return self.judge(WedgeInput::ProbeAnswered, effects);
        }
        match self.lists.answered(id, line, is_error) {
            PageAnswer::Other => {}
            PageAnswer::Taken => return self.finish_comparison(effects),
            PageAnswer::Next { generation, kind, pages } => {
                return self.request_page(generation, kind, pages, effects);
            }
        }
        let Some(instance) = self.instances.get_mut(generation) else { return };
        if !instance.take_opening(id) {
            return;
        }
        if is_error {
            self.instances.refuse(generation);
            let said = json::get(line, &["error", "message"]).and_then(json::text);
            let why = said.unwrap_or_else(|| "it answered with an error".to_owned());
            effects.push(Effect::HandshakeFailed { generation, why });
        } else {
            self.serve(generation, effects);
        }
    }

    pub(super) fn server_too_long(
        &mut self,
        generation: Generation,
        beginning: &[u8],
        effects: &mut Vec<Effect>,
    ) {
        // The beginning has the id, or the request is found by being the only one.
        let mut candidates = self.requests.ids_of(|flight| flight.is_with(generation));
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

    pub(super) fn started(&mut self, generation: Generation, pid: u32, effects: &mut Vec<Effect>) {
        self.down = None;
        self.instances.start(generation, pid);
        if let Some((method, params)) = self.memory.opening() {
            let id = self.send_own(generation, method, &params, effects);
            self.instances.note_opening(generation, id);
        } else if !self.requests.are_opening_session() {
            // While another one is still being asked to open the session, there is none to give.
            self.serve(generation, effects);
        }
    }

    /// Gives a session to an instance that had to wait until there was one, or none left to open it.
    fn open_idle(&mut self, effects: &mut Vec<Effect>) {
        let Some(generation) = self.instances.idle() else { return };
        if let Some((method, params)) = self.memory.opening() {
            let id = self.send_own(generation, method, &params, effects);
            self.instances.note_opening(generation, id);
        } else if !self.requests.are_opening_session() && self.instances.serving().is_none() {
            self.serve(generation, effects);
        }
    }

    /// The instance has the session: it gets what is new, and all that was queued.
    fn serve(&mut self, generation: Generation, effects: &mut Vec<Effect>) {
        if !self.instances.serve(generation) {
            return self.note_drained(generation, effects);
        }
        self.last_end = None;
        self.wedge.set_probe(None);
        self.judge(WedgeInput::Started, effects);
        let is_replayed = self.memory.opening().is_some();
        if is_replayed && self.memory.era == Era::Legacy {
            if let Some(line) = self.memory.initialized() {
                self.instances.send(generation, line, effects);
            }
            for (method, params) in self.memory.restoring() {
                self.send_own(generation, method, &params, effects);
            }
        }
        effects.push(Effect::Serving { generation });
        self.flush(generation, effects);
        if is_replayed {
            for params in self.memory.updates() {
                let line =
                    responses::notification("notifications/resources/updated", Some(&params));
                effects.push(Effect::ToClient(line));
            }
            let needs_tools = !self.restart_calls.is_empty();
            for kind in self.lists.compare(self.now, generation, needs_tools) {
                self.request_page(generation, kind, Pages::default(), effects);
            }
            self.finish_comparison(effects);
        } else {
            self.restarted(generation, effects);
        }
        for other in self.instances.generations() {
            self.note_drained(other, effects);
        }
    }

    fn flush(&mut self, generation: Generation, effects: &mut Vec<Effect>) {
        for message in self.requests.take_queue() {
            match message {
                QueuedMessage::Request(id) => self.send(generation, &id, effects),
                QueuedMessage::Notification(line) => {
                    self.instances.note_message(generation);
                    self.instances.send(generation, line, effects);
                }
            }
        }
    }

    pub(super) fn send(&mut self, generation: Generation, id: &Id, effects: &mut Vec<Effect>) {
        let number = self.instances.sent(generation);
        let Some(flight) = self.requests.get_mut(id) else { return };
        flight.location = Location::Sent { generation, number };
        flight.given_at = self.now;
        let (line, class) = (flight.line.clone(), flight.class);
        let is_again = flight.is_listen() && self.memory.acknowledged.contains(id);
        self.instances.note_request(generation, class, is_again.then_some(id));
        self.instances.send(generation, line, effects);
        self.wedge.watch(self.now);
    }

    pub(super) fn ended(
        &mut self,
        generation: Generation,
        read: Option<u64>,
        how: &str,
        effects: &mut Vec<Effect>,
    ) {
        let Some(instance) = self.instances.end(generation) else { return };
        self.lists.end(generation);
        if self.instances.serving().is_none() && !how.is_empty() {
            self.last_end = Some(how.to_owned());
        }
        effects.extend(self.ids.end(generation).into_iter().map(Effect::ToClient));
        let mut again = Vec::new();
        for id in self.requests.ids_of(|flight| flight.is_with(generation)) {
            let Some(flight) = self.requests.get_mut(&id) else { continue };
            if flight.cancelled {
                self.requests.remove(&id);
            } else if flight.is_sent_again(read, self.memory.era == Era::Modern) {
                again.push(id);
            } else if flight.class == Class::Probe {
                self.answer(&id, &Why::NoSuchMethod, effects);
                if instance.received() == Received::OnlyProbe {
                    effects.push(Effect::DiedOfProbe { generation });
                }
            } else {
                self.answer(&id, &Why::Restarted(how.to_owned()), effects);
            }
        }
        self.requests.queue_again(self.now, again);
        self.open_idle(effects);
        if let Some(serving) = self.instances.serving() {
            self.flush(serving, effects);
        }
    }

    fn note_drained(&mut self, generation: Generation, effects: &mut Vec<Effect>) {
        if self.instances.is(generation, SessionStage::Draining)
            && !self.requests.are_owed_by(generation)
        {
            effects.push(Effect::Drained { generation });
        }
    }

    fn request_page(
        &mut self,
        generation: Generation,
        kind: Kind,
        pages: Pages,
        effects: &mut Vec<Effect>,
    ) {
        let cursor = pages.next.as_ref().map(|next| [br#""cursor":"#, next.as_slice()].concat());
        let params = self.memory.params(&cursor.unwrap_or_default());
        let id = self.send_own(generation, kind.method(), &params, effects);
        self.lists.requested(id, kind, pages);
    }

    /// An instance that does not answer in time is not waited for.
    pub(super) fn expire_comparison(&mut self, effects: &mut Vec<Effect>) {
        let mut told = BTreeSet::new();
        for kind in self.lists.expire(self.now) {
            if told.insert(kind.notification()) {
                effects.extend(self.memory.list_changed(kind).map(Effect::ToClient));
            }
        }
        self.finish_comparison(effects);
    }

    /// Tells the client which lists have changed, once all are compared.
    fn finish_comparison(&mut self, effects: &mut Vec<Effect>) {
        let Some(Compared { generation, changed, unknown }) = self.lists.take_compared() else {
            return;
        };
        let mut told = BTreeSet::new();
        for (kind, changes) in changed {
            if told.insert(kind.notification()) {
                effects.extend(self.memory.list_changed(kind).map(Effect::ToClient));
            }
            effects.push(Effect::ListChanged { kind, changes });
        }
        // It is not known whether these have changed: the client has to read them again.
        for kind in unknown {
            if told.insert(kind.notification()) {
                effects.extend(self.memory.list_changed(kind).map(Effect::ToClient));
            }
        }
        self.restarted(generation, effects);
    }

    /// This instance serves, and its tools are known: the calls that waited for it are answered.
    fn restarted(&mut self, generation: Generation, effects: &mut Vec<Effect>) {
        let Some(pid) = self.instances.get(generation).map(|instance| instance.pid()) else {
            return;
        };
        let tools = self.lists.tools();
        for (id, said) in self.restart_calls.succeed(self.now, generation, pid, tools) {
            self.say(&id, &said, effects);
        }
    }
}
