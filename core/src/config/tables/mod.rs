//! Owns the tables that users name: services, hooks, servers of the gateway and its tokens; and `[opencode]` and
//! `[gateway]`, of which there is one each. Driven by `load`. Never reads variables or flags.
//!
//! Each file gives some of a table's entries; the stronger file wins entry by entry. What is made of
//! them is checked as a whole, when all layers are there.

mod display;
mod gateway;
mod hooks;
mod merge_files;
mod opencode_service;
mod read;
mod services;
mod tokens;
mod trust_requirements;

use std::collections::BTreeMap;

pub use self::display::{ShownEntry, ShownTable};
pub use self::gateway::ExternalValues;
pub(super) use self::merge_files::overlay;
pub(super) use self::trust_requirements::{forget_rests, withhold};

use super::key::{Field, Key, Lookup, Pairs};
use super::keys::TableKind;
use super::keys::{opencode, service};
use super::settings::Values;
use super::value_syntax::Value;
use super::{Errors, FileKind};
use crate::definition::ServiceDefinition;
use crate::hook::HookDefinition;
use crate::report::{ConfigError, ErrorKind, Location};

/// One table, of one file or of several.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    kind: TableKind,
    name: String,
    /// Where its name stands, in the weakest file that has it.
    place: Location,
    /// Whose file that is.
    from: FileKind,
    entries: Vec<TableEntry>,
}

/// One value of a table.
#[derive(Clone, Debug, PartialEq)]
struct TableEntry {
    /// The key with its dots, such as `health.http` or `env.PORT`.
    path: String,
    value: Value,
    place: Location,
    from: FileKind,
}

impl Table {
    /// The values that the project's file gives: key, value and place.
    pub(super) fn project_values(&self) -> impl Iterator<Item = (&str, &Value, &Location)> {
        let entries = self.entries.iter().filter(|entry| entry.from == FileKind::Workspace);
        entries.map(|entry| (entry.path.as_str(), &entry.value, &entry.place))
    }
}

impl Lookup for Table {
    fn value(&self, field: &Field) -> Option<&Value> {
        self.entry(field).map(|entry| &entry.value)
    }
}

impl Table {
    fn entry(&self, field: &Field) -> Option<&TableEntry> {
        self.entry_at(field.key)
    }

    fn entry_at(&self, path: &str) -> Option<&TableEntry> {
        self.entries.iter().find(|entry| entry.path == path)
    }

    /// The entries below a key, with their own names.
    fn below(&self, key: &Key<Pairs>) -> impl Iterator<Item = (&str, &TableEntry)> {
        let path = key.field.key;
        self.entries.iter().filter_map(move |entry| {
            let name = entry.path.strip_prefix(path)?.strip_prefix('.')?;
            Some((name, entry))
        })
    }

    /// The names and texts below a key.
    fn pairs(&self, key: &Key<Pairs>) -> Vec<(String, String)> {
        self.below(key).map(|(name, entry)| (name.to_owned(), entry.value.to_string())).collect()
    }

    /// The first entry that is this key, or below it.
    fn first_under(&self, path: &str) -> Option<&TableEntry> {
        self.entries.iter().find(|entry| is_under(&entry.path, path))
    }

    fn missing(&self, message: String, hint: &str) -> ConfigError {
        self.place.error(ErrorKind::Missing, message, hint.to_owned())
    }

    /// Entries that say more about a key that is not there.
    fn check_companions(&self, errors: &mut Errors) {
        let companions = self.kind.declared().companions.iter();
        for (key, companions) in companions.filter(|(key, _)| self.entry_at(key).is_none()) {
            for entry in companions.iter().filter_map(|path| self.first_under(path)) {
                let message = format!("`{}` goes with `{key}`, which is not given", entry.path);
                let hint = format!("remove it, or add `{key}`");
                errors.push(entry.place.error(ErrorKind::Conflict, message, hint));
            }
        }
    }
}

/// Whether a path is this key, or below it.
pub(super) fn is_under(path: &str, key: &str) -> bool {
    path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Makes services and hooks of the tables that count, or says all that is wrong. What is about the gateway is checked
/// in all tables: a token may be for a server that is not trusted yet.
pub(super) fn make(
    tables: &[Table],
    all: &[Table],
    values: &Values,
) -> Result<(Vec<ServiceDefinition>, Vec<HookDefinition>), Vec<ConfigError>> {
    let mut errors = Errors::default();
    let of_kind = |kind| tables.iter().filter(move |table| table.kind == kind);
    check_counts(all, &mut errors);
    let (mut services, mut hooks) = (Vec::new(), Vec::new());
    let mut defined = Vec::new();
    for table in of_kind(TableKind::Opencode) {
        if let Some(twin) = of_kind(TableKind::Service).find(|other| other.name == table.name) {
            let message = "`opencode` is defined twice".to_owned();
            let hint = format!(
                "keep `[opencode]` or `[service.opencode]`: the other is at {}",
                table.place.origin
            );
            errors.push(twin.place.error(ErrorKind::Conflict, message, hint));
        }
        if opencode::ENABLED.get(table) {
            defined.push(opencode_service::opencode_as_service(table));
        }
    }
    for table in of_kind(TableKind::Service) {
        // Part of a service of some other project: in this one there is nothing to be changed.
        if table.from == FileKind::User && table.entry(&service::COMMAND.field).is_none() {
            continue;
        }
        defined.push(table.clone());
    }
    check_names(&defined, &mut errors);
    for table in &defined {
        table.check_companions(&mut errors);
        match services::make_service(table, values) {
            Ok(service) => services.push(service),
            Err(error) => errors.push(*error),
        }
    }
    let opencode_is_off = of_kind(TableKind::Opencode).any(|table| !opencode::ENABLED.get(table));
    services::check_dependencies(&defined, opencode_is_off, &mut errors);
    for table in of_kind(TableKind::Hook) {
        table.check_companions(&mut errors);
        match hooks::make_hook(table, &defined) {
            Ok(hook) => hooks.push(hook),
            Err(error) => errors.push(*error),
        }
    }
    gateway::check_gateway(all, values, &mut errors);
    errors.or((services, hooks))
}

fn check_counts(tables: &[Table], errors: &mut Errors) {
    for (kind, max) in TableKind::ALL.map(|kind| (kind, kind.declared().count_max)) {
        if let Some(table) = tables.iter().filter(|table| table.kind == kind).nth(max) {
            let message = format!("there are more than {max} {}s", kind.noun());
            let command = match kind {
                TableKind::Server | TableKind::Token => "gateway",
                _ => "up",
            };
            let hint = format!("start several `afresh {command}`, each in its own workspace");
            errors.push(table.place.error(ErrorKind::TooMany, message, hint));
        }
    }
}

/// Names become parts of file names, and not every system tells large letters from small ones.
fn check_names(services: &[Table], errors: &mut Errors) {
    let mut names: BTreeMap<String, &Table> = BTreeMap::new();
    for table in services {
        match names.insert(table.name.to_ascii_lowercase(), table) {
            Some(other) if other.name != table.name => {
                let (one, two) = (&other.name, &table.name);
                let message = format!("`{one}` and `{two}` are the same but for large letters");
                let hint = format!("give one another name: `{one}` is at {}", other.place.origin);
                errors.push(table.place.error(ErrorKind::Conflict, message, hint));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
