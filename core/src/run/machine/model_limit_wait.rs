//! Owns how long a run waits where the use of the model is limited or the model is overloaded. Driven by `phase_flow.rs`.
//! Never starts a session.

use std::time::Duration;

use super::progress::PhaseProgress;
use crate::exponential_wait::ExponentialWait;
use crate::limits::{AGENT_LIMITED_MAX, LIMIT_SLACK, LIMIT_WAIT_MAX, LIMIT_WAITS_MAX};
use crate::time::Stamp;

impl PhaseProgress {
    /// When the limit of the model ends; none after too many waits. An end that is not said or not credible is
    /// tried again after a time that doubles.
    pub(super) fn next_wait(
        &mut self,
        now: Stamp,
        said: Option<Stamp>,
        first: Duration,
    ) -> Option<Stamp> {
        if self.waits >= LIMIT_WAITS_MAX {
            return None;
        }
        let said = said.filter(|said| *said > now && said.since(now) <= AGENT_LIMITED_MAX);
        let wait = match said {
            Some(said) => said.since(now) + LIMIT_SLACK,
            None => ExponentialWait::doubling(first, LIMIT_WAIT_MAX).after(self.waits),
        };
        self.waits += 1;
        Some(now.later_by(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_a_credible_end_is_taken() {
        let now = Stamp::parse("2026-11-15T08:00:00Z").unwrap();
        let minute = Duration::from_secs(60);
        let mut phase = PhaseProgress::default();
        let mut wait = |said| phase.next_wait(now, said, minute).map(|until| until.since(now));
        let said = Stamp::parse("2026-11-15T08:10:00Z");
        assert_eq!(wait(None), Some(minute));
        assert_eq!(wait(None), Some(2 * minute));
        assert_eq!(wait(said), Some(10 * minute + LIMIT_SLACK));
        while wait(None).is_some() {}
        phase.waits = 0;
        assert!(phase.next_wait(now, None, minute).is_some());
    }
}
