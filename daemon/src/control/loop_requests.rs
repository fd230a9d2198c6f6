//! Owns the requests that connections of the control API hand to the loop, the changes that it begins for them, and
//! its answers. Built in `request_handlers.rs`, answered by the loop of a face. Never waits for a client.

use std::fs;
use std::time::Duration;

use afresh_core::audit::{Actor, EventType, Level, Record};
use afresh_core::control::metrics::ServiceMetrics;
use afresh_core::control::{
    API_VERSION, Change, ErrorAnswer, Face, LastExit, ReloadAnswer, RestartNote, Restarts,
    ServiceStatus, ShutdownAnswer, State, VersionAnswer,
};
use afresh_core::fleet::Transition;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::service::{Event, Input, UserRequest};
use tokio::sync::{oneshot, watch};

use crate::clock::now;
use crate::process::MECHANISM;
use crate::recent_lines::Logs;
use crate::store::workspace::Workspace;
use crate::supervise::{StdinError, Supervisor};

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
        by: Actor,
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
    Reload { reason: String, by: Actor, answer: oneshot::Sender<Result<Reloading, ErrorAnswer>> },
    /// To end. Only `afresh up` is there to be ended from elsewhere.
    Shutdown {
        reason: String,
        by: Actor,
        answer: oneshot::Sender<Result<ShutdownAnswer, ErrorAnswer>>,
    },
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
    by: &Actor,
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
            ("by", by.to_json()),
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

/// What holds for all services of this process.
#[derive(Clone, Debug)]
pub(crate) struct About {
    face: Face,
    /// What all of them are copies of, where they are.
    group: Option<String>,
    pub(crate) workspace: Option<String>,
    pub(crate) version: &'static str,
    started_at: String,
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
        Self { face, group, workspace, version, started_at: now().to_string() }
    }

    /// Who answers here; `run` is what the events are counted under.
    pub(super) fn version(&self, run: String) -> VersionAnswer {
        VersionAnswer {
            version: self.version.to_owned(),
            api: API_VERSION,
            face: self.face,
            pid: std::process::id(),
            run,
            started_at: self.started_at.clone(),
            workspace: self.workspace.clone(),
        }
    }

    /// Answers one question.
    pub(crate) async fn answer(&self, supervise: &mut Supervisor, ask: LoopRequest) {
        // An answer whose client has gone is dropped.
        match ask {
            LoopRequest::Status { name: None, answer } => {
                let all =
                    supervise.fleet.ids().into_iter().filter_map(|id| self.status(supervise, id));
                answer.send(all.collect()).ok();
            }
            LoopRequest::Status { name: Some(name), answer } => {
                let found =
                    supervise.services.named(&name).and_then(|id| self.status(supervise, id));
                answer.send(found.into_iter().collect()).ok();
            }
            LoopRequest::Change { name, what, reason, by, answer } => {
                answer.send(self.change(supervise, &name, what, (reason, by)).await).ok();
            }
            LoopRequest::Input { name, bytes, answer } => {
                let id = supervise.services.named(&name);
                answer.send(id.map(|id| self.input(supervise, id, &bytes))).ok();
            }
            LoopRequest::Logs { name, answer } => {
                let logs = supervise
                    .services
                    .named(&name)
                    .and_then(|id| supervise.services.logs(id))
                    .cloned();
                answer.send(logs).ok();
            }
            LoopRequest::Metrics { answer } => {
                let all =
                    supervise.fleet.ids().into_iter().filter_map(|id| measured(supervise, id));
                answer.send(all.collect()).ok();
            }
            LoopRequest::Reload { reason, answer, .. } => {
                supervise.log(&format!("a requested reload was refused: {reason}"));
                answer.send(Err(self.only_up("has no configuration of services to read"))).ok();
            }
            LoopRequest::Shutdown { reason, answer, .. } => {
                supervise.log(&format!("a requested shutdown was refused: {reason}"));
                answer.send(Err(self.only_up("ends with the process that started it"))).ok();
            }
        }
    }

    pub(crate) fn only_up(&self, why: &str) -> ErrorAnswer {
        let what = format!("this is `afresh {}`, which {why}", self.face.name());
        ErrorAnswer::new(what).hint("this is for `afresh up`")
    }

    fn input(
        &self,
        supervise: &mut Supervisor,
        id: ServiceId,
        bytes: &[u8],
    ) -> Result<u32, ErrorAnswer> {
        let name = supervise.services.name(id);
        match self.face {
            Face::Up => {}
            Face::Mcp | Face::Gateway => {
                let what = format!("the stdin of `{name}` belongs to its MCP client");
                return Err(ErrorAnswer::new(what).hint("call its tools over that client"));
            }
            // Its loop answers for itself.
            Face::Run => return Err(ErrorAnswer::new(format!("`{name}` takes no input"))),
            Face::Keep => {
                let what = format!("the stdin of `{name}` is fed from that of its `afresh keep`");
                return Err(ErrorAnswer::new(what).hint("type where that was started"));
            }
        }
        supervise.write_stdin(id, bytes).map_err(|error| match error {
            StdinError::NotRunning => ErrorAnswer::new(format!("`{name}` does not run"))
                .hint(format!("see `afresh status {name}`")),
            StdinError::Closed => ErrorAnswer::new(format!("`{name}` has closed its stdin")),
            StdinError::Full => ErrorAnswer::new(format!(
                "`{name}` does not read its stdin, which is full: nothing was written"
            ))
            .hint("try again later"),
            StdinError::Partial(length) => ErrorAnswer::new(format!(
                "`{name}` does not read its stdin, which is full: only the first {length} bytes were \
                 written"
            )),
        })
    }

    /// All that is told about all services.
    pub(crate) fn statuses(&self, supervise: &Supervisor) -> Vec<ServiceStatus> {
        supervise.fleet.ids().into_iter().filter_map(|id| self.status(supervise, id)).collect()
    }

    /// All that is told about one service.
    pub(crate) fn status(&self, supervise: &Supervisor, id: ServiceId) -> Option<ServiceStatus> {
        let service = supervise.fleet.service(id)?;
        let (definition, history) = supervise.services.known(id)?;
        let snapshot = supervise.snapshot(id)?;
        let (name, command) = (definition.name.clone(), definition.command.shown());
        Some(ServiceStatus {
            group: self.group_of(&definition.name),
            says_ready: supervise.services.says_ready(id),
            pid: snapshot.pid,
            generation: snapshot.generation.unwrap_or_else(|| service.generation().0),
            started_at: snapshot.pid.and(history.started_at).map(|stamp| stamp.to_string()),
            uptime_ms: snapshot.uptime_ms,
            candidate_pid: snapshot.candidate_pid,
            spare_pid: snapshot.spare_pid,
            swap_failed: history.swap_failed.clone(),
            waits_for: supervise.services.names(&supervise.fleet.waits_for(id)),
            depends_on: supervise.services.names(&supervise.fleet.needs(id)),
            restarts: Restarts {
                total: snapshot.restarts,
                last: history.restarts.iter().cloned().collect(),
            },
            last_exit: service.exits().last_exit.map(LastExit::from),
            health: supervise.health(id),
            ..self.bare_status(name, snapshot.state, command, MECHANISM)
        })
    }

    /// What a service is a copy of, where there are several: of a command that is kept, or of a server that
    /// a gateway runs for each client, `NAME@1`, or for each era.
    fn group_of(&self, name: &str) -> Option<String> {
        let group = match self.face {
            Face::Gateway => name.split_once('@').map(|(group, _)| group.to_owned()),
            _ => self.group.clone(),
        };
        group.filter(|group| name != group)
    }

    /// What is told of everything, such as a server that others run: no process is known.
    pub(crate) fn bare_status(
        &self,
        name: String,
        state: State,
        command: String,
        mechanism: &str,
    ) -> ServiceStatus {
        ServiceStatus {
            name,
            group: None,
            face: self.face,
            state,
            says_ready: false,
            pid: None,
            supervisor_pid: std::process::id(),
            generation: 0,
            started_at: None,
            uptime_ms: None,
            candidate_pid: None,
            spare_pid: None,
            swap_failed: None,
            waits_for: Vec::new(),
            depends_on: Vec::new(),
            restarts: Restarts::default(),
            last_exit: None,
            health: None,
            // The connection measures it, while the loop goes on.
            usage: None,
            run: None,
            workspace: self.workspace.clone(),
            command,
            shared: None,
            mechanism: mechanism.to_owned(),
            version: self.version.to_owned(),
        }
    }

    /// The status of a server that is reached over HTTP.
    pub(crate) fn remote(&self, name: String, address: String, state: State) -> ServiceStatus {
        let mechanism = "none: it is reached over HTTP";
        ServiceStatus { says_ready: true, ..self.bare_status(name, state, address, mechanism) }
    }

    async fn change(
        &self,
        supervise: &mut Supervisor,
        name: &str,
        what: Change,
        (reason, by): (String, Actor),
    ) -> Result<ChangeUnderWay, ChangeRefused> {
        // One that is not defined any more is stopped, and stays so.
        let is_defined = |id: &ServiceId| !supervise.fleet.is_retiring(*id);
        let found = supervise.services.named(name).filter(is_defined);
        let found = found.and_then(|id| Some((id, supervise.fleet.service(id)?)));
        let Some((id, service)) = found else {
            let names = supervise.fleet.ids().into_iter().filter(is_defined);
            let names = names.map(|id| supervise.services.name(id));
            return Err(ChangeRefused::NoSuchService { known: names.take(10).collect() });
        };
        if service.want().is_shutdown() {
            return Err(ChangeRefused::Stopping);
        }
        if what == Change::Stop && self.face == Face::Mcp {
            return Err(ChangeRefused::HasClient);
        }
        let snapshot = service.snapshot(supervise.time());
        let Some(before) = StateBefore::of(supervise, id) else {
            unreachable!("it was just there")
        };
        let is_waiting = !supervise.fleet.waits_for(id).is_empty();
        if is_waiting || !is_so(what, &snapshot.state) {
            let pid = snapshot.pid;
            let (up, transition) = match what {
                Change::Start => (true, Transition::Start),
                Change::Stop | Change::Restart => (false, Transition::Stop),
            };
            if what == Change::Restart {
                supervise.input_to(id, Input::Restart { reason, by }).await;
            } else {
                let request = UserRequest { up, pid, reason, by: by.clone() };
                supervise.announce(id, Event::UserRequested(request)).await;
                supervise.request(transition, vec![id], &by).await;
            }
        }
        let recorded = supervise.recorded();
        Ok(ChangeUnderWay { before, recorded })
    }
}

/// Whether a service is already as it is to be, or on its way there.
fn is_so(what: Change, state: &State) -> bool {
    match what {
        Change::Restart => false,
        Change::Start => {
            matches!(
                state,
                State::Starting
                    | State::Ready
                    | State::Degraded { .. }
                    | State::Running
                    | State::Restarting
            )
        }
        Change::Stop => {
            matches!(
                state,
                State::Stopping | State::Stopped | State::Finished | State::Failed { .. }
            )
        }
    }
}

fn measured(supervise: &Supervisor, id: ServiceId) -> Option<ServiceMetrics> {
    let snapshot = supervise.snapshot(id)?;
    let (definition, history) = supervise.services.known(id)?;
    Some(ServiceMetrics {
        name: definition.name.clone(),
        state: snapshot.state,
        uptime: snapshot.uptime_ms.map(Duration::from_millis),
        pid: snapshot.pid,
        usage: None,
        vitals: history.vitals.clone(),
        run: None,
    })
}
