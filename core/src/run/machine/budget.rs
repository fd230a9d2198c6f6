//! What a run and its phases may use: time, dollars, tokens and restarts.

use super::*;

impl Machine {
    /// What is left of the times of run and phase.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let run = self.settings.budget.time.map(|max| max.saturating_sub(self.worked));
        let phase = self.plan.phases.get(self.phase.index).and_then(|phase| phase.time_max);
        let phase = phase.map(|max| max.saturating_sub(self.phase.worked));
        match (run, phase) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// A limit of time that is reached.
    pub(super) fn out_of_time(&self) -> Option<Why> {
        let phase = self.plan.phases.get(self.phase.index)?;
        if let Some(max) = phase.time_max.filter(|max| self.phase.worked >= *max) {
            let detail = format!("phase `{}` took the {} s that it may", phase.name, max.as_secs());
            return Some(Why::new(Cause::TimedOut, detail));
        }
        let max = self.settings.budget.time.filter(|max| self.worked >= *max)?;
        let detail = format!("the run took the {} s that it may", max.as_secs());
        Some(Why::new(Cause::OutOfBudget, detail))
    }

    /// Ends what has no session to end, where a bound is reached. Returns whether one is.
    pub(super) fn ends_for_bounds(&mut self) -> bool {
        let used_up = |detail| Why::new(Cause::OutOfBudget, detail);
        let Some(why) = self.out_of_time().or_else(|| self.out_of_budget().map(used_up)) else {
            return false;
        };
        self.end_for(why);
        true
    }

    /// Stops the run where it may not restart its agent once more. Returns whether that is so.
    pub(super) fn ends_for_restarts(&mut self) -> bool {
        let is_used_up = self.settings.budget.restarts.is_some_and(|max| self.restarts >= max);
        if is_used_up {
            let why = format!("the run has restarted its agent {} times, as it may", self.restarts);
            self.finish(Finish::Stopped { why });
        }
        is_used_up
    }

    /// A gate has no more time than all else.
    pub(super) fn end_gate_for_time(&mut self) {
        if let Some(why) = self.out_of_time() {
            self.effects.push(Effect::EndGate);
            self.end_for(why);
        }
    }

    fn end_for(&mut self, why: Why) {
        match why.cause {
            Cause::TimedOut => self.end_phase(PhaseEnd::Failed, why.detail),
            _ => self.finish(Finish::Stopped { why: why.detail }),
        }
    }

    /// A budget that is used up.
    pub(super) fn out_of_budget(&self) -> Option<String> {
        let phase = self.plan.phases.get(self.phase.index)?;
        let running = self.session.as_ref().map_or_else(Spent::default, |session| session.spent);
        let checks = [
            (
                self.spent.plus(running),
                self.settings.budget.dollars,
                self.settings.budget.tokens,
                "the run",
            ),
            (self.phase.spent.plus(running), phase.dollars_max, phase.tokens_max, "the phase"),
        ];
        for (spent, dollars_max, tokens_max, whose) in checks {
            if let (Some(dollars), Some(max)) = (spent.dollars, dollars_max)
                && dollars >= max
            {
                return Some(format!("{whose} has cost ${dollars:.2}, and may cost ${max:.2}"));
            }
            if let Some(max) = tokens_max.filter(|max| spent.tokens() >= *max) {
                let tokens = spent.shown_tokens();
                return Some(format!("{whose} has used {tokens}, and may use {max}"));
            }
        }
        None
    }

    /// Some agents do not know what a model costs, and say that it costs nothing.
    pub(super) fn warn_of_no_cost(&mut self, spent: Spent) {
        let dollars_max = self.settings.budget.dollars.or(self.this_phase().dollars_max);
        if dollars_max.is_some() && spent.tokens() > 0 && spent.dollars == Some(0.0) {
            let text = "the agent says that this has cost nothing: a limit of cost cannot be kept \
                        where that is not so; use --max-tokens";
            self.note(text, true);
        }
    }
}
