//! Owns the first requests of clients that wait for the lists of servers that are starting. Driven by
//! [`Hub`](super::Hub), which dispatches them again. Never answers one.

use std::collections::VecDeque;
use std::time::Duration;

use super::link::has_id;
use crate::gateway::ClientId;
use crate::mcp::envelope::Id;
use crate::time::Time;

/// Requests that wait for servers.
#[derive(Debug, Default)]
pub(super) struct HeldRequests {
    requests: VecDeque<HeldRequest>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct HeldRequest {
    pub(super) client: ClientId,
    pub(super) line: Vec<u8>,
    /// How long it waits for each server.
    pub(super) within: Duration,
    pub(super) until: Time,
}

impl HeldRequests {
    pub(super) fn hold(&mut self, request: HeldRequest) {
        self.requests.push_back(request);
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn count_of(&self, client: ClientId) -> usize {
        self.requests.iter().filter(|held| held.client == client).count()
    }

    pub(super) fn contains(&self, client: ClientId, id: &Id) -> bool {
        self.requests.iter().any(|held| held.client == client && has_id(&held.line, id))
    }

    /// Drops the requests of a client: all, or the one with this id.
    pub(super) fn forget(&mut self, client: ClientId, id: Option<&Id>) {
        let is_it = |line: &[u8]| id.is_none_or(|id| has_id(line, id));
        self.requests.retain(|held| held.client != client || !is_it(&held.line));
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        self.requests.iter().map(|held| held.until).min()
    }

    /// Takes all, to dispatch them or to hold them again.
    pub(super) fn take(&mut self) -> VecDeque<HeldRequest> {
        std::mem::take(&mut self.requests)
    }
}
