//! The bounds of a gateway's clients over HTTP.

use std::time::Duration;

/// Connections over HTTP that are served at once. More wait in the kernel's queue: those that ask nothing are
/// closed after [`FRONT_IDLE_WAIT`]. A client has one for what it is told and one for each request.
pub const FRONT_CONNECTIONS_MAX: usize = 4_096;

/// Requests over HTTP that wait for the loop; who asks more waits.
pub const FRONT_ASKS_MAX: usize = 64;

/// How long a new connection may take to say what it wants; then it is closed.
pub const FRONT_HEAD_WAIT: Duration = Duration::from_secs(10);

/// How long a connection may be open without a request, or with half of one. Then it is closed, and the
/// client connects again.
pub const FRONT_IDLE_WAIT: Duration = Duration::from_secs(60);

/// How long the body of a request may take; then it is refused. Megabytes over a slow line take some seconds.
pub const FRONT_BODY_WAIT: Duration = Duration::from_secs(15);

/// How long the rest of a body is read that is refused.
pub const FRONT_REFUSED_WAIT: Duration = Duration::from_secs(2);

/// What each body of a request has for itself, so that small ones never wait for room: no more than what is read
/// from each connection anyway.
pub const FRONT_BODY_OWN_BYTES: usize = 16 * 1024;

/// What bodies have besides, all together, while they come or wait for the loop; in bytes that have come. Who
/// brings more is not read until there is room, for as long as a body may take, and is refused then.
pub const FRONT_BODIES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How much of that a body takes at once.
pub const FRONT_BODY_STEP_BYTES: usize = 64 * 1024;

/// Where there is no room, a body that did not bring another step within this time is refused, and others get
/// its place. A client that really sends is faster.
pub const FRONT_BODY_STALLED: Duration = Duration::from_secs(1);

/// What is read from a connection, or waits to be written to it, at once: a head has to fit in.
pub const FRONT_BUFFER_BYTES: usize = 32 * 1024;

/// What is read of a body that is refused, so that the client gets to read the refusal.
pub const FRONT_REFUSED_BYTES_MAX: usize = 1024 * 1024;

/// How long requests and streams get at the end to be told so, from when we are told to go: servers end
/// meanwhile…
pub const FRONT_CLOSE_WAIT: Duration = Duration::from_millis(500);

/// …and however long these take, for what is said last. A connection without a request, or with half of one,
/// gets no more from the beginning.
pub const FRONT_LAST_WAIT: Duration = Duration::from_millis(100);

/// Messages that wait for one connection; one more, and the client counts as one that does not read: its
/// connection is closed, and it can go on where it was.
pub const FRONT_UNREAD_MAX: usize = 1_024;

/// The same in bytes; a single message may be longer.
pub const FRONT_UNREAD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A request that has no answer after this time gets the beginning of a stream: clients and proxies give up on
/// a connection over which nothing comes, and a stream can be resumed.
pub const FRONT_QUIET_MAX: Duration = Duration::from_secs(5);

/// Quiet streams get no sign of life more often than this: each wakes the gateway and all listening clients.
pub const FRONT_SIGN_MIN: Duration = Duration::from_secs(1);

/// How long a client should wait before it connects again to go on with a stream.
pub const FRONT_RETRY: Duration = Duration::from_secs(1);

/// Requests of one session that have no answer yet; more are refused.
pub const FRONT_REQUESTS_MAX: usize = 1_024;

/// Messages in one batch; a longer one is refused.
pub const FRONT_BATCH_MAX: usize = 1_000;

/// Messages of one stream that are kept for a client that comes back, or that has no stream yet. The oldest
/// goes when one more comes.
pub const FRONT_KEPT_MAX: usize = 256;

/// The same in bytes; the last message is kept however long it is.
pub const FRONT_KEPT_BYTES_MAX: usize = 64 * 1024;

/// The same for all streams: those that ended first are forgotten first, then each keeps only its last
/// message.
pub const FRONT_KEPT_ALL_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Streams that have ended and are kept for a client that did not get their end.
pub const FRONT_ENDED_MAX: usize = 1_024;

/// Addresses without a session whose rate is counted; those that were quiet for a second need no place.
/// With more, others are refused until one is quiet.
pub const FRONT_CALLERS_MAX: usize = 4_096;

const _: () = assert!(FRONT_HEAD_WAIT.as_millis() <= FRONT_IDLE_WAIT.as_millis());
const _: () = assert!(FRONT_BODY_OWN_BYTES <= FRONT_BUFFER_BYTES);
// The largest message fits, if it is alone.
const _: () = assert!(super::MESSAGE_BYTES_MAX <= FRONT_BODIES_BYTES_MAX);
const _: () = assert!(FRONT_BODIES_BYTES_MAX.is_multiple_of(FRONT_BODY_STEP_BYTES));
const _: () = assert!(FRONT_BODY_STALLED.as_millis() < FRONT_BODY_WAIT.as_millis());
const _: () = assert!(FRONT_CLOSE_WAIT.as_millis() + FRONT_LAST_WAIT.as_millis() < 1_000);
const _: () = assert!(FRONT_KEPT_BYTES_MAX <= FRONT_UNREAD_BYTES_MAX);
const _: () = assert!(FRONT_KEPT_MAX < FRONT_UNREAD_MAX);
const _: () = assert!(2 * super::LINES_IN_A_ROW_MAX <= FRONT_UNREAD_MAX);
