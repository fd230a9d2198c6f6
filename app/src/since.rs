//! Owns how `--since` is written: a time ago, or a stamp. Used by the commands about the past. Never reads a file.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use afresh_core::duration::parse_duration;
use afresh_core::time::Stamp;

/// Where the records begin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Since {
    Ago(Duration),
    At(Stamp),
}

impl Since {
    /// When that was.
    pub(crate) fn stamp(self) -> Stamp {
        match self {
            Self::At(stamp) => stamp,
            Self::Ago(ago) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                Stamp::since_unix_epoch(now.unwrap_or_default()).earlier_by(ago)
            }
        }
    }
}

/// Reads `1h`, `2026-11-15`, `2026-11-15T08:42:00Z` or the same with an offset.
pub(crate) fn parse_since(text: &str) -> Result<Since, String> {
    if let Some(stamp) = parse_stamp(text) {
        return Ok(Since::At(stamp));
    }
    parse_duration(text).map(Since::Ago).map_err(|_| {
        "write a time such as `90s`, `1h` or `7d`, or a stamp such as `2026-11-15T08:42:00Z`"
            .to_owned()
    })
}

fn parse_stamp(text: &str) -> Option<Stamp> {
    Stamp::parse(text).or_else(|| Stamp::parse(&format!("{text}T00:00:00Z")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_read_in_every_form_of_rfc_3339() {
        let noon = Stamp::parse("2026-11-15T12:00:00Z");
        for text in [
            "2026-11-15T12:00:00Z",
            "2026-11-15T12:00:00.000Z",
            "2026-11-15T14:00:00+02:00",
            "2026-11-15T06:30:00-05:30",
            "2026-11-15 12:00:00+00:00",
        ] {
            assert_eq!(parse_stamp(text), noon, "{text}");
        }
        assert_eq!(parse_stamp("2026-11-15"), Stamp::parse("2026-11-15T00:00:00Z"));
        for text in [
            "",
            "1h",
            "2026",
            "2026-11-15T12:00:00",
            "2026-11-15T12:00:00+2:00",
            "2026-11-15T12:00:00é02:00",
        ] {
            assert_eq!(parse_stamp(text), None, "{text}");
        }
    }
}
