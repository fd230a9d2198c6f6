//! Owns how far the plan is carried out, and the progress of the current phase over its sessions: which kind the last
//! one was, why it ended, what it left for the next one, and how often the phase was restarted, remediated and made to
//! wait. Driven by the machine. Never starts a session.

use std::collections::VecDeque;

use super::Outbox;
use super::model_limit_wait::ModelWaits;
use crate::limits::{PROGRESS_TEXT_CHARS_MAX, PROGRESS_TEXTS_MAX};
use crate::run::checkpoint::cut;
use crate::run::plan::{Phase, Plan};
use crate::run::{Attempt, Cause, Finish, Kind, PhaseEnd, Record, ResumePhase, RunEvent};

/// The plan, and how far it is carried out.
#[derive(Clone, Debug)]
pub(super) struct PlanProgress {
    pub(super) plan: Plan,
    /// In the order of the plan.
    pub(super) ends: Vec<Option<PhaseEnd>>,
    /// The phase that is worked on.
    pub(super) index: usize,
}

impl PlanProgress {
    /// Goes on after phases that are over already; of an edited plan, others may be.
    pub(super) fn new(plan: Plan, over: &[(String, PhaseEnd)]) -> Self {
        let end_of =
            |phase: &Phase| over.iter().find(|(name, _)| *name == phase.name).map(|(_, end)| *end);
        let ends = plan.phases.iter().map(end_of).collect();
        let mut progress = Self { plan, ends, index: 0 };
        progress.go_to_next();
        progress
    }

    fn go_to_next(&mut self) {
        self.index = self.ends.iter().position(Option::is_none).unwrap_or(self.ends.len());
    }

    /// The phase that is worked on; there is one until the run is over.
    pub(super) fn phase(&self) -> &Phase {
        &self.plan.phases[self.index]
    }

    /// The same; none where the run is over.
    pub(super) fn current(&self) -> Option<&Phase> {
        self.plan.phases.get(self.index)
    }

    /// Tells that the current phase begins, also where it depends on one that was skipped.
    pub(super) fn tell_begin(&self, out: &mut Outbox) {
        let (number, of) = (self.index + 1, self.ends.len());
        out.say(RunEvent::PhaseBegins { phase: self.phase().name.clone(), number, of });
        let needs = &self.phase().depends_on;
        let ends = self.plan.phases.iter().zip(&self.ends);
        let skipped = ends.filter(|(_, end)| **end == Some(PhaseEnd::Skipped));
        let skipped = skipped.filter(|(phase, _)| needs.contains(&phase.name));
        let names: Vec<String> = skipped.map(|(phase, _)| format!("`{}`", phase.name)).collect();
        if !names.is_empty() {
            out.warn(format!("it depends on what was skipped: {}", names.join(", ")));
        }
    }

    /// The current phase is over; the next one that is open becomes the current one.
    pub(super) fn end_phase(&mut self, end: PhaseEnd, detail: &str, out: &mut Outbox) {
        let (phase, detail) = (self.phase().name.clone(), detail.to_owned());
        out.record(Record::PhaseEnded { phase: phase.clone(), end, detail: detail.clone() });
        out.say(RunEvent::PhaseEnds { phase, end, detail });
        self.ends[self.index] = Some(end);
        if end != PhaseEnd::Failed {
            self.go_to_next();
        }
    }

    /// The end of a run in which no phase is open.
    pub(super) fn finish(&self) -> Finish {
        let count = |wanted| self.ends.iter().filter(|end| **end == Some(wanted)).count();
        let (done, skipped) = (count(PhaseEnd::Done), count(PhaseEnd::Skipped));
        match skipped {
            0 => Finish::Done,
            _ => Finish::Skipped {
                why: format!("{done} of {} phases done, {skipped} skipped", self.ends.len()),
            },
        }
    }
}

/// The phase that is worked on.
#[derive(Clone, Debug, Default)]
pub(super) struct PhaseProgress {
    /// It has failed before, and answers for all since its old base.
    pub(super) is_again: bool,
    /// Its last session had to be followed by a restart when the run ended.
    pub(super) is_restart_due: bool,
    pub(super) restarts: u32,
    pub(super) remediations: u32,
    /// Waits for the model without an answer of it.
    pub(super) model_waits: ModelWaits,
    pub(super) texts: VecDeque<String>,
    pub(super) handoff: Option<String>,
    /// Why the last session ended, in words.
    pub(super) why: String,
    /// The kind of its last session, or of the one that is in progress.
    pub(super) kind: Option<Kind>,
    /// Why its last session ended, where afresh itself ended before the gates had judged that.
    pub(super) unjudged: Option<Cause>,
}

impl PhaseProgress {
    /// A phase that goes on.
    pub(super) fn resumed(past: &ResumePhase) -> Self {
        let (kind, unjudged) = match past.last {
            Some((kind, Some(cause))) if is_for_gates(kind, cause) => (kind, Some(cause)),
            Some((kind, _)) => (continued(kind), None),
            None => (Kind::Resumed, None),
        };
        Self {
            is_restart_due: past.is_restart_due(),
            restarts: past.restarts,
            remediations: past.remediations,
            texts: past.progress.clone().into(),
            handoff: past.handoff.clone(),
            why: "afresh was stopped".to_owned(),
            kind: Some(kind),
            unjudged,
            ..Self::default()
        }
    }

    /// Whether it never began before.
    pub(super) const fn is_first(&self) -> bool {
        self.kind.is_none() && !self.is_again
    }

    /// Takes what the agent said.
    pub(super) fn add_text(&mut self, attempt: Attempt, text: &str, out: &mut Outbox) {
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        if self.texts.len() >= PROGRESS_TEXTS_MAX {
            self.texts.pop_front();
        }
        let text = cut(text, PROGRESS_TEXT_CHARS_MAX);
        self.texts.push_back(text.clone());
        out.record(Record::Progress { attempt, text: text.clone() });
        out.say(RunEvent::Text(text));
    }

    /// A session has ended. Without a new handoff, an old one stays only where the session was broken off: it would
    /// send the next one back.
    pub(super) fn end_session(&mut self, cause: Cause, handoff: Option<&str>, detail: &str) {
        if handoff.is_some() || !keeps_handoff(cause) {
            self.handoff = handoff.map(str::to_owned);
        }
        detail.clone_into(&mut self.why);
    }

    /// Whether the gates decide what follows after a session that ended like this.
    pub(super) fn is_for_gates(&self, cause: Cause) -> bool {
        self.kind.is_some_and(|kind| is_for_gates(kind, cause))
    }

    /// The kind of a session that goes on with the last one's work, though that is no restart.
    pub(super) fn continued(&self) -> Kind {
        self.kind.map_or(Kind::Resumed, continued)
    }
}

/// A remediation stays one: it is not restarted.
const fn continued(kind: Kind) -> Kind {
    match kind {
        Kind::Remediation(_) => kind,
        Kind::First | Kind::Restart(_) | Kind::Resumed => Kind::Resumed,
    }
}

const fn is_for_gates(kind: Kind, cause: Cause) -> bool {
    match cause {
        Cause::Done => true,
        cause if cause.is_restart() => matches!(kind, Kind::Remediation(_)),
        _ => false,
    }
}

/// Whether an earlier handoff still counts after a session that ended like this without one: it was broken off.
pub(in crate::run) const fn keeps_handoff(cause: Cause) -> bool {
    matches!(cause, Cause::Limited | Cause::Stopped | Cause::OutOfBudget)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::machine::tests::{phase, plan};

    #[test]
    fn an_old_handoff_stays_only_after_a_session_that_was_broken_off() {
        let mut phase = PhaseProgress::default();
        phase.end_session(Cause::ContextLimitRestart, Some("half"), "full");
        phase.end_session(Cause::Limited, None, "limit");
        assert_eq!(phase.handoff.as_deref(), Some("half"));
        phase.end_session(Cause::Crashed, None, "crash");
        assert_eq!((phase.handoff, phase.why.as_str()), (None, "crash"));
    }

    #[test]
    fn a_remediation_is_continued_as_one_and_judged_by_its_gates() {
        let mut phase = PhaseProgress::default();
        assert_eq!(phase.continued(), Kind::Resumed);
        phase.kind = Some(Kind::Remediation(2));
        assert_eq!(phase.continued(), Kind::Remediation(2));
        assert!(phase.is_for_gates(Cause::Crashed) && !phase.is_for_gates(Cause::Limited));
    }

    #[test]
    fn phases_that_are_over_are_passed_by_and_a_skipped_one_is_counted() {
        let phases = vec![phase("A", &[]), phase("B", &[]), phase("C", &[])];
        let over = [("B".to_owned(), PhaseEnd::Skipped)];
        let (mut progress, mut out) = (PlanProgress::new(plan(phases), &over), Outbox::default());
        assert_eq!(progress.phase().name, "A");
        progress.end_phase(PhaseEnd::Done, "", &mut out);
        assert_eq!(progress.phase().name, "C");
        progress.end_phase(PhaseEnd::Done, "", &mut out);
        assert!(progress.current().is_none());
        let why = "2 of 3 phases done, 1 skipped".to_owned();
        assert_eq!(progress.finish(), Finish::Skipped { why });
    }
}
