//! Makes the spans of the requests that go to servers. Driven by [`Directory`](super::directory::Directory). Never
//! exports one.

use super::route_request::Request;
use super::sessions::ClientSession;
use crate::gateway::span::{Parent, Span, SpanOutcome, SpanTarget};
use crate::mcp::envelope::param;
use crate::mcp::json as raw;
use crate::time::Time;

/// Makes spans, where calls are traced.
#[derive(Debug)]
pub(super) struct Tracer {
    is_enabled: bool,
    /// Clients come over stdio.
    is_stdio: bool,
}

impl Tracer {
    pub(super) const fn new(is_enabled: bool, is_stdio: bool) -> Self {
        Self { is_enabled, is_stdio }
    }

    pub(super) const fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// The span of a request for a server. None where the trace that it belongs to is not sampled.
    pub(super) fn begin(
        &self,
        session: &ClientSession,
        server: &str,
        request: &Request<'_>,
        now: Time,
    ) -> Option<Box<Span>> {
        let Request { id, method, params, line, .. } = request;
        let parent = params.meta.clone().and_then(|meta| Parent::of_meta(&line[meta]));
        if parent.as_ref().is_some_and(|parent| !parent.is_sampled()) {
            return None;
        }
        let name = || params.name.clone().and_then(|name| raw::text(&line[name]));
        let target = match *method {
            "tools/call" => name().map(SpanTarget::Tool),
            "prompts/get" => name().map(SpanTarget::Prompt),
            _ => param(line, &["uri"]).and_then(raw::text).map(SpanTarget::Resource),
        };
        Some(Box::new(Span {
            parent,
            method: (*method).to_owned(),
            target: target.unwrap_or(SpanTarget::Nothing),
            server: server.to_owned(),
            client: session.access().name.clone(),
            request: (*id).clone(),
            version: session.version(),
            is_stdio: self.is_stdio,
            began: now,
            ended: now,
            outcome: SpanOutcome::Cancelled,
        }))
    }
}

/// How a request ended, by its response.
pub(super) fn outcome_of(line: &[u8], is_error: bool) -> SpanOutcome {
    if is_error {
        return SpanOutcome::Error {
            code: raw::get(line, &["error", "code"])
                .and_then(|raw| std::str::from_utf8(raw).ok()?.parse().ok()),
            message: raw::get(line, &["error", "message"]).and_then(raw::text).unwrap_or_default(),
        };
    }
    match raw::get(line, &["result", "isError"]) {
        Some(b"true") => SpanOutcome::ToolFailed,
        _ => SpanOutcome::Answered,
    }
}
