//! Owns the messages between the hub and the server: pending requests, exchanges under way, requests of the
//! server, and the effects to perform. Driven by [`Remote`](super::Remote), which knows the state of the link.
//! Never decides when to connect.

use std::collections::BTreeMap;

use super::errors::{LinkError, line as response};
use super::http_request::{Header, HeaderParams, HttpRequest, Method, modern_headers, origin};
use super::in_flight::{
    ExchangePurpose, Exchanges, LinkRequests, PendingRequest, Queued, RequestPlace, ServerRequests,
};
use super::session::RemoteSession;
use super::{ExchangeId, RemoteEffect};
use crate::limits::{ASKED_MAX, FLIGHTS_BYTES_MAX, FLIGHTS_MAX, SENDINGS_MAX};
use crate::mcp::Era;
use crate::mcp::envelope::{Id, Params, param};
use crate::mcp::inflight::{Class, Flight, Location};
use crate::mcp::json::{self, get};
use crate::mcp::replay::Memory;
use crate::mcp::responses::{cancelled, notification, request};
use crate::time::Time;

/// The notification of each list that may have changed, and its filter in a listen request.
const LISTS: [(&str, &str); 3] = [
    ("notifications/tools/list_changed", "toolsListChanged"),
    ("notifications/resources/list_changed", "resourcesListChanged"),
    ("notifications/prompts/list_changed", "promptsListChanged"),
];

/// A request of the link itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnRequest {
    Opening,
    Restoring,
}

#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) url: String,
    /// Where messages are posted to, if not to the URL of the server.
    pub(super) endpoint: Option<String>,
    pub(super) session: RemoteSession,
    pub(super) memory: Memory,
    pub(super) header_params: HeaderParams,
    pub(super) requests: LinkRequests,
    pub(super) exchanges: Exchanges,
    pub(super) server_requests: ServerRequests,
    pub(super) own: BTreeMap<Id, OwnRequest>,
    pub(super) effects: Vec<RemoteEffect>,
}

impl Traffic {
    pub(super) fn log(&mut self, what: &str) {
        let text = format!("the server at `{}`: {what}", origin(&self.url));
        self.effects.push(RemoteEffect::Log(text));
    }

    fn tell(&mut self, line: Vec<u8>, about: Option<&Id>) {
        self.effects.push(RemoteEffect::Tell { line, about: about.cloned() });
    }

    /// Posts a message.
    pub(super) fn post(
        &mut self,
        purpose: ExchangePurpose,
        body: Vec<u8>,
        headers: Vec<Header>,
    ) -> ExchangeId {
        let url = self.endpoint.as_ref().unwrap_or(&self.url).clone();
        self.begin(purpose, HttpRequest { method: Method::Post, url, headers, body })
    }

    /// Opens a stream, after an event where there was one.
    pub(super) fn get(
        &mut self,
        purpose: ExchangePurpose,
        last_event: Option<String>,
    ) -> ExchangeId {
        let mut headers = self.session.headers();
        headers.extend(last_event.map(|id| ("last-event-id".into(), id)));
        let (url, body) = (self.url.clone(), Vec::new());
        self.begin(purpose, HttpRequest { method: Method::Get, url, headers, body })
    }

    fn begin(&mut self, purpose: ExchangePurpose, request: HttpRequest) -> ExchangeId {
        let exchange = self.exchanges.begin(purpose, self.session.number);
        self.effects.push(RemoteEffect::Send { exchange, request });
        exchange
    }

    /// Closes an exchange that is of no use any more.
    pub(super) fn close(&mut self, exchange: ExchangeId) {
        if self.exchanges.remove(exchange).is_some() {
            self.effects.push(RemoteEffect::Drop(exchange));
        }
    }

    /// Ends an exchange that has brought its response.
    pub(super) fn finish(&mut self, exchange: ExchangeId) {
        if self.exchanges.remove(exchange).is_some() {
            self.effects.push(RemoteEffect::Finish(exchange));
        }
    }

    /// Closes the exchange that a request is in.
    pub(super) fn close_exchange_of(&mut self, id: &Id) {
        if let Some(RequestPlace::Exchange(exchange)) =
            self.requests.pending.get(id).map(|it| it.place)
        {
            self.close(exchange);
        }
    }

    /// Answers a request that finds no room.
    pub(super) fn refuse(&mut self, id: &Id, method: &str) {
        let class = Class::of(method, false);
        let line = LinkError::TooMany.response(id, class, self.memory.era, origin(&self.url));
        self.tell(line, Some(id));
    }

    /// Whether a request of the hub is taken; it is answered where it finds no room.
    pub(super) fn admits(&mut self, id: &Id, method: &str, bytes: usize) -> bool {
        if self.requests.pending.contains_key(id) {
            self.log("it was asked twice by one id");
            return false;
        }
        // A single one always finds room.
        let LinkRequests { pending, bytes: held, .. } = &self.requests;
        let has_room = pending.len() < FLIGHTS_MAX
            && (held + bytes <= FLIGHTS_BYTES_MAX || pending.is_empty());
        if !has_room {
            self.refuse(id, method);
        }
        has_room
    }

    /// Queues a request of the hub.
    pub(super) fn add(
        &mut self,
        now: Time,
        id: Id,
        method: String,
        params: &Params,
        line: Vec<u8>,
    ) {
        self.memory.request(&id, &method, params, &line);
        let is_modern = params.version.is_some();
        let mut headers = match is_modern {
            true => modern_headers(&method, params, &line),
            false => Vec::new(),
        };
        if is_modern && method == "tools/call" {
            headers.extend(self.header_params.headers(&line));
        }
        let class = Class::of(&method, params.task.is_some());
        let request = PendingRequest {
            flight: Flight::new(method, line, class, Location::Local, now),
            place: RequestPlace::Queued { until: None },
            sendings: 0,
            resumes: 0,
            last_event: None,
            headers,
            is_modern,
            waits_until: now,
        };
        self.requests.add(now, id, request);
    }

    /// Queues a notification or a response of the hub.
    pub(super) fn notify(&mut self, now: Time, line: Vec<u8>) {
        if !self.requests.queue_notification(now, line) {
            self.log("too much waits for it: a notification was dropped");
        }
    }

    /// Passes on the hub's response to a request of the server.
    pub(super) fn respond(&mut self, now: Time, id: &Id, line: &[u8]) {
        if let Some(line) = self.server_requests.respond(self.session.number, id, line) {
            self.notify(now, line);
        }
    }

    /// The hub cancels a request, which then gets no response.
    pub(super) fn cancel(&mut self, now: Time, line: Vec<u8>) {
        let Some(id) = param(&line, &["requestId"]).map(Id::new) else { return };
        let request = self.requests.pending.get(&id);
        let Some(request) = request.filter(|it| it.flight.class != Class::Handshake) else {
            return;
        };
        let place = request.place;
        let is_modern = request.is_modern || self.memory.era == Era::Modern;
        self.requests.take(&id);
        self.memory.stop_listening(&id);
        if let RequestPlace::Exchange(exchange) = place {
            self.close(exchange);
        }
        // In the modern era the closed stream cancels, and a request that was not sent needs no cancelling.
        if !is_modern && !matches!(place, RequestPlace::Queued { .. }) {
            self.notify(now, line);
        }
    }

    /// Puts a request at the front of the queue; one that listens waits as long as it takes.
    pub(super) fn requeue(&mut self, now: Time, id: &Id) {
        let is_listening = self.memory.acknowledged.contains(id);
        self.requests.requeue(now, id, !is_listening, true);
    }

    /// The same for one that the server has not taken: all tries together have one deadline.
    pub(super) fn requeue_untaken(&mut self, now: Time, id: &Id) {
        let is_listening = self.memory.acknowledged.contains(id);
        self.requests.requeue(now, id, !is_listening, false);
    }

    /// A request was sent and gets no response: it is sent again where that is safe, and answered with the
    /// error otherwise.
    pub(super) fn settle(&mut self, now: Time, id: &Id, error: &LinkError) {
        let Some(request) = self.requests.pending.get_mut(id) else { return };
        let is_safe = match request.flight.class {
            Class::Handshake => request.sendings < SENDINGS_MAX,
            Class::Safe | Class::Probe => !request.flight.was_sent_again,
            Class::Tool | Class::Other => false,
        };
        if is_safe {
            request.flight.was_sent_again = true;
            request.last_event = None;
            self.requeue(now, id);
        } else {
            self.answer(id, error);
        }
    }

    /// Answers a request in place of the server.
    pub(super) fn answer(&mut self, id: &Id, error: &LinkError) {
        if let Some(request) = self.requests.take(id) {
            let class = request.flight.class;
            let line = error.response(id, class, self.memory.era, origin(&self.url));
            self.tell_response(id, &request, line, true);
        }
    }

    /// Answers a request with the error of a response that names no request.
    pub(super) fn answer_with_error(&mut self, id: &Id, reply: &[u8]) {
        let Some(error) = get(reply, &["error"]) else { return };
        if let Some(request) = self.requests.take(id) {
            self.tell_response(id, &request, response(id, "error", error), true);
        }
    }

    /// Answers all requests in the queue that have a deadline.
    pub(super) fn answer_queued(&mut self, error: &LinkError) {
        for id in self.requests.take_queued() {
            self.answer(&id, error);
        }
    }

    /// Answers or drops the elements of the queue that have waited long enough.
    pub(super) fn expire_queued(&mut self, now: Time, error: &LinkError) {
        for queued in self.requests.take_late(now) {
            match queued {
                Queued::Request(id) => self.answer(&id, error),
                Queued::Notification { .. } => self.log("a notification to it was dropped"),
            }
        }
    }

    fn tell_response(&mut self, id: &Id, request: &PendingRequest, line: Vec<u8>, is_error: bool) {
        if let RequestPlace::Exchange(exchange) = request.place {
            self.finish(exchange);
        }
        self.memory.answered(id, &request.flight, &line, is_error);
        self.tell(line, Some(id));
    }

    /// Resumes the broken stream of a request, or sends it again where it listens.
    pub(super) fn resume(&mut self, now: Time, id: &Id) {
        let Some(request) = self.requests.pending.get(id) else { return };
        if request.flight.is_listen() {
            if self.memory.acknowledged.contains(id) {
                self.requests.relistened.insert(id.clone());
            }
            return self.requeue(now, id);
        }
        let last_event = request.last_event.clone();
        let exchange = self.get(ExchangePurpose::Resume(id.clone()), last_event);
        if let Some(request) = self.requests.pending.get_mut(id) {
            request.place = RequestPlace::Exchange(exchange);
        }
    }

    /// A line with a request of the link.
    pub(super) fn own_request(&mut self, own: OwnRequest, method: &str, params: &[u8]) -> Vec<u8> {
        let text = format!("afresh-link-{}", self.exchanges.next_number());
        self.own.insert(Id::new(format!("\"{text}\"").as_bytes()), own);
        request(&text, method, Some(params))
    }

    /// Passes on a request of the server, if it belongs to the session that is open.
    pub(super) fn server_request(
        &mut self,
        exchange: ExchangeId,
        about: Option<&Id>,
        (id, line): (&Id, &[u8]),
    ) {
        let session = self.session.number;
        if self.exchanges.open.get(&exchange).is_none_or(|it| it.session != session) {
            return;
        }
        if self.server_requests.0.len() >= ASKED_MAX {
            return self.log("it asks more than is answered: a request of its was dropped");
        }
        let number = self.exchanges.next_number();
        if let Some(line) = self.server_requests.add(session, number, id, line) {
            self.tell(line, about);
        }
    }

    /// Passes on a notification of the server.
    pub(super) fn server_notification(&mut self, method: &str, about: Option<&Id>, line: Vec<u8>) {
        match method {
            "notifications/cancelled" => {
                let id = param(&line, &["requestId"]).map(Id::new);
                if let Some(hub_id) = id.and_then(|id| self.server_requests.cancel(&id)) {
                    let hub_id: String = json::text(hub_id.raw()).unwrap_or_default();
                    return self.tell(cancelled(&hub_id), about);
                }
            }
            "notifications/subscriptions/acknowledged" => {
                let path = ["_meta", "io.modelcontextprotocol/subscriptionId"];
                let named = param(&line, &path).map(Id::new);
                if let Some(id) = named.as_ref().or(about) {
                    if self.requests.relistened.remove(id) {
                        return self.tell_changes(Some(&id.clone()));
                    }
                    if self.memory.listening.contains_key(id) {
                        self.memory.acknowledged.insert(id.clone());
                    }
                }
            }
            _ => {}
        }
        self.tell(line, about);
    }

    /// Passes on the response to a request; that to `initialize` opens the session.
    pub(super) fn server_response(&mut self, now: Time, id: &Id, line: Vec<u8>, is_error: bool) {
        let was_sent = |request: &PendingRequest| {
            !matches!(request.place, RequestPlace::Queued { .. }) || request.sendings > 0
        };
        if !self.requests.pending.get(id).is_some_and(was_sent) {
            return self.log("it answered what was not asked, or asked no more");
        }
        let Some(request) = self.requests.take(id) else { return };
        if request.flight.method == "initialize" && !is_error {
            self.session.open(now, &line);
        }
        if request.flight.method == "tools/list" && request.is_modern {
            self.header_params.learn(&line);
        }
        self.tell_response(id, &request, line, is_error);
    }

    /// Tells the hub to read lists and resources again, which may have changed meanwhile. With `listener`, only
    /// that listen request of the modern era is told.
    pub(super) fn tell_changes(&mut self, listener: Option<&Id>) {
        let mut changes = Vec::new();
        for (method, filter) in LISTS {
            let listeners = self.memory.list_listeners(filter);
            changes.extend(listeners.into_iter().map(|params| (method, params)));
        }
        let updates = self.memory.updates().into_iter();
        changes.extend(updates.map(|params| ("notifications/resources/updated", Some(params))));
        for (method, params) in changes {
            let path = ["_meta", "io.modelcontextprotocol/subscriptionId"];
            let about = params.as_deref().and_then(|params| get(params, &path)).map(Id::new);
            if listener.is_none() || about.as_ref() == listener {
                let line = notification(method, params.as_deref());
                self.tell(line, about.as_ref());
            }
        }
    }

    /// The parameters of the hub's `initialize`, if it has been answered.
    pub(super) fn replayed(&self) -> Option<Vec<u8>> {
        match self.memory.era {
            Era::Legacy => self.memory.opening().map(|(_, params)| params),
            Era::Modern | Era::Unknown => None,
        }
    }

    /// Voids the requests of a session that is over: the hub's copies are cancelled.
    pub(super) fn forget_session(&mut self) {
        for hub_id in std::mem::take(&mut self.server_requests.0).into_keys() {
            let hub_id: String = json::text(hub_id.raw()).unwrap_or_default();
            self.tell(cancelled(&hub_id), None);
        }
        self.own.clear();
    }
}
