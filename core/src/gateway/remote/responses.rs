//! Decides on what a server's response means, by its status (401, 404, 503 …), its events and its body, and on exchanges
//! that fail. Driven by [`Remote::handle`]. Never opens a session itself.

use super::errors::{LinkError, excerpt};
use super::http_request::{origin, resolve};
use super::in_flight::{Exchange, ExchangePurpose, RequestPlace};
use super::session::{LinkState, OpeningStep, Standalone, Transport};
use super::{ExchangeId, HttpReply, Remote};
use crate::limits::{RESUMES_MAX, SENDINGS_MAX};
use crate::mcp::Era;
use crate::mcp::envelope::{Id, Message, look};
use crate::mcp::json::get;
use crate::sse::SseEvent;
use crate::time::Time;

impl Remote {
    pub(super) fn opened(&mut self, now: Time, exchange: ExchangeId, session: Option<String>) {
        let Some(opened) = self.traffic.exchanges.open.get_mut(&exchange) else { return };
        opened.opened_at = Some(now);
        let purpose = opened.purpose.clone();
        // A main stream without an endpoint is no sign of life.
        if purpose != ExchangePurpose::Main {
            self.reachability.reached(&mut self.traffic);
        }
        if self.state == LinkState::Scouting(exchange) {
            self.state = LinkState::Up;
        }
        match purpose {
            ExchangePurpose::Request(id) => self.note_session(&id, session),
            ExchangePurpose::Opening => self.traffic.session.id = session,
            ExchangePurpose::Initialized => {
                self.traffic.finish(exchange);
                self.initialized_accepted(now);
            }
            ExchangePurpose::Notification(_) => self.traffic.finish(exchange),
            ExchangePurpose::Resume(_)
            | ExchangePurpose::Own
            | ExchangePurpose::Standalone
            | ExchangePurpose::Main => {}
        }
    }

    /// The response to the hub's `initialize` names the session.
    fn note_session(&mut self, id: &Id, session: Option<String>) {
        let request = self.traffic.requests.pending.get(id);
        if request.is_some_and(|it| it.flight.method == "initialize") {
            self.traffic.session.id = session;
            if let Transport::Streamable { is_certain } = &mut self.transport {
                *is_certain = true;
            }
        }
    }

    pub(super) fn event(&mut self, now: Time, exchange: ExchangeId, event: SseEvent) {
        let Some(open) = self.traffic.exchanges.open.get_mut(&exchange) else { return };
        open.retry = event.retry.or(open.retry);
        if let Some(id) = event.id {
            open.last_event = Some(id);
        }
        let purpose = open.purpose.clone();
        if event.is_too_long {
            return self.too_long(now, exchange, &purpose);
        }
        if purpose == ExchangePurpose::Main && event.name == "endpoint" {
            let reference = String::from_utf8_lossy(&event.data).into_owned();
            return self.endpoint(now, exchange, &reference);
        }
        if event.data.is_empty() || !matches!(event.name.as_str(), "" | "message") {
            return;
        }
        let about = match &purpose {
            ExchangePurpose::Request(id) | ExchangePurpose::Resume(id) => Some(id),
            _ => None,
        };
        self.message(now, exchange, about, event.data);
    }

    /// The main stream names the endpoint for messages.
    fn endpoint(&mut self, now: Time, exchange: ExchangeId, reference: &str) {
        let Some(url) = resolve(&self.traffic.url, reference) else {
            self.traffic.close(exchange);
            let what = "names an endpoint at another address, where nothing is sent";
            let error = LinkError::Strange(what.to_owned());
            return self.main_lost(now, error.clone(), &error);
        };
        let step = OpeningStep::Stream(exchange);
        if !matches!(self.state, LinkState::Opening { step: waits, .. } if waits == step) {
            return;
        }
        if let Transport::Sse { guess, .. } = &mut self.transport {
            *guess = None;
        }
        self.traffic.endpoint = Some(url);
        self.traffic.session.opened_at = now;
        self.state = LinkState::Closed;
        self.open(now);
    }

    fn too_long(&mut self, now: Time, exchange: ExchangeId, purpose: &ExchangePurpose) {
        match purpose {
            ExchangePurpose::Request(id) | ExchangePurpose::Resume(id) => {
                self.traffic.close(exchange);
                self.traffic.answer(id, &LinkError::TooLong);
            }
            // It may have been any response, and that one will not come.
            ExchangePurpose::Main => {
                self.traffic.close(exchange);
                let why = "it sent a message that is longer than allowed".to_owned();
                self.main_lost(now, LinkError::TooLong, &LinkError::Broke(why));
            }
            ExchangePurpose::Opening => {
                self.traffic.close(exchange);
                self.opening_refused(now, LinkError::TooLong);
            }
            ExchangePurpose::Initialized
            | ExchangePurpose::Notification(_)
            | ExchangePurpose::Own
            | ExchangePurpose::Standalone => {
                self.traffic.log("it sent a message that is longer than allowed");
            }
        }
    }

    /// An exchange broke off, or its stream ended.
    pub(super) fn failed(&mut self, now: Time, exchange: ExchangeId, was_sent: bool, why: &str) {
        let Some(ended) = self.traffic.exchanges.remove(exchange) else { return };
        let unreachable = LinkError::Unreachable(why.to_owned());
        match ended.purpose.clone() {
            ExchangePurpose::Request(id) if was_sent => {
                self.stream_broke(now, &id, &ended, why);
            }
            ExchangePurpose::Request(id) => {
                // The server has not seen it: this try does not count.
                if let Some(request) = self.traffic.requests.pending.get_mut(&id) {
                    request.sendings -= 1;
                }
                self.traffic.requeue_untaken(now, &id);
                self.down(now, unreachable, None);
            }
            ExchangePurpose::Resume(id) => self.resume_broke(now, &id, &ended, why),
            // Another exchange has taken its place.
            ExchangePurpose::Opening | ExchangePurpose::Initialized
                if !self.state.is_step(exchange) => {}
            ExchangePurpose::Opening => {
                self.state = LinkState::Closed;
                self.down(now, unreachable, None);
            }
            ExchangePurpose::Initialized if was_sent => self.initialized_accepted(now),
            ExchangePurpose::Initialized => {
                let line = self.traffic.memory.initialized().unwrap_or_default();
                self.traffic.requests.requeue_notification(now, line);
                self.state = LinkState::Closed;
                self.down(now, unreachable, None);
            }
            ExchangePurpose::Notification(line) if !was_sent => {
                self.traffic.requests.requeue_notification(now, line);
                self.down(now, unreachable, None);
            }
            ExchangePurpose::Standalone if self.standalone.exchange == Some(exchange) => {
                let was_stable = ended.was_stable(now);
                let tries = self.standalone.ended(was_stable, ended.last_event);
                let delay = self.reachability.delay(tries).max(ended.retry.unwrap_or_default());
                self.standalone.open_at = Some(now + delay);
            }
            ExchangePurpose::Main => {
                self.main_lost(now, unreachable, &LinkError::Broke(why.to_owned()));
            }
            ExchangePurpose::Notification(_)
            | ExchangePurpose::Own
            | ExchangePurpose::Standalone => {}
        }
    }

    /// The stream of a request is over before its response came.
    fn stream_broke(&mut self, now: Time, id: &Id, ended: &Exchange, why: &str) {
        let Some(request) = self.traffic.requests.pending.get_mut(id) else { return };
        request.last_event = ended.last_event.clone().or(request.last_event.take());
        let is_same = ended.session == self.traffic.session.number;
        let can_resume =
            request.last_event.is_some() && is_same && self.traffic.memory.era == Era::Legacy;
        let listens = request.flight.is_listen() && request.is_modern;
        if !(can_resume || (listens && ended.opened_at.is_some())) {
            let error = match is_same {
                true => LinkError::Broke(why.to_owned()),
                false => LinkError::Forgotten,
            };
            return self.traffic.settle(now, id, &error);
        }
        request.resumes = if ended.was_stable(now) { 1 } else { request.resumes + 1 };
        request.place = RequestPlace::StreamBroken;
        let delay = self.reachability.delay(request.resumes);
        let at = now + delay.max(ended.retry.unwrap_or_default());
        self.traffic.requests.broken.insert(id.clone(), at);
    }

    /// A stream could not be resumed, or broke again.
    fn resume_broke(&mut self, now: Time, id: &Id, ended: &Exchange, why: &str) {
        let resumes = self.traffic.requests.pending.get(id).map_or(0, |request| request.resumes);
        match ended.opened_at.is_some() || resumes < RESUMES_MAX {
            true => self.stream_broke(now, id, ended, why),
            false => self.traffic.settle(now, id, &LinkError::Broke(why.to_owned())),
        }
    }

    /// An exchange is over, without a stream.
    pub(super) fn replied(&mut self, now: Time, exchange: ExchangeId, reply: &HttpReply) {
        let Some(ended) = self.traffic.exchanges.open.get(&exchange) else { return };
        let is_same = ended.session == self.traffic.session.number;
        let purpose = ended.purpose.clone();
        let is_limited = matches!(reply.status, 429 | 502 | 503 | 504);
        if !is_limited && reply.status < 500 {
            self.reachability.reached(&mut self.traffic);
        }
        let has_session = self.traffic.session.id.is_some() || !is_same || self.transport.is_sse();
        let is_lost = has_session && reply.says_forgotten();
        match purpose {
            ExchangePurpose::Request(id) if (200..300).contains(&reply.status) => {
                self.request_accepted(now, exchange, &id, reply);
            }
            ExchangePurpose::Request(id) => {
                self.traffic.exchanges.remove(exchange);
                self.request_rejected(now, &id, reply, (is_lost, is_same));
            }
            ExchangePurpose::Resume(id) => {
                let Some(ended) = self.traffic.exchanges.remove(exchange) else { return };
                if is_lost && is_same {
                    self.lost(now);
                }
                let why = format!("its stream cannot be taken up, status {}", reply.status);
                match is_limited {
                    true => self.resume_broke(now, &id, &ended, &why),
                    false => self.traffic.settle(now, &id, &LinkError::Broke(why)),
                }
            }
            ExchangePurpose::Opening => self.opening_replied(now, exchange, reply),
            ExchangePurpose::Main => {
                self.traffic.exchanges.remove(exchange);
                let error = LinkError::of_reply(reply, origin(&self.traffic.url));
                self.main_lost(now, error.clone(), &error);
            }
            ExchangePurpose::Initialized
            | ExchangePurpose::Notification(_)
            | ExchangePurpose::Own => {
                self.traffic.exchanges.remove(exchange);
                if is_lost && is_same {
                    return self.lost_by_any(now);
                }
                if reply.status >= 300 {
                    let error = LinkError::of_reply(reply, origin(&self.traffic.url));
                    let text = error.text(origin(&self.traffic.url));
                    self.traffic.log(&format!("a notification was not accepted: {text}"));
                }
                if purpose == ExchangePurpose::Initialized && self.state.is_step(exchange) {
                    self.initialized_accepted(now);
                }
            }
            ExchangePurpose::Standalone => self.standalone_replied(now, exchange, reply, is_lost),
        }
    }

    fn standalone_replied(
        &mut self,
        now: Time,
        exchange: ExchangeId,
        reply: &HttpReply,
        is_lost: bool,
    ) {
        let Some(ended) = self.traffic.exchanges.remove(exchange) else { return };
        match reply.status {
            // Some servers respond so where there is no such stream: each new session would look forgotten.
            404 | 400 if is_lost && !self.traffic.session.is_young(now) => self.lost(now),
            429 | 500.. => {
                let tries = self.standalone.ended(false, None);
                let retry = reply.retry_after.or(ended.retry).unwrap_or_default();
                self.standalone.open_at = Some(now + self.reachability.delay(tries).max(retry));
            }
            _ => self.standalone = Standalone::default(),
        }
    }

    fn lost_by_any(&mut self, now: Time) {
        match &self.transport {
            Transport::Streamable { .. } => self.lost(now),
            Transport::Sse { stream, .. } => {
                if let Some(stream) = *stream {
                    self.traffic.close(stream);
                }
                self.main_lost(now, LinkError::ForgetsAlways, &LinkError::Forgotten);
            }
        }
    }

    fn request_rejected(
        &mut self,
        now: Time,
        id: &Id,
        reply: &HttpReply,
        (is_lost, is_same): (bool, bool),
    ) {
        let error = LinkError::of_reply(reply, origin(&self.traffic.url));
        let Some(request) = self.traffic.requests.pending.get(id) else { return };
        let is_first = request.flight.method == "initialize";
        match reply.status {
            400 | 404 if is_lost && !is_first => {
                // The server has not carried it out.
                match request.sendings < SENDINGS_MAX {
                    true => self.traffic.requeue(now, id),
                    false => self.traffic.answer(id, &LinkError::ForgetsAlways),
                }
                if is_same {
                    self.lost_by_any(now);
                }
            }
            401 | 403 => self.traffic.answer(id, &error),
            400 | 404 | 405
                if is_first
                    && self.transport == (Transport::Streamable { is_certain: false })
                    && reply.may_be_sse(id) =>
            {
                self.traffic.requeue(now, id);
                let guess = Some(LinkError::of_status(reply));
                self.transport = Transport::Sse { stream: None, guess };
                self.state = LinkState::Closed;
            }
            429 | 503 => {
                self.traffic.requeue_untaken(now, id);
                self.down(now, error, reply.retry_after);
            }
            _ if reply.is_error_for(id) => self.traffic.answer_with_error(id, &reply.body),
            502 | 504 => {
                self.traffic.settle(now, id, &error);
                self.down(now, error, None);
            }
            500.. => self.traffic.settle(now, id, &error),
            _ => self.traffic.answer(id, &error),
        }
    }

    fn request_accepted(&mut self, now: Time, exchange: ExchangeId, id: &Id, reply: &HttpReply) {
        self.traffic.exchanges.remove(exchange);
        if self.transport.is_sse() {
            if let Some(request) = self.traffic.requests.pending.get_mut(id) {
                request.place = RequestPlace::Accepted;
            }
            return;
        }
        self.note_session(id, reply.session.clone());
        if reply.is_too_long {
            return self.traffic.answer(id, &LinkError::TooLong);
        }
        let is_message = look(&reply.body).is_some();
        if is_message {
            self.message(now, exchange, Some(id), reply.body.clone());
        }
        if self.traffic.requests.pending.contains_key(id) {
            let what = match is_message {
                true => "answered a request with something else".to_owned(),
                false if reply.body.is_empty() => {
                    format!("gave no answer to a request, only status {}", reply.status)
                }
                false => {
                    format!("answered with something that is no MCP: {}", excerpt(&reply.body))
                }
            };
            self.traffic.answer(id, &LinkError::Strange(what));
        }
    }

    fn opening_replied(&mut self, now: Time, exchange: ExchangeId, reply: &HttpReply) {
        let is_step = self.state.is_step(exchange);
        self.traffic.exchanges.remove(exchange);
        if !is_step {
            return;
        }
        let error = LinkError::of_reply(reply, origin(&self.traffic.url));
        match reply.status {
            200..300 if self.transport.is_sse() => {}
            200..300 => {
                self.traffic.session.id = reply.session.clone();
                if look(&reply.body).is_some() {
                    self.message(now, exchange, None, reply.body.clone());
                }
                if self.state.is_step(exchange) {
                    let what = format!("answered with no MCP: {}", excerpt(&reply.body));
                    self.opening_refused(now, LinkError::Strange(what));
                }
            }
            429 | 500.. => {
                self.state = LinkState::Closed;
                self.down(now, error, reply.retry_after);
            }
            _ => self.opening_refused(now, error),
        }
    }
}

impl HttpReply {
    /// Whether it says that there is no such session: by the specification with 404, and by some servers with
    /// 400 and words.
    fn says_forgotten(&self) -> bool {
        let names_it = || String::from_utf8_lossy(&self.body).to_lowercase().contains("session");
        self.status == 404 || (self.status == 400 && names_it())
    }

    /// Whether it can be that of a server which speaks HTTP+SSE only.
    fn may_be_sse(&self, id: &Id) -> bool {
        // Errors that only servers of the modern era know.
        let code = get(&self.body, &["error", "code"]);
        let is_modern = matches!(code, Some(b"-32020" | b"-32021" | b"-32022" | b"-32601"));
        let named = look(&self.body);
        !matches!(named, Some(Message::Response { id: Some(it), .. }) if it == *id) && !is_modern
    }

    /// Whether it is an error in response to a request, by its id or by naming none.
    fn is_error_for(&self, id: &Id) -> bool {
        match look(&self.body) {
            Some(Message::Response { id: named, is_error: true }) => {
                named.is_none_or(|named| named == *id)
            }
            _ => false,
        }
    }
}
