//! Owns the suspicion that a server changes watched files itself when it starts, and the waits it costs.

use std::path::PathBuf;
use std::time::Duration;

use crate::backoff::ExponentialWait;
use crate::limits::{ECHO_DELAY, ECHO_DELAY_MAX, ECHO_WITHIN, ECHOES_MAX};

/// The same files change right after each start: the server itself may write them, and each restart would
/// bring the next. Such restarts wait, longer and longer; none is left out.
#[derive(Debug, Default)]
pub struct SelfChanges {
    paths: Vec<PathBuf>,
    count: u32,
}

impl SelfChanges {
    /// How long the restart for this change is to wait. `uptime` is that of the instance that serves.
    pub fn next(&mut self, paths: Vec<PathBuf>, uptime: Duration) -> Duration {
        let is_echo = uptime < ECHO_WITHIN && self.paths == paths;
        self.count = if is_echo { self.count.saturating_add(1) } else { 0 };
        self.paths = paths;
        match self.count.checked_sub(ECHOES_MAX) {
            Some(more) => ExponentialWait::doubling(ECHO_DELAY, ECHO_DELAY_MAX).after(more),
            None => Duration::ZERO,
        }
    }

    /// Whether the last change was the first that has to wait.
    pub fn have_begun(&self) -> bool {
        self.count == ECHOES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_writes_what_is_watched_is_restarted_more_and_more_slowly() {
        let mut echoes = SelfChanges::default();
        let paths = || vec![PathBuf::from("/p/gen")];
        let (soon, late) = (Duration::from_millis(300), Duration::from_secs(60));
        let waits: Vec<u64> = (0..9).map(|_| echoes.next(paths(), soon).as_secs()).collect();
        assert_eq!(waits, [0, 0, 0, 2, 4, 8, 16, 30, 30]);
        // Others, and those that come later, are changes like any other.
        for _ in 0..20 {
            assert_eq!(echoes.next(paths(), late), Duration::ZERO);
        }
        for name in 0..20 {
            let other = vec![PathBuf::from(format!("/p/{name}"))];
            assert_eq!(echoes.next(other, soon), Duration::ZERO);
        }
    }
}
