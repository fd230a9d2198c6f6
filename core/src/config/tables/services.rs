//! Owns the making of services from their tables and the defaults, with their health checks, and the check of
//! `depends_on`. Driven by `tables::make`. Never starts one.

use std::collections::BTreeMap;

use super::Table;
use crate::config::Errors;
use crate::config::keys::{TableKind, service};
use crate::config::settings::{SourcedValue, Values};
use crate::definition::{LogLimits, ServiceDefinition};
use crate::dependency_cycles::{rings, told};
use crate::health::{HealthCheck, Probe};
use crate::policy::{Policy, RestartMode};
use crate::report::{ConfigError, ErrorKind};
use crate::suggest::nearest;
use crate::text::printable;

/// Makes a service. What it does not say itself is as the defaults are.
pub(super) fn make_service(
    table: &Table,
    defaults: &Values,
) -> Result<ServiceDefinition, Box<ConfigError>> {
    let name = table.name.clone();
    let Some(command) = service::COMMAND.find(table) else {
        let message = format!("service `{name}` has no `command`");
        return Err(table.missing(message, "add `command = [\"program\", \"argument\"]`").into());
    };
    let values = with_own(table, defaults);
    values.check_delays()?;
    let mut health = health_check(table)?;
    if let Some(HealthCheck { is_opencode, probe: Probe::Http { .. }, .. }) = &mut health {
        *is_opencode = table.kind == TableKind::Opencode;
    }
    Ok(ServiceDefinition {
        title: service::TITLE.find(table).unwrap_or_else(|| name.clone()),
        name,
        command,
        cwd: service::CWD.find(table),
        env: table.pairs(&service::ENV),
        env_file: service::ENV_FILE.find(table),
        // Both are for instances side by side, which only `afresh mcp` has.
        policy: Policy { restart_mode: RestartMode::Replace, spare: false, ..values.policy() },
        stop_signal: service::STOP_SIGNAL.get(table),
        depends_on: service::DEPENDS_ON.find(table).unwrap_or_default(),
        health,
        memory_bytes_max: values.health().memory_bytes_max,
        autostart: service::AUTOSTART.get(table),
        log: LogLimits {
            file_bytes_max: service::LOG_MAX_SIZE.get(table),
            files_kept: service::LOG_KEEP.get(table),
            age_max: service::LOG_MAX_AGE.get(table),
        },
        port: service::PORT.find(table),
    })
}

/// The defaults with what the service or server says itself on top.
pub(super) fn with_own(table: &Table, defaults: &Values) -> Values {
    let mut values = defaults.clone();
    for field in table.kind.settings() {
        if let Some(entry) = table.entry(field) {
            let (value, place) = (entry.value.clone(), entry.place.clone());
            values.put(field, SourcedValue { value, place, from: Some(entry.from) });
        }
    }
    values
}

/// Makes the check; none where the table says nothing about health.
fn health_check(table: &Table) -> Result<Option<HealthCheck>, Box<ConfigError>> {
    let Some(first) = table.first_under("health") else { return Ok(None) };
    let Some(probe) = probe(table) else {
        let message = format!("the health of `{}` has nothing that is asked", table.name);
        let hint = "add one of `health.http`, `health.tcp`, `health.exec` and `health.mcp`";
        return Err(first.place.error(ErrorKind::Missing, message, hint.to_owned()).into());
    };
    Ok(Some(HealthCheck {
        interval: service::HEALTH_INTERVAL.get(table),
        ready_interval: service::HEALTH_READY_INTERVAL.get(table),
        timeout: service::HEALTH_TIMEOUT.get(table),
        failures_max: service::HEALTH_FAILURES.get(table),
        ready_timeout: service::HEALTH_READY_TIMEOUT.get(table),
        ..HealthCheck::new(probe)
    }))
}

/// What is asked; the reader has seen to it that there is one at most.
pub(super) fn probe(table: &Table) -> Option<Probe> {
    let http = service::HEALTH_HTTP.find(table).map(|url| Probe::Http {
        url,
        status: service::HEALTH_STATUS.find(table),
        json: service::HEALTH_JSON.find(table),
        headers: table.pairs(&service::HEALTH_HEADERS),
    });
    let tcp = || Some(Probe::Tcp { address: service::HEALTH_TCP.find(table)? });
    let exec = || Some(Probe::Exec { command: service::HEALTH_EXEC.find(table)? });
    let mcp = || Some(Probe::Mcp { url: service::HEALTH_MCP.find(table)? });
    http.or_else(tcp).or_else(exec).or_else(mcp)
}

/// Checks the needs of all services: each is defined, and there is no ring.
pub(super) fn check_dependencies(services: &[Table], opencode_is_off: bool, errors: &mut Errors) {
    let index: BTreeMap<&str, usize> =
        services.iter().enumerate().map(|(at, service)| (service.name.as_str(), at)).collect();
    let mut error = |table: &Table, message: String, hint: String| {
        let entry = table.entry(&service::DEPENDS_ON.field);
        let place = entry.map_or(&table.place, |entry| &entry.place);
        errors.push(place.error(ErrorKind::Conflict, message, hint));
    };
    let mut needs: Vec<Vec<usize>> = Vec::new();
    for table in services {
        let (name, mut own) = (&table.name, Vec::new());
        for need in service::DEPENDS_ON.find(table).unwrap_or_default() {
            let need = need.name.as_str();
            match index.get(need) {
                Some(_) if need == name => {
                    let hint = "remove it from `depends_on`".to_owned();
                    error(table, format!("service `{name}` needs itself"), hint);
                }
                Some(at) => own.push(*at),
                None => {
                    let shown = printable(need);
                    let hint = match nearest(need, index.keys().copied()) {
                        _ if opencode_is_off && need == "opencode" => {
                            "`enabled = false` in `[opencode]` turns it off".to_owned()
                        }
                        Some(near) => format!("did you mean `{near}`?"),
                        None => {
                            format!("define `[service.{shown}]`, or remove it from `depends_on`")
                        }
                    };
                    let message = format!("service `{name}` needs `{shown}`, which is no service");
                    error(table, message, hint);
                }
            }
        }
        needs.push(own);
    }
    for ring in rings(&needs) {
        let names: Vec<&str> = ring.iter().map(|at| services[*at].name.as_str()).collect();
        let message = format!("services need each other in a ring: {}", told(&names));
        let hint = "take one of them out of a `depends_on`".to_owned();
        error(&services[ring[0]], message, hint);
    }
}
