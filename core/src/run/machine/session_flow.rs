//! Opens sessions, takes what is heard of them and how they end, and grants requests of users. Driven by the agent
//! and by users. Never looks at git or at gates.

use super::model_limit_wait::ModelWaits;
use super::session::{Session, SessionEnv};
use super::{EndReason, HeldWork, Machine, Step};
use crate::agent::{AgentEvent, Spent};
use crate::run::checkpoint::Checkpoint;
use crate::run::{
    Attempt, Cause, Effect, Finish, Kind, PhaseEnd, Record, RunEvent, UserRequest, prompts,
};

const NOT_POSSIBLE: &str = "that is not possible now: no agent is at work";

/// The note that a request to skip came when its phase had ended.
pub(super) const TOO_LATE: &str = "nothing is skipped: that phase was over before";

const ASKED: &str = "a user requested it";

/// A request that ends the phase or the run, and waits for the next step where that is possible. A stop outweighs a skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PendingEnd {
    Skip,
    Stop,
}

impl Machine {
    /// The session, and what it needs of the rest.
    pub(super) fn session_env(&mut self) -> Option<(&mut Session, SessionEnv<'_>)> {
        let env = SessionEnv {
            now: self.now,
            settings: &self.settings,
            has_gates: self.plan.current().is_some_and(|phase| !phase.gates.is_empty()),
            is_held: self.is_held,
            out: &mut self.out,
        };
        Some((self.session.as_mut()?, env))
    }

    /// Opens a session, unless a request or a limit stands against it.
    pub(super) fn open(&mut self, kind: Kind) {
        // A request can have come while git was at work.
        if self.grant() {
            return;
        }
        if self.is_held {
            self.step = Step::Held(HeldWork::Session(kind));
            return;
        }
        let phase = self.plan.phase();
        let limit = self.usage.out_of_time(Some(phase));
        if let Some(why) = limit.or_else(|| self.usage.out_of_budget(phase, Spent::default())) {
            return self.end_for(why);
        }
        let task = prompts::task(&self.plan.plan, phase);
        let prompt = match kind {
            Kind::First => task,
            _ => format!("{}\n\n---\n\n{task}", self.checkpoint(kind).text().trim_end()),
        };
        let (attempt, phase) = (Attempt(self.last_attempt.0 + 1), phase.name.clone());
        self.last_attempt = attempt;
        self.phase.kind = Some(kind);
        self.step = Step::InSession;
        self.out.record(Record::AttemptBegan { attempt, phase, kind });
        self.out.say(RunEvent::AttemptBegins(attempt, kind));
        let (now, settings) = (self.now.time, &self.settings);
        let mut session = Session::open(attempt, prompt, now, settings, &mut self.out);
        session.refusals = self.phase.model_waits.refusals;
        self.session = Some(session);
    }

    fn checkpoint(&self, kind: Kind) -> Checkpoint {
        Checkpoint {
            phase: self.plan.phase().name.clone(),
            kind: Some(kind),
            restarts_max: self.settings.max_restarts,
            why: self.phase.why.clone(),
            handoff: self.phase.handoff.clone(),
            progress: self.phase.texts.iter().cloned().collect(),
            changes: self.repository.changes.clone(),
            stashed: self.repository.stashed(),
            failed: self.gates.failed.clone(),
        }
    }

    pub(super) fn hear(&mut self, attempt: Attempt, heard: AgentEvent) {
        if self.session.as_ref().is_none_or(|session| session.attempt != attempt) {
            return;
        }
        let is_spent = matches!(heard, AgentEvent::Spent(_));
        let has_answered = self.session.as_ref().is_some_and(|session| session.is_answer(&heard));
        match &heard {
            AgentEvent::Text(text) => self.phase.add_text(attempt, text, &mut self.out),
            AgentEvent::Ready { model: Some(model), .. } => self.model = Some(model.clone()),
            _ => {}
        }
        // Waits are counted anew.
        if has_answered {
            self.phase.model_waits = ModelWaits::default();
        }
        let Some((session, env)) = self.session_env() else { return };
        session.hear(heard, env);
        if !is_spent {
            return;
        }
        let (running, is_working) = (session.spent, session.is_working());
        self.out.say(RunEvent::Moved);
        let reached = self.usage.out_of_budget(self.plan.phase(), running);
        if let Some(why) = reached.filter(|_| is_working)
            && let Some((session, env)) = self.session_env()
        {
            session.interrupt(why, env);
        }
    }

    pub(super) fn session_not_started(&mut self, attempt: Attempt, why: &str) {
        if self.session.take_if(|session| session.attempt == attempt).is_none() {
            return;
        }
        let detail = format!("the agent could not be started: {why}");
        let cause = Cause::Crashed;
        let record = Record::AttemptEnded { attempt, cause, handoff: None, detail: detail.clone() };
        self.out.record(record);
        self.finish(Finish::Stopped { why: detail });
    }

    pub(super) fn session_ended(&mut self, attempt: Attempt, exit: &str) {
        let Some(session) = self.session.take_if(|session| session.attempt == attempt) else {
            return;
        };
        self.step = Step::Idle;
        let (spent, refusals) = (session.spent, session.refusals);
        let (EndReason { cause, detail, until, is_unreachable }, handoff) = session.into_end(exit);
        self.phase.model_waits.refusals = refusals;
        self.phase.model_waits.is_unreachable = is_unreachable;
        self.usage.add_spent(spent);
        self.usage.warn_of_no_cost(self.plan.phase(), spent, &mut self.out);
        self.phase.end_session(cause, handoff.as_deref(), &detail);
        self.usage.record_time(&mut self.out);
        self.out.record(Record::AttemptEnded { attempt, cause, handoff, detail });
        self.commit_session(cause, until);
    }

    /// Takes a request: it is granted at once where that is possible, else at the next good step.
    pub(super) fn take_request(&mut self, asked: UserRequest) {
        match asked {
            _ if self.is_over() => {}
            UserRequest::Steer(text) => {
                let was_paused = self.session.as_ref().is_some_and(Session::is_paused);
                let is_told =
                    self.session_env().is_some_and(|(session, env)| session.steer(text, env));
                match is_told {
                    // Words to a paused agent mean that it goes on.
                    true if was_paused => self.is_held = false,
                    true => {}
                    false => self.out.note(NOT_POSSIBLE),
                }
            }
            UserRequest::Pause => {
                self.is_held = true;
                if let Some((session, env)) = self.session_env() {
                    session.pause(env);
                }
            }
            UserRequest::Resume => self.resume(),
            UserRequest::Restart => self.restart_now(),
            UserRequest::Skip(phase) if phase != self.plan.index => self.out.note(TOO_LATE),
            UserRequest::Skip(_) => self.request_end(PendingEnd::Skip),
            UserRequest::Stop => self.request_end(PendingEnd::Stop),
        }
    }

    fn resume(&mut self) {
        if !std::mem::take(&mut self.is_held) {
            self.out.note("that is not possible now: nothing is paused");
            return;
        }
        match &self.step {
            Step::Held(HeldWork::Session(kind)) => self.open(*kind),
            Step::Held(HeldWork::Gate) => self.run_next_gate(),
            // Else nothing was held up yet.
            _ => {
                if let Some((session, env)) = self.session_env()
                    && session.is_paused()
                {
                    session.go_on(prompts::GO_ON.to_owned(), env);
                }
            }
        }
    }

    /// A new session instead of the one that runs, or of a wait for one.
    fn restart_now(&mut self) {
        let can_restart = self.session.as_ref().is_some_and(Session::can_restart);
        let next = self.step.next_session();
        if !can_restart && next.is_none() {
            self.out.note(NOT_POSSIBLE);
            return;
        }
        self.is_held = false;
        match (next, self.session_env()) {
            (_, Some((session, env))) => session.restart(env),
            (Some(kind), None) => self.open(kind),
            (None, None) => {}
        }
    }

    fn request_end(&mut self, end: PendingEnd) {
        self.pending_end = self.pending_end.max(Some(end));
        let cause = match end {
            PendingEnd::Stop => Cause::Stopped,
            PendingEnd::Skip => Cause::Skipped,
        };
        match self.step {
            Step::InSession => {
                if let Some(session) = &mut self.session {
                    session.end(EndReason::new(cause, ASKED), &mut self.out);
                }
            }
            Step::Idle
            | Step::Basing
            | Step::Held(_)
            | Step::Resting { .. }
            | Step::Limited { .. } => drop(self.grant()),
            Step::Gating => {
                self.out.push(Effect::EndGate);
                self.grant();
            }
            // A commit is finished first.
            Step::Tidying
            | Step::Committing { .. }
            | Step::Looking { .. }
            | Step::Sealing
            | Step::Over => {}
        }
    }

    /// Grants the request to end that is pending. Returns whether there was one.
    pub(super) fn grant(&mut self) -> bool {
        match self.pending_end.take() {
            None => return false,
            Some(PendingEnd::Stop) => self.finish(Finish::Stopped { why: ASKED.to_owned() }),
            Some(PendingEnd::Skip) => self.end_phase(PhaseEnd::Skipped, ASKED),
        }
        true
    }
}
