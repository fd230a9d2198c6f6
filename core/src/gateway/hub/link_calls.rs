//! Owns the calls of clients over one link: those that wait for its session, how many are in flight, and when it was
//! last used. Driven by the hub's parts that send and answer calls. Never writes a message.

use std::collections::VecDeque;
use std::time::Duration;

use super::circuit::Circuit;
use crate::gateway::ClientId;
use crate::time::Time;

/// The calls over a link.
#[derive(Debug)]
pub(super) struct LinkCalls {
    /// Requests that wait until the session is open.
    waiting: VecDeque<(ClientId, Vec<u8>)>,
    /// Requests without a response.
    in_flight: usize,
    /// The client that called last.
    caller: Option<ClientId>,
    used_at: Time,
    /// How long the link may be unused; none is forever.
    idle_after: Option<Duration>,
    pub(super) circuit: Circuit,
}

impl LinkCalls {
    pub(super) fn new(idle_after: Option<Duration>, now: Time) -> Self {
        let circuit = Circuit::default();
        Self {
            waiting: VecDeque::new(),
            in_flight: 0,
            caller: None,
            used_at: now,
            idle_after,
            circuit,
        }
    }

    /// Lets a request wait for the session; returns false where as many wait as may.
    pub(super) fn wait(&mut self, client: ClientId, line: &[u8], max: usize) -> bool {
        let has_room = self.waiting.len() < max;
        if has_room {
            self.waiting.push_back((client, line.to_vec()));
        }
        has_room
    }

    pub(super) const fn waiting(&self) -> &VecDeque<(ClientId, Vec<u8>)> {
        &self.waiting
    }

    pub(super) fn take_waiting(&mut self) -> VecDeque<(ClientId, Vec<u8>)> {
        std::mem::take(&mut self.waiting)
    }

    /// Drops the requests that wait, where this holds of them.
    pub(super) fn forget_waiting(&mut self, is_it: impl Fn(ClientId, &[u8]) -> bool) {
        self.waiting.retain(|(client, line)| !is_it(*client, line));
    }

    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) const fn last_caller(&self) -> Option<ClientId> {
        self.caller
    }

    /// A client wants to call.
    pub(super) fn set_used(&mut self, now: Time) {
        self.used_at = now;
    }

    pub(super) fn start(&mut self, client: ClientId) {
        self.in_flight += 1;
        self.caller = Some(client);
    }

    pub(super) fn end(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    pub(super) fn end_all(&mut self) {
        self.in_flight = 0;
    }

    /// When the link was unused for long enough.
    pub(super) fn idle_at(&self) -> Option<Time> {
        self.idle_after.filter(|_| self.in_flight == 0).map(|after| self.used_at + after)
    }
}
