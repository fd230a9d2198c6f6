//! Owns the events of health: each is one record of the trail and one line of the log.

use std::time::Duration;

use serde_json::{Value, json};

use crate::audit::{EventType, Level};
use crate::time::show_duration;

/// Something that people and programs are told about the health of a service.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An instance has passed its first check.
    Ready {
        /// This long after its start.
        after: Duration,
    },
    /// An instance has not passed a check yet, although it has had some time.
    NotReady {
        /// This long after its start.
        after: Duration,
        /// What the last check said.
        why: String,
    },
    /// A check of a service that was ready has failed.
    CheckFailed {
        /// The how-manieth in a row.
        failures: u32,
        /// How many in a row are too many.
        failures_max: u32,
        /// What is wrong.
        why: String,
    },
    /// The first check after good ones has failed.
    Degraded {
        /// What is wrong.
        why: String,
    },
    /// A check was fine again.
    WellAgain {
        /// After this many that failed.
        failures: u32,
        /// And after this time.
        after: Duration,
    },
}

impl Event {
    /// Level, type, sentence and fields of the record. `title` is how people call the service.
    pub(crate) fn parts(
        &self,
        title: &str,
    ) -> (Level, EventType, String, Vec<(&'static str, Value)>) {
        match self {
            Self::Ready { after } => (
                Level::Info,
                EventType::HealthReady,
                format!("{title} is ready, after {}", show_duration(*after)),
                vec![("after_ms", millis(*after))],
            ),
            Self::NotReady { after, why } => (
                Level::Warning,
                EventType::HealthNotReady,
                format!("{title} is not ready yet, after {}: {why}", show_duration(*after)),
                vec![("after_ms", millis(*after)), ("error", json!(why))],
            ),
            Self::CheckFailed { failures, failures_max, why } => {
                let count = match failures > failures_max {
                    false => format!("{failures} of {failures_max}"),
                    true => format!("{failures} in a row, but it works"),
                };
                (
                    Level::Warning,
                    EventType::HealthCheckFailed,
                    format!("{title} failed its health check ({count}): {why}"),
                    vec![
                        ("failures", json!(failures)),
                        ("failures_max", json!(failures_max)),
                        ("error", json!(why)),
                    ],
                )
            }
            Self::Degraded { why } => (
                Level::Warning,
                EventType::HealthDegraded,
                format!("{title} is degraded: {why}"),
                vec![("error", json!(why))],
            ),
            Self::WellAgain { failures, after } => (
                Level::Info,
                EventType::HealthRecovered,
                format!("{title} is well again, after {}", show_duration(*after)),
                vec![("failures", json!(failures)), ("after_ms", millis(*after))],
            ),
        }
    }
}

fn millis(duration: Duration) -> Value {
    json!(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
