//! A service out of its table and the defaults.

use super::super::Given;
use super::super::kind::Value;
use super::super::resolve::Values;
use super::super::settings::position;
use super::{Content, Table, TableKind, health};
use crate::definition::{LogLimits, ServiceDefinition, StopSignal};
use crate::health::{HealthCheck, Login, Probe};
use crate::policy::{Policy, RestartMode};
use crate::report::ConfigError;

/// Makes a service. What it does not say itself is as the defaults are.
pub(super) fn make(
    table: &Table,
    defaults: &Values,
) -> Result<ServiceDefinition, Box<ConfigError>> {
    let name = table.name.clone();
    let Some(command) = table.list("command") else {
        let message = format!("service `{name}` has no `command`");
        return Err(table.missing(message, "add `command = [\"program\", \"argument\"]`").into());
    };
    let values = with_own(table, defaults);
    values.check_delays()?;
    let mut health = health::make(table)?;
    if let Some(HealthCheck { login, probe: Probe::Http { .. }, .. }) = &mut health {
        *login = (table.kind == TableKind::Opencode).then_some(Login::OPENCODE);
    }
    Ok(ServiceDefinition {
        title: table.text("title").unwrap_or_else(|| name.clone()),
        name,
        command: command.to_vec(),
        cwd: table.text("cwd").map(Into::into),
        env: table.below("env"),
        env_file: table.text("env_file").map(Into::into),
        // Both are for instances side by side, which only `afresh mcp` has.
        policy: Policy { restart_mode: RestartMode::Replace, spare: false, ..values.policy() },
        stop_signal: table
            .text("stop_signal")
            .and_then(|name| StopSignal::from_name(&name))
            .unwrap_or_default(),
        depends_on: match table.entry("depends_on").map(|entry| &entry.content) {
            Some(Content::Dependencies(all)) => all.clone(),
            _ => Vec::new(),
        },
        health,
        memory_bytes_max: values.memory_bytes_max(),
        autostart: table.value("autostart") != Some(&Value::Bool(false)),
        log: log_limits(table),
        port: match table.entry("port").map(|entry| &entry.content) {
            Some(Content::Port(port)) => Some(port.clone()),
            _ => None,
        },
    })
}

/// The defaults with what the service or server says itself on top.
pub(super) fn with_own(table: &Table, defaults: &Values) -> Values {
    let mut values = defaults.clone();
    for setting in table.kind.settings() {
        let index = position(setting.section, setting.key);
        if let (Some(index), Some(entry)) = (index, table.entry(setting.key))
            && let Content::One(value) = &entry.content
        {
            values.0[index] = Given { value: value.clone(), place: entry.place.clone() };
        }
    }
    values
}

fn log_limits(table: &Table) -> LogLimits {
    let usual = LogLimits::default();
    LogLimits {
        file_bytes_max: match table.value("log.max_size") {
            Some(Value::Size(bytes)) => *bytes,
            _ => usual.file_bytes_max,
        },
        files_kept: match table.value("log.keep") {
            Some(Value::Integer(number)) => u32::try_from(*number).unwrap_or(u32::MAX),
            _ => usual.files_kept,
        },
        age_max: match table.value("log.max_age") {
            Some(Value::Duration(age)) => Some(*age).filter(|age| !age.is_zero()),
            _ => usual.age_max,
        },
    }
}
