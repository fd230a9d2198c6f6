//! Owns a run of a plan: the step that it is at, and the parts that the step works on. Driven by
//! [`Machine::handle`]. Never touches a process, a file or a clock.
//!
//! This file has the state, the way in and the clock; `phase_flow.rs` goes from the base of a phase over its commits
//! and gates to its end, `session_flow.rs` opens and ends sessions and grants requests of users. Each part owns its
//! own state and knows no other one. The picture is in `mod.rs`.

mod gates;
mod outbox;
mod phase_flow;
mod phase_progress;
mod plan_progress;
mod repository;
mod requests;
mod session;
mod session_flow;
mod stash;
mod step;
#[cfg(test)]
mod tests;
mod usage;
mod view;

use std::time::Duration;

use self::gates::Gates;
use self::outbox::Outbox;
use self::phase_progress::PhaseProgress;
pub(super) use self::phase_progress::keeps_handoff;
use self::plan_progress::PlanProgress;
use self::repository::Repository;
use self::requests::PendingRequests;
use self::session::Session;
use self::step::{EndReason, HeldWork, Step};
use self::usage::RunUsage;
pub use self::view::{GateState, View, Wait};
use super::plan::Plan;
use super::{
    Attempt, Cause, Effect, Finish, Input, Now, PhaseEnd, Record, ResumeState, RunEvent, Settings,
};
use crate::agent::Spent;
use crate::service::State;
use crate::time::Time;

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
    requests: PendingRequests,
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
            phase = PhaseProgress::again();
        }
        if let Some(begun) = past.phase.filter(|begun| Some(&begun.name) == name) {
            repository.resume_phase(&begun, begun.stashes.clone());
            usage.begin_phase(begun.spent, begun.worked);
            phase = PhaseProgress::resumed(&begun);
            gates = Gates::resumed(begun.failed);
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
            requests: PendingRequests::default(),
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
                if let Some(session) = session.filter(|session| session.attempt() == attempt) {
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
        let doing = self.step.doing(self.session.as_ref(), self.requests.is_held());
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
        self.plan.plan()
    }

    /// The state, for people.
    pub fn view(&self) -> View {
        let session = self.session.as_ref();
        let meter = session.map(Session::meter);
        let settings = &self.settings;
        let hard = settings.context_threshold;
        let looks = settings.max_restarts > 0 && hard < 100.0;
        let gates = self.plan.current().map_or(0, |phase| phase.gates.len());
        View {
            ends: self.plan.ends().to_vec(),
            current: self.plan.index(),
            gates: self.gates.states(gates),
            doing: self.step.doing(session, self.requests.is_held()),
            can_restart: match session {
                Some(session) => session.can_restart(),
                None => self.step.next_session().is_some(),
            },
            paused: self.requests.is_held(),
            attempt: self.last_attempt,
            kind: session.and(self.phase.kind()),
            model: self.model.clone(),
            context: meter.and_then(|meter| meter.context()),
            percent: meter.and_then(|meter| meter.percent()),
            soft: looks.then(|| settings.soft_threshold.min(hard)),
            hard: looks.then_some(hard),
            tool_calls: meter.map_or(0, |meter| meter.tool_calls()),
            tool: session.and_then(Session::tool),
            spent: self.usage.spent_with(session.map_or_else(Spent::default, Session::spent)),
            restarts: self.phase.restarts(),
            restarts_max: settings.max_restarts,
            restarts_in_all: self.usage.restarts(),
            remediations: self.phase.remediations(),
            remediations_max: settings.max_remediations,
            worked: self.usage.worked(),
            counts: self.step.counts_time(self.session.as_ref()),
            stamp: self.now.stamp,
            wait: self.step.wait(self.now, || self.phase.why()),
        }
    }

    /// The state, as that of a service.
    pub fn state(&self) -> State {
        let session = self.session.as_ref();
        match &self.step {
            _ if self.requests.is_stopping() => State::Stopping,
            Step::Idle | Step::Basing | Step::Tidying { .. } => State::Starting,
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
}
