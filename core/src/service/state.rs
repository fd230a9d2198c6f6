//! What happens to a service, what has to be done, and what is true in between.

use std::time::Duration;

use super::event::Event;
use super::exit::{Ending, Exit, SpawnFailure};
use crate::id::Generation;
use crate::time::Time;

/// Something that happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The user wants it up; from `Failed` this begins afresh.
    Start,
    /// The user wants it down.
    Stop,
    /// Somebody wants a new instance.
    Restart {
        /// Why, for the record.
        reason: String,
    },
    /// afresh ends: nothing is spawned from now on.
    Shutdown {
        /// All of the stop has to fit into this; `None` for the policy's own times.
        within: Option<Duration>,
    },
    /// Whoever waits for a stop has lost patience: kill now.
    HurryUp,
    /// The process of this generation runs.
    Spawned {
        /// Which instance.
        generation: Generation,
        /// Its process id.
        pid: u32,
    },
    /// The process of this generation could not be started.
    SpawnFailed {
        /// Which instance.
        generation: Generation,
        /// Why.
        failure: SpawnFailure,
    },
    /// The process of this generation is gone, and all that it had started.
    Exited {
        /// Which instance.
        generation: Generation,
        /// How.
        exit: Exit,
    },
    /// The instance did not open its session as it must.
    HandshakeFailed {
        /// Which instance.
        generation: Generation,
        /// Why.
        why: String,
    },
    /// Enough health checks in a row have failed.
    Unhealthy {
        /// Which instance.
        generation: Generation,
        /// Why.
        why: String,
    },
    /// The moment that `next_wakeup` gave has come.
    Wakeup,
}

/// Something that the daemon must do, in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Start a process; answer with `Spawned` or `SpawnFailed`.
    Spawn {
        /// The generation that the answer must carry.
        generation: Generation,
    },
    /// Close the process's stdin.
    CloseStdin,
    /// Send SIGTERM to the process and its group.
    Terminate,
    /// Send SIGKILL to the whole tree.
    Kill,
    /// The guardian has not reported the end of a killed tree: replace it and sweep what it left.
    Abandon,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    Up,
    Down,
    /// Down, and no start will be heard any more.
    Shutdown {
        within: Option<Duration>,
    },
}

/// What is true. Deadlines live inside the state that needs them, so they cannot outlive it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Process {
    Down(Rest),
    Waiting {
        spawn_at: Time,
        /// The start is one that somebody asked for.
        requested: bool,
    },
    Starting {
        since: Time,
    },
    Running {
        pid: u32,
        since: Time,
        restart_at: Option<(Time, String)>,
    },
    Stopping {
        pid: Option<u32>,
        since: Time,
        goal: Goal,
        step: Step,
        step_since: Time,
        next_at: Time,
    },
}

/// Why nothing runs and nothing is planned.
#[derive(Clone, Debug, PartialEq)]
pub enum Rest {
    /// Nobody has started it yet.
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
    /// The instance is unusable: its end counts as this.
    Failure(Ending),
}

/// The last step of the stop that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    ClosedStdin,
    Terminated,
    Killed,
}
