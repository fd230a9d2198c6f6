//! Owns what clients of the control API see of a run: one service that is called `run`, with its status, log and
//! metrics. Driven by the loop of the run. Never changes the run: it hands requests back to the loop.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use afresh_core::audit::redact::redact_args;
use afresh_core::control::metrics::{RunMetrics, ServiceMetrics, Vitals};
use afresh_core::control::{
    Change, ErrorAnswer, Face, RestartNote, Restarts, RunStatus, ServiceStatus, State,
};
use afresh_core::id::Generation;
use afresh_core::limits::{CONTROL_FAREWELL, RESTARTS_TOLD_MAX, RUN_NOTICES_MAX};
use afresh_core::run::{Attempt, Finish, Kind, Machine, Record, RunEvent};
use afresh_core::time::Stamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::clock;
use crate::control::{
    About, ChangeRefused, ChangeUnderWay, Control, LoopRequest, RuntimeFolders, StateBefore,
};
use crate::process::MECHANISM;
use crate::recent_events::Events;
use crate::recent_lines::Logs;
use crate::refusals::Refusals;
use crate::store::workspace::Workspace;

/// Its name.
const NAME: &str = "run";

/// The run, as clients of the control API see it.
pub(super) struct ControlBoard {
    about: About,
    number: i64,
    /// The agent's command, without secrets.
    command: String,
    pub(super) control: Control,
    /// Notices of the control API itself.
    pub(super) notices: mpsc::Receiver<String>,
    pub(super) changes: watch::Sender<u64>,
    logs: Logs,
    metrics: RunMetrics,
    restarts: Vec<RestartNote>,
    /// Why the last session ended.
    ended: String,
    /// The process of the agent, and since when it runs.
    pub(super) process: Option<(u32, Stamp)>,
    is_over: bool,
}

impl ControlBoard {
    pub(super) fn new(
        number: i64,
        workspace: &Workspace,
        program: &[String],
        folders: Option<RuntimeFolders>,
        version: &'static str,
    ) -> Self {
        let about = About::new(Face::Run, None, workspace, version);
        let (sender, notices) = mpsc::channel(RUN_NOTICES_MAX);
        let log = move |text: &str| drop(sender.try_send(text.to_owned()));
        let refusals = Refusals::new("afresh.run", {
            let log = log.clone();
            move |record| log(&record.message)
        });
        let recorders = (Events::new(), refusals);
        let control = Control::serve(folders, None, about.clone(), recorders, log);
        Self {
            about,
            number,
            command: redact_args(program).join(" "),
            control,
            notices,
            changes: watch::Sender::new(0),
            logs: Logs::new(&Arc::new(AtomicUsize::new(0))),
            metrics: RunMetrics::default(),
            restarts: Vec::new(),
            ended: String::new(),
            process: None,
            is_over: false,
        }
    }

    /// Takes a record.
    pub(super) fn note(&mut self, record: &Record) {
        self.metrics.note(record);
        match record {
            Record::AttemptEnded { cause, detail, .. } => {
                self.process = None;
                self.ended = format!("{cause} ({detail})");
            }
            Record::AttemptBegan { kind: Kind::Restart(_), .. } => {
                if self.restarts.len() >= RESTARTS_TOLD_MAX {
                    self.restarts.remove(0);
                }
                let (time, reason) = (clock::now().to_string(), self.ended.clone());
                self.restarts.push(RestartNote { time, reason });
            }
            Record::RunEnded { .. } => self.is_over = true,
            _ => {}
        }
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Adds an event to the log.
    pub(super) fn log(&self, attempt: Attempt, say: &RunEvent) {
        let text = match say {
            RunEvent::Text(text) | RunEvent::Note(text, _) => text.clone(),
            RunEvent::Tool { name, detail } => format!("> {name} {detail}"),
            RunEvent::Waits { why, until } => format!("waiting until {until}: {why}"),
            _ => return,
        };
        self.logs.say(Generation(attempt.0.into()), &text);
    }

    /// Answers a question that changes nothing. An answer that the client no longer waits for is dropped.
    pub(super) fn answer(&self, ask: LoopRequest, machine: &Machine, finish: Option<&Finish>) {
        let is_ours = |name: &str| name == NAME;
        match ask {
            LoopRequest::Status { name, answer } => {
                let asked = name.is_none_or(|name| is_ours(&name));
                let status = || self.status(machine, finish);
                answer.send(asked.then(status).into_iter().collect()).ok();
            }
            LoopRequest::Change { .. } => {}
            LoopRequest::Input { name, answer, .. } => {
                let refusal = ErrorAnswer::new("the agent is told what to do by its plan");
                answer.send(is_ours(&name).then_some(Err(refusal))).ok();
            }
            LoopRequest::Logs { name, answer } => {
                answer.send(is_ours(&name).then(|| self.logs.clone())).ok();
            }
            LoopRequest::Metrics { answer } => {
                drop(answer.send(vec![self.measured(machine, finish)]))
            }
            LoopRequest::Reload { answer, .. } => {
                let why = "has no configuration of services to read";
                answer.send(Err(self.about.only_up(why))).ok();
            }
            LoopRequest::Shutdown { answer, .. } => {
                let refusal = ErrorAnswer::new("this is `afresh run`, which ends with its plan");
                answer.send(Err(refusal.hint("`afresh stop run` stops it"))).ok();
            }
        }
    }

    /// Whether a change can begin, and what the client waits for.
    pub(super) fn begin_change(
        &self,
        name: &str,
        what: Change,
        machine: &Machine,
    ) -> Result<ChangeUnderWay, ChangeRefused> {
        if name != NAME {
            return Err(ChangeRefused::NoSuchService { known: vec![NAME.to_owned()] });
        }
        if self.is_over {
            return Err(ChangeRefused::Stopping);
        }
        let view = machine.view();
        if what == Change::Restart && !view.can_restart {
            return Err(ChangeRefused::NotNow("no agent is at work"));
        }
        let old_pid = self.process.map(|(pid, _)| pid);
        let generation = Generation(u64::from(view.attempt.0));
        let before = StateBefore::new(old_pid, generation, self.changes.subscribe());
        let (sender, recorded) = oneshot::channel();
        sender.send(()).ok();
        Ok(ChangeUnderWay { before, recorded })
    }

    fn uptime(&self) -> Option<Duration> {
        self.process.map(|(_, since)| clock::now().since(since))
    }

    /// The run as one of the services of the control API.
    fn status(&self, machine: &Machine, finish: Option<&Finish>) -> ServiceStatus {
        let (view, plan) = (machine.view(), machine.plan());
        let phase = plan.phases.get(view.current);
        let run = RunStatus {
            number: self.number,
            plan: plan.title.clone(),
            phase: phase.map_or_else(String::new, |phase| phase.name.clone()),
            phase_number: view.current as u64 + 1,
            phases: view.ends.len() as u64,
            doing: view.doing.to_owned(),
            context_percent: view.percent,
            context_tokens: view.context.map(|context| context.used),
            context_window: view.context.and_then(|context| context.window),
            context_exact: view.context.is_some_and(|context| context.exact),
            tool_calls: view.tool_calls.into(),
            phase_restarts: view.restarts.into(),
            input_tokens: view.spent.input,
            output_tokens: view.spent.output,
            dollars: view.spent.dollars,
            waits_until: view.wait.map(|wait| wait.until.to_string()),
        };
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        ServiceStatus {
            pid: self.process.map(|(pid, _)| pid),
            generation: u64::from(view.attempt.0),
            started_at: self.process.map(|(_, since)| since.to_string()),
            uptime_ms: self.uptime().map(millis),
            restarts: Restarts { total: view.restarts_in_all.into(), last: self.restarts.clone() },
            run: Some(run),
            ..self.about.bare_status(
                NAME.to_owned(),
                state_of(machine, finish),
                self.command.clone(),
                MECHANISM,
            )
        }
    }

    fn measured(&self, machine: &Machine, finish: Option<&Finish>) -> ServiceMetrics {
        let view = machine.view();
        let mut run = self.metrics.clone();
        (run.spent, run.context) = (view.spent, view.percent.map(|percent| percent / 100.0));
        ServiceMetrics {
            name: NAME.to_owned(),
            state: state_of(machine, finish),
            uptime: self.uptime(),
            pid: self.process.map(|(pid, _)| pid),
            usage: None,
            vitals: Vitals::default(),
            run: Some(run),
        }
    }

    /// The next question of a client, as long as one waits for the end.
    pub(super) async fn next_before_end(&mut self) -> Option<LoopRequest> {
        match self.changes.receiver_count() {
            0 => None,
            _ => timeout(CONTROL_FAREWELL, self.control.next()).await.ok(),
        }
    }
}

fn state_of(machine: &Machine, finish: Option<&Finish>) -> State {
    match finish {
        Some(Finish::Stopped { .. } | Finish::Skipped { .. }) => State::Stopped,
        Some(Finish::Failed { why } | Finish::Refused { why, .. }) => {
            State::Failed { why: why.clone() }
        }
        Some(Finish::Done) => State::Finished,
        None => machine.state(),
    }
}
