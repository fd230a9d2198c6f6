//! Handles the messages of the client: requests, notifications, cancellations and answers.
//!
//! Driven by [`Conversation::handle`]. Never waits: a request without an instance goes into the queue.

use std::ops::Range;

use super::instance_table::Received;
use super::{Conversation, Effect};
use crate::mcp::admin_tools::{AdminRequest, AdminTool, RestartCall, ToolResult};
use crate::mcp::envelope::{self, Id, Message, Params, batched, look, param};
use crate::mcp::inflight::{Class, Flight, Location, QueuedMessage};
use crate::mcp::responses::{self, Why};

const NO_REQUEST: &str = "this is no request: it needs a method, and a text or a number as its id";
const TAKEN: &str =
    "a request of afresh's own has this id; ids that begin with `afresh:` are reserved";

impl Conversation {
    pub(super) fn client_message(&mut self, line: Vec<u8>) {
        match look(&line) {
            Some(Message::Request { id, method, params }) => {
                self.client_request(id, method, &params, line);
            }
            Some(Message::Notification { method }) => self.client_notification(&method, line),
            Some(Message::Response { id, .. }) => {
                if let Some((generation, line)) =
                    id.and_then(|id| self.ids.relay_answer(&id, &line))
                {
                    self.write(generation, line);
                }
            }
            Some(Message::Batch) => {
                for message in batched(&line) {
                    match message {
                        Ok(line) => self.client_message(line.to_vec()),
                        Err(line) => {
                            let line = line.to_vec();
                            self.effects.push(Effect::Divert { generation: None, line });
                        }
                    }
                }
            }
            Some(Message::Invalid { id }) if !self.requests.contains(&id) => {
                self.effects.push(Effect::ToClient(responses::invalid(&id, NO_REQUEST)));
            }
            Some(Message::Invalid { .. }) | None => {
                self.effects.push(Effect::Divert { generation: None, line })
            }
        }
    }

    fn client_request(&mut self, id: Id, method: String, params: &Params, line: Vec<u8>) {
        if self.requests.contains(&id) {
            // Two requests with one id cannot be answered apart: the first one is.
            return self.effects.push(Effect::Divert { generation: None, line });
        }
        if self.ids.is_own(&id) {
            return self.effects.push(Effect::ToClient(responses::invalid(&id, TAKEN)));
        }
        self.memory.request(&id, &method, params, &line);
        if method == "initialize"
            && let Some(generation) = self.instances.serving
            && let Some(instance) = self.instances.get(generation)
            && instance.received == Received::OnlyProbe
        {
            // Some servers have chosen the modern era with the probe, and refuse to go back.
            self.instances.serving = None;
            self.effects.push(Effect::Replace(generation));
        }
        if method == "ping" && self.instances.serving.is_none() {
            return self.effects.push(Effect::ToClient(responses::pong(&id)));
        }
        let raw = |part: &Option<Range<usize>>| part.clone().map(|part| &line[part]);
        let tool = match method.as_str() {
            "tools/call" => self.lists.admin_tool(raw(&params.name)),
            _ => None,
        };
        let location = match tool {
            Some(_) => Location::Local,
            None => self.requests.waiting_from(self.now),
        };
        let class = Class::of(&method, params.task.is_some());
        let progress_token = raw(&params.progress_token).map(<[u8]>::to_vec);
        let mut flight = Flight::new(method, line, class, location, self.now);
        (flight.progress_token, flight.number) = (progress_token, self.ids.next_number());
        self.requests.insert(id.clone(), flight);
        if self.requests.are_too_many() {
            return self.answer(&id, &Why::TooMany);
        }
        if let Some(tool) = tool {
            return self.call_admin_tool(tool, id);
        }
        let is_silent = self.wedge.machine.is_silent();
        let flight = self.requests.get(&id).filter(|_| is_silent);
        if let Some(result) = flight.and_then(|flight| self.lists.remembered(flight)) {
            self.effects.push(Effect::ToClient(responses::result(&id, result)));
            self.requests.remove(&id);
            return;
        }
        match (self.instances.serving, &self.down) {
            (Some(generation), _) => self.send(generation, &id),
            (None, Some(why)) => {
                self.effects.push(Effect::Wanted);
                let why = Why::Down(why.clone());
                self.answer(&id, &why);
            }
            (None, None) => {
                let message = QueuedMessage::Request(id);
                if let Some(QueuedMessage::Request(id)) = self.requests.queue(message) {
                    self.answer(&id, &Why::Full);
                }
            }
        }
    }

    fn call_admin_tool(&mut self, tool: AdminTool, id: Id) {
        let Some(flight) = self.requests.get(&id) else { return };
        match tool.asked(param(&flight.line, &["arguments"])) {
            Ok(request) => {
                if let AdminRequest::Restart { .. } = request {
                    // An instance will come, or it will be said again that none does.
                    self.down = None;
                    let serving = self.instances.serving.and_then(|it| self.instances.get(it));
                    let (newest, old_pid) = (self.instances.newest, serving.map(|it| it.pid));
                    let (id, called_at) = (id.clone(), self.now);
                    let before = self.lists.tools().cloned();
                    let call = RestartCall { id, called_at, newest, old_pid, before };
                    self.restart_calls.waiting.push(call);
                }
                self.effects.push(Effect::AdminRequest { id, request });
            }
            Err(text) => self.say(vec![(id, ToolResult::error(text))]),
        }
    }

    /// A message that is longer than allowed: a request is answered, anything else is for the log.
    pub(super) fn client_too_long(&mut self, beginning: Vec<u8>, ending: &[u8]) {
        let found = envelope::look_at_ends(&beginning, ending);
        let Some((id, method)) = found.filter(|(id, _)| !self.requests.contains(id)) else {
            return self.effects.push(Effect::Divert { generation: None, line: beginning });
        };
        let class = Class::of(&method, false);
        let flight = Flight::new(method, Vec::new(), class, Location::Local, self.now);
        self.requests.insert(id.clone(), flight);
        self.answer(&id, &Why::RequestTooLong);
    }

    fn client_notification(&mut self, method: &str, line: Vec<u8>) {
        self.memory.notification(method);
        if method == "notifications/cancelled" {
            return self.cancel(line);
        }
        match self.instances.serving {
            Some(generation) => {
                self.instances.note_message(generation);
                self.write(generation, line);
            }
            // A new instance gets these by the replay, or asks for itself.
            None if method == "notifications/roots/list_changed" => {}
            None if method == "notifications/initialized" && self.memory.opening().is_some() => {}
            None => {
                let message = QueuedMessage::Notification(line);
                if let Some(QueuedMessage::Notification(line)) = self.requests.queue(message) {
                    self.effects.push(Effect::Divert { generation: None, line });
                }
            }
        }
    }

    fn cancel(&mut self, line: Vec<u8>) {
        let Some(id) = param(&line, &["requestId"]).map(Id::new) else { return };
        self.memory.stop_listening(&id);
        match self.requests.get_mut(&id) {
            Some(Flight { location: Location::Sent { generation, .. }, cancelled_at, .. }) => {
                cancelled_at.get_or_insert(self.now);
                let generation = *generation;
                self.write(generation, line);
            }
            Some(_) => drop(self.requests.remove(&id)),
            None => {}
        }
    }
}
