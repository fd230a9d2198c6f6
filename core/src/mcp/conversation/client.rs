//! The client's side: what it asks, tells, cancels and answers, and what waits for an instance.

use std::ops::Range;

use super::super::envelope::{self, Id, Message, Params, look, param};
use super::super::inflight::{Class, Flight, Place};
use super::super::json;
use super::super::responses::{self, Why};
use super::{Conversation, Effect, Heard, Waiting};
use crate::limits::{MESSAGE_BYTES_MAX, QUEUE_BYTES_MAX, QUEUE_LEN_MAX};
use crate::time::Time;

const NO_REQUEST: &str = "this is no request: it needs a method, and a text or a number as its id";
const TAKEN: &str =
    "a request of afresh's own has this id; ids that begin with `afresh:` are reserved";

impl Conversation {
    pub(super) fn client(&mut self, line: Vec<u8>, effects: &mut Vec<Effect>) {
        match look(&line) {
            Some(Message::Request { id, method, params }) => {
                self.ask(id, method, &params, line, effects);
            }
            Some(Message::Notification { method }) => self.tell(&method, line, effects),
            Some(Message::Response { id, .. }) => self.reply(id, &line, effects),
            Some(Message::Batch) => {
                for element in json::elements(&line).unwrap_or_default() {
                    let line = line[element].to_vec();
                    match look(&line) {
                        // A batch of batches is nothing, and a stack ends.
                        Some(Message::Batch) => {
                            effects.push(Effect::Divert { generation: None, line });
                        }
                        _ => self.client(line, effects),
                    }
                }
            }
            Some(Message::Invalid { id }) if !self.flights.contains_key(&id) => {
                effects.push(Effect::ToClient(responses::invalid(&id, NO_REQUEST)));
            }
            Some(Message::Invalid { .. }) | None => {
                effects.push(Effect::Divert { generation: None, line })
            }
        }
    }

    /// A request of the client's.
    pub(super) fn ask(
        &mut self,
        id: Id,
        method: String,
        params: &Params,
        line: Vec<u8>,
        effects: &mut Vec<Effect>,
    ) {
        if self.flights.contains_key(&id) {
            // Two requests with one id cannot be answered apart: the first one is.
            effects.push(Effect::Divert { generation: None, line });
            return;
        }
        if self.own.contains_key(&id) {
            effects.push(Effect::ToClient(responses::invalid(&id, TAKEN)));
            return;
        }
        self.memory.request(&id, &method, params, &line);
        if method == "initialize"
            && let Some(generation) = self.serving
            && self
                .instances
                .get(&generation)
                .is_some_and(|instance| instance.heard == Heard::OnlyProbe)
        {
            // Some servers have chosen the modern era with the probe, and refuse to go back.
            self.serving = None;
            effects.push(Effect::Replace { generation });
        }
        if method == "ping" && self.serving.is_none() {
            effects.push(Effect::ToClient(responses::pong(&id)));
            return;
        }
        let raw = |part: &Option<Range<usize>>| part.clone().map(|part| &line[part]);
        let ours = match method.as_str() {
            "tools/call" => self.own_tool(raw(&params.name)),
            _ => None,
        };
        let place = match ours {
            Some(_) => Place::Ours,
            None => Place::Waiting { until: self.now + self.patience },
        };
        let class = Class::of(&method, params.task.is_some());
        let progress_token = raw(&params.progress_token).map(<[u8]>::to_vec);
        let mut flight = Flight::new(method, line, class, place, self.now);
        (flight.progress_token, flight.number) = (progress_token, self.next_number);
        self.next_number += 1;
        self.flights.insert(id.clone(), flight);
        if self.flights.are_too_many() {
            return self.answer(&id, &Why::TooMany, effects);
        }
        if let Some(tool) = ours {
            return self.call_own(tool, id, effects);
        }
        match (self.serving, &self.down) {
            (Some(generation), _) => self.send(generation, &id, effects),
            (None, Some(why)) => {
                effects.push(Effect::Wanted);
                let why = Why::Down(why.clone());
                self.answer(&id, &why, effects);
            }
            (None, None) => self.wait(id, effects),
        }
    }

    /// A message of the client's that is longer than allowed: a request is answered, anything else
    /// is for the log.
    pub(super) fn client_too_long(
        &mut self,
        beginning: Vec<u8>,
        ending: &[u8],
        effects: &mut Vec<Effect>,
    ) {
        let found = envelope::look_at_ends(&beginning, ending);
        let Some((id, method)) = found.filter(|(id, _)| !self.flights.contains_key(id)) else {
            return effects.push(Effect::Divert { generation: None, line: beginning });
        };
        let class = Class::of(&method, false);
        let flight = Flight::new(method, Vec::new(), class, Place::Ours, self.now);
        self.flights.insert(id.clone(), flight);
        self.answer(&id, &Why::RequestTooLong(MESSAGE_BYTES_MAX), effects);
    }

    /// A notification of the client's.
    pub(super) fn tell(&mut self, method: &str, line: Vec<u8>, effects: &mut Vec<Effect>) {
        self.memory.notification(method);
        if method == "notifications/cancelled" {
            return self.cancel(line, effects);
        }
        match self.serving {
            Some(generation) => {
                self.heard(generation);
                self.tell_server(generation, line, effects);
            }
            // A new instance is told by the replay, or asks for itself.
            None if method == "notifications/roots/list_changed" => {}
            None if method == "notifications/initialized" && self.memory.opening().is_some() => {}
            None if self.has_room(line.len()) => {
                self.waiting_bytes += line.len();
                self.waiting.push_back(Waiting::Notification(line));
            }
            None => effects.push(Effect::Divert { generation: None, line }),
        }
    }

    pub(super) fn cancel(&mut self, line: Vec<u8>, effects: &mut Vec<Effect>) {
        let Some(id) = param(&line, &["requestId"]).map(Id::new) else { return };
        self.memory.stop_listening(&id);
        match self.flights.get_mut(&id) {
            Some(Flight { place: Place::With { generation, .. }, cancelled, .. }) => {
                *cancelled = true;
                let generation = *generation;
                self.tell_server(generation, line, effects);
            }
            Some(_) => {
                self.forget(&id);
            }
            None => {}
        }
    }

    /// An answer of the client's to a request of a server's.
    pub(super) fn reply(&mut self, id: Option<Id>, line: &[u8], effects: &mut Vec<Effect>) {
        let asked = id.and_then(|id| self.asked.remove(&id));
        if let Some((generation, theirs)) = asked
            && let Some(line) = envelope::with_id(line, theirs.raw())
        {
            self.tell_server(generation, line, effects);
        }
    }

    pub(super) fn wait(&mut self, id: Id, effects: &mut Vec<Effect>) {
        let bytes = self.flights.get(&id).map_or(0, |flight| flight.line.len());
        if self.has_room(bytes) {
            self.waiting_bytes += bytes;
            self.waiting.push_back(Waiting::Request(id));
        } else {
            self.answer(&id, &Why::Full, effects);
        }
    }

    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.waiting.len() < QUEUE_LEN_MAX && self.waiting_bytes + bytes <= QUEUE_BYTES_MAX
    }

    /// Answers what has waited long enough: all of it, where no moment is given.
    pub(super) fn expire(&mut self, now: Option<Time>, effects: &mut Vec<Effect>) {
        let due = |flight: &Flight| {
            flight.waits_until().is_some_and(|until| now.is_none_or(|now| until <= now))
        };
        let mut ids: Vec<(u64, Id)> = self
            .flights
            .iter()
            .filter(|(_, flight)| due(flight))
            .map(|(id, flight)| (flight.number, id.clone()))
            .collect();
        ids.sort_by_key(|(number, _)| *number);
        let why = match (&self.down, &self.trouble) {
            (Some(why), _) => why.clone(),
            (None, Some(how)) => format!("no new instance is ready; the last one {how}"),
            (None, None) => "it has not come up in time".to_owned(),
        };
        for (_, id) in ids {
            self.answer(&id, &Why::Down(why.clone()), effects);
        }
    }

    /// Answers a request in the server's place.
    pub(super) fn answer(&mut self, id: &Id, why: &Why, effects: &mut Vec<Effect>) {
        let era = self.memory.era;
        if let Some(flight) = self.forget(id)
            && !flight.cancelled
        {
            self.memory.stop_listening(id);
            effects.push(Effect::ToClient(responses::answer(&flight, id, era, why)));
        }
    }

    pub(super) fn forget(&mut self, id: &Id) -> Option<Flight> {
        let flight = self.flights.remove(id)?;
        let before = self.waiting.len();
        self.waiting.retain(|waiting| !matches!(waiting, Waiting::Request(other) if other == id));
        if self.waiting.len() < before {
            self.waiting_bytes = self.waiting_bytes.saturating_sub(flight.line.len());
        }
        Some(flight)
    }
}
