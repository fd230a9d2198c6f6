//! The one table of settings: parsing, checks, `config show`, the JSON Schema, the reference and the
//! environment variables all derive from it.

use std::borrow::Cow;
use std::time::Duration;

use super::kind::{Kind, Value};
use crate::limits;

/// A table of the configuration file.
#[derive(Debug)]
pub struct Section {
    /// The name in brackets.
    pub name: &'static str,
    /// What its settings are about, in one sentence.
    pub help: &'static str,
    /// What the names of its environment variables begin with.
    pub env_prefix: &'static str,
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// The name of its section.
    pub section: &'static str,
    /// The key within the section.
    pub key: &'static str,
    /// Which values it takes.
    pub kind: Kind,
    /// The value where no layer gives one.
    pub default: Value,
    /// What it does, in one sentence.
    pub help: &'static str,
    /// Who heeds it.
    pub scope: Scope,
}

/// Who heeds a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every service, and each can have its own.
    Service,
    /// Only `afresh mcp`.
    Mcp,
    /// afresh itself.
    Afresh,
}

impl Setting {
    /// The environment variable that sets it.
    pub fn env(&self) -> String {
        let section = SECTIONS.iter().find(|section| section.name == self.section);
        let prefix = section.map_or("", |section| section.env_prefix);
        format!("{prefix}{}", self.key.to_ascii_uppercase())
    }
}

/// Every section, in the order in which they are shown.
pub static SECTIONS: [Section; 3] = [
    Section {
        name: "defaults",
        help: "When a service is restarted, how long that waits, and how it is stopped.",
        env_prefix: "AFRESH_",
    },
    Section {
        name: "trail",
        help: "Where the audit trail is written, and how much of it is kept.",
        env_prefix: "AFRESH_TRAIL_",
    },
    Section {
        name: "daemon",
        help: "How `afresh up` itself behaves.",
        env_prefix: "AFRESH_DAEMON_",
    },
];

/// Every setting, in the order in which they are shown.
pub static SETTINGS: [Setting; 27] = [
    defaults(
        "policy",
        Kind::Word(&["always", "on-crash", "never"]),
        Value::Word("on-crash"),
        "Which ends of the process are followed by a restart.",
    ),
    defaults(
        "restart_on_normal_exit",
        Kind::Bool,
        Value::Bool(false),
        "Also restarts after a clean exit that nobody asked for, where `policy` is `on-crash`.",
    ),
    defaults(
        "restart_code",
        Kind::Integer { min: 1, max: 255 },
        Value::Integer(42),
        "The exit code by which a process asks to be started again.",
    ),
    defaults(
        "backoff",
        Kind::Word(&["exponential", "stepped"]),
        Value::Word("exponential"),
        "How the wait grows with each crash: by `factor`, or in fixed steps of 1s, 5s and 10s.",
    ),
    defaults(
        "delay",
        Kind::Duration,
        seconds(1),
        "The wait after the first crash, where `backoff` is `exponential`.",
    ),
    defaults(
        "factor",
        Kind::Float { min: 1.0, max: 10.0 },
        Value::Float(2.0),
        "By how much each wait is longer than the one before.",
    ),
    defaults(
        "max_delay",
        Kind::Duration,
        seconds(60),
        "The longest wait, jitter included; at least `delay`.",
    ),
    defaults(
        "jitter",
        Kind::Percent { max: 50 },
        Value::Percent(50),
        "Up to this many percent are added to each wait at random.",
    ),
    defaults(
        "throttle",
        Kind::Duration,
        seconds(1),
        "The least time between two requested restarts.",
    ),
    defaults(
        "crash_loop_count",
        Kind::Integer { min: 0, max: 1000 },
        Value::Integer(3),
        "This many crashes within `crash_loop_window` are a crash loop; 0 turns that off.",
    ),
    defaults(
        "crash_loop_window",
        Kind::Duration,
        seconds(60),
        "The time within which `crash_loop_count` crashes are a crash loop.",
    ),
    defaults(
        "stable_after",
        Kind::Duration,
        seconds(60),
        "A process that ran this long was fine: the count of crashes begins anew.",
    ),
    defaults(
        "max_restarts",
        Kind::Integer { min: 0, max: 1_000_000 },
        Value::Integer(5),
        "Restarts after crashes in a row, without a stable run, before giving up; 0 never gives up. \
         Restarts that are asked for do not count: `throttle` holds them back.",
    ),
    defaults(
        "stdin_timeout",
        Kind::Duration,
        seconds(0),
        "A stop closes stdin, waits this long, then sends SIGTERM.",
    ),
    defaults("stop_timeout", Kind::Duration, seconds(5), "The time between SIGTERM and SIGKILL."),
    mcp(
        "restart_mode",
        Kind::Word(&["replace", "swap"]),
        Value::Word("replace"),
        "How `afresh mcp` carries out a requested restart: `replace` stops the old instance first, \
         `swap` starts the new one first and stops the old one when the new one is ready. Where \
         nothing is set, `afresh mcp` swaps; `afresh keep` always replaces.",
    ),
    mcp(
        "drain_timeout",
        Kind::Duration,
        seconds(10),
        "In a swap, how long the old instance may take to finish what it has begun.",
    ),
    mcp(
        "spare",
        Kind::Bool,
        Value::Bool(false),
        "Whether `afresh mcp` keeps an idle instance that takes over at once after a crash.",
    ),
    mcp(
        "wedge_timeout",
        Kind::Duration,
        Value::Duration(limits::WEDGE_TIMEOUT),
        "An MCP server that leaves a call unanswered and says nothing for this long is asked whether \
         it lives; if it neither answers nor works, it is restarted. 0 never asks.",
    ),
    defaults(
        "max_rss",
        Kind::Size { min: 0, max: 1 << 50 },
        Value::Size(0),
        "A service whose processes hold more memory than this together is restarted; 0B is any \
         amount.",
    ),
    mcp(
        "watch_debounce",
        Kind::Duration,
        Value::Duration(limits::WATCH_DEBOUNCE),
        "How long watched files must be quiet before a change of theirs restarts the server.",
    ),
    trail(
        "audit_file",
        Kind::Path,
        Value::Path(Cow::Borrowed(".afresh/audit.jsonl")),
        "The audit trail; a relative path counts from the workspace.",
    ),
    trail(
        "marker_file",
        Kind::Path,
        Value::Path(Cow::Borrowed(".afresh/restart_marker.json")),
        "The marker of the last restart; a relative path counts from the workspace.",
    ),
    trail(
        "max_size",
        // Below the least size, nearly every record would begin a new file.
        Kind::Size { min: 4 << 10, max: 1 << 40 },
        Value::Size(limits::TRAIL_FILE_BYTES_MAX),
        "The trail is rotated at this size.",
    ),
    trail(
        "keep",
        Kind::Integer { min: 1, max: 1000 },
        Value::Integer(limits::TRAIL_FILES_KEPT as i64),
        "Rotated files that are kept; the oldest goes when one more is added.",
    ),
    daemon(
        "on_supervisor_death",
        Kind::Word(&["kill", "keep"]),
        Value::Word("kill"),
        "What becomes of the services when `afresh up` itself is killed: `kill` ends them with it, \
         `keep` lets them run, and the next `afresh up` takes them over.",
    ),
    daemon(
        "listen",
        Kind::Listen,
        Value::Text(Cow::Borrowed("")),
        "Where the control API also listens, beside its socket: `127.0.0.1:PORT` or `[::1]:PORT`. \
         Empty is nowhere; addresses that others can reach are refused.",
    ),
];

/// The place of a setting in [`SETTINGS`].
pub(super) fn position(section: &str, key: &str) -> Option<usize> {
    (SETTINGS.iter()).position(|setting| setting.section == section && setting.key == key)
}

/// The settings of one section.
pub(super) fn of_section(section: &str) -> impl Iterator<Item = &'static Setting> {
    (SETTINGS.iter()).filter(move |setting| setting.section == section)
}

const fn defaults(key: &'static str, kind: Kind, default: Value, help: &'static str) -> Setting {
    Setting { section: "defaults", key, kind, default, help, scope: Scope::Service }
}

const fn mcp(key: &'static str, kind: Kind, default: Value, help: &'static str) -> Setting {
    Setting { section: "defaults", key, kind, default, help, scope: Scope::Mcp }
}

const fn trail(key: &'static str, kind: Kind, default: Value, help: &'static str) -> Setting {
    Setting { section: "trail", key, kind, default, help, scope: Scope::Afresh }
}

const fn daemon(key: &'static str, kind: Kind, default: Value, help: &'static str) -> Setting {
    Setting { section: "daemon", key, kind, default, help, scope: Scope::Afresh }
}

const fn seconds(seconds: u64) -> Value {
    Value::Duration(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_setting_is_complete_and_unique() {
        let mut env = BTreeSet::new();
        for setting in &SETTINGS {
            let key = setting.key;
            assert!(SECTIONS.iter().any(|s| s.name == setting.section), "{key}");
            assert!(setting.help.ends_with('.'), "{key}");
            assert!(env.insert(setting.env()), "{key}");
            // The default is valid under its own kind.
            let text = setting.default.to_string();
            assert_eq!(setting.kind.parse(&text), Some(setting.default.clone()));
            let file = format!("{key} = {}", setting.default.to_toml());
            let document = toml_edit::Document::parse(file).unwrap();
            let read = setting.kind.read_toml(&document[key]);
            assert_eq!(read, Ok(setting.default.clone()), "{key}");
        }
    }

    #[test]
    fn variables_are_named_after_section_and_key() {
        let env = |section, key| SETTINGS[position(section, key).unwrap()].env();
        assert_eq!(env("defaults", "max_restarts"), "AFRESH_MAX_RESTARTS");
        assert_eq!(env("trail", "keep"), "AFRESH_TRAIL_KEEP");
    }
}
