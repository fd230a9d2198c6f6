//! Owns the circuit breaker of a link: after calls in a row without a response in time, calls fail at once for a while;
//! then one is let through to see. Driven by `link.rs` and `backends.rs`. Never sends anything.

use crate::limits::{CIRCUIT_OPEN_FOR, TIMEOUTS_IN_A_ROW_MAX};
use crate::time::Time;

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
