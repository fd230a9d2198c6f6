//! Owns the requests to opencode's server that have no answer yet. Driven by [`super::Opencode`]. Never reads an
//! answer.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::agent::{Effect, RequestId};
use crate::limits::AGENT_REQUESTS_MAX;

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpencodeRequest {
    Health,
    Windows,
    Session,
    Prompt,
    Steer,
    Abort,
    /// Yes or no to a question of opencode.
    Reply,
    /// The newest messages, then what the session and its subagents have used, and whether it works.
    Messages,
    Used,
    Subagents,
    Status,
    /// The questions that opencode waits for an answer to.
    Permissions,
    Questions,
}

/// Requests without an answer; of too many the oldest is forgotten.
#[derive(Debug, Default)]
pub(super) struct Requests {
    open: BTreeMap<RequestId, OpencodeRequest>,
    made: u64,
}

impl Requests {
    pub(super) fn is_open(&self, purpose: OpencodeRequest) -> bool {
        self.open.values().any(|open| *open == purpose)
    }

    pub(super) fn get(&mut self, purpose: OpencodeRequest, path: &str) -> Effect {
        self.request(purpose, "GET", path.to_owned(), Vec::new())
    }

    pub(super) fn post(&mut self, purpose: OpencodeRequest, path: String, body: &Value) -> Effect {
        self.request(purpose, "POST", path, body.to_string().into_bytes())
    }

    /// Takes the request that an answer is to.
    pub(super) fn take(&mut self, request: RequestId) -> Option<OpencodeRequest> {
        self.open.remove(&request)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn forget_all(&mut self) {
        self.open.clear();
    }

    fn request(
        &mut self,
        purpose: OpencodeRequest,
        method: &'static str,
        path: String,
        body: Vec<u8>,
    ) -> Effect {
        let request = RequestId(self.made);
        self.made += 1;
        if self.open.len() >= AGENT_REQUESTS_MAX {
            self.open.pop_first();
        }
        self.open.insert(request, purpose);
        Effect::Request { request, method, path, body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_requests_the_oldest_is_forgotten() {
        let mut requests = Requests::default();
        requests.get(OpencodeRequest::Health, "/");
        for _ in 0..AGENT_REQUESTS_MAX {
            requests.get(OpencodeRequest::Status, "/");
        }
        assert!(
            !requests.is_open(OpencodeRequest::Health) && requests.is_open(OpencodeRequest::Status)
        );
        assert_eq!(requests.take(RequestId(0)), None);
        assert_eq!(requests.take(RequestId(1)), Some(OpencodeRequest::Status));
        requests.forget_all();
        assert!(!requests.is_open(OpencodeRequest::Status));
    }
}
