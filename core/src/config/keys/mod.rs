//! Owns the declarations of all keys, one file for each section or kind of table. Files, variables, flags, `config
//! show`, the JSON Schema and the reference derive from them. Never reads a value.

pub(super) mod daemon;
pub(super) mod defaults;
pub(super) mod gateway;
pub(super) mod hook;
pub(super) mod opencode;
pub(super) mod run;
pub(super) mod server;
pub(super) mod service;
pub(super) mod token;
pub(super) mod trail;

use super::key::Field;
use super::tables::is_under;
use crate::limits::{HOOKS_MAX, SERVERS_MAX, SERVICES_MAX, TOKENS_MAX};

/// A section, whose keys are settings that variables and flags give too, or a kind of table.
#[derive(Debug)]
pub(super) struct Section {
    /// What stands in brackets; `NAME` is that of a table.
    pub(super) heading: &'static str,
    /// What its keys are about, in a few sentences.
    pub(super) help: &'static str,
    /// Its keys; of a table those that no other table has, or that mean something else there.
    pub(super) fields: &'static [&'static Field],
    /// How many there may be.
    pub(super) count_max: usize,
    /// Keys of which at most one can be given.
    pub(super) rivals: &'static [&'static [&'static str]],
    /// Keys, each with those that say more about it, and mean nothing without it.
    pub(super) companions: &'static [(&'static str, &'static [&'static str])],
}

const fn section(
    heading: &'static str,
    help: &'static str,
    fields: &'static [&'static Field],
) -> Section {
    Section { heading, help, fields, count_max: 1, rivals: &[], companions: &[] }
}

/// Every section, in the order in which they are shown.
pub(super) static SECTIONS: [Section; 4] = [
    section(
        "defaults",
        "When a service is restarted, how long that waits, and how it is stopped.",
        defaults::DEFAULTS,
    ),
    section("trail", "Where the audit trail is written, and how much of it is kept.", trail::TRAIL),
    section("daemon", "How `afresh up` itself behaves.", daemon::DAEMON),
    section("run", "How `afresh run` carries out a plan.", run::RUN),
];

/// The keys of all sections, in the order in which they are shown.
pub(super) fn settings() -> impl Iterator<Item = &'static Field> + Clone {
    SECTIONS.iter().flat_map(|section| section.fields).copied()
}

/// A key of a section.
pub(super) fn setting(section: &str, key: &str) -> Option<&'static Field> {
    settings().find(|field| field.section == section && field.key == key)
}

/// Which table it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableKind {
    Service,
    Opencode,
    Hook,
    Server,
    Gateway,
    Token,
}

const PROBES: &[&str] = &["health.http", "health.tcp", "health.exec", "health.mcp"];
const OF_PROBES: (&str, &[&str]) =
    ("health.http", &["health.status", "health.json", "health.headers"]);

/// The tables of each [`TableKind`], in that order.
static TABLES: [Section; 6] = [
    Section {
        count_max: SERVICES_MAX,
        rivals: &[PROBES],
        companions: &[OF_PROBES],
        ..section("service.NAME", "A service that `afresh up` keeps alive.", service::SERVICE)
    },
    Section {
        rivals: &[
            PROBES,
            &["policy", "auto_restart"],
            &["delay", "restart_delay_ms"],
            &["max_restarts", "max_restart_attempts"],
        ],
        companions: &[OF_PROBES],
        ..section(
            "opencode",
            "`opencode serve` as a service that is ready-made: the heading alone is enough.",
            opencode::OPENCODE,
        )
    },
    Section {
        count_max: HOOKS_MAX,
        rivals: &[&["command", "webhook", "desktop"]],
        companions: &[("webhook", &["shape", "headers"])],
        ..section(
            "hook.NAME",
            "Who is told when something happens to a service of `afresh up`.",
            hook::HOOK,
        )
    },
    Section {
        count_max: SERVERS_MAX,
        rivals: &[&["command", "url"]],
        companions: &[
            ("url", &["headers", "sse"]),
            ("command", &["args", "cwd", "env", "inherit_env", "env_file", "watch"]),
        ],
        ..section(
            "server.NAME",
            "An MCP server behind `afresh gateway`. In `args`, `env`, `headers` and `url`, `$VAR`, \
             `${VAR}`, `${VAR:-default}` and `${env:VAR}` are filled in from the environment; `$$` \
             is a `$`. Where nothing is set, `stdin_timeout` is 1s and `restart_mode` is `swap`.",
            server::SERVER,
        )
    },
    section("gateway", "How `afresh gateway` serves its clients.", gateway::GATEWAY),
    Section {
        count_max: TOKENS_MAX,
        rivals: &[&["token", "token_env", "token_file"]],
        ..section(
            "gateway.token.NAME",
            "A bearer token of clients over HTTP, and what it opens. Exactly one of `token`, \
             `token_env` and `token_file` is given; where there is any token, clients need one.",
            token::TOKENS,
        )
    },
];

impl TableKind {
    pub(super) const ALL: [Self; 6] =
        [Self::Service, Self::Opencode, Self::Hook, Self::Server, Self::Gateway, Self::Token];

    /// How it is declared.
    pub(super) fn declared(self) -> &'static Section {
        &TABLES[self as usize]
    }

    /// The heading without the name.
    pub(super) fn section(self) -> &'static str {
        self.declared().heading.trim_end_matches(".NAME")
    }

    /// What one of them is.
    pub(super) fn noun(self) -> &'static str {
        self.section().trim_start_matches("gateway.")
    }

    /// Whether there is only one, without a name of its own.
    pub(super) fn is_single(self) -> bool {
        matches!(self, Self::Opencode | Self::Gateway)
    }

    /// The heading of one of them.
    pub(super) fn heading_of(self, name: &str) -> String {
        match self.is_single() {
            true => self.section().to_owned(),
            false => format!("{}.{name}", self.section()),
        }
    }

    /// All keys that are not settings.
    pub(super) fn fields(self) -> impl Iterator<Item = &'static Field> {
        let own = self.declared().fields;
        let generic = if self == Self::Opencode { service::SERVICE } else { &[] };
        let is_open = move |field: &&Field| {
            self.replaced_by(field.key).is_none() && !own.iter().any(|own| own.key == field.key)
        };
        own.iter().copied().chain(generic.iter().copied().filter(is_open))
    }

    /// The settings of `[defaults]` that it takes as keys of its own.
    pub(super) fn settings(self) -> impl Iterator<Item = &'static Field> {
        let takes = match self {
            Self::Service | Self::Opencode | Self::Server => defaults::DEFAULTS,
            Self::Hook | Self::Gateway | Self::Token => &[],
        };
        takes.iter().copied().filter(move |field| self == Self::Server || !field.is_mcp)
    }

    /// All keys.
    pub(super) fn keys(self) -> impl Iterator<Item = &'static Field> {
        self.fields().chain(self.settings())
    }

    /// The key at a path.
    pub(super) fn key(self, path: &str) -> Option<&'static Field> {
        self.keys().find(|field| field.key == path)
    }

    /// What a key of the generic service is called here.
    pub(super) fn replaced_by(self, key: &str) -> Option<&'static str> {
        match (self, key) {
            (Self::Opencode, "command") => Some("serve_command"),
            (Self::Opencode, "port") => Some("serve_port"),
            _ => None,
        }
    }

    /// The key that an entry says more about, where it means nothing without that.
    pub(super) fn belongs_to(self, path: &str) -> Option<&'static str> {
        let is_of = |keys: &[&str]| keys.iter().any(|key| is_under(path, key));
        let is_setting = || self.settings().any(|setting| setting.key == path);
        let found = self.declared().companions.iter().find(|(_, keys)| is_of(keys));
        // Policies are about a program that is started.
        let of_program = || (self == Self::Server && is_setting()).then_some("command");
        found.map(|(key, _)| *key).or_else(of_program)
    }
}

/// What other tools call a key of ours, for hints.
pub(super) const OTHER_WORDS: [(&str, &str); 17] = [
    ("args", "command"),
    ("cmd", "command"),
    ("exec", "command"),
    ("run", "command"),
    ("restart", "policy"),
    ("environment", "env"),
    ("workdir", "cwd"),
    ("working_dir", "cwd"),
    ("directory", "cwd"),
    ("healthcheck", "health"),
    ("ports", "port"),
    ("events", "on"),
    ("timeout", "call_timeout"),
    ("disabled", "enabled"),
    ("http_headers", "headers"),
    ("listen", "http"),
    ("hosts", "allowed_hosts"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::key::Fallback;
    use crate::config::{Config, ConfigSource, ExternalValues, FileKind, load, schema};

    fn loaded(text: &str) -> Config {
        let source = ConfigSource { kind: FileKind::Workspace, path: "a", bytes: text.as_bytes() };
        load(&[source], &[], &[]).unwrap_or_else(|errors| panic!("{text}\n{}", errors[0]))
    }

    /// What holds without a key, where that is a value.
    fn default_toml(field: &Field) -> Option<String> {
        match field.fallback {
            Fallback::Default(_) => Some(field.default()?.to_toml()),
            Fallback::Words(words) => {
                words.parse::<toml_edit::Value>().is_ok().then(|| words.to_owned())
            }
        }
    }

    /// The least table of each kind, with more lines in it.
    fn table(kind: TableKind, lines: &str, is_given: impl Fn(&str) -> bool) -> String {
        let line = |key: &str, line: &'static str| if is_given(key) { "" } else { line };
        let needs = "[service.db]\ncommand = ['x']\n[service.api]\ncommand = ['x']\n";
        match kind {
            TableKind::Service => {
                let command = line("command", "command = ['x']\n");
                format!("{needs}[service.a]\n{command}{lines}")
            }
            TableKind::Opencode => format!("{needs}[opencode]\n{lines}"),
            TableKind::Hook => format!("{needs}[hook.a]\n{lines}"),
            TableKind::Server => {
                let of_url = ["headers", "sse"].into_iter().any(&is_given);
                let url = if of_url { "url = 'http://a/'\n" } else { "command = ['x']\n" };
                let target = if is_given("url") { "" } else { line("command", url) };
                let share = if is_given("instances_max") || is_given("idle_after") {
                    "share = 'per-client'\n"
                } else {
                    ""
                };
                format!("[server.a]\n{target}{share}{lines}")
            }
            TableKind::Gateway => format!("[gateway]\n{lines}"),
            TableKind::Token => {
                let secret = ["token", "token_env", "token_file"].into_iter().any(&is_given);
                let secret = if secret { "" } else { "token_env = 'T'\n" };
                format!("[gateway.token.a]\n{secret}{lines}[server.github]\ncommand = ['x']\n")
            }
        }
    }

    #[test]
    fn every_key_is_complete_and_takes_its_example() {
        for kind in TableKind::ALL {
            let mut keys = BTreeSet::new();
            for field in kind.fields() {
                let key = field.key;
                assert!(keys.insert(key) && field.help.ends_with('.'), "{key}");
                assert!(kind.settings().all(|setting| setting.key != key), "{key}");
                let companions = kind.declared().companions.iter();
                let companion = companions.into_iter().find(|(_, all)| all.contains(&key));
                let other = match (kind, companion, key) {
                    (TableKind::Server, ..) => "",
                    (_, Some((other, _)), _) => *other,
                    (TableKind::Hook, None, "on" | "services") => "desktop",
                    (_, None, "health.http" | "health.tcp" | "health.exec" | "health.mcp") => "",
                    (_, None, key) if key.starts_with("health.") => "health.tcp",
                    _ => "",
                };
                let other = kind.fields().find(|field| field.key == other);
                let line = |field: &Field| format!("{} = {}\n", field.key, field.example());
                let lines = other.map(line).unwrap_or_default() + &line(field);
                loaded(&table(kind, &lines, |given| given == key));
            }
        }
    }

    #[test]
    fn what_is_said_to_hold_without_a_key_does() {
        let env = [];
        let gateway = |config: &Config| config.gateway(&ExternalValues { env: &env, files: &[] });
        for kind in [TableKind::Server, TableKind::Gateway] {
            for field in kind.fields() {
                let Some(default) = default_toml(field) else { continue };
                let is_given = |key: &str| key == field.key;
                let without = gateway(&loaded(&table(kind, "", is_given)));
                let lines = format!("{} = {default}\n", field.key);
                assert_eq!(gateway(&loaded(&table(kind, &lines, is_given))), without, "{lines}");
            }
        }
        for kind in [TableKind::Service, TableKind::Opencode] {
            let probe = "health.http = 'http://localhost:4096/'\n";
            let without = table(kind, probe, |_| false);
            let without = loaded(&without);
            for field in kind.fields() {
                let Some(default) = default_toml(field) else { continue };
                let lines = format!("{probe}{} = {default}\n", field.key);
                let with = loaded(&table(kind, &lines, |_| false));
                assert_eq!(with.services, without.services, "{}", field.key);
            }
        }
    }

    #[test]
    fn the_schema_has_every_key() {
        let schema = schema();
        for kind in TableKind::ALL {
            let pointer = format!("/properties/{}", kind.section().replace('.', "/properties/"));
            let table = schema.pointer(&pointer).unwrap_or_else(|| panic!("{pointer}"));
            let table = match table["patternProperties"].as_object() {
                Some(named) => named.values().next().expect("one pattern"),
                None => table,
            };
            let settings = kind.settings().map(|setting| (setting.key, setting.help));
            for (key, help) in kind.fields().map(|field| (field.key, field.help)).chain(settings) {
                let path = format!("/properties/{}", key.replace('.', "/properties/"));
                let property = table.pointer(&path).unwrap_or_else(|| panic!("{key}"));
                assert_eq!(property["description"], help, "{key}");
            }
        }
    }

    #[test]
    fn every_setting_is_complete_and_unique() {
        let mut env = BTreeSet::new();
        for setting in settings() {
            let key = setting.key;
            assert!(setting.help.ends_with('.'), "{key}");
            assert!(env.insert(setting.env()), "{key}");
            // The default is valid under its own kind.
            let default = setting.default().unwrap_or_else(|| panic!("{key}"));
            assert_eq!(setting.kind.parse(&default.to_string()).as_ref(), Some(&default));
            let file = format!("{key} = {}", default.to_toml());
            let document = toml_edit::Document::parse(file).unwrap();
            assert_eq!(setting.kind.read_toml(&document[key]), Ok(default), "{key}");
        }
        // What resolves the settings reads all of them, each as its own type.
        load(&[], &[], &[]).unwrap();
    }

    #[test]
    fn every_default_is_a_value_of_its_key() {
        for field in TableKind::ALL.into_iter().flat_map(TableKind::fields) {
            if let Fallback::Default(text) = field.fallback {
                assert!(field.default().is_some(), "{}: {text}", field.key);
            }
        }
    }

    #[test]
    fn variables_are_named_after_section_and_key() {
        let env = |section, key| setting(section, key).unwrap().env();
        assert_eq!(env("defaults", "max_restarts"), "AFRESH_MAX_RESTARTS");
        assert_eq!(env("trail", "keep"), "AFRESH_TRAIL_KEEP");
    }
}
