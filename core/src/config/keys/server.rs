//! Owns the keys of `[server.NAME]` beside those of `[defaults]`.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::key::*;
use crate::config::value_syntax::Kind;
use crate::gateway::backend::Pin;
use crate::gateway::inherited_env::InheritedEnv;

/// Whether clients share an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum ShareKind {
    /// All clients share one.
    All,
    /// Each client has its own.
    PerClient,
}

words! {
    ShareKind { "all" => All, "per-client" => PerClient, }
    InheritedEnv { "all" => All, "minimal" => Minimal, }
    Pin { "off" => Off, "warn" => Warn, "block" => Block, }
}

keys! {
    SERVER of "server";

    /// The program and its arguments, for a server on stdio; no shell is involved. Either this or `url` is given.
    COMMAND: Key<Vec<String>> = key("command", Kind::Command)
        .example(r#"["npx", "-y", "@modelcontextprotocol/server-everything"]"#);
    /// More arguments, behind those of `command`; variables are filled in.
    ARGS: Key<Vec<String>> = key("args", Kind::Texts).example(r#"["--token", "${TOKEN}"]"#);
    /// The address of a server that is reached over HTTP; variables are filled in.
    URL: Key<String> = key("url", Kind::UrlTemplate)
        .example(r#""http://127.0.0.1:3000/mcp""#);
    /// Headers of each request; variables are filled in. For `url`.
    HEADERS: Key<Pairs> = key("headers", Kind::Headers)
        .example(r#"{ Authorization = "Bearer ${TOKEN}" }"#);
    /// Whether it speaks HTTP with server-sent events, as before 2025-03-26. For `url`.
    SSE: Key<bool> = key("sse", Kind::Bool).example("true").or("found out");
    /// The folder that it starts in; a relative path counts from the workspace.
    CWD: Key<PathBuf> = key("cwd", Kind::Path).example(r#""server""#).or("the workspace");
    /// Variables that it gets on top of afresh's own and of `env_file`; variables are filled in, numbers and booleans
    /// count as text.
    ENV: Key<Pairs> = key("env", Kind::Variables).example(r#"{ API_KEY = "${API_KEY}" }"#);
    /// Which of afresh's own variables it gets: `all` but those of `token_env`, or `minimal`: PATH, HOME, USER, LOGNAME,
    /// SHELL, LANG, LANGUAGE, TERM, TMPDIR, TZ, PWD, LC_* and XDG_*, and what Windows needs.
    INHERIT_ENV: Setting<InheritedEnv> = key("inherit_env", word::<InheritedEnv>())
        .example(r#""minimal""#).default("all");
    /// A file of `NAME=value` lines, read at each start; a relative path counts from the workspace.
    ENV_FILE: Key<PathBuf> = key("env_file", Kind::Path).example(r#"".env""#);
    /// Files and folders whose changes restart it.
    WATCH: Key<Vec<String>> = key("watch", Kind::Patterns).example(r#"["src"]"#);
    /// What stands before the names of its tools and prompts; `""` or `"none"` is nothing.
    PREFIX: Key<String> = key("prefix", Kind::Prefix).example(r#""gh_""#)
        .or("its name and `__`");
    /// Which of its tools there are, by their own names; a `*` stands for any text, and `[]` is none.
    ALLOW: Key<Vec<String>> = key("allow", Kind::Patterns).example(r#"["get_*", "search"]"#)
        .or("all of them");
    /// Which of these there are not.
    DENY: Key<Vec<String>> = key("deny", Kind::Patterns).example(r#"["delete_*"]"#);
    /// Whether all clients share one instance, or each has its own.
    SHARE: Setting<ShareKind> = key("share", word::<ShareKind>()).example(r#""per-client""#)
        .default("all");
    /// Instances at once, where `share` is `per-client`; more clients get an error.
    INSTANCES_MAX: Setting<usize> = key("instances_max", Kind::Integer(1..=1000)).default("16");
    /// An instance that was not used for this long is ended, where `share` is `per-client`; it comes back with the
    /// next call.
    IDLE_AFTER: Setting<Duration> = key("idle_after", Kind::Interval).default("5m");
    /// Whether its tools leave the list while it is down; else they answer with an error.
    HIDE_WHEN_DOWN: Setting<bool> = key("hide_when_down", Kind::Bool).example("true")
        .default("false");
    /// A call that takes longer is answered with an error and cancelled; 0 is as long as it likes.
    CALL_TIMEOUT: Setting<Option<Duration>> = key("call_timeout", Kind::Duration)
        .example(r#""2m""#).default("0s");
    /// Calls that may be on their way at once; more get an error.
    IN_FLIGHT_MAX: Setting<usize> = key("in_flight_max", Kind::Integer(1..=65_536)).default("256");
    /// What a change of its tools, prompts and instructions since their first use leads to: nothing, a warning, or that
    /// what has changed is withheld until `afresh trust NAME` accepts it.
    PIN: Key<Pin> = key("pin", word::<Pin>()).example(r#""block""#)
        .or("`warn` with `url`, `off` with `command`");
    /// Whether there is such a server; `false` in your own file turns off a project's.
    ENABLED: Setting<bool> = key("enabled", Kind::Bool).default("true");
}
