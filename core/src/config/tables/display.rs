//! Owns the form in which a table is shown to users. Driven by `config show`. Never shows a secret.

use serde_json::{Value as Json, json};

use super::{Table, TableEntry, opencode_service};
use crate::audit::redact::{MARK, redact_value};
use crate::config::Config;
use crate::config::keys::TableKind;
use crate::config::value_syntax::{Kind, json_to_toml};
use crate::report::Origin;

/// A service, a hook or `[opencode]`, as it is in force.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownTable {
    /// What stands in the brackets, such as `service.api`.
    pub heading: String,
    /// Where it is defined.
    pub origin: Origin,
    /// Its values; what the defaults give is not among them.
    pub entries: Vec<ShownEntry>,
}

/// One value of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownEntry {
    /// The key with its dots, as it is written in a file.
    pub key: String,
    /// The value; what looks like a secret is left out.
    pub value: Json,
    /// The same as it is written in a file.
    pub toml: String,
    /// Which file gave it.
    pub origin: Origin,
    /// What it does.
    pub help: &'static str,
}

impl Config {
    /// Every service, hook and `[opencode]` with its values and where they come from. What looks like
    /// a secret is left out.
    pub fn shown_tables(&self) -> Vec<ShownTable> {
        self.tables.iter().map(shown_table).collect()
    }
}

fn shown_table(table: &Table) -> ShownTable {
    let mut entries: Vec<TableEntry> = table.entries.clone();
    if table.kind == TableKind::Opencode {
        entries.extend(opencode_service::built_in(table));
        let is_of = |entry: &TableEntry, key: &str| super::is_under(&entry.path, key);
        let rank =
            |entry: &TableEntry| table.kind.fields().position(|field| is_of(entry, field.key));
        entries.sort_by_key(|entry| rank(entry).unwrap_or(usize::MAX));
    }
    let name = toml_edit::Key::new(table.name.as_str());
    ShownTable {
        heading: table.kind.heading_of(&name.to_string()),
        origin: table.place.origin.clone(),
        entries: entries.iter().map(|entry| shown(table, entry)).collect(),
    }
}

fn shown(table: &Table, entry: &TableEntry) -> ShownEntry {
    let field = table.kind.keys().find(|field| super::is_under(&entry.path, field.key));
    let name = match field {
        Some(field) if matches!(field.kind, Kind::Variables | Kind::Headers) => {
            entry.path.get(field.key.len() + 1..)
        }
        _ => None,
    };
    let key = match (field, name) {
        (Some(field), Some(name)) => format!("{}.{}", field.key, toml_edit::Key::new(name)),
        _ => entry.path.clone(),
    };
    let value = entry.value.to_json();
    let value = match (table.kind, entry.path.as_str()) {
        (TableKind::Token, "token") => json!(MARK),
        // The name of a variable, and no secret.
        (TableKind::Token, "token_env") => value,
        _ => without_secrets(name.unwrap_or(&entry.path), value),
    };
    ShownEntry {
        key,
        toml: json_to_toml(&value),
        value,
        origin: entry.place.origin.clone(),
        help: field.map(|field| field.help).unwrap_or_default(),
    }
}

fn without_secrets(name: &str, value: Json) -> Json {
    // The path of a webhook is enough to write to it.
    if let ("webhook", Some(url)) = (name, value.as_str()) {
        let host = url.split('/').take(3).collect::<Vec<_>>().join("/");
        let host = host.split(['?', '#']).next().unwrap_or_default();
        return json!(if host == url { url.to_owned() } else { format!("{host}/[redacted]") });
    }
    let mut named = json!({ name: value });
    redact_value(&mut named);
    named[name].take()
}
