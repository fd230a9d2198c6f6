//! Owns the flags of health checks: when a command is ready, and whether it still is well. Never runs a check.

use std::time::Duration;

use afresh_core::definition::Port;
use afresh_core::health::{HealthCheck, Probe};
use afresh_core::time::parse_duration;
use clap::Args;
use serde_json::Value;

/// The health check, as flags.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Health")]
pub(crate) struct HealthFlags {
    /// It is well when a GET of this URL is answered with a status from 200 to 299
    #[arg(long, value_name = "URL", group = "probe")]
    health_http: Option<String>,
    /// And the answer is JSON in which this field has this value, such as `healthy=true`; dots lead into
    /// objects and lists
    #[arg(long, value_name = "FIELD=VALUE", requires = "health_http", value_parser = parse_field)]
    health_json: Option<(String, Value)>,
    /// It is well when a connection to this address can be made. One that hangs still takes connections
    #[arg(long, value_name = "HOST:PORT", group = "probe")]
    health_tcp: Option<String>,
    /// It is well when this command exits with 0; its words are separated by spaces, no shell is involved
    #[arg(long, value_name = "CMD", group = "probe")]
    health_exec: Option<String>,
    /// It is well when it answers as an MCP server at this URL, over streamable HTTP
    #[arg(long, value_name = "URL", group = "probe")]
    health_mcp: Option<String>,
    /// The time between two checks, once it is ready [default: 10s]
    #[arg(long, value_name = "TIME", requires = "probe", value_parser = parse_duration)]
    health_interval: Option<Duration>,
    /// An answer later than this is none [default: 10s]
    #[arg(long, value_name = "TIME", requires = "probe", value_parser = parse_duration)]
    health_timeout: Option<Duration>,
    /// So many failures in a row count as a crash, and twice as many while its processes work
    /// [default: 3]
    #[arg(long, value_name = "N", requires = "probe", value_parser = clap::value_parser!(u32).range(1..))]
    health_failures: Option<u32>,
    /// One that is not ready this long after its start counts as crashed; 0s waits for ever
    /// [default: 1m]
    #[arg(long, value_name = "TIME", requires = "probe", value_parser = parse_duration)]
    ready_timeout: Option<Duration>,
    /// The port that it must have for itself: it is not started while another program listens there
    #[arg(long, value_name = "[HOST:]PORT", value_parser = parse_port)]
    port: Option<Port>,
}

impl HealthFlags {
    /// The check; none where none is asked for.
    pub(crate) fn check(&self) -> Option<HealthCheck> {
        let http = self.health_http.clone().map(|url| Probe::Http {
            url,
            status: None,
            json: self.health_json.clone(),
            headers: Vec::new(),
        });
        let tcp = self.health_tcp.clone().map(|address| Probe::Tcp { address });
        let exec = self.health_exec.as_deref().map(|command| Probe::Exec {
            command: command.split_whitespace().map(str::to_owned).collect(),
        });
        let mcp = self.health_mcp.clone().map(|url| Probe::Mcp { url });
        let usual = HealthCheck::new(http.or(tcp).or(exec).or(mcp)?);
        let interval = self.health_interval.unwrap_or(usual.interval);
        Some(HealthCheck {
            interval,
            ready_interval: usual.ready_interval.min(interval),
            timeout: self.health_timeout.unwrap_or(usual.timeout),
            failures_max: self.health_failures.unwrap_or(usual.failures_max),
            ready_timeout: match self.ready_timeout {
                Some(Duration::ZERO) => None,
                Some(timeout) => Some(timeout),
                None => usual.ready_timeout,
            },
            ..usual
        })
    }

    /// The port; none where any will do.
    pub(crate) fn port(&self) -> Option<Port> {
        self.port.clone()
    }
}

/// A value that is no JSON is a text.
fn parse_field(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((field, value)) if !field.is_empty() => {
            let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            Ok((field.to_owned(), value))
        }
        _ => Err(format!("`{text}` is not of the form FIELD=VALUE")),
    }
}

fn parse_port(text: &str) -> Result<Port, String> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("localhost", text));
    match port.parse() {
        Ok(port) if port > 0 && !host.is_empty() => Ok(Port { host: host.to_owned(), port }),
        _ => Err(format!("`{text}` is not of the form PORT or HOST:PORT")),
    }
}
