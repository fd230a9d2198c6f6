//! Owns the verification of a restart by its marker (R6). Driven by the tools of `afresh mcp`. Never reads the file.

use serde_json::{Value, json};

use super::marker::Marker;
use crate::time::Stamp;

/// The answer to the question, with the names that agents know.
#[derive(Clone, Debug, PartialEq)]
pub struct Verification {
    /// Whether it was.
    pub restarted: bool,
    /// Why not.
    pub error: Option<String>,
    /// All of it.
    pub data: Value,
}

/// Looks at the marker of the last restart. `marker` says what is wrong where there is none;
/// `current_pid` is the process that serves now.
pub fn verify(
    marker: Result<&Marker, String>,
    since: f64,
    now: Stamp,
    current_pid: Option<u32>,
) -> Verification {
    let error = match marker.as_ref() {
        Err(why) => Some(why.clone()),
        Ok(marker) if marker.timestamp < since => Some(format!(
            "the last restart ({}) is older than since_timestamp",
            marker.iso_time
        )),
        Ok(_) if current_pid.is_none() => {
            Some("a restart was asked for, but no new instance is ready yet".to_owned())
        }
        Ok(marker) if current_pid == Some(marker.pid) => Some(
            "a restart was asked for, but the same process still serves: the new one is not ready, \
             or did not start"
                .to_owned(),
        ),
        Ok(_) => None,
    };
    let of = |value: fn(&Marker) -> Value| marker.as_ref().map_or(Value::Null, |m| value(m));
    let elapsed = marker.as_ref().map(|marker| {
        let seconds = (now.unix_seconds() - marker.timestamp).max(0.0);
        (seconds * 1e3).round() / 1e3
    });
    let mut data = json!({
        "restarted": error.is_none(),
        "restart_timestamp": of(|marker| marker.timestamp.into()),
        "current_pid": current_pid,
        // None was running where it is 0.
        "previous_pid": of(|marker| Some(marker.pid).filter(|pid| *pid != 0).into()),
        "reason": of(|marker| marker.reason.as_str().into()),
        "time_since_restart": elapsed.ok(),
        "iso_time": of(|marker| marker.iso_time.as_str().into()),
    });
    if let Some(error) = &error {
        data["error"] = error.as_str().into();
    }
    Verification { restarted: error.is_none(), error, data }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn stamp(seconds: u64) -> Stamp {
        Stamp::since_unix_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn a_restart_is_verified_or_it_is_said_why_not() {
        let marker = Marker::new(stamp(1_000), 7, "new code");
        let ask = |marker, since, pid| verify(marker, since, stamp(1_010), pid);
        let good = ask(Ok(&marker), 1_000.0, Some(8));
        assert!(good.restarted && good.error.is_none());
        let expected = json!({
            "restarted": true, "restart_timestamp": 1000.0, "current_pid": 8, "previous_pid": 7,
            "reason": "new code", "time_since_restart": 10.0, "iso_time": "1970-01-01T00:16:40.000Z",
        });
        assert_eq!(good.data, expected);
        let cases = [
            (ask(Ok(&marker), 1_000.1, Some(8)), "older"),
            (ask(Ok(&marker), 1_000.0, Some(7)), "same process"),
            (ask(Ok(&marker), 1_000.0, None), "ready"),
            (ask(Err("it is corrupt".to_owned()), 0.0, Some(8)), "corrupt"),
        ];
        for (bad, word) in cases {
            assert!(!bad.restarted);
            assert_eq!(bad.data["restarted"], false);
            assert!(bad.data["error"].as_str().is_some_and(|error| error.contains(word)), "{word}");
        }
    }
}
