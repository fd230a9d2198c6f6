//! A run over the control API: one service that is called `run`, which can be looked at, stopped and given another
//! session.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use afresh_core::audit::redact::redact_args;
use afresh_core::control::metrics::{RunMetrics, ServiceMetrics, Vitals};
use afresh_core::control::{
    Change, Face, Refusal, RestartNote, Restarts, RunStatus, ServiceStatus, State,
};
use afresh_core::id::Generation;
use afresh_core::limits::{CONTROL_FAREWELL, RESTARTS_TOLD_MAX, RUN_NOTICES_MAX};
use afresh_core::run::{Asked, Attempt, Finish, Input, Kind, Record, Say};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::{Driver, Run, stamp};
use crate::control::{About, Ask, Before, Begun, Control, NotBegun};
use crate::events::Events;
use crate::logs::Logs;
use crate::process::MECHANISM;

/// Its name.
const NAME: &str = "run";

/// What is told about the run.
pub(super) struct Board {
    about: About,
    pub(super) control: Control,
    /// What the control API itself has to say.
    pub(super) notices: mpsc::Receiver<String>,
    changes: watch::Sender<u64>,
    logs: Logs,
    metrics: RunMetrics,
    restarts: Vec<RestartNote>,
    /// Why the last session ended.
    ended: String,
    /// The process of the agent, and since when it runs.
    pub(super) process: Option<(u32, afresh_core::time::Stamp)>,
    is_over: bool,
}

impl Board {
    pub(super) fn new(run: &mut Run) -> Self {
        let about = About::new(Face::Run, None, &run.workspace, run.version);
        let (sender, notices) = mpsc::channel(RUN_NOTICES_MAX);
        let log = move |text: &str| drop(sender.try_send(text.to_owned()));
        let control = Control::serve(run.control.take(), None, about.clone(), Events::new(), log);
        Self {
            about,
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

    /// Something was written down.
    pub(super) fn note(&mut self, record: &Record) {
        self.metrics.note(record);
        match record {
            Record::AttemptEnded { cause, detail, .. } => {
                self.process = None;
                self.ended = format!("{} ({detail})", cause.name());
            }
            Record::AttemptBegan { kind: Kind::Restart(_), .. } => {
                if self.restarts.len() >= RESTARTS_TOLD_MAX {
                    self.restarts.remove(0);
                }
                let (time, reason) = (stamp().to_string(), self.ended.clone());
                self.restarts.push(RestartNote { time, reason });
            }
            Record::RunEnded { .. } => self.is_over = true,
            _ => {}
        }
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Something was said.
    pub(super) fn hear(&self, attempt: Attempt, say: &Say) {
        let text = match say {
            Say::Text(text) | Say::Note(text, _) => text.clone(),
            Say::Tool { name, detail } => format!("> {name} {detail}"),
            Say::Waits { why, until } => format!("waiting until {until}: {why}"),
            _ => return,
        };
        self.logs.say(Generation(attempt.0.into()), &text);
    }
}

impl Driver {
    fn generation(&self) -> Generation {
        Generation(u64::from(self.run.machine.view().attempt.0))
    }

    /// Answers a question. An answer that nobody waits for any more is dropped.
    pub(super) fn answer(&mut self, ask: Ask) {
        let is_ours = |name: &str| name == NAME;
        match ask {
            Ask::Status { name, answer } => {
                let asked = name.is_none_or(|name| is_ours(&name));
                answer.send(asked.then(|| self.status()).into_iter().collect()).ok();
            }
            Ask::Change { name, what, reason, answer } => {
                let begun = match is_ours(&name) {
                    true => self.change(what, &reason),
                    false => Err(NotBegun::NoSuchService { known: vec![NAME.to_owned()] }),
                };
                answer.send(begun).ok();
            }
            Ask::Input { name, answer, .. } => {
                let refusal = Refusal::new("the agent is told what to do by its plan");
                answer.send(is_ours(&name).then_some(Err(refusal))).ok();
            }
            Ask::Logs { name, answer } => {
                answer.send(is_ours(&name).then(|| self.board.logs.clone())).ok();
            }
            Ask::Metrics { answer } => drop(answer.send(vec![self.measured()])),
            Ask::Reload { answer, .. } => {
                let why = "has no configuration of services to read";
                answer.send(Err(self.board.about.only_up(why))).ok();
            }
            Ask::Shutdown { answer, .. } => {
                let refusal = Refusal::new("this is `afresh run`, which ends with its plan");
                answer.send(Err(refusal.hint("`afresh stop run` stops it"))).ok();
            }
        }
    }

    fn change(&mut self, what: Change, reason: &str) -> Result<Begun, NotBegun> {
        if self.board.is_over {
            return Err(NotBegun::Stopping);
        }
        if what == Change::Restart && !self.run.machine.view().can_restart {
            return Err(NotBegun::NotNow("no agent is at work"));
        }
        let old_pid = self.board.process.map(|(pid, _)| pid);
        let before = Before::new(old_pid, self.generation(), self.board.changes.subscribe());
        let asked = match what {
            // It runs.
            Change::Start => None,
            Change::Stop => Some(Asked::Stop),
            Change::Restart => Some(Asked::Restart),
        };
        if let Some(asked) = asked {
            let text = format!("somebody wants a {}: {reason}", what.name());
            self.says.push(Say::Note(text, false));
            self.give(Input::Asked(asked));
            self.settle();
        }
        let (sender, recorded) = oneshot::channel();
        sender.send(()).ok();
        Ok(Begun { before, recorded })
    }

    fn state(&self) -> State {
        match &self.finish {
            Some(Finish::Stopped { .. } | Finish::Skipped { .. }) => State::Stopped,
            Some(Finish::Failed { why } | Finish::Refused { why, .. }) => {
                State::Failed { why: why.clone() }
            }
            Some(Finish::Done) => State::Finished,
            None => self.run.machine.state(),
        }
    }

    fn uptime(&self) -> Option<Duration> {
        self.board.process.map(|(_, since)| stamp().since(since))
    }

    fn status(&self) -> ServiceStatus {
        let view = self.run.machine.view();
        let (process, plan) = (self.board.process, self.run.machine.plan());
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let run = RunStatus {
            number: self.run.number,
            plan: plan.title.clone(),
            phase: plan
                .phases
                .get(view.current)
                .map_or_else(String::new, |phase| phase.name.clone()),
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
        let total = view.restarts_in_all.into();
        ServiceStatus {
            pid: process.map(|(pid, _)| pid),
            generation: u64::from(view.attempt.0),
            started_at: process.map(|(_, since)| since.to_string()),
            uptime_ms: self.uptime().map(millis),
            restarts: Restarts { total, last: self.board.restarts.clone() },
            run: Some(run),
            mechanism: MECHANISM.to_owned(),
            says_ready: false,
            ..self.board.about.remote(
                NAME.to_owned(),
                redact_args(&self.run.program).join(" "),
                self.state(),
            )
        }
    }

    fn measured(&self) -> ServiceMetrics {
        let view = self.run.machine.view();
        let mut run = self.board.metrics.clone();
        (run.spent, run.context) = (view.spent, view.percent.map(|percent| percent / 100.0));
        ServiceMetrics {
            name: NAME.to_owned(),
            state: self.state(),
            uptime: self.uptime(),
            pid: self.board.process.map(|(pid, _)| pid),
            usage: None,
            vitals: Vitals::default(),
            run: Some(run),
        }
    }

    /// Whoever waits for the end gets to know it.
    pub(super) async fn farewell(&mut self) {
        self.board.changes.send_modify(|changes| *changes += 1);
        while self.board.changes.receiver_count() > 0 {
            match timeout(CONTROL_FAREWELL, self.board.control.next()).await {
                Ok(ask) => self.answer(ask),
                Err(_) => return,
            }
        }
    }
}
