//! Owns the calls of clients over one link: those that wait for its session, how many are in flight, when it was last
//! used, and the circuit breaker: after calls in a row without a response, further calls fail at once for a while.
//! Driven by the hub's parts that send and answer calls. Never looks at a message.

use std::collections::VecDeque;
use std::time::Duration;

use crate::gateway::ClientId;
use crate::limits::{CIRCUIT_OPEN_FOR, TIMEOUTS_IN_A_ROW_MAX};
use crate::time::Time;

/// The calls over a link.
#[derive(Debug, Default)]
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
        Self { used_at: now, idle_after, ..Self::default() }
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

/// A circuit breaker.
#[derive(Debug, Default)]
pub(super) struct Circuit {
    /// Calls in a row that had no response in time.
    timeouts: u32,
    /// Calls fail at once until then.
    open_until: Option<Time>,
}

impl Circuit {
    /// How many calls had no response, and in how many seconds one is let through, where calls fail at once.
    pub(super) fn open(&self, now: Time) -> Option<(u32, u128)> {
        let until = self.open_until.filter(|until| *until > now)?;
        Some((self.timeouts, until.since(now).as_millis().div_ceil(1_000)))
    }

    /// A call is let through. After a pause it is a probe: others wait for the next pause.
    pub(super) fn pass(&mut self, now: Time) {
        if self.open_until.is_some() {
            self.open_until = Some(now + CIRCUIT_OPEN_FOR);
        }
    }

    /// A call had a response.
    pub(super) fn close(&mut self) {
        *self = Self::default();
    }

    /// A call had no response in time. Returns how many there were, where calls fail at once from now on.
    pub(super) fn time_out(&mut self, now: Time) -> Option<u32> {
        self.timeouts += 1;
        if self.timeouts < TIMEOUTS_IN_A_ROW_MAX {
            return None;
        }
        self.open_until = Some(now + CIRCUIT_OPEN_FOR);
        Some(self.timeouts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_timeouts_in_a_row_one_call_is_a_probe() {
        let (mut circuit, now) = (Circuit::default(), Time::ZERO);
        for _ in 1..TIMEOUTS_IN_A_ROW_MAX {
            assert_eq!(circuit.time_out(now), None);
        }
        assert_eq!(circuit.time_out(now), Some(TIMEOUTS_IN_A_ROW_MAX));
        let seconds = u128::from(CIRCUIT_OPEN_FOR.as_secs());
        assert_eq!(circuit.open(now), Some((TIMEOUTS_IN_A_ROW_MAX, seconds)));
        let later = now + CIRCUIT_OPEN_FOR;
        assert_eq!(circuit.open(later), None);
        circuit.pass(later);
        assert!(circuit.open(later).is_some());
        circuit.close();
        assert_eq!(circuit.open(later), None);
    }
}
