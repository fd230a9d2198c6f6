//! Encodes spans as OTLP in JSON, with the names of OpenTelemetry's conventions for MCP. Driven by `export.rs`. Never
//! sends anything.

use serde_json::{Value, json};

use super::{Span, SpanOutcome, SpanTarget};
use crate::audit::redact::redact_text;
use crate::limits::SPAN_TEXT_CHARS_MAX;
use crate::random::Random;
use crate::text;
use crate::time::Stamp;

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

/// A span that ended at this moment.
pub(super) fn span(span: &Span, ended: Stamp, ids: &mut Ids) -> String {
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
        "startTimeUnixNano": ended.earlier_by(span.lasted()).unix_nanos().to_string(),
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
    let mut all = vec![text("mcp.method.name", &cut(&span.method))];
    match &span.target {
        SpanTarget::Tool(name) => {
            all.push(text("gen_ai.operation.name", "execute_tool"));
            all.push(text("gen_ai.tool.name", &cut(name)));
        }
        SpanTarget::Prompt(name) => all.push(text("gen_ai.prompt.name", &cut(name))),
        SpanTarget::Resource(uri) => all.push(text("mcp.resource.uri", &safe(uri))),
        SpanTarget::Nothing => {}
    }
    let raw = String::from_utf8_lossy(span.request.raw());
    all.push(text("jsonrpc.request.id", &cut(raw.trim_matches('"'))));
    all.extend(span.version.as_ref().map(|version| text("mcp.protocol.version", &cut(version))));
    let transport = if span.is_stdio { "pipe" } else { "tcp" };
    all.push(text("network.transport", transport));
    if !span.is_stdio {
        all.push(text("network.protocol.name", "http"));
    }
    all.push(text("afresh.server", &span.server));
    if !span.client.is_empty() {
        all.push(text("afresh.client", &span.client));
    }
    match &span.outcome {
        SpanOutcome::Answered => {}
        SpanOutcome::ToolFailed => all.push(text("error.type", "tool_error")),
        SpanOutcome::Error { code: Some(code), .. } => {
            all.push(text("error.type", &code.to_string()));
            all.push(text("rpc.response.status_code", &code.to_string()));
        }
        SpanOutcome::Error { code: None, .. } => all.push(text("error.type", "_OTHER")),
        SpanOutcome::Failed(reason) => all.push(text("error.type", reason)),
        SpanOutcome::Cancelled => {
            all.push(json!({"key": "afresh.cancelled", "value": {"boolValue": true}}));
        }
    }
    all
}

/// What all spans are of: what stands before them in a request…
pub(super) fn beginning(attributes: &[(String, String)], version: &str) -> String {
    let attributes: Vec<Value> =
        attributes.iter().map(|(key, value)| text(key, &cut(value))).collect();
    let resource = json!({"attributes": attributes});
    let scope = json!({"name": "afresh.gateway", "version": version});
    format!(
        r#"{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{{"scope":{scope},"spans":["#
    )
}

/// …and what stands behind them.
pub(super) const ENDING: &str = "]}]}]}";

fn text(key: &str, value: &str) -> Value {
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
