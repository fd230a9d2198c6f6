//! What is told about one service, made from its machine.

use serde::{Deserialize, Serialize};

use super::Face;
use crate::service::{Exit, Phase, Rest, Service};
use crate::time::Time;

/// One service: `GET /v1/services/NAME`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Its name in the log, in the trail and in commands.
    pub name: String,
    /// What it is a copy of, where there are several.
    pub group: Option<String>,
    /// Which command keeps it.
    pub face: Face,
    /// What is true of it.
    pub state: State,
    /// Why it rests, or when it is started next, as a sentence.
    pub detail: Option<String>,
    /// The process that runs.
    pub pid: Option<u32>,
    /// The afresh process that keeps it.
    pub supervisor_pid: u32,
    /// The how-manieth instance it is.
    pub generation: u64,
    /// When the process was started, RFC 3339 in UTC.
    pub started_at: Option<String>,
    /// How long the process has run.
    pub uptime_ms: Option<u64>,
    /// What has become of the instances before.
    pub restarts: Restarts,
    /// How the last instance ended.
    pub last_exit: Option<LastExit>,
    /// The project's folder; none outside of one.
    pub workspace: Option<String>,
    /// What is run, without what looks like a secret.
    pub command: String,
    /// How processes are kept from outliving it.
    pub mechanism: String,
    /// The version of the afresh that keeps it.
    pub version: String,
}

/// What is true of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nobody has started it yet.
    NotStarted,
    /// Its start is planned.
    Waiting,
    /// Its process is being made.
    Starting,
    /// Its process runs.
    Running,
    /// Its process is being ended.
    Stopping,
    /// It was stopped, and stays down.
    Stopped,
    /// It ended, and the policy says to leave it at that.
    Finished,
    /// It could not be kept alive.
    Failed,
}

/// Restarts of every kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Restarts {
    /// All of them.
    pub total: u64,
    /// The last few, oldest first.
    pub last: Vec<RestartNote>,
}

/// Why an instance was followed by another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RestartNote {
    /// When that was known, RFC 3339 in UTC.
    pub time: String,
    /// Why.
    pub reason: String,
}

/// How an instance ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastExit {
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// As a sentence.
    pub text: String,
}

impl State {
    /// The state of a machine.
    pub fn of(service: &Service) -> Self {
        match service.phase() {
            Phase::Waiting { .. } => Self::Waiting,
            Phase::Starting => Self::Starting,
            Phase::Running { .. } => Self::Running,
            Phase::Stopping => Self::Stopping,
            Phase::Down => match service.rest() {
                None | Some(Rest::NotStarted) => Self::NotStarted,
                Some(Rest::Stopped) => Self::Stopped,
                Some(Rest::Finished(_)) => Self::Finished,
                Some(Rest::Failed(_)) => Self::Failed,
            },
        }
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotStarted => "not started",
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Finished => "finished",
            Self::Failed => "failed",
        }
    }
}

/// Why a service rests, or when it is started next.
pub fn detail(service: &Service, now: Time) -> Option<String> {
    if let Phase::Waiting { until } = service.phase() {
        return Some(format!("starts in {}", crate::time::show_duration(until.since(now))));
    }
    match service.rest()? {
        Rest::NotStarted | Rest::Stopped => None,
        Rest::Finished(ending) => Some(format!("not restarted after: {ending}")),
        Rest::Failed(ending) => Some(format!("gave up; last: {ending}")),
    }
}

impl From<Exit> for LastExit {
    fn from(exit: Exit) -> Self {
        let (code, signal) = match exit {
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal)),
            Exit::Unknown => (None, None),
        };
        Self { code, signal, text: exit.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::id::Generation;
    use crate::policy::Policy;
    use crate::service::Input;

    #[test]
    fn states_follow_the_machine() {
        let mut service = Service::new(Policy::default(), 1);
        assert_eq!(State::of(&service), State::NotStarted);
        service.handle(Time::ZERO, Input::Start);
        assert_eq!(State::of(&service), State::Starting);
        let generation = Generation(1);
        service.handle(Time::ZERO, Input::Spawned { generation, pid: 7 });
        assert_eq!((State::of(&service), service.pid()), (State::Running, Some(7)));
        let later = Time::after_start(Duration::from_secs(1));
        service.handle(later, Input::Exited { generation, exit: Exit::Code(3) });
        assert_eq!((State::of(&service), service.pid()), (State::Waiting, None));
        assert!(detail(&service, later).unwrap().starts_with("starts in "));
        service.handle(later, Input::Stop);
        assert_eq!((State::of(&service), detail(&service, later)), (State::Stopped, None));
        assert!(!service.is_shutting_down());
        service.handle(later, Input::Shutdown { within: None });
        assert!(service.is_shutting_down());
    }

    #[test]
    fn a_state_has_one_word() {
        for state in [State::NotStarted, State::Waiting, State::Failed] {
            let word = state.name().replace(' ', "_");
            assert_eq!(serde_json::to_value(state).unwrap(), word);
        }
    }
}
