//! Owns what is under way between the hub and the server: requests of the hub without a response and the queue of
//! messages, HTTP exchanges that are not over, and requests of the server that the hub has not answered. Driven by
//! [`Traffic`](super::traffic::Traffic). Never answers a request and never sends one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::{ExchangeId, Header};
use crate::limits::{QUEUE_LEN_MAX, QUEUE_WAIT, STREAM_STABLE};
use crate::mcp::envelope::{self, Id, Message, look};
use crate::mcp::inflight::Flight;
use crate::time::Time;

/// A request of the hub.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) flight: Flight,
    pub(super) place: RequestPlace,
    /// Times that it was sent.
    pub(super) sendings: u32,
    /// Resumptions of its stream in a row that did not last.
    pub(super) resumes: u32,
    /// The position for a resumption of its stream.
    pub(super) last_event: Option<String>,
    /// Headers of its own content; those of the session come on top.
    pub(super) headers: Vec<Header>,
    pub(super) is_modern: bool,
    /// Until when it waits for the server, through all tries to reach it.
    pub(super) waits_until: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestPlace {
    /// In the queue until then; without a time for as long as it takes.
    Queued { until: Option<Time> },
    /// With the server; the response comes in this exchange.
    Exchange(ExchangeId),
    /// With the server; the response comes over the main stream.
    Accepted,
    /// With the server; its stream broke.
    StreamBroken,
}

/// An element of the queue.
#[derive(Debug)]
pub(super) enum Queued {
    Request(Id),
    Notification { line: Vec<u8>, until: Time },
}

#[derive(Debug, Default)]
pub(super) struct LinkRequests {
    pub(super) pending: BTreeMap<Id, PendingRequest>,
    pub(super) bytes: usize,
    pub(super) queue: VecDeque<Queued>,
    /// No element of the queue is late before this.
    queue_due: Option<Time>,
    /// Requests whose streams broke, with the time of their resumption.
    pub(super) broken: BTreeMap<Id, Time>,
    /// Listen requests that were sent again, whose acknowledgement the hub already has.
    pub(super) relistened: BTreeSet<Id>,
    /// The hub's own `initialize` while the server has it, and its deadline.
    pub(super) handshake: Option<(Id, Time)>,
}

impl LinkRequests {
    /// Adds a request at the end of the queue.
    pub(super) fn add(&mut self, now: Time, id: Id, mut request: PendingRequest) {
        request.waits_until = self.queued_until(now);
        request.place = RequestPlace::Queued { until: Some(request.waits_until) };
        self.bytes += request.flight.line.len();
        self.pending.insert(id.clone(), request);
        self.queue.push_back(Queued::Request(id));
    }

    /// Removes a request everywhere but in the queue, where elements without a request are skipped.
    pub(super) fn take(&mut self, id: &Id) -> Option<PendingRequest> {
        let request = self.pending.remove(id)?;
        self.bytes -= request.flight.line.len();
        self.broken.remove(id);
        self.relistened.remove(id);
        self.handshake.take_if(|(handshake, _)| handshake == id);
        Some(request)
    }

    /// Puts a request at the front of the queue, with a deadline or without. One that the server has not taken keeps the
    /// deadline that it had.
    pub(super) fn requeue(&mut self, now: Time, id: &Id, has_deadline: bool, was_taken: bool) {
        let until = match self.pending.get(id) {
            Some(request) if !was_taken => self.queued_by(request.waits_until),
            _ => self.queued_until(now),
        };
        if let Some(request) = self.pending.get_mut(id) {
            request.waits_until = until;
            request.place = RequestPlace::Queued { until: has_deadline.then_some(until) };
            self.broken.remove(id);
            self.handshake.take_if(|(handshake, _)| handshake == id);
            self.queue.push_front(Queued::Request(id.clone()));
        }
    }

    /// Queues a notification; false where the queue is full.
    pub(super) fn queue_notification(&mut self, now: Time, line: Vec<u8>) -> bool {
        if self.queue.len() >= QUEUE_LEN_MAX {
            return false;
        }
        let until = self.queued_until(now);
        self.queue.push_back(Queued::Notification { line, until });
        true
    }

    /// Puts a notification that was not sent back to the front of the queue.
    pub(super) fn requeue_notification(&mut self, now: Time, line: Vec<u8>) {
        let until = self.queued_until(now);
        self.queue.push_front(Queued::Notification { line, until });
    }

    /// Takes the requests with a deadline out of the queue.
    pub(super) fn take_queued(&mut self) -> Vec<Id> {
        let mut taken = Vec::new();
        self.queue.retain(|queued| {
            let Queued::Request(id) = queued else { return true };
            let place = self.pending.get(id).map(|request| request.place);
            if let Some(RequestPlace::Queued { until: Some(_) }) = place {
                taken.push(id.clone());
            }
            place == Some(RequestPlace::Queued { until: None })
        });
        taken
    }

    /// Takes the elements out of the queue that have waited long enough.
    pub(super) fn take_late(&mut self, now: Time) -> Vec<Queued> {
        if self.queue_due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let all = std::mem::take(&mut self.queue);
        let is_late = |queued: &Queued| self.deadline(queued).is_some_and(|at| at <= now);
        let (late, queue): (Vec<_>, Vec<_>) = all.into_iter().partition(is_late);
        self.queue = queue.into();
        self.queue_due = self.queue.iter().filter_map(|queued| self.deadline(queued)).min();
        late
    }

    pub(super) fn take_resumable(&mut self, now: Time) -> Vec<Id> {
        self.broken.extract_if(.., |_, at| *at <= now).map(|(id, _)| id).collect()
    }

    /// The requests that match, in the order of their ids.
    pub(super) fn ids(&self, matches: impl Fn(&PendingRequest) -> bool) -> Vec<Id> {
        self.pending.iter().filter(|(_, it)| matches(it)).map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        let queue = self.queue_due.filter(|_| !self.queue.is_empty());
        let handshake = self.handshake.as_ref().map(|(_, until)| *until);
        queue.into_iter().chain(self.broken.values().copied()).chain(handshake).min()
    }

    /// The deadline of an element that is queued now.
    fn queued_until(&mut self, now: Time) -> Time {
        self.queued_by(now + QUEUE_WAIT)
    }

    /// Notes a deadline of an element that is queued now.
    fn queued_by(&mut self, until: Time) -> Time {
        if self.queue.is_empty() {
            self.queue_due = None;
        }
        self.queue_due = Some(self.queue_due.map_or(until, |due| due.min(until)));
        until
    }

    fn deadline(&self, queued: &Queued) -> Option<Time> {
        match queued {
            Queued::Request(id) => match self.pending.get(id)?.place {
                RequestPlace::Queued { until } => until,
                _ => None,
            },
            Queued::Notification { until, .. } => Some(*until),
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.bytes == 0
    }
}

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
    Own,
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
    pub(super) open: BTreeMap<ExchangeId, Exchange>,
    /// Exchanges that are closed after a moment.
    pub(super) deadlines: BTreeMap<ExchangeId, Time>,
}

impl Exchanges {
    /// A number for an exchange or an id: 1, 2, 3…
    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(super) fn begin(&mut self, purpose: ExchangePurpose, session: u64) -> ExchangeId {
        let exchange = ExchangeId(self.next_number());
        let (last_event, retry, opened_at) = (None, None, None);
        self.open.insert(exchange, Exchange { purpose, session, last_event, retry, opened_at });
        exchange
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

/// Requests of the server: their sessions and ids, by the ids that the hub knows them by. A new session counts its
/// ids anew, so the hub gets ids of the link.
#[derive(Debug, Default)]
pub(super) struct ServerRequests(pub(super) BTreeMap<Id, (u64, Id)>);

impl ServerRequests {
    /// Adds a request; returns its line with an id for the hub, made of the session and a fresh number.
    pub(super) fn add(
        &mut self,
        session: u64,
        number: u64,
        id: &Id,
        line: &[u8],
    ) -> Option<Vec<u8>> {
        let hub_id = format!("\"s{session}:{number}\"");
        let line = envelope::with_id(line, hub_id.as_bytes())?;
        self.0.insert(Id::new(hub_id.as_bytes()), (session, id.clone()));
        Some(line)
    }

    /// The hub's response with the server's id; none where the session that asked is gone.
    pub(super) fn respond(&mut self, session: u64, hub_id: &Id, line: &[u8]) -> Option<Vec<u8>> {
        let (_, id) = self.0.remove(hub_id).filter(|(asking, _)| *asking == session)?;
        envelope::with_id(line, id.raw())
    }

    /// Removes a request that the server cancels; returns the hub's id.
    pub(super) fn cancel(&mut self, id: &Id) -> Option<Id> {
        let hub_id = self.0.iter().find(|(_, (_, its))| its == id)?.0.clone();
        self.0.remove(&hub_id);
        Some(hub_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::inflight::{Class, Location};

    fn request(now: Time) -> PendingRequest {
        let line = br#"{"id":1}"#.to_vec();
        PendingRequest {
            flight: Flight::new("tools/list".to_owned(), line, Class::Safe, Location::Local, now),
            place: RequestPlace::Accepted,
            sendings: 0,
            resumes: 0,
            last_event: None,
            headers: Vec::new(),
            is_modern: false,
            waits_until: now,
        }
    }

    #[test]
    fn a_queued_request_is_late_once_unless_it_has_no_deadline() {
        let (mut requests, now) = (LinkRequests::default(), Time::ZERO);
        let (first, second) = (Id::new(b"1"), Id::new(b"2"));
        requests.add(now, first.clone(), request(now));
        requests.add(now, second.clone(), request(now));
        assert!(matches!(requests.queue.pop_front(), Some(Queued::Request(id)) if id == first));
        requests.requeue(now, &first, false, true);
        assert!(requests.queue_notification(now, b"{}".to_vec()));
        let due = now + QUEUE_WAIT;
        assert_eq!(requests.next_wakeup(), Some(due));
        assert!(requests.take_late(now + QUEUE_WAIT / 2).is_empty());
        let late = requests.take_late(due);
        assert!(
            matches!(&late[..], [Queued::Request(id), Queued::Notification { .. }] if *id == second)
        );
        assert_eq!(requests.next_wakeup(), None);
        assert_eq!(requests.take_queued(), []);
        assert!(!requests.queue.is_empty());
    }

    #[test]
    fn a_request_that_was_taken_is_nowhere() {
        let (mut requests, now) = (LinkRequests::default(), Time::ZERO);
        let id = Id::new(b"1");
        requests.add(now, id.clone(), request(now));
        requests.handshake = Some((id.clone(), now));
        requests.broken.insert(id.clone(), now + Duration::from_secs(1));
        requests.relistened.insert(id.clone());
        assert!(requests.take(&id).is_some() && requests.take(&id).is_none());
        assert!(requests.is_empty() && requests.handshake.is_none());
        assert!(requests.broken.is_empty() && requests.relistened.is_empty());
        assert_eq!(requests.take_queued(), []);
        assert!(requests.queue.is_empty());
    }

    #[test]
    fn an_exchange_that_is_over_has_no_deadline() {
        let mut exchanges = Exchanges::default();
        let at = |millis| Time::after_start(Duration::from_millis(millis));
        let first = exchanges.begin(ExchangePurpose::Standalone, 0);
        let second = exchanges.begin(ExchangePurpose::Notification(b"{}".to_vec()), 0);
        assert_eq!((first, second), (ExchangeId(1), ExchangeId(2)));
        exchanges.deadlines.insert(second, at(5));
        assert_eq!(exchanges.next_wakeup(), Some(at(5)));
        assert_eq!((exchanges.late(at(4)), exchanges.late(at(5))), (vec![], vec![second]));
        assert!(exchanges.remove(second).is_some() && exchanges.remove(second).is_none());
        assert_eq!((exchanges.next_wakeup(), exchanges.late(at(5))), (None, vec![]));
        assert!(exchanges.open.contains_key(&first));
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

    #[test]
    fn a_response_goes_to_the_session_that_asked() {
        let mut requests = ServerRequests::default();
        let line = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let asked = requests.add(3, 7, &Id::new(b"1"), line).unwrap();
        assert!(String::from_utf8(asked).unwrap().contains(r#""id":"s3:7""#));
        let hub_id = Id::new(br#""s3:7""#);
        let response = br#"{"jsonrpc":"2.0","id":"s3:7","result":{}}"#;
        let sent = requests.respond(3, &hub_id, response).unwrap();
        assert!(String::from_utf8(sent).unwrap().contains(r#""id":1"#));
        assert_eq!(requests.respond(3, &hub_id, response), None);
        requests.add(3, 8, &Id::new(b"1"), line).unwrap();
        assert_eq!(requests.respond(4, &Id::new(br#""s3:8""#), response), None);
        requests.add(4, 9, &Id::new(b"1"), line).unwrap();
        assert_eq!(requests.cancel(&Id::new(b"1")), Some(Id::new(br#""s4:9""#)));
        assert!(requests.0.is_empty());
    }
}
