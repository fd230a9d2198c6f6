//! Owns the keys of `[gateway]`.

use core::net::SocketAddr;
use std::time::Duration;

use crate::config::key::*;
use crate::config::value_syntax::Kind;
use crate::gateway::backend::{ClientEra, Expose};
use crate::limits::MESSAGE_BYTES_MAX;

words! {
    Expose { "all" => All, "search" => Search, }
    ClientEra { "auto" => Auto, "legacy" => Legacy, }
}

keys! {
    GATEWAY of "gateway";

    /// Whether clients see all tools, or a tool to search them with and those that were found.
    EXPOSE: Setting<Expose> = key("expose", word::<Expose>()).example(r#""search""#).default("all");
    /// Whether afresh's own tools stand beside those of the servers.
    TOOLS: Setting<bool> = key("tools", Kind::Bool).example("false").default("true");
    /// How long the first lists of a client wait for servers that are still starting. Then they are answered with
    /// what these had in the last run, if they are started as they were then, and the client is told when that changes.
    START_WAIT: Setting<Duration> = key("start_wait", Kind::Duration).example(r#""10s""#).default("4s");
    /// Which protocol clients may speak: every version, or with `legacy` only those with sessions, up to 2025-11-25. Clients
    /// that know a newer one fall back.
    ERA: Setting<ClientEra> = key("era", word::<ClientEra>()).example(r#""legacy""#).default("auto");
    /// Where it listens for clients over HTTP.
    HTTP: Key<SocketAddr> = key("http", Kind::Socket).example(r#""127.0.0.1:8808""#).or("stdio");
    /// The hosts that a request over HTTP may be for, beside those of this machine.
    ALLOWED_HOSTS: Key<Vec<String>> = key("allowed_hosts", Kind::Patterns)
        .example(r#"["mcp.example.com"]"#).or("this machine's own names");
    /// The web pages that may ask over HTTP, beside those of this machine.
    ALLOWED_ORIGINS: Key<Vec<String>> = key("allowed_origins", Kind::Patterns)
        .example(r#"["https://app.example.com"]"#).or("this machine's own names");
    /// Clients at once. For one more, an idle session of the same token ends; where there is none, it gets an error.
    CLIENTS_MAX: Setting<usize> = key("clients_max", Kind::Integer(1..=100_000)).default("1000");
    /// The largest request over HTTP; a larger one is refused.
    BODY_MAX: Setting<u64> = key("body_max", Kind::Size(1 << 10..=MESSAGE_BYTES_MAX as u64))
        .default("64MiB");
    /// Requests of one client in a second, each message of a batch being one; more are refused. 0 is any number.
    REQUESTS_PER_SECOND: Setting<Option<u32>> =
        key("requests_per_second", Kind::Integer(0..=1_000_000)).example("100").default("0");
    /// A client over HTTP that is silent for this long is forgotten.
    SESSION_IDLE: Setting<Duration> = key("session_idle", Kind::Interval).default("30m");
    /// How often a quiet stream over HTTP gets a sign of life, for proxies that close what is quiet; at least 1s, and
    /// 0 is never.
    KEEP_ALIVE: Key<Option<Duration>> = key("keep_alive", Kind::Duration).example(r#""30s""#)
        .or(r#""0""#);
    /// The OpenTelemetry receiver that a span of each call is sent to.
    OTLP: Key<String> = key("otlp", Kind::Url).example(r#""http://127.0.0.1:4318""#).or("none");
}
