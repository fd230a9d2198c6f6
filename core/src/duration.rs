//! Owns how durations are written: as users write them, `1h30m`, and as people read them, `2 m 5 s`. Used everywhere. Never
//! reads a clock.

use std::time::Duration;

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
