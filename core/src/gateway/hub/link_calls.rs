//! Owns the calls over one link: those that wait or have no response, when the link was used last. Its circuit breaker
//! is in `circuit_breaker.rs`. Driven by `link.rs` and `backends.rs`. Never sends anything.

use std::collections::VecDeque;
use std::time::Duration;

use super::circuit_breaker::Circuit;
use crate::gateway::ClientId;
use crate::time::Time;

/// The calls over a link.
#[derive(Debug, Default)]
pub(super) struct LinkCalls {
    /// Requests that wait until the session is open.
    pub(super) waiting: VecDeque<(ClientId, Vec<u8>)>,
    /// Requests without a response.
    pub(super) in_flight: usize,
    /// The client that called last.
    pub(super) last_caller: Option<ClientId>,
    pub(super) used_at: Time,
    /// How long the link may be unused; none is forever.
    pub(super) idle_after: Option<Duration>,
    pub(super) circuit: Circuit,
}

impl LinkCalls {
    pub(super) fn start(&mut self, client: ClientId) {
        self.in_flight += 1;
        self.last_caller = Some(client);
    }

    pub(super) fn end(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// When the link was unused for long enough.
    pub(super) fn idle_at(&self) -> Option<Time> {
        self.idle_after.filter(|_| self.in_flight == 0).map(|after| self.used_at + after)
    }
}
