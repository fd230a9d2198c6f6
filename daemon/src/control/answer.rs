//! The loop's side of the control socket: what it is asked, and its answers from what it knows.

use std::fs;

use afresh_core::control::{Face, LastExit, Refusal, RestartNote, Restarts, ServiceStatus};
use afresh_core::id::{Generation, ServiceId};
use afresh_core::service::Input;
use tokio::sync::{oneshot, watch};

use crate::keep::Keep;
use crate::logs::Logs;
use crate::process::MECHANISM;
use crate::store::workspace::Workspace;
use crate::supervise::Supervise;

/// Something that a client of the control socket wants of the loop. Whoever has gone meanwhile is not
/// waited for.
pub(crate) enum Ask {
    /// The state of all services, or of one.
    Status { name: Option<String>, answer: oneshot::Sender<Vec<ServiceStatus>> },
    /// A new instance; answered when the restart is on record.
    Restart { name: String, reason: String, answer: oneshot::Sender<Result<Begun, NotBegun>> },
    /// The last lines of a service.
    Logs { name: String, answer: oneshot::Sender<Option<Logs>> },
}

/// A restart that is under way.
pub(crate) struct Begun {
    pub(super) old_pid: Option<u32>,
    /// The newest instance there was.
    pub(super) old: Generation,
    /// The last swap that had failed.
    pub(super) swap_failed: Option<RestartNote>,
    /// Changes whenever something was told about a service.
    pub(super) changes: watch::Receiver<u64>,
    /// Resolves when it is on disk that it was asked for.
    pub(super) recorded: oneshot::Receiver<()>,
}

/// Why there is no restart.
pub(crate) enum NotBegun {
    NoSuchService { known: Vec<String> },
    Stopping,
}

/// What holds for all services of this process.
#[derive(Clone, Debug)]
pub(crate) struct About {
    face: Face,
    /// What all of them are copies of, where they are.
    group: Option<String>,
    workspace: Option<String>,
    version: &'static str,
}

impl About {
    pub(crate) fn new(
        face: Face,
        group: Option<String>,
        workspace: &Workspace,
        version: &'static str,
    ) -> Self {
        let root = workspace.root();
        let workspace = root.map(|root| fs::canonicalize(root).unwrap_or_else(|_| root.to_owned()));
        let workspace = workspace.map(|root| root.display().to_string());
        Self { face, group, workspace, version }
    }

    /// Of a command that is kept, or copies of it.
    pub(crate) fn of(keep: &Keep, face: Face) -> Self {
        Self::new(face, Some(keep.name.clone()), &keep.workspace, keep.version)
    }

    /// Answers one question.
    pub(crate) async fn answer(&self, supervise: &mut Supervise, ask: Ask) {
        // An answer that nobody waits for any more is dropped.
        match ask {
            Ask::Status { name: None, answer } => {
                let ids: Vec<ServiceId> = supervise.core().services().map(|(id, _)| id).collect();
                let all = ids.into_iter().filter_map(|id| self.status(supervise, id)).collect();
                answer.send(all).ok();
            }
            Ask::Status { name: Some(name), answer } => {
                let found = supervise.named(&name).and_then(|id| self.status(supervise, id));
                answer.send(found.into_iter().collect()).ok();
            }
            Ask::Restart { name, reason, answer } => {
                answer.send(restart(supervise, &name, reason).await).ok();
            }
            Ask::Logs { name, answer } => {
                let logs = supervise.named(&name).and_then(|id| supervise.logs(id)).cloned();
                answer.send(logs).ok();
            }
        }
    }

    /// All that is told about one service.
    pub(crate) fn status(&self, supervise: &Supervise, id: ServiceId) -> Option<ServiceStatus> {
        let service = supervise.core().service(id)?;
        let (definition, past) = supervise.known(id)?;
        let snapshot = service.snapshot(supervise.now());
        Some(ServiceStatus {
            name: definition.name.clone(),
            group: self.group.clone().filter(|group| definition.name != *group),
            face: self.face,
            state: snapshot.state,
            pid: snapshot.pid,
            supervisor_pid: std::process::id(),
            generation: snapshot.generation.unwrap_or_else(|| service.generation().0),
            started_at: snapshot.pid.and(past.started_at).map(|stamp| stamp.to_string()),
            uptime_ms: snapshot.uptime_ms,
            candidate_pid: snapshot.candidate_pid,
            spare_pid: snapshot.spare_pid,
            swap_failed: past.swap_failed.clone(),
            waits_for: supervise.waits_for(id),
            restarts: Restarts {
                total: snapshot.restarts,
                last: past.restarts.iter().cloned().collect(),
            },
            last_exit: service.last_exit().map(LastExit::from),
            workspace: self.workspace.clone(),
            command: definition.command.shown(),
            mechanism: MECHANISM.to_owned(),
            version: self.version.to_owned(),
        })
    }
}

async fn restart(supervise: &mut Supervise, name: &str, reason: String) -> Result<Begun, NotBegun> {
    let found = supervise.named(name).and_then(|id| Some((id, supervise.core().service(id)?)));
    let Some((id, service)) = found else {
        let ids = supervise.core().services().map(|(id, _)| id);
        let names = ids.filter_map(|id| Some(supervise.known(id)?.0.name.clone()));
        return Err(NotBegun::NoSuchService { known: names.take(10).collect() });
    };
    if service.is_shutting_down() {
        return Err(NotBegun::Stopping);
    }
    let (old_pid, old) = (service.snapshot(supervise.now()).pid, service.generation());
    let swap_failed = supervise.known(id).and_then(|(_, past)| past.swap_failed.clone());
    let changes = supervise.changes();
    supervise.input_to(id, Input::Restart { reason }).await;
    let recorded = supervise.done();
    Ok(Begun { old_pid, old, swap_failed, changes, recorded })
}

impl NotBegun {
    pub(super) fn refusal(&self, name: &str) -> Refusal {
        match self {
            Self::NoSuchService { known } => Refusal::new(format!("there is no service `{name}`"))
                .hint(format!("there is: {}", known.join(", "))),
            Self::Stopping => Refusal::new(format!("no restart of `{name}`: afresh is stopping")),
        }
    }
}
