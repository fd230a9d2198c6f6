//! Owns one session of the agent: the ladder from its start over a full context to its end. Driven by what the agent
//! says, by the clock and by requests of users. Never decides what follows after the session.
//!
//! ```text
//!   Opening ─▶ Working ──threshold, stall──▶ Interrupting ─▶ HandingOff ─▶ Closing
//!                │ ▲ pause                                                   ▲
//!                ▼ │ resume                                                  │
//!       Pausing ─▶ Paused          done, failed, limited, a request ─────────┘
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use super::{EndReason, Outbox};
use crate::agent::{AgentEvent, ContextUse, Instruction, Spent, TurnEnd, TurnFailure};
use crate::duration::show_duration;
use crate::limits::{
    AGENT_READY_WAIT, AGENT_TOOLS_MAX, HANDOFF_CHARS_MAX, INTERRUPT_WAIT, REFUSALS_MAX,
    REFUSED_WAIT, RETRIES_MAX, RETRY_PATIENCE,
};
use crate::run::checkpoint::cut;
use crate::run::context_meter::{Level, Meter};
use crate::run::final_message::FinalMessage;
use crate::run::{Attempt, Cause, Effect, Now, Record, RunEvent, Settings, prompts};
use crate::time::{Stamp, Time};

/// A session of an agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    pub(super) attempt: Attempt,
    step: SessionStep,
    pub(super) meter: Meter,
    pub(super) spent: Spent,
    /// The agent was asked to come to an end.
    is_steered: bool,
    /// The agent reads nothing before its turn has ended.
    is_deaf: bool,
    heard_at: Time,
    retries: u32,
    /// Failures of the login without a call that succeeded, in this session and those before it.
    pub(super) refusals: u32,
    /// What failed when the agent tried again last.
    retried_for: Option<TurnFailure>,
    /// Since when the agent only tries again.
    retrying: Option<Time>,
    /// Tools that are at work, newest last.
    tools: VecDeque<RunningTool>,
}

#[derive(Clone, Debug, Default, PartialEq)]
enum SessionStep {
    /// The process starts.
    Opening {
        prompt: String,
        until: Time,
    },
    #[default]
    Working,
    /// The turn was interrupted for a pause.
    Pausing,
    Paused,
    /// The turn was interrupted so that the session can end.
    Interrupting {
        why: EndReason,
        until: Time,
    },
    /// The agent writes its handoff.
    HandingOff {
        why: EndReason,
        until: Time,
    },
    /// The process ends.
    Closing {
        why: EndReason,
        handoff: Option<String>,
    },
}

#[derive(Clone, Debug)]
struct RunningTool {
    id: String,
    name: String,
    detail: String,
}

/// The rest of the machine, as far as a session needs it.
pub(super) struct SessionEnv<'a> {
    pub(super) now: Now,
    pub(super) settings: &'a Settings,
    /// Whether gates will judge what the agent calls done.
    pub(super) has_gates: bool,
    /// Whether a user wants nothing new to begin.
    pub(super) is_held: bool,
    pub(super) out: &'a mut Outbox,
}

impl Session {
    /// Starts a session.
    pub(super) fn open(
        attempt: Attempt,
        prompt: String,
        now: Time,
        settings: &Settings,
        out: &mut Outbox,
    ) -> Self {
        out.push(Effect::Open { attempt, prompt: prompt.clone() });
        Self {
            attempt,
            step: SessionStep::Opening { prompt, until: now + AGENT_READY_WAIT },
            meter: Meter::new(settings.context_window),
            heard_at: now,
            ..Self::default()
        }
    }

    pub(super) fn is_working(&self) -> bool {
        self.step == SessionStep::Working
    }

    pub(super) fn is_paused(&self) -> bool {
        self.step == SessionStep::Paused
    }

    pub(super) const fn is_opening(&self) -> bool {
        matches!(self.step, SessionStep::Opening { .. })
    }

    /// Whether the agent may work, so that a time limit ends the session.
    pub(super) const fn has_turn(&self) -> bool {
        use SessionStep::{Opening, Pausing, Working};
        matches!(self.step, Opening { .. } | Working | Pausing)
    }

    /// Whether a request for another session is granted.
    pub(super) const fn can_restart(&self) -> bool {
        use SessionStep::{Paused, Pausing, Working};
        matches!(self.step, Working | Pausing | Paused)
    }

    pub(super) fn doing(&self, is_held: bool) -> &'static str {
        match self.step {
            SessionStep::Paused => "paused",
            SessionStep::Pausing => "pausing",
            // What has begun is brought to its end.
            _ if is_held => "pausing",
            SessionStep::Opening { .. } => "starting the agent",
            SessionStep::Working => "working",
            SessionStep::Interrupting { .. } => "interrupting",
            SessionStep::HandingOff { .. } => "handing off",
            SessionStep::Closing { .. } => "ending the session",
        }
    }

    /// The tool that was started last of those at work, and on what.
    pub(super) fn tool(&self) -> Option<(String, String)> {
        self.tools.back().map(|tool| (tool.name.clone(), tool.detail.clone()))
    }

    /// The model speaks: the session is neither silent nor without an answer.
    pub(super) const fn stir(&mut self, now: Time) {
        self.heard_at = now;
        self.retrying = None;
    }

    /// Whether this tells that the model has answered a call.
    pub(super) fn is_answer(&self, heard: &AgentEvent) -> bool {
        match heard {
            AgentEvent::ToolBegan { .. } => true,
            AgentEvent::Spent(spent) => spent.tokens() > self.spent.tokens(),
            _ => false,
        }
    }

    /// Takes what was heard of the agent.
    pub(super) fn hear(&mut self, heard: AgentEvent, env: SessionEnv<'_>) {
        self.heard_at = env.now.time;
        if !matches!(heard, AgentEvent::Retrying { .. } | AgentEvent::Strange(_)) {
            self.retrying = None;
        }
        if self.is_answer(&heard) {
            self.refusals = 0;
        }
        match heard {
            AgentEvent::Ready { session, model } => self.ready(session, model, env),
            AgentEvent::Deaf => self.is_deaf = true,
            AgentEvent::Context(context) => self.sample(context, env),
            AgentEvent::Spent(spent) => {
                self.spent = spent;
                env.out.record(Record::Spent { attempt: self.attempt, spent });
            }
            // The phase takes it.
            AgentEvent::Text(_) => {}
            AgentEvent::ToolBegan { id, name, detail } => {
                if self.tools.len() == AGENT_TOOLS_MAX {
                    self.tools.pop_front();
                }
                let (its_name, its_detail) = (name.clone(), detail.clone());
                self.tools.push_back(RunningTool { id, name: its_name, detail: its_detail });
                self.meter.tool_calls = self.meter.tool_calls.saturating_add(1);
                self.retries = 0;
                env.out.say(RunEvent::Tool { name, detail });
                self.climb(env);
            }
            AgentEvent::ToolEnded { id, .. } => {
                self.tools.retain(|tool| tool.id != id);
                env.out.say(RunEvent::Moved);
            }
            AgentEvent::Compacted => {
                env.out.warn("the agent has compacted its context by itself");
                if self.is_working() && env.settings.max_restarts > 0 {
                    let detail = "the agent had compacted its context by itself";
                    self.interrupt(EndReason::new(Cause::CompactedRestart, detail), env);
                }
            }
            AgentEvent::Retrying { attempt, why, at, failure } => {
                self.retry(attempt, why, (at, failure), env);
            }
            AgentEvent::TurnEnded(end) => self.turn_ended(end, env),
            AgentEvent::Strange(text) => {
                env.out.note(format!("the agent says something strange: {text}"));
            }
        }
    }

    fn ready(&mut self, session: Option<String>, model: Option<String>, env: SessionEnv<'_>) {
        let attempt = self.attempt;
        env.out.record(Record::SessionNamed { attempt, session, model: model.clone() });
        env.out.say(RunEvent::AgentReady { model });
        if let SessionStep::Opening { prompt, .. } = &self.step {
            let prompt = prompt.clone();
            self.tell(Instruction::Prompt(prompt), env.out);
            self.step = SessionStep::Working;
            if env.is_held && !self.is_deaf {
                self.pause(env);
            }
        }
    }

    fn sample(&mut self, context: ContextUse, env: SessionEnv<'_>) {
        self.meter.take(context);
        let attempt = self.attempt;
        let context = self.meter.context.unwrap_or(context);
        let (used, window, exact) = (context.used, context.window, context.exact);
        env.out.record(Record::Sampled { attempt, used, window, exact });
        env.out.say(RunEvent::Context(context, self.meter.percent()));
        self.climb(env);
    }

    /// Looks at the meter, and takes the next step of the ladder.
    fn climb(&mut self, env: SessionEnv<'_>) {
        // Where nothing is restarted, nothing is ended for it.
        if !self.is_working() || env.settings.max_restarts == 0 {
            return;
        }
        let percent = self.meter.percent();
        match self.meter.level(env.settings) {
            Level::Low => {}
            Level::Soft if self.is_steered || self.is_deaf => {}
            Level::Soft => {
                self.is_steered = true;
                let text = percent.map_or_else(String::new, |percent| format!(" ({percent:.0} %)"));
                let note = "the agent is asked to come to an end";
                env.out.note(format!("the context fills up{text}: {note}"));
                self.tell(Instruction::Steer(prompts::steer(percent)), env.out);
            }
            Level::Hard => {
                let calls = self.meter.tool_calls;
                let detail = match percent.filter(|p| *p >= env.settings.context_threshold) {
                    Some(percent) => format!("its context was full ({percent:.0} %)"),
                    None if calls >= env.settings.tool_call_threshold => {
                        format!("it had used tools {calls} times")
                    }
                    None => "its context was about to be compacted".to_owned(),
                };
                self.interrupt(EndReason::new(Cause::ContextLimitRestart, detail), env);
            }
        }
    }

    fn retry(
        &mut self,
        number: u32,
        why: String,
        (at, failure): (Option<Stamp>, TurnFailure),
        env: SessionEnv<'_>,
    ) {
        self.retries += 1;
        self.retrying.get_or_insert(env.now.time);
        let retries = self.retries.max(number);
        env.out.note(format!("the agent tries again ({retries}): {why}"));
        let until = at.filter(|at| at.since(env.now.stamp) > RETRY_PATIENCE);
        self.retried_for = Some(failure);
        if failure == TurnFailure::Unauthorized {
            self.refusals = self.refusals.saturating_add(1);
        }
        if !self.is_working() {
            return;
        }
        if failure == TurnFailure::Unauthorized && self.refusals >= REFUSALS_MAX {
            self.close(EndReason::new(Cause::Stopped, why), None, env.out);
        } else if until.is_some() || retries > RETRIES_MAX {
            self.close(self.no_answer(why, until), None, env.out);
        }
    }

    /// The end of a session whose agent tries again and again.
    fn no_answer(&self, detail: impl Into<String>, until: Option<Stamp>) -> EndReason {
        let is_unreachable = self.retried_for == Some(TurnFailure::Unreachable);
        EndReason { until, is_unreachable, ..EndReason::new(Cause::Limited, detail) }
    }

    /// Why the turn failed. The login may fail once: a token that has just been renewed does so.
    fn failed(&mut self, failure: TurnFailure, detail: String, now: Stamp) -> EndReason {
        if failure != TurnFailure::Unauthorized {
            return reason_of(failure, detail);
        }
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals >= REFUSALS_MAX {
            return EndReason::new(Cause::Stopped, detail);
        }
        let until = Some(now.later_by(REFUSED_WAIT));
        EndReason { until, ..EndReason::new(Cause::Limited, detail) }
    }

    fn turn_ended(&mut self, end: TurnEnd, env: SessionEnv<'_>) {
        match (self.step.clone(), end) {
            // While it was to pause, it was faster: what comes next waits.
            (SessionStep::Working | SessionStep::Pausing, TurnEnd::Done(text)) => {
                self.done(&text, env);
            }
            (SessionStep::Working, TurnEnd::Interrupted) => {
                let detail = "the turn was interrupted from outside of afresh";
                self.close(EndReason::new(Cause::Failed, detail), None, env.out);
            }
            (SessionStep::Working | SessionStep::Pausing, TurnEnd::Failed { failure, why }) => {
                let why = self.failed(failure, why, env.now.stamp);
                self.close(why, None, env.out);
            }
            (SessionStep::Pausing, TurnEnd::Interrupted) => match env.is_held {
                true => {
                    env.out.note("paused");
                    self.step = SessionStep::Paused;
                }
                // It was resumed meanwhile.
                false => self.go_on(prompts::GO_ON.to_owned(), env),
            },
            // It was faster than the interrupt: its last message counts.
            (SessionStep::Interrupting { why, .. }, TurnEnd::Done(text))
                if wants_handoff(why.cause) =>
            {
                self.done(&text, env);
            }
            (SessionStep::Interrupting { why, .. }, TurnEnd::Interrupted)
                if wants_handoff(why.cause) =>
            {
                self.ask_handoff(why, env);
            }
            (SessionStep::Interrupting { why, .. }, _) => self.close(why, None, env.out),
            (SessionStep::HandingOff { why, .. }, TurnEnd::Done(text)) => {
                self.close(why, handoff_of(&text), env.out);
            }
            (SessionStep::HandingOff { why, .. }, _) => {
                let text =
                    "the agent wrote no handoff: the checkpoint is made of git and its words";
                env.out.warn(text);
                self.close(why, None, env.out);
            }
            _ => {}
        }
    }

    /// The turn is over by itself. Only an agent that was asked to stop can have left something.
    fn done(&mut self, text: &str, env: SessionEnv<'_>) {
        let word = if self.is_steered { FinalMessage::of(text) } else { FinalMessage::Done };
        let (handoff, detail) = match word {
            FinalMessage::Handoff(handoff) => (handoff, "it stopped before its context was full"),
            // No gate would notice.
            FinalMessage::None if !env.has_gates => {
                (text, "it was asked to stop, and did not say that the task is complete")
            }
            FinalMessage::None | FinalMessage::Done => {
                let why = EndReason::new(Cause::Done, "the agent said that it is done");
                return self.close(why, None, env.out);
            }
        };
        let why = EndReason::new(Cause::ContextLimitRestart, detail);
        self.close(why, handoff_of(handoff), env.out);
    }

    /// Interrupts the turn, so that the session can end.
    pub(super) fn interrupt(&mut self, why: EndReason, env: SessionEnv<'_>) {
        env.out.note(format!("the session ends: {}", why.detail));
        // A deaf agent would not react.
        if self.is_deaf {
            return self.close(why, None, env.out);
        }
        self.tell(Instruction::Interrupt, env.out);
        self.step = SessionStep::Interrupting { why, until: env.now.time + INTERRUPT_WAIT };
    }

    /// No turn runs, and the agent is asked for its handoff.
    fn ask_handoff(&mut self, why: EndReason, env: SessionEnv<'_>) {
        self.tell(Instruction::Prompt(prompts::ASK_HANDOFF.to_owned()), env.out);
        let until = env.now.time + env.settings.handoff_max;
        self.step = SessionStep::HandingOff { why, until };
    }

    /// Ends the process, where that has not begun.
    pub(super) fn end(&mut self, why: EndReason, out: &mut Outbox) {
        if !matches!(self.step, SessionStep::Closing { .. }) {
            self.close(why, None, out);
        }
    }

    fn close(&mut self, why: EndReason, handoff: Option<String>, out: &mut Outbox) {
        out.push(Effect::End(self.attempt));
        self.step = SessionStep::Closing { why, handoff };
    }

    fn tell(&self, told: Instruction, out: &mut Outbox) {
        out.push(Effect::Tell(self.attempt, told));
    }

    /// Gives a paused session another turn.
    pub(super) fn go_on(&mut self, prompt: String, env: SessionEnv<'_>) {
        self.tell(Instruction::Prompt(prompt), env.out);
        self.heard_at = env.now.time;
        self.step = SessionStep::Working;
    }

    /// Interrupts the turn for a pause. A deaf agent works on until its session has ended.
    pub(super) fn pause(&mut self, env: SessionEnv<'_>) {
        match self.step {
            SessionStep::Working if self.is_deaf => env.out.note(
                "this agent hears nothing while it works: the run pauses when its session has ended",
            ),
            SessionStep::Working => {
                self.tell(Instruction::Interrupt, env.out);
                self.step = SessionStep::Pausing;
            }
            _ => {}
        }
    }

    /// Tells the agent something, which also ends a pause. Returns whether that is possible now.
    pub(super) fn steer(&mut self, text: String, env: SessionEnv<'_>) -> bool {
        match self.step {
            SessionStep::Working if self.is_deaf => {
                env.out.note("that is not possible: this agent hears nothing while it works");
            }
            SessionStep::Working => {
                env.out.note(format!("the agent is told: {text}"));
                self.tell(Instruction::Steer(text), env.out);
            }
            SessionStep::Paused => {
                env.out.note(format!("the agent is told: {text}"));
                self.go_on(text, env);
            }
            _ => return false,
        }
        true
    }

    /// Ends the session with a handoff, so that another one can follow.
    pub(super) fn restart(&mut self, env: SessionEnv<'_>) {
        let why = EndReason::new(Cause::RestartAsked, "a user requested a new session");
        match self.is_paused() {
            // There is no turn to interrupt.
            true => self.ask_handoff(why, env),
            false => self.interrupt(why, env),
        }
    }

    /// When the session has to look at the clock.
    pub(super) fn next_wakeup(&self, settings: &Settings) -> Option<Time> {
        match &self.step {
            SessionStep::Opening { until, .. }
            | SessionStep::Interrupting { until, .. }
            | SessionStep::HandingOff { until, .. } => Some(*until),
            SessionStep::Working => {
                let silent = self.heard_at + settings.silence_max;
                let retrying = self.retrying.map(|since| since + retry_patience(settings));
                Some(retrying.map_or(silent, |retrying| retrying.min(silent)))
            }
            _ => None,
        }
    }

    /// Takes the steps that are due by the clock.
    pub(super) fn check_clock(&mut self, env: SessionEnv<'_>) {
        let (now, settings) = (env.now.time, env.settings);
        match &self.step {
            SessionStep::Opening { until, .. } if *until <= now => {
                let why = EndReason::new(Cause::Crashed, "the agent was not ready in time");
                self.close(why, None, env.out);
            }
            SessionStep::Interrupting { why, until } | SessionStep::HandingOff { why, until }
                if *until <= now =>
            {
                let why = why.clone();
                env.out.warn("the agent did not answer in time: its session is ended as it is");
                self.close(why, None, env.out);
            }
            SessionStep::Working
                if self.retrying.is_some_and(|at| now.since(at) >= retry_patience(settings)) =>
            {
                let why = self.no_answer("the agent gets no answer of its model", None);
                self.close(why, None, env.out);
            }
            SessionStep::Working if now.since(self.heard_at) >= settings.silence_max => {
                let silence = show_duration(settings.silence_max);
                let detail = format!("nothing was heard of the agent for {silence}");
                self.interrupt(EndReason::new(Cause::Stalled, detail), env);
            }
            _ => {}
        }
    }

    /// Why the session ended, now that its process is gone, and its handoff.
    pub(super) fn into_end(self, exit: &str) -> (EndReason, Option<String>) {
        match self.step {
            SessionStep::Closing { why, handoff } => (why, handoff),
            SessionStep::Interrupting { why, .. } | SessionStep::HandingOff { why, .. } => {
                (why, None)
            }
            _ => {
                let detail = format!("the agent ended by itself: {exit}");
                (EndReason::new(Cause::Crashed, detail), None)
            }
        }
    }
}

/// How long an agent may do nothing but try again.
fn retry_patience(settings: &Settings) -> Duration {
    RETRY_PATIENCE.min(settings.silence_max / 2)
}

fn handoff_of(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| cut(text, HANDOFF_CHARS_MAX))
}

fn reason_of(failure: TurnFailure, detail: String) -> EndReason {
    let (cause, until) = match failure {
        TurnFailure::Overflow => (Cause::Overflow, None),
        TurnFailure::Limited { until } => (Cause::Limited, until),
        TurnFailure::Overloaded | TurnFailure::Unreachable => (Cause::Limited, None),
        TurnFailure::Budget => (Cause::OutOfBudget, None),
        // Another session would fail the same way: a person has to log in.
        TurnFailure::Unauthorized => (Cause::Stopped, None),
        TurnFailure::Other => (Cause::Failed, None),
    };
    let is_unreachable = failure == TurnFailure::Unreachable;
    EndReason { cause, detail, until, is_unreachable }
}

/// Whether the agent is asked for a handoff: it can answer, and there is time.
const fn wants_handoff(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::ContextLimitRestart | Cause::CompactedRestart | Cause::RestartAsked | Cause::Stalled
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Play {
        session: Session,
        settings: Settings,
        now: Now,
        out: Outbox,
        is_held: bool,
    }

    impl Play {
        fn new() -> Self {
            let (settings, now, mut out) = (Settings::default(), Now::default(), Outbox::default());
            let session =
                Session::open(Attempt(1), "do it".to_owned(), now.time, &settings, &mut out);
            Self { session, settings, now, out, is_held: false }
        }

        fn with(&mut self, call: impl FnOnce(&mut Session, SessionEnv<'_>)) -> Vec<Effect> {
            let env = SessionEnv {
                now: self.now,
                settings: &self.settings,
                has_gates: true,
                is_held: self.is_held,
                out: &mut self.out,
            };
            call(&mut self.session, env);
            self.out.take()
        }

        fn hear(&mut self, heard: AgentEvent) -> Vec<Effect> {
            self.with(|session, env| session.hear(heard, env))
        }

        fn working() -> Self {
            let mut play = Self::new();
            play.out.take();
            let effects = play.hear(AgentEvent::Ready { session: None, model: None });
            let prompt = Effect::Tell(Attempt(1), Instruction::Prompt("do it".to_owned()));
            assert_eq!(effects.last(), Some(&prompt));
            play
        }
    }

    #[test]
    fn a_full_context_is_handed_off_before_the_process_ends() {
        let mut play = Play::working();
        let full = ContextUse { used: 90, window: Some(100), compacts_at: None, exact: true };
        let effects = play.hear(AgentEvent::Context(full));
        assert_eq!(effects.last(), Some(&Effect::Tell(Attempt(1), Instruction::Interrupt)));
        play.hear(AgentEvent::TurnEnded(TurnEnd::Interrupted));
        assert_eq!(play.session.doing(false), "handing off");
        let effects = play.hear(AgentEvent::TurnEnded(TurnEnd::Done(" half ".to_owned())));
        assert_eq!(effects, [Effect::End(Attempt(1))]);
        let (why, handoff) = play.session.into_end("exit code 0");
        assert_eq!((why.cause, handoff.as_deref()), (Cause::ContextLimitRestart, Some("half")));
    }

    #[test]
    fn an_end_is_asked_for_once_and_keeps_its_first_reason() {
        let mut play = Play::working();
        for cause in [Cause::Skipped, Cause::Stopped] {
            play.with(|session, env| session.end(EndReason::new(cause, ""), env.out));
        }
        assert_eq!(play.session.into_end("").0.cause, Cause::Skipped);
    }

    #[test]
    fn a_paused_session_has_no_deadline_and_goes_on_with_what_it_is_told() {
        let mut play = Play::working();
        play.is_held = true;
        play.with(Session::pause);
        play.hear(AgentEvent::TurnEnded(TurnEnd::Interrupted));
        assert!(play.session.is_paused());
        assert_eq!(play.session.next_wakeup(&play.settings), None);
        play.with(|session, env| assert!(session.steer("more".to_owned(), env)));
        assert!(play.session.is_working());
    }

    #[test]
    fn one_that_ends_by_itself_has_crashed() {
        let play = Play::working();
        let (why, handoff) = play.session.into_end("exit code 1");
        assert_eq!((why.cause, handoff), (Cause::Crashed, None));
        assert!(why.detail.contains("exit code 1"));
    }
}
