//! Owns the restart marker, a JSON object that says who restarted last, when and why (R5), and the verification of a
//! restart by it (R6). Never reads or writes the file.

use serde::Serialize;
use serde_json::{Value, json};

use super::redact::redact_text;
use crate::time::Stamp;

/// What the marker file says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Marker {
    /// When the restart was asked for, in Unix seconds.
    pub timestamp: f64,
    /// The process that restarts.
    pub pid: u32,
    /// Why, as its caller said it, without secrets.
    pub reason: String,
    /// `timestamp` in RFC 3339.
    pub iso_time: String,
    /// The service that restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The process before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_pid: Option<u32>,
}

impl Marker {
    /// The marker of a restart.
    pub fn new(stamp: Stamp, pid: u32, reason: &str) -> Self {
        Self {
            timestamp: to_micros(stamp.unix_seconds()),
            pid,
            reason: redact_text(reason).into_owned(),
            iso_time: stamp.to_string(),
            service: None,
            previous_pid: None,
        }
    }

    /// The content of the marker file.
    pub fn to_json(&self) -> Value {
        json!(self)
    }

    /// Reads the content of a marker file; fields that are not known are passed over.
    pub fn parse(text: &str) -> Result<Self, ParseMarkerError> {
        let value: Value =
            serde_json::from_str(text).map_err(|e| ParseMarkerError(e.to_string()))?;
        let missing = |name: &str| {
            ParseMarkerError(format!("field `{name}` is missing or of the wrong type"))
        };
        let text_of = |name: &str| value[name].as_str().map(str::to_owned);
        let pid_of = |name: &str| value[name].as_u64().and_then(|pid| u32::try_from(pid).ok());
        Ok(Self {
            timestamp: value["timestamp"]
                .as_f64()
                .map(to_micros)
                .ok_or_else(|| missing("timestamp"))?,
            pid: pid_of("pid").ok_or_else(|| missing("pid"))?,
            reason: text_of("reason").ok_or_else(|| missing("reason"))?,
            iso_time: text_of("iso_time").ok_or_else(|| missing("iso_time"))?,
            service: text_of("service"),
            previous_pid: pid_of("previous_pid"),
        })
    }
}

/// Reading JSON may change the last digit of a number; in microseconds it reads as it was written,
/// so that stamps can be compared.
fn to_micros(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

/// Why a text is no marker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a restart marker: {0}")]
pub struct ParseMarkerError(String);

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

    #[test]
    fn a_marker_survives_writing_and_reading() {
        let stamp = Stamp::since_unix_epoch(Duration::from_millis(1_763_196_120_250));
        let mut marker = Marker::new(stamp, 7, "new code, token=abc");
        assert_eq!(
            marker.to_json().to_string(),
            concat!(
                r#"{"timestamp":1763196120.25,"pid":7,"reason":"new code, token=[redacted]","#,
                r#""iso_time":"2025-11-15T08:42:00.250Z"}"#
            )
        );
        marker.service = Some("docs".to_owned());
        marker.previous_pid = Some(6);
        assert_eq!(Marker::parse(&marker.to_json().to_string()), Ok(marker));
    }

    #[test]
    fn the_time_does_not_change_by_writing_and_reading() {
        for nanos in (0..1_000_000_000).step_by(999_983) {
            let stamp = Stamp::since_unix_epoch(Duration::new(1_794_734_211, nanos));
            let marker = Marker::new(stamp, 7, "");
            assert_eq!(Marker::parse(&marker.to_json().to_string()), Ok(marker));
        }
    }

    #[test]
    fn fields_that_are_not_known_are_passed_over() {
        let text = r#"{"later":[1],"timestamp":5,"pid":7,"reason":"","iso_time":"x","service":3}"#;
        let marker = Marker::parse(text).unwrap();
        assert_eq!((marker.timestamp, marker.pid, marker.service), (5.0, 7, None));
    }

    #[test]
    fn what_is_no_marker_is_refused() {
        for text in [
            "",
            "{",
            "[]",
            "null",
            "{}",
            r#"{"timestamp":"5","pid":7,"reason":"","iso_time":""}"#,
            r#"{"timestamp":5,"pid":-7,"reason":"","iso_time":""}"#,
            r#"{"timestamp":5,"pid":7,"iso_time":""}"#,
        ] {
            assert!(Marker::parse(text).is_err(), "{text}");
        }
    }

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
