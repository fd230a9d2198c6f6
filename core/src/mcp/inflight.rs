//! What is owed to the client: every request that has not been answered.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Deref;

use super::envelope::Id;
use crate::id::Generation;
use crate::limits::{FLIGHTS_BYTES_MAX, FLIGHTS_MAX};
use crate::time::Time;

/// All of them, by their ids.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    all: BTreeMap<Id, Flight>,
    bytes: usize,
}

impl Flights {
    pub(crate) fn insert(&mut self, id: Id, flight: Flight) {
        self.bytes += flight.line.len();
        if let Some(old) = self.all.insert(id, flight) {
            self.bytes -= old.line.len();
        }
    }

    pub(crate) fn remove(&mut self, id: &Id) -> Option<Flight> {
        let flight = self.all.remove(id)?;
        self.bytes -= flight.line.len();
        Some(flight)
    }

    /// Takes one out, if it is what is meant; looks it up once.
    pub(crate) fn remove_if(
        &mut self,
        id: &Id,
        is_meant: impl FnOnce(&Flight) -> bool,
    ) -> Option<Flight> {
        let Entry::Occupied(entry) = self.all.entry(id.clone()) else { return None };
        let flight = is_meant(entry.get()).then(|| entry.remove())?;
        self.bytes -= flight.line.len();
        Some(flight)
    }

    /// To change where one is; its line stays as it is.
    pub(crate) fn get_mut(&mut self, id: &Id) -> Option<&mut Flight> {
        self.all.get_mut(id)
    }

    /// Whether there are more than may be. One alone may have any length.
    pub(crate) fn are_too_many(&self) -> bool {
        let too_long = self.bytes > FLIGHTS_BYTES_MAX && self.all.len() > 1;
        self.all.len() > FLIGHTS_MAX || too_long
    }
}

impl Deref for Flights {
    type Target = BTreeMap<Id, Flight>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

/// A request of the client's that wants an answer.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    /// As it came.
    pub(crate) line: Vec<u8>,
    pub(crate) class: Class,
    pub(crate) method: String,
    pub(crate) place: Place,
    /// It was given to an instance that is gone, and to another one after that.
    pub(crate) was_sent_again: bool,
    /// The client wants no answer any more.
    pub(crate) cancelled: bool,
    /// The raw token by which its progress is told.
    pub(crate) progress_token: Option<Vec<u8>>,
    /// When it was given to an instance.
    pub(crate) given_at: Time,
    /// The order in which requests came.
    pub(crate) number: u64,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// With us, until then at the most.
    Waiting { until: Time },
    /// With this instance, as the line of this number.
    With { generation: Generation, number: u64 },
    /// With us: it is for a tool of our own.
    Ours,
}

/// What may be done with a request whose instance is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Opens the session: sent again until it is answered.
    Handshake,
    /// Asks whether the server is of the modern era: never sent again.
    Probe,
    /// Changes nothing: sent again, once.
    Safe,
    /// May have done something already: answered by us, for the model.
    Tool,
    /// Unknown, or not safe: answered by us, as an error.
    Other,
}

impl Flight {
    /// One that has just come.
    pub(crate) fn new(
        method: String,
        line: Vec<u8>,
        class: Class,
        place: Place,
        now: Time,
    ) -> Self {
        Self {
            line,
            class,
            method,
            place,
            was_sent_again: false,
            cancelled: false,
            progress_token: None,
            given_at: now,
            number: 0,
        }
    }

    pub(crate) fn is_with(&self, here: Generation) -> bool {
        matches!(self.place, Place::With { generation, .. } if generation == here)
    }

    /// When it has waited long enough, if it waits with us.
    pub(crate) fn waits_until(&self) -> Option<Time> {
        match self.place {
            Place::Waiting { until } => Some(until),
            Place::With { .. } | Place::Ours => None,
        }
    }

    pub(crate) fn is_listen(&self) -> bool {
        self.method == "subscriptions/listen"
    }
}

impl Class {
    pub(crate) fn of(method: &str, has_task: bool) -> Self {
        match method {
            "initialize" => Self::Handshake,
            "server/discover" => Self::Probe,
            // The answer to a task-augmented call has another shape: only an error fits.
            "tools/call" if has_task => Self::Other,
            "tools/call" => Self::Tool,
            "ping"
            | "tools/list"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "prompts/list"
            | "prompts/get"
            | "completion/complete"
            | "logging/setLevel"
            | "tasks/get"
            | "tasks/result"
            | "tasks/list"
            | "subscriptions/listen" => Self::Safe,
            _ => Self::Other,
        }
    }
}
