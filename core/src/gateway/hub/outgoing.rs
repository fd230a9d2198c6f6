//! Owns what leaves the hub: the effects of one input, and the requests to servers that have no response yet.
//! Filled by the hub's parts, drained by `Hub::handle`. Never decides what is sent.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::json;

use super::pending_requests::{PendingRequests, Purpose};
use crate::gateway::span::{Span, SpanOutcome};
use crate::gateway::{ClientId, Effect, LinkId};
use crate::mcp::envelope::Id;
use crate::mcp::responses;
use crate::time::Time;

/// What leaves the hub.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    now: Time,
    effects: Vec<Effect>,
    pub(super) requests: PendingRequests,
    /// Lines of clients that are to be dispatched again, now that their server has a session.
    resumed: VecDeque<(ClientId, Vec<u8>)>,
    /// Links that were closed by this input.
    closed: Vec<LinkId>,
    /// A server has come up, or has failed: requests that are held may go on.
    is_settled: bool,
}

impl Outgoing {
    /// Begins with the next input.
    pub(super) fn begin(&mut self, now: Time) {
        self.now = now;
    }

    pub(super) const fn now(&self) -> Time {
        self.now
    }

    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(super) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(super) fn send_to_link(&mut self, link: LinkId, line: Vec<u8>) {
        self.push(Effect::ToLink { link, line });
    }

    /// Writes to a client, beside the response to one of its requests where that is given.
    pub(super) fn send_to_client(&mut self, client: ClientId, line: Vec<u8>, about: Option<Id>) {
        self.push(Effect::ToClient { client, line, about });
    }

    /// Writes the response to a client's request.
    pub(super) fn answer(&mut self, client: ClientId, id: &Id, line: Vec<u8>) {
        self.send_to_client(client, line, Some(id.clone()));
    }

    pub(super) fn answer_error(&mut self, client: ClientId, id: &Id, code: i32, why: &str) {
        let error = json!({"code": code, "message": why});
        self.answer(client, id, responses::line(id, "error", &error));
    }

    pub(super) fn log(&mut self, text: String) {
        self.push(Effect::Log(text));
    }

    /// Closes a link.
    pub(super) fn close(&mut self, link: LinkId) {
        self.closed.push(link);
        self.push(Effect::Close { link });
    }

    pub(super) fn take_closed(&mut self) -> Vec<LinkId> {
        std::mem::take(&mut self.closed)
    }

    /// Dispatches a client's line again, after this input.
    pub(super) fn resume(&mut self, client: ClientId, line: Vec<u8>) {
        self.resumed.push_back((client, line));
    }

    pub(super) fn next_resumed(&mut self) -> Option<(ClientId, Vec<u8>)> {
        self.resumed.pop_front()
    }

    /// Looks at the held requests again, after this input.
    pub(super) fn settle(&mut self) {
        self.is_settled = true;
    }

    pub(super) fn take_settled(&mut self) -> bool {
        std::mem::take(&mut self.is_settled)
    }

    /// Sends a request of the hub's own, which is to be answered within this time.
    pub(super) fn request(
        &mut self,
        link: LinkId,
        method: &str,
        params: &[u8],
        purpose: Purpose,
        within: Option<Duration>,
    ) -> u64 {
        let number = self.requests.number();
        let line = responses::request(&format!("g{number}"), method, Some(params));
        let until = within.map(|within| self.now + within);
        self.requests.insert(number, link, purpose, until, None);
        self.send_to_link(link, line);
        number
    }

    /// Tells a server that the response to a request does not matter any more.
    pub(super) fn cancel(&mut self, link: LinkId, number: u64, reason: &str) {
        let params = json!({"requestId": format!("g{number}"), "reason": reason}).to_string();
        let line = responses::notification("notifications/cancelled", Some(params.as_bytes()));
        self.send_to_link(link, line);
    }

    pub(super) fn end_span(&mut self, span: Option<Box<Span>>, outcome: SpanOutcome) {
        if let Some(mut span) = span {
            (span.ended, span.outcome) = (self.now, outcome);
            self.push(Effect::Span(span));
        }
    }
}
