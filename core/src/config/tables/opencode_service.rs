//! Owns `[opencode]`, a ready-made service: its command, its port, its health check, and its own words for the keys of a
//! service. Driven by `tables::make`. Never starts it.
//!
//! Its health check asks `/global/health` and looks at the JSON: every path that the server does not
//! know is answered with 200 as well, and a connection can be made to one that hangs.

use std::time::Duration;

use serde_json::json;

use super::services::probe;
use super::{Table, TableEntry};
use crate::address;
use crate::config::FileKind;
use crate::config::key::Field;
use crate::config::keys::{opencode, service};
use crate::config::value_syntax::Value;
use crate::definition::Port;
use crate::report::Location;

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
