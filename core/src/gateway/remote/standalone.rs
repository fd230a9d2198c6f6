//! Owns the stream for messages that belong to no request, where the server offers one. Driven by
//! [`Remote`](super::Remote). Never opens the stream itself.

use super::ExchangeId;
use crate::time::Time;

#[derive(Debug, Default)]
pub(super) struct Standalone {
    exchange: Option<ExchangeId>,
    /// When it is opened next.
    open_at: Option<Time>,
    last_event: Option<String>,
    /// Tries in a row that did not last.
    tries: u32,
}

impl Standalone {
    pub(super) fn want(&mut self, now: Time) {
        if self.exchange.is_none() {
            self.open_at = Some(now);
        }
    }

    pub(super) fn open_at(&self) -> Option<Time> {
        self.open_at
    }

    /// The position from which it is opened now, if it is due.
    pub(super) fn take_due(&mut self, now: Time) -> Option<Option<String>> {
        self.open_at.take_if(|at| *at <= now).map(|_| self.last_event.clone())
    }

    pub(super) fn began(&mut self, exchange: ExchangeId) {
        self.exchange = Some(exchange);
    }

    pub(super) fn is(&self, exchange: ExchangeId) -> bool {
        self.exchange == Some(exchange)
    }

    /// The stream is over; returns the number of the next try.
    pub(super) fn ended(&mut self, was_stable: bool, last_event: Option<String>) -> u32 {
        self.exchange = None;
        self.last_event = last_event.or(self.last_event.take());
        self.tries = if was_stable { 1 } else { self.tries + 1 };
        self.tries
    }

    pub(super) fn reopen_at(&mut self, at: Time) {
        self.open_at = Some(at);
    }

    /// Forgets the stream; returns its exchange, if there is one.
    pub(super) fn reset(&mut self) -> Option<ExchangeId> {
        std::mem::take(self).exchange
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_opened_again_from_its_last_event() {
        let (mut standalone, now) = (Standalone::default(), Time::ZERO);
        assert_eq!(standalone.take_due(now), None);
        standalone.want(now);
        assert_eq!(standalone.take_due(now), Some(None));
        standalone.began(ExchangeId(1));
        standalone.want(now);
        assert_eq!(standalone.open_at(), None);
        assert_eq!(standalone.ended(false, Some("7".to_owned())), 1);
        standalone.reopen_at(now);
        assert_eq!(standalone.take_due(now), Some(Some("7".to_owned())));
        standalone.began(ExchangeId(2));
        assert_eq!(standalone.ended(false, None), 2);
        assert_eq!(standalone.ended(true, None), 1);
        standalone.began(ExchangeId(3));
        assert_eq!(standalone.reset(), Some(ExchangeId(3)));
        assert!(!standalone.is(ExchangeId(3)));
    }
}
