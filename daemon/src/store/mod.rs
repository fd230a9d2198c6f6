//! The files of afresh on disk: the trail, the restart marker, the logs of services, and their folder. And
//! the files of others that it edits when asked: the configurations of MCP clients.
//!
//! Everything here expects to be killed at any moment and to share its files with other afresh
//! processes. Nothing here decides: a failure is reported, and supervision goes on.

pub(crate) mod atomic_replace;
pub mod catalogs;
pub mod client_files;
pub mod digest;
pub mod file_follower;
pub mod git_folder;
pub mod history;
pub mod lock;
pub mod marker;
pub mod pins;
pub mod rotation;
pub mod runs;
pub mod service_log;
pub(crate) mod trace;
pub mod trail;
pub mod trust;
pub mod user_state;
pub mod workspace;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what a thread that panicked does not leave half done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number with what it counts: `1 line`, `2 lines`.
fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
pub(crate) use self::testing::{TempDir, wait_for};
