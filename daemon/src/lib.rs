//! What afresh does: processes, pipes, files. One function for each face of the program.

mod keep;
mod output;
mod pipe;
mod process;
pub mod store;
mod supervise;

pub use self::keep::{Keep, KeepError, Told, keep};
pub use self::process::Command;

/// The hidden subcommand that runs the warden; see [`warden`].
pub const WARDEN_COMMAND: &str = process::WARDEN_COMMAND;

/// Runs the warden on the socket that is our stdin, until the supervisor is gone.
pub fn warden() -> std::io::Result<()> {
    process::run_warden()
}
