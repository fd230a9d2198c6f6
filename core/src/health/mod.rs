//! Owns health checks: the definition of a check, its machine, and the meaning of answers.
//!
//! `machine.rs` decides when to ask and what follows; `answer.rs` reads what came back, `mcp.rs` from
//! MCP servers; `status.rs` and `event.rs` are what is shown and told of it.

mod answer;
mod event;
mod machine;
pub mod mcp;
mod status;
#[cfg(test)]
mod tests;

pub(crate) mod login;

use std::time::Duration;

pub use self::answer::judge_http;
pub use self::event::Event;
pub use self::login::Login;
pub use self::machine::{Effect, Health, Input, Verdict};
pub use self::status::{HealthState, HealthStatus};
use crate::backoff::ExponentialWait;
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
    /// Who is asking, where only the environment of a start knows; see [`HealthCheck::for_start`].
    pub login: Option<Login>,
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
        json: Option<(String, serde_json::Value)>,
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
            login: None,
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
