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

mod admin_tools;
mod client;
mod health;
mod instances;
mod lists;
mod server;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use self::admin_tools::RestartCall;
use self::health::Health;
use self::lists::Settling;
use super::envelope::Id;
use super::inflight::{Flight, Flights, Place};
use super::lists::{Changes, Kind, List, Pages};
use super::replay::Memory;
use super::tools::{Asked, Said, Tools};
use crate::id::Generation;
use crate::time::Time;

/// Something that happened outside.
#[derive(Clone, Debug, PartialEq)]
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
        /// Its process.
        pid: u32,
    },
    /// An instance is being stopped, or has closed its output: it gets nothing new, and what it says
    /// of its end is not to be believed.
    Leaving {
        /// Which instance.
        generation: Generation,
    },
    /// An instance is gone.
    Ended {
        /// Which instance.
        generation: Generation,
        /// How many of its lines it has read; `None` where that cannot be known.
        read: Option<u64>,
        /// How it ended, with its last words.
        how: String,
        /// A newer one was wanted in its place: whoever asked for a restart goes on waiting.
        superseded: bool,
    },
    /// The new instance that was asked for did not come up.
    RestartFailed {
        /// Why, with its last words.
        why: String,
    },
    /// The answer to `Sample`; `None` where it cannot be known.
    Worked {
        /// Which instance.
        generation: Generation,
        /// The processor time of its processes so far.
        time: Option<Duration>,
    },
    /// One of our own tools has its answer.
    Said {
        /// The call.
        id: Id,
        /// The answer.
        said: Said,
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
#[derive(Clone, Debug, PartialEq)]
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
    /// One of our own tools was called: answer with `Said`. A restart is answered by the machine.
    Asked {
        /// The call.
        id: Id,
        /// What is asked.
        asked: Asked,
    },
    /// Find out how much processor time the instance's processes have used.
    Sample {
        /// Which instance.
        generation: Generation,
    },
    /// The instance hangs: it must go, and counts as crashed.
    Wedged {
        /// Which instance.
        generation: Generation,
        /// In words.
        why: String,
    },
    /// A new instance offers something else than the one before.
    ListChanged {
        /// What has changed.
        kind: Kind,
        /// How.
        changes: Changes,
    },
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
    flights: Flights,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// Requests of servers that the client has not answered: our id for them, and theirs.
    asked: BTreeMap<Id, (Generation, Id)>,
    /// Requests of our own.
    own: BTreeMap<Id, Generation>,
    next_number: u64,
    down: Option<String>,
    /// How the last instance ended, while there is no other.
    trouble: Option<String>,
    patience: Duration,
    now: Time,
    health: Health,
    tools: Tools,
    /// What the client has seen of each list, or was told to look at again.
    known: BTreeMap<Kind, List>,
    /// Lists that the client is reading page by page.
    reading: BTreeMap<Kind, Pages>,
    settling: Option<Settling>,
    restart_calls: Vec<RestartCall>,
    newest: Generation,
    /// How the tools changed with the last restart.
    last_changes: Option<Changes>,
}

/// How a conversation is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long a request waits for an instance.
    pub patience: Duration,
    /// Whether tools of our own stand beside the server's.
    pub tools: bool,
    /// A server that leaves a call unanswered and says nothing for this long is suspected to hang;
    /// `None` for never.
    pub wedge_timeout: Option<Duration>,
}

/// What can be said of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Requests of the client's that the server has not answered yet.
    pub owed: usize,
    /// Of these, the ones that wait for an instance.
    pub waiting: usize,
    /// How many tools the server has, if it was asked.
    pub tools: Option<usize>,
    /// How they changed with the last restart.
    pub last_changes: Option<Changes>,
}

/// A process of the server's.
#[derive(Debug)]
struct Instance {
    pid: u32,
    /// It has had the session.
    has_served: bool,
    /// Lines that it was sent.
    sent: u64,
    /// Pings of its own that we have answered before it had the session.
    pongs: usize,
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
    /// A conversation that has not begun.
    pub fn new(settings: &Settings) -> Self {
        Self {
            memory: Memory::default(),
            instances: BTreeMap::new(),
            serving: None,
            flights: Flights::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            asked: BTreeMap::new(),
            own: BTreeMap::new(),
            next_number: 1,
            down: None,
            trouble: None,
            patience: settings.patience,
            now: Time::ZERO,
            health: Health::new(settings.wedge_timeout),
            tools: Tools::new(settings.tools),
            known: BTreeMap::new(),
            reading: BTreeMap::new(),
            settling: None,
            restart_calls: Vec::new(),
            newest: Generation::default(),
            last_changes: None,
        }
    }

    /// Records one input, and returns what has to be done now.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.now = now;
        match input {
            Input::Client(line) => self.client(line, &mut effects),
            Input::ClientTooLong { beginning, ending } => {
                self.client_too_long(beginning, &ending, &mut effects);
            }
            Input::Server { generation, line } => self.server(generation, line, &mut effects),
            Input::ServerTooLong { generation, beginning } => {
                self.too_long(generation, &beginning, &mut effects);
            }
            Input::Started { generation, pid } => self.started(generation, pid, &mut effects),
            Input::Leaving { generation } => {
                if let Some(instance) = self.instances.get_mut(&generation) {
                    instance.stage = Stage::Leaving;
                    self.serving.take_if(|serving| *serving == generation);
                }
            }
            Input::Ended { generation, read, how, superseded } => {
                if !superseded {
                    self.restart_ended(generation, &how, &mut effects);
                }
                self.ended(generation, read, &how, &mut effects);
            }
            Input::RestartFailed { why } => self.restart_failed(&why, None, &mut effects),
            Input::Worked { generation, time } => self.worked(generation, time, &mut effects),
            Input::Said { id, said } => self.say(&id, &said, &mut effects),
            Input::Down { why } => {
                self.restart_failed(&why, None, &mut effects);
                self.down = Some(why);
                self.expire(None, &mut effects);
            }
            Input::Wakeup => {
                self.expire(Some(now), &mut effects);
                self.settle_late(&mut effects);
                self.expire_restart_calls(&mut effects);
                self.look(&mut effects);
            }
        }
        effects
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let until = |waiting: &Waiting| match waiting {
            Waiting::Request(id) => self.flights.get(id).and_then(Flight::waits_until),
            Waiting::Notification(_) => None,
        };
        let settling = self.settling.as_ref().map(|settling| settling.until);
        let restarts = self.restart_calls.iter().map(|call| call.until);
        let health = self.next_health_wakeup();
        let waiting = self.waiting.iter().filter_map(until);
        waiting.chain(settling).chain(restarts).chain(health).min()
    }

    /// What can be said of it now.
    pub fn report(&self) -> Report {
        let is_the_servers = |flight: &&Flight| !flight.cancelled && flight.place != Place::Ours;
        Report {
            owed: self.flights.values().filter(is_the_servers).count(),
            waiting: self.waiting.len(),
            tools: self.known.get(&Kind::Tools).map(List::len),
            last_changes: self.last_changes.clone(),
        }
    }

    /// How many requests of the client's are on their way, be it that it wants no answer any more.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// How many requests of the client's have no answer yet.
    pub fn owed(&self) -> usize {
        self.flights.values().filter(|flight| !flight.cancelled).count()
    }
}

#[cfg(test)]
mod tests;
