//! What afresh keeps on disk: the trail, the restart marker, the logs of services, and the folder for them. And
//! the files of others that it edits when asked: the configurations of MCP clients.
//!
//! Everything here expects to be killed at any moment and to share its files with other afresh
//! processes. Nothing here decides: a failure is reported, and supervision goes on.

pub mod clients;
pub mod follow;
pub mod history;
pub mod lock;
pub mod marker;
mod numbered;
pub(crate) mod replace;
pub mod rotating;
pub mod runs;
pub mod service_log;
pub(crate) mod trace;
pub mod trail;
pub mod workspace;

use std::time::{Duration, SystemTime};

use afresh_core::audit::Level;
use afresh_core::time::Stamp;

/// Something that a person should be told now.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// How grave it is.
    pub level: Level,
    /// What to tell.
    pub text: String,
}

fn now() -> Stamp {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Stamp::since_unix_epoch(since_epoch.unwrap_or(Duration::ZERO))
}

/// An error and its causes on one line, for a notice.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
pub(crate) use self::testing::{TempDir, wait_for};
