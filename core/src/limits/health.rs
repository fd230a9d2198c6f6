//! The bounds of health checks.

use std::time::Duration;

/// The shortest time between two checks of a service, and for one of them: a check costs the service
/// and the machine something, and a shorter time is a mistake. Less is refused.
pub const HEALTH_TIME_MIN: Duration = Duration::from_millis(10);

/// The body of an answer to a health check is read up to here, where it is read at all; one that is
/// longer counts as a failure. Those in use have some hundred bytes.
pub const HEALTH_BODY_BYTES_MAX: usize = 1024 * 1024;

/// The header of such an answer; a longer one counts as a failure.
pub const HEALTH_HEADER_BYTES_MAX: usize = 64 * 1024;

/// What a command that checks may print, on stdout and on stderr each; one that prints more counts as
/// failed, and is ended.
pub const HEALTH_OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Of a value or a line that was found and not wanted, this much is quoted.
pub const HEALTH_SHOWN_CHARS_MAX: usize = 200;

/// Addresses of one name that a health check tries, one after the other.
pub const HEALTH_ADDRESSES_MAX: usize = 8;

/// How long after its time a probe may end before it counts as lost, and another may begin: a command
/// that is ended takes up to [`BRIEF_TERM_WAIT`](super::BRIEF_TERM_WAIT) and three times
/// [`KILL_PATIENCE`](super::KILL_PATIENCE) to be gone.
pub const HEALTH_OVERTIME: Duration = Duration::from_secs(10);

/// How long the first request to a service that is not ready is waited for; each further one that gets
/// no answer has twice as long, up to the configured time. A server that can answer does so in
/// milliseconds; one that is slow at first gets the time all the same, a little later.
pub const HEALTH_PATIENCE_MIN: Duration = Duration::from_millis(250);

/// How long the figure of a service's processor time is waited for; then it counts as idle.
pub const HEALTH_SAMPLE_WAIT: Duration = Duration::from_secs(2);

/// A service that is not ready after this time is said to be so, and again after twice the time: most are
/// up in seconds, and one that is checked at the wrong place never is.
pub const HEALTH_NOT_READY_NOTICE: Duration = Duration::from_secs(10);

/// A wakeup later than this means that we were stopped ourselves: that time does not count.
pub const HEALTH_LATE_MAX: Duration = Duration::from_secs(5);

/// How long the name of a port's host is looked up before a start; then the start goes on unchecked.
pub const PORT_LOOKUP_WAIT: Duration = Duration::from_secs(1);
