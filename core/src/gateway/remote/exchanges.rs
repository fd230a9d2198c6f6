//! Owns the HTTP exchanges of a link that are not over, and the deadlines of those that carry notifications.
//! Driven by [`Traffic`](super::traffic::Traffic). Never decides on the end of an exchange.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ExchangeId;
use crate::limits::{EXCHANGES_MAX, STREAM_STABLE};
use crate::mcp::envelope::{Id, Message, look};
use crate::time::Time;

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) purpose: ExchangePurpose,
    /// The number of the session that it belongs to.
    pub(super) session: u64,
    pub(super) last_event: Option<String>,
    pub(super) retry: Option<Duration>,
    /// When it became a stream.
    pub(super) opened_at: Option<Time>,
}

impl Exchange {
    /// Whether its stream lasted long enough for retries to count from the start.
    pub(super) fn was_stable(&self, now: Time) -> bool {
        self.opened_at.is_some_and(|at| now.since(at) >= STREAM_STABLE)
    }
}

/// The message that an exchange carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExchangePurpose {
    /// A request of the hub.
    Request(Id),
    /// Resumes the stream of a request.
    Resume(Id),
    /// The link's own `initialize`.
    Opening,
    /// `notifications/initialized`.
    Initialized,
    /// Another notification or a response of the hub.
    Notification(Vec<u8>),
    /// A request of the link whose response is ignored.
    Own(Id),
    /// The stream for messages that belong to no request.
    Standalone,
    /// The stream of the HTTP+SSE transport.
    Main,
}

impl ExchangePurpose {
    /// The purpose of a line that is no request.
    pub(super) fn of_notification(line: Vec<u8>) -> Self {
        match look(&line) {
            Some(Message::Notification { method }) if method == "notifications/initialized" => {
                Self::Initialized
            }
            _ => Self::Notification(line),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Exchanges {
    last_number: u64,
    open: BTreeMap<ExchangeId, Exchange>,
    /// Exchanges that are closed after a moment.
    deadlines: BTreeMap<ExchangeId, Time>,
}

impl Exchanges {
    /// A number for an exchange or an id: 1, 2, 3…
    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(super) fn begin(&mut self, purpose: ExchangePurpose, session: u64) -> ExchangeId {
        let exchange = ExchangeId(self.next_number());
        let begun = Exchange { purpose, session, last_event: None, retry: None, opened_at: None };
        self.open.insert(exchange, begun);
        exchange
    }

    pub(super) fn expire_at(&mut self, exchange: ExchangeId, until: Time) {
        self.deadlines.insert(exchange, until);
    }

    pub(super) fn get(&self, exchange: ExchangeId) -> Option<&Exchange> {
        self.open.get(&exchange)
    }

    pub(super) fn get_mut(&mut self, exchange: ExchangeId) -> Option<&mut Exchange> {
        self.open.get_mut(&exchange)
    }

    pub(super) fn contains(&self, exchange: ExchangeId) -> bool {
        self.open.contains_key(&exchange)
    }

    pub(super) fn has_room(&self) -> bool {
        self.open.len() < EXCHANGES_MAX
    }

    pub(super) fn remove(&mut self, exchange: ExchangeId) -> Option<Exchange> {
        self.deadlines.remove(&exchange);
        self.open.remove(&exchange)
    }

    /// Exchanges past their deadline.
    pub(super) fn late(&self, now: Time) -> Vec<ExchangeId> {
        self.deadlines.iter().filter(|(_, until)| **until <= now).map(|(id, _)| *id).collect()
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        self.deadlines.values().copied().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_that_is_over_has_no_deadline() {
        let mut exchanges = Exchanges::default();
        let at = |millis| Time::after_start(Duration::from_millis(millis));
        let first = exchanges.begin(ExchangePurpose::Standalone, 0);
        let second = exchanges.begin(ExchangePurpose::Notification(b"{}".to_vec()), 0);
        assert_eq!((first, second), (ExchangeId(1), ExchangeId(2)));
        exchanges.expire_at(second, at(5));
        assert_eq!(exchanges.next_wakeup(), Some(at(5)));
        assert_eq!((exchanges.late(at(4)), exchanges.late(at(5))), (vec![], vec![second]));
        assert!(exchanges.remove(second).is_some() && exchanges.remove(second).is_none());
        assert_eq!((exchanges.next_wakeup(), exchanges.late(at(5))), (None, vec![]));
        assert!(exchanges.contains(first) && exchanges.has_room());
    }

    #[test]
    fn the_end_of_the_handshake_is_told_apart() {
        let initialized = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_vec();
        assert_eq!(ExchangePurpose::of_notification(initialized), ExchangePurpose::Initialized);
        let other = br#"{"jsonrpc":"2.0","method":"notifications/progress"}"#.to_vec();
        assert_eq!(
            ExchangePurpose::of_notification(other.clone()),
            ExchangePurpose::Notification(other)
        );
    }
}
