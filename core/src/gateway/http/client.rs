//! Owns the state of one client: a session of the older era, or a single request of the modern one. Driven by
//! `front.rs`. Never sends a message.

use std::collections::BTreeMap;
use std::fmt;

use super::input::HttpExchange;
use super::rate_limit::Bucket;
use super::stream::MessageStream;
use crate::mcp::envelope::Id;
use crate::time::Time;

/// The name of a session: random, so that it cannot be guessed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 16]);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SessionId {
    /// Only the beginning: the whole name gives access to the session.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({:02x}…)", self.0[0])
    }
}

impl SessionId {
    /// Reads one of ours.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        let digit =
            |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
        let mut bytes = [0; 16];
        if digits.len() != bytes.len() * 2 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }
}

/// One client. Thousands of them do nothing most of the time: what they do not need is not there.
#[derive(Debug)]
pub(super) struct FrontClient {
    /// None in the modern era.
    pub(super) session: Option<SessionId>,
    /// Whose it is.
    pub(super) token: Option<usize>,
    /// Whether its `initialize` has been answered well.
    pub(super) is_open: bool,
    pub(super) used_at: Time,
    /// When its idle time is checked.
    pub(super) idle_at: Option<Time>,
    pub(super) bucket: Bucket,
    /// By their numbers; those of requests are 1, 2, 3…
    pub(super) streams: BTreeMap<u64, MessageStream>,
    pub(super) last_stream: u64,
    /// Whether it was said that it does not read, or that messages for it are lost.
    pub(super) is_slow_told: bool,
    pub(super) is_loss_told: bool,
}

impl FrontClient {
    pub(super) fn new(session: Option<SessionId>, token: Option<usize>, now: Time) -> Self {
        Self {
            session,
            token,
            is_open: false,
            used_at: now,
            idle_at: None,
            bucket: Bucket::default(),
            streams: BTreeMap::new(),
            last_stream: 0,
            is_slow_told: false,
            is_loss_told: false,
        }
    }

    /// A new stream for requests, and its number.
    pub(super) fn add(&mut self, owed: Vec<Id>, connection: HttpExchange, primes: bool) -> u64 {
        self.last_stream += 1;
        let stream = MessageStream::new(owed, connection, primes);
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

    pub(super) fn is_connected(&self) -> bool {
        self.streams.values().any(|stream| stream.connection.is_some())
    }

    /// What is kept for it.
    pub(super) fn kept_bytes(&self) -> usize {
        self.streams.values().map(MessageStream::kept_bytes).sum()
    }
}
