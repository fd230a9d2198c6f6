//! Owns the two clocks of the program: the wall clock for stamps, and a monotonic clock for durations.
//! Read by the loops and by the writers of files. Never decides what is due.

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

/// A number that differs between two starts, for the jitter of waits.
pub(crate) fn seed() -> u64 {
    let clock = Duration::from_secs_f64(now().unix_seconds()).as_nanos() as u64;
    clock ^ (u64::from(std::process::id()) << 32)
}

/// Sleeps until a deadline; without one it never resolves. Cancel safe.
pub(crate) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
