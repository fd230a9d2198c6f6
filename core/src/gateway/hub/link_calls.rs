//! Owns the calls over one link: those that wait or have no response, when the link was used last, and the circuit breaker
//! that lets calls fail at once after timeouts. Driven by `link.rs` and `backends.rs`. Never sends anything.

use std::collections::VecDeque;
use std::time::Duration;

use crate::gateway::ClientId;
use crate::limits::{CIRCUIT_OPEN_FOR, TIMEOUTS_IN_A_ROW_MAX};
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
