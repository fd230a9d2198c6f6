//! Owns the session of a link: its state, and how it is opened, lost and opened anew; whether the server can be reached,
//! and the waits between tries. Driven by [`Remote::handle`]. Never reads a message of the server but the response to
//! its own `initialize`.

use std::time::Duration;

use super::errors::LinkError;
use super::http_request::{Header, origin};
use super::in_flight::{ExchangePurpose, Queued, RequestPlace};
use super::traffic::{OwnRequest, Traffic};
use super::{ExchangeId, Remote, RemoteEffect};

use crate::exponential_wait::ExponentialWait;
use crate::limits::{
    GUESS_WAIT, HANDSHAKE_MAX, NOTICE_WAIT, QUEUE_WAIT, RECONNECT_DELAY, RECONNECT_DELAY_MAX,
    RECONNECT_JITTER, STREAM_STABLE,
};
use crate::mcp::json::{self, get};
use crate::mcp::responses::without_consequence;
use crate::random::Random;
use crate::sse::is_header_value;
use crate::time::Time;

impl Remote {
    /// Opens what is missing, or finds that nothing is.
    pub(super) fn open(&mut self, now: Time) {
        let until = now + HANDSHAKE_MAX;
        let replayed = self.traffic.replayed();
        if let Transport::Sse { stream: stream @ None, guess, .. } = &mut self.transport {
            let is_wanted = !self.traffic.requests.queue.is_empty() || guess.is_some();
            if !is_wanted && replayed.is_none() {
                return;
            }
            let until = if guess.is_some() { now + GUESS_WAIT } else { until };
            let exchange = self.traffic.get(ExchangePurpose::Main, None);
            *stream = Some(exchange);
            return self.state = LinkState::Opening { step: OpeningStep::Stream(exchange), until };
        }
        match replayed.filter(|_| !self.traffic.session.is_open) {
            None => self.state = LinkState::Up,
            Some(params) => {
                let line = self.traffic.own_request(OwnRequest::Opening, "initialize", &params);
                let exchange = self.traffic.post(ExchangePurpose::Opening, line, Vec::new());
                let step = OpeningStep::Initialize(exchange);
                self.state = LinkState::Opening { step, until };
            }
        }
    }

    /// The link's own `initialize` was answered.
    pub(super) fn opening_answered(&mut self, now: Time, line: &[u8], is_error: bool) {
        let LinkState::Opening { step: OpeningStep::Initialize(exchange), .. } = self.state else {
            return;
        };
        self.traffic.finish(exchange);
        if is_error {
            let said = get(line, &["error", "message"]).and_then(json::text);
            let why = said.unwrap_or_else(|| "it answered with an error".to_owned());
            return self.opening_refused(now, LinkError::NoSession(why));
        }
        self.traffic.session.open(now, line);
        self.traffic.requests.queue.retain(|queued| match queued {
            Queued::Request(_) => true,
            Queued::Notification { line, .. } => {
                ExchangePurpose::of_notification(line.to_vec()) != ExchangePurpose::Initialized
            }
        });
        match self.traffic.memory.initialized() {
            None => self.initialized_accepted(now),
            Some(line) => {
                let exchange = self.traffic.post(
                    ExchangePurpose::Initialized,
                    line,
                    self.traffic.session.headers(),
                );
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
        if self.traffic.session.number > 0 {
            self.traffic.log("a new session is open");
            for (method, params) in self.traffic.memory.restoring() {
                let line = self.traffic.own_request(OwnRequest::Restoring, method, &params);
                let exchange =
                    self.traffic.post(ExchangePurpose::Own, line, self.traffic.session.headers());
                self.traffic.exchanges.deadlines.insert(exchange, now + NOTICE_WAIT);
            }
            self.traffic.tell_changes(None);
        }
        if !self.transport.is_sse() && self.standalone.exchange.is_none() {
            self.standalone.open_at = Some(now);
        }
    }

    /// The server has forgotten the session.
    pub(super) fn lost(&mut self, now: Time) {
        self.traffic.log("it has forgotten the session");
        self.forget_session();
        let losses = self.traffic.session.count_loss(now);
        // Their streams were of that session.
        for id in self.traffic.requests.broken.keys().cloned().collect::<Vec<_>>() {
            self.traffic.settle(now, &id, &LinkError::Forgotten);
        }
        if self.traffic.replayed().is_none() {
            // The hub's own `initialize` is still under way.
            return self.state = LinkState::Up;
        }
        self.reopen_after_loss(now, losses, LinkError::ForgetsAlways);
    }

    /// Voids everything of the session.
    pub(super) fn forget_session(&mut self) {
        self.traffic.session.forget();
        self.traffic.forget_session();
        if let Some(exchange) = std::mem::take(&mut self.standalone).exchange {
            self.traffic.close(exchange);
        }
        // A main stream that is being opened serves the next session as well.
        if let LinkState::Opening {
            step: OpeningStep::Initialize(exchange) | OpeningStep::Initialized(exchange),
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
        let Transport::Sse { stream, guess } = &mut self.transport else { return };
        (*stream, self.traffic.endpoint) = (None, None);
        if let Some(guess) = guess.take() {
            // The server speaks neither transport: its first response is the one that counts.
            self.transport = Transport::Streamable { is_certain: false };
            self.state = LinkState::Up;
            for id in self.traffic.requests.ids(|it| it.flight.method == "initialize") {
                self.traffic.answer(&id, &guess);
            }
            return;
        }
        let was_open = self.traffic.session.is_open;
        self.forget_session();
        let is_sent = |place| matches!(place, RequestPlace::Accepted | RequestPlace::Exchange(_));
        for id in self.traffic.requests.ids(|it| is_sent(it.place)).iter().rev() {
            self.traffic.close_exchange_of(id);
            self.traffic.settle(now, id, sent);
        }
        if was_open {
            let losses = self.traffic.session.count_loss(now);
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
            LinkState::Opening { step, .. }
                if self.traffic.exchanges.open.contains_key(&step.exchange()) =>
            {
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
            let Some(first) = self.traffic.requests.queue.pop_front() else { return };
            if let Some(exchange) = self.send(now, first)
                && self.state == LinkState::Up
            {
                self.state = LinkState::Scouting(exchange);
            }
        }
    }

    pub(super) fn expire_opening(&mut self, now: Time) {
        let LinkState::Opening { step, until } = self.state else { return };
        if until > now {
            return;
        }
        self.traffic.close(step.exchange());
        if let OpeningStep::Initialized(_) = step {
            return self.initialized_accepted(now);
        }
        self.state = LinkState::Closed;
        match step {
            OpeningStep::Stream(_) => self.main_lost(now, LinkError::Silent, &LinkError::Silent),
            _ => self.down(now, LinkError::Silent, None),
        }
    }
}

/// The transport that the server speaks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// Streamable HTTP: each message is a POST, answered in its response. `is_certain` once the server has
    /// shown that it speaks it.
    Streamable { is_certain: bool },
    /// HTTP+SSE: responses come over one stream, which names the endpoint for messages. `guess` is the error
    /// for the hub's `initialize` if the transport was only guessed, and wrongly.
    Sse { stream: Option<ExchangeId>, guess: Option<LinkError> },
}

impl Transport {
    pub(super) fn is_sse(&self) -> bool {
        matches!(self, Self::Sse { .. })
    }
}

/// Whether requests can be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    Up,
    /// Something has to be opened first, at once.
    Closed,
    Opening {
        step: OpeningStep,
        until: Time,
    },
    /// One exchange finds out whether the server is back.
    Scouting(ExchangeId),
    /// The server cannot be reached, or is busy.
    Down {
        /// The next try; without it the next request of the hub starts one.
        at: Option<Time>,
        /// No try before this.
        earliest: Time,
        why: LinkError,
    },
}

impl LinkState {
    /// Whether the opening waits for this exchange.
    pub(super) fn is_step(&self, exchange: ExchangeId) -> bool {
        matches!(self, Self::Opening { step, .. } if step.exchange() == exchange)
    }

    /// The error for requests that have been queued for too long.
    pub(super) fn queue_error(&self) -> LinkError {
        match self {
            Self::Down { why, .. } => why.clone(),
            Self::Opening { .. } | Self::Scouting(_) | Self::Closed => LinkError::Silent,
            Self::Up => LinkError::TooMany,
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        match self {
            Self::Opening { until, .. } => Some(*until),
            Self::Down { at, .. } => *at,
            Self::Up | Self::Closed | Self::Scouting(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpeningStep {
    /// The stream of the HTTP+SSE transport.
    Stream(ExchangeId),
    /// The link's own `initialize`.
    Initialize(ExchangeId),
    /// The notification after it: requests that overtake it would be rejected.
    Initialized(ExchangeId),
}

impl OpeningStep {
    pub(super) fn exchange(&self) -> ExchangeId {
        let (Self::Stream(exchange) | Self::Initialize(exchange) | Self::Initialized(exchange)) =
            self;
        *exchange
    }
}

#[derive(Debug, Default)]
pub(super) struct RemoteSession {
    /// Counts sessions; exchanges of an older one are void.
    pub(super) number: u64,
    pub(super) id: Option<String>,
    version: Option<String>,
    pub(super) is_open: bool,
    pub(super) opened_at: Time,
    /// Sessions in a row that did not last.
    losses: u32,
}

impl RemoteSession {
    /// Whether it is too young to be counted as one that lasted.
    pub(super) fn is_young(&self, now: Time) -> bool {
        now.since(self.opened_at) < STREAM_STABLE
    }

    /// The headers of each request in it.
    pub(super) fn headers(&self) -> Vec<Header> {
        let id = self.id.clone().map(|id| ("mcp-session-id".into(), id));
        let version = self.version.clone();
        let version = version.map(|version| ("mcp-protocol-version".into(), version));
        id.into_iter().chain(version).collect()
    }

    /// It is open: an `initialize` was answered with this line.
    pub(super) fn open(&mut self, now: Time, response: &[u8]) {
        let version = get(response, &["result", "protocolVersion"]).and_then(json::text);
        self.version = version.filter(|text: &String| is_header_value(text.as_bytes()));
        self.is_open = true;
        self.opened_at = now;
    }

    pub(super) fn forget(&mut self) {
        self.number += 1;
        self.id = None;
        self.is_open = false;
    }

    /// Counts a loss; returns how many followed each other.
    pub(super) fn count_loss(&mut self, now: Time) -> u32 {
        self.losses = if self.is_young(now) { self.losses + 1 } else { 1 };
        self.losses
    }
}

#[derive(Debug)]
pub(super) struct Reachability {
    /// Tries in a row that did not reach the server.
    pub(super) failures: u32,
    /// The hub was told that the server cannot be reached.
    pub(super) is_away: bool,
    pub(super) random: Random,
}

impl Reachability {
    /// A try failed: tells the hub the first time, and returns the wait before the next try.
    pub(super) fn failed(&mut self, error: &LinkError, traffic: &mut Traffic) -> Duration {
        self.failures += 1;
        if self.failures == 1 {
            traffic.effects.push(RemoteEffect::Log(error.text(origin(&traffic.url))));
        }
        if !matches!(error, LinkError::Busy(_)) && !self.is_away {
            self.is_away = true;
            let text = error.text(origin(&traffic.url));
            let state = without_consequence(&text).to_owned();
            traffic.effects.push(RemoteEffect::Serves(Err(state)));
        }
        self.delay(self.failures)
    }

    /// The server has responded.
    pub(super) fn reached(&mut self, traffic: &mut Traffic) {
        if std::mem::take(&mut self.failures) > 0 {
            traffic.log("it answers again");
        }
        if std::mem::take(&mut self.is_away) {
            traffic.effects.push(RemoteEffect::Serves(Ok(())));
        }
    }

    /// The wait before the n-th try; none before the first.
    pub(super) fn delay(&mut self, tries: u32) -> Duration {
        if tries <= 1 {
            return Duration::ZERO;
        }
        let waits = ExponentialWait::doubling(RECONNECT_DELAY, RECONNECT_DELAY_MAX);
        waits.jittered(tries - 2, RECONNECT_JITTER, self.random.unit())
    }
}

#[derive(Debug, Default)]
pub(super) struct Standalone {
    pub(super) exchange: Option<ExchangeId>,
    /// When it is opened next.
    pub(super) open_at: Option<Time>,
    pub(super) last_event: Option<String>,
    /// Tries in a row that did not last.
    tries: u32,
}

impl Standalone {
    /// The stream is over; returns the number of the next try.
    pub(super) fn ended(&mut self, was_stable: bool, last_event: Option<String>) -> u32 {
        self.exchange = None;
        self.last_event = last_event.or(self.last_event.take());
        self.tries = if was_stable { 1 } else { self.tries + 1 };
        self.tries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_in_a_row_are_counted_until_a_session_lasts() {
        let mut session = RemoteSession::default();
        let now = Time::ZERO + STREAM_STABLE;
        session.open(now, br#"{"result":{"protocolVersion":"2025-06-18"}}"#);
        session.id = Some("s".to_owned());
        assert_eq!(session.headers().len(), 2);
        assert_eq!((session.count_loss(now), session.count_loss(now)), (1, 2));
        session.forget();
        assert_eq!((session.number, session.is_open, &session.id), (1, false, &None));
        assert_eq!(session.count_loss(now + STREAM_STABLE), 1);
    }

    #[test]
    fn it_is_opened_again_from_its_last_event() {
        let mut standalone = Standalone { exchange: Some(ExchangeId(1)), ..Standalone::default() };
        assert_eq!(standalone.ended(false, Some("7".to_owned())), 1);
        assert_eq!((standalone.exchange, standalone.last_event.as_deref()), (None, Some("7")));
        assert_eq!(standalone.ended(false, None), 2);
        assert_eq!(standalone.last_event.as_deref(), Some("7"));
        assert_eq!(standalone.ended(true, None), 1);
    }
}
