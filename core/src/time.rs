//! Owns time as core sees it: the time since the start, wall-clock stamps. Used
//! everywhere. Never reads a clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;

/// A moment, as the time since the supervisor started (monotonic).
///
/// Not an `Instant`, so that a log of `(Time, Input)` can be saved and replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(Duration);

impl Time {
    /// The start of the supervisor.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// The moment this long after the start.
    pub const fn after_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How long after the start this moment is.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// The time from `earlier` to this moment; zero where `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }
}

impl Sub<Duration> for Time {
    type Output = Self;

    fn sub(self, earlier: Duration) -> Self {
        Self(self.0.saturating_sub(earlier))
    }
}

/// A wall-clock stamp: the time since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(Duration);

impl Stamp {
    /// The stamp this long after 1970-01-01 UTC.
    pub const fn since_unix_epoch(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// Seconds since 1970-01-01 UTC, with fractions.
    pub fn unix_seconds(self) -> f64 {
        self.0.as_secs_f64()
    }

    /// Nanoseconds since 1970-01-01 UTC.
    pub fn unix_nanos(self) -> u128 {
        self.0.as_nanos()
    }

    /// The stamp that much earlier; 1970 at the earliest.
    pub fn earlier_by(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(by))
    }

    /// The stamp that much later.
    pub fn later_by(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }

    /// The time from `earlier` to this stamp; zero where `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Reads RFC 3339, such as `2026-11-15T08:42:00.123Z`; nothing before 1970.
    pub fn parse(text: &str) -> Option<Self> {
        let time = Timestamp::from_str(text).ok()?;
        Duration::try_from(time.as_duration()).ok().map(Self)
    }
}

impl fmt::Display for Stamp {
    /// RFC 3339 with milliseconds, in UTC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX);
        // The year 9999 is the last that RFC 3339 has.
        write!(f, "{:.3}", Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_rfc_3339_with_milliseconds() {
        let cases = [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, 999, "2000-02-28T23:59:59.999Z"),
            (951_782_400, 0, "2000-02-29T00:00:00.000Z"),
            (1_763_196_120, 7, "2025-11-15T08:42:00.007Z"),
            (4_107_542_399, 0, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000Z"),
        ];
        for (seconds, millis, text) in cases {
            let stamp = Stamp::since_unix_epoch(Duration::new(seconds, millis * 1_000_000));
            assert_eq!(stamp.to_string(), text);
            assert_eq!(Stamp::parse(text), Some(stamp));
        }
    }

    #[test]
    fn what_is_no_stamp_is_refused() {
        for text in [
            "",
            "2026",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.xZ",
            "+026-01-01T00:00:00Z",
            "2026-01-01-01T00:00:00Z",
        ] {
            assert_eq!(Stamp::parse(text), None, "{text}");
        }
    }
}
