//! The bounds of the log files of services.

use std::time::Duration;

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
