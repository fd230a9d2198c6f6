//! Instances that come, serve, drain and go, and what becomes of what they had.

use std::collections::BTreeSet;

use super::super::envelope::Id;
use super::super::inflight::{Class, Flight, Place};
use super::super::json;
use super::super::replay::Era;
use super::super::responses::{self, Why};
use super::{Conversation, Effect, Heard, Instance, Stage, Waiting};
use crate::id::Generation;

impl Conversation {
    pub(super) fn started(&mut self, generation: Generation, pid: u32, effects: &mut Vec<Effect>) {
        self.down = None;
        self.newest = self.newest.max(generation);
        let mut instance = Instance {
            pid,
            has_served: false,
            sent: 0,
            pongs: 0,
            stage: Stage::Opening,
            heard: Heard::Nothing,
            opening: None,
            listening_again: BTreeSet::new(),
        };
        let opening = self.memory.opening();
        let request = opening.as_ref().map(|(method, params)| {
            instance.heard = Heard::More;
            self.own_request(generation, method, params)
        });
        instance.opening = request.as_ref().map(|(id, _)| id.clone());
        self.instances.insert(generation, instance);
        if let Some((_, line)) = request {
            self.tell_server(generation, line, effects);
        }
        // While another one is still being asked to open the session, there is none to give.
        if opening.is_none() && !self.is_being_opened() {
            self.serve(generation, effects);
        }
    }

    pub(super) fn is_being_opened(&self) -> bool {
        let asked = |flight: &Flight| {
            flight.class == Class::Handshake && matches!(flight.place, Place::With { .. })
        };
        self.flights.values().any(asked)
    }

    /// Instances that had to wait until there was a session, or nobody left to open one.
    pub(super) fn open_idle(&mut self, effects: &mut Vec<Effect>) {
        let idle =
            |instance: &Instance| instance.stage == Stage::Opening && instance.opening.is_none();
        let found = self.instances.iter().find(|(_, instance)| idle(instance));
        let Some(generation) = found.map(|(generation, _)| *generation) else { return };
        if let Some((method, params)) = self.memory.opening() {
            let (id, line) = self.own_request(generation, method, &params);
            if let Some(instance) = self.instances.get_mut(&generation) {
                instance.opening = Some(id);
                instance.heard = Heard::More;
            }
            self.tell_server(generation, line, effects);
        } else if !self.is_being_opened() && self.serving.is_none() {
            self.serve(generation, effects);
        }
    }

    /// The instance has the session: what is new goes to it, and all that has waited.
    pub(super) fn serve(&mut self, generation: Generation, effects: &mut Vec<Effect>) {
        if self.serving.is_some_and(|serving| serving > generation) {
            // A newer one was faster.
            if let Some(instance) = self.instances.get_mut(&generation) {
                instance.stage = Stage::Draining;
            }
            return self.note_drained(generation, effects);
        }
        if let Some(old) = self.serving.replace(generation)
            && let Some(instance) = self.instances.get_mut(&old)
        {
            instance.stage = Stage::Draining;
        }
        self.trouble = None;
        self.health_begins(effects);
        let replayed = self.memory.opening().is_some();
        if let Some(instance) = self.instances.get_mut(&generation) {
            instance.stage = Stage::Serving;
            instance.has_served = true;
        }
        if replayed && self.memory.era == Era::Legacy {
            if let Some(line) = self.memory.initialized() {
                self.tell_server(generation, line, effects);
            }
            for (method, params) in self.memory.restoring() {
                let (_, line) = self.own_request(generation, method, &params);
                self.tell_server(generation, line, effects);
            }
        }
        effects.push(Effect::Serving { generation });
        self.flush(generation, effects);
        if replayed {
            for params in self.memory.updates() {
                let line =
                    responses::notification("notifications/resources/updated", Some(&params));
                effects.push(Effect::ToClient(line));
            }
            self.compare(generation, effects);
        } else {
            self.restarted(generation, effects);
        }
        let others: Vec<Generation> = self.instances.keys().copied().collect();
        for other in others {
            self.note_drained(other, effects);
        }
    }

    pub(super) fn flush(&mut self, generation: Generation, effects: &mut Vec<Effect>) {
        self.waiting_bytes = 0;
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting {
                Waiting::Request(id) => self.send(generation, &id, effects),
                Waiting::Notification(line) => {
                    self.heard(generation);
                    self.tell_server(generation, line, effects);
                }
            }
        }
    }

    pub(super) fn send(&mut self, generation: Generation, id: &Id, effects: &mut Vec<Effect>) {
        let number = self.instances.get(&generation).map_or(0, |instance| instance.sent);
        let Some(flight) = self.flights.get_mut(id) else { return };
        flight.place = Place::With { generation, number };
        flight.given_at = self.now;
        let line = flight.line.clone();
        let class = flight.class;
        let again = flight.is_listen() && self.memory.acknowledged.contains(id);
        if let Some(instance) = self.instances.get_mut(&generation) {
            instance.heard = match (instance.heard, class) {
                (Heard::Nothing | Heard::OnlyProbe, Class::Probe) => Heard::OnlyProbe,
                _ => Heard::More,
            };
            if again {
                instance.listening_again.insert(id.clone());
            }
        }
        self.tell_server(generation, line, effects);
        self.watch_health();
    }

    /// Writes to an instance; lines are counted, so that it can be told later which ones it has read.
    pub(super) fn tell_server(
        &mut self,
        generation: Generation,
        line: Vec<u8>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(instance) = self.instances.get_mut(&generation) {
            instance.sent += 1;
            effects.push(Effect::ToServer { generation, line });
        }
    }

    pub(super) fn ended(
        &mut self,
        generation: Generation,
        read: Option<u64>,
        how: &str,
        effects: &mut Vec<Effect>,
    ) {
        let Some(instance) = self.instances.remove(&generation) else { return };
        self.serving.take_if(|serving| *serving == generation);
        self.settling.take_if(|settling| settling.generation == generation);
        if self.serving.is_none() && !how.is_empty() {
            self.trouble = Some(how.to_owned());
        }
        self.own.retain(|_, of| *of != generation);
        let asked: Vec<Id> = self
            .asked
            .iter()
            .filter(|(_, (from, _))| *from == generation)
            .map(|(ours, _)| ours.clone())
            .collect();
        for ours in asked {
            self.asked.remove(&ours);
            let request: String = json::text(ours.raw()).unwrap_or_default();
            effects.push(Effect::ToClient(responses::cancelled(&request)));
        }
        let mut lost: Vec<(u64, Id)> = self
            .flights
            .iter()
            .filter(|(_, flight)| flight.is_with(generation))
            .map(|(id, flight)| (flight.number, id.clone()))
            .collect();
        lost.sort();
        let again: Vec<Id> = lost
            .into_iter()
            .filter_map(|(_, id)| {
                let end = End { generation, heard: instance.heard, read, how };
                self.settle(&end, id, effects)
            })
            .collect();
        for id in again.into_iter().rev() {
            self.waiting.push_front(Waiting::Request(id));
        }
        self.open_idle(effects);
        if let Some(serving) = self.serving {
            self.flush(serving, effects);
        }
    }

    /// Decides what becomes of a request whose instance is gone. Returns it if it is to be sent
    /// again.
    pub(super) fn settle(
        &mut self,
        end: &End<'_>,
        id: Id,
        effects: &mut Vec<Effect>,
    ) -> Option<Id> {
        let era = self.memory.era;
        let flight = self.flights.get_mut(&id)?;
        if flight.cancelled {
            self.flights.remove(&id);
            return None;
        }
        let unread = match (flight.place, end.read) {
            (Place::With { number, .. }, Some(read)) => number >= read,
            _ => false,
        };
        let is_listen = flight.is_listen();
        let again = match flight.class {
            // It never got it: nothing can have been done. A probe may still be what it died of.
            _ if unread && flight.class != Class::Probe => true,
            Class::Handshake => true,
            Class::Safe => is_listen || !flight.was_sent_again,
            Class::Probe => era == Era::Modern && !flight.was_sent_again,
            Class::Tool | Class::Other => false,
        };
        if again {
            flight.was_sent_again |= !unread;
            flight.place = Place::Waiting { until: self.now + self.patience };
            self.waiting_bytes += flight.line.len();
            return Some(id);
        }
        if flight.class == Class::Probe {
            self.answer(&id, &Why::NoSuchMethod, effects);
            if end.heard == Heard::OnlyProbe {
                effects.push(Effect::DiedOfProbe { generation: end.generation });
            }
            return None;
        }
        self.answer(&id, &Why::Restarted(end.how.to_owned()), effects);
        None
    }

    pub(super) fn note_drained(&mut self, generation: Generation, effects: &mut Vec<Effect>) {
        let draining = self.instances.get(&generation).is_some_and(|i| i.stage == Stage::Draining);
        let owes = || self.flights.values().any(|f| f.is_with(generation) && !f.is_listen());
        if draining && !owes() {
            effects.push(Effect::Drained { generation });
        }
    }

    pub(super) fn heard(&mut self, generation: Generation) {
        if let Some(instance) = self.instances.get_mut(&generation) {
            instance.heard = Heard::More;
        }
    }

    pub(super) fn own_request(
        &mut self,
        generation: Generation,
        method: &str,
        params: &[u8],
    ) -> (Id, Vec<u8>) {
        let (name, id) = loop {
            let name = format!("afresh:{generation}:{}", self.next_number);
            self.next_number += 1;
            let id = Id::new(format!("\"{name}\"").as_bytes());
            // The client may have taken it, by chance or to confuse us.
            if !self.flights.contains_key(&id) {
                break (name, id);
            }
        };
        self.own.insert(id.clone(), generation);
        (id, responses::request(&name, method, Some(params)))
    }
}

/// The end of an instance.
pub(super) struct End<'a> {
    generation: Generation,
    heard: Heard,
    read: Option<u64>,
    how: &'a str,
}
