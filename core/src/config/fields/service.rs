//! The keys of `[service.NAME]`.

use super::super::kind::Kind;
use super::{Field, Form, field};

pub(super) static SERVICE: [Field; 24] = [
    field(
        "command",
        Form::Command,
        "",
        r#"["node", "server.js"]"#,
        "The program and its arguments; no shell is involved.",
    ),
    field("title", Form::One(Kind::Title), "its name", r#""API""#, "How the log calls it."),
    field(
        "cwd",
        Form::One(Kind::Path),
        "the workspace",
        r#""server""#,
        "The folder that it starts in; a relative path counts from the workspace.",
    ),
    field(
        "env",
        Form::Variables,
        "",
        r#"{ PORT = "3000" }"#,
        "Variables that it gets on top of afresh's own and of `env_file`; numbers and booleans \
         count as text.",
    ),
    field(
        "env_file",
        Form::One(Kind::Path),
        "",
        r#"".env""#,
        "A file of `NAME=value` lines, read at each start; a relative path counts from the \
         workspace.",
    ),
    field(
        "stop_signal",
        Form::One(Kind::Signal),
        r#""SIGTERM""#,
        r#""SIGTERM""#,
        "The signal that asks it to stop; `SIG` can be left out.",
    ),
    field(
        "depends_on",
        Form::Dependencies,
        "",
        r#"["db"]"#,
        "Services that have to be ready before it starts, and that stop after it. As a table, \
         `{ db = \"ready\", cache = \"started\" }`, it says how far each has to be.",
    ),
    field(
        "autostart",
        Form::One(Kind::Bool),
        "true",
        "true",
        "Whether `afresh up` starts it by itself.",
    ),
    field(
        "port",
        Form::Port,
        "",
        "3000",
        "The port, or `host:port`, that it must have for itself; looked at before each start.",
    ),
    field(
        "health.http",
        Form::One(Kind::Url),
        "",
        r#""http://127.0.0.1:3000/health""#,
        "It is well when a `GET` of this URL is answered with `health.status`.",
    ),
    field(
        "health.tcp",
        Form::One(Kind::Address),
        "",
        r#""127.0.0.1:5432""#,
        "It is well when a connection to `host:port` can be made.",
    ),
    field(
        "health.exec",
        Form::Command,
        "",
        r#"["pg_isready"]"#,
        "It is well when this command ends with 0; started in its folder, with its variables.",
    ),
    field(
        "health.mcp",
        Form::One(Kind::Url),
        "",
        r#""http://127.0.0.1:8000/mcp""#,
        "It is well when the MCP server behind this URL answers.",
    ),
    field(
        "health.status",
        Form::One(Kind::Integer { min: 100, max: 599 }),
        "200 to 299",
        "200",
        "The status that the answer must have; for `health.http`.",
    ),
    field(
        "health.json",
        Form::JsonField,
        "",
        "{ healthy = true }",
        "A field of the answer and the value that it must have; for `health.http`. `a.b` is a \
         field in a field.",
    ),
    field(
        "health.headers",
        Form::Headers,
        "",
        r#"{ Accept = "application/json" }"#,
        "Headers that are sent; for `health.http`.",
    ),
    field(
        "health.interval",
        Form::One(Kind::Interval),
        r#""10s""#,
        r#""10s""#,
        "The time between two checks of a service that is ready.",
    ),
    field(
        "health.ready_interval",
        Form::One(Kind::Interval),
        r#""250ms""#,
        r#""250ms""#,
        "The time between two checks of one that is not ready yet.",
    ),
    field(
        "health.timeout",
        Form::One(Kind::Interval),
        r#""10s""#,
        r#""10s""#,
        "An answer later than this is none. Before a service is ready, requests are given up sooner at \
         first, and sent again.",
    ),
    field(
        "health.failures",
        Form::One(Kind::Integer { min: 1, max: 1000 }),
        "3",
        "3",
        "This many failures in a row of a service that was ready count as a crash.",
    ),
    field(
        "health.ready_timeout",
        Form::One(Kind::Duration),
        r#""1m""#,
        r#""1m""#,
        "A service that is not ready this long after its start counts as crashed; 0 waits for ever.",
    ),
    field(
        "log.max_size",
        // Below the least size, nearly every line would begin a new file.
        Form::One(Kind::Size { min: 4 << 10, max: 1 << 40 }),
        r#""16MiB""#,
        r#""16MiB""#,
        "A file of its output is rotated at this size.",
    ),
    field(
        "log.keep",
        Form::One(Kind::Integer { min: 1, max: 1000 }),
        "5",
        "5",
        "Rotated files that are kept; the oldest goes when one more is added.",
    ),
    field(
        "log.max_age",
        Form::One(Kind::Duration),
        r#""0s""#,
        r#""7d""#,
        "Files whose last line is older than this go; 0 keeps them.",
    ),
];
