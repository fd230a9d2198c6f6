//! Owns the tables that users name: services, hooks, servers of the gateway and its tokens; and `[opencode]` and
//! `[gateway]`, of which there is one each. Driven by `load`. Never reads variables or flags.
//!
//! Each file gives some of a table's entries; the stronger file wins entry by entry. What is made of
//! them is checked as a whole, when all layers are there.

mod display;
mod gateway;
mod hook;
mod read;
mod services;

use std::collections::BTreeMap;

pub(super) use self::display::show;
pub use self::display::{ShownEntry, ShownTable};
pub use self::gateway::ExternalValues;
pub(super) use self::gateway::{make as make_gateway, token_files};

use super::FileKind;
use super::key::{Field, Key, Lookup, Pairs};
use super::keys::COMPANIONS;
use super::keys::opencode::ENABLED;
use super::keys::service::COMMAND;
use super::kind::Value;
use super::resolve::Values;
use crate::definition::ServiceDefinition;
use crate::hook::HookDefinition;
use crate::limits::{CONFIG_ERRORS_MAX, HOOKS_MAX, SERVERS_MAX, SERVICES_MAX, TOKENS_MAX};
use crate::report::{ConfigError, ErrorKind, Location};

/// Which table it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableKind {
    /// `[service.NAME]`.
    Service,
    /// `[opencode]`.
    Opencode,
    /// `[hook.NAME]`.
    Hook,
    /// `[server.NAME]`.
    Server,
    /// `[gateway]`.
    Gateway,
    /// `[gateway.token.NAME]`.
    Token,
}

impl TableKind {
    pub(super) const ALL: [Self; 6] =
        [Self::Service, Self::Opencode, Self::Hook, Self::Server, Self::Gateway, Self::Token];

    /// The heading without the name.
    pub(super) const fn section(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Opencode => "opencode",
            Self::Hook => "hook",
            Self::Server => "server",
            Self::Gateway => "gateway",
            Self::Token => "gateway.token",
        }
    }

    /// The heading, as people are told of it.
    pub(super) const fn heading(self) -> &'static str {
        match self {
            Self::Service => "service.NAME",
            Self::Opencode => "opencode",
            Self::Hook => "hook.NAME",
            Self::Server => "server.NAME",
            Self::Gateway => "gateway",
            Self::Token => "gateway.token.NAME",
        }
    }

    /// What one of them is.
    pub(super) const fn noun(self) -> &'static str {
        match self {
            Self::Token => "token",
            other => other.section(),
        }
    }

    /// Whether there is only one, without a name of its own.
    pub(super) const fn is_single(self) -> bool {
        matches!(self, Self::Opencode | Self::Gateway)
    }

    /// How many there may be.
    const fn count_max(self) -> usize {
        match self {
            Self::Service => SERVICES_MAX,
            Self::Hook => HOOKS_MAX,
            Self::Server => SERVERS_MAX,
            Self::Token => TOKENS_MAX,
            Self::Opencode | Self::Gateway => 1,
        }
    }
}

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
        let path = key.field().key;
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

    /// Takes over what a stronger file says.
    fn overlay(&mut self, stronger: Self) {
        for entry in &stronger.entries {
            let groups = self.kind.rivals().iter();
            for group in groups.filter(|group| group.contains(&entry.path.as_str())) {
                let rival = |path: &str| path != entry.path && group.contains(&path);
                let kind = self.kind;
                let goes = |path: &str| rival(path) || kind.belongs_to(path).is_some_and(rival);
                self.entries.retain(|entry| !goes(&entry.path));
            }
        }
        let places: BTreeMap<String, usize> =
            self.entries.iter().enumerate().map(|(at, entry)| (entry.path.clone(), at)).collect();
        for entry in stronger.entries {
            match places.get(&entry.path) {
                Some(at) => self.entries[*at] = entry,
                None => self.entries.push(entry),
            }
        }
    }

    /// Entries that say more about a key that is not there.
    fn check_companions(&self, errors: &mut Errors<'_>) {
        let kinds = COMPANIONS.iter().filter(|(key, _)| self.kind.fields().any(|f| f.key == *key));
        for (key, companions) in kinds.filter(|(key, _)| self.entry_at(key).is_none()) {
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

/// Puts the tables of a stronger file over those that are there.
pub(super) fn overlay(tables: &mut Vec<Table>, stronger: Vec<Table>) {
    for table in stronger {
        let same = |other: &&mut Table| other.kind == table.kind && other.name == table.name;
        match tables.iter_mut().find(same) {
            Some(weaker) => weaker.overlay(table),
            None => tables.push(table),
        }
    }
}

/// What is made of the tables.
#[derive(Default)]
pub(super) struct MadeDefinitions {
    pub(super) services: Vec<ServiceDefinition>,
    pub(super) hooks: Vec<HookDefinition>,
}

/// Makes services and hooks; what is wrong is added to the errors.
pub(super) fn make(
    tables: &[Table],
    values: &Values,
    errors: &mut Vec<ConfigError>,
) -> MadeDefinitions {
    let mut made = MadeDefinitions::default();
    let mut errors = Errors { all: errors, limit: CONFIG_ERRORS_MAX };
    let of_kind = |kind| tables.iter().filter(move |table| table.kind == kind);
    check_counts(tables, &mut errors);
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
        if ENABLED.get(table) {
            defined.push(services::opencode_as_service(table));
        }
    }
    for table in of_kind(TableKind::Service) {
        // Part of a service of some other project: in this one there is nothing to be changed.
        if table.from == FileKind::User && table.entry(COMMAND.field()).is_none() {
            continue;
        }
        defined.push(table.clone());
    }
    check_names(&defined, &mut errors);
    for table in &defined {
        table.check_companions(&mut errors);
        match services::make_service(table, values) {
            Ok(service) => made.services.push(service),
            Err(error) => errors.push(*error),
        }
    }
    let opencode_is_off = of_kind(TableKind::Opencode).any(|table| !ENABLED.get(table));
    services::check_dependencies(&defined, opencode_is_off, &mut errors);
    for table in of_kind(TableKind::Hook) {
        table.check_companions(&mut errors);
        match hook::make(table, &defined) {
            Ok(hook) => made.hooks.push(hook),
            Err(error) => errors.push(*error),
        }
    }
    gateway::check_gateway(tables, values, &mut errors);
    made
}

fn check_counts(tables: &[Table], errors: &mut Errors<'_>) {
    for (kind, max) in TableKind::ALL.map(|kind| (kind, kind.count_max())) {
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
fn check_names(services: &[Table], errors: &mut Errors<'_>) {
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

/// The errors of what is made, with the bound that those of one file have.
struct Errors<'a> {
    all: &'a mut Vec<ConfigError>,
    limit: usize,
}

impl Errors<'_> {
    fn push(&mut self, mut error: ConfigError) {
        match self.all.len() {
            len if len > self.limit => return,
            len if len == self.limit => {
                error.kind = ErrorKind::TooMany;
                error.message = "too many errors: those from here on are not shown".to_owned();
                error.hint = None;
            }
            _ => {}
        }
        self.all.push(error);
    }
}

#[cfg(test)]
mod tests;
