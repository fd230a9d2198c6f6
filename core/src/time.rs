//! Owns time as core sees it: the time since the start, wall-clock stamps, and durations as users write them. Used
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

/// Why a duration could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a duration: write a number and a unit, such as `500ms`, `2s`, `1m`, `1h30m` or `7d`"
)]
pub struct ParseDurationError(String);

/// Reads `500ms`, `1.5s`, `1m`, `1h30m`, `7d` or a bare `0`.
pub fn parse_duration(text: &str) -> Result<Duration, ParseDurationError> {
    let error = || ParseDurationError(text.to_owned());
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(error());
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
        let number: f64 = rest[..digits].parse().map_err(|_| error())?;
        let unit_len =
            rest[digits..].find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len() - digits);
        let unit = match &rest[digits..digits + unit_len] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(error()),
        };
        let part = Duration::try_from_secs_f64(number * unit).map_err(|_| error())?;
        total = total.checked_add(part).ok_or_else(error)?;
        rest = &rest[digits + unit_len..];
    }
    Ok(total)
}

/// Writes a duration as people read it: `850 µs`, `12 ms`, `1.5 s`, `2 m 5 s`, `3 h 4 m`, `2 d 1 h`.
pub fn show_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let pair = |big: u64, big_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{big} {big_unit}"),
        _ => format!("{big} {big_unit} {small} {small_unit}"),
    };
    match duration.as_millis() {
        0 if duration.is_zero() => "0 s".to_owned(),
        0 => format!("{} µs", duration.as_micros()),
        millis @ 1..1_000 => format!("{millis} ms"),
        1_000..60_000 => {
            let tenths = duration.as_millis() / 100;
            match tenths % 10 {
                0 => format!("{} s", tenths / 10),
                tenth => format!("{}.{tenth} s", tenths / 10),
            }
        }
        60_000..3_600_000 => pair(seconds / 60, "m", seconds % 60, "s"),
        3_600_000..86_400_000 => pair(seconds / 3600, "h", seconds / 60 % 60, "m"),
        _ => pair(seconds / 86_400, "d", seconds / 3600 % 24, "h"),
    }
}

/// Writes a duration in the form that [`parse_duration`] reads.
pub fn write_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0 => "0s".to_owned(),
        _ if millis.is_multiple_of(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
        _ => format!("{millis}ms"),
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

    #[test]
    fn durations_are_read_and_written() {
        let cases = [
            ("500ms", 500),
            ("1.5s", 1_500),
            ("1m", 60_000),
            ("1h30m", 5_400_000),
            ("0", 0),
            ("7d", 604_800_000),
        ];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for millis in [0, 1, 999, 1_000, 1_500, 60_000, 61_000, 3_600_000, 86_400_000] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(&write_duration(duration)), Ok(duration));
        }
        for text in [
            "",
            "5",
            "s",
            "1 s",
            "-1s",
            "1x",
            "1s2",
            "1e9s",
            "99999999999999999999d",
            "1.2.3s",
            "NaNs",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_shown_for_people() {
        let cases = [
            (0, "0 s"),
            (850, "850 µs"),
            (12_000, "12 ms"),
            (1_500_000, "1.5 s"),
            (2_000_000, "2 s"),
            (125_000_000, "2 m 5 s"),
            (11_040_000_000, "3 h 4 m"),
            (176_400_000_000, "2 d 1 h"),
        ];
        for (micros, text) in cases {
            assert_eq!(show_duration(Duration::from_micros(micros)), text);
        }
    }
}
