//! Owns the making of a service from its table and the defaults. Driven by `tables::make`. Never starts one.

use super::{Table, TableKind, health};
use crate::config::keys::service::{
    AUTOSTART, COMMAND, CWD, DEPENDS_ON, ENV, ENV_FILE, LOG_KEEP, LOG_MAX_AGE, LOG_MAX_SIZE, PORT,
    STOP_SIGNAL, TITLE,
};
use crate::config::resolve::{SourcedValue, Values};
use crate::definition::{LogLimits, ServiceDefinition};
use crate::health::{HealthCheck, Login, Probe};
use crate::policy::{Policy, RestartMode};
use crate::report::ConfigError;

/// Makes a service. What it does not say itself is as the defaults are.
pub(super) fn make(
    table: &Table,
    defaults: &Values,
) -> Result<ServiceDefinition, Box<ConfigError>> {
    let name = table.name.clone();
    let Some(command) = COMMAND.find(table) else {
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
        title: TITLE.find(table).unwrap_or_else(|| name.clone()),
        name,
        command,
        cwd: CWD.find(table),
        env: table.pairs(&ENV),
        env_file: ENV_FILE.find(table),
        // Both are for instances side by side, which only `afresh mcp` has.
        policy: Policy { restart_mode: RestartMode::Replace, spare: false, ..values.policy() },
        stop_signal: STOP_SIGNAL.get(table),
        depends_on: DEPENDS_ON.find(table).unwrap_or_default(),
        health,
        memory_bytes_max: values.health().memory_bytes_max,
        autostart: AUTOSTART.get(table),
        log: LogLimits {
            file_bytes_max: LOG_MAX_SIZE.get(table),
            files_kept: LOG_KEEP.get(table),
            age_max: LOG_MAX_AGE.get(table),
        },
        port: PORT.find(table),
    })
}

/// The defaults with what the service or server says itself on top.
pub(super) fn with_own(table: &Table, defaults: &Values) -> Values {
    let mut values = defaults.clone();
    for field in table.kind.settings() {
        if let Some(entry) = table.entry(field) {
            values.put(
                field,
                SourcedValue { value: entry.value.clone(), place: entry.place.clone() },
            );
        }
    }
    values
}
