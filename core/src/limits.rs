//! Every bound in the product: how much, why that much, and what happens at the bound.

use std::time::Duration;

/// The trail is rotated at this size. A record is about 300 bytes, so one file holds some 50,000.
pub const TRAIL_FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Rotated files that are kept; the oldest goes when one more is added.
pub const TRAIL_FILES_KEPT: u32 = 8;

/// A record longer than this has its text fields cut: one `write` must stay one write.
pub const TRAIL_LINE_BYTES_MAX: usize = 64 * 1024;

/// Records that wait for the disk. When a stuck disk has filled the queue, the next ones are
/// counted as lost and said loudly; supervision goes on.
pub const TRAIL_QUEUE_LEN_MAX: usize = 1024;

/// How long a writer waits for another afresh that holds the trail's lock (it may be stopped by
/// SIGSTOP). Then it appends without the lock: one `write` to an `O_APPEND` file does not tear.
pub const TRAIL_LOCK_WAIT: Duration = Duration::from_millis(500);

/// How long an announced effect waits for the trail to be on disk. Then the loss is said, and the
/// effect happens: a hung disk must not hang a restart.
pub const TRAIL_SYNC_WAIT: Duration = Duration::from_secs(2);

/// After the first one, notices about records that were lost come this often: a full disk must not
/// flood the log that says so.
pub const TRAIL_NOTICE_INTERVAL: Duration = Duration::from_secs(10);

/// This much of a torn line is kept in the record of its repair: enough to see whose it was.
pub const TRAIL_FRAGMENT_BYTES_MAX: usize = 1024;

/// A marker is a few hundred bytes; a longer file is not one.
pub const MARKER_BYTES_MAX: usize = 64 * 1024;

/// A temporary file of the marker is a dead writer's when it is this old: writing one takes
/// milliseconds.
pub const MARKER_LEFTOVER_AGE: Duration = Duration::from_secs(60);

/// How often a followed trail is looked at where the system can't say that it changed.
pub const FOLLOW_POLL_INTERVAL: Duration = Duration::from_millis(250);
