//! Owns one stream of messages to a client: the response to a request with the messages before it, or the standalone
//! stream of a session. It outlives its connection, and a client resumes it by the number of its last event. Driven by
//! `front.rs`. Never writes to a connection.

use std::collections::VecDeque;
use std::sync::Arc;

use super::input::HttpExchange;
use crate::limits::{FRONT_KEPT_BYTES_MAX, FRONT_KEPT_MAX, FRONT_RETRY};
use crate::mcp::envelope::Id;
use crate::mcp::json;

/// The stream of a session that belongs to no request.
pub(super) const STANDALONE: u64 = 0;

/// One stream.
#[derive(Debug, Default)]
pub(super) struct MessageStream {
    /// Requests whose answers are to come over it.
    pub(super) owed: Vec<Id>,
    /// Where it is written to now.
    pub(super) connection: Option<HttpExchange>,
    /// Whether it is a stream to its client, and not just a request without an answer.
    pub(super) has_begun: bool,
    /// Whether the client knows events without a message.
    pub(super) primes: bool,
    /// The number of the last event; 0 is that it has begun.
    last: u64,
    /// The number of the last event that was written to a connection.
    pub(super) written: u64,
    kept: VecDeque<(u64, Arc<[u8]>)>,
    kept_bytes: usize,
}

impl MessageStream {
    /// What waits for the answers to some requests.
    pub(super) fn new(owed: Vec<Id>, connection: HttpExchange, primes: bool) -> Self {
        Self { owed, connection: Some(connection), primes, ..Self::default() }
    }

    /// Adds a message, and says what it takes away of what was kept.
    pub(super) fn add(&mut self, number: u64, line: &[u8]) -> AddedEvent {
        self.last += 1;
        let event = event(Some((number, self.last)), line);
        self.kept_bytes += event.len();
        let before = self.kept_bytes - event.len();
        self.kept.push_back((self.last, event.clone()));
        let mut unseen = 0;
        while self.kept.len() > FRONT_KEPT_MAX
            || (self.kept_bytes > FRONT_KEPT_BYTES_MAX && self.kept.len() > 1)
        {
            unseen += u64::from(self.drop_oldest());
        }
        AddedEvent { event, bytes_before: before, unseen }
    }

    /// Forgets the oldest event; true where it was never written.
    fn drop_oldest(&mut self) -> bool {
        let Some((number, event)) = self.kept.pop_front() else { return false };
        self.kept_bytes -= event.len();
        number > self.written
    }

    /// Forgets all but the last event.
    pub(super) fn keep_last(&mut self) {
        while self.kept.len() > 1 {
            self.drop_oldest();
        }
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// The events after one, as far as they are kept.
    pub(super) fn after(&self, last: u64) -> impl Iterator<Item = &Arc<[u8]>> {
        self.kept.iter().filter(move |(number, _)| *number > last).map(|(_, event)| event)
    }

    /// All that there is has been written.
    pub(super) fn note_written(&mut self) {
        self.written = self.last;
    }

    /// The event that tells a client from where to go on, before there is any message.
    pub(super) fn prime(&self, number: u64) -> Arc<[u8]> {
        let retry = FRONT_RETRY.as_millis();
        format!("id: {number}-{}\nretry: {retry}\ndata: \n\n", self.written).into_bytes().into()
    }
}

/// What came of a message.
pub(super) struct AddedEvent {
    pub(super) event: Arc<[u8]>,
    /// What was kept before it.
    pub(super) bytes_before: usize,
    /// Messages that are lost for good.
    pub(super) unseen: u64,
}

/// A message as an event, with its number where the stream can be resumed.
pub(super) fn event(number: Option<(u64, u64)>, line: &[u8]) -> Arc<[u8]> {
    let id = number.map_or_else(String::new, |(stream, event)| format!("id: {stream}-{event}\n"));
    let mut bytes = Vec::with_capacity(id.len() + line.len() + 24);
    bytes.extend_from_slice(id.as_bytes());
    bytes.extend_from_slice(b"event: message\ndata: ");
    let start = bytes.len();
    bytes.extend_from_slice(line);
    // A line end would end the event; in JSON it can only stand between values.
    json::flatten(&mut bytes[start..]);
    bytes.extend_from_slice(b"\n\n");
    bytes.into()
}

/// The stream and the event in a `Last-Event-ID`.
pub(super) fn parse_event_id(text: &str) -> Option<(u64, u64)> {
    let (stream, event) = text.split_once('-')?;
    Some((stream.parse().ok()?, event.parse().ok()?))
}
