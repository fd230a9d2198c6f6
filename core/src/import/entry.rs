//! Reads the values of one entry: taken key by key, checked, and expanded. Driven by `mod.rs`. Keeps no state.

use std::ops::Range;
use std::time::Duration;

use super::ImportReader;
use crate::adopt::ClientServer;
use crate::adopt::client_entry::{EntryField, EntryStyle, EntryValue};
use crate::gateway::variables::Style;
use crate::limits::CONFIG_DURATION_MAX;
use crate::report::ErrorKind;
use crate::text::harmless;

/// What an entry says, and what of that was looked at.
pub(super) struct ImportEntry<'a> {
    pub(super) server: &'a ClientServer,
    given: Vec<&'a EntryField>,
}

/// Keys that change nothing here: they are about how a client shows or asks.
const SILENT: [&str; 10] = [
    "type",
    "enabled",
    "disabled",
    "description",
    "version",
    "autoApprove",
    "alwaysAllow",
    "trust",
    "required",
    // A server has all variables of afresh.
    "env_vars",
];

impl<'a> ImportEntry<'a> {
    pub(super) fn new(server: &'a ClientServer) -> Self {
        Self { server, given: server.given.iter().collect() }
    }

    /// What stands under a key; it counts as looked at.
    pub(super) fn take(&mut self, key: &str) -> Vec<&'a EntryField> {
        let (taken, rest) = self.given.drain(..).partition(|given| given.key == key);
        self.given = rest;
        taken
    }

    pub(super) fn place(&self, key: &str) -> Option<Range<usize>> {
        self.given.iter().find(|given| given.key == key).map(|given| given.at.clone())
    }

    /// The keys that were not read.
    pub(super) fn rest(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.given.iter().map(|given| given.key.clone()).collect();
        keys.dedup();
        keys.retain(|key| !SILENT.contains(&key.as_str()));
        keys
    }

    pub(super) fn shown(&self) -> String {
        harmless(&self.server.name)
    }
}

impl ImportReader<'_> {
    /// The one text of a key, filled in.
    pub(super) fn one(&mut self, entry: &mut ImportEntry<'_>, key: &'static str) -> Option<String> {
        let given = entry.take(key).into_iter().next()?;
        match &given.value {
            EntryValue::Text(text) if given.name.is_none() => {
                self.fill(entry, key, text, &given.at)
            }
            _ => {
                self.misfit(entry, key, "a text", &given.at);
                None
            }
        }
    }

    /// The texts below a key, filled in.
    pub(super) fn pairs(
        &mut self,
        entry: &mut ImportEntry<'_>,
        key: &'static str,
    ) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for given in entry.take(key) {
            let (Some(name), EntryValue::Text(text)) = (&given.name, &given.value) else {
                self.misfit(entry, key, "an object of texts", &given.at);
                continue;
            };
            let shown = format!("{key}.{name}");
            let value = self.fill(entry, &shown, text, &given.at);
            pairs.extend(value.map(|value| (name.clone(), value)));
        }
        pairs
    }

    /// What is in the lists of these keys; none where there is no list.
    pub(super) fn list(
        &mut self,
        entry: &mut ImportEntry<'_>,
        keys: &[&'static str],
    ) -> Option<Vec<String>> {
        let mut all: Option<Vec<String>> = None;
        for key in keys {
            for given in entry.take(key) {
                match &given.value {
                    EntryValue::List(items) => {
                        all.get_or_insert_default().extend(items.iter().cloned());
                    }
                    _ => self.misfit(entry, key, "a list of texts", &given.at),
                }
            }
        }
        all
    }

    pub(super) fn seconds(
        &mut self,
        entry: &mut ImportEntry<'_>,
        key: &'static str,
    ) -> Option<Duration> {
        let given = entry.take(key).into_iter().next()?;
        let number = match &given.value {
            EntryValue::Text(text) => text.parse::<f64>().ok(),
            _ => None,
        };
        let time = number.and_then(|number| Duration::try_from_secs_f64(number).ok());
        if time.is_none() {
            self.misfit(entry, key, "a number of seconds", &given.at);
        }
        time.map(|time| time.min(CONFIG_DURATION_MAX)).filter(|time| !time.is_zero())
    }

    pub(super) fn fill(
        &mut self,
        entry: &ImportEntry<'_>,
        key: &str,
        text: &str,
        at: &Range<usize>,
    ) -> Option<String> {
        let style = match entry.server.client {
            EntryStyle::Editor => Style::Braces,
            EntryStyle::Opencode => Style::Opencode,
            EntryStyle::Codex => Style::Never,
        };
        match self.scope.expand(text, style) {
            Ok(text) if text.contains('\0') => {
                let message =
                    format!("`{}` of server `{}` has a NUL byte", harmless(key), entry.shown());
                self.error(ErrorKind::BadValue, message, at, "remove it");
                None
            }
            Ok(text) => Some(text),
            Err(gap) => {
                let gap_text = harmless(&gap.to_string());
                let message =
                    format!("`{}` of server `{}` {gap_text}", harmless(key), entry.shown());
                self.error(ErrorKind::Missing, message, at, &harmless(&gap.hint()));
                None
            }
        }
    }

    /// The value of a variable that a key names.
    pub(super) fn variable(
        &mut self,
        entry: &ImportEntry<'_>,
        key: &str,
        name: &str,
        at: &Range<usize>,
    ) -> Option<String> {
        let value = self.scope.variable(name).map(str::to_owned);
        if value.is_none() {
            let name = harmless(name);
            let message = format!(
                "`{key}` of server `{}` needs the variable `{name}`, which is not set",
                entry.shown()
            );
            let hint = format!("set `{name}` where `afresh gateway` is started");
            self.error(ErrorKind::Missing, message, at, &hint);
        }
        value
    }

    pub(super) fn misfit(
        &mut self,
        entry: &ImportEntry<'_>,
        key: &str,
        wanted: &str,
        at: &Range<usize>,
    ) {
        let message = format!("`{key}` of server `{}` must be {wanted}", entry.shown());
        self.error(ErrorKind::WrongType, message, at, "correct it, or remove it");
    }
}
