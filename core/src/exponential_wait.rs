//! Owns the arithmetic of exponential waits: base, factor, cap, jitter.
//!
//! Driven by the machines that retry: each keeps its own count of failures and its own random numbers.
//! Never reads a clock and keeps no state.

use std::time::Duration;

/// Waits that grow: `base × factor^rounds`, at most `cap`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExponentialWait {
    base: Duration,
    factor: f64,
    cap: Duration,
}

impl ExponentialWait {
    /// Each wait is `factor` times the one before.
    pub const fn new(base: Duration, factor: f64, cap: Duration) -> Self {
        Self { base, factor, cap }
    }

    /// Each wait is twice the one before.
    pub const fn doubling(base: Duration, cap: Duration) -> Self {
        Self::new(base, 2.0, cap)
    }

    /// The wait after so many earlier ones: `base` for 0.
    pub fn after(&self, rounds: u32) -> Duration {
        let factor = self.factor.powi(rounds.min(1_000).cast_signed());
        let seconds = self.base.as_secs_f64() * factor;
        // Infinity compares too: beyond the cap is the cap.
        if seconds < self.cap.as_secs_f64() { Duration::from_secs_f64(seconds) } else { self.cap }
    }

    /// The same with up to `share` of it on top, all of it at most `cap`. `unit` is a random number from 0
    /// up to 1: clients of one server must not come back at the same moment.
    pub fn jittered(&self, rounds: u32, share: f64, unit: f64) -> Duration {
        self.spread(self.after(rounds), share, unit)
    }

    /// Any wait with up to `share` of it on top, all of it at most `cap`.
    pub fn spread(&self, wait: Duration, share: f64, unit: f64) -> Duration {
        spread(wait, share, unit).min(self.cap)
    }
}

/// The wait with up to `share` of it on top; `unit` is a random number from 0 up to 1.
pub fn spread(wait: Duration, share: f64, unit: f64) -> Duration {
    wait.mul_f64(1.0 + share * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: ExponentialWait =
        ExponentialWait::doubling(Duration::from_millis(100), Duration::from_secs(1));

    #[test]
    fn waits_double_up_to_the_cap_and_stay_there() {
        let millis: Vec<u128> = (0..6).map(|rounds| WAIT.after(rounds).as_millis()).collect();
        assert_eq!(millis, [100, 200, 400, 800, 1_000, 1_000]);
        assert_eq!(WAIT.after(u32::MAX), Duration::from_secs(1));
        let flat = ExponentialWait::new(Duration::ZERO, 3.0, Duration::from_secs(1));
        assert_eq!(flat.after(9), Duration::ZERO);
    }

    #[test]
    fn jitter_is_added_inside_of_the_cap() {
        assert_eq!(WAIT.jittered(1, 0.5, 0.0), Duration::from_millis(200));
        assert_eq!(WAIT.jittered(1, 0.5, 1.0), Duration::from_millis(300));
        assert_eq!(WAIT.jittered(3, 0.5, 1.0), Duration::from_secs(1));
        assert_eq!(spread(Duration::from_secs(1), 0.5, 1.0), Duration::from_millis(1_500));
    }
}
