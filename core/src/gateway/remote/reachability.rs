//! Owns whether the server can be reached, and the waits between tries. Driven by [`Remote`](super::Remote).
//! Never starts a try.

use std::time::Duration;

use super::RemoteEffect;
use super::error_responses::LinkError;
use super::traffic::Traffic;
use crate::backoff::ExponentialWait;
use crate::limits::{RECONNECT_DELAY, RECONNECT_DELAY_MAX, RECONNECT_JITTER};
use crate::random::Random;

#[derive(Debug)]
pub(super) struct Reachability {
    /// Tries in a row that did not reach the server.
    failures: u32,
    /// The hub was told that the server cannot be reached.
    is_away: bool,
    random: Random,
}

impl Reachability {
    pub(super) fn new(seed: u64) -> Self {
        Self { failures: 0, is_away: false, random: Random::new(seed) }
    }

    /// A try failed: tells the hub the first time, and returns the wait before the next try.
    pub(super) fn failed(&mut self, error: &LinkError, traffic: &mut Traffic) -> Duration {
        self.failures += 1;
        if self.failures == 1 {
            traffic.emit(RemoteEffect::Log(error.text(traffic.origin())));
        }
        if !matches!(error, LinkError::Busy(_)) && !self.is_away {
            self.is_away = true;
            traffic.emit(RemoteEffect::Serves(Err(error.state(traffic.origin()))));
        }
        self.delay(self.failures)
    }

    /// The server has responded.
    pub(super) fn reached(&mut self, traffic: &mut Traffic) {
        if std::mem::take(&mut self.failures) > 0 {
            traffic.log("it answers again");
        }
        if std::mem::take(&mut self.is_away) {
            traffic.emit(RemoteEffect::Serves(Ok(())));
        }
    }

    /// The wait before the n-th try; none before the first.
    pub(super) fn delay(&mut self, tries: u32) -> Duration {
        if tries <= 1 {
            return Duration::ZERO;
        }
        let waits = ExponentialWait::doubling(RECONNECT_DELAY, RECONNECT_DELAY_MAX);
        waits.jittered(tries - 2, RECONNECT_JITTER, self.random.unit())
    }
}
