//! The files of afresh on disk: the trail, the restart marker, the logs of services, and their folder. And
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

use afresh_core::audit::Level;

/// A notice for the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// Its level.
    pub level: Level,
    /// The text.
    pub text: String,
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
pub(crate) use self::testing::{TempDir, wait_for};
