//! Opens the session of a link, and opens it anew when the session or the connection was lost. Driven by
//! [`Remote::handle`]. Never reads a message of the server but the response to its own `initialize`.

use std::time::Duration;

use super::Remote;
use super::error_responses::LinkError;
use super::exchanges::ExchangePurpose;
use super::requests::RequestPlace;
use super::state::{LinkState, OpeningStep, Transport};
use super::traffic::OwnRequest;
use crate::limits::{GUESS_WAIT, HANDSHAKE_MAX, NOTICE_WAIT, QUEUE_WAIT, RECONNECT_DELAY};
use crate::mcp::json::{self, get};
use crate::time::Time;

impl Remote {
    /// Opens what is missing, or finds that nothing is.
    pub(super) fn open(&mut self, now: Time) {
        let until = now + HANDSHAKE_MAX;
        let replayed = self.traffic.replayed();
        if let Transport::Sse { stream: stream @ None, guess, .. } = &mut self.transport {
            let is_wanted = !self.traffic.requests.is_queue_empty() || guess.is_some();
            if !is_wanted && replayed.is_none() {
                return;
            }
            let until = if guess.is_some() { now + GUESS_WAIT } else { until };
            let exchange = self.traffic.get(ExchangePurpose::Main, &self.session, None);
            *stream = Some(exchange);
            self.state = LinkState::Opening { step: OpeningStep::Stream(exchange), until };
            return;
        }
        match replayed.filter(|_| !self.session.is_open()) {
            None => self.state = LinkState::Up,
            Some(params) => {
                let own = OwnRequest::Opening;
                let (id, line) = self.traffic.own_request(own, "initialize", &params);
                let exchange = self.post(ExchangePurpose::Opening, line, Vec::new());
                let step = OpeningStep::Initialize(id, exchange);
                self.state = LinkState::Opening { step, until };
            }
        }
    }

    /// The link's own `initialize` was answered.
    pub(super) fn opening_answered(&mut self, now: Time, line: &[u8], is_error: bool) {
        let LinkState::Opening { step: OpeningStep::Initialize(_, exchange), .. } = self.state
        else {
            return;
        };
        self.traffic.finish(exchange);
        if is_error {
            let said = get(line, &["error", "message"]).and_then(json::text);
            let why = said.unwrap_or_else(|| "it answered with an error".to_owned());
            return self.opening_refused(now, LinkError::NoSession(why));
        }
        self.session.open(now, line);
        self.traffic.requests.drop_notifications(|line| {
            ExchangePurpose::of_notification(line.to_vec()) == ExchangePurpose::Initialized
        });
        match self.traffic.memory.initialized() {
            None => self.initialized_accepted(now),
            Some(line) => {
                let exchange =
                    self.post(ExchangePurpose::Initialized, line, self.session.headers());
                let until = now + NOTICE_WAIT;
                let step = OpeningStep::Initialized(exchange);
                self.state = LinkState::Opening { step, until };
            }
        }
    }

    /// The server knows that the session is open: everything else may follow.
    pub(super) fn initialized_accepted(&mut self, now: Time) {
        self.state = LinkState::Up;
        // The hub has to read lists again only where the link had a session before.
        if self.session.number() > 0 {
            self.traffic.log("a new session is open");
            for (method, params) in self.traffic.memory.restoring() {
                let own = OwnRequest::Restoring;
                let (id, line) = self.traffic.own_request(own, method, &params);
                let exchange = self.post(ExchangePurpose::Own(id), line, self.session.headers());
                self.traffic.exchanges.expire_at(exchange, now + NOTICE_WAIT);
            }
            self.traffic.tell_changes(None);
        }
        if !self.transport.is_sse() {
            self.standalone.want(now);
        }
    }

    /// The server has forgotten the session.
    pub(super) fn lost(&mut self, now: Time) {
        self.traffic.log("it has forgotten the session");
        self.forget_session();
        let losses = self.session.count_loss(now);
        // Their streams were of that session.
        for id in self.traffic.requests.broken() {
            self.traffic.settle(now, &id, &LinkError::Forgotten);
        }
        if self.traffic.replayed().is_none() {
            // The hub's own `initialize` is still under way.
            self.state = LinkState::Up;
            return;
        }
        self.reopen_after_loss(now, losses, LinkError::ForgetsAlways);
    }

    /// Voids everything of the session.
    pub(super) fn forget_session(&mut self) {
        self.session.forget();
        self.traffic.forget_session();
        if let Some(exchange) = self.standalone.reset() {
            self.traffic.close(exchange);
        }
        // A main stream that is being opened serves the next session as well.
        if let LinkState::Opening {
            step: OpeningStep::Initialize(_, exchange) | OpeningStep::Initialized(exchange),
            ..
        } = self.state
        {
            self.traffic.close(exchange);
            self.state = LinkState::Closed;
        }
    }

    fn reopen_after_loss(&mut self, now: Time, losses: u32, why: LinkError) {
        let delay = self.reachability.delay(losses);
        if delay.is_zero() {
            self.state = LinkState::Closed;
            return self.open(now);
        }
        let earliest = now + delay.min(RECONNECT_DELAY);
        self.state = LinkState::Down { at: Some(now + delay), earliest, why };
    }

    /// The main stream is over, and with it every response that it would have brought. `error` is for the link,
    /// `sent` for the requests that the server has.
    pub(super) fn main_lost(&mut self, now: Time, error: LinkError, sent: &LinkError) {
        let Transport::Sse { stream, endpoint, guess } = &mut self.transport else { return };
        (*stream, *endpoint) = (None, None);
        if let Some(guess) = guess.take() {
            // The server speaks neither transport: its first response is the one that counts.
            self.transport = Transport::Streamable { is_certain: false };
            self.state = LinkState::Up;
            for id in self.traffic.requests.ids(|it| it.flight.method == "initialize") {
                self.traffic.answer(&id, &guess);
            }
            return;
        }
        let was_open = self.session.is_open();
        self.forget_session();
        let is_sent = |place| matches!(place, RequestPlace::Accepted | RequestPlace::Exchange(_));
        for id in self.traffic.requests.ids(|it| is_sent(it.place)).iter().rev() {
            self.traffic.close_exchange_of(id);
            self.traffic.settle(now, id, sent);
        }
        if was_open {
            let losses = self.session.count_loss(now);
            return self.reopen_after_loss(now, losses, error);
        }
        if error.is_final() {
            return self.opening_refused(now, error);
        }
        self.state = LinkState::Closed;
        self.down(now, error, None);
    }

    /// The session was refused, and another try would not change that.
    pub(super) fn opening_refused(&mut self, now: Time, why: LinkError) {
        self.state = LinkState::Closed;
        self.down(now, why, None);
        if let LinkState::Down { at, .. } = &mut self.state {
            *at = None;
        }
        self.traffic.answer_queued(&self.state.queue_error());
    }

    /// The server cannot be reached, or asked to be left alone for a time.
    pub(super) fn down(&mut self, now: Time, why: LinkError, retry_after: Option<Duration>) {
        match &self.state {
            LinkState::Down { .. } if retry_after.is_none() => return,
            // The opening under way will find out.
            LinkState::Opening { step, .. } if self.traffic.exchanges.contains(step.exchange()) => {
                return;
            }
            _ => {}
        }
        let delay = self.reachability.failed(&why, &mut self.traffic);
        let (delay, earliest) = match retry_after {
            Some(wait) => (wait, wait),
            None => (delay, delay.min(RECONNECT_DELAY)),
        };
        self.state = LinkState::Down { at: Some(now + delay), earliest: now + earliest, why };
        if earliest > QUEUE_WAIT {
            self.traffic.answer_queued(&self.state.queue_error());
        }
    }

    /// Finds out whether the server is back, with one exchange.
    pub(super) fn try_again(&mut self, now: Time) {
        self.state = LinkState::Closed;
        self.open(now);
        while self.state == LinkState::Up {
            let Some(first) = self.traffic.requests.pop() else { return };
            if let Some(exchange) = self.send(now, first)
                && self.state == LinkState::Up
            {
                self.state = LinkState::Scouting(exchange);
            }
        }
    }

    pub(super) fn expire_opening(&mut self, now: Time) {
        let LinkState::Opening { step, until } = &self.state else { return };
        if *until > now {
            return;
        }
        let step = step.clone();
        self.traffic.close(step.exchange());
        match step {
            OpeningStep::Initialized(_) => self.initialized_accepted(now),
            OpeningStep::Initialize(..) => {
                self.state = LinkState::Closed;
                self.down(now, LinkError::Silent, None);
            }
            OpeningStep::Stream(_) => {
                self.state = LinkState::Closed;
                self.main_lost(now, LinkError::Silent, &LinkError::Silent);
            }
        }
    }
}
