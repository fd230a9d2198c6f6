//! Owns the health of a service at one moment, for status and the control API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
