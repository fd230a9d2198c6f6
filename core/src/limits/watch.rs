//! The bounds of watched files.

use std::time::Duration;

/// How long watched files must be quiet before a change counts: an editor or a build writes several
/// files within it, and the wait is too short to notice. See `watch_debounce` in the configuration.
pub const WATCH_DEBOUNCE: Duration = Duration::from_millis(200);

/// A tree that is never quiet is looked at this often all the same.
pub const WATCH_WAIT_MAX: Duration = Duration::from_secs(2);

/// Files that were touched since the last look, by name; with more, all files are looked at.
pub const WATCH_TOUCHED_MAX: usize = 1_000;

/// Files that are watched, some ten times those of a large project without what it ignores. A change
/// of one more is not seen, and that is said once.
pub const WATCH_FILES_MAX: usize = 100_000;

/// Folders that the kernel watches for one server; the usual limit of a user is some 100,000, and
/// editors need theirs. With more, all files are looked at every [`WATCH_POLL_INTERVAL`], and that is
/// said once.
pub const WATCH_FOLDERS_MAX: usize = 20_000;

/// How deep watched folders may be nested. Deeper ones are not watched, and that is said once.
pub const WATCH_DEPTH_MAX: usize = 64;

/// Larger files are compared by their length and time, not by what is in them: to read one takes
/// longer than the rest of a look.
pub const WATCH_READ_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// A file with rules of what to ignore is read up to this size; those in use have a few hundred
/// lines. A larger one is left out.
pub const WATCH_RULES_BYTES_MAX: u64 = 256 * 1024;

/// How often all watched files are looked at where the kernel does not tell of changes.
pub const WATCH_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// So many times in a row may the same watched files change right after a start; then the server may be
/// what writes them, and restarts for them wait.
pub const ECHOES_MAX: u32 = 3;

/// What is right after a start: longer than the debounce and a slow machine take.
pub const ECHO_WITHIN: Duration = Duration::from_secs(3);

/// How long the first of these waits; each that follows waits twice as long.
pub const ECHO_DELAY: Duration = Duration::from_secs(2);

/// And none longer than this.
pub const ECHO_DELAY_MAX: Duration = Duration::from_secs(30);
