//! Owns the spans of calls for OpenTelemetry: a request of a client, from the moment that it goes to a server until it
//! is answered, the client's trace that it is a part of, and its encoding as OTLP in JSON, with the names of
//! OpenTelemetry's conventions for MCP. Driven by the hub, which makes spans (`hub/hub_state.rs`), and by
//! `otlp_export.rs`, which decides when they are sent, and to whom. Never holds arguments or results.

#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::audit::redact::redact_text;
use crate::limits::{SPAN_TEXT_CHARS_MAX, TRACE_STATE_BYTES_MAX};
use crate::mcp::envelope::Id;
use crate::mcp::json as raw;
use crate::random::Random;
use crate::text;
use crate::time::{Stamp, Time};

/// One request of a client's that was for a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// What it is a part of, as the client says.
    pub parent: Option<Parent>,
    /// What was asked.
    pub method: String,
    /// What it was about.
    pub target: SpanTarget,
    /// The server's name.
    pub server: String,
    /// The name of the client's token; empty without one.
    pub client: String,
    /// The client's id of the request.
    pub request: Id,
    /// The version of the protocol that the client speaks.
    pub version: Option<String>,
    /// Whether the client comes over stdio, and not over HTTP.
    pub is_stdio: bool,
    /// When it went to the server.
    pub began: Time,
    /// When it was over.
    pub ended: Time,
    /// How.
    pub outcome: SpanOutcome,
}

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanTarget {
    /// A tool, by its name in the list.
    Tool(String),
    /// A prompt, by its name in the list.
    Prompt(String),
    /// A resource, by its URI.
    Resource(String),
    /// Nothing that has a name.
    Nothing,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanOutcome {
    /// With a result.
    Answered,
    /// With a result that says that the tool failed.
    ToolFailed,
    /// With an error of the server's.
    Error {
        /// Its code.
        code: Option<i64>,
        /// Its text.
        message: String,
    },
    /// Without an answer of the server's.
    Failed(&'static str),
    /// The client cancelled it.
    Cancelled,
}

impl Span {
    /// What it is called: few names, however many calls there are.
    fn name(&self) -> String {
        match &self.target {
            SpanTarget::Tool(name) | SpanTarget::Prompt(name) => format!("{} {name}", self.method),
            // There may be as many as there are calls.
            SpanTarget::Resource(_) | SpanTarget::Nothing => self.method.clone(),
        }
    }
}

/// The span that a request was made in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    trace: u128,
    span: u64,
    flags: u8,
    /// As the client has it; empty where it has none.
    state: String,
}

impl Parent {
    /// Looks into the `_meta` of a request, raw. What is wrong counts as not there.
    pub fn of_meta(meta: &[u8]) -> Option<Self> {
        let text = raw::get(meta, &["traceparent"]).and_then(raw::text)?;
        let mut parent = Self::parse(&text)?;
        let state = raw::get(meta, &["tracestate"]).and_then(raw::text).unwrap_or_default();
        if state.len() <= TRACE_STATE_BYTES_MAX {
            parent.state = state;
        }
        Some(parent)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut next = |digits: usize| {
            let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
            parts.next().filter(|part| part.len() == digits && part.chars().all(is_hex))
        };
        let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        // Later versions may have more behind it; this one has not.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace, span, flags, state: String::new() })
    }

    /// Whether the trace is sampled.
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }
}

/// `SPAN_KIND_SERVER`.
const KIND_SERVER: u8 = 2;

/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: u8 = 2;

/// The flag of a trace that is kept.
const SAMPLED: u32 = 0x01;

/// That it is known whether the parent is in another process…
const KNOWS_REMOTE: u32 = 0x100;

/// …and that it is.
const IS_REMOTE: u32 = 0x200;

/// Makes unique ids.
#[derive(Debug)]
pub(super) struct Ids {
    high: Random,
    low: Random,
}

impl Ids {
    pub(super) fn new(seed: u128) -> Self {
        Self { high: Random::new((seed >> 64) as u64), low: Random::new(seed as u64) }
    }

    fn trace(&mut self) -> u128 {
        // Zero is no id.
        ((u128::from(self.high.bits()) << 64) | u128::from(self.low.bits())).max(1)
    }

    fn span(&mut self) -> u64 {
        self.low.bits().max(1)
    }
}

/// Encodes a span that ended at this moment.
pub(super) fn encode(span: &Span, ended: Stamp, ids: &mut Ids) -> String {
    let trace = span.parent.as_ref().map_or_else(|| ids.trace(), |parent| parent.trace);
    let flags = match &span.parent {
        Some(parent) => u32::from(parent.flags) | KNOWS_REMOTE | IS_REMOTE,
        None => SAMPLED | KNOWS_REMOTE,
    };
    let mut words = json!({
        "traceId": format!("{trace:032x}"),
        "spanId": format!("{:016x}", ids.span()),
        "flags": flags,
        "name": cut(&span.name()),
        "kind": KIND_SERVER,
        "startTimeUnixNano": ended.earlier_by(span.ended.since(span.began)).unix_nanos().to_string(),
        "endTimeUnixNano": ended.unix_nanos().to_string(),
        "attributes": attributes(span),
    });
    if let Some(parent) = &span.parent {
        words["parentSpanId"] = format!("{:016x}", parent.span).into();
        if !parent.state.is_empty() {
            words["traceState"] = parent.state.as_str().into();
        }
    }
    match &span.outcome {
        SpanOutcome::Answered | SpanOutcome::Cancelled => {}
        SpanOutcome::ToolFailed => words["status"] = json!({"code": STATUS_ERROR}),
        SpanOutcome::Error { message, .. } => {
            words["status"] = json!({"code": STATUS_ERROR, "message": safe(message)});
        }
        SpanOutcome::Failed(reason) => {
            words["status"] = json!({"code": STATUS_ERROR, "message": reason});
        }
    }
    words.to_string()
}

fn attributes(span: &Span) -> Vec<Value> {
    let mut all = vec![attribute("mcp.method.name", &cut(&span.method))];
    match &span.target {
        SpanTarget::Tool(name) => {
            all.push(attribute("gen_ai.operation.name", "execute_tool"));
            all.push(attribute("gen_ai.tool.name", &cut(name)));
        }
        SpanTarget::Prompt(name) => all.push(attribute("gen_ai.prompt.name", &cut(name))),
        SpanTarget::Resource(uri) => all.push(attribute("mcp.resource.uri", &safe(uri))),
        SpanTarget::Nothing => {}
    }
    let raw = String::from_utf8_lossy(span.request.raw());
    all.push(attribute("jsonrpc.request.id", &cut(raw.trim_matches('"'))));
    all.extend(
        span.version.as_ref().map(|version| attribute("mcp.protocol.version", &cut(version))),
    );
    let transport = if span.is_stdio { "pipe" } else { "tcp" };
    all.push(attribute("network.transport", transport));
    if !span.is_stdio {
        all.push(attribute("network.protocol.name", "http"));
    }
    all.push(attribute("afresh.server", &span.server));
    if !span.client.is_empty() {
        all.push(attribute("afresh.client", &span.client));
    }
    match &span.outcome {
        SpanOutcome::Answered => {}
        SpanOutcome::ToolFailed => all.push(attribute("error.type", "tool_error")),
        SpanOutcome::Error { code: Some(code), .. } => {
            all.push(attribute("error.type", &code.to_string()));
            all.push(attribute("rpc.response.status_code", &code.to_string()));
        }
        SpanOutcome::Error { code: None, .. } => all.push(attribute("error.type", "_OTHER")),
        SpanOutcome::Failed(reason) => all.push(attribute("error.type", reason)),
        SpanOutcome::Cancelled => {
            all.push(json!({"key": "afresh.cancelled", "value": {"boolValue": true}}));
        }
    }
    all
}

/// What all spans are of: what stands before them in a request…
pub(super) fn beginning(attributes: &[(String, String)], version: &str) -> String {
    let attributes: Vec<Value> =
        attributes.iter().map(|(key, value)| attribute(key, &cut(value))).collect();
    let resource = json!({"attributes": attributes});
    let scope = json!({"name": "afresh.gateway", "version": version});
    format!(
        r#"{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{{"scope":{scope},"spans":["#
    )
}

/// …and what stands behind them.
pub(super) const ENDING: &str = "]}]}]}";

fn attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn cut(text: &str) -> String {
    text::cut(text, SPAN_TEXT_CHARS_MAX)
}

/// Without what looks like a secret.
fn safe(text: &str) -> String {
    // A secret at the very end of what is kept must be seen whole to be known as one.
    cut(&redact_text(text::head(text, 4 * SPAN_TEXT_CHARS_MAX)))
}
