//! Owns the count of crashes and the decision that follows one: the wait, the crash loop, giving up.
//!
//! Driven by [`Service`](super::Service). Never spawns: it returns the delay.

use std::collections::VecDeque;
use std::time::Duration;

use crate::exponential_wait::ExponentialWait;
use crate::limits::CRASH_LOOP_DELAY_MIN;
use crate::policy::{Backoff, Policy};
use crate::random::Random;
use crate::time::Time;

/// The record of crashes that decides on the next wait.
#[derive(Debug)]
pub(super) struct CrashHistory {
    pub(super) counts: CrashCounts,
    /// What the counts were before the last crash.
    before: Option<CrashCounts>,
    /// Restarts of every kind, for the eye.
    pub(super) restarts: u64,
    /// When the last requested restart was carried out.
    pub(super) last_requested: Option<Time>,
    random: Random,
}

#[derive(Clone, Debug, Default)]
pub(super) struct CrashCounts {
    /// Crashes since the last stable run.
    pub(super) consecutive: u32,
    /// In a crash loop: said once, until a stable run.
    pub(super) looping: bool,
    /// Users were told of a crash loop or of giving up, and not yet that it is over. A user's start
    /// forgets the crashes, but not this.
    pub(super) unwell: bool,
    /// Crashes within the sliding window; never more than the loop's count.
    recent: VecDeque<Time>,
}

/// What follows a crash.
#[derive(Debug, PartialEq)]
pub(super) enum CrashVerdict {
    /// Try again after this long.
    Retry {
        delay: Duration,
        /// The crash loop has just been detected.
        loop_begins: bool,
    },
    /// The last allowed restart has failed.
    GiveUp,
}

impl CrashHistory {
    pub(super) fn new(seed: u64) -> Self {
        let (counts, random) = (CrashCounts::default(), Random::new(seed));
        Self { counts, before: None, restarts: 0, last_requested: None, random }
    }

    /// Forgets the crashes: a stable run, or a user's start.
    pub(super) fn forget(&mut self) {
        self.counts = CrashCounts { unwell: self.counts.unwell, ..CrashCounts::default() };
        self.before = None;
    }

    /// Whether crashes are remembered that a stable run makes forgotten.
    pub(super) const fn is_on_probation(&self) -> bool {
        self.counts.consecutive > 0 || self.counts.unwell
    }

    /// A stable run ends the probation; says whether users were told that it was unwell.
    pub(super) fn end_probation(&mut self) -> bool {
        self.forget();
        std::mem::take(&mut self.counts.unwell)
    }

    /// The last crash was none.
    pub(super) fn uncount(&mut self) {
        if let Some(before) = self.before.take() {
            self.counts = before;
        }
    }

    /// Counts a crash of an instance that ran for `uptime`.
    pub(super) fn crashed(&mut self, now: Time, uptime: Duration, policy: &Policy) -> CrashVerdict {
        if uptime > policy.stable_after {
            self.forget();
        }
        self.before = Some(self.counts.clone());
        let counts = &mut self.counts;
        counts.consecutive = counts.consecutive.saturating_add(1);
        if policy.max_restarts > 0 && counts.consecutive > policy.max_restarts {
            counts.unwell = true;
            return CrashVerdict::GiveUp;
        }
        let loop_begins = counts.are_loop(now, policy) && !counts.looping;
        counts.looping |= loop_begins;
        counts.unwell |= loop_begins;
        CrashVerdict::Retry { delay: self.delay(policy), loop_begins }
    }

    /// The earliest moment for the next requested restart.
    pub(super) fn requested_restart_at(&self, now: Time, policy: &Policy) -> Time {
        self.last_requested.map_or(now, |last| now.max(last + policy.throttle))
    }

    fn delay(&mut self, policy: &Policy) -> Duration {
        let mut crash = self.counts.consecutive;
        if policy.first_at_once {
            if crash == 1 {
                return Duration::ZERO;
            }
            crash -= 1;
        }
        match policy.backoff {
            Backoff::Exponential { base, factor, cap, jitter_percent } => {
                let wait = ExponentialWait::new(base, factor, cap);
                let mut delay = wait.after(crash - 1);
                if self.counts.looping {
                    // A wait of zero grows to zero: a loop needs a floor of its own.
                    let rounds = self.counts.consecutive.saturating_sub(policy.crash_loop_count);
                    let floor = ExponentialWait::new(CRASH_LOOP_DELAY_MIN, factor.max(2.0), cap);
                    delay = delay.max(floor.after(rounds));
                }
                wait.spread(delay, f64::from(jitter_percent) / 100.0, self.random.unit())
            }
            Backoff::Stepped => Duration::from_secs(match crash {
                0..=3 => 1,
                4..=10 => 5,
                _ => 10,
            }),
        }
    }
}

impl CrashCounts {
    /// Counts a crash; says whether so many within the window are a loop.
    fn are_loop(&mut self, now: Time, policy: &Policy) -> bool {
        let count = policy.crash_loop_count as usize;
        if count == 0 {
            return false;
        }
        self.recent.push_back(now);
        while self.recent.len() > count {
            self.recent.pop_front();
        }
        let oldest = self.recent.front().copied().unwrap_or(now);
        self.recent.len() == count && now.since(oldest) <= policy.crash_loop_window
    }
}

impl Backoff {
    /// The wait before the next spare, by those in a row that have failed. Never none: a spare that
    /// does not stay must not keep the machine busy.
    pub(super) fn spare_delay(&self, failures: u32) -> Duration {
        let (base, factor, cap) = match self {
            Self::Exponential { base, factor, cap, .. } => (*base, *factor, *cap),
            Self::Stepped => (Duration::from_secs(1), 2.0, Duration::from_secs(10)),
        };
        let base = base.max(CRASH_LOOP_DELAY_MIN);
        let waits = ExponentialWait::new(base, factor.max(2.0), cap.max(base));
        waits.after(failures.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(base: Duration, cap: Duration) -> Policy {
        Policy {
            backoff: Backoff::Exponential { base, factor: 2.0, cap, jitter_percent: 0 },
            max_restarts: 0,
            ..Policy::default()
        }
    }

    /// The waits after crashes that come one after another, each right after its start.
    fn delays(policy: &Policy, crashes: u32, seed: u64) -> Vec<Duration> {
        let mut restarts = CrashHistory::new(seed);
        let mut now = Time::ZERO;
        (0..crashes)
            .map(|_| match restarts.crashed(now, Duration::ZERO, policy) {
                CrashVerdict::Retry { delay, .. } => {
                    now = now + delay;
                    delay
                }
                CrashVerdict::GiveUp => panic!("gave up"),
            })
            .collect()
    }

    #[test]
    fn waits_double_up_to_the_cap() {
        // G3 O1 O5
        let policy = exact(Duration::from_secs(1), Duration::from_secs(60));
        let seconds: Vec<u64> = delays(&policy, 9, 1).iter().map(Duration::as_secs).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn jitter_adds_up_to_half_and_stays_inside_the_cap() {
        // G3
        let mut seen = (f64::MAX, 0.0_f64);
        for seed in 0..500 {
            let all = delays(&Policy { max_restarts: 0, ..Policy::default() }, 8, seed);
            for (n, delay) in all.iter().enumerate() {
                let plain = f64::from(1 << n).min(60.0);
                let delay = delay.as_secs_f64();
                assert!(
                    delay >= plain.min(60.0) && delay <= (plain * 1.5).min(60.0),
                    "{n}: {delay}"
                );
                if n == 0 {
                    seen = (seen.0.min(delay), seen.1.max(delay));
                }
            }
        }
        assert!(seen.0 < 1.02 && seen.1 > 1.48, "jitter covers its range: {seen:?}");
    }

    #[test]
    fn stepped_waits_follow_the_table() {
        // W5
        let policy = Policy { backoff: Backoff::Stepped, max_restarts: 0, ..Policy::default() };
        let seconds: Vec<u64> = delays(&policy, 12, 1).iter().map(Duration::as_secs).collect();
        assert_eq!(seconds, [1, 1, 1, 5, 5, 5, 5, 5, 5, 5, 10, 10]);
    }

    #[test]
    fn a_loop_with_no_delay_gets_one() {
        // W12
        let policy = exact(Duration::ZERO, Duration::from_secs(60));
        let millis: Vec<u128> = delays(&policy, 6, 1).iter().map(Duration::as_millis).collect();
        assert_eq!(millis, [0, 0, 1_000, 2_000, 4_000, 8_000]);
    }

    #[test]
    fn the_first_crash_can_be_free() {
        // G3
        let policy = Policy {
            first_at_once: true,
            ..exact(Duration::from_secs(1), Duration::from_secs(60))
        };
        let seconds: Vec<u64> = delays(&policy, 4, 1).iter().map(Duration::as_secs).collect();
        assert_eq!(seconds, [0, 1, 2, 4]);
    }

    #[test]
    fn three_crashes_in_a_sliding_minute_are_a_loop() {
        // O5
        let policy = exact(Duration::from_secs(1), Duration::from_secs(60));
        let at = |seconds| Time::after_start(Duration::from_secs(seconds));
        // Spaced so that a fixed window would see two and two, or all four.
        let cases = [
            (vec![0, 30, 60], true),
            (vec![0, 30, 61], false),
            (vec![0, 50, 100, 110], true),
            (vec![0, 40, 80, 120], false),
        ];
        for (crashes, expected) in cases {
            let mut restarts = CrashHistory::new(1);
            for crash in &crashes {
                restarts.crashed(at(*crash), Duration::from_secs(5), &policy);
            }
            assert_eq!(restarts.counts.looping, expected, "{crashes:?}");
        }
    }

    #[test]
    fn a_stable_run_begins_the_count_anew() {
        // G3 O5
        let policy = exact(Duration::from_secs(1), Duration::from_secs(60));
        let mut restarts = CrashHistory::new(1);
        for _ in 0..4 {
            restarts.crashed(Time::ZERO, Duration::ZERO, &policy);
        }
        assert!(restarts.counts.looping);
        let exactly = restarts.crashed(Time::ZERO, Duration::from_secs(60), &policy);
        assert_eq!(
            exactly,
            CrashVerdict::Retry { delay: Duration::from_secs(16), loop_begins: false }
        );
        let more = restarts.crashed(Time::ZERO, Duration::from_millis(60_001), &policy);
        assert_eq!(more, CrashVerdict::Retry { delay: Duration::from_secs(1), loop_begins: false });
        assert!(!restarts.counts.looping);
    }

    #[test]
    fn it_gives_up_after_the_last_allowed_restart() {
        // O6
        let policy = Policy::default();
        let mut restarts = CrashHistory::new(1);
        for n in 1..=6 {
            let verdict = restarts.crashed(Time::ZERO, Duration::ZERO, &policy);
            assert_eq!(verdict == CrashVerdict::GiveUp, n == 6, "crash {n}");
        }
    }

    #[test]
    fn requested_restarts_are_a_second_apart() {
        // W4
        let policy = Policy::default();
        let mut restarts = CrashHistory::new(1);
        let now = Time::after_start(Duration::from_secs(10));
        assert_eq!(restarts.requested_restart_at(now, &policy), now);
        restarts.last_requested = Some(now);
        let soon = now + Duration::from_millis(300);
        assert_eq!(restarts.requested_restart_at(soon, &policy), now + Duration::from_secs(1));
        let late = now + Duration::from_secs(5);
        assert_eq!(restarts.requested_restart_at(late, &policy), late);
    }
}
