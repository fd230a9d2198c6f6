//! Owns the time, tokens, dollars and restarts that a run and its current phase have used, and compares them with
//! their limits. Driven by the machine. Never ends anything itself.

use std::time::Duration;

use super::{EndReason, Outbox};
use crate::agent::Spent;
use crate::limits::WORKED_NOTE_EVERY;
use crate::run::plan::Phase;
use crate::run::{Budget, Cause, Record, ResumeState};

/// Counters of a run and of its current phase. What the session in progress spends is added when it has ended.
#[derive(Clone, Debug, Default)]
pub(super) struct RunUsage {
    budget: Budget,
    run: Spent,
    phase: Spent,
    pub(super) run_worked: Duration,
    phase_worked: Duration,
    /// The part of `run_worked` that is on record.
    recorded: Duration,
    pub(super) restarts: u32,
}

impl RunUsage {
    pub(super) fn resumed(budget: Budget, past: &ResumeState) -> Self {
        Self {
            budget,
            run: past.spent,
            run_worked: past.worked,
            recorded: past.worked,
            restarts: past.restarts,
            ..Self::default()
        }
    }

    /// Another phase begins, or goes on with what it has used before.
    pub(super) const fn begin_phase(&mut self, spent: Spent, worked: Duration) {
        (self.phase, self.phase_worked) = (spent, worked);
    }

    pub(super) fn add_time(&mut self, passed: Duration) {
        self.run_worked += passed;
        self.phase_worked += passed;
    }

    pub(super) fn add_spent(&mut self, spent: Spent) {
        self.run = self.run.plus(spent);
        self.phase = self.phase.plus(spent);
    }

    /// All that was spent, with what the session in progress has.
    pub(super) fn spent_with(&self, running: Spent) -> Spent {
        self.run.plus(running)
    }

    /// The time until the next record of the working time is due.
    pub(super) fn record_due_in(&self) -> Duration {
        WORKED_NOTE_EVERY.saturating_sub(self.run_worked - self.recorded)
    }

    /// Records the working time, where that has changed: a time limit holds across resumes.
    pub(super) fn record_time(&mut self, out: &mut Outbox) {
        if self.run_worked == self.recorded {
            return;
        }
        self.recorded = self.run_worked;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (run_ms, phase_ms) = (millis(self.run_worked), millis(self.phase_worked));
        out.record(Record::Worked { run_ms, phase_ms });
    }

    /// The rest of the time limits of run and phase.
    pub(super) fn time_left(&self, phase: Option<&Phase>) -> Option<Duration> {
        let run = self.budget.time.map(|max| max.saturating_sub(self.run_worked));
        let phase = phase.and_then(|phase| phase.time_max);
        let phase = phase.map(|max| max.saturating_sub(self.phase_worked));
        run.into_iter().chain(phase).min()
    }

    /// A time limit that is reached.
    pub(super) fn out_of_time(&self, phase: Option<&Phase>) -> Option<EndReason> {
        let phase = phase?;
        if let Some(max) = phase.time_max.filter(|max| self.phase_worked >= *max) {
            let detail = format!("phase `{}` took the {} s that it may", phase.name, max.as_secs());
            return Some(EndReason::new(Cause::TimedOut, detail));
        }
        let max = self.budget.time.filter(|max| self.run_worked >= *max)?;
        let detail = format!("the run took the {} s that it may", max.as_secs());
        Some(EndReason::new(Cause::OutOfBudget, detail))
    }

    /// A limit of dollars or tokens that is reached, with what the session in progress has spent.
    pub(super) fn out_of_budget(&self, phase: &Phase, running: Spent) -> Option<EndReason> {
        let checks = [
            (self.run.plus(running), self.budget.dollars, self.budget.tokens, "the run"),
            (self.phase.plus(running), phase.dollars_max, phase.tokens_max, "the phase"),
        ];
        let detail = checks.into_iter().find_map(|(spent, dollars_max, tokens_max, whose)| {
            if let (Some(dollars), Some(max)) = (spent.dollars, dollars_max)
                && dollars >= max
            {
                return Some(format!("{whose} has cost ${dollars:.2}, and may cost ${max:.2}"));
            }
            let max = tokens_max.filter(|max| spent.tokens() >= *max)?;
            Some(format!("{whose} has used {}, and may use {max}", spent.shown_tokens()))
        })?;
        Some(EndReason::new(Cause::OutOfBudget, detail))
    }

    /// Why the agent may not be restarted once more.
    pub(super) fn out_of_restarts(&self) -> Option<String> {
        let restarts = self.restarts;
        let is_used_up = self.budget.restarts.is_some_and(|max| restarts >= max);
        is_used_up.then(|| format!("the run has restarted its agent {restarts} times, as it may"))
    }

    /// Warns where a cost limit cannot be kept: some agents do not know what a model costs, and report zero.
    pub(super) fn warn_of_no_cost(&self, phase: &Phase, spent: Spent, out: &mut Outbox) {
        let dollars_max = self.budget.dollars.or(phase.dollars_max);
        if dollars_max.is_some() && spent.tokens() > 0 && spent.dollars == Some(0.0) {
            out.warn(
                "the agent says that this has cost nothing: a limit of cost cannot be kept \
                 where that is not so; use --max-tokens",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::machine::tests::phase;

    fn spent(input: u64, dollars: f64) -> Spent {
        Spent { input, dollars: Some(dollars), ..Spent::default() }
    }

    #[test]
    fn the_nearer_limit_of_run_and_phase_counts() {
        let minute = Duration::from_secs(60);
        let budget = Budget { time: Some(3 * minute), ..Budget::default() };
        let mut usage = RunUsage::resumed(budget, &ResumeState::default());
        let mut slow = phase("A", &[]);
        assert_eq!(usage.time_left(Some(&slow)), Some(3 * minute));
        slow.time_max = Some(2 * minute);
        usage.add_time(minute);
        assert_eq!(usage.time_left(Some(&slow)), Some(minute));
        usage.add_time(minute);
        let cause = |usage: &RunUsage| usage.out_of_time(Some(&slow)).map(|why| why.cause);
        assert_eq!(cause(&usage), Some(Cause::TimedOut));
        usage.begin_phase(Spent::default(), Duration::ZERO);
        assert_eq!(cause(&usage), None);
        usage.add_time(minute);
        assert_eq!(cause(&usage), Some(Cause::OutOfBudget));
    }

    #[test]
    fn what_the_running_session_spends_counts_before_it_has_ended() {
        let budget = Budget { dollars: Some(1.0), ..Budget::default() };
        let mut usage = RunUsage::resumed(budget, &ResumeState::default());
        let any = phase("A", &[]);
        usage.add_spent(spent(10, 0.75));
        assert_eq!(usage.out_of_budget(&any, spent(1, 0.125)), None);
        assert!(usage.out_of_budget(&any, spent(1, 0.25)).is_some());
        assert_eq!(usage.spent_with(spent(1, 0.25)).input, 11);
    }

    #[test]
    fn the_working_time_is_recorded_once() {
        let mut usage = RunUsage::resumed(Budget::default(), &ResumeState::default());
        let mut out = Outbox::default();
        usage.add_time(WORKED_NOTE_EVERY);
        assert_eq!(usage.record_due_in(), Duration::ZERO);
        usage.record_time(&mut out);
        usage.record_time(&mut out);
        assert_eq!(out.take().len(), 1);
    }
}
