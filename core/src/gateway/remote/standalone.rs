//! The stream for what belongs to no request, where the server offers one.

use std::time::Duration;

use super::{ExchangeId, Purpose, Remote, Standalone, State, Transport};
use crate::time::Time;

impl Remote {
    pub(super) fn want_standalone(&mut self, now: Time) {
        let is_streamable = matches!(self.transport, Transport::Streamable { .. });
        if is_streamable && self.standalone.exchange.is_none() {
            self.standalone.at = Some(now);
        }
    }

    /// Opens the stream for what belongs to no request, when it is time.
    pub(super) fn listen(&mut self, now: Time) {
        if self.state == State::Up && self.standalone.at.is_some_and(|at| at <= now) {
            self.standalone.at = None;
            let last_event = self.standalone.last_event.clone();
            let exchange = self.get(Purpose::Standalone, last_event.as_ref());
            self.standalone.exchange = Some(exchange);
        }
    }

    /// That stream is over, and is opened again.
    pub(super) fn listen_again(&mut self, now: Time, was_stable: bool, retry: Option<Duration>) {
        self.standalone.exchange = None;
        self.standalone.tries = if was_stable { 1 } else { self.standalone.tries + 1 };
        let delay = self.delay(self.standalone.tries).max(retry.unwrap_or_default());
        self.standalone.at = Some(now + delay);
    }

    /// The server offers no such stream.
    pub(super) fn listen_no_more(&mut self) {
        self.standalone = Standalone::default();
    }

    pub(super) fn is_standalone(&self, exchange: ExchangeId) -> bool {
        self.standalone.exchange == Some(exchange)
    }
}
