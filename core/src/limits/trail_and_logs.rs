//! The bounds of the trail, of the restart marker and of the logs of services, on disk and in memory.

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

/// How often a connection that breaks is made again before something came over it; then the process at the other
/// end counts as gone.
pub const FOLLOW_TRIES_MAX: u32 = 5;

/// A log file is rotated at this size; one older file is kept.
pub const LOG_FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Lines of a service's output that are remembered; the oldest goes when one more comes. A screen has
/// 50, and what led to a crash fits into some hundred.
pub const LOGS_LINES_MAX: usize = 2_000;

/// The same in bytes, what holds them included: `afresh mcp` has to stay small.
pub const LOGS_BYTES_MAX: usize = 256 * 1024;

/// The same for all services of one afresh: each of many gets its share of it.
pub const LOGS_ALL_BYTES_MAX: usize = 32 * 1024 * 1024;

/// What holds lines that came together, counted with their bytes: a million empty lines, one by one,
/// are not free.
pub const LOGS_LINE_COST: usize = 64;

/// A longer line is remembered up to here, and marked as cut; it is passed on whole.
pub const LOGS_LINE_BYTES_MAX: usize = 8 * 1024;

/// Output of all services that waits for the disk. When it is this much, a service waits for room, up to
/// [`SERVICE_LOG_PATIENCE`]. A disk that works takes it within a few milliseconds.
pub const SERVICE_LOG_QUEUE_BYTES_MAX: usize = 1024 * 1024;

/// How long output of a service waits for room in front of a slow disk. Then it is dropped, counted, and
/// the count is written into the log; what follows is dropped at once until there is room again. So a
/// disk that hangs costs a service this much, once. Disks that work stall for a second at times.
pub const SERVICE_LOG_PATIENCE: Duration = Duration::from_secs(2);

/// Lines of our own, about services, that wait for the disk; more are dropped and counted.
pub const SERVICE_LOG_OWN_LINES_MAX: usize = 1024;

/// What is written to a file at once, as far as there is that much: fewer writes are faster, and this is
/// held once for all services.
pub const SERVICE_LOG_WRITE_BYTES: usize = 64 * 1024;

/// How long a file that could not be written is left alone. What comes meanwhile is counted as lost.
pub const SERVICE_LOG_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How long we wait at our own end for the disk to take the last lines; then it is said.
pub const SERVICE_LOG_FLUSH_MAX: Duration = Duration::from_secs(2);

/// What is read at once of a file that is read from its end.
pub const SERVICE_LOG_READ_BYTES: usize = 64 * 1024;

/// How many files of the trail, the newest, tell a new `afresh up` what became of its services under
/// the one before; older ones do not count any more.
pub const PAST_FILES_MAX: usize = 2;

/// How often a follower looks for rotated files again because they were rotated twice meanwhile; then it takes the last
/// result, in which two files can have changed places. A scan takes less than a millisecond, a rotation comes after
/// megabytes.
pub const ROTATED_SCANS_MAX: u32 = 20;
