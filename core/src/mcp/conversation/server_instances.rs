//! Handles the side of the server: the messages of instances, and their sessions from the start to the end.
//!
//! Driven by [`Conversation::handle`]. Never starts or stops a process.

use std::collections::BTreeSet;

use super::instance_table::{Received, SessionStage};
use super::{Conversation, Effect, EndCause, Notice};
use crate::id::Generation;
use crate::mcp::envelope::{Id, Message, batched, look, param};
use crate::mcp::inflight::{Class, Flight, Location, QueuedMessage};
use crate::mcp::json;
use crate::mcp::lists::{Comparison, Kind, PageAnswer, Pages};
use crate::mcp::replay::Era;
use crate::mcp::responses::{self, Why};
use crate::mcp::tasks;
use crate::mcp::wedge::Input as WedgeInput;

impl Conversation {
    pub(super) fn server_message(&mut self, generation: Generation, line: Vec<u8>) {
        if self.instances.serving == Some(generation) {
            self.wedge.sent_at = Some(self.now);
            if self.wedge.machine.is_silent() {
                self.judge(self.now, WedgeInput::Heard);
            }
        }
        let Some(instance) = self.instances.get_mut(generation) else { return };
        match look(&line) {
            Some(Message::Request { id, method, .. }) => {
                if instance.stage == SessionStage::Opening && method == "ping" {
                    if instance.may_pong() {
                        self.write(generation, responses::pong(&id));
                    }
                } else if self.ids.is_full() {
                    self.effects.push(Effect::Divert { generation: Some(generation), line });
                } else {
                    let line = self.ids.relay_request(generation, id, &line);
                    self.effects.extend(line.map(Effect::ToClient));
                }
            }
            Some(Message::Notification { method }) => {
                self.server_notification(generation, &method, line);
            }
            Some(Message::Response { id: Some(id), is_error }) => {
                self.server_response(generation, &id, line, is_error);
            }
            Some(Message::Batch) => {
                for message in batched(&line) {
                    match message {
                        Ok(line) => self.server_message(generation, line.to_vec()),
                        Err(line) => {
                            let line = line.to_vec();
                            self.effects
                                .push(Effect::Divert { generation: Some(generation), line });
                        }
                    }
                }
            }
            Some(Message::Response { id: None, .. } | Message::Invalid { .. }) | None => {
                self.effects.push(Effect::Divert { generation: Some(generation), line });
            }
        }
    }

    fn server_notification(&mut self, generation: Generation, method: &str, line: Vec<u8>) {
        if self.instances.serving == Some(generation) {
            self.lists.forget_results(method);
        }
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
                    return self.effects.push(Effect::ToClient(line));
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
            // The whole list is compared when the instance serves; what it says before that is noise.
            _ if instance.stage == SessionStage::Opening && method.ends_with("/list_changed") => {
                return;
            }
            _ if self.lists.take_notification(generation, method) => return,
            _ => self.tasks.note_told(method, &line),
        }
        self.effects.push(Effect::ToClient(line));
    }

    fn server_response(&mut self, generation: Generation, id: &Id, line: Vec<u8>, is_error: bool) {
        if let Some(instance) = self.instances.get_mut(generation).filter(|it| !it.has_answered) {
            instance.has_answered = true;
            self.start_failures.clear();
            // The failures may have been reported when this instance was there already.
            if instance.stage != SessionStage::Leaving {
                self.down = None;
            }
        }
        if self.ids.take_own(id, generation) {
            return self.own_answered(generation, id, &line, is_error);
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
        if self.instances.serving == Some(generation) {
            self.wedge.answered_at = Some(self.now);
        }
        self.memory.answered(id, &flight, &line, is_error);
        let line = match is_error {
            true => {
                let era = self.memory.era;
                let request = (id, flight.method.as_str(), flight.line.as_slice());
                let lost = self.tasks.answer_for_lost(generation, era, request, &line);
                lost.unwrap_or(line)
            }
            false => {
                self.tasks.note_told(&flight.method, &line);
                line
            }
        };
        if !is_error && tasks::may_be_made_by(&flight, self.memory.era) {
            self.tasks.note(generation, &line);
        }
        if flight.is_answered_from_memory
            && self.instances.serving == Some(generation)
            && let Some(kind) = self.lists.listed_late(&flight, &line, is_error)
        {
            self.notify_changed([kind]);
        }
        let line = match flight.method.as_str() {
            "initialize" | "server/discover" if !is_error => self.lists.advertised(line),
            _ => self.lists.listed(&flight, line, is_error, self.memory.era),
        };
        let line = match flight.class {
            Class::Tool if !is_error => self.note_tool_result(generation, &flight, line),
            _ => line,
        };
        if !flight.is_cancelled() {
            self.effects.push(Effect::ToClient(line));
            if let Some(serving) = self.instances.serving.filter(|it| *it != generation)
                && let Some(kind) = self.lists.compare_late(self.now, serving, &flight.method)
            {
                self.request_page(serving, kind, Pages::default());
            }
        }
        self.open_idle();
        self.note_drained(generation);
    }

    /// A tool has a result. Returns it with what is to be told of an earlier instance.
    fn note_tool_result(
        &mut self,
        generation: Generation,
        flight: &Flight,
        line: Vec<u8>,
    ) -> Vec<u8> {
        if let Some(instance) = self.instances.get_mut(generation) {
            instance.has_answered_call = true;
        }
        let is_new = self.instances.serving == Some(generation) && !flight.is_cancelled();
        if !is_new || !self.notices.is_due() {
            return line;
        }
        let may_add_text = self.lists.is_for_people(param(&flight.line, &["name"]));
        self.notices.add_to(line, may_add_text)
    }

    /// An instance answers a request of afresh.
    fn own_answered(&mut self, generation: Generation, id: &Id, line: &[u8], is_error: bool) {
        if self.wedge.probe.take_if(|probe| probe == id).is_some() {
            return self.judge(self.now, WedgeInput::ProbeAnswered);
        }
        match self.lists.answered(id, line, is_error) {
            PageAnswer::Other => {}
            PageAnswer::Taken => return self.finish_comparison(),
            PageAnswer::Next { generation, kind, pages } => {
                return self.request_page(generation, kind, pages);
            }
        }
        let Some(instance) = self.instances.get_mut(generation) else { return };
        if !instance.take_opening(id) {
            return;
        }
        if is_error {
            self.instances.set_stage(generation, SessionStage::Leaving);
            let said = json::get(line, &["error", "message"]).and_then(json::text);
            let why = said.unwrap_or_else(|| "it answered with an error".to_owned());
            self.effects.push(Effect::HandshakeFailed { generation, why });
        } else {
            self.serve(generation);
        }
    }

    pub(super) fn server_too_long(&mut self, generation: Generation, beginning: &[u8]) {
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
                return self.effects.push(Effect::Divert { generation: Some(generation), line });
            }
        };
        self.answer(&id, &Why::TooLong);
    }

    pub(super) fn started(&mut self, generation: Generation, pid: u32) {
        self.down = None;
        self.instances.start(generation, pid);
        self.open_session(generation, true);
    }

    /// Opens the session anew with an instance; where there was none yet, it may serve at once.
    fn open_session(&mut self, generation: Generation, may_serve: bool) {
        if let Some((method, params)) = self.memory.opening() {
            let id = self.send_own(generation, method, &params);
            if let Some(instance) = self.instances.get_mut(generation) {
                (instance.opening, instance.received) = (Some(id), Received::More);
            }
        } else if may_serve && !self.requests.are_opening_session() {
            // While another one is still being asked to open the session, there is none to give.
            self.serve(generation);
        }
    }

    /// Gives a session to an instance that had to wait until there was one, or none left to open it.
    fn open_idle(&mut self) {
        if let Some(generation) = self.instances.idle() {
            self.open_session(generation, self.instances.serving.is_none());
        }
    }

    /// The instance has the session: it gets what is new, and all that was queued.
    fn serve(&mut self, generation: Generation) {
        if !self.instances.serve(generation) {
            return self.note_drained(generation);
        }
        self.last_end = None;
        self.notices.forget_failure();
        self.wedge.probe = None;
        self.judge(self.now, WedgeInput::Started);
        let is_replayed = self.memory.opening().is_some();
        if is_replayed && self.memory.era == Era::Legacy {
            if let Some(line) = self.memory.initialized() {
                self.write(generation, line);
            }
            for (method, params) in self.memory.restoring() {
                self.send_own(generation, method, &params);
            }
        }
        self.effects.push(Effect::Serving(generation));
        self.flush(generation);
        if is_replayed {
            for params in self.memory.updates() {
                let line =
                    responses::notification("notifications/resources/updated", Some(&params));
                self.effects.push(Effect::ToClient(line));
            }
            let needs_tools = !self.restart_calls.waiting.is_empty();
            for kind in self.lists.compare(self.now, generation, needs_tools) {
                self.request_page(generation, kind, Pages::default());
            }
            self.finish_comparison();
        } else {
            self.restarted(generation);
        }
        for other in self.instances.generations() {
            self.note_drained(other);
        }
    }

    fn flush(&mut self, generation: Generation) {
        for message in self.requests.take_queue() {
            match message {
                QueuedMessage::Request(id) => self.send(generation, &id),
                QueuedMessage::Notification(line) => {
                    self.instances.note_message(generation);
                    self.write(generation, line);
                }
            }
        }
    }

    pub(super) fn send(&mut self, generation: Generation, id: &Id) {
        let Some(instance) = self.instances.get_mut(generation) else { return };
        let Some(flight) = self.requests.get_mut(id) else { return };
        flight.location = Location::Sent { generation, number: instance.sent };
        flight.given_at = self.now;
        instance.note_request(flight.class);
        if flight.is_listen() && self.memory.acknowledged.contains(id) {
            instance.listening_again.insert(id.clone());
        }
        let line = flight.line.clone();
        self.write(generation, line);
        self.wedge.watch(self.now);
    }

    pub(super) fn ended(
        &mut self,
        generation: Generation,
        read: Option<u64>,
        how: &str,
        cause: EndCause,
    ) {
        let Some(instance) = self.instances.end(generation) else { return };
        self.lists.end(generation);
        let by_restart = cause == EndCause::Superseded || instance.is_replaced;
        self.tasks.lose(generation, how, by_restart);
        let is_lost = cause == EndCause::ByItself && instance.has_served && !instance.is_replaced;
        if is_lost && !self.notices.hands_on() {
            self.notices.note_end(how, instance.has_answered_call);
        }
        if self.instances.serving.is_none() && !how.is_empty() {
            self.last_end = Some(how.to_owned());
        }
        self.effects.extend(self.ids.end(generation).into_iter().map(Effect::ToClient));
        let mut again = Vec::new();
        for id in self.requests.ids_of(|flight| flight.is_with(generation)) {
            let Some(flight) = self.requests.get_mut(&id) else { continue };
            if flight.is_cancelled() {
                self.requests.remove(&id);
            } else if flight.is_sent_again(read, self.memory.era == Era::Modern) {
                again.push(id);
            } else if flight.class == Class::Probe {
                self.answer(&id, &Why::NoSuchMethod);
                if instance.received == Received::OnlyProbe {
                    self.effects.push(Effect::DiedOfProbe(generation));
                }
            } else {
                self.answer(&id, &Why::Ended(how.to_owned()));
            }
        }
        if is_lost && self.notices.hands_on() {
            // Behind the answers of this instance's calls: the next results are another's.
            self.effects.push(Effect::Notice(Notice::StateLost(how.to_owned())));
        }
        self.requests.queue_again(self.now, again);
        self.open_idle();
        if let Some(serving) = self.instances.serving {
            self.flush(serving);
        }
    }

    fn note_drained(&mut self, generation: Generation) {
        if self.instances.is(generation, SessionStage::Draining)
            && !self.requests.are_owed_by(generation)
        {
            self.effects.push(Effect::Drained(generation));
        }
    }

    fn request_page(&mut self, generation: Generation, kind: Kind, pages: Pages) {
        let cursor = pages.next.as_ref().map(|next| [br#""cursor":"#, next.as_slice()].concat());
        let params = self.memory.params(&cursor.unwrap_or_default());
        let id = self.send_own(generation, kind.method(), &params);
        self.lists.requested(id, kind, pages);
    }

    /// An instance that does not answer in time is not waited for.
    pub(super) fn expire_comparison(&mut self) {
        let changed = self.lists.expire(self.now);
        self.notify_changed(changed);
        self.finish_comparison();
    }

    /// Tells the client that these lists have changed; resources and their templates have one notification.
    fn notify_changed(&mut self, kinds: impl IntoIterator<Item = Kind>) {
        let mut told = BTreeSet::new();
        for kind in kinds {
            if told.insert(kind.notification()) {
                self.effects.extend(self.memory.list_changed(kind).map(Effect::ToClient));
            }
        }
    }

    /// Tells the client which lists have changed, once all are compared.
    fn finish_comparison(&mut self) {
        let Some(Comparison { generation, changed, failed, .. }) = self.lists.take_compared()
        else {
            return;
        };
        self.notify_changed(changed.keys().copied().chain(failed));
        let changed = changed.into_iter();
        self.effects.extend(changed.map(|(kind, changes)| Effect::ListChanged { kind, changes }));
        self.restarted(generation);
    }

    /// This instance serves, and its tools are known: the calls that waited for it are answered.
    fn restarted(&mut self, generation: Generation) {
        let Some(instance) = self.instances.get(generation) else { return };
        let (pid, tools) = (instance.pid, self.lists.tools());
        let succeeded = self.restart_calls.succeed(self.now, generation, pid, tools);
        self.say(succeeded);
    }
}
