//! The bounds of `afresh install` and of what systemd is told.

use std::time::Duration;

/// A supervisor that is silent for this long counts as hung, and systemd starts it again. Its loop says
/// twice as often that it turns.
pub const INSTALL_WATCHDOG: Duration = Duration::from_secs(30);

/// What all services together get to stop, one after the other where they need each other; then all that
/// is left is killed.
pub const INSTALL_STOP_WAIT: Duration = Duration::from_secs(90);

/// Characters of a folder's name that become the name of a unit; its file's may have 255.
pub const INSTALL_NAME_CHARS_MAX: usize = 64;

/// How long one command of systemd or launchd may take. To enable a unit waits for its start.
pub const INSTALL_COMMAND_WAIT: Duration = Duration::from_secs(120);

/// What is read of a unit or an agent; a larger file is none of ours.
pub const INSTALL_FILE_BYTES_MAX: u64 = 64 * 1024;

/// What is shown to systemd as our status; a longer one is cut.
pub const NOTIFY_STATUS_CHARS_MAX: usize = 200;
