//! The machine of a run: which phase, which session, and the next step.
//!
//! This file has the state and the way in; `machine/phase.rs` what becomes of a phase, `machine/seal.rs`
//! whether it is done, `machine/session.rs` what becomes of a session, `machine/wish.rs` what a person wants, `machine/budget.rs` what may be used. The picture
//! is in `mod.rs`.

mod budget;
mod files;
mod gate_changes;
mod phase;
mod session;
mod stash;
#[cfg(test)]
mod tests;
mod user_request;
mod view;

use std::collections::VecDeque;
use std::time::Duration;

use self::session::Session;
pub(super) use self::session::keeps_handoff;
use self::stash::Stashes;
use self::user_request::Wish;
pub use self::view::{GateState, View, Wait};
use super::plan::{Phase, Plan};
use super::{
    Asked, Attempt, Cause, Dirty, Effect, Finish, GateEnd, GitAnswer, GitAsk, Input, Kind, Looked,
    Now, Past, PhaseEnd, Record, Say, Settings, Stand,
};
use crate::agent::Spent;
use crate::limits::{
    AGENT_LIMITED_MAX, LIMIT_SLACK, LIMIT_WAIT_MAX, RETRY_PATIENCE, WORKED_NOTE_EVERY,
};
use crate::time::{Stamp, Time, show_duration};

/// One run of a plan.
#[derive(Clone, Debug)]
pub struct Machine {
    plan: Plan,
    settings: Settings,
    /// How each phase ended, in the order of the plan.
    ends: Vec<Option<PhaseEnd>>,
    step: Step,
    phase: Current,
    session: Option<Session>,
    last_attempt: Attempt,
    /// What ended sessions have used.
    spent: Spent,
    restarts: u32,
    worked: Duration,
    /// How much of that is written down.
    worked_noted: Duration,
    last: Time,
    /// What somebody wants at the next good moment.
    wish: Option<Wish>,
    /// Whether somebody wants nothing new to begin.
    hold: bool,
    model: Option<String>,
    /// The time on the wall, when something happened last.
    stamp: Stamp,
    /// What people were told that is done.
    told_doing: &'static str,
    has_git: bool,
    stand: Stand,
    effects: Vec<Effect>,
}

/// Where the run is.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Not begun.
    Idle,
    /// Git is asked where the phase begins.
    Basing,
    /// What was there before is committed.
    Tidying,
    /// A session starts.
    Opening { prompt: String, until: Time },
    /// The agent works.
    Working,
    /// The agent is asked to stop for a while.
    Pausing,
    /// Nobody works until somebody says so.
    Paused,
    /// Nothing new begins until somebody says so.
    Held(Next),
    /// The turn is to end.
    Interrupting { why: Why, until: Time },
    /// The agent writes its handoff.
    HandingOff { why: Why, until: Time },
    /// The session ends.
    Closing { why: Why, handoff: Option<String> },
    /// What it did is committed.
    Committing { cause: Cause, message: String, until: Option<Stamp> },
    /// Git is asked what has happened in the phase.
    Looking { cause: Cause, until: Option<Stamp> },
    /// The next session waits a moment.
    Resting { kind: Kind, until: Time },
    /// The use of the model is limited.
    Limited { kind: Kind, until: Stamp },
    /// Gates are run: the one that runs, and those that failed.
    Gating { gate: usize, failed: Vec<(String, String)> },
    /// All gates were run, and what they have changed is committed.
    Sealing { message: String },
    /// The run is over.
    Over,
}

/// Why a session ends.
#[derive(Clone, Debug, PartialEq)]
struct Why {
    cause: Cause,
    detail: String,
    /// Until when the use of the model is limited.
    until: Option<Stamp>,
}

impl Why {
    fn new(cause: Cause, detail: impl Into<String>) -> Self {
        Self { cause, detail: detail.into(), until: None }
    }
}

/// What begins when somebody lets it.
#[derive(Clone, Debug, PartialEq)]
enum Next {
    Session(Kind),
    /// The gate, and those that failed before it.
    Gate(usize, Vec<(String, String)>),
}

/// The phase that is worked on.
#[derive(Clone, Debug, Default)]
struct Current {
    index: usize,
    base: Option<String>,
    /// It has failed before, and answers for all since that base.
    is_again: bool,
    /// Its last session had to be followed by a restart when the run ended.
    is_restart_due: bool,
    restarts: u32,
    remediations: u32,
    /// Limits in a row without progress.
    waits: u32,
    progress: VecDeque<String>,
    handoff: Option<String>,
    failed: Vec<(String, String)>,
    /// Its gates, as they were run last.
    gates: Vec<GateState>,
    looked: Looked,
    /// Where its last session had ended; none while one may be at work.
    seen: Option<String>,
    /// Commits between which others than the agent worked.
    beside: Vec<(String, String)>,
    stashes: Stashes,
    /// Its gates have changed files, and are run once more.
    is_second_round: bool,
    spent: Spent,
    worked: Duration,
    /// Why the last session ended, in words.
    why: String,
    kind: Option<Kind>,
    /// Why its last session ended, where afresh itself ended before the gates had judged that.
    unjudged: Option<Cause>,
}

impl Machine {
    /// A run that has not begun, or goes on with what is known of its past.
    pub fn new(plan: Plan, settings: Settings, past: Past) -> Self {
        let end_of = |phase: &Phase| {
            past.over.iter().find(|(name, _)| *name == phase.name).map(|(_, end)| *end)
        };
        let ends: Vec<Option<PhaseEnd>> = plan.phases.iter().map(end_of).collect();
        let index = ends.iter().position(Option::is_none).unwrap_or(plan.phases.len());
        let mut phase = Current { index, ..Current::default() };
        let name = plan.phases.get(index).map(|phase| &phase.name);
        if let Some(failed) = past.failed.filter(|failed| Some(&failed.name) == name) {
            (phase.base, phase.is_again) = (failed.base, true);
            (phase.seen, phase.beside) = (failed.seen, failed.beside);
        }
        let begun = past.phase.filter(|begun| Some(&begun.name) == name);
        if let Some(begun) = begun {
            phase.is_restart_due = begun.is_restart_due();
            (phase.base, phase.seen, phase.beside) = (begun.base, begun.seen, begun.beside);
            phase.stashes = Stashes::since(begun.stashes);
            phase.restarts = begun.restarts;
            phase.remediations = begun.remediations;
            phase.progress = begun.progress.into();
            phase.handoff = begun.handoff;
            phase.failed = begun.failed;
            phase.spent = begun.spent;
            phase.worked = begun.worked;
            phase.why = "afresh was stopped".to_owned();
            phase.kind = Some(match begun.last {
                Some((kind, Some(cause))) if phase::is_for_gates(kind, cause) => {
                    phase.unjudged = Some(cause);
                    kind
                }
                Some((kind, _)) => phase::again(kind),
                None => Kind::Resumed,
            });
        }
        Self {
            plan,
            settings,
            ends,
            step: Step::Idle,
            phase,
            session: None,
            last_attempt: past.last_attempt,
            spent: past.spent,
            restarts: past.restarts,
            worked: past.worked,
            worked_noted: past.worked,
            last: Time::ZERO,
            wish: None,
            hold: false,
            model: None,
            stamp: Stamp::default(),
            told_doing: "",
            has_git: true,
            stand: past.stand,
            effects: Vec::new(),
        }
    }

    /// Takes in what happened, and says what to do, in this order.
    pub fn handle(&mut self, now: Now, input: Input) -> Vec<Effect> {
        self.pass_time(now.time);
        self.stamp = now.stamp;
        match input {
            Input::Begin if self.step == Step::Idle => self.begin_phase(),
            Input::Heard(attempt, heard) => {
                if self.session.as_ref().is_some_and(|session| session.attempt == attempt) {
                    self.hear(now, heard);
                }
            }
            Input::Stirred(attempt) => self.stirred(now.time, attempt),
            Input::NotStarted(attempt, why) => self.not_started(attempt, why),
            Input::SessionEnded(attempt, how) => self.session_ended(now, attempt, &how),
            Input::Stash(now) => self.stash_has(now),
            Input::Git(answer) => self.git_answered(now, answer),
            Input::GateEnded(end) => self.gate_ended(end),
            Input::Asked(asked) => self.asked(now, asked),
            Input::Begin | Input::Wakeup => {}
        }
        self.look_at_clock(now);
        self.tell_doing();
        std::mem::take(&mut self.effects)
    }

    /// When the machine wants to be woken, by the clock since the start. Where a limit ends by the clock on
    /// the wall, that is looked at from time to time.
    pub fn next_wakeup(&self, now: Now) -> Option<Time> {
        let silent = |session: &Session| session.heard_at + self.settings.silence_max;
        let step = match &self.step {
            Step::Opening { until, .. }
            | Step::Interrupting { until, .. }
            | Step::HandingOff { until, .. }
            | Step::Resting { until, .. } => Some(*until),
            Step::Working => {
                let session = self.session.as_ref();
                let retrying = session.and_then(|session| session.retrying);
                let retrying = retrying.map(|since| since + self.retry_patience());
                session.map(silent).into_iter().chain(retrying).min()
            }
            Step::Limited { until, .. } => {
                let rest = until.since(now.stamp);
                Some(now.time + rest.clamp(Duration::from_millis(50), Duration::from_secs(30)))
            }
            _ => None,
        };
        // Where time is limited, it is written down also while nothing happens.
        let noted = WORKED_NOTE_EVERY.saturating_sub(self.worked - self.worked_noted);
        let time_left = self.time_left().map(|left| now.time + left.min(noted));
        match (step, time_left.filter(|_| self.counts_time())) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Whether the run is over.
    pub fn is_over(&self) -> bool {
        self.step == Step::Over
    }

    fn pass_time(&mut self, now: Time) {
        let passed = now.since(self.last);
        self.last = now;
        if self.counts_time() {
            self.worked += passed;
            self.phase.worked += passed;
        }
        if self.worked - self.worked_noted >= WORKED_NOTE_EVERY {
            self.note_worked();
        }
    }

    /// Writes down how long was worked: what a run may take holds for all of its parts.
    fn note_worked(&mut self) {
        if self.worked == self.worked_noted {
            return;
        }
        self.worked_noted = self.worked;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (run_ms, phase_ms) = (millis(self.worked), millis(self.phase.worked));
        self.record(Record::Worked { run_ms, phase_ms });
    }

    const fn counts_time(&self) -> bool {
        !matches!(
            self.step,
            Step::Idle
                | Step::Paused
                | Step::Held(_)
                | Step::Resting { .. }
                | Step::Limited { .. }
                | Step::Over
        )
    }

    fn look_at_clock(&mut self, now: Now) {
        match &self.step {
            Step::Opening { until, .. } if *until <= now.time => {
                self.close(Why::new(Cause::Crashed, "the agent was not ready in time"), None);
            }
            Step::Interrupting { why, until } | Step::HandingOff { why, until }
                if *until <= now.time =>
            {
                let why = why.clone();
                self.note("the agent did not answer in time: its session is ended as it is", true);
                self.close(why, None);
            }
            Step::Resting { kind, until } if *until <= now.time => {
                let kind = *kind;
                self.open(now, kind);
            }
            Step::Limited { kind, until } if *until <= now.stamp => {
                let kind = *kind;
                self.open(now, kind);
            }
            Step::Working if self.only_retries(now.time) => {
                self.close(Why::new(Cause::Limited, "the agent gets no answer of its model"), None);
            }
            Step::Working if self.is_silent(now.time) => {
                let silence = show_duration(self.settings.silence_max);
                let detail = format!("nothing was heard of the agent for {silence}");
                self.interrupt(now, Why::new(Cause::Stalled, detail));
            }
            _ => {}
        }
        if matches!(self.step, Step::Working | Step::Pausing | Step::Opening { .. })
            && let Some(why) = self.out_of_time()
        {
            self.close(why, None);
        }
        if matches!(self.step, Step::Gating { .. }) {
            self.end_gate_for_time();
        }
    }

    fn is_silent(&self, now: Time) -> bool {
        let silence_max = self.settings.silence_max;
        self.session.as_ref().is_some_and(|session| now.since(session.heard_at) >= silence_max)
    }

    /// How long an agent may do nothing but try again.
    fn retry_patience(&self) -> Duration {
        RETRY_PATIENCE.min(self.settings.silence_max / 2)
    }

    fn only_retries(&self, now: Time) -> bool {
        let since = self.session.as_ref().and_then(|session| session.retrying);
        since.is_some_and(|since| now.since(since) >= self.retry_patience())
    }

    fn finish(&mut self, finish: Finish) {
        self.step = Step::Over;
        self.note_worked();
        self.record(Record::RunEnded { finish: finish.clone() });
        self.effects.push(Effect::Finish(finish));
    }

    fn record(&mut self, record: Record) {
        self.effects.push(Effect::Record(record));
    }

    fn say(&mut self, say: Say) {
        self.effects.push(Effect::Say(say));
    }

    fn note(&mut self, text: impl Into<String>, is_warning: bool) {
        self.say(Say::Note(text.into(), is_warning));
    }

    fn git(&mut self, ask: GitAsk) {
        self.effects.push(Effect::Git(ask));
    }
}
