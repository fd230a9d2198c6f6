//! Owns the two clocks of the program: the wall clock for stamps, and a monotonic clock for durations.
//! Read by the loops and by the writers of files. Never waits.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use afresh_core::time::Stamp;
use tokio::time::Instant;

/// The time by the wall clock.
pub(crate) fn now() -> Stamp {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Stamp::since_unix_epoch(since_epoch.unwrap_or_default())
}

/// The time by a clock that only goes forward, from its first use on.
pub fn monotonic() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
