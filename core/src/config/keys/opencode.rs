//! Owns the keys of `[opencode]` that other services do not have, or that mean something else there.

use crate::config::key::*;
use crate::config::value_syntax::Kind;
use crate::limits::CONFIG_DURATION_MAX;

keys! {
    OPENCODE of "opencode";

    /// Whether there is such a service; `false` in your own file turns off a project's.
    ENABLED: Setting<bool> = key("enabled", Kind::Bool).default("true");
    /// The port of the server.
    SERVE_PORT: Setting<u16> = key("serve_port", Kind::Integer(1..=65_535)).default("4096");
    /// The host that it listens on, and that the health check asks. `localhost` can be 127.0.0.1 or ::1: write the
    /// address where that matters.
    SERVE_HOSTNAME: Setting<String> = key("serve_hostname", Kind::Host).default("localhost");
    /// The program and its arguments; `{port}` and `{hostname}` are filled in.
    SERVE_COMMAND: Key<Vec<String>> = key("serve_command", Kind::Command)
        .example(r#"["opencode", "serve", "--port", "{port}"]"#)
        .or(r#"["opencode", "serve", "--port", "{port}", "--hostname", "{hostname}"]"#);
    /// Whether it is restarted after a crash: `policy` as `on-crash` or `never`.
    AUTO_RESTART: Setting<bool> = key("auto_restart", Kind::Bool).default("true");
    /// `delay` in milliseconds: the wait after the first crash.
    RESTART_DELAY_MS: Setting<u64> =
        key("restart_delay_ms", Kind::Integer(0..=CONFIG_DURATION_MAX.as_millis() as i64))
        .default("1000");
    /// `max_restarts` by another name: restarts in a row before giving up; 0 never gives up.
    MAX_RESTART_ATTEMPTS: Setting<u32> = key("max_restart_attempts", Kind::Integer(0..=1_000_000))
        .default("5");
    /// How the log calls it.
    TITLE: Setting<String> = key("title", Kind::Title).default("OpenCode");
}
