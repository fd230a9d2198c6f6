//! Owns one link to a server over HTTP: Streamable HTTP of both eras, and HTTP+SSE. The hub hands in lines, as to
//! a pipe, and gets lines back; each of its requests is answered once, however the server and the network fail,
//! unless the hub has cancelled it. Driven by the daemon's link, which performs the exchanges. Never sees a
//! socket or a clock.
//!
//! [`Remote`] composes `session.rs` (opening, loss, reachability) and `traffic.rs` (messages), which in turn holds
//! `in_flight.rs`. `responses.rs` decides on what the server answers, `errors.rs` has what the hub is told instead of an
//! answer, `http_request.rs` makes headers and URLs.

mod errors;
mod http_request;
mod in_flight;
mod responses;
mod session;
#[cfg(test)]
mod tests;
mod traffic;

use std::time::Duration;

use self::errors::LinkError;
pub use self::http_request::{Header, HttpRequest, Method};
use self::in_flight::{ExchangePurpose, Queued, RequestPlace};
use self::session::{LinkState, OpeningStep, Reachability, Standalone, Transport};
use self::traffic::{OwnRequest, Traffic};
use super::backend::HttpServer;
use crate::limits::{EXCHANGES_MAX, HANDSHAKE_MAX, NOTICE_WAIT, QUEUE_WAIT, RETRY_AFTER_MAX};
use crate::mcp::envelope::{Id, Message, Params, look};
use crate::mcp::inflight::Class;
use crate::mcp::json;
use crate::mcp::replay::Memory;
use crate::random::Random;
use crate::sse::{SseEvent, is_header_value};
use crate::time::Time;

/// One exchange over HTTP: a request and all of its response. 1, 2, 3…
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExchangeId(pub u64);

/// Something that happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum RemoteInput {
    /// A line of the hub.
    Line(Vec<u8>),
    /// A request of the hub found no room on its way to the link.
    Refused {
        /// Its id.
        id: Id,
        /// Its method.
        method: String,
    },
    /// An exchange has become a stream of events.
    Opened {
        /// Which.
        exchange: ExchangeId,
        /// The session that its head names.
        session: Option<String>,
    },
    /// An event of such a stream.
    Event {
        /// Of which exchange.
        exchange: ExchangeId,
        /// The event.
        event: SseEvent,
    },
    /// Such a stream ended in good order.
    Ended {
        /// Which exchange.
        exchange: ExchangeId,
    },
    /// An exchange is over, without a stream.
    Replied {
        /// Which.
        exchange: ExchangeId,
        /// The response.
        reply: HttpReply,
    },
    /// An exchange broke off.
    Failed {
        /// Which.
        exchange: ExchangeId,
        /// The server may have seen the request.
        was_sent: bool,
        /// In words, without anything of the URL but host and port.
        why: String,
    },
    /// The moment that `next_wakeup` gave has come.
    Wakeup,
}

/// A response without a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpReply {
    /// The status.
    pub status: u16,
    /// The session that the head names.
    pub session: Option<String>,
    /// How long to wait, where the head says so.
    pub retry_after: Option<Duration>,
    /// The header `location`.
    pub location: Option<String>,
    /// All of the body.
    pub body: Vec<u8>,
    /// It was longer than allowed, and is not all here.
    pub is_too_long: bool,
}

/// What must be done, in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum RemoteEffect {
    /// Begin an exchange.
    Send {
        /// Its number.
        exchange: ExchangeId,
        /// Its request.
        request: HttpRequest,
    },
    /// An exchange has brought its response; its connection can be kept once the body is read.
    Finish(ExchangeId),
    /// Close an exchange at once.
    Drop(ExchangeId),
    /// Hand a line to the hub.
    Tell {
        /// Without its end.
        line: Vec<u8>,
        /// The request that it belongs to, itself included where it is the answer.
        about: Option<Id>,
    },
    /// The server cannot be reached now, and why; or it is there again.
    Serves(Result<(), String>),
    /// Write to the log.
    Log(String),
}

/// One link.
#[derive(Debug)]
pub struct Remote {
    state: LinkState,
    transport: Transport,
    standalone: Standalone,
    reachability: Reachability,
    traffic: Traffic,
}

impl Remote {
    /// A link that has not been used. The seed is for the jitter of waits.
    pub fn new(http: &HttpServer, seed: u64) -> Self {
        let (state, transport) = match http.sse {
            Some(true) => (LinkState::Closed, Transport::Sse { stream: None, guess: None }),
            sse => (LinkState::Up, Transport::Streamable { is_certain: sse.is_some() }),
        };
        let random = Random::new(seed);
        Self {
            state,
            transport,
            standalone: Standalone::default(),
            reachability: Reachability { failures: 0, is_away: false, random },
            traffic: Traffic { url: http.url.clone(), ..Traffic::default() },
        }
    }

    /// Records one input, and returns the effects to perform.
    pub fn handle(&mut self, now: Time, input: RemoteInput) -> Vec<RemoteEffect> {
        let is_name = |session: &String| is_header_value(session.as_bytes());
        match input {
            RemoteInput::Line(line) => self.hub_line(now, line),
            RemoteInput::Refused { id, method } => self.traffic.refuse(&id, &method),
            RemoteInput::Opened { exchange, session } => {
                self.opened(now, exchange, session.filter(is_name));
            }
            RemoteInput::Event { exchange, mut event } => {
                // To the hub it is one line.
                json::flatten(&mut event.data);
                self.event(now, exchange, event);
            }
            RemoteInput::Ended { exchange } => {
                let why = "the stream ended without an answer".to_owned();
                self.failed(now, exchange, true, &why);
            }
            RemoteInput::Replied { exchange, mut reply } => {
                json::flatten(&mut reply.body);
                reply.session = reply.session.filter(is_name);
                reply.retry_after = reply.retry_after.map(|wait| wait.min(RETRY_AFTER_MAX));
                self.replied(now, exchange, &reply);
            }
            RemoteInput::Failed { exchange, was_sent, why } => {
                self.failed(now, exchange, was_sent, &why);
            }
            RemoteInput::Wakeup => {}
        }
        self.step(now);
        std::mem::take(&mut self.traffic.effects)
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let standalone = self.standalone.open_at.filter(|_| self.state == LinkState::Up);
        let requests = self.traffic.requests.next_wakeup();
        let exchanges = self.traffic.exchanges.next_wakeup();
        let state = self.state.next_wakeup();
        [standalone, requests, exchanges, state].into_iter().flatten().min()
    }

    /// The request that ends the session at the server, for the end of the link.
    pub fn farewell(&self) -> Option<HttpRequest> {
        let (url, headers) = (self.traffic.url.clone(), self.traffic.session.headers());
        let request = HttpRequest { method: Method::Delete, url, headers, body: Vec::new() };
        (!self.transport.is_sse() && self.traffic.session.id.is_some()).then_some(request)
    }

    /// Takes every step that can be taken now.
    fn step(&mut self, now: Time) {
        self.end_scouting();
        self.expire(now);
        self.end_scouting();
        match &self.state {
            LinkState::Closed => self.open(now),
            LinkState::Down { at: Some(at), .. } if *at <= now => self.try_again(now),
            _ => {}
        }
        while self.state == LinkState::Up && self.traffic.exchanges.open.len() < EXCHANGES_MAX {
            let Some(queued) = self.traffic.requests.queue.pop_front() else { break };
            self.send(now, queued);
        }
        if self.state == LinkState::Up && self.standalone.open_at.take_if(|at| *at <= now).is_some()
        {
            let last_event = self.standalone.last_event.clone();
            let exchange = self.traffic.get(ExchangePurpose::Standalone, last_event);
            self.standalone.exchange = Some(exchange);
        }
    }

    /// The link is up again when the exchange that scouts is over.
    fn end_scouting(&mut self) {
        if let LinkState::Scouting(exchange) = self.state
            && !self.traffic.exchanges.open.contains_key(&exchange)
        {
            self.state = LinkState::Up;
        }
    }

    /// Sends an element of the queue; returns the exchange, unless the request is gone or already sent.
    fn send(&mut self, now: Time, queued: Queued) -> Option<ExchangeId> {
        let id = match queued {
            Queued::Request(id) => id,
            Queued::Notification { line, .. } => {
                let purpose = ExchangePurpose::of_notification(line.clone());
                let is_initialized = purpose == ExchangePurpose::Initialized;
                let exchange = self.traffic.post(purpose, line, self.traffic.session.headers());
                let until = now + NOTICE_WAIT;
                match is_initialized {
                    true => {
                        let step = OpeningStep::Initialized(exchange);
                        self.state = LinkState::Opening { step, until };
                    }
                    false => drop(self.traffic.exchanges.deadlines.insert(exchange, until)),
                }
                return Some(exchange);
            }
        };
        let request = self.traffic.requests.pending.get_mut(&id)?;
        if !matches!(request.place, RequestPlace::Queued { .. }) {
            return None;
        }
        request.sendings += 1;
        let (line, mut headers) = (request.flight.line.clone(), request.headers.clone());
        let (class, is_modern) = (request.flight.class, request.is_modern);
        if class == Class::Handshake {
            self.traffic.requests.handshake = Some((id.clone(), now + HANDSHAKE_MAX));
        } else if !is_modern {
            headers.extend(self.traffic.session.headers());
        }
        let exchange = self.traffic.post(ExchangePurpose::Request(id.clone()), line, headers);
        if let Some(request) = self.traffic.requests.pending.get_mut(&id) {
            request.place = RequestPlace::Exchange(exchange);
        }
        Some(exchange)
    }

    /// Ends everything that is past its deadline.
    fn expire(&mut self, now: Time) {
        self.traffic.expire_queued(now, &self.state.queue_error());
        for exchange in self.traffic.exchanges.late(now) {
            self.traffic.close(exchange);
        }
        let handshake = self.traffic.requests.handshake.clone();
        if let Some((id, _)) = handshake.filter(|(_, until)| *until <= now) {
            self.traffic.close_exchange_of(&id);
            self.traffic.answer(&id, &LinkError::Silent);
        }
        self.expire_opening(now);
        for id in self.traffic.requests.take_resumable(now) {
            self.traffic.resume(now, &id);
        }
    }

    /// A line of the hub.
    fn hub_line(&mut self, now: Time, line: Vec<u8>) {
        match look(&line) {
            Some(Message::Request { id, method, params }) => {
                self.hub_request(now, id, method, &params, line);
            }
            Some(Message::Notification { method }) if method == "notifications/cancelled" => {
                self.traffic.cancel(now, line);
            }
            Some(Message::Notification { method }) => {
                self.traffic.memory.notification(&method);
                self.traffic.notify(now, line);
            }
            Some(Message::Response { id: Some(id), .. }) => {
                self.traffic.respond(now, &id, &line);
            }
            Some(Message::Response { id: None, .. } | Message::Batch | Message::Invalid { .. })
            | None => self.traffic.log("what cannot be sent to it was dropped"),
        }
    }

    fn hub_request(&mut self, now: Time, id: Id, method: String, params: &Params, line: Vec<u8>) {
        if !self.traffic.admits(&id, &method, line.len()) {
            return;
        }
        if method == "initialize" && self.traffic.replayed().is_some() {
            // The hub opens a session of its own once more: what was agreed on before is void.
            self.forget_session();
            self.traffic.memory = Memory::default();
        }
        self.traffic.add(now, id, method, params, line);
        // The request needs the server: the next try comes as early as allowed.
        if let LinkState::Down { at, earliest, .. } = &mut self.state {
            let soon = now.max(*earliest);
            *at = Some(at.map_or(soon, |at| at.min(soon)));
            if soon > now + QUEUE_WAIT {
                self.traffic.answer_queued(&self.state.queue_error());
            }
        }
    }

    /// A message of the server came in an exchange; `about` is the request that the exchange carries.
    fn message(&mut self, now: Time, exchange: ExchangeId, about: Option<&Id>, line: Vec<u8>) {
        match look(&line) {
            Some(Message::Request { id, .. }) => {
                self.traffic.server_request(exchange, about, (&id, &line));
            }
            Some(Message::Notification { method }) => {
                self.traffic.server_notification(&method, about, line);
            }
            Some(Message::Response { id: Some(id), is_error }) => {
                match self.traffic.own.remove(&id) {
                    Some(OwnRequest::Opening) => self.opening_answered(now, &line, is_error),
                    // The server restored the subscription or rejected it; the hub waits for neither.
                    Some(OwnRequest::Restoring) => {}
                    None => self.traffic.server_response(now, &id, line, is_error),
                }
            }
            Some(Message::Response { id: None, .. }) => {
                if let Some(id) = about {
                    self.traffic.answer_with_error(id, &line);
                }
            }
            Some(Message::Batch) => {
                for element in json::elements(&line).unwrap_or_default() {
                    // Batches within batches are ignored, which bounds the recursion.
                    if !line[element.clone()].starts_with(b"[") {
                        self.message(now, exchange, about, line[element].to_vec());
                    }
                }
            }
            Some(Message::Invalid { .. }) | None => {
                self.traffic.log("it said something that is no message");
            }
        }
    }
}
