//! Owns the keys of `[service.NAME]` beside those of `[defaults]`.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::key::*;
use crate::config::value_syntax::Kind;
use crate::definition::{Dependency, Port, StopSignal};

keys! {
    SERVICE of "service";

    /// The program and its arguments; no shell is involved.
    COMMAND: Key<Vec<String>> = key("command", Kind::Command)
        .example(r#"["node", "server.js"]"#);
    /// How the log calls it.
    TITLE: Key<String> = key("title", Kind::Title).example(r#""API""#).or("its name");
    /// The folder that it starts in; a relative path counts from the workspace.
    CWD: Key<PathBuf> = key("cwd", Kind::Path).example(r#""server""#).or("the workspace");
    /// Variables that it gets on top of afresh's own and of `env_file`; numbers and booleans count as text.
    ENV: Key<Pairs> = key("env", Kind::Variables).example(r#"{ PORT = "3000" }"#);
    /// A file of `NAME=value` lines, read at each start; a relative path counts from the workspace.
    ENV_FILE: Key<PathBuf> = key("env_file", Kind::Path).example(r#"".env""#);
    /// The signal that asks it to stop; `SIG` can be left out.
    STOP_SIGNAL: Setting<StopSignal> = key("stop_signal", Kind::Signal).default("SIGTERM");
    /// Services that have to be ready before it starts, and that stop after it. As a table, `{ db = "ready", cache =
    /// "started" }`, it says how far each has to be.
    DEPENDS_ON: Key<Vec<Dependency>> = key("depends_on", Kind::Dependencies).example(r#"["db"]"#);
    /// Whether `afresh up` starts it by itself.
    AUTOSTART: Setting<bool> = key("autostart", Kind::Bool).default("true");
    /// The port, or `host:port`, that it must have for itself; looked at before each start.
    PORT: Key<Port> = key("port", Kind::Port).example("3000");
    /// It is well when a `GET` of this URL is answered with `health.status`.
    HEALTH_HTTP: Key<String> = key("health.http", Kind::Url)
        .example(r#""http://127.0.0.1:3000/health""#);
    /// It is well when a connection to `host:port` can be made.
    HEALTH_TCP: Key<String> = key("health.tcp", Kind::Address).example(r#""127.0.0.1:5432""#);
    /// It is well when this command ends with 0; started in its folder, with its variables.
    HEALTH_EXEC: Key<Vec<String>> = key("health.exec", Kind::Command)
        .example(r#"["pg_isready"]"#);
    /// It is well when the MCP server behind this URL answers.
    HEALTH_MCP: Key<String> = key("health.mcp", Kind::Url)
        .example(r#""http://127.0.0.1:8000/mcp""#);
    /// The status that the answer must have; for `health.http`.
    HEALTH_STATUS: Key<u16> = key("health.status", Kind::Integer(100..=599)).example("200")
        .or("200 to 299");
    /// A field of the answer and the value that it must have; for `health.http`. `a.b` is a field in a field.
    HEALTH_JSON: Key<JsonField> = key("health.json", Kind::JsonField).example("{ healthy = true }");
    /// Headers that are sent; for `health.http`.
    HEALTH_HEADERS: Key<Pairs> = key("health.headers", Kind::Headers)
        .example(r#"{ Accept = "application/json" }"#);
    /// The time between two checks of a service that is ready.
    HEALTH_INTERVAL: Setting<Duration> = key("health.interval", Kind::Interval).default("10s");
    /// The time between two checks of one that is not ready yet.
    HEALTH_READY_INTERVAL: Setting<Duration> = key("health.ready_interval", Kind::Interval)
        .default("250ms");
    /// An answer later than this is none. Before a service is ready, requests are given up sooner at first, and sent
    /// again.
    HEALTH_TIMEOUT: Setting<Duration> = key("health.timeout", Kind::Interval).default("10s");
    /// This many failures in a row of a service that was ready count as a crash.
    HEALTH_FAILURES: Setting<u32> = key("health.failures", Kind::Integer(1..=1000)).default("3");
    /// A service that is not ready this long after its start counts as crashed; 0 waits for ever.
    HEALTH_READY_TIMEOUT: Setting<Option<Duration>> =
        key("health.ready_timeout", Kind::Duration).default("1m");
    /// A file of its output is rotated at this size.
    // Below the least size, nearly every line would begin a new file.
    LOG_MAX_SIZE: Setting<u64> = key("log.max_size", Kind::Size(4 << 10..=1 << 40))
        .default("16MiB");
    /// Rotated files that are kept; the oldest goes when one more is added.
    LOG_KEEP: Setting<u32> = key("log.keep", Kind::Integer(1..=1000)).default("5");
    /// Files whose last line is older than this go; 0 keeps them.
    LOG_MAX_AGE: Setting<Option<Duration>> = key("log.max_age", Kind::Duration)
        .example(r#""7d""#).default("0s");
}
