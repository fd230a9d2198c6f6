//! Owns the plan, how each phase ended, and which one is worked on. Driven by the machine. Never looks into a phase's
//! sessions or gates.

use super::outbox::Outbox;
use crate::run::plan::{Phase, Plan};
use crate::run::{Finish, PhaseEnd, Record, RunEvent};

/// The plan, and how far it is carried out.
#[derive(Clone, Debug)]
pub(super) struct PlanProgress {
    plan: Plan,
    /// In the order of the plan.
    ends: Vec<Option<PhaseEnd>>,
    current: usize,
}

impl PlanProgress {
    /// Goes on after phases that are over already; of an edited plan, others may be.
    pub(super) fn new(plan: Plan, over: &[(String, PhaseEnd)]) -> Self {
        let end_of =
            |phase: &Phase| over.iter().find(|(name, _)| *name == phase.name).map(|(_, end)| *end);
        let ends = plan.phases.iter().map(end_of).collect();
        let mut progress = Self { plan, ends, current: 0 };
        progress.go_to_next();
        progress
    }

    fn go_to_next(&mut self) {
        self.current = self.ends.iter().position(Option::is_none).unwrap_or(self.ends.len());
    }

    pub(super) const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The phase that is worked on; there is one until the run is over.
    pub(super) fn phase(&self) -> &Phase {
        &self.plan.phases[self.current]
    }

    /// The same; none where the run is over.
    pub(super) fn current(&self) -> Option<&Phase> {
        self.plan.phases.get(self.current)
    }

    pub(super) const fn index(&self) -> usize {
        self.current
    }

    pub(super) fn ends(&self) -> &[Option<PhaseEnd>] {
        &self.ends
    }

    /// Tells that the current phase begins, also where it depends on one that was skipped.
    pub(super) fn tell_begin(&self, out: &mut Outbox) {
        let (number, of) = (self.current + 1, self.ends.len());
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
        self.ends[self.current] = Some(end);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::machine::tests::{phase, plan};

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
