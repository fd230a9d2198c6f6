//! Owns the protocol between a shim and its hub: its number, its first lines, and the lines that are no messages of MCP.
//! Read and written by both. Never decides what follows.
//!
//! Both send lines. Those of MCP are as they are everywhere; a line of the protocol's own begins with a byte that no message
//! can begin with, so that neither a client nor a server can write one. A hub takes the version of its own and the one
//! before it; a shim that a hub refuses tries the version before its own. So the older of two neighbours never has to know
//! of the newer one.
//!
//! Version 2 has frames after the first line; with version 1 a hub just ends the connection.

use serde::{Deserialize, Serialize};

use super::{Roots, SessionRequest};

/// The version of this afresh.
pub const PROTOCOL: u32 = 2;

/// The version before it, which is spoken too.
pub const PROTOCOL_BEFORE: u32 = PROTOCOL - 1;

/// The first byte of a line that is no message of MCP: not part of any JSON.
const MARK: u8 = 1;

/// The line of a shim that attaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version that it wants to speak.
    pub protocol: u32,
    /// The version of its afresh.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The server that it needs.
    pub session: SessionRequest,
}

/// A line of a shim's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShimFrame {
    /// It attaches; its first line.
    Hello(Box<Hello>),
    /// The roots of its client are known, or have changed.
    Roots(Roots),
    /// Whether the hub lives.
    Ping,
    /// A hub of another version is to end as soon as no request is in flight.
    HandOver,
}

/// A line of a hub's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HubFrame {
    /// The session is open.
    Welcome {
        /// The version that is spoken.
        protocol: u32,
        /// The version of its afresh.
        version: String,
        /// Its process.
        pid: u32,
        /// Whether results of tools say that the server was restarted.
        tells_restarts: bool,
    },
    /// There is no session.
    Refused {
        /// Its version of the protocol.
        protocol: u32,
        /// In words.
        why: String,
    },
    /// It lives.
    Pong,
    /// The server has ended by itself: what it kept for its clients is lost.
    StateLost {
        /// How it ended.
        how: String,
    },
    /// New code of the server did not start, and older code serves.
    RestartFailed {
        /// Why not.
        why: String,
    },
    /// It ends the connection, and has done nothing about what came after so many lines.
    Leaving {
        /// Lines of MCP.
        read: u64,
        /// The client has used nothing of the server yet.
        keeps_state: bool,
    },
}

/// A line with a frame, without its end.
pub fn line_of(frame: &impl Serialize) -> Vec<u8> {
    let mut line = vec![MARK];
    // Keys are text, so it cannot fail.
    serde_json::to_writer(&mut line, frame).ok();
    line
}

/// Whether a line is one of the protocol's own.
pub fn is_frame(line: &[u8]) -> bool {
    line.first() == Some(&MARK)
}

/// The frame of a line; none where it is unknown.
pub fn frame_of<'a, F: Deserialize<'a>>(line: &'a [u8]) -> Option<F> {
    serde_json::from_slice(line.strip_prefix(&[MARK])?).ok()
}

/// Whether a hub of this afresh speaks a shim's version.
pub const fn is_spoken(theirs: u32) -> bool {
    PROTOCOL_BEFORE <= theirs && theirs <= PROTOCOL
}

/// The version that a shim tries after a hub of another one has refused it; none where they have none in common.
pub fn fall_back(tried: u32, hubs: u32) -> Option<u32> {
    (tried == PROTOCOL && hubs == PROTOCOL_BEFORE).then_some(PROTOCOL_BEFORE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_agree_and_others_do_not() {
        let spoken: Vec<u32> = (0..PROTOCOL + 3).filter(|theirs| is_spoken(*theirs)).collect();
        assert_eq!(spoken, [PROTOCOL_BEFORE, PROTOCOL]);
        assert_eq!(fall_back(PROTOCOL, PROTOCOL_BEFORE), Some(PROTOCOL_BEFORE));
        for (tried, hubs) in [
            (PROTOCOL, PROTOCOL),
            (PROTOCOL, PROTOCOL + 1),
            (PROTOCOL, PROTOCOL_BEFORE - 1),
            (PROTOCOL_BEFORE, PROTOCOL_BEFORE),
        ] {
            assert_eq!(fall_back(tried, hubs), None, "{tried} {hubs}");
        }
    }

    #[test]
    fn frames_are_no_messages_and_messages_no_frames() {
        let line = line_of(&HubFrame::Leaving { read: 7, keeps_state: false });
        assert!(is_frame(&line) && crate::mcp::envelope::look(&line).is_none());
        assert_eq!(
            frame_of::<HubFrame>(&line),
            Some(HubFrame::Leaving { read: 7, keeps_state: false })
        );
        assert_eq!(frame_of::<ShimFrame>(&line), None);
        for message in [&br#"{"leaving":{"read":7}}"#[..], b"", b"\x01", b"\x01[1", b"\x01{}"] {
            assert_eq!(frame_of::<HubFrame>(message), None);
        }
    }
}
