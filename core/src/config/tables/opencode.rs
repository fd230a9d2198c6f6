//! `[opencode]`: `opencode serve` as a service that is ready-made.
//!
//! The health check asks `/global/health` and looks at the JSON: every path that the server does not
//! know is answered with 200 as well, and a connection can be made to one that hangs.

use std::time::Duration;

use serde_json::json;

use super::super::FileKind;
use super::super::kind::Value;
use super::{Content, Entry, Table};
use crate::address;
use crate::definition::Port;
use crate::report::Location;

/// Whether the service is wanted.
pub(super) fn is_enabled(table: &Table) -> bool {
    table.value("enabled") != Some(&Value::Bool(false))
}

/// The same in the words of the generic service.
pub(super) fn as_service(table: &Table) -> Table {
    let (hostname, port) = listens_on(table);
    let mut service = table.clone();
    service.entries.extend(built_in(table));
    for entry in &mut service.entries {
        let (path, content) = match (entry.path.as_str(), &entry.content) {
            ("serve_command", Content::List(items)) => {
                let fill = |item: &String| {
                    item.replace("{port}", &port.to_string()).replace("{hostname}", &hostname)
                };
                ("command", Content::List(items.iter().map(fill).collect()))
            }
            ("serve_port", _) => ("port", Content::Port(Port { host: hostname.clone(), port })),
            ("auto_restart", Content::One(wanted)) => {
                let policy = if *wanted == Value::Bool(false) { "never" } else { "on-crash" };
                ("policy", Content::One(Value::Word(policy)))
            }
            ("restart_delay_ms", Content::One(Value::Integer(millis))) => {
                let delay = Duration::from_millis(u64::try_from(*millis).unwrap_or(0));
                ("delay", Content::One(Value::Duration(delay)))
            }
            ("max_restart_attempts", content) => ("max_restarts", content.clone()),
            _ => continue,
        };
        *entry = Entry { path: path.to_owned(), content, ..entry.clone() };
    }
    service
}

/// What holds where the table does not say otherwise.
pub(super) fn built_in(table: &Table) -> Vec<Entry> {
    let text = |text: String| Content::One(Value::Text(text.into()));
    let mut entries = vec![
        ("enabled", Content::One(Value::Bool(true))),
        ("serve_port", Content::One(Value::Integer(PORT.into()))),
        ("serve_hostname", text(HOSTNAME.to_owned())),
        ("serve_command", Content::List(COMMAND.map(str::to_owned).to_vec())),
        ("title", text("OpenCode".to_owned())),
    ];
    if asks_the_usual(table) {
        entries.push(("health.http", text(health_url(table))));
        entries.push(("health.json", Content::JsonField("healthy".to_owned(), json!(true))));
    }
    let built_in = |(path, content): (&str, Content)| Entry {
        path: path.to_owned(),
        content,
        place: Location::BUILT_IN,
        from: FileKind::Workspace,
    };
    let is_open = |(path, _): &(&str, Content)| table.entry(path).is_none();
    entries.into_iter().filter(is_open).map(built_in).collect()
}

/// Whether the table has no probe of its own.
fn asks_the_usual(table: &Table) -> bool {
    let probes = table.kind.rivals().iter().find(|group| group.contains(&"health.http"));
    !probes.into_iter().flat_map(|group| group.iter()).any(|path| table.entry(path).is_some())
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
    let port = match table.value("serve_port") {
        Some(Value::Integer(port)) => u16::try_from(*port).unwrap_or(PORT),
        _ => PORT,
    };
    (table.text("serve_hostname").unwrap_or_else(|| HOSTNAME.to_owned()), port)
}

const PORT: u16 = 4096;
const HOSTNAME: &str = "localhost";
const COMMAND: [&str; 6] = ["opencode", "serve", "--port", "{port}", "--hostname", "{hostname}"];
