//! Owns the requests of the hub without a response, and the queue of messages that wait for the server.
//! Driven by [`Traffic`](super::traffic::Traffic). Never answers a request and never sends one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{ExchangeId, Header};
use crate::limits::{FLIGHTS_BYTES_MAX, FLIGHTS_MAX, QUEUE_LEN_MAX, QUEUE_WAIT};
use crate::mcp::envelope::Id;
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
    pending: BTreeMap<Id, PendingRequest>,
    bytes: usize,
    queue: VecDeque<Queued>,
    /// No element of the queue is late before this.
    queue_due: Option<Time>,
    /// Requests whose streams broke, with the time of their resumption.
    broken: BTreeMap<Id, Time>,
    /// Listen requests that were sent again, whose acknowledgement the hub already has.
    relistened: BTreeSet<Id>,
    /// The hub's own `initialize` while the server has it, and its deadline.
    handshake: Option<(Id, Time)>,
}

impl LinkRequests {
    pub(super) fn get(&self, id: &Id) -> Option<&PendingRequest> {
        self.pending.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &Id) -> Option<&mut PendingRequest> {
        self.pending.get_mut(id)
    }

    pub(super) fn is_initialize(&self, id: &Id) -> bool {
        self.pending.get(id).is_some_and(|it| it.flight.method == "initialize")
    }

    /// Whether one more with a line of so many bytes fits; a single one always does.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        self.pending.len() < FLIGHTS_MAX
            && (self.bytes + bytes <= FLIGHTS_BYTES_MAX || self.pending.is_empty())
    }

    /// Adds a request at the end of the queue.
    pub(super) fn add(&mut self, now: Time, id: Id, mut request: PendingRequest) {
        request.place = RequestPlace::Queued { until: Some(self.queued_until(now)) };
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

    /// Puts a request at the front of the queue, with a deadline or without.
    pub(super) fn requeue(&mut self, now: Time, id: &Id, has_deadline: bool) {
        let until = if has_deadline { Some(self.queued_until(now)) } else { None };
        if let Some(request) = self.pending.get_mut(id) {
            request.place = RequestPlace::Queued { until };
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

    pub(super) fn drop_notifications(&mut self, is_dropped: impl Fn(&[u8]) -> bool) {
        self.queue.retain(|queued| match queued {
            Queued::Notification { line, .. } => !is_dropped(line),
            Queued::Request(_) => true,
        });
    }

    pub(super) fn is_queue_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn pop(&mut self) -> Option<Queued> {
        self.queue.pop_front()
    }

    /// Takes the requests with a deadline out of the queue.
    pub(super) fn take_queued(&mut self) -> Vec<Id> {
        let mut taken = Vec::new();
        for queued in std::mem::take(&mut self.queue) {
            let place = match &queued {
                Queued::Request(id) => self.pending.get(id).map(|request| request.place),
                Queued::Notification { .. } => Some(RequestPlace::Queued { until: None }),
            };
            match (place, queued) {
                (Some(RequestPlace::Queued { until: Some(_) }), Queued::Request(id)) => {
                    taken.push(id);
                }
                (Some(RequestPlace::Queued { .. }), queued) => self.queue.push_back(queued),
                (_, _) => {}
            }
        }
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

    /// Starts the deadline of the hub's own `initialize`.
    pub(super) fn begin_handshake(&mut self, id: Id, until: Time) {
        self.handshake = Some((id, until));
    }

    pub(super) fn late_handshake(&self, now: Time) -> Option<Id> {
        self.handshake.clone().filter(|(_, until)| *until <= now).map(|(id, _)| id)
    }

    /// Schedules the resumption of a stream.
    pub(super) fn resume_at(&mut self, id: &Id, at: Time) {
        self.broken.insert(id.clone(), at);
    }

    pub(super) fn take_resumable(&mut self, now: Time) -> Vec<Id> {
        let due = self.broken.iter().filter(|(_, at)| **at <= now);
        let due: Vec<Id> = due.map(|(id, _)| id.clone()).collect();
        self.broken.retain(|_, at| *at > now);
        due
    }

    pub(super) fn broken(&self) -> Vec<Id> {
        self.broken.keys().cloned().collect()
    }

    pub(super) fn note_relistened(&mut self, id: &Id) {
        self.relistened.insert(id.clone());
    }

    /// Whether an acknowledgement is one that the hub already has.
    pub(super) fn take_relistened(&mut self, id: &Id) -> bool {
        self.relistened.remove(id)
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
        let until = now + QUEUE_WAIT;
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        }
    }

    #[test]
    fn a_queued_request_is_late_once_unless_it_has_no_deadline() {
        let (mut requests, now) = (LinkRequests::default(), Time::ZERO);
        let (first, second) = (Id::new(b"1"), Id::new(b"2"));
        requests.add(now, first.clone(), request(now));
        requests.add(now, second.clone(), request(now));
        assert!(matches!(requests.pop(), Some(Queued::Request(id)) if id == first));
        requests.requeue(now, &first, false);
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
        assert!(!requests.is_queue_empty());
    }

    #[test]
    fn a_request_that_was_taken_is_nowhere() {
        let (mut requests, now) = (LinkRequests::default(), Time::ZERO);
        let id = Id::new(b"1");
        requests.add(now, id.clone(), request(now));
        requests.begin_handshake(id.clone(), now);
        requests.resume_at(&id, now + Duration::from_secs(1));
        requests.note_relistened(&id);
        assert!(requests.take(&id).is_some() && requests.take(&id).is_none());
        assert!(requests.is_empty() && requests.late_handshake(now).is_none());
        assert!(requests.broken().is_empty() && !requests.take_relistened(&id));
        assert_eq!(requests.take_queued(), []);
        assert!(requests.is_queue_empty());
    }
}
