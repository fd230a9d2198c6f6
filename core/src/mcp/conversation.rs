//! Owns one conversation: one client, one server, any number of instances one after another.
//!
//! Driven by the daemon's MCP loop with the lines of both sides and the life of instances. Never touches a
//! pipe. Every request of the client is answered exactly once: by the instance that got it, by its successor
//! where that is safe, or by afresh. Client ids stay as they are; ids of the server's own requests get the
//! instance's generation, so that an answer can never reach another instance.
//!
//! ```text
//!   Started ──▶ Opening ──(session replayed)──▶ Serving ──(a newer one serves)──▶ Draining
//!                  │                               │                                 │
//!                  └────────────── Leaving ◀───────┴─────────────────────────────────┘   Ended
//! ```

mod client;
mod instance_table;
mod server_instances;

use std::time::Duration;

use self::instance_table::Instances;
use super::admin_tools::{AddedTools, AdminRequest, RestartCalls, ToolResult};
use super::envelope::Id;
use super::inflight::{Class, ClientRequests, Flight, Location, RelayedIds};
use super::lists::{Changes, Kind, ListWatch, NamedList};
use super::replay::Memory;
use super::responses::{self, Why};
use super::restart_notice::RestartNotices;
use super::start_failures::StartFailures;
use super::tasks::ConversationTasks;
use super::wedge::{Calls, Effect as WedgeEffect, Input as WedgeInput, WedgeWatch};
use crate::id::Generation;
use crate::time::Time;

/// Something that happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A line of the client.
    Client(Vec<u8>),
    /// The client sent a line that is too long; these are its two ends.
    ClientTooLong {
        /// How it began.
        beginning: Vec<u8>,
        /// How it ended.
        ending: Vec<u8>,
    },
    /// A line of an instance.
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
    Leaving(Generation),
    /// A server behind several clients has lost its state, as `Effect::Notice` told another conversation of it.
    StateLost {
        /// How its instance ended.
        how: String,
    },
    /// An instance is gone.
    Ended {
        /// Which instance.
        generation: Generation,
        /// How many of its lines it has read; `None` where that cannot be known.
        read: Option<u64>,
        /// How it ended, with its last words.
        how: String,
        /// Why it ended.
        cause: EndCause,
    },
    /// The new instance that was asked for did not come up: why, with its last words.
    RestartFailed(String),
    /// The instance is to be replaced because a client asked for it. Where it hangs, its calls are answered now, and what
    /// can be sent again waits for the new one.
    Replacing {
        /// Which instance.
        generation: Generation,
        /// Its process is stopped, as by SIGSTOP.
        is_stopped: bool,
    },
    /// The answer to `Sample`; `None` where it cannot be known.
    Worked {
        /// Which instance.
        generation: Generation,
        /// The processor time of its processes so far.
        time: Option<Duration>,
    },
    /// One of our own tools has its answer.
    AdminResult {
        /// The call.
        id: Id,
        /// The answer.
        result: ToolResult,
    },
    /// No instance will come by itself: why, with the last words of the server.
    Down(String),
    /// The moment that `next_wakeup` gave has come.
    Wakeup,
}

/// Why an instance ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndCause {
    /// A newer one was wanted in its place: calls of `restart_server` go on waiting.
    Superseded,
    /// By itself: it crashed, was killed, hung or grew too large. What it kept is lost.
    ByItself,
    /// It was to end, or never served.
    #[default]
    Other,
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
    Serving(Generation),
    /// All that the instance owed is paid: it can go.
    Drained(Generation),
    /// The instance did not take the session: it must go, and counts as crashed.
    HandshakeFailed {
        /// Which instance.
        generation: Generation,
        /// What it said.
        why: String,
    },
    /// The instance died of a probe for the modern era: start another one, and count no crash.
    DiedOfProbe(Generation),
    /// The instance has committed itself to another era: replace it, and count no crash.
    Replace(Generation),
    /// A request came while nothing runs and nothing is planned.
    Wanted,
    /// One of our own tools was called: answer with `AdminResult`. A restart is answered by the machine.
    AdminRequest {
        /// The call.
        id: Id,
        /// What is asked.
        request: AdminRequest,
    },
    /// Find out how much processor time the instance's processes have used.
    Sample(Generation),
    /// The instance answers neither a call nor a probe, or says something again.
    Silent {
        /// Which instance.
        generation: Generation,
        /// How long it has said nothing; none where it does.
        silence: Option<Duration>,
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
    /// What a model is to be told of its server, where each client has a conversation of its own that tells it.
    Notice(Notice),
    /// A line that is no message: for the log, not for the other side.
    Divert {
        /// The instance that sent it; none for the client.
        generation: Option<Generation>,
        /// The line.
        line: Vec<u8>,
    },
}

/// What a model is to be told of its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Its instance ended by itself, and took its state along: how.
    StateLost(String),
    /// New code did not start, and older code serves: why.
    RestartFailed(String),
}

/// One conversation.
#[derive(Debug, Default)]
pub struct Conversation {
    /// The session, as far as a new instance must be given it.
    memory: Memory,
    instances: Instances,
    requests: ClientRequests,
    ids: RelayedIds,
    lists: ListWatch,
    restart_calls: RestartCalls,
    notices: RestartNotices,
    tasks: ConversationTasks,
    start_failures: StartFailures,
    wedge: WedgeWatch,
    /// Why no instance will come by itself.
    down: Option<String>,
    /// How the last instance ended, while there is no other.
    last_end: Option<String>,
    now: Time,
    effects: Vec<Effect>,
}

/// How a conversation is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The name of the server, which the results of afresh's tools say.
    pub server: String,
    /// How long a request waits for an instance.
    pub patience: Duration,
    /// The tools of afresh beside the server's.
    pub tools: AddedTools,
    /// Who says that the server was restarted and its state is lost.
    pub tell_restarts: TellRestarts,
    /// A server that leaves a call unanswered and says nothing for this long is suspected to hang;
    /// `None` for never.
    pub wedge_timeout: Option<Duration>,
}

/// Who tells a model that its server was restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TellRestarts {
    /// Nobody.
    #[default]
    Off,
    /// The next result of a tool.
    InResults,
    /// Somebody else, by [`Effect::Notice`]: several clients get the results, and each has a conversation of its own.
    HandedOn,
}

impl From<bool> for TellRestarts {
    fn from(tells: bool) -> Self {
        if tells { Self::InResults } else { Self::Off }
    }
}

/// The figures of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationReport {
    /// Requests of the client that the server has not answered yet.
    pub owed: usize,
    /// Of these, the ones that wait for an instance.
    pub waiting: usize,
    /// How many tools the server has, if it was asked.
    pub tools: Option<usize>,
    /// How they changed with the last restart.
    pub last_changes: Option<Changes>,
    /// Why the last restart failed, while older code serves.
    pub failed_restart: Option<String>,
}

impl Conversation {
    /// A conversation that has not begun.
    pub fn new(settings: &Settings) -> Self {
        Self {
            requests: ClientRequests::new(settings.patience),
            lists: ListWatch::new(&settings.tools),
            restart_calls: RestartCalls::new(&settings.server),
            notices: RestartNotices::new(settings.tell_restarts, &settings.server),
            wedge: WedgeWatch::new(settings.wedge_timeout),
            ..Self::default()
        }
    }

    /// Records one input, and returns what has to be done now.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Effect> {
        self.now = now;
        match input {
            Input::Client(line) => self.client_message(line),
            Input::ClientTooLong { beginning, ending } => self.client_too_long(beginning, &ending),
            Input::Server { generation, line } => self.server_message(generation, line),
            Input::ServerTooLong { generation, beginning } => {
                self.server_too_long(generation, &beginning);
            }
            Input::Started { generation, pid } => self.started(generation, pid),
            Input::Leaving(generation) => self.instances.leave(generation),
            Input::Ended { generation, read, how, cause } => {
                let instance = self.instances.get(generation);
                let has_failed = instance.is_some_and(|instance| !instance.has_served);
                let is_mute = instance.is_some_and(|instance| !instance.has_answered);
                if cause != EndCause::Superseded && has_failed {
                    self.restart_failed(&format!("the new instance {how}"), Some(generation));
                }
                if cause == EndCause::ByItself && is_mute {
                    self.start_failures.note(now, &how);
                }
                self.ended(generation, read, &how, cause);
                self.expire(Some(now));
            }
            Input::RestartFailed(why) => self.restart_failed(&why, None),
            Input::StateLost { how } => {
                let serving = self.instances.serving.and_then(|its| self.instances.get(its));
                let had_answered = serving.is_some_and(|instance| instance.has_answered_call);
                self.notices.note_end(&how, had_answered);
            }
            Input::Worked { generation, time } => {
                if self.instances.serving == Some(generation) {
                    self.judge(self.now, WedgeInput::CpuTime(time));
                }
            }
            Input::Replacing { generation, is_stopped } => {
                let hangs = is_stopped || self.wedge.machine.is_idle();
                let is_hopeless = |flight: &Flight| {
                    hangs
                        && flight.is_with(generation)
                        && matches!(flight.class, Class::Tool | Class::Other)
                };
                for id in self.requests.ids_of(is_hopeless) {
                    let how = "hung, and is ended for a restart".to_owned();
                    self.answer(&id, &Why::Ended(how));
                }
            }
            Input::AdminResult { id, result } => self.say(vec![(id, result)]),
            Input::Down(why) => {
                let failed = self.restart_calls.fail(&why, None);
                self.say(failed);
                self.down = Some(why);
                self.expire(None);
            }
            Input::Wakeup => {
                self.expire(Some(now));
                self.expire_comparison();
                let expired = self.restart_calls.expire(now);
                self.say(expired);
                self.check_wedge();
            }
        }
        std::mem::take(&mut self.effects)
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let moments = [
            self.requests.next_expiry(),
            self.lists.next_expiry(),
            self.restart_calls.next_expiry(),
            self.start_failures.next_expiry(),
            self.wedge.next_wakeup(self.memory.era),
        ];
        moments.into_iter().flatten().min()
    }

    /// The figures of the conversation now.
    pub fn report(&self) -> ConversationReport {
        let is_the_servers =
            |flight: &&Flight| !flight.is_cancelled() && flight.location != Location::Local;
        ConversationReport {
            owed: self.requests.all().filter(is_the_servers).count(),
            waiting: self.requests.queue.len(),
            tools: self.lists.tools().map(NamedList::len),
            last_changes: self.lists.last_changes.clone(),
            failed_restart: self.notices.failure().map(str::to_owned),
        }
    }

    /// The name that the client gives itself, once it has a session.
    pub fn client_name(&self) -> Option<String> {
        self.memory.client_name()
    }

    /// How many requests of the client are in flight, cancelled ones too.
    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// How many requests of the client have no answer yet.
    pub fn owed(&self) -> usize {
        self.requests.all().filter(|flight| !flight.is_cancelled()).count()
    }

    /// A new instance did not come up. Where no call waits for it, the next result of a tool says so.
    fn restart_failed(&mut self, why: &str, generation: Option<Generation>) {
        let failed = self.restart_calls.fail(why, generation);
        if failed.is_empty() && self.instances.serving.is_some() {
            match self.notices.hands_on() {
                true => self.effects.push(Effect::Notice(Notice::RestartFailed(why.to_owned()))),
                false => self.notices.note_failure(why),
            }
        }
        self.say(failed);
    }

    /// Answers what has waited long enough: all of it, where no moment is given, or the server fails each time it is
    /// started.
    fn expire(&mut self, now: Option<Time>) {
        let failure = self.start_failures.take_due(self.now);
        let now = now.filter(|_| failure.is_none());
        self.down = failure.or(self.down.take());
        let is_due = |flight: &Flight| {
            flight.queued_until().is_some_and(|until| now.is_none_or(|now| until <= now))
        };
        let why = match (&self.down, &self.last_end) {
            (Some(why), _) => why.clone(),
            (None, Some(how)) => format!("no new instance is ready; the last one {how}"),
            (None, None) => "it has not come up in time".to_owned(),
        };
        for id in self.requests.ids_of(is_due) {
            self.answer(&id, &Why::Down(why.clone()));
        }
    }

    /// Answers a request in the server's place.
    fn answer(&mut self, id: &Id, why: &Why) {
        if let Some(flight) = self.requests.remove(id)
            && !flight.is_cancelled()
        {
            self.memory.stop_listening(id);
            self.effects.push(Effect::ToClient(responses::answer(
                &flight,
                id,
                self.memory.era,
                why,
            )));
        }
    }

    /// Answers calls of afresh's own tools.
    fn say(&mut self, results: Vec<(Id, ToolResult)>) {
        let is_local = |flight: &Flight| flight.location == Location::Local;
        for (id, said) in results {
            if self.requests.remove_if(&id, is_local).is_some() {
                let line = responses::said(&id, self.memory.era, &said);
                self.effects.push(Effect::ToClient(line));
            }
        }
    }

    /// Writes to an instance. Lines are counted: the daemon reports how many of them were read.
    fn write(&mut self, generation: Generation, line: Vec<u8>) {
        if let Some(instance) = self.instances.get_mut(generation) {
            instance.sent += 1;
            self.effects.push(Effect::ToServer { generation, line });
        }
    }

    /// Sends a request of afresh to an instance; returns its id.
    fn send_own(&mut self, generation: Generation, method: &str, params: &[u8]) -> Id {
        let is_taken = |id: &Id| self.requests.contains(id);
        let (id, line) = self.ids.own_request(generation, (method, params), is_taken);
        self.write(generation, line);
        id
    }

    /// Gives the wedge machine what has happened since the last check.
    fn check_wedge(&mut self) {
        if self.wedge.next_wakeup(self.memory.era).is_none_or(|at| at > self.now) {
            return;
        }
        for (at, sign) in self.wedge.take_signs() {
            self.judge(at, sign);
        }
        self.wedge.check_at = None;
        let Some(serving) = self.instances.serving else { return };
        let is_its = |flight: &&Flight| flight.is_with(serving) && !flight.is_listen();
        let mut calls = Calls { questions: self.ids.count_of(serving), ..Calls::default() };
        let mut oldest: Option<Time> = None;
        for flight in self.requests.all().filter(is_its) {
            calls.in_flight += usize::from(!flight.is_cancelled());
            calls.given_up_at = calls.given_up_at.max(flight.cancelled_at);
            oldest = Some(oldest.map_or(flight.given_at, |oldest| oldest.min(flight.given_at)));
        }
        calls.oldest_since = oldest.unwrap_or(self.now);
        self.judge(self.now, WedgeInput::Calls(calls));
        self.judge(self.now, WedgeInput::Wakeup);
        if calls.in_flight > 0 || self.wedge.machine.is_given_up() {
            self.wedge.watch(self.now);
        }
    }

    fn judge(&mut self, at: Time, input: WedgeInput) {
        let decided = self.wedge.machine.handle(at, self.memory.era, input);
        let Some(generation) = self.instances.serving else { return };
        for decision in decided {
            match decision {
                WedgeEffect::SendProbe(probe) => {
                    let params = self.memory.params(b"");
                    self.wedge.probe = Some(self.send_own(generation, probe, &params));
                }
                WedgeEffect::Sample => self.effects.push(Effect::Sample(generation)),
                WedgeEffect::Silent(silence) => {
                    self.effects.push(Effect::Silent { generation, silence: Some(silence) });
                    let answers = self.lists.answer_owed(&mut self.requests, generation, self.now);
                    self.effects.extend(answers.into_iter().map(Effect::ToClient));
                }
                WedgeEffect::Heard => {
                    self.effects.push(Effect::Silent { generation, silence: None });
                }
                WedgeEffect::Wedged { why } => {
                    self.effects.push(Effect::Wedged { generation, why })
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
