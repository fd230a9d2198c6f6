//! A health check out of the entries below `health`.

use std::time::Duration;

use super::super::kind::Value;
use super::{Content, Table};
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
    let usual = HealthCheck::new(probe);
    let time = |path: &str, usual: Duration| match table.value(path) {
        Some(Value::Duration(time)) => *time,
        _ => usual,
    };
    Ok(Some(HealthCheck {
        interval: time("health.interval", usual.interval),
        ready_interval: time("health.ready_interval", usual.ready_interval),
        timeout: time("health.timeout", usual.timeout),
        failures_max: match table.value("health.failures") {
            Some(Value::Integer(number)) => u32::try_from(*number).unwrap_or(usual.failures_max),
            _ => usual.failures_max,
        },
        ready_timeout: match table.value("health.ready_timeout") {
            Some(Value::Duration(time)) => Some(*time).filter(|time| !time.is_zero()),
            _ => usual.ready_timeout,
        },
        ..usual
    }))
}

/// The first of what can be asked; the reader has seen to it that there is no second.
fn probe(table: &Table) -> Option<Probe> {
    if let Some(url) = table.text("health.http") {
        let status = match table.value("health.status") {
            Some(Value::Integer(status)) => u16::try_from(*status).ok(),
            _ => None,
        };
        let json = match table.entry("health.json").map(|entry| &entry.content) {
            Some(Content::JsonField(path, value)) => Some((path.clone(), value.clone())),
            _ => None,
        };
        return Some(Probe::Http { url, status, json, headers: table.below("health.headers") });
    }
    if let Some(address) = table.text("health.tcp") {
        return Some(Probe::Tcp { address });
    }
    if let Some(command) = table.list("health.exec") {
        return Some(Probe::Exec { command: command.to_vec() });
    }
    table.text("health.mcp").map(|url| Probe::Mcp { url })
}
