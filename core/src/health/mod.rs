//! Owns health checks: the definition of a check with its login, its status and events, and the meaning of answers.
//!
//! `readiness_and_failures.rs` decides when to ask and what follows; `http.rs` and `mcp.rs` judge answers. Never asks anything
//! itself.

mod http;
pub mod mcp;
mod readiness_and_failures;
#[cfg(test)]
mod tests;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::http::judge_http;
pub use self::readiness_and_failures::{Effect, Health, Input, Verdict};
use crate::audit::{EventType, Level};
use crate::base64;
use crate::duration::show_duration;
use crate::exponential_wait::ExponentialWait;
use crate::limits::HEALTH_PATIENCE_MIN;

/// How a service is checked.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthCheck {
    /// What is asked.
    pub probe: Probe,
    /// The time between two checks of a service that is ready.
    pub interval: Duration,
    /// The time between two checks of one that is not ready yet.
    pub ready_interval: Duration,
    /// An answer later than this is none.
    pub timeout: Duration,
    /// This many failures in a row of a service that was ready count as a crash.
    pub failures_max: u32,
    /// A service that is not ready this long after its start counts as crashed; none waits for ever.
    pub ready_timeout: Option<Duration>,
    /// Whether the name and the password of `opencode serve`, which only the environment of a start has, are sent as
    /// HTTP basic authentication; see [`HealthCheck::for_start`]. Without a password, nothing is sent.
    pub is_opencode: bool,
}

/// What is asked of a service.
#[derive(Clone, Debug, PartialEq)]
pub enum Probe {
    /// `GET` of a URL.
    Http {
        /// `http://host:port/path`, or `https://`.
        url: String,
        /// The status that is wanted; none takes any from 200 to 299.
        status: Option<u16>,
        /// A field of the JSON answer, as a path with dots, and the value it must have.
        json: Option<(String, Value)>,
        /// Headers that are sent.
        headers: Vec<(String, String)>,
    },
    /// A connection can be made.
    Tcp {
        /// `host:port`.
        address: String,
    },
    /// A command that ends with 0. Started in the service's folder, with its environment.
    Exec {
        /// The program and its arguments.
        command: Vec<String>,
    },
    /// An MCP server behind streamable HTTP: `ping` up to 2025-11-25, `server/discover` after.
    Mcp {
        /// Its URL.
        url: String,
    },
}

impl HealthCheck {
    /// A check with the usual times.
    pub const fn new(probe: Probe) -> Self {
        Self {
            probe,
            interval: Duration::from_secs(10),
            ready_interval: Duration::from_millis(250),
            timeout: Duration::from_secs(10),
            failures_max: 3,
            ready_timeout: Some(Duration::from_secs(60)),
            is_opencode: false,
        }
    }

    /// How long a probe may take: of a service that was ready, or of one that is not after so many that
    /// got no answer.
    ///
    /// A server can open its port before it is able to answer, and lose for ever what comes then, as
    /// opencode does. So the first requests are given up soon, and each further one has twice as long.
    fn patience(&self, silences: Option<u32>) -> Duration {
        match (&self.probe, silences) {
            (Probe::Http { .. } | Probe::Mcp { .. }, Some(silences)) => {
                ExponentialWait::doubling(HEALTH_PATIENCE_MIN, self.timeout).after(silences)
            }
            _ => self.timeout,
        }
    }
}

impl HealthCheck {
    /// The check for one start of the service: `variable` looks into the environment that it gets,
    /// which is afresh's own, its `env_file` and its `env` together.
    pub fn for_start(&self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut check = self.clone();
        let set = |name| variable(name).filter(|value| !value.is_empty());
        if std::mem::take(&mut check.is_opencode)
            && let Some(password) = set("OPENCODE_SERVER_PASSWORD")
            && let Probe::Http { headers, .. } = &mut check.probe
            // A configured header of this name takes precedence.
            && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
        {
            let name = set("OPENCODE_SERVER_USERNAME").unwrap_or("opencode".to_owned());
            let value =
                format!("Basic {}", base64::encode(format!("{name}:{password}").as_bytes()));
            headers.push(("Authorization".to_owned(), value));
        }
        check
    }
}

/// What its checks say of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HealthStatus {
    /// In one word.
    pub state: HealthState,
    /// Checks in a row that have failed since it was last well.
    pub failures: u32,
    /// Why the last check failed; none after one that did not.
    pub last_error: Option<String>,
    /// How long the last answer took that was a good one.
    pub latency_ms: Option<u64>,
    /// When the last check ended, RFC 3339 in UTC.
    #[schemars(extend("format" = "date-time"))]
    pub checked_at: Option<String>,
}

/// How well a service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    /// Nothing runs that could be asked.
    Unknown,
    /// It runs, and has not passed a check yet.
    Starting,
    /// The last check was fine.
    Healthy,
    /// The last check has failed; it is asked again before anything is done about it.
    Degraded,
    /// Enough checks have failed: it is being restarted.
    Unhealthy,
}

impl HealthState {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Starting => "starting",
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
        }
    }
}

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
