//! Owns a run of a plan: the step that it is at, and the parts that the step works on. Driven by
//! [`Machine::handle`]. Never touches a process, a file or a clock.
//!
//! This file has the state, the way in and the clock; `phase_flow.rs` goes from the base of a phase over its commits
//! and gates to its end, `session_flow.rs` opens and ends sessions and grants requests of users. Each part owns its
//! own state and knows no other one. The picture is in `mod.rs`.

mod budget;
mod commit_messages;
mod gates;
mod model_limit_wait;
mod phase_flow;
mod progress;
mod repository;
mod session;
mod session_flow;
mod step;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::budget::RunUsage;
use self::gates::Gates;
pub(super) use self::progress::keeps_handoff;
use self::progress::{PhaseProgress, PlanProgress};
use self::repository::Repository;
use self::session::Session;
use self::session_flow::PendingEnd;
use self::step::{EndReason, HeldWork, Step};
use super::plan::Plan;
use super::{
    Attempt, Cause, Effect, Finish, Input, Kind, Now, PhaseEnd, Record, ResumeState, RunEvent,
    Settings,
};
use crate::agent::{ContextUse, Spent};
use crate::service::State;
use crate::time::{Stamp, Time};

/// One run of a plan.
#[derive(Clone, Debug)]
pub struct Machine {
    settings: Settings,
    step: Step,
    plan: PlanProgress,
    phase: PhaseProgress,
    repository: Repository,
    gates: Gates,
    /// There is one in [`Step::InSession`] and nowhere else.
    session: Option<Session>,
    last_attempt: Attempt,
    usage: RunUsage,
    pending_end: Option<PendingEnd>,
    /// Nothing new begins until the run is resumed.
    is_held: bool,
    model: Option<String>,
    now: Now,
    /// What the last [`RunEvent::Moved`] was about.
    told_doing: &'static str,
    out: Outbox,
}

impl Machine {
    /// A run that has not begun, or goes on with what is known of its past.
    pub fn new(plan: Plan, settings: Settings, past: ResumeState) -> Self {
        let plan = PlanProgress::new(plan, &past.over);
        let mut usage = RunUsage::resumed(settings.budget, &past);
        let mut repository = Repository::new(!settings.without_git, past.position);
        let (mut phase, mut gates) = (PhaseProgress::default(), Gates::default());
        let name = plan.current().map(|phase| &phase.name);
        if let Some(failed) = past.failed.filter(|failed| Some(&failed.name) == name) {
            repository.resume_phase(&failed, Vec::new());
            phase.is_again = true;
        }
        if let Some(begun) = past.phase.filter(|begun| Some(&begun.name) == name) {
            repository.resume_phase(&begun, begun.stashes.clone());
            usage.begin_phase(begun.spent, begun.worked);
            phase = PhaseProgress::resumed(&begun);
            gates.failed = begun.failed;
        }
        Self {
            settings,
            step: Step::Idle,
            plan,
            phase,
            repository,
            gates,
            session: None,
            last_attempt: past.last_attempt,
            usage,
            pending_end: None,
            is_held: false,
            model: None,
            now: Now::default(),
            told_doing: "",
            out: Outbox::default(),
        }
    }

    /// Takes what happened, and returns what to do, in this order.
    pub fn handle(&mut self, now: Now, input: Input) -> Vec<Effect> {
        self.pass_time(now);
        match input {
            Input::Begin if self.step == Step::Idle => self.begin_phase(),
            Input::Heard(attempt, heard) => self.hear(attempt, heard),
            Input::Streaming(attempt) => {
                let session = self.session.as_mut();
                if let Some(session) = session.filter(|session| session.attempt == attempt) {
                    session.stir(now.time);
                }
            }
            Input::NotStarted(attempt, why) => self.session_not_started(attempt, &why),
            Input::SessionEnded(attempt, how) => self.session_ended(attempt, &how),
            Input::Stash(stash) => self.stash_listed(stash),
            Input::Git(answer) => self.git_answered(answer),
            Input::GateEnded(end) => {
                let phase = self.plan.current().filter(|_| self.step == Step::Gating);
                if phase.is_some_and(|phase| self.gates.end(phase, end, &mut self.out)) {
                    self.run_next_gate();
                }
            }
            Input::User(asked) => self.take_request(asked),
            Input::Begin | Input::Wakeup => {}
        }
        self.check_clock();
        let doing = self.step.doing(self.session.as_ref(), self.is_held);
        if std::mem::replace(&mut self.told_doing, doing) != doing {
            self.out.say(RunEvent::Moved);
        }
        self.out.take()
    }

    /// When the machine wants to be woken, by the clock since the start. The end of a limit is on the wall clock,
    /// which is checked from time to time.
    pub fn next_wakeup(&self, now: Now) -> Option<Time> {
        let step = match &self.step {
            Step::Resting { until, .. } => Some(*until),
            Step::InSession => {
                self.session.as_ref().and_then(|session| session.next_wakeup(&self.settings))
            }
            Step::Limited { until, .. } => {
                let rest = until.since(now.stamp);
                Some(now.time + rest.clamp(Duration::from_millis(50), Duration::from_secs(30)))
            }
            _ => None,
        };
        // Where time is limited, it is recorded also while nothing happens.
        let time_left = self.usage.time_left(self.plan.current());
        let time_left = time_left.filter(|_| self.step.counts_time(self.session.as_ref()));
        let time_left = time_left.map(|left| now.time + left.min(self.usage.record_due_in()));
        step.into_iter().chain(time_left).min()
    }

    /// Whether the run is over.
    pub fn is_over(&self) -> bool {
        self.step == Step::Over
    }

    /// The plan.
    pub const fn plan(&self) -> &Plan {
        &self.plan.plan
    }

    /// The state, for people.
    pub fn view(&self) -> View {
        let session = self.session.as_ref();
        let meter = session.map(|session| &session.meter);
        let settings = &self.settings;
        let hard = settings.context_threshold;
        let looks = settings.max_restarts > 0 && hard < 100.0;
        let gates = self.plan.current().map_or(0, |phase| phase.gates.len());
        View {
            ends: self.plan.ends.clone(),
            current: self.plan.index,
            gates: self.gates.states(gates),
            doing: self.step.doing(session, self.is_held),
            can_restart: match session {
                Some(session) => session.can_restart(),
                None => self.step.next_session().is_some(),
            },
            paused: self.is_held,
            attempt: self.last_attempt,
            kind: session.and(self.phase.kind),
            model: self.model.clone(),
            context: meter.and_then(|meter| meter.context),
            percent: meter.and_then(|meter| meter.percent()),
            soft: looks.then(|| settings.soft_threshold.min(hard)),
            hard: looks.then_some(hard),
            tool_calls: meter.map_or(0, |meter| meter.tool_calls),
            tool: session.and_then(Session::tool),
            spent: self.usage.spent_with(session.map(|session| session.spent).unwrap_or_default()),
            restarts: self.phase.restarts,
            restarts_max: settings.max_restarts,
            restarts_in_all: self.usage.restarts,
            remediations: self.phase.remediations,
            remediations_max: settings.max_remediations,
            worked: self.usage.run_worked,
            counts: self.step.counts_time(self.session.as_ref()),
            stamp: self.now.stamp,
            wait: self.step.wait(self.now, &self.phase.why),
        }
    }

    /// The state, as that of a service.
    pub fn state(&self) -> State {
        let session = self.session.as_ref();
        match &self.step {
            _ if self.pending_end == Some(PendingEnd::Stop) => State::Stopping,
            Step::Idle | Step::Basing | Step::Tidying => State::Starting,
            _ if session.is_some_and(Session::is_opening) => State::Starting,
            _ if session.is_some_and(Session::is_paused) => State::Waiting,
            Step::Held(_) | Step::Limited { .. } => State::Waiting,
            Step::Resting { .. } => State::Restarting,
            Step::Over => State::Finished,
            _ => State::Running,
        }
    }

    fn pass_time(&mut self, now: Now) {
        if self.step.counts_time(self.session.as_ref()) {
            self.usage.add_time(now.time.since(self.now.time));
        }
        if self.usage.record_due_in().is_zero() {
            self.usage.record_time(&mut self.out);
        }
        self.now = now;
    }

    fn check_clock(&mut self) {
        match &self.step {
            Step::Resting { kind, until } if *until <= self.now.time => self.open(*kind),
            Step::Limited { kind, until } if *until <= self.now.stamp => self.open(*kind),
            _ => {}
        }
        if let Some((session, env)) = self.session_env() {
            session.check_clock(env);
        }
        let Some(why) = self.usage.out_of_time(self.plan.current()) else { return };
        match &mut self.session {
            Some(session) if session.has_turn() => session.end(why, &mut self.out),
            // A gate has no more time than all else.
            _ if self.step == Step::Gating => {
                self.out.push(Effect::EndGate);
                self.end_for(why);
            }
            _ => {}
        }
    }

    /// Ends what has no session, for a limit that is reached.
    fn end_for(&mut self, why: EndReason) {
        match why.cause {
            Cause::TimedOut => self.end_phase(PhaseEnd::Failed, &why.detail),
            _ => self.finish(Finish::Stopped { why: why.detail }),
        }
    }

    fn finish(&mut self, finish: Finish) {
        self.step = Step::Over;
        self.usage.record_time(&mut self.out);
        self.out.record(Record::RunEnded { finish: finish.clone() });
        self.out.push(Effect::Finish(finish));
    }
    fn refuse(&mut self, why: String, hint: &str) {
        self.finish(Finish::Refused { why, hint: hint.to_owned() });
    }
}

/// The effects of one input, in order.
#[derive(Clone, Debug, Default)]
struct Outbox {
    effects: Vec<Effect>,
}

impl Outbox {
    fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn record(&mut self, record: Record) {
        self.push(Effect::Record(record));
    }

    fn say(&mut self, say: RunEvent) {
        self.push(Effect::Event(say));
    }

    fn note(&mut self, text: impl Into<String>) {
        self.say(RunEvent::Note(text.into(), false));
    }

    fn warn(&mut self, text: impl Into<String>) {
        self.say(RunEvent::Note(text.into(), true));
    }

    fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }
}

/// The state of a run, for people. It has no names of phases and gates: those never change, and are in the plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// How each phase ended, in the order of the plan.
    pub ends: Vec<Option<PhaseEnd>>,
    /// The phase that is worked on.
    pub current: usize,
    /// Its gates.
    pub gates: Vec<GateState>,
    /// What is done now, in a word or a few.
    pub doing: &'static str,
    /// Whether a request for another session is granted.
    pub can_restart: bool,
    /// Whether a user wants nothing new to begin.
    pub paused: bool,
    /// The session.
    pub attempt: Attempt,
    /// What kind of session it is; none before the first.
    pub kind: Option<Kind>,
    /// The model, as far as the agent said.
    pub model: Option<String>,
    /// How full its context is.
    pub context: Option<ContextUse>,
    /// The same in percent.
    pub percent: Option<f64>,
    /// Percent at which the agent is asked to come to an end; none where it is not asked.
    pub soft: Option<f64>,
    /// Percent at which its session ends; none where that does not count.
    pub hard: Option<f64>,
    /// Uses of tools in this session.
    pub tool_calls: u32,
    /// The tool that is at work, and on what.
    pub tool: Option<(String, String)>,
    /// What was used in all.
    pub spent: Spent,
    /// Restarts of this phase…
    pub restarts: u32,
    /// …of so many.
    pub restarts_max: u32,
    /// Restarts of all phases.
    pub restarts_in_all: u32,
    /// Remediations of this phase…
    pub remediations: u32,
    /// …of so many.
    pub remediations_max: u32,
    /// How long was worked, at this moment.
    pub worked: Duration,
    /// Whether that grows now.
    pub counts: bool,
    /// The time on the wall to which all of this belongs.
    pub stamp: Stamp,
    /// What is waited for.
    pub wait: Option<Wait>,
}

/// A wait before the next session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// When it ends.
    pub until: Stamp,
    /// Why there is one.
    pub why: String,
    /// Whether the use of the model is limited until then.
    pub is_limit: bool,
}

/// How a gate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateState {
    /// It was not run yet.
    Waiting,
    /// It runs, since then.
    Running(Stamp),
    /// It passed, and took so long.
    Passed(Duration),
    /// It failed, and took so long.
    Failed(Duration),
}
