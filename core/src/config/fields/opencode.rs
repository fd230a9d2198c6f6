//! The keys of `[opencode]` that other services do not have, or that mean something else there.

use super::super::kind::Kind;
use super::{Field, Form, field};
use crate::limits;

pub(super) static OPENCODE: [Field; 8] = [
    field(
        "enabled",
        Form::One(Kind::Bool),
        "true",
        "true",
        "Whether there is such a service; `false` in your own file turns off a project's.",
    ),
    field(
        "serve_port",
        Form::One(Kind::Integer { min: 1, max: 65_535 }),
        "4096",
        "4096",
        "The port of the server.",
    ),
    field(
        "serve_hostname",
        Form::One(Kind::Host),
        r#""localhost""#,
        r#""localhost""#,
        "The host that it listens on, and that the health check asks. `localhost` can be 127.0.0.1 \
         or ::1: write the address where that matters.",
    ),
    field(
        "serve_command",
        Form::Command,
        r#"["opencode", "serve", "--port", "{port}", "--hostname", "{hostname}"]"#,
        r#"["opencode", "serve", "--port", "{port}"]"#,
        "The program and its arguments; `{port}` and `{hostname}` are filled in.",
    ),
    field(
        "auto_restart",
        Form::One(Kind::Bool),
        "true",
        "true",
        "Whether it is restarted after a crash: `policy` as `on-crash` or `never`.",
    ),
    field(
        "restart_delay_ms",
        Form::One(Kind::Integer { min: 0, max: limits::CONFIG_DURATION_MAX.as_millis() as i64 }),
        "1000",
        "1000",
        "`delay` in milliseconds: the wait after the first crash.",
    ),
    field(
        "max_restart_attempts",
        Form::One(Kind::Integer { min: 0, max: 1_000_000 }),
        "5",
        "5",
        "`max_restarts` by another name: restarts in a row before giving up; 0 never gives up.",
    ),
    field(
        "title",
        Form::One(Kind::Title),
        r#""OpenCode""#,
        r#""OpenCode""#,
        "How the log calls it.",
    ),
];
