//! Owns the requests that have no answer yet: the client's, with the queue for the next instance, and those of afresh
//! and of servers under ids that afresh makes up. Driven by [`Conversation`](super::Conversation). Never writes an
//! answer.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::time::Duration;

use super::envelope::{self, Id};
use super::{json, responses};
use crate::id::Generation;
use crate::limits::{ASKED_MAX, FLIGHTS_BYTES_MAX, FLIGHTS_MAX, QUEUE_BYTES_MAX, QUEUE_LEN_MAX};
use crate::time::Time;

/// All requests in flight by their ids, with those that wait for an instance in order.
#[derive(Debug, Default)]
pub(crate) struct ClientRequests {
    flights: BTreeMap<Id, Flight>,
    bytes: usize,
    pub(super) queue: VecDeque<QueuedMessage>,
    queue_bytes: usize,
    /// How long a request waits for an instance.
    patience: Duration,
}

/// A message that waits for the next instance.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum QueuedMessage {
    Request(Id),
    Notification(Vec<u8>),
}

impl ClientRequests {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { patience, ..Self::default() }
    }

    pub(crate) fn insert(&mut self, id: Id, flight: Flight) {
        self.bytes += flight.line.len();
        if let Some(old) = self.flights.insert(id, flight) {
            self.bytes -= old.line.len();
        }
    }

    pub(crate) fn contains(&self, id: &Id) -> bool {
        self.flights.contains_key(id)
    }

    pub(crate) fn get(&self, id: &Id) -> Option<&Flight> {
        self.flights.get(id)
    }

    /// To change its state; its line stays as it is.
    pub(crate) fn get_mut(&mut self, id: &Id) -> Option<&mut Flight> {
        self.flights.get_mut(id)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Flight> {
        self.flights.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.flights.len()
    }

    /// Takes one out, also of the queue.
    pub(crate) fn remove(&mut self, id: &Id) -> Option<Flight> {
        let flight = self.flights.remove(id)?;
        self.bytes -= flight.line.len();
        if !self.queue.is_empty() {
            let before = self.queue.len();
            self.queue.retain(|it| !matches!(it, QueuedMessage::Request(other) if other == id));
            if self.queue.len() < before {
                self.queue_bytes = self.queue_bytes.saturating_sub(flight.line.len());
            }
        }
        Some(flight)
    }

    /// Takes out one that is not queued, if the condition holds; looks it up once.
    pub(crate) fn remove_if(
        &mut self,
        id: &Id,
        condition: impl FnOnce(&Flight) -> bool,
    ) -> Option<Flight> {
        let Entry::Occupied(entry) = self.flights.entry(id.clone()) else { return None };
        let flight = condition(entry.get()).then(|| entry.remove())?;
        self.bytes -= flight.line.len();
        Some(flight)
    }

    /// Whether there are more than may be. One alone may have any length.
    pub(crate) fn are_too_many(&self) -> bool {
        let too_long = self.bytes > FLIGHTS_BYTES_MAX && self.flights.len() > 1;
        self.flights.len() > FLIGHTS_MAX || too_long
    }

    /// Whether an instance is being asked to open the session.
    pub(crate) fn are_opening_session(&self) -> bool {
        let is_sent = |flight: &Flight| {
            flight.class == Class::Handshake && matches!(flight.location, Location::Sent { .. })
        };
        self.all().any(is_sent)
    }

    /// Whether an instance owes an answer, listen requests left out.
    pub(crate) fn are_owed_by(&self, generation: Generation) -> bool {
        self.all().any(|flight| flight.is_with(generation) && !flight.is_listen())
    }

    /// The requests that meet the condition, in the order in which they came.
    pub(crate) fn ids_of(&self, condition: impl Fn(&Flight) -> bool) -> Vec<Id> {
        let found = self.flights.iter().filter(|(_, flight)| condition(flight));
        let mut found: Vec<(u64, &Id)> = found.map(|(id, flight)| (flight.number, id)).collect();
        found.sort();
        found.into_iter().map(|(_, id)| id.clone()).collect()
    }

    /// Where a request that comes now is, until an instance gets it.
    pub(crate) fn waiting_from(&self, now: Time) -> Location {
        Location::Queued { until: now + self.patience }
    }

    /// Queues a message; returns it where there is no room.
    pub(crate) fn queue(&mut self, message: QueuedMessage) -> Option<QueuedMessage> {
        let bytes = match &message {
            QueuedMessage::Request(id) => self.get(id).map_or(0, |flight| flight.line.len()),
            QueuedMessage::Notification(line) => line.len(),
        };
        if self.queue.len() >= QUEUE_LEN_MAX || self.queue_bytes + bytes > QUEUE_BYTES_MAX {
            return Some(message);
        }
        self.queue_bytes += bytes;
        self.queue.push_back(message);
        None
    }

    /// Puts requests whose instance is gone in front of the queue, in this order.
    pub(crate) fn queue_again(&mut self, now: Time, ids: Vec<Id>) {
        let until = now + self.patience;
        for id in ids.into_iter().rev() {
            let Some(flight) = self.flights.get_mut(&id) else { continue };
            flight.location = Location::Queued { until };
            self.queue_bytes += flight.line.len();
            self.queue.push_front(QueuedMessage::Request(id));
        }
    }

    pub(crate) fn take_queue(&mut self) -> VecDeque<QueuedMessage> {
        self.queue_bytes = 0;
        std::mem::take(&mut self.queue)
    }

    /// When a queued request has waited long enough.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        let until = |message: &QueuedMessage| match message {
            QueuedMessage::Request(id) => self.flights.get(id).and_then(Flight::queued_until),
            QueuedMessage::Notification(_) => None,
        };
        self.queue.iter().filter_map(until).min()
    }
}

/// A request of the client that wants an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flight {
    /// As it came.
    pub(crate) line: Vec<u8>,
    pub(crate) class: Class,
    pub(crate) method: String,
    pub(crate) location: Location,
    /// It was given to an instance that is gone, and to another one after that.
    pub(crate) was_sent_again: bool,
    /// When the client gave it up: it wants no answer any more.
    pub(crate) cancelled_at: Option<Time>,
    /// It counts as given up because the client has the answer that was remembered.
    pub(crate) is_answered_from_memory: bool,
    /// The raw token by which its progress is told.
    pub(crate) progress_token: Option<Vec<u8>>,
    /// When it was given to an instance.
    pub(crate) given_at: Time,
    /// The order in which requests came.
    pub(crate) number: u64,
}

/// The side that has to act on a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Location {
    /// In the queue, until then at most.
    Queued { until: Time },
    /// Sent to this instance, as the line of this number.
    Sent { generation: Generation, number: u64 },
    /// Answered here: it calls a tool of afresh.
    #[default]
    Local,
}

/// What may be done with a request whose instance is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Class {
    /// Opens the session: sent again until it is answered.
    Handshake,
    /// Asks whether the server is of the modern era: never sent again.
    Probe,
    /// Changes nothing: sent again, once.
    Safe,
    /// May have done something already: answered by afresh, for the model.
    Tool,
    /// Unknown, or not safe: answered by afresh, as an error.
    #[default]
    Other,
}

impl Flight {
    /// One that has just come.
    pub(crate) fn new(
        method: String,
        line: Vec<u8>,
        class: Class,
        location: Location,
        now: Time,
    ) -> Self {
        Self { line, class, method, location, given_at: now, ..Self::default() }
    }

    pub(crate) fn is_with(&self, here: Generation) -> bool {
        matches!(self.location, Location::Sent { generation, .. } if generation == here)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled_at.is_some()
    }

    /// When it has waited long enough, if it is queued.
    pub(crate) fn queued_until(&self) -> Option<Time> {
        match self.location {
            Location::Queued { until } => Some(until),
            Location::Sent { .. } | Location::Local => None,
        }
    }

    /// Decides whether it is sent again after the end of its instance, which has read so many lines, and
    /// notes that. What an instance has not read cannot have been done.
    pub(crate) fn is_sent_again(&mut self, read: Option<u64>, is_modern: bool) -> bool {
        let is_unread = match (self.location, read) {
            (Location::Sent { number, .. }, Some(read)) => number >= read,
            _ => false,
        };
        let again = match self.class {
            // A probe may still be what the instance died of.
            _ if is_unread && self.class != Class::Probe => true,
            Class::Handshake => true,
            Class::Safe => self.is_listen() || !self.was_sent_again,
            Class::Probe => is_modern && !self.was_sent_again,
            Class::Tool | Class::Other => false,
        };
        self.was_sent_again |= again && !is_unread;
        again
    }

    pub(crate) fn is_listen(&self) -> bool {
        self.method == "subscriptions/listen"
    }
}

impl Class {
    pub(crate) fn of(method: &str, has_task: bool) -> Self {
        match method {
            "initialize" => Self::Handshake,
            "server/discover" => Self::Probe,
            // The answer to a task-augmented call has another shape: only an error fits.
            "tools/call" if has_task => Self::Other,
            "tools/call" => Self::Tool,
            "ping"
            | "tools/list"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "prompts/list"
            | "prompts/get"
            | "completion/complete"
            | "logging/setLevel"
            | "tasks/get"
            | "tasks/result"
            | "tasks/list"
            | "subscriptions/listen" => Self::Safe,
            _ => Self::Other,
        }
    }
}

/// Requests of afresh and of servers that have no answer yet.
#[derive(Debug, Default)]
pub(super) struct RelayedIds {
    pub(super) last_number: u64,
    /// Requests of afresh, and the instances that have them.
    own: BTreeMap<Id, Generation>,
    /// Requests of servers to the client: the instance, and its own id.
    of_servers: BTreeMap<Id, (Generation, Id)>,
}

impl RelayedIds {
    /// One counter numbers all, so no id is used twice.
    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// A request of afresh to an instance: its id, and its line. The client may have taken an id, by
    /// chance or to confuse: `is_taken` says so.
    pub(super) fn own_request(
        &mut self,
        generation: Generation,
        (method, params): (&str, &[u8]),
        is_taken: impl Fn(&Id) -> bool,
    ) -> (Id, Vec<u8>) {
        let (name, id) = loop {
            let name = format!("afresh:{generation}:{}", self.next_number());
            let id = Id::new(format!("\"{name}\"").as_bytes());
            if !is_taken(&id) {
                break (name, id);
            }
        };
        self.own.insert(id.clone(), generation);
        (id, responses::request(&name, method, Some(params)))
    }

    pub(super) fn is_own(&self, id: &Id) -> bool {
        self.own.contains_key(id)
    }

    /// Whether this answers a request of afresh to this instance; asked once.
    pub(super) fn take_own(&mut self, id: &Id, generation: Generation) -> bool {
        let is_own = self.own.get(id) == Some(&generation);
        is_own && self.own.remove(id).is_some()
    }

    /// Whether no further request of a server is passed on for now.
    pub(super) fn is_full(&self) -> bool {
        self.of_servers.len() >= ASKED_MAX
    }

    /// A server's request with an id for the client; none where it has no place for one.
    pub(super) fn relay_request(
        &mut self,
        generation: Generation,
        id: Id,
        line: &[u8],
    ) -> Option<Vec<u8>> {
        // A text, and never a bare number: some clients take those for ids of their own.
        let ours = format!("\"s{generation}:{}\"", self.next_number());
        let line = envelope::with_id(line, ours.as_bytes())?;
        self.of_servers.insert(Id::new(ours.as_bytes()), (generation, id));
        Some(line)
    }

    /// The client's answer to a server's request, for that server.
    pub(super) fn relay_answer(&mut self, id: &Id, line: &[u8]) -> Option<(Generation, Vec<u8>)> {
        let (generation, theirs) = self.of_servers.remove(id)?;
        Some((generation, envelope::with_id(line, theirs.raw())?))
    }

    /// How many requests of an instance the client has not answered.
    pub(super) fn count_of(&self, generation: Generation) -> usize {
        self.of_servers.values().filter(|(from, _)| *from == generation).count()
    }

    /// A server takes a request back: the client's cancellation.
    pub(super) fn cancel(
        &mut self,
        generation: Generation,
        theirs: Option<&Id>,
    ) -> Option<Vec<u8>> {
        let is_it = |(from, id): &(Generation, Id)| *from == generation && theirs == Some(id);
        let found = self.of_servers.iter().find(|(_, of)| is_it(of));
        let ours = found.map(|(ours, _)| ours.clone())?;
        self.of_servers.remove(&ours);
        Some(cancelled(&ours))
    }

    /// An instance is gone: the client's cancellations of all its requests.
    pub(super) fn end(&mut self, generation: Generation) -> Vec<Vec<u8>> {
        self.own.retain(|_, of| *of != generation);
        let gone = self.of_servers.extract_if(.., |_, (from, _)| *from == generation);
        gone.map(|(ours, _)| cancelled(&ours)).collect()
    }
}

fn cancelled(ours: &Id) -> Vec<u8> {
    responses::cancelled(&json::text(ours.raw()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn requests(count: u64) -> ClientRequests {
        let mut requests = ClientRequests::new(PATIENCE);
        for number in 0..count {
            let location = requests.waiting_from(Time::ZERO);
            let method = "tools/call".to_owned();
            let flight = Flight::new(method, vec![b'x'; 10], Class::Tool, location, Time::ZERO);
            requests.insert(id(number), Flight { number, ..flight });
        }
        requests
    }

    fn id(number: u64) -> Id {
        // Not in the order of the numbers.
        Id::new(format!("{}", 9 - number).as_bytes())
    }

    #[test]
    fn what_is_sent_again_comes_before_what_waits_and_in_order() {
        let mut requests = requests(3);
        assert_eq!(requests.queue(QueuedMessage::Request(id(2))), None);
        assert_eq!(requests.ids_of(|_| true), [id(0), id(1), id(2)]);
        requests.queue_again(Time::ZERO + PATIENCE, vec![id(0), id(1)]);
        assert_eq!((requests.queue.len(), requests.queue_bytes), (3, 30));
        assert_eq!(requests.next_expiry(), Some(Time::ZERO + PATIENCE));
        requests.remove(&id(0));
        assert_eq!((requests.queue.len(), requests.queue_bytes), (2, 20));
        let order: Vec<Id> = (requests.take_queue().into_iter())
            .map(|message| match message {
                QueuedMessage::Request(id) => id,
                QueuedMessage::Notification(_) => panic!("no notification was queued"),
            })
            .collect();
        assert_eq!(order, [id(1), id(2)]);
        assert_eq!(requests.queue_bytes, 0);
    }

    #[test]
    fn the_queue_has_a_bound() {
        let mut requests = requests(1);
        let notification = |line: &[u8]| QueuedMessage::Notification(line.to_vec());
        for _ in 0..QUEUE_LEN_MAX {
            assert_eq!(requests.queue(notification(b"")), None);
        }
        assert_eq!(requests.queue(notification(b"1")), Some(notification(b"1")));
        assert!(requests.queue(QueuedMessage::Request(id(0))).is_some());
    }
}

#[cfg(test)]
mod id_tests {
    use super::*;

    const REQUEST: &[u8] = br#"{"id":7,"method":"roots/list"}"#;

    #[test]
    fn an_answer_reaches_the_instance_that_asked_and_only_once() {
        let mut ids = RelayedIds::default();
        let (one, two) = (Generation(1), Generation(2));
        let line = ids.relay_request(one, Id::new(b"7"), REQUEST).unwrap();
        assert_eq!(line, br#"{"id":"s1:1","method":"roots/list"}"#);
        ids.relay_request(two, Id::new(b"7"), REQUEST).unwrap();
        assert_eq!((ids.count_of(one), ids.count_of(two)), (1, 1));
        let answer = br#"{"id":"s1:1","result":{}}"#;
        let (to, line) = ids.relay_answer(&Id::new(br#""s1:1""#), answer).unwrap();
        assert_eq!((to, line.as_slice()), (one, &br#"{"id":7,"result":{}}"#[..]));
        assert_eq!(ids.relay_answer(&Id::new(br#""s1:1""#), answer), None);
        assert!(ids.cancel(one, Some(&Id::new(b"7"))).is_none());
        assert_eq!(ids.end(two).len(), 1);
    }

    #[test]
    fn own_ids_avoid_those_of_the_client_and_end_with_the_instance() {
        let mut ids = RelayedIds::default();
        let taken = Id::new(br#""afresh:1:1""#);
        let (id, _) = ids.own_request(Generation(1), ("ping", b"{}"), |id| *id == taken);
        assert_eq!(id, Id::new(br#""afresh:1:2""#));
        assert!(ids.is_own(&id) && !ids.take_own(&id, Generation(2)));
        assert!(ids.take_own(&id, Generation(1)) && !ids.take_own(&id, Generation(1)));
        let (id, _) = ids.own_request(Generation(1), ("ping", b"{}"), |_| false);
        ids.end(Generation(1));
        assert!(!ids.is_own(&id));
    }
}
