//! Owns the making of a health check from the entries below `health`. Driven by `service::make`. Never probes.

use super::Table;
use crate::config::keys::service::{
    HEALTH_EXEC, HEALTH_FAILURES, HEALTH_HEADERS, HEALTH_HTTP, HEALTH_INTERVAL, HEALTH_JSON,
    HEALTH_MCP, HEALTH_READY_INTERVAL, HEALTH_READY_TIMEOUT, HEALTH_STATUS, HEALTH_TCP,
    HEALTH_TIMEOUT,
};
use crate::health::{HealthCheck, Probe};
use crate::report::{ConfigError, ErrorKind};

/// Makes the check; none where the table says nothing about health.
pub(super) fn make(table: &Table) -> Result<Option<HealthCheck>, Box<ConfigError>> {
    let Some(first) = table.first_under("health") else { return Ok(None) };
    let Some(probe) = probe(table) else {
        let message = format!("the health of `{}` has nothing that is asked", table.name);
        let hint = "add one of `health.http`, `health.tcp`, `health.exec` and `health.mcp`";
        return Err(first.place.error(ErrorKind::Missing, message, hint.to_owned()).into());
    };
    Ok(Some(HealthCheck {
        interval: HEALTH_INTERVAL.get(table),
        ready_interval: HEALTH_READY_INTERVAL.get(table),
        timeout: HEALTH_TIMEOUT.get(table),
        failures_max: HEALTH_FAILURES.get(table),
        ready_timeout: HEALTH_READY_TIMEOUT.get(table),
        ..HealthCheck::new(probe)
    }))
}

/// The first of what can be asked; the reader has seen to it that there is no second.
fn probe(table: &Table) -> Option<Probe> {
    if let Some(url) = HEALTH_HTTP.find(table) {
        let (status, json) = (HEALTH_STATUS.find(table), HEALTH_JSON.find(table));
        return Some(Probe::Http { url, status, json, headers: table.pairs(&HEALTH_HEADERS) });
    }
    if let Some(address) = HEALTH_TCP.find(table) {
        return Some(Probe::Tcp { address });
    }
    if let Some(command) = HEALTH_EXEC.find(table) {
        return Some(Probe::Exec { command });
    }
    HEALTH_MCP.find(table).map(|url| Probe::Mcp { url })
}
