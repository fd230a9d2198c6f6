//! The restart marker: who restarted last, when and why, as a JSON object (R5).

use std::fmt;

use serde_json::{Map, Value};

use super::redact::redact_text;
use crate::time::Stamp;

/// What the marker file says.
#[derive(Clone, Debug, PartialEq)]
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
    pub service: Option<String>,
    /// The process before this one.
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
        let mut fields = Map::new();
        fields.insert("timestamp".to_owned(), self.timestamp.into());
        fields.insert("pid".to_owned(), self.pid.into());
        fields.insert("reason".to_owned(), self.reason.as_str().into());
        fields.insert("iso_time".to_owned(), self.iso_time.as_str().into());
        if let Some(service) = &self.service {
            fields.insert("service".to_owned(), service.as_str().into());
        }
        if let Some(pid) = self.previous_pid {
            fields.insert("previous_pid".to_owned(), pid.into());
        }
        Value::Object(fields)
    }

    /// Reads the content of a marker file; fields that are not known are passed over.
    pub fn parse(text: &str) -> Result<Self, ParseMarkerError> {
        let error = |problem: String| ParseMarkerError { problem };
        let value: Value = serde_json::from_str(text).map_err(|e| error(e.to_string()))?;
        let missing = |name: &str| error(format!("field `{name}` is missing or of the wrong type"));
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseMarkerError {
    problem: String,
}

impl fmt::Display for ParseMarkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a restart marker: {}", self.problem)
    }
}

impl std::error::Error for ParseMarkerError {}

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
}
