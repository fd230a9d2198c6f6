//! Owns the record of a user's start or stop of a service. It is on disk before the request is carried out.

use serde_json::json;

use super::event::Parts;
use crate::audit::{EventType, Level};

/// A start or a stop that a user or a client requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRequest {
    /// Whether it is to be up.
    pub up: bool,
    /// The process that is to be stopped.
    pub pid: Option<u32>,
    /// Why.
    pub reason: String,
}

impl UserRequest {
    pub(super) fn parts(&self, title: &str) -> Parts {
        let (event_type, word) = match self.up {
            true => (EventType::ServerStartRequested, "start"),
            false => (EventType::ServerStopRequested, "stop"),
        };
        (
            Level::Info,
            event_type,
            format!("{title}: {word} requested: {}", self.reason),
            vec![("reason", json!(self.reason)), ("pid", json!(self.pid))],
        )
    }
}
