//! Owns the events of a service: each is one record of the trail and one line of the log.
//!
//! Driven by [`Service`](super::Service), which tells them as effects. Never writes them.

use std::time::Duration;

use serde_json::{Value, json};

use super::exit::{Ending, Exit, LastExit, SpawnFailure};
use crate::audit::{Actor, EventType, Level, Record};
use crate::duration::show_duration;
use crate::health;
use crate::id::Generation;

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
        /// By what or whom.
        by: Actor,
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
        /// What or who requested it.
        by: Actor,
    },
    /// A requested restart has to wait: one a second is the limit.
    Throttled {
        /// For this long.
        delay: Duration,
        /// What or who requested it.
        by: Actor,
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
    /// It is down and stays down: we were told to stop it, or it ended so, and the policy says not to restart it.
    Stopped(Ending),
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

/// A start or a stop that a user or a client requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRequest {
    /// Whether it is to be up.
    pub up: bool,
    /// The process that is to be stopped.
    pub pid: Option<u32>,
    /// Why.
    pub reason: String,
    /// By what or whom.
    pub by: Actor,
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
        let mut props = self.props();
        props.insert(0, ("service", Value::from(name)));
        Record {
            level: self.level(),
            logger: logger.to_owned(),
            message: self.message(title),
            event_type: self.event_type(),
            props,
        }
    }

    fn level(&self) -> Level {
        match self {
            Self::SpawnFailed(_)
            | Self::SwapFailed { .. }
            | Self::CrashLoop { .. }
            | Self::GaveUp { .. } => Level::Error,
            Self::Stopped(
                Ending::StoppedByUser
                | Ending::Retired
                | Ending::Dismissed
                | Ending::Shutdown
                | Ending::Clean,
            ) => Level::Info,
            Self::Stopped(_) => Level::Error,
            Self::Health(event) => event.parts("").0,
            Self::Escalating { .. } => Level::Warning,
            Self::Exited { ending, .. } if ending.is_crash() => Level::Warning,
            _ => Level::Info,
        }
    }

    fn event_type(&self) -> EventType {
        match self {
            Self::Started { .. } => EventType::ServerStarted,
            Self::Adopted { .. } => EventType::ServerAdopted,
            Self::CandidateStarted { .. } => EventType::ServerCandidateStarted,
            Self::SpareStarted { .. } => EventType::ServerSpareStarted,
            Self::SwapFailed { .. } => EventType::ServerSwapFailed,
            Self::Replacing { .. } => EventType::ServerReplacing,
            Self::Exited { ending, .. } if ending.is_crash() => EventType::ServerCrashed,
            Self::Exited { .. } => EventType::ServerExited,
            Self::SpawnFailed(_) => EventType::ServerSpawnFailed,
            Self::RestartRequested { .. } => EventType::ServerRestartRequested,
            Self::UserRequested(UserRequest { up: true, .. }) => EventType::ServerStartRequested,
            Self::UserRequested(_) => EventType::ServerStopRequested,
            Self::ExitingForRestart { .. } => EventType::ServerExitingForRestart,
            Self::Throttled { .. } => EventType::ServerRestartThrottled,
            Self::Restarting { .. } => EventType::ServerRestarting,
            Self::CrashLoop { .. } => EventType::ServerCrashLoop,
            Self::Recovered { .. } => EventType::ServerRecovered,
            Self::GaveUp { .. } => EventType::ServerGaveUp,
            Self::Stopped(_) => EventType::ServerStopped,
            Self::Escalating { .. } => EventType::ServerStopEscalated,
            Self::Health(event) => event.parts("").1,
        }
    }

    /// The sentence of the log.
    pub fn message(&self, title: &str) -> String {
        match self {
            Self::Started { pid, restarts, .. } => {
                format!("{title} started (pid {pid}, restart {restarts})")
            }
            Self::Adopted { pid, uptime, .. } => {
                let up = show_duration(*uptime);
                format!("{title} runs on (pid {pid}, up for {up}): taken over")
            }
            Self::CandidateStarted { pid, .. } => {
                format!(
                    "{title} has a new instance (pid {pid}); the old one serves until it is ready"
                )
            }
            Self::SpareStarted { pid, .. } => format!("{title} has a spare instance (pid {pid})"),
            Self::SwapFailed { why, .. } => {
                format!(
                    "{title} was not restarted, the old instance stays: the new one failed: {why}"
                )
            }
            Self::Replacing { reason, .. } => format!("{title} is given a new instance: {reason}"),
            Self::Exited { pid, exit, ending, uptime } => {
                let who = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
                format!("{title}{who} {exit} after {}: {ending}", show_duration(*uptime))
            }
            Self::SpawnFailed(failure) => {
                format!("{title} could not be started: {}", failure.message)
            }
            Self::RestartRequested { .. } => "Server restart requested".to_owned(),
            Self::UserRequested(UserRequest { up, reason, .. }) => {
                format!("{title}: {} requested: {reason}", if *up { "start" } else { "stop" })
            }
            Self::ExitingForRestart { reason, .. } => {
                format!("{title} exiting for restart: {reason}")
            }
            Self::Throttled { delay, .. } => {
                format!("{title} restart throttled, waiting {}", show_duration(*delay))
            }
            Self::Restarting { delay, after, attempt, attempts_max } => {
                restarting(title, *delay, after, *attempt, *attempts_max)
            }
            Self::CrashLoop { crashes, window, delay } => format!(
                "{title} crash loop detected, backing off ({crashes} crashes within {}, next try in {})",
                show_duration(*window),
                show_duration(*delay)
            ),
            Self::Recovered { uptime } => {
                format!("{title} has been up for {}, all is well", show_duration(*uptime))
            }
            Self::GaveUp { restarts, last } => format!(
                "{title} failed: gave up after {restarts} restart{}; last: {last}",
                if *restarts == 1 { "" } else { "s" }
            ),
            Self::Stopped(ending) => stopped(title, ending),
            Self::Escalating { waited, step, .. } => {
                format!("{title} has not ended within {}, now {step}", show_duration(*waited))
            }
            Self::Health(event) => event.parts(title).2,
        }
    }

    /// The fields of the record, in their order.
    fn props(&self) -> Vec<(&'static str, Value)> {
        match self {
            Self::Started { pid, generation, restarts } => vec![
                ("pid", json!(pid)),
                ("generation", json!(generation.0)),
                ("restarts", json!(restarts)),
            ],
            Self::Adopted { pid, generation, uptime } => vec![
                ("pid", json!(pid)),
                ("generation", json!(generation.0)),
                ("uptime_ms", millis(*uptime)),
            ],
            Self::CandidateStarted { pid, generation } | Self::SpareStarted { pid, generation } => {
                vec![("pid", json!(pid)), ("generation", json!(generation.0))]
            }
            Self::SwapFailed { pid, why } => vec![("pid", json!(pid)), ("error", json!(why))],
            Self::Replacing { pid, reason } => {
                vec![("pid", json!(pid)), ("reason", json!(reason)), ("by", policy())]
            }
            Self::Exited { pid, exit, ending, uptime } => {
                let LastExit { code, signal, .. } = LastExit::from(*exit);
                vec![
                    ("pid", json!(pid)),
                    ("exit_code", json!(code)),
                    ("signal", json!(signal)),
                    ("ending", json!(ending.name())),
                    ("uptime_ms", millis(*uptime)),
                ]
            }
            Self::SpawnFailed(failure) => {
                vec![("error", json!(failure.message)), ("hint", json!(failure.hint))]
            }
            Self::RestartRequested { pid, reason, by }
            | Self::UserRequested(UserRequest { pid, reason, by, .. }) => {
                vec![("reason", json!(reason)), ("pid", json!(pid)), ("by", by.to_json())]
            }
            Self::ExitingForRestart { pid, reason, exit_code, by } => {
                vec![
                    ("exit_code", json!(exit_code)),
                    ("reason", json!(reason)),
                    ("pid", json!(pid)),
                    ("by", by.to_json()),
                ]
            }
            Self::Throttled { delay, by } => {
                vec![("delay_ms", millis(*delay)), ("by", by.to_json())]
            }
            Self::Restarting { delay, after, attempt, attempts_max } => vec![
                ("after", json!(after.name())),
                ("delay_ms", millis(*delay)),
                ("attempt", json!(attempt)),
                ("attempts_max", json!(attempts_max)),
                ("by", policy()),
            ],
            Self::CrashLoop { crashes, window, delay } => vec![
                ("crashes", json!(crashes)),
                ("window_ms", millis(*window)),
                ("delay_ms", millis(*delay)),
            ],
            Self::Recovered { uptime } => vec![("uptime_ms", millis(*uptime))],
            Self::GaveUp { restarts, last } => {
                vec![("restarts", json!(restarts)), ("last", json!(last.name()))]
            }
            Self::Stopped(ending) => vec![("reason", json!(ending.name()))],
            Self::Escalating { pid, waited, step } => {
                vec![("pid", json!(pid)), ("waited_ms", millis(*waited)), ("step", json!(step))]
            }
            Self::Health(event) => event.parts("").3,
        }
    }
}

fn restarting(title: &str, delay: Duration, after: &Ending, attempt: u32, max: u32) -> String {
    let when =
        if delay.is_zero() { "now".to_owned() } else { format!("in {}", show_duration(delay)) };
    let which = match max {
        0 => format!("restart {attempt}"),
        max => format!("restart {attempt} of {max}"),
    };
    let cause = match after {
        Ending::Clean => "unexpected exit".to_owned(),
        other => other.name().replace('_', " "),
    };
    format!("Restarting {title} after {cause}, {when} ({which})")
}

fn stopped(title: &str, ending: &Ending) -> String {
    match ending {
        Ending::StoppedByUser => format!("{title} stopped by user, not restarting"),
        Ending::Retired => format!("{title} stopped, the configuration does not have it any more"),
        Ending::Dismissed => format!("{title} stopped: no longer needed"),
        Ending::Shutdown => format!("{title} stopped, afresh is shutting down"),
        Ending::Clean => format!("{title} has finished, not restarting"),
        _ => format!("{title} failed and is not restarted, as the policy says: {ending}"),
    }
}

/// afresh itself acts, as the policy says.
fn policy() -> Value {
    Actor::Afresh("policy").to_json()
}

fn millis(duration: Duration) -> Value {
    json!(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
