//! Measures how full the context of one session is. Each attempt has its own meter.

use super::Settings;
use crate::agent::ContextUse;

/// The meter of one session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meter {
    /// What was heard last.
    pub context: Option<ContextUse>,
    window: Option<u64>,
    /// Tools used so far.
    pub tool_calls: u32,
}

/// What has to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    Low,
    /// The agent is asked to come to an end.
    Soft,
    /// The session ends.
    Hard,
}

impl Meter {
    /// A meter for an agent that may not say how many tokens fit into its context.
    pub fn new(window: Option<u64>) -> Self {
        Self { window, ..Self::default() }
    }

    /// Takes what was heard. A window that was known once stays known, and what the agent says counts.
    pub fn take(&mut self, context: ContextUse) {
        self.window = context.window.or(self.window);
        self.context = Some(ContextUse { window: self.window, ..context });
    }

    /// Percent of the window, where that is known.
    pub fn percent(&self) -> Option<f64> {
        let context = self.context?;
        let window = context.window.filter(|window| *window > 0)?;
        Some(context.used as f64 / window as f64 * 100.0)
    }

    /// What has to be done.
    pub fn level(&self, settings: &Settings) -> Level {
        let percent = self.percent().unwrap_or(0.0);
        let hard = settings.context_threshold;
        let calls_max = settings.tool_call_threshold;
        if (hard < 100.0 && percent >= hard) || (calls_max > 0 && self.tool_calls >= calls_max) {
            return Level::Hard;
        }
        // Where the agent would put its context together by itself, it is asked before.
        let compacts = self.context.is_some_and(|context| {
            context.compacts_at.is_some_and(|at| at > 0 && context.used >= at / 20 * 19)
        });
        if compacts && hard < 100.0 {
            return Level::Hard;
        }
        if hard < 100.0 && percent >= settings.soft_threshold.min(hard) {
            return Level::Soft;
        }
        Level::Low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(used: u64, window: Option<u64>) -> ContextUse {
        ContextUse { used, window, compacts_at: None, exact: true }
    }

    #[test]
    fn the_threshold_is_a_part_of_the_window_that_the_agent_has() {
        // S2
        let settings = Settings::default();
        let level = |used, window| {
            let mut meter = Meter::default();
            meter.take(context(used, Some(window)));
            meter.level(&settings)
        };
        assert_eq!(level(129_999, 200_000), Level::Low);
        assert_eq!(level(130_000, 200_000), Level::Soft);
        assert_eq!(level(160_000, 200_000), Level::Hard);
        assert_eq!(level(160_000, 1_000_000), Level::Low);
    }

    #[test]
    fn a_hundred_percent_disables_it_and_tools_count_beside() {
        // S2
        let settings = Settings { context_threshold: 100.0, ..Settings::default() };
        let mut meter = Meter::default();
        meter.take(context(199_000, Some(200_000)));
        assert_eq!(meter.level(&settings), Level::Low);
        for _ in 0..99 {
            meter.tool_calls += 1;
        }
        assert_eq!(meter.level(&settings), Level::Low);
        meter.tool_calls += 1;
        assert_eq!(meter.level(&settings), Level::Hard);
        let any = Settings { tool_call_threshold: 0, ..settings };
        assert_eq!(meter.level(&any), Level::Low);
    }

    #[test]
    fn a_window_that_was_said_once_is_known_and_without_one_nothing_is_guessed() {
        let mut meter = Meter::default();
        meter.take(context(900_000, None));
        assert_eq!((meter.percent(), meter.level(&Settings::default())), (None, Level::Low));
        meter.take(context(0, Some(1_000_000)));
        meter.take(context(900_000, None));
        assert_eq!(meter.percent(), Some(90.0));
    }

    #[test]
    fn a_window_that_was_given_is_for_agents_that_do_not_say_theirs() {
        // S2
        let mut meter = Meter::new(Some(1_000));
        meter.take(context(800, None));
        assert_eq!((meter.percent(), meter.level(&Settings::default())), (Some(80.0), Level::Hard));
        meter.take(context(800, Some(2_000)));
        meter.take(context(800, None));
        assert_eq!(meter.percent(), Some(40.0));
    }

    #[test]
    fn the_agents_own_compaction_does_not_come_first() {
        let mut meter = Meter::default();
        let window = Some(200_000);
        meter.take(ContextUse { used: 96_000, window, compacts_at: Some(100_000), exact: true });
        assert_eq!(meter.level(&Settings::default()), Level::Hard);
    }
}
