//! The keys of `[server.NAME]`.

use super::super::kind::Kind;
use super::{Field, Form, field};

pub(super) static SERVER: [Field; 19] = [
    field(
        "command",
        Form::Command,
        "",
        r#"["npx", "-y", "@modelcontextprotocol/server-everything"]"#,
        "The program and its arguments, for a server on stdio; no shell is involved. Either this or \
         `url` is given.",
    ),
    field(
        "args",
        Form::Texts,
        "",
        r#"["--token", "${TOKEN}"]"#,
        "More arguments, behind those of `command`; variables are filled in.",
    ),
    field(
        "url",
        Form::One(Kind::UrlTemplate),
        "",
        r#""http://127.0.0.1:3000/mcp""#,
        "The address of a server that is reached over HTTP; variables are filled in.",
    ),
    field(
        "headers",
        Form::Headers,
        "",
        r#"{ Authorization = "Bearer ${TOKEN}" }"#,
        "Headers of each request; variables are filled in. For `url`.",
    ),
    field(
        "sse",
        Form::One(Kind::Bool),
        "found out",
        "true",
        "Whether it speaks HTTP with server-sent events, as before 2025-03-26. For `url`.",
    ),
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
        r#"{ API_KEY = "${API_KEY}" }"#,
        "Variables that it gets on top of afresh's own and of `env_file`; variables are filled in, \
         numbers and booleans count as text.",
    ),
    field(
        "env_file",
        Form::One(Kind::Path),
        "",
        r#"".env""#,
        "A file of `NAME=value` lines, read at each start; a relative path counts from the \
         workspace.",
    ),
    field("watch", Form::Patterns, "", r#"["src"]"#, "Files and folders whose changes restart it."),
    field(
        "prefix",
        Form::One(Kind::Prefix),
        "its name and `__`",
        r#""gh_""#,
        "What stands before the names of its tools and prompts; `\"\"` or `\"none\"` is nothing.",
    ),
    field(
        "allow",
        Form::Patterns,
        "all of them",
        r#"["get_*", "search"]"#,
        "Which of its tools there are, by their own names; a `*` stands for any text, and `[]` is none.",
    ),
    field("deny", Form::Patterns, "", r#"["delete_*"]"#, "Which of these there are not."),
    field(
        "share",
        Form::One(Kind::Word(&["all", "per-client"])),
        r#""all""#,
        r#""per-client""#,
        "Whether all clients share one instance, or each has its own.",
    ),
    field(
        "instances_max",
        Form::One(Kind::Integer { min: 1, max: 1000 }),
        "16",
        "16",
        "Instances at once, where `share` is `per-client`; more clients get an error.",
    ),
    field(
        "idle_after",
        Form::One(Kind::Interval),
        r#""5m""#,
        r#""5m""#,
        "An instance that nobody has used for this long is ended, where `share` is `per-client`; it \
         comes back with the next call.",
    ),
    field(
        "hide_when_down",
        Form::One(Kind::Bool),
        "false",
        "true",
        "Whether its tools leave the list while it is down; else they answer with an error.",
    ),
    field(
        "call_timeout",
        Form::One(Kind::Duration),
        r#""0s""#,
        r#""2m""#,
        "A call that takes longer is answered with an error and cancelled; 0 is as long as it likes.",
    ),
    field(
        "in_flight_max",
        Form::One(Kind::Integer { min: 1, max: 65_536 }),
        "256",
        "256",
        "Calls that may be on their way at once; more get an error.",
    ),
    field(
        "enabled",
        Form::One(Kind::Bool),
        "true",
        "true",
        "Whether there is such a server; `false` in your own file turns off a project's.",
    ),
];

/// The keys that only a server with `url` has. Those below do not care how it is reached, and what is
/// in neither list is about a program that is started.
pub(super) const OF_URL: [&str; 2] = ["headers", "sse"];

/// The keys that every server can have.
pub(super) const OF_BOTH: [&str; 12] = [
    "command",
    "url",
    "prefix",
    "allow",
    "deny",
    "share",
    "instances_max",
    "idle_after",
    "hide_when_down",
    "call_timeout",
    "in_flight_max",
    "enabled",
];
