//! Spans of the requests that go to servers; where calls are not traced, none is made.

use super::super::span::{Outcome, Parent, Span, Target};
use super::super::{ClientId, Effect, LinkId};
use super::route_request::Request;
use super::session::{Client, MODERN};
use super::{Hub, raw};
use crate::mcp::envelope::{Message, look, param};
use crate::time::Time;

impl Hub {
    /// A request of a client's is for the server in a slot. None where nobody wants to know.
    pub(super) fn begin_span(
        &self,
        client: ClientId,
        slot: usize,
        request: &Request<'_>,
    ) -> Option<Box<Span>> {
        if !self.settings.is_traced {
            return None;
        }
        let Request { id, method, params, line, .. } = request;
        let parent = params.meta.clone().and_then(|meta| Parent::of_meta(&line[meta]));
        // Whoever began the trace has decided for all of it.
        if parent.as_ref().is_some_and(|parent| !parent.is_sampled()) {
            return None;
        }
        let name = || params.name.clone().and_then(|name| raw::text(&line[name]));
        let target = match *method {
            "tools/call" => name().map(Target::Tool),
            "prompts/get" => name().map(Target::Prompt),
            _ => param(line, &["uri"]).and_then(raw::text).map(Target::Resource),
        };
        let its = self.clients.get(&client)?;
        Some(Box::new(Span {
            parent,
            method: (*method).to_owned(),
            target: target.unwrap_or(Target::Nothing),
            server: self.servers[slot].backend.name.clone(),
            client: its.access.name.clone(),
            request: (*id).clone(),
            version: version(its),
            is_stdio: self.settings.is_single,
            began: self.now,
            ended: self.now,
            outcome: Outcome::Cancelled,
        }))
    }

    /// The same, over a link.
    pub(super) fn begin_span_over(
        &self,
        client: ClientId,
        link: LinkId,
        request: &Request<'_>,
    ) -> Option<Box<Span>> {
        // Nothing is looked up for nobody.
        match self.settings.is_traced {
            true => self.begin_span(client, self.links.get(&link)?.slot, request),
            false => None,
        }
    }

    /// The request is over.
    pub(super) fn end_span(&mut self, span: Option<Box<Span>>, outcome: Outcome) {
        if let Some(mut span) = span {
            (span.ended, span.outcome) = (self.now, outcome);
            self.effects.push(Effect::Span(span));
        }
    }

    /// The same, as the server has answered.
    pub(super) fn end_span_with(&mut self, span: Option<Box<Span>>, line: &[u8], is_error: bool) {
        // Where there is none, nobody has to look.
        if span.is_none() {
            return;
        }
        let outcome = match is_error {
            true => Outcome::Error {
                code: raw::get(line, &["error", "code"])
                    .and_then(|raw| std::str::from_utf8(raw).ok()?.parse().ok()),
                message: raw::get(line, &["error", "message"])
                    .and_then(raw::text)
                    .unwrap_or_default(),
            },
            false => match raw::get(line, &["result", "isError"]) {
                Some(b"true") => Outcome::ToolFailed,
                _ => Outcome::Answered,
            },
        };
        self.end_span(span, outcome);
    }

    /// A request is answered without having gone to its server.
    pub(super) fn refuse_call(
        &mut self,
        client: ClientId,
        slot: usize,
        request: &Request<'_>,
        reason: &'static str,
        why: &str,
    ) {
        let span = self.begin_span(client, slot, request);
        self.end_span(span, Outcome::Failed(reason));
        self.answer_failure(client, request.id, request.method, reason, why);
    }

    /// Answers a request that has waited for its server in vain.
    pub(super) fn fail_line(&mut self, client: ClientId, slot: usize, line: &[u8], why: &str) {
        if let Some(Message::Request { id, method, params }) = look(line) {
            let request = Request::new(&id, &method, &params, line);
            self.refuse_call(client, slot, &request, "server_down", why);
        }
    }

    /// Ends the spans of all requests that have no answer: the gateway goes.
    pub fn end_spans(&mut self, now: Time) -> Vec<Box<Span>> {
        let spans = self.flights.values_mut().filter_map(|flight| flight.span.take());
        spans.map(|span| Box::new(Span { ended: now, ..*span })).collect()
    }
}

/// The version of the protocol that a client speaks.
fn version(client: &Client) -> Option<String> {
    match client.is_modern() {
        true => Some(MODERN.to_owned()),
        false => raw::get(client.opening.as_ref()?, &["protocolVersion"]).and_then(raw::text),
    }
}
