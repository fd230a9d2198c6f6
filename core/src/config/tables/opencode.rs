//! Owns `[opencode]`: `opencode serve` as a ready-made service. Driven by `tables::make`. Never starts it.
//!
//! The health check asks `/global/health` and looks at the JSON: every path that the server does not
//! know is answered with 200 as well, and a connection can be made to one that hangs.

use std::time::Duration;

use serde_json::json;

use super::{Table, TableEntry};
use crate::address;
use crate::config::FileKind;
use crate::config::key::Field;
use crate::config::keys::opencode::{ENABLED, SERVE_COMMAND, SERVE_HOSTNAME, SERVE_PORT, TITLE};
use crate::config::keys::service::{HEALTH_HTTP, HEALTH_JSON};
use crate::config::value::Value;
use crate::definition::Port;
use crate::report::Location;

/// The same in the words of the generic service.
pub(super) fn as_service(table: &Table) -> Table {
    let (hostname, port) = listens_on(table);
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
    let keys = [ENABLED.field(), SERVE_PORT.field(), SERVE_HOSTNAME.field(), TITLE.field()];
    let defaults = keys.into_iter().filter_map(|field| Some((field, field.default()?)));
    let mut entries: Vec<_> = defaults.collect();
    let command = Value::List(COMMAND.map(str::to_owned).to_vec());
    entries.push((SERVE_COMMAND.field(), command));
    if asks_the_usual(table) {
        entries.push((HEALTH_HTTP.field(), Value::Text(health_url(table))));
        let healthy = ("healthy".to_owned(), json!(true));
        entries.push((HEALTH_JSON.field(), Value::JsonField(healthy)));
    }
    entries.retain(|(field, _)| table.entry(field).is_none());
    let built_in = |(field, value): (&Field, Value)| TableEntry {
        path: field.key.to_owned(),
        value,
        place: Location::BUILT_IN,
        from: FileKind::Workspace,
    };
    entries.into_iter().map(built_in).collect()
}

/// Whether the table has no probe of its own.
fn asks_the_usual(table: &Table) -> bool {
    let probes = table.kind.rivals().iter().find(|group| group.contains(&"health.http"));
    !probes.into_iter().flat_map(|group| group.iter()).any(|path| table.entry_at(path).is_some())
}

/// Where the health check asks. A server that listens everywhere is asked on this machine.
fn health_url(table: &Table) -> String {
    let (hostname, port) = listens_on(table);
    let host = match hostname.as_str() {
        "0.0.0.0" => "127.0.0.1",
        "::" => "::1",
        other => other,
    };
    format!("http://{}/global/health", address::join(host, port))
}

fn listens_on(table: &Table) -> (String, u16) {
    (SERVE_HOSTNAME.get(table), SERVE_PORT.get(table))
}

const COMMAND: [&str; 6] = ["opencode", "serve", "--port", "{port}", "--hostname", "{hostname}"];
