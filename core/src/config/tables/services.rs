//! Owns the making of services and hooks from their tables and the defaults: health checks; `[opencode]`, a ready-made
//! service; and the check of `depends_on`. Driven by `tables::make`. Never starts one.
//!
//! The health check of opencode asks `/global/health` and looks at the JSON: every path that the server does not
//! know is answered with 200 as well, and a connection can be made to one that hangs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::{Table, TableEntry};
use crate::address::{self, url_host};
use crate::config::key::Field;
use crate::config::keys::{TableKind, hook, opencode, service};
use crate::config::kind::Value;
use crate::config::setting_values::{SourcedValue, Values};
use crate::config::{Errors, FileKind};
use crate::definition::{LogLimits, Port, ServiceDefinition};
use crate::dependency_cycles::{rings, told};
use crate::health::{HealthCheck, Probe};
use crate::hook::{HookDefinition, HookEvent, HookTarget, Shape};
use crate::policy::{Policy, RestartMode};
use crate::report::{ConfigError, ErrorKind, Location};
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
fn probe(table: &Table) -> Option<Probe> {
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

/// The same in the words of the generic service.
pub(super) fn opencode_as_service(table: &Table) -> Table {
    let hostname = opencode::SERVE_HOSTNAME.get(table);
    let port = opencode::SERVE_PORT.get(table);
    let mut service = table.clone();
    service.entries.extend(built_in(table));
    for entry in &mut service.entries {
        let (path, value) = match (entry.path.as_str(), &entry.value) {
            ("serve_command", Value::List(items)) => {
                let fill = |item: &String| {
                    item.replace("{port}", &port.to_string()).replace("{hostname}", &hostname)
                };
                ("command", Value::List(items.iter().map(fill).collect()))
            }
            ("serve_port", _) => ("port", Value::Port(Port { host: hostname.clone(), port })),
            ("auto_restart", Value::Bool(wanted)) => {
                ("policy", Value::Word(if *wanted { "on-crash" } else { "never" }))
            }
            ("restart_delay_ms", Value::Integer(millis)) => {
                let delay = Duration::from_millis(u64::try_from(*millis).unwrap_or(0));
                ("delay", Value::Duration(delay))
            }
            ("max_restart_attempts", value) => ("max_restarts", value.clone()),
            _ => continue,
        };
        *entry = TableEntry { path: path.to_owned(), value, ..entry.clone() };
    }
    service
}

/// What holds where the table does not say otherwise.
pub(super) fn built_in(table: &Table) -> Vec<TableEntry> {
    let fields = [
        &opencode::ENABLED.field,
        &opencode::SERVE_PORT.field,
        &opencode::SERVE_HOSTNAME.field,
        &opencode::TITLE.field,
    ];
    let mut entries: Vec<(&Field, Value)> =
        fields.into_iter().filter_map(|field| Some((field, field.default()?))).collect();
    let command = Value::List(OPENCODE_COMMAND.map(str::to_owned).to_vec());
    entries.push((&opencode::SERVE_COMMAND.field, command));
    if probe(table).is_none() {
        // A server that listens everywhere is asked on this machine.
        let host = match opencode::SERVE_HOSTNAME.get(table).as_str() {
            "0.0.0.0" => "127.0.0.1".to_owned(),
            "::" => "::1".to_owned(),
            other => other.to_owned(),
        };
        let address = address::join(&host, opencode::SERVE_PORT.get(table));
        let url = format!("http://{address}/global/health");
        entries.push((&service::HEALTH_HTTP.field, Value::Text(url)));
        let healthy = ("healthy".to_owned(), json!(true));
        entries.push((&service::HEALTH_JSON.field, Value::JsonField(healthy)));
    }
    entries.retain(|(field, _)| table.entry(field).is_none());
    let (place, from) = (Location::BUILT_IN, FileKind::Workspace);
    let entries = entries.into_iter();
    entries
        .map(|(field, value)| TableEntry {
            path: field.key.to_owned(),
            value,
            place: place.clone(),
            from,
        })
        .collect()
}

const OPENCODE_COMMAND: [&str; 6] =
    ["opencode", "serve", "--port", "{port}", "--hostname", "{hostname}"];

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

/// Makes a hook that is about some of these services.
pub(super) fn make_hook(
    table: &Table,
    services: &[Table],
) -> Result<HookDefinition, Box<ConfigError>> {
    let words = hook::ON.find(table).unwrap_or(HookEvent::NAMES.map(str::to_owned).to_vec());
    let is_named = |event: &HookEvent| words.iter().any(|word| word == event.name());
    check_hook_services(table, services)?;
    Ok(HookDefinition {
        name: table.name.clone(),
        events: HookEvent::ALL.into_iter().filter(is_named).collect(),
        services: hook::SERVICES.find(table).unwrap_or_default(),
        target: hook_target(table)?,
    })
}

/// Your own file may be about services that only some projects have.
fn check_hook_services(table: &Table, services: &[Table]) -> Result<(), Box<ConfigError>> {
    let entry = table.entry(&hook::SERVICES.field);
    let Some(entry) = entry.filter(|entry| entry.from == FileKind::Workspace) else {
        return Ok(());
    };
    let is_known = |name: &String| services.iter().any(|service| service.name == *name);
    let names = hook::SERVICES.find(table).unwrap_or_default();
    let Some(unknown) = names.iter().find(|name| !is_known(name)) else { return Ok(()) };
    let message =
        format!("hook `{}` is about `{}`, which is no service", table.name, printable(unknown));
    let near = nearest(unknown, services.iter().map(|service| service.name.as_str()));
    let hint = match near {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("define `[service.{}]`, or leave it out", printable(unknown)),
    };
    Err(entry.place.error(ErrorKind::BadValue, message, hint).into())
}

fn hook_target(table: &Table) -> Result<HookTarget, Box<ConfigError>> {
    if let Some(command) = hook::COMMAND.find(table) {
        return Ok(HookTarget::Command(command));
    }
    if let Some(url) = hook::WEBHOOK.find(table) {
        let shape = hook::SHAPE.find(table).unwrap_or_else(|| shape_of_host(&url));
        return Ok(HookTarget::Webhook { url, shape, headers: table.pairs(&hook::HEADERS) });
    }
    let message = format!("hook `{}` tells nobody", table.name);
    Err(match table.entry(&hook::DESKTOP.field) {
        Some(_) if hook::DESKTOP.find(table) == Some(true) => return Ok(HookTarget::Desktop),
        Some(entry) => {
            let hint = "write `desktop = true`, or remove the hook".to_owned();
            entry.place.error(ErrorKind::BadValue, message, hint).into()
        }
        None => table.missing(message, "add one of `command`, `webhook` and `desktop`").into(),
    })
}

/// The form that the host of a URL takes, where it is a known one.
fn shape_of_host(url: &str) -> Shape {
    let host = url_host(url).unwrap_or_default().to_ascii_lowercase();
    match host.as_str() {
        "hooks.slack.com" => Shape::Slack,
        "discord.com" | "discordapp.com" | "canary.discord.com" | "ptb.discord.com" => {
            Shape::Discord
        }
        "ntfy.sh" => Shape::Ntfy,
        _ => Shape::Json,
    }
}
