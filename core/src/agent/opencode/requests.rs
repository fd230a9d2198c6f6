//! Requests to opencode's server, and what they were for.

use serde_json::Value;

use super::super::{Effect, RequestId};
use super::{Effects, Opencode};
use crate::limits::AGENT_REQUESTS_MAX;

/// What a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Health,
    Windows,
    Session,
    Prompt,
    Steer,
    Abort,
    /// Yes or no to something that opencode asked.
    Reply,
    /// The newest messages, then what the session and its subagents have used, and whether it works.
    Messages,
    Used,
    Subagents,
    Status,
    /// What opencode waits for us to say.
    Permissions,
    Questions,
}

impl Opencode {
    pub(super) fn is_open(&self, asked: Asked) -> bool {
        self.requests.values().any(|open| *open == asked)
    }

    pub(super) fn get(&mut self, asked: Asked, path: &str, effects: &mut Effects) {
        self.request(asked, "GET", path.to_owned(), Vec::new(), effects);
    }

    pub(super) fn post(&mut self, asked: Asked, path: String, body: &Value, effects: &mut Effects) {
        self.request(asked, "POST", path, body.to_string().into_bytes(), effects);
    }

    fn request(
        &mut self,
        asked: Asked,
        method: &'static str,
        path: String,
        body: Vec<u8>,
        effects: &mut Effects,
    ) {
        let request = RequestId(self.requests_made);
        self.requests_made += 1;
        if self.requests.len() >= AGENT_REQUESTS_MAX {
            self.requests.pop_first();
        }
        self.requests.insert(request, asked);
        effects.push(Effect::Request { request, method, path, body });
    }
}
