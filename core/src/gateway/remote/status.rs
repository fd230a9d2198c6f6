//! How exchanges went that were answered at once, by their status.

use super::error_responses::{Trouble, excerpt};
use super::{At, ExchangeId, Purpose, Remote, Reply, State, Transport, url};
use crate::limits::{SENDINGS_MAX, STREAM_STABLE};
use crate::mcp::envelope::{Id, Message, look};
use crate::mcp::json::{self, get};
use crate::time::Time;

impl Remote {
    /// An exchange is over, without a stream.
    pub(super) fn replied(&mut self, now: Time, exchange: ExchangeId, reply: &Reply) {
        let Some(ended) = self.exchanges.get(&exchange) else { return };
        let (purpose, session) = (ended.purpose.clone(), ended.session);
        let is_limited = matches!(reply.status, 429 | 502 | 503 | 504);
        if !is_limited && reply.status < 500 {
            self.is_there();
        }
        let is_same = session == self.session.number;
        let is_step = self.is_step(exchange);
        let is_lost = !matches!(purpose, Purpose::Opening | Purpose::Main)
            && self.says_forgotten(reply, is_same);
        match purpose {
            Purpose::Request(id) => self.request_replied(now, exchange, &id, reply, is_lost),
            Purpose::Resume(id) => {
                let Some(ended) = self.forget_exchange(exchange) else { return };
                if is_lost && is_same {
                    self.lost(now);
                }
                let why = format!("its stream cannot be taken up, status {}", reply.status);
                match is_limited {
                    true => self.resume_broke(now, &id, &ended, &why),
                    false => self.settle(now, &id, &Trouble::Broke(why)),
                }
            }
            Purpose::Opening => self.opening_replied(now, exchange, reply),
            Purpose::Main => {
                self.forget_exchange(exchange);
                let trouble = self.trouble_of(reply);
                self.main_lost(now, trouble.clone(), &trouble);
            }
            Purpose::Initialized | Purpose::Notice(_) | Purpose::Own(_) => {
                self.forget_exchange(exchange);
                if is_lost && is_same {
                    return self.lost_any(now);
                }
                if reply.status >= 300 {
                    let text = self.trouble_of(reply).text(self.origin());
                    self.log(&format!("a notification was not accepted: {text}"));
                }
                if purpose == Purpose::Initialized && is_step {
                    self.initialized_accepted(now);
                }
            }
            Purpose::Standalone => self.standalone_replied(now, exchange, reply, is_lost),
        }
    }

    fn standalone_replied(
        &mut self,
        now: Time,
        exchange: ExchangeId,
        reply: &Reply,
        is_lost: bool,
    ) {
        let Some(ended) = self.forget_exchange(exchange) else { return };
        let is_young = now.since(self.session.opened_at) < STREAM_STABLE;
        match reply.status {
            // Some answer so where there is no such stream: then each new session would look forgotten.
            404 | 400 if is_lost && !is_young => self.lost(now),
            429 | 500.. => self.listen_again(now, false, reply.retry_after.or(ended.retry)),
            _ => self.listen_no_more(),
        }
    }

    /// Whether a reply says that there is no such session: by the specification with 404, and by some
    /// servers with 400 and words.
    fn says_forgotten(&self, reply: &Reply, is_same: bool) -> bool {
        let has_session = self.session.id.is_some() || !is_same;
        let is_old = matches!(self.transport, Transport::Old { .. });
        let names_it = || String::from_utf8_lossy(&reply.body).to_lowercase().contains("session");
        match reply.status {
            404 => has_session || is_old,
            400 => (has_session || is_old) && names_it(),
            _ => false,
        }
    }

    fn lost_any(&mut self, now: Time) {
        match &self.transport {
            Transport::Streamable { .. } => self.lost(now),
            Transport::Old { stream, .. } => {
                if let Some(stream) = *stream {
                    self.close(stream);
                }
                self.main_lost(now, Trouble::ForgetsAlways, &Trouble::Forgotten);
            }
        }
    }

    fn request_replied(
        &mut self,
        now: Time,
        exchange: ExchangeId,
        id: &Id,
        reply: &Reply,
        is_lost: bool,
    ) {
        if (200..300).contains(&reply.status) {
            return self.request_accepted(now, exchange, id, reply);
        }
        let is_same =
            self.exchanges.get(&exchange).is_some_and(|it| it.session == self.session.number);
        self.forget_exchange(exchange);
        let trouble = self.trouble_of(reply);
        let Some(owed) = self.owed.get(id) else { return };
        let is_first = owed.flight.method == "initialize";
        let sendings = owed.sendings;
        match reply.status {
            400 | 404 if is_lost && !is_first => {
                // Not done, whatever it was.
                match sendings < SENDINGS_MAX {
                    true => self.requeue(now, id),
                    false => self.answer(id, &Trouble::ForgetsAlways),
                }
                if is_same {
                    self.lost_any(now);
                }
            }
            401 | 403 => self.answer(id, &trouble),
            400 | 404 | 405 if is_first && self.may_be_old(id, reply) => {
                self.requeue(now, id);
                self.transport = Transport::Old {
                    stream: None,
                    endpoint: None,
                    instead: Some(self.status_trouble(reply)),
                };
                self.state = State::Closed;
            }
            429 | 503 => {
                self.requeue(now, id);
                self.down(now, trouble, reply.retry_after);
            }
            _ if error_for(id, &reply.body) => self.answer_with_error(id, &reply.body),
            502 | 504 => {
                self.settle(now, id, &trouble);
                self.down(now, trouble, None);
            }
            500.. => self.settle(now, id, &trouble),
            _ => self.answer(id, &trouble),
        }
    }

    /// Whether the first answer can be that of a server which speaks the old transport only.
    fn may_be_old(&self, id: &Id, reply: &Reply) -> bool {
        self.transport == Transport::Streamable { is_certain: false }
            && !matches!(look(&reply.body), Some(Message::Response { id: Some(it), .. }) if it == *id)
            && !is_modern_error(&reply.body)
    }

    fn request_accepted(&mut self, now: Time, exchange: ExchangeId, id: &Id, reply: &Reply) {
        if matches!(self.transport, Transport::Old { .. }) {
            self.forget_exchange(exchange);
            if let Some(owed) = self.owed.get_mut(id) {
                owed.at = At::Given;
            }
            return;
        }
        self.note_session(id, reply.session.clone());
        if reply.is_too_long {
            self.forget_exchange(exchange);
            return self.answer(id, &Trouble::TooLong);
        }
        self.forget_exchange(exchange);
        if look(&reply.body).is_some() {
            self.message(now, exchange, Some(id), reply.body.clone());
        }
        if self.owed.contains_key(id) {
            let what = match look(&reply.body) {
                Some(_) => "answered a request with something else".to_owned(),
                None if reply.body.is_empty() => {
                    format!("gave no answer to a request, only status {}", reply.status)
                }
                None => {
                    format!("answered with something that is no MCP: {}", excerpt(&reply.body))
                }
            };
            self.answer(id, &Trouble::Strange(what));
        }
    }

    fn opening_replied(&mut self, now: Time, exchange: ExchangeId, reply: &Reply) {
        if !self.is_step(exchange) {
            self.forget_exchange(exchange);
            return;
        }
        let is_old = matches!(self.transport, Transport::Old { .. });
        match reply.status {
            200..300 if is_old => {
                self.forget_exchange(exchange);
            }
            200..300 => {
                self.session.id = reply.session.clone();
                self.forget_exchange(exchange);
                if look(&reply.body).is_some() {
                    self.message(now, exchange, None, reply.body.clone());
                }
                if self.is_step(exchange) {
                    let what = format!("answered with no MCP: {}", excerpt(&reply.body));
                    self.opening_refused(now, Trouble::Strange(what));
                }
            }
            429 | 500.. => {
                self.forget_exchange(exchange);
                self.state = State::Closed;
                let trouble = self.trouble_of(reply);
                self.down(now, trouble, reply.retry_after);
            }
            _ => {
                self.forget_exchange(exchange);
                let trouble = self.trouble_of(reply);
                self.opening_refused(now, trouble);
            }
        }
    }

    fn trouble_of(&self, reply: &Reply) -> Trouble {
        match reply.status {
            401 | 403 => Trouble::Denied(reply.status),
            429 => Trouble::Busy(reply.retry_after.unwrap_or_default()),
            503 => match reply.retry_after {
                Some(wait) => Trouble::Busy(wait),
                None => Trouble::Unreachable("it answers with status 503".to_owned()),
            },
            300..=399 if reply.location.is_some() => {
                let to = reply.location.as_deref().unwrap_or_default();
                let to = if to.contains("://") { url::origin(to) } else { self.origin() };
                Trouble::Redirected(to.to_owned())
            }
            200..300 => Trouble::Strange("sent no stream of events".to_owned()),
            _ => self.status_trouble(reply),
        }
    }

    fn status_trouble(&self, reply: &Reply) -> Trouble {
        let said = get(&reply.body, &["error", "message"]).and_then(json::text);
        Trouble::Status(reply.status, said.unwrap_or_else(|| excerpt(&reply.body)))
    }
}

/// Whether a body is an error in answer to a request, by its id or by naming none.
fn error_for(id: &Id, body: &[u8]) -> bool {
    match look(body) {
        Some(Message::Response { id: named, is_error: true }) => {
            named.is_none_or(|named| named == *id)
        }
        _ => false,
    }
}

/// Whether a body is an error that only servers of the modern era know.
fn is_modern_error(body: &[u8]) -> bool {
    let code = get(body, &["error", "code"]);
    matches!(code, Some(b"-32020" | b"-32021" | b"-32022" | b"-32601"))
}
