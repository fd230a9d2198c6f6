//! Owns the state of one client: a session of the older era, or a single request of the modern one; its streams of
//! messages, which outlive their connections and are resumed by the number of the last event. Its rate limit is in
//! `rate_limit.rs`. Driven by `sessions_and_streams.rs`. Never sends a message and never rejects a request itself.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use super::rate_limit::Bucket;
use crate::gateway::http::HttpExchange;
use crate::limits::{FRONT_KEPT_BYTES_MAX, FRONT_KEPT_MAX, FRONT_RETRY};
use crate::mcp::envelope::Id;
use crate::mcp::json;
use crate::time::Time;

/// The name of a session: random, so that it cannot be guessed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 16]);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for SessionId {
    /// Only the beginning: the whole name gives access to the session.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({:02x}…)", self.0[0])
    }
}

impl SessionId {
    /// Reads one of ours, without what follows its name.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.split('.').next()?;
        let is_name = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_name)?;
        Some(Self(number.to_be_bytes()))
    }
}

/// One client. Thousands of them do nothing most of the time: what they do not need is not there.
#[derive(Debug, Default)]
pub(super) struct FrontClient {
    /// The id of its session, as the client has it; none in the modern era.
    pub(super) session: Option<Box<str>>,
    /// Whose it is.
    pub(super) token: Option<usize>,
    /// Whether its `initialize` has been answered well.
    pub(super) is_open: bool,
    /// Whether it began in a gateway before this one.
    pub(super) is_resumed: bool,
    pub(super) used_at: Time,
    /// When its idle time is checked.
    pub(super) idle_at: Option<Time>,
    pub(super) bucket: Bucket,
    /// By their numbers; those of requests are 1, 2, 3…, or begin above all earlier ones in a session that goes on.
    pub(super) streams: BTreeMap<u64, MessageStream>,
    pub(super) last_stream: u64,
    /// Whether it was said that it does not read, or that messages for it are lost.
    pub(super) is_slow_told: bool,
    pub(super) is_loss_told: bool,
}

impl FrontClient {
    /// The name of its session.
    pub(super) fn session_name(&self) -> Option<SessionId> {
        self.session.as_deref().and_then(SessionId::parse)
    }

    /// A new stream for requests, and its number.
    pub(super) fn add(&mut self, owed: Vec<Id>, connection: HttpExchange, primes: bool) -> u64 {
        self.last_stream += 1;
        let connection = Some(connection);
        let stream = MessageStream { owed, connection, primes, ..MessageStream::default() };
        self.streams.insert(self.last_stream, stream);
        self.last_stream
    }

    /// The stream over which the answer to a request is to come.
    pub(super) fn owing(&self, id: &Id) -> Option<u64> {
        // The newest first: most answers come soon.
        let mut all = self.streams.iter().rev();
        all.find(|(_, stream)| stream.owed.contains(id)).map(|(number, _)| *number)
    }

    pub(super) fn owed(&self) -> usize {
        self.streams.values().map(|stream| stream.owed.len()).sum()
    }

    /// Whether it has a connection open.
    pub(super) fn is_connected(&self) -> bool {
        self.streams.values().any(|stream| stream.connection.is_some())
    }

    /// What is kept for it.
    pub(super) fn kept_bytes(&self) -> usize {
        self.streams.values().map(|stream| stream.kept_bytes).sum()
    }
}

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
    pub(super) last: u64,
    /// The number of the last event that was written to a connection.
    pub(super) written: u64,
    kept: VecDeque<(u64, Arc<[u8]>)>,
    pub(super) kept_bytes: usize,
}

impl MessageStream {
    /// One whose events are numbered behind this number.
    pub(super) fn numbered_from(number: u64) -> Self {
        Self { last: number, written: number, ..Self::default() }
    }

    /// Adds a message; returns its event, and how many before it are lost for good.
    pub(super) fn push(&mut self, number: u64, line: &[u8]) -> (Arc<[u8]>, u64) {
        self.last += 1;
        let event = event(Some((number, self.last)), line);
        self.kept_bytes += event.len();
        self.kept.push_back((self.last, event.clone()));
        let mut unseen = 0;
        while self.kept.len() > FRONT_KEPT_MAX
            || (self.kept_bytes > FRONT_KEPT_BYTES_MAX && self.kept.len() > 1)
        {
            unseen += u64::from(self.drop_oldest());
        }
        (event, unseen)
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

    /// Forgets all events; true where one of them was never written.
    pub(super) fn keep_none(&mut self) -> bool {
        let is_lost = self.kept.back().is_some_and(|(number, _)| *number > self.written);
        self.kept.clear();
        self.kept_bytes = 0;
        is_lost
    }

    /// The events after one, as far as they are kept.
    pub(super) fn after(&self, last: u64) -> impl Iterator<Item = &Arc<[u8]>> {
        self.kept.iter().filter(move |(number, _)| *number > last).map(|(_, event)| event)
    }

    /// The event that tells a client from where to go on, before there is any message.
    pub(super) fn prime(&self, number: u64) -> Arc<[u8]> {
        let retry = FRONT_RETRY.as_millis();
        format!("id: {number}-{}\nretry: {retry}\ndata: \n\n", self.written).into_bytes().into()
    }
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
