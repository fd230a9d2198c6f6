//! Owns how long a run waits for its model: for the end of a limit, for one that is overloaded, cannot be reached or
//! refuses the login for the first time. Driven by `phase_flow.rs`. Never starts a session.

use std::time::Duration;

use super::progress::PhaseProgress;
use crate::duration::show_duration;
use crate::exponential_wait::ExponentialWait;
use crate::limits::{
    AGENT_LIMITED_MAX, LIMIT_SLACK, LIMIT_WAIT_MAX, UNREACHABLE_WAIT, UNREACHABLE_WAIT_MAX,
};
use crate::run::Settings;
use crate::time::Stamp;

/// The waits for the model in a row in which it answered nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ModelWaits {
    count: u32,
    waited: Duration,
    /// The last session ended because the model could not be reached.
    pub(super) is_unreachable: bool,
    /// Failures of the login in a row without a call that succeeded.
    pub(super) refusals: u32,
}

impl PhaseProgress {
    /// When the next session begins, or why the model is not waited for any longer. An end that is not said or not
    /// credible is tried again after a time that doubles: soon where the model could not be reached, since nothing says
    /// when it can be again.
    pub(super) fn next_wait(
        &mut self,
        now: Stamp,
        said: Option<Stamp>,
        settings: &Settings,
    ) -> Result<Stamp, String> {
        let ModelWaits { count, waited, is_unreachable, .. } = self.model_waits;
        let max = settings.wait_max;
        let left = max.saturating_sub(waited);
        let said = said.filter(|said| *said > now && said.since(now) <= AGENT_LIMITED_MAX);
        let wait = match said {
            Some(said) if said.since(now) > left => {
                let max = show_duration(max);
                return Err(format!("{}; it ends at {said}, and --max-wait is {max}", self.why));
            }
            Some(said) => said.since(now) + LIMIT_SLACK,
            None if left.is_zero() => {
                let max = show_duration(max);
                return Err(format!(
                    "{}; the model was waited for, and --max-wait is {max}",
                    self.why
                ));
            }
            None => {
                let (first, longest) = match is_unreachable {
                    true => (UNREACHABLE_WAIT.min(settings.limit_wait), UNREACHABLE_WAIT_MAX),
                    false => (settings.limit_wait, LIMIT_WAIT_MAX),
                };
                ExponentialWait::doubling(first, longest).after(count).min(left)
            }
        };
        self.model_waits.count += 1;
        self.model_waits.waited += wait;
        Ok(now.later_by(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn waits(phase: &mut PhaseProgress, said: Option<&str>) -> Result<Duration, String> {
        let now = Stamp::parse("2026-11-15T08:00:00Z").unwrap();
        let settings = Settings { limit_wait: MINUTE, ..Settings::default() };
        phase.next_wait(now, said.and_then(Stamp::parse), &settings).map(|until| until.since(now))
    }

    #[test]
    fn waits_double_up_to_a_bound_and_a_credible_end_is_taken() {
        let mut phase = PhaseProgress { why: "usage limit".to_owned(), ..PhaseProgress::default() };
        assert_eq!(waits(&mut phase, None), Ok(MINUTE));
        assert_eq!(waits(&mut phase, None), Ok(2 * MINUTE));
        let said = Some("2026-11-15T08:10:00Z");
        assert_eq!(waits(&mut phase, said), Ok(10 * MINUTE + LIMIT_SLACK));
        let mut waited = 13 * MINUTE + LIMIT_SLACK;
        while let Ok(wait) = waits(&mut phase, None) {
            assert!(wait <= LIMIT_WAIT_MAX);
            waited += wait;
        }
        assert_eq!(waited, Settings::default().wait_max, "no longer and no shorter");
        let why = waits(&mut phase, None).unwrap_err();
        assert_eq!(why, "usage limit; the model was waited for, and --max-wait is 12 h");
        phase.model_waits = ModelWaits::default();
        assert_eq!(waits(&mut phase, None), Ok(MINUTE), "after an answer");
    }

    #[test]
    fn an_end_that_is_too_far_is_not_waited_for() {
        let mut phase = PhaseProgress { why: "usage limit".to_owned(), ..PhaseProgress::default() };
        let why = waits(&mut phase, Some("2026-11-15T20:00:01Z")).unwrap_err();
        assert_eq!(why, "usage limit; it ends at 2026-11-15T20:00:01.000Z, and --max-wait is 12 h");
        assert_eq!(
            waits(&mut phase, Some("2026-11-15T20:00:00Z")),
            Ok(12 * 60 * MINUTE + LIMIT_SLACK)
        );
    }

    #[test]
    fn a_model_that_cannot_be_reached_is_tried_soon_and_at_least_every_five_minutes() {
        let mut phase = PhaseProgress::default();
        phase.model_waits.is_unreachable = true;
        for seconds in [15, 30, 60, 120, 240, 300, 300] {
            assert_eq!(waits(&mut phase, None), Ok(Duration::from_secs(seconds)));
        }
    }
}
