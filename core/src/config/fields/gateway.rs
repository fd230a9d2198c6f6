//! The keys of `[gateway]` and `[gateway.token.NAME]`.

use super::super::kind::Kind;
use super::{Field, Form, field};
use crate::limits::MESSAGE_BYTES_MAX;

pub(super) static GATEWAY: [Field; 10] = [
    field(
        "expose",
        Form::One(Kind::Word(&["all", "search"])),
        r#""all""#,
        r#""search""#,
        "Whether clients see all tools, or a tool to search them with and those that were found.",
    ),
    field(
        "tools",
        Form::One(Kind::Bool),
        "true",
        "false",
        "Whether afresh's own tools stand beside those of the servers.",
    ),
    field(
        "http",
        Form::One(Kind::Socket),
        "stdio",
        r#""127.0.0.1:8808""#,
        "Where it listens for clients over HTTP.",
    ),
    field(
        "allowed_hosts",
        Form::Patterns,
        "this machine's own names",
        r#"["mcp.example.com"]"#,
        "The hosts that a request over HTTP may be for, beside those of this machine.",
    ),
    field(
        "allowed_origins",
        Form::Patterns,
        "this machine's own names",
        r#"["https://app.example.com"]"#,
        "The web pages that may ask over HTTP, beside those of this machine.",
    ),
    field(
        "clients_max",
        Form::One(Kind::Integer { min: 1, max: 100_000 }),
        "1000",
        "1000",
        "Clients at once; more get an error.",
    ),
    field(
        "body_max",
        Form::One(Kind::Size { min: 1 << 10, max: MESSAGE_BYTES_MAX as u64 }),
        r#""64MiB""#,
        r#""64MiB""#,
        "The largest request over HTTP; a larger one is refused.",
    ),
    field(
        "requests_per_second",
        Form::One(Kind::Integer { min: 0, max: 1_000_000 }),
        "0",
        "100",
        "Requests of one client in a second, each message of a batch being one; more are refused. 0 is any number.",
    ),
    field(
        "session_idle",
        Form::One(Kind::Interval),
        r#""30m""#,
        r#""30m""#,
        "A client over HTTP that is silent for this long is forgotten.",
    ),
    field(
        "keep_alive",
        Form::One(Kind::Duration),
        r#""0""#,
        r#""30s""#,
        "How often a quiet stream over HTTP gets a sign of life, for proxies that close what is quiet; at least 1s, and 0 is never.",
    ),
];

pub(super) static TOKEN: [Field; 5] = [
    field(
        "token",
        Form::Secret,
        "",
        r#""0123456789abcdef""#,
        "The token itself, at least 16 characters; for tries only, since files get around.",
    ),
    field(
        "token_env",
        Form::One(Kind::Variable),
        "",
        r#""GATEWAY_TOKEN""#,
        "The variable that holds the token.",
    ),
    field(
        "token_file",
        Form::One(Kind::Path),
        "",
        r#""gateway.token""#,
        "The file that holds the token; a relative path counts from the workspace.",
    ),
    field(
        "servers",
        Form::Patterns,
        "all of them, or with `tools` those that have one of these",
        r#"["git*"]"#,
        "The servers that it opens, with their resources and prompts; a `*` stands for any text, and `[]` is \
         none.",
    ),
    field(
        "tools",
        Form::Patterns,
        "all of them",
        r#"["*__get_*"]"#,
        "The tools that it opens, by their names in the list; a `*` stands for any text, and `[]` is none.",
    ),
];
