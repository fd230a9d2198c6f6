//! What becomes of a session: the ladder from a full context to its end.

use super::super::checkpoint::{Checkpoint, cut};
use super::super::final_message::LastWord;
use super::super::meter::{Level, Meter};
use super::super::prompts;
use super::*;
use crate::agent::{Failure, Heard, Told, TurnEnd};
use crate::limits::{
    AGENT_READY_WAIT, AGENT_TOOLS_MAX, HANDOFF_CHARS_MAX, INTERRUPT_WAIT, PROGRESS_TEXT_CHARS_MAX,
    PROGRESS_TEXTS_MAX, RETRIES_MAX, RETRY_PATIENCE,
};

/// A session of an agent.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) attempt: Attempt,
    pub(super) meter: Meter,
    pub(super) spent: Spent,
    pub(super) steered: bool,
    /// It hears nothing before it has ended.
    pub(super) is_deaf: bool,
    pub(super) heard_at: Time,
    pub(super) retries: u32,
    /// Since when the agent only tries again.
    pub(super) retrying: Option<Time>,
    /// Tools that are at work, the newest last.
    pub(super) tools: VecDeque<Tool>,
}

/// A use of a tool.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) detail: String,
}

impl Machine {
    pub(super) fn open(&mut self, now: Now, kind: Kind) {
        // Somebody may have wanted something while git was at work.
        if self.grant() {
            return;
        }
        if self.hold {
            self.step = Step::Held(Next::Session(kind));
            return;
        }
        if self.ends_for_bounds() {
            return;
        }
        self.last_attempt = Attempt(self.last_attempt.0 + 1);
        let attempt = self.last_attempt;
        let phase = self.this_phase().name.clone();
        let task = prompts::task(&self.plan, self.this_phase());
        let prompt = match kind {
            Kind::First => task,
            _ => prompts::with_checkpoint(&self.checkpoint(kind).text(), &task),
        };
        self.phase.kind = Some(kind);
        self.session = Some(Session {
            attempt,
            meter: Meter::new(self.settings.context_window),
            spent: Spent::default(),
            steered: false,
            is_deaf: false,
            heard_at: now.time,
            retries: 0,
            retrying: None,
            tools: VecDeque::new(),
        });
        self.record(Record::AttemptBegan { attempt, phase, kind });
        self.say(Say::AttemptBegins(attempt, kind));
        self.effects.push(Effect::Open { attempt, prompt: prompt.clone() });
        self.step = Step::Opening { prompt, until: now.time + AGENT_READY_WAIT };
    }

    /// What the next session is told.
    fn checkpoint(&self, kind: Kind) -> Checkpoint {
        Checkpoint {
            phase: self.this_phase().name.clone(),
            kind: Some(kind),
            restarts_max: self.settings.max_restarts,
            why: self.phase.why.clone(),
            handoff: self.phase.handoff.clone(),
            progress: self.phase.progress.iter().cloned().collect(),
            looked: self.phase.looked.clone(),
            stashed: self.phase.stashes.names(),
            failed: self.phase.failed.clone(),
        }
    }

    pub(super) fn tell_agent(&mut self, told: Told) {
        if let Some(session) = &self.session {
            self.effects.push(Effect::Tell(session.attempt, told));
        }
    }

    pub(super) const fn heard_now(&mut self, now: Time) {
        if let Some(session) = &mut self.session {
            session.heard_at = now;
        }
    }

    /// Its model speaks: it is neither silent nor without an answer.
    pub(super) fn stirred(&mut self, now: Time, attempt: Attempt) {
        let session = self.session.as_mut().filter(|session| session.attempt == attempt);
        if let Some(session) = session {
            session.heard_at = now;
            session.retrying = None;
        }
    }

    pub(super) fn hear(&mut self, now: Now, heard: Heard) {
        self.heard_now(now.time);
        let Some(session) = &mut self.session else { return };
        let attempt = session.attempt;
        if !matches!(heard, Heard::Retrying { .. } | Heard::Strange(_)) {
            session.retrying = None;
        }
        match heard {
            Heard::Ready { session, model } => {
                self.record(Record::SessionNamed { attempt, session, model: model.clone() });
                self.model = model.clone().or(self.model.take());
                self.say(Say::AgentReady { model });
                if let Step::Opening { prompt, .. } = &self.step {
                    let prompt = prompt.clone();
                    self.tell_agent(Told::Prompt(prompt));
                    self.step = Step::Working;
                    if self.hold && !self.is_deaf() {
                        self.pause();
                    }
                }
            }
            Heard::Deaf => session.is_deaf = true,
            Heard::Context(context) => {
                session.meter.take(context);
                let percent = session.meter.percent();
                let context = session.meter.context().unwrap_or(context);
                let (used, window, exact) = (context.used, context.window, context.exact);
                self.record(Record::Sampled { attempt, used, window, exact });
                self.say(Say::Context(context, percent));
                self.climb(now);
            }
            Heard::Spent(spent) => {
                session.spent = spent;
                let Spent { input, cached, output, dollars, guessed } = spent;
                self.record(Record::Spent { attempt, input, cached, output, dollars, guessed });
                self.say(Say::Spent(self.spent.plus(spent)));
                if self.step == Step::Working
                    && let Some(detail) = self.out_of_budget()
                {
                    self.interrupt(now, Why::new(Cause::OutOfBudget, detail));
                }
            }
            Heard::Text(text) => self.progress(attempt, &text),
            Heard::ToolBegan { id, name, detail } => {
                if session.tools.len() == AGENT_TOOLS_MAX {
                    session.tools.pop_front();
                }
                let (its_name, its_detail) = (name.clone(), detail.clone());
                session.tools.push_back(Tool { id, name: its_name, detail: its_detail });
                session.meter.count_tool();
                session.retries = 0;
                self.phase.waits = 0;
                self.say(Say::Tool { name, detail });
                self.climb(now);
            }
            Heard::ToolEnded { id, .. } => {
                session.tools.retain(|tool| tool.id != id);
                self.say(Say::Moved);
            }
            Heard::Compacted => self.compacted(now),
            Heard::Retrying { attempt, why, at } => self.retrying(now, attempt, &why, at),
            Heard::TurnEnded(end) => self.turn_ended(now, end),
            Heard::Strange(text) => {
                self.note(format!("the agent says something strange: {text}"), false);
            }
        }
    }

    fn progress(&mut self, attempt: Attempt, text: &str) {
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        if self.phase.progress.len() >= PROGRESS_TEXTS_MAX {
            self.phase.progress.pop_front();
        }
        let text = cut(text, PROGRESS_TEXT_CHARS_MAX);
        self.phase.progress.push_back(text.clone());
        self.record(Record::Progress { attempt, text: text.clone() });
        self.say(Say::Text(text));
    }

    /// Looks at the meter, and takes the next step of the ladder.
    fn climb(&mut self, now: Now) {
        let Some(session) = self.session.as_mut().filter(|_| self.step == Step::Working) else {
            return;
        };
        // Where nothing is restarted, nothing is ended for it.
        if self.settings.max_restarts == 0 {
            return;
        }
        let (level, percent) = (session.meter.level(&self.settings), session.meter.percent());
        match level {
            Level::Low => {}
            Level::Soft if session.steered || session.is_deaf => {}
            Level::Soft => {
                session.steered = true;
                let text = percent.map_or_else(String::new, |percent| format!(" ({percent:.0} %)"));
                self.note(
                    format!("the context fills up{text}: the agent is asked to come to an end"),
                    false,
                );
                self.tell_agent(Told::Steer(prompts::steer(percent)));
            }
            Level::Hard => {
                let calls = session.meter.tool_calls();
                let detail = match percent.filter(|p| *p >= self.settings.context_threshold) {
                    Some(percent) => format!("its context was full ({percent:.0} %)"),
                    None if calls >= self.settings.tool_call_threshold => {
                        format!("it had used tools {calls} times")
                    }
                    None => "its context was about to be compacted".to_owned(),
                };
                self.interrupt(now, Why::new(Cause::ContextLimitRestart, detail));
            }
        }
    }

    fn compacted(&mut self, now: Now) {
        self.note("the agent has compacted its context by itself", true);
        if self.step == Step::Working && self.settings.max_restarts > 0 {
            let detail = "the agent had compacted its context by itself";
            self.interrupt(now, Why::new(Cause::CompactedRestart, detail));
        }
    }

    fn retrying(&mut self, now: Now, number: u32, why: &str, at: Option<Stamp>) {
        let Some(session) = &mut self.session else { return };
        session.retries += 1;
        session.retrying.get_or_insert(now.time);
        let retries = session.retries.max(number);
        self.note(format!("the agent tries again ({retries}): {why}"), false);
        let is_late = at.is_some_and(|at| at.since(now.stamp) > RETRY_PATIENCE);
        if self.step == Step::Working && (is_late || retries > RETRIES_MAX) {
            let until = at.filter(|_| is_late);
            self.close(Why { cause: Cause::Limited, detail: why.to_owned(), until }, None);
        }
    }

    fn turn_ended(&mut self, now: Now, end: TurnEnd) {
        match (self.step.clone(), end) {
            (Step::Working, TurnEnd::Done(text)) => self.said_done(&text),
            (Step::Working, TurnEnd::Interrupted) => {
                self.close(
                    Why::new(Cause::Failed, "the turn was interrupted by somebody else"),
                    None,
                );
            }
            (Step::Working | Step::Pausing, TurnEnd::Failed { failure, why }) => {
                self.turn_failed(failure, why);
            }
            // It was faster than us: what comes next waits.
            (Step::Pausing, TurnEnd::Done(text)) => self.said_done(&text),
            (Step::Pausing, TurnEnd::Interrupted) => self.paused(now),
            // It was faster than us: what it says counts.
            (Step::Interrupting { why, .. }, TurnEnd::Done(text)) if wants_handoff(why.cause) => {
                self.said_done(&text);
            }
            (Step::Interrupting { why, .. }, TurnEnd::Interrupted) if wants_handoff(why.cause) => {
                self.ask_handoff(now, why);
            }
            (Step::Interrupting { why, .. }, _) => self.close(why, None),
            (Step::HandingOff { why, .. }, TurnEnd::Done(text)) => {
                let text = text.trim();
                self.close(why, (!text.is_empty()).then(|| cut(text, HANDOFF_CHARS_MAX)));
            }
            (Step::HandingOff { why, .. }, _) => {
                self.note(
                    "the agent wrote no handoff: the checkpoint is made of git and its words",
                    true,
                );
                self.close(why, None);
            }
            _ => {}
        }
    }

    /// Its turn is over by itself. Only one that was asked to stop can have left something.
    fn said_done(&mut self, text: &str) {
        let was_asked = self.session.as_ref().is_some_and(|session| session.steered);
        let word = if was_asked { LastWord::of(text) } else { LastWord::Done };
        let (handoff, detail) = match word {
            LastWord::Handoff(handoff) => (handoff, "it stopped before its context was full"),
            // Nobody else would notice.
            LastWord::None if self.this_phase().gates.is_empty() => {
                (text.trim(), "it was asked to stop, and did not say that the task is complete")
            }
            LastWord::None | LastWord::Done => {
                return self.close(Why::new(Cause::Done, "the agent said that it is done"), None);
            }
        };
        let handoff = (!handoff.is_empty()).then(|| cut(handoff, HANDOFF_CHARS_MAX));
        self.close(Why::new(Cause::ContextLimitRestart, detail), handoff);
    }

    fn turn_failed(&mut self, failure: Failure, why: String) {
        let (cause, until) = match failure {
            Failure::Overflow => (Cause::Overflow, None),
            Failure::Limited { until } => (Cause::Limited, until),
            Failure::Overloaded => (Cause::Limited, None),
            Failure::Budget => (Cause::OutOfBudget, None),
            // Another session would fail the same way: a person has to do something.
            Failure::Unauthorized => (Cause::Stopped, None),
            Failure::Other => (Cause::Failed, None),
        };
        self.close(Why { cause, detail: why, until }, None);
    }

    /// The turn that runs is to end, so that the session can.
    pub(super) fn interrupt(&mut self, now: Now, why: Why) {
        self.note(format!("the session ends: {}", why.detail), false);
        // Nothing would come of waiting for it.
        if self.is_deaf() {
            return self.close(why, None);
        }
        self.tell_agent(Told::Interrupt);
        self.step = Step::Interrupting { why, until: now.time + INTERRUPT_WAIT };
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_deaf)
    }

    /// No turn runs, and the agent is asked for its handoff.
    pub(super) fn ask_handoff(&mut self, now: Now, why: Why) {
        self.tell_agent(Told::Prompt(prompts::ASK_HANDOFF.to_owned()));
        let until = now.time + self.settings.handoff_max;
        self.step = Step::HandingOff { why, until };
    }

    /// The session ends now.
    pub(super) fn close(&mut self, why: Why, handoff: Option<String>) {
        let Some(session) = &self.session else { return };
        self.effects.push(Effect::End(session.attempt));
        self.step = Step::Closing { why, handoff };
    }

    pub(super) fn not_started(&mut self, attempt: Attempt, why: String) {
        if self.session.as_ref().is_none_or(|session| session.attempt != attempt) {
            return;
        }
        self.session = None;
        let detail = format!("the agent could not be started: {why}");
        let cause = Cause::Crashed;
        self.record(Record::AttemptEnded { attempt, cause, handoff: None, detail: detail.clone() });
        self.finish(Finish::Stopped { why: detail });
    }

    pub(super) fn session_ended(&mut self, now: Now, attempt: Attempt, how: &str) {
        let Some(session) = self.session.take_if(|session| session.attempt == attempt) else {
            return;
        };
        let (why, handoff) = match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Closing { why, handoff } => (why, handoff),
            Step::Interrupting { why, .. } | Step::HandingOff { why, .. } => (why, None),
            _ => (Why::new(Cause::Crashed, format!("the agent ended by itself: {how}")), None),
        };
        self.spent = self.spent.plus(session.spent);
        self.phase.spent = self.phase.spent.plus(session.spent);
        self.warn_of_no_cost(session.spent);
        if handoff.is_some() {
            self.phase.handoff.clone_from(&handoff);
        } else if !keeps_handoff(why.cause) {
            // An old handoff would send the next one back.
            self.phase.handoff = None;
        }
        self.phase.why.clone_from(&why.detail);
        self.note_worked();
        let Why { cause, detail, until } = why;
        self.record(Record::AttemptEnded { attempt, cause, handoff, detail });
        self.commit_after(now, cause, until);
    }
}

/// Whether an earlier handoff still counts after a session that ended like this without one: it was broken off.
pub(in super::super) const fn keeps_handoff(cause: Cause) -> bool {
    matches!(cause, Cause::Limited | Cause::Stopped | Cause::OutOfBudget)
}

/// Whether the agent is asked for a handoff: it can answer, and there is time.
const fn wants_handoff(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::ContextLimitRestart | Cause::CompactedRestart | Cause::RestartAsked | Cause::Stalled
    )
}
