//! The machine: one client, one server, any number of instances one after another.
//!
//! Every request of the client's is answered exactly once: by the instance that got it, by its
//! successor where that is safe, or by us. Client ids stay as they are; ids of the server's own
//! requests get the instance's generation, so that an answer can never reach another instance.
//!
//! ```text
//!   Started ──▶ Opening ──(session replayed)──▶ Serving ──(a newer one serves)──▶ Draining
//!                  │                               │                                 │
//!                  └────────────── Leaving ◀───────┴─────────────────────────────────┘   Ended
//! ```

mod client;
mod instances;
mod server;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::envelope::Id;
use super::inflight::{Flight, Place};
use super::memory::Memory;
use crate::id::Generation;
use crate::time::Time;

/// Something that happened outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A line of the client's.
    Client(Vec<u8>),
    /// The client sent a line that is too long; these are its two ends.
    ClientTooLong {
        /// How it began.
        beginning: Vec<u8>,
        /// How it ended.
        ending: Vec<u8>,
    },
    /// A line of an instance's.
    Server {
        /// Which instance.
        generation: Generation,
        /// Without its end.
        line: Vec<u8>,
    },
    /// An instance sent a line that is too long; this is its beginning.
    ServerTooLong {
        /// Which instance.
        generation: Generation,
        /// What is left of it.
        beginning: Vec<u8>,
    },
    /// An instance runs and can be written to.
    Started {
        /// Which instance.
        generation: Generation,
    },
    /// An instance is being stopped: what it says of its end is not to be believed.
    Leaving {
        /// Which instance.
        generation: Generation,
    },
    /// An instance is gone.
    Ended {
        /// Which instance.
        generation: Generation,
    },
    /// No instance will come by itself.
    Down {
        /// Why, with the server's last words.
        why: String,
    },
    /// The moment that `next_wakeup` gave has come.
    Wakeup,
}

/// Something that must be done, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write a line to the client.
    ToClient(Vec<u8>),
    /// Write a line to an instance.
    ToServer {
        /// Which instance.
        generation: Generation,
        /// Without its end.
        line: Vec<u8>,
    },
    /// The instance has the session, and gets all that is new.
    Serving {
        /// Which instance.
        generation: Generation,
    },
    /// All that the instance owed is paid: it can go.
    Drained {
        /// Which instance.
        generation: Generation,
    },
    /// The instance did not take the session: it must go, and counts as crashed.
    HandshakeFailed {
        /// Which instance.
        generation: Generation,
        /// What it said.
        why: String,
    },
    /// The instance died of a probe for the modern era: start another one, and count no crash.
    DiedOfProbe {
        /// Which instance.
        generation: Generation,
    },
    /// The instance has committed itself to another era: replace it, and count no crash.
    Replace {
        /// Which instance.
        generation: Generation,
    },
    /// Somebody wants an answer while nothing runs and nothing is planned.
    Wanted,
    /// A line that is no message: for the log, not for the other side.
    Divert {
        /// Whose; none for the client's.
        generation: Option<Generation>,
        /// The line.
        line: Vec<u8>,
    },
}

/// One conversation.
#[derive(Debug)]
pub struct Conversation {
    memory: Memory,
    instances: BTreeMap<Generation, Instance>,
    serving: Option<Generation>,
    flights: BTreeMap<Id, Flight>,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// Requests of servers that the client has not answered: our id for them, and theirs.
    asked: BTreeMap<Id, (Generation, Id)>,
    /// Requests of our own.
    own: BTreeMap<Id, Generation>,
    next_number: u64,
    down: Option<String>,
    patience: Duration,
}

/// A process of the server's.
#[derive(Debug)]
struct Instance {
    stage: Stage,
    heard: Heard,
    /// Our request that opens the session.
    opening: Option<Id>,
    /// Listen requests that were sent again, and whose acknowledgement the client has already.
    listening_again: BTreeSet<Id>,
}

/// What an instance has been told so far: the first message can commit it to an era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    OnlyProbe,
    More,
}

/// How far an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Opening,
    Serving,
    Draining,
    Leaving,
}

/// What is kept for the next instance.
#[derive(Debug)]
enum Waiting {
    Request(Id),
    Notification(Vec<u8>),
}

impl Conversation {
    /// A conversation that has not begun. Requests wait for an instance for `patience` at most.
    pub fn new(patience: Duration) -> Self {
        Self {
            memory: Memory::default(),
            instances: BTreeMap::new(),
            serving: None,
            flights: BTreeMap::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            asked: BTreeMap::new(),
            own: BTreeMap::new(),
            next_number: 1,
            down: None,
            patience,
        }
    }

    /// Records one input, and returns what has to be done now.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Client(line) => self.client(now, line, &mut effects),
            Input::ClientTooLong { beginning, ending } => {
                self.client_too_long(now, beginning, &ending, &mut effects);
            }
            Input::Server { generation, line } => self.server(generation, line, &mut effects),
            Input::ServerTooLong { generation, beginning } => {
                self.too_long(generation, &beginning, &mut effects);
            }
            Input::Started { generation } => self.started(generation, &mut effects),
            Input::Leaving { generation } => {
                if let Some(instance) = self.instances.get_mut(&generation) {
                    instance.stage = Stage::Leaving;
                    self.serving.take_if(|serving| *serving == generation);
                }
            }
            Input::Ended { generation } => self.ended(now, generation, &mut effects),
            Input::Down { why } => {
                self.down = Some(why);
                self.expire(None, &mut effects);
            }
            Input::Wakeup => self.expire(Some(now), &mut effects),
        }
        effects
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let until = |flight: &Flight| match flight.place {
            Place::Waiting { until } => Some(until),
            Place::With(_) => None,
        };
        self.flights.values().filter_map(until).min()
    }

    /// How many requests of the client's have no answer yet.
    pub fn owed(&self) -> usize {
        self.flights.values().filter(|flight| !flight.cancelled).count()
    }
}

#[cfg(test)]
mod tests;
