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

use self::server::{OF_BOTH, OF_URL};
use super::key::Field;
use super::tables::{TableKind, is_under};

/// A table of the configuration file whose keys are settings: variables and flags give them too.
#[derive(Debug)]
pub(super) struct Section {
    /// The name in brackets.
    pub(super) name: &'static str,
    /// What its settings are about, in one sentence.
    pub(super) help: &'static str,
    /// Its keys.
    pub(super) fields: &'static [&'static Field],
}

/// Every section, in the order in which they are shown.
pub(super) static SECTIONS: [Section; 4] = [
    Section {
        name: "defaults",
        help: "When a service is restarted, how long that waits, and how it is stopped.",
        fields: defaults::DEFAULTS,
    },
    Section {
        name: "trail",
        help: "Where the audit trail is written, and how much of it is kept.",
        fields: trail::TRAIL,
    },
    Section { name: "daemon", help: "How `afresh up` itself behaves.", fields: daemon::DAEMON },
    Section { name: "run", help: "How `afresh run` carries out a plan.", fields: run::RUN },
];

/// The keys of all sections, in the order in which they are shown.
pub(super) fn settings() -> impl Iterator<Item = &'static Field> + Clone {
    SECTIONS.iter().flat_map(|section| section.fields).copied()
}

/// A key of a section.
pub(super) fn setting(section: &str, key: &str) -> Option<&'static Field> {
    settings().find(|field| field.section == section && field.key == key)
}

impl TableKind {
    /// What the table is about, in one sentence.
    pub(super) const fn help(self) -> &'static str {
        match self {
            Self::Service => "A service that `afresh up` keeps alive.",
            Self::Opencode => {
                "`opencode serve` as a service that is ready-made: the heading alone is enough."
            }
            Self::Hook => "Who is told when something happens to a service of `afresh up`.",
            Self::Server => {
                "An MCP server behind `afresh gateway`. In `args`, `env`, `headers` and `url`, `$VAR`, \
                 `${VAR}`, `${VAR:-default}` and `${env:VAR}` are filled in from the environment; `$$` \
                 is a `$`. Where nothing is set, `stdin_timeout` is 1s and `restart_mode` is `swap`."
            }
            Self::Gateway => "How `afresh gateway` serves its clients.",
            Self::Token => {
                "A bearer token of clients over HTTP, and what it opens. Exactly one of `token`, \
                 `token_env` and `token_file` is given; where there is any token, clients need one."
            }
        }
    }

    /// The keys that no other table has, or that mean something else there.
    pub(super) fn own_fields(self) -> &'static [&'static Field] {
        match self {
            Self::Service => service::SERVICE,
            Self::Opencode => opencode::OPENCODE,
            Self::Hook => hook::HOOK,
            Self::Server => server::SERVER,
            Self::Gateway => gateway::GATEWAY,
            Self::Token => token::TOKENS,
        }
    }

    /// All keys that are not settings.
    pub(super) fn fields(self) -> impl Iterator<Item = &'static Field> {
        let own = self.own_fields();
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

    /// What a key of the generic service is called here.
    pub(super) fn replaced_by(self, key: &str) -> Option<&'static str> {
        match (self, key) {
            (Self::Opencode, "command") => Some("serve_command"),
            (Self::Opencode, "port") => Some("serve_port"),
            _ => None,
        }
    }

    /// Keys of which at most one can be given.
    pub(super) fn rivals(self) -> &'static [&'static [&'static str]] {
        const PROBES: &[&str] = &["health.http", "health.tcp", "health.exec", "health.mcp"];
        match self {
            Self::Service => &[PROBES],
            Self::Opencode => &[
                PROBES,
                &["policy", "auto_restart"],
                &["delay", "restart_delay_ms"],
                &["max_restarts", "max_restart_attempts"],
            ],
            Self::Hook => &[&["command", "webhook", "desktop"]],
            Self::Server => &[&["command", "url"]],
            Self::Gateway => &[],
            Self::Token => &[&["token", "token_env", "token_file"]],
        }
    }

    /// The key that an entry says more about, where it means nothing without that.
    pub(super) fn belongs_to(self, path: &str) -> Option<&'static str> {
        let key = path.split('.').next().unwrap_or(path);
        if self == Self::Server {
            return match key {
                _ if OF_URL.contains(&key) => Some("url"),
                _ if OF_BOTH.contains(&key) => None,
                _ => Some("command"),
            };
        }
        let is_of = |keys: &[&str]| keys.iter().any(|key| is_under(path, key));
        let known = |key: &str| self.fields().any(|field| field.key == key);
        let found = COMPANIONS.iter().find(|(key, companions)| is_of(companions) && known(key));
        found.map(|(key, _)| *key)
    }
}

/// Keys that say more about another one, and mean nothing without it.
pub(super) const COMPANIONS: [(&str, &[&str]); 2] = [
    ("health.http", &["health.status", "health.json", "health.headers"]),
    ("webhook", &["shape", "headers"]),
];

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
                let of_url = OF_URL.into_iter().any(&is_given);
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
                let companion = COMPANIONS.iter().find(|(_, all)| all.contains(&key));
                let other = match (kind, companion, key) {
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
