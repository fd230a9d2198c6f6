//! The one table of settings: parsing, checks, `config show`, the JSON Schema, the reference and the
//! environment variables all derive from it.

use std::borrow::Cow;
use std::time::Duration;

use super::kind::{Kind, Value};
pub use super::section::{SECTIONS, Scope, Section, Setting};
use crate::limits;

/// Every setting, in the order in which they are shown.
pub static SETTINGS: [Setting; 52] = [
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
    run(
        "agent",
        Kind::Word(&["auto", "claude", "codex", "opencode", "command"]),
        Value::Word("auto"),
        "The agent; `auto` is the first of claude, codex and opencode that is installed.",
    ),
    run(
        "agent_command",
        Kind::Line,
        EMPTY,
        "The program of the agent, and arguments that come before ours; for the agent `command` the \
         whole command, where `{prompt}` stands for the prompt. Empty is the agent's own name.",
    ),
    run("model", Kind::Line, EMPTY, "The model; empty is the agent's usual one."),
    run(
        "permission_mode",
        Kind::Word(&["plan", "edit", "auto", "bypass"]),
        Value::Word("edit"),
        "What the agent may do; what it may not do is refused, since nobody is asked.",
    ),
    run(
        "context_threshold",
        PERCENT,
        Value::Float(80.0),
        "Percent of the context window at which a session is ended; 100 is never.",
    ),
    run(
        "soft_threshold",
        PERCENT,
        Value::Float(65.0),
        "Percent at which the agent is asked to come to an end by itself; at most `context_threshold`.",
    ),
    run(
        "context_window",
        Kind::Integer { min: 0, max: limits::PLAN_TOKENS_MAX as i64 },
        Value::Integer(0),
        "How many tokens fit into the context, for agents that do not say it, such as `command`; 0 is not known.",
    ),
    run(
        "tool_call_threshold",
        COUNT,
        Value::Integer(100),
        "Uses of tools after which a session is ended; 0 is never.",
    ),
    run(
        "max_restarts",
        COUNT,
        Value::Integer(3),
        "Restarts of one phase; with 0 no session is ended for its context.",
    ),
    run(
        "max_remediations",
        COUNT,
        Value::Integer(3),
        "Sessions that may mend what made a gate fail, for each phase.",
    ),
    run("restart_delay", Kind::Duration, seconds(0), "The time between one session and the next."),
    run(
        "handoff_timeout",
        Kind::Interval,
        seconds(180),
        "How long an agent may take for its handoff.",
    ),
    run(
        "silence",
        Kind::Interval,
        seconds(900),
        "How long nothing may be heard of an agent that works.",
    ),
    run(
        "limit_wait",
        Kind::Interval,
        seconds(60),
        "The first wait for a limit that does not say when it ends; each one after it is twice as \
         long.",
    ),
    run(
        "gate_timeout",
        Kind::Interval,
        seconds(900),
        "How long a gate may take, where the plan does not say.",
    ),
    run(
        "max_cost",
        Kind::Float { min: 0.0, max: limits::PLAN_DOLLARS_MAX },
        Value::Float(0.0),
        "What a run may cost, in US dollars, as far as the agent says; 0 is any amount.",
    ),
    run(
        "max_tokens",
        Kind::Integer { min: 0, max: limits::PLAN_TOKENS_MAX as i64 },
        Value::Integer(0),
        "How many tokens a run may use, in and out; 0 is any number.",
    ),
    run(
        "max_time",
        Kind::Duration,
        seconds(0),
        "How long a run may take, waits not counted; 0 is any time.",
    ),
    run(
        "max_total_restarts",
        COUNT,
        Value::Integer(0),
        "Restarts of a run in all its phases; 0 is any number.",
    ),
    run(
        "branch",
        Kind::Line,
        EMPTY,
        "The branch to work on, which is made where there is none; empty is the one that is there.",
    ),
    run(
        "commit_prefix",
        Kind::Line,
        Value::Text(Cow::Borrowed("afresh:")),
        "In front of the message of each commit.",
    ),
    run(
        "dirty",
        Kind::Word(&["commit", "refuse"]),
        Value::Word("commit"),
        "What becomes of changes that are not committed at the start: a commit of their own, or the \
         run does not begin.",
    ),
    run(
        "exclude",
        Kind::Patterns,
        Value::List(Vec::new()),
        "Patterns of files that are never committed, as lines of a `.gitignore`, beside those that git ignores.",
    ),
    run(
        "no_git",
        Kind::Bool,
        Value::Bool(false),
        "Whether to work without git, and so without commits.",
    ),
    run(
        "supervise_mcp",
        Kind::Bool,
        Value::Bool(true),
        "Whether `afresh mcp` stands in front of the MCP servers that the agent starts.",
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

const fn run(key: &'static str, kind: Kind, default: Value, help: &'static str) -> Setting {
    Setting { section: "run", key, kind, default, help, scope: Scope::Afresh }
}

const PERCENT: Kind = Kind::Float { min: 1.0, max: 100.0 };

const COUNT: Kind = Kind::Integer { min: 0, max: 1_000_000 };

const EMPTY: Value = Value::Text(Cow::Borrowed(""));

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
