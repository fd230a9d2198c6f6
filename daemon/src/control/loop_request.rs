//! Owns the requests that connections of the control API hand to the loop, and the changes that it begins for
//! them. Built in `route.rs`, answered in `loop_responses.rs`.

use afresh_core::audit::{EventType, Level, Record};
use afresh_core::control::metrics::ServiceMetrics;
use afresh_core::control::{
    Change, ErrorAnswer, ReloadAnswer, RestartNote, ServiceStatus, ShutdownAnswer,
};
use afresh_core::id::{Generation, ServiceId};
use tokio::sync::{oneshot, watch};

use crate::logs::Logs;
use crate::supervise::Supervisor;

/// A request of a client of the control API to the loop. A client that has gone meanwhile is not
/// waited for.
pub(crate) enum LoopRequest {
    /// The state of all services, or of one.
    Status { name: Option<String>, answer: oneshot::Sender<Vec<ServiceStatus>> },
    /// A start, a stop or a new instance.
    Change {
        name: String,
        what: Change,
        reason: String,
        answer: oneshot::Sender<Result<ChangeUnderWay, ChangeRefused>>,
    },
    /// To write to the stdin of a service.
    Input {
        name: String,
        bytes: Vec<u8>,
        answer: oneshot::Sender<Option<Result<u32, ErrorAnswer>>>,
    },
    /// The last lines of a service.
    Logs { name: String, answer: oneshot::Sender<Option<Logs>> },
    /// What is measured of all services.
    Metrics { answer: oneshot::Sender<Vec<ServiceMetrics>> },
    /// To read the configuration again. Only `afresh up` has one to read.
    Reload { reason: String, answer: oneshot::Sender<Result<Reloading, ErrorAnswer>> },
    /// To end. Only `afresh up` is there to be ended from elsewhere.
    Shutdown { reason: String, answer: oneshot::Sender<Result<ShutdownAnswer, ErrorAnswer>> },
}

/// A service before a change.
pub(crate) struct StateBefore {
    pub(super) old_pid: Option<u32>,
    /// The newest instance there was.
    pub(super) old: Generation,
    /// The last swap that had failed.
    pub(super) swap_failed: Option<RestartNote>,
    /// Changes whenever something was told about a service.
    pub(super) changes: watch::Receiver<u64>,
}

impl StateBefore {
    /// Of something that is not supervised as services are.
    pub(crate) fn new(
        old_pid: Option<u32>,
        old: Generation,
        changes: watch::Receiver<u64>,
    ) -> Self {
        Self { old_pid, old, swap_failed: None, changes }
    }

    /// As the service is now; none where there is no such service.
    pub(crate) fn of(supervise: &Supervisor, id: ServiceId) -> Option<Self> {
        let service = supervise.fleet.service(id)?;
        Some(Self {
            old_pid: service.snapshot(supervise.time()).pid,
            old: service.generation(),
            swap_failed: supervise.services.known(id).and_then(|(_, its)| its.swap_failed.clone()),
            changes: supervise.recorder.changes.subscribe(),
        })
    }
}

/// A reload that is under way.
pub(crate) struct Reloading {
    pub(crate) answer: ReloadAnswer,
    /// The services that are started, stopped or restarted, by name.
    pub(crate) begun: Vec<(String, Change, StateBefore)>,
}

/// That the configuration was read again, for the trail.
pub(crate) fn reloaded(
    logger: &str,
    added: &[String],
    changed: &[String],
    removed: &[String],
) -> Record {
    Record {
        level: Level::Info,
        logger: logger.to_owned(),
        message: format!(
            "the configuration was read again: {} new, {} changed, {} gone",
            added.len(),
            changed.len(),
            removed.len()
        ),
        event_type: EventType::ConfigurationReloaded,
        props: vec![
            ("added", added.into()),
            ("changed", changed.into()),
            ("removed", removed.into()),
        ],
    }
}

/// A change that is under way.
pub(crate) struct ChangeUnderWay {
    pub(crate) before: StateBefore,
    /// Resolves when it is on disk that it was asked for.
    pub(crate) recorded: oneshot::Receiver<()>,
}

/// Why there is no change.
pub(crate) enum ChangeRefused {
    NoSuchService {
        known: Vec<String>,
    },
    Stopping,
    /// The client of `afresh mcp` would lose its server.
    HasClient,
    /// A run is at something else, and why that matters.
    NotNow(&'static str),
}

impl ChangeRefused {
    pub(super) fn refusal(&self, name: &str, what: Change) -> ErrorAnswer {
        let word = what.name();
        match self {
            Self::NoSuchService { known } => {
                ErrorAnswer::new(format!("there is no service `{name}`"))
                    .hint(format!("there is: {}", known.join(", ")))
            }
            Self::Stopping => {
                ErrorAnswer::new(format!("no {word} of `{name}`: afresh is stopping"))
            }
            Self::NotNow(why) => ErrorAnswer::new(format!("no {word} of `{name}`: {why}")),
            Self::HasClient => {
                ErrorAnswer::new(format!("no stop of `{name}`: its MCP client would lose it"))
                    .hint("restart it, or end it where its client is set up")
            }
        }
    }
}
