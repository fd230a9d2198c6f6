//! Owns the ids that afresh makes up: of its own requests to a server, and of servers' requests to the client.
//!
//! Driven by [`Conversation`](super::Conversation). One counter numbers both, so no id is used twice. Never
//! sends a request.

use std::collections::BTreeMap;

use crate::id::Generation;
use crate::limits::ASKED_MAX;
use crate::mcp::envelope::{self, Id};
use crate::mcp::{json, responses};

/// Requests of afresh and of servers that have no answer yet.
#[derive(Debug)]
pub(super) struct RelayedIds {
    next_number: u64,
    /// Requests of afresh, and the instances that have them.
    own: BTreeMap<Id, Generation>,
    /// Requests of servers to the client: the instance, and its own id.
    of_servers: BTreeMap<Id, (Generation, Id)>,
}

impl RelayedIds {
    pub(super) const fn new() -> Self {
        Self { next_number: 1, own: BTreeMap::new(), of_servers: BTreeMap::new() }
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    #[cfg(test)]
    pub(super) const fn peek_number(&self) -> u64 {
        self.next_number
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

    const REQUEST: &[u8] = br#"{"id":7,"method":"roots/list"}"#;

    #[test]
    fn an_answer_reaches_the_instance_that_asked_and_only_once() {
        let mut ids = RelayedIds::new();
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
        let mut ids = RelayedIds::new();
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
