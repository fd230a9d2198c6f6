//! Owns the MCP session of a link: its id, version and age. Driven by [`Remote`](super::Remote). Never opens
//! or ends the session at the server.

use super::Header;
use crate::limits::STREAM_STABLE;
use crate::mcp::json::{self, get};
use crate::sse::is_header_value;
use crate::time::Time;

#[derive(Debug, Default)]
pub(super) struct RemoteSession {
    /// Counts sessions; exchanges of an older one are void.
    number: u64,
    pub(super) id: Option<String>,
    version: Option<String>,
    is_open: bool,
    opened_at: Time,
    /// Sessions in a row that did not last.
    losses: u32,
}

impl RemoteSession {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether it is too young to be counted as one that lasted.
    pub(super) fn is_young(&self, now: Time) -> bool {
        now.since(self.opened_at) < STREAM_STABLE
    }

    /// The headers of each request in it.
    pub(super) fn headers(&self) -> Vec<Header> {
        let id = self.id.clone().map(|id| ("mcp-session-id".into(), id));
        let version = self.version.clone();
        let version = version.map(|version| ("mcp-protocol-version".into(), version));
        id.into_iter().chain(version).collect()
    }

    /// Notes the moment at which the transport was ready for it.
    pub(super) fn note_transport(&mut self, now: Time) {
        self.opened_at = now;
    }

    /// It is open: an `initialize` was answered with this line.
    pub(super) fn open(&mut self, now: Time, response: &[u8]) {
        let version = get(response, &["result", "protocolVersion"]).and_then(json::text);
        self.version = version.filter(|text: &String| is_header_value(text.as_bytes()));
        self.is_open = true;
        self.opened_at = now;
    }

    pub(super) fn forget(&mut self) {
        self.number += 1;
        self.id = None;
        self.is_open = false;
    }

    /// Counts a loss; returns how many followed each other.
    pub(super) fn count_loss(&mut self, now: Time) -> u32 {
        self.losses = if self.is_young(now) { self.losses + 1 } else { 1 };
        self.losses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_in_a_row_are_counted_until_a_session_lasts() {
        let mut session = RemoteSession::default();
        let now = Time::ZERO + STREAM_STABLE;
        session.open(now, br#"{"result":{"protocolVersion":"2025-06-18"}}"#);
        session.id = Some("s".to_owned());
        assert_eq!(session.headers().len(), 2);
        assert_eq!((session.count_loss(now), session.count_loss(now)), (1, 2));
        session.forget();
        assert_eq!((session.number(), session.is_open(), &session.id), (1, false, &None));
        assert_eq!(session.count_loss(now + STREAM_STABLE), 1);
    }
}
