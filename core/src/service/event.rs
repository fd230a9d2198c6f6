//! Owns the events of a service: each is one record of the trail and one line of the log.
//!
//! Driven by [`Service`](super::Service), which tells them as effects. Never writes them.

mod sentences;

use std::time::Duration;

use serde_json::{Value, json};

use self::sentences::{exited, millis, restarting, stopped};
use super::exit::{Ending, Exit, SpawnFailure};
use super::user_request::UserRequest;
use crate::audit::{EventType, Level, Record};
use crate::health;
use crate::id::Generation;
use crate::time::show_duration;

/// Something that users and clients are told about a service.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A process runs.
    Started {
        /// Its id.
        pid: u32,
        /// Which instance it is.
        generation: Generation,
        /// Restarts of every kind so far.
        restarts: u64,
    },
    /// A process that the supervisor before this one has started runs on, and is ours.
    Adopted {
        /// Its id.
        pid: u32,
        /// Which instance it is.
        generation: Generation,
        /// For how long it has run.
        uptime: Duration,
    },
    /// A process runs that is to take the place of the current one when it is ready.
    CandidateStarted {
        /// Its id.
        pid: u32,
        /// Which instance it is.
        generation: Generation,
    },
    /// A process runs that takes over when the current one crashes.
    SpareStarted {
        /// Its id.
        pid: u32,
        /// Which instance it is.
        generation: Generation,
    },
    /// The new instance did not become ready: the old one stays.
    SwapFailed {
        /// The new one, where it ran.
        pid: Option<u32>,
        /// What is wrong with it.
        why: String,
    },
    /// The instance is spoiled, and replaced.
    Replacing {
        /// Its id, where its start had been reported.
        pid: Option<u32>,
        /// Why.
        reason: String,
    },
    /// The process is gone, and all that it had started.
    Exited {
        /// Its id, where its start had been reported.
        pid: Option<u32>,
        /// What the kernel says.
        exit: Exit,
        /// What it means.
        ending: Ending,
        /// How long it ran.
        uptime: Duration,
    },
    /// A process could not be started.
    SpawnFailed(SpawnFailure),
    /// A restart was requested. On disk before anything stops.
    RestartRequested {
        /// The process that is to be replaced.
        pid: Option<u32>,
        /// Why.
        reason: String,
    },
    /// A start or a stop was requested. On disk before it is done.
    UserRequested(UserRequest),
    /// The restart is on record; the instance goes now. On disk before it does.
    ExitingForRestart {
        /// The process that goes.
        pid: Option<u32>,
        /// Why.
        reason: String,
        /// The code that stands for a requested restart.
        exit_code: i32,
    },
    /// A requested restart has to wait: one a second is the limit.
    Throttled {
        /// For this long.
        delay: Duration,
    },
    /// The next start is planned.
    Restarting {
        /// After this long.
        delay: Duration,
        /// After what.
        after: Ending,
        /// The how-manieth restart since the last stable run.
        attempt: u32,
        /// How many are allowed; 0 for no limit.
        attempts_max: u32,
    },
    /// It crashes again and again.
    CrashLoop {
        /// This many times…
        crashes: u32,
        /// …within this time.
        window: Duration,
        /// The wait until the next try.
        delay: Duration,
    },
    /// It has run long enough to count as well.
    Recovered {
        /// For this long.
        uptime: Duration,
    },
    /// All allowed restarts have failed.
    GaveUp {
        /// Restarts tried.
        restarts: u32,
        /// The last failure.
        last: Ending,
    },
    /// It is down and stays down.
    Stopped(StopReason),
    /// It did not end in time; the next step of the stop is taken.
    Escalating {
        /// The process that does not end.
        pid: Option<u32>,
        /// What it was given before.
        waited: Duration,
        /// What is done now.
        step: &'static str,
    },
    /// How well it is has changed.
    Health(health::Event),
}

/// Why a service is down and stays down.
#[derive(Clone, Debug, PartialEq)]
pub enum StopReason {
    /// The user's stop, or SIGTERM or SIGINT from outside.
    ByUser,
    /// The configuration does not have it any more.
    Retired,
    /// It is not needed any more.
    Dismissed,
    /// afresh itself ends.
    Shutdown,
    /// It ended, and the policy says not to restart it.
    Policy(Ending),
}

impl Event {
    /// Whether the event announces what is about to be done, and so must be on disk before.
    pub const fn is_announcement(&self) -> bool {
        matches!(
            self,
            Self::RestartRequested { .. } | Self::ExitingForRestart { .. } | Self::UserRequested(_)
        )
    }

    /// The record of the trail. `title` is how users call the service, `name` its key.
    pub fn record(&self, title: &str, name: &str, logger: &str) -> Record {
        let (level, event_type, message, mut props) = self.parts(title);
        props.insert(0, ("service", Value::from(name)));
        Record { level, logger: logger.to_owned(), message, event_type, props }
    }

    /// The sentence of the log.
    pub fn message(&self, title: &str) -> String {
        self.parts(title).2
    }

    fn parts(&self, title: &str) -> Parts {
        match self {
            Self::Started { pid, generation, restarts } => (
                Level::Info,
                EventType::ServerStarted,
                format!("{title} started (pid {pid}, restart {restarts})"),
                vec![
                    ("pid", json!(pid)),
                    ("generation", json!(generation.0)),
                    ("restarts", json!(restarts)),
                ],
            ),
            Self::Exited { pid, exit, ending, uptime } => {
                exited(title, *pid, *exit, ending, *uptime)
            }
            Self::SpawnFailed(failure) => (
                Level::Error,
                EventType::ServerSpawnFailed,
                format!("{title} could not be started: {}", failure.message),
                vec![("error", json!(failure.message)), ("hint", json!(failure.hint))],
            ),
            Self::RestartRequested { pid, reason } => (
                Level::Info,
                EventType::ServerRestartRequested,
                "Server restart requested".to_owned(),
                vec![("reason", json!(reason)), ("pid", json!(pid))],
            ),
            Self::ExitingForRestart { pid, reason, exit_code } => (
                Level::Info,
                EventType::ServerExitingForRestart,
                format!("{title} exiting for restart: {reason}"),
                vec![
                    ("exit_code", json!(exit_code)),
                    ("reason", json!(reason)),
                    ("pid", json!(pid)),
                ],
            ),
            Self::Recovered { uptime } => (
                Level::Info,
                EventType::ServerRecovered,
                format!("{title} has been up for {}, all is well", show_duration(*uptime)),
                vec![("uptime_ms", millis(*uptime))],
            ),
            Self::Stopped(reason) => stopped(title, reason),
            Self::Health(event) => event.parts(title),
            Self::UserRequested(request) => request.parts(title),
            Self::Adopted { .. }
            | Self::CandidateStarted { .. }
            | Self::SpareStarted { .. }
            | Self::SwapFailed { .. }
            | Self::Replacing { .. } => self.parts_of_others(title),
            Self::Throttled { .. }
            | Self::Restarting { .. }
            | Self::CrashLoop { .. }
            | Self::GaveUp { .. }
            | Self::Escalating { .. } => self.parts_of_waits(title),
        }
    }

    fn parts_of_waits(&self, title: &str) -> Parts {
        match self {
            Self::Throttled { delay } => (
                Level::Info,
                EventType::ServerRestartThrottled,
                format!("{title} restart throttled, waiting {}", show_duration(*delay)),
                vec![("delay_ms", millis(*delay))],
            ),
            Self::Restarting { delay, after, attempt, attempts_max } => {
                restarting(title, *delay, after, *attempt, *attempts_max)
            }
            Self::CrashLoop { crashes, window, delay } => (
                Level::Error,
                EventType::ServerCrashLoop,
                format!(
                    "{title} crash loop detected, backing off ({crashes} crashes within {}, next \
                     try in {})",
                    show_duration(*window),
                    show_duration(*delay)
                ),
                vec![
                    ("crashes", json!(crashes)),
                    ("window_ms", millis(*window)),
                    ("delay_ms", millis(*delay)),
                ],
            ),
            Self::GaveUp { restarts, last } => (
                Level::Error,
                EventType::ServerGaveUp,
                format!(
                    "{title} failed: gave up after {restarts} restart{}; last: {last}",
                    if *restarts == 1 { "" } else { "s" }
                ),
                vec![("restarts", json!(restarts)), ("last", json!(last.name()))],
            ),
            Self::Escalating { pid, waited, step } => (
                Level::Warning,
                EventType::ServerStopEscalated,
                format!("{title} has not ended within {}, now {step}", show_duration(*waited)),
                vec![("pid", json!(pid)), ("waited_ms", millis(*waited)), ("step", json!(step))],
            ),
            _ => unreachable!("parts() handles all other events"),
        }
    }

    /// Of instances that are not simply started.
    fn parts_of_others(&self, title: &str) -> Parts {
        let ids = |pid: u32, generation: Generation| {
            vec![("pid", json!(pid)), ("generation", json!(generation.0))]
        };
        match self {
            Self::Adopted { pid, generation, uptime } => {
                let mut props = ids(*pid, *generation);
                props.push(("uptime_ms", millis(*uptime)));
                let up = show_duration(*uptime);
                let message = format!("{title} runs on (pid {pid}, up for {up}): taken over");
                (Level::Info, EventType::ServerAdopted, message, props)
            }
            Self::CandidateStarted { pid, generation } => (
                Level::Info,
                EventType::ServerCandidateStarted,
                format!(
                    "{title} has a new instance (pid {pid}); the old one serves until it is ready"
                ),
                ids(*pid, *generation),
            ),
            Self::SpareStarted { pid, generation } => (
                Level::Info,
                EventType::ServerSpareStarted,
                format!("{title} has a spare instance (pid {pid})"),
                ids(*pid, *generation),
            ),
            Self::SwapFailed { pid, why } => (
                Level::Error,
                EventType::ServerSwapFailed,
                format!(
                    "{title} was not restarted, the old instance stays: the new one failed: {why}"
                ),
                vec![("pid", json!(pid)), ("error", json!(why))],
            ),
            Self::Replacing { pid, reason } => (
                Level::Info,
                EventType::ServerReplacing,
                format!("{title} is given a new instance: {reason}"),
                vec![("pid", json!(pid)), ("reason", json!(reason))],
            ),
            _ => unreachable!("parts() handles all other events"),
        }
    }
}

pub(super) type Parts = (Level, EventType, String, Vec<(&'static str, Value)>);
