//! Owns the snapshot of a service: its state at one moment, for status and the control API.
//!
//! Driven by the daemon's status. Never changes the service.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Service;
use super::exit::Ending;
use super::state::{Goal, Process, Rest, Want};
use crate::definition::Until;
use crate::duration::show_duration;
use crate::health::{HealthState, HealthStatus};
use crate::time::Time;

/// A service at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// How it is.
    pub state: State,
    /// The current process.
    pub pid: Option<u32>,
    /// Which instance that is.
    pub generation: Option<u64>,
    /// For how long the current instance has been there, in milliseconds.
    pub uptime_ms: Option<u64>,
    /// Restarts of every kind so far.
    pub restarts: u64,
    /// The process that is to take the place of the current one when it is ready.
    pub candidate_pid: Option<u32>,
    /// The process that takes over when the current one crashes.
    pub spare_pid: Option<u32>,
}

/// How a service is, in one word; its `Display` is for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum State {
    /// Others have to be there before it is started.
    Waiting,
    /// A process is being started.
    Starting,
    /// It serves.
    Ready,
    /// It has served, and does not pass its health check now, or answers no call.
    Degraded {
        /// What is wrong.
        why: String,
    },
    /// A process runs; whether it serves is not known.
    Running,
    /// A new instance was requested, and is on its way.
    Restarting,
    /// It has crashed, and waits for the next try.
    #[serde(rename = "backing off")]
    BackingOff {
        /// The time until then.
        next_try_ms: u64,
    },
    /// It crashes again and again, and waits for the next try.
    #[serde(rename = "crash loop")]
    CrashLoop {
        /// The time until then.
        next_try_ms: u64,
    },
    /// It is being stopped.
    Stopping,
    /// It could not be kept alive.
    Failed {
        /// The last failure.
        why: String,
    },
    /// It was not started yet, or it was stopped.
    Stopped,
    /// It ended, and the policy says to leave it at that.
    Finished,
}

impl Service {
    /// Whether it is as far as those that need it want it. One that has done its work is.
    pub fn has_reached(&self, until: Until) -> bool {
        match &self.process {
            Process::Running { instance, .. } => until == Until::Started || instance.ready,
            Process::Down(Rest::Finished(Ending::Clean)) => true,
            _ => false,
        }
    }

    /// How it is to be, no matter how it is now.
    pub fn want(&self) -> Want {
        self.want
    }

    /// Whether it is being stopped, to stay down.
    pub fn is_stopping(&self) -> bool {
        !matches!(self.want, Want::Up) && self.rest().is_none()
    }

    /// How it is now.
    pub fn snapshot(&self, now: Time) -> Snapshot {
        let current = self.process.instance();
        Snapshot {
            state: self.process.state(
                now,
                self.side.candidate.is_some(),
                self.crashes.counts.looping,
            ),
            pid: current.and_then(|instance| instance.pid),
            generation: current.map(|instance| instance.generation.0),
            uptime_ms: current.map(|instance| millis(now.since(instance.since))),
            restarts: self.crashes.restarts,
            candidate_pid: self.side.candidate.as_ref().and_then(|its| its.instance.pid),
            spare_pid: self.side.spare.instance.as_ref().and_then(|spare| spare.pid),
        }
    }
}

impl Process {
    fn state(&self, now: Time, is_swapping: bool, is_looping: bool) -> State {
        match self {
            Self::Down(rest) => match rest {
                Rest::NotStarted | Rest::Stopped => State::Stopped,
                Rest::Finished(_) => State::Finished,
                Rest::Failed(ending) => State::Failed { why: ending.to_string() },
            },
            Self::Closing { rest: Rest::Failed(ending), .. } => {
                State::Failed { why: ending.to_string() }
            }
            Self::Closing { .. } => State::Stopping,
            Self::Waiting { requested: true, .. } => State::Restarting,
            Self::Waiting { spawn_at, .. } => {
                let next_try_ms = millis(spawn_at.since(now));
                match is_looping {
                    true => State::CrashLoop { next_try_ms },
                    false => State::BackingOff { next_try_ms },
                }
            }
            Self::Starting(_) => State::Starting,
            Self::Running { .. } if is_swapping => State::Restarting,
            Self::Running { instance, .. } if instance.ready => match &instance.trouble {
                Some(why) => State::Degraded { why: why.clone() },
                None => State::Ready,
            },
            Self::Running { .. } => State::Running,
            Self::Stopping { goal: Goal::Down, .. } => State::Stopping,
            Self::Stopping { .. } => State::Restarting,
        }
    }
}

impl State {
    /// The state of a service that has a health check, by what that says.
    #[must_use]
    pub fn with_health(self, health: &HealthStatus) -> Self {
        match (self, health.state) {
            (Self::Running, _) => Self::Starting,
            (Self::Ready, HealthState::Degraded | HealthState::Unhealthy) => {
                Self::Degraded { why: health.last_error.clone().unwrap_or_default() }
            }
            (state, _) => state,
        }
    }

    /// The words for all of them.
    pub const WORDS: [&str; 12] = [
        "waiting",
        "starting",
        "ready",
        "degraded",
        "running",
        "restarting",
        "backing off",
        "crash loop",
        "stopping",
        "failed",
        "stopped",
        "finished",
    ];

    /// The word for it.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Degraded { .. } => "degraded",
            Self::Running => "running",
            Self::Restarting => "restarting",
            Self::BackingOff { .. } => "backing off",
            Self::CrashLoop { .. } => "crash loop",
            Self::Stopping => "stopping",
            Self::Failed { .. } => "failed",
            Self::Stopped => "stopped",
            Self::Finished => "finished",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Self::Degraded { why } | Self::Failed { why } => write!(f, ": {why}"),
            Self::BackingOff { next_try_ms } | Self::CrashLoop { next_try_ms } => {
                let wait = Duration::from_millis(*next_try_ms);
                write!(f, " (next try in {})", show_duration(wait))
            }
            _ => Ok(()),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
