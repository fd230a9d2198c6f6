//! Owns the inputs, the effects and the states of a service.
//!
//! Driven by [`Service::handle`](super::Service::handle). Decides nothing.

use std::time::Duration;

use super::event::Event;
use super::exit::{Ending, Exit, SpawnFailure};
use crate::audit::Actor;
use crate::id::Generation;
use crate::stop_ladder::{StopLadder, StopStep, StopTimes};
use crate::time::Time;

/// Something that happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The user wants it up; from `Failed` this begins afresh.
    Start,
    /// A client wants it, and it was given up: one more instance, which is given up at once where it ends, too.
    TryOnce,
    /// The user wants it down.
    Stop,
    /// The configuration does not have it any more.
    Retire,
    /// A new instance is requested.
    Restart {
        /// Why, for the record.
        reason: String,
        /// By what or whom, for the record.
        by: Actor,
    },
    /// afresh ends: nothing is spawned from now on.
    Shutdown {
        /// All of the stop has to fit into this; `None` for the policy's own times.
        within: Option<Duration>,
    },
    /// It is not needed any more: as [`Input::Shutdown`], for it alone.
    Dismiss {
        /// All of the stop has to fit into this.
        within: Duration,
    },
    /// The user does not wait for a stop any longer: kill now.
    HurryUp,
    /// The process of this generation runs, with this id.
    Spawned(Generation, u32),
    /// The process of this generation could not be started, for this reason.
    SpawnFailed(Generation, SpawnFailure),
    /// A process that the supervisor before this one has started runs, and is ours from now on.
    Adopted {
        /// Which instance.
        generation: Generation,
        /// Its process id.
        pid: u32,
        /// When it was started; for one that has ended meanwhile, so that its uptime is right.
        since: Time,
        /// What it was.
        found: AdoptedAs,
    },
    /// The instance serves.
    Ready(Generation),
    /// The instance, which another has replaced, owes nothing any more.
    Drained(Generation),
    /// The process of this generation is gone, and all that it had started.
    Exited(Generation, Exit),
    /// The instance did not open its session as it must, and why.
    HandshakeFailed(Generation, String),
    /// The instance does not answer, in words, or does again.
    Silent(Generation, Option<String>),
    /// Enough health checks of the instance in a row have failed, and why.
    Unhealthy(Generation, String),
    /// The instance is spoiled, by no fault of its own: replace it, for this reason. This is neither a requested restart
    /// nor a crash.
    Replace(Generation, String),
    /// The instance, which has ended by itself and cleanly, owed answers: its end is a crash. That is known only when all
    /// of its output was read.
    Owing(Generation),
    /// The end of this instance, told before or after this, is a client's doing and no crash.
    DiedOfProbe(Generation),
    /// The code has changed: a spare has to be of the new one.
    RenewSpare,
    /// The moment that `next_wakeup` gave has come.
    Wakeup,
}

/// What an instance was to the supervisor that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptedAs {
    /// The current one, and it was to stay.
    Current,
    /// The current one, on its way out: its stop is begun anew.
    Stopping,
    /// Not the current one: a candidate, a spare, or one that was replaced. It is stopped.
    Beside,
}

/// Something that the daemon must do, in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Start a process; answer with `Spawned` or `SpawnFailed` of this generation.
    Spawn(Generation),
    /// The instance is to be given the session now. Nothing is given to one before this.
    Open(Generation),
    /// Take a step of the stop of an instance; the first is always to close its stdin.
    Stop(StopStep, Generation),
    /// Put the restart into the marker, on disk.
    MarkRestart {
        /// The process that is being replaced.
        pid: Option<u32>,
        /// Why.
        reason: String,
    },
    /// Record and log; an announcement must be on disk before the effects that follow it.
    Tell(Event),
}

/// One call of `Service::handle`: its time, and what has to be done by it so far.
#[derive(Debug)]
pub(super) struct InputContext {
    pub(super) now: Time,
    /// The policy's times of a stop, or what a shutdown leaves of them.
    pub(super) times: StopTimes,
    pub(super) effects: Vec<Effect>,
}

/// How much time an instance gets to end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haste {
    /// What the policy says.
    InOrder,
    /// None.
    AtOnce,
}

impl Haste {
    /// A process that cannot even open its session gets no time to end by itself.
    pub(super) const fn after(failure: &Ending) -> Self {
        match failure {
            Ending::HandshakeFailed(_) => Self::AtOnce,
            _ => Self::InOrder,
        }
    }
}

impl InputContext {
    pub(super) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.effects.push(Effect::Tell(event));
    }

    /// Begins the stop of an instance. Only `Exited` ends it.
    pub(super) fn begin_stop(&mut self, generation: Generation, haste: Haste) -> StopLadder {
        let first = match haste {
            Haste::AtOnce => StopStep::Kill,
            Haste::InOrder if self.times.stdin.is_zero() => StopStep::Terminate,
            Haste::InOrder => StopStep::CloseStdin,
        };
        self.push(Effect::Stop(StopStep::CloseStdin, generation));
        if first != StopStep::CloseStdin {
            self.push(Effect::Stop(first, generation));
        }
        StopLadder::begin(self.now, first, self.times)
    }

    /// Takes the next step of a stop.
    pub(super) fn escalate(&mut self, ladder: &mut StopLadder, instance: &Instance) {
        let waited = ladder.waited(self.now);
        let step = ladder.escalate(self.now, self.times);
        self.tell(Event::Escalating { pid: instance.pid, waited, step: step.describe() });
        self.push(Effect::Stop(step, instance.generation));
    }
}

/// How a service is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Up.
    Up,
    /// Down.
    Down,
    /// Down, as it is not defined any more. A start brings it back, a restart does not.
    Gone,
    /// Down, and no start will be heard any more.
    Shutdown {
        /// How long that may take, where it is bounded.
        within: Option<Duration>,
        /// afresh itself goes on.
        is_alone: bool,
    },
}

impl Want {
    /// Whether it is down for good.
    pub const fn is_shutdown(self) -> bool {
        matches!(self, Self::Shutdown { .. })
    }

    /// What a stop for this, and the end of an instance by it, are told as.
    pub(super) const fn ending(self) -> Ending {
        match self {
            Self::Up | Self::Down => Ending::StoppedByUser,
            Self::Gone => Ending::Retired,
            Self::Shutdown { is_alone: true, .. } => Ending::Dismissed,
            Self::Shutdown { .. } => Ending::Shutdown,
        }
    }
}

/// What is true of the current instance. Deadlines live inside the state that needs them, so they
/// cannot outlive it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Process {
    Down(Rest),
    /// Down for good, but for instances that are still being stopped.
    Closing {
        rest: Rest,
        /// Told when the last of them is gone.
        last_word: Option<Event>,
    },
    Waiting {
        spawn_at: Time,
        /// The start was requested.
        requested: bool,
    },
    Starting(Instance),
    Running {
        instance: Instance,
        /// A requested restart that is not carried out yet.
        restart_at: Option<(Time, String)>,
    },
    Stopping {
        instance: Instance,
        goal: Goal,
        ladder: StopLadder,
    },
}

impl Process {
    /// Why it rests, or will when the other instances are gone.
    pub(super) fn rests_as(&self) -> Option<&Rest> {
        match self {
            Self::Down(rest) | Self::Closing { rest, .. } => Some(rest),
            _ => None,
        }
    }

    /// Waits for a start at this moment that was not requested.
    pub(super) const fn waiting(spawn_at: Time) -> Self {
        Self::Waiting { spawn_at, requested: false }
    }

    pub(super) const fn running(instance: Instance) -> Self {
        Self::Running { instance, restart_at: None }
    }

    /// Whether this is the current instance.
    pub(super) fn is(&self, generation: Generation) -> bool {
        self.instance().is_some_and(|instance| instance.generation == generation)
    }

    /// The current instance.
    pub(super) const fn instance(&self) -> Option<&Instance> {
        match self {
            Self::Starting(instance)
            | Self::Running { instance, .. }
            | Self::Stopping { instance, .. } => Some(instance),
            Self::Down(_) | Self::Closing { .. } | Self::Waiting { .. } => None,
        }
    }

    pub(super) const fn instance_mut(&mut self) -> Option<&mut Instance> {
        match self {
            Self::Starting(instance)
            | Self::Running { instance, .. }
            | Self::Stopping { instance, .. } => Some(instance),
            Self::Down(_) | Self::Closing { .. } | Self::Waiting { .. } => None,
        }
    }
}

/// One process of the service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Instance {
    pub(super) generation: Generation,
    /// Known once its start was reported.
    pub(super) pid: Option<u32>,
    pub(super) since: Time,
    pub(super) role: Role,
    /// It has been said to serve.
    pub(super) ready: bool,
    /// Why it does not serve at the moment.
    pub(super) trouble: Option<String>,
    /// Its end is a client's doing.
    pub(super) died_of_probe: bool,
}

impl Instance {
    pub(super) const fn new(generation: Generation, since: Time, role: Role) -> Self {
        let (pid, ready, trouble, died_of_probe) = (None, false, None, false);
        Self { generation, pid, since, role, ready, trouble, died_of_probe }
    }
}

/// What an instance was started for, and so what its start is told as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// To be the current one.
    Current,
    /// To become it, when it is ready.
    Candidate,
    /// To become it, when the current one has crashed.
    Spare,
}

/// Why nothing runs and nothing is planned.
#[derive(Clone, Debug, PartialEq)]
pub enum Rest {
    /// It was not started yet.
    NotStarted,
    /// The user or a shutdown stopped it.
    Stopped,
    /// It ended, and the policy says to leave it at that.
    Finished(Ending),
    /// It could not be kept alive.
    Failed(Ending),
}

/// What a stop is for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Goal {
    Down,
    NewInstance,
    /// A new instance too, but no restart was requested.
    Quietly,
    /// The instance is unusable: its end counts as this.
    Failure(Ending),
}
