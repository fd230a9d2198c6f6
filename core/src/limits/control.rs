//! Bounds of the control API.

use std::time::Duration;

/// Connections to a control socket that are served at once, and the same to a port. More wait in the kernel's queue: each of
/// those that are served ends by itself.
pub const CONTROL_CONNECTIONS_MAX: usize = 64;

/// Connections that follow a log, of those; more are refused with an error that says so. They stay as
/// long as they like, so they must leave room for others.
pub const CONTROL_FOLLOWERS_MAX: usize = 32;

/// How long a connection may take to say what it wants; then it is closed. The same for a body.
pub const CONTROL_HEADER_WAIT: Duration = Duration::from_secs(1);

/// How long a request may take from its header to the last byte of its answer; then its connection
/// is closed. More than the longest wait for a restart; following has no end.
pub const CONTROL_REQUEST_WAIT: Duration = Duration::from_secs(90);

/// What is read from a connection, or waits to be written to it, at once: a header has to fit in.
pub const CONTROL_BUFFER_BYTES: usize = 16 * 1024;

/// A longer body is refused: ours have one reason in them.
pub const CONTROL_BODY_BYTES_MAX: usize = 64 * 1024;

/// What is written to the stdin of a service at once; more is refused. A line that is typed is no longer, and
/// Linux takes so much whole or not at all (`PIPE_BUF`), so a service that does not read gets no half of it.
pub const INPUT_BYTES_MAX: usize = 4 * 1024;

/// What is read of a body that is refused, so that the client gets to read the refusal.
pub const CONTROL_REFUSED_BYTES_MAX: usize = 1024 * 1024;

/// A longer path, with its query, is refused: names are words.
pub const CONTROL_PATH_BYTES_MAX: usize = 4 * 1024;

/// The longest value of a word in a query, in characters; a longer one is refused. With %-escapes it still
/// fits into [`CONTROL_PATH_BYTES_MAX`].
pub const CONTROL_TEXT_CHARS_MAX: usize = 256;

/// The highest number in a query, 2^53 - 1: every reader of JSON has it, and nothing is counted that far.
/// A higher one is refused.
pub const CONTROL_NUMBER_MAX: u64 = 9_007_199_254_740_991;

/// How long the other end may take to read something before more of it fits; then its connection is
/// closed. A follower can connect again and resume.
pub const CONTROL_STALL_MAX: Duration = Duration::from_secs(15);

/// How often those who follow get a sign of life: one who is gone shows only when something is sent.
pub const CONTROL_PING_INTERVAL: Duration = Duration::from_secs(15);

/// Questions over the control socket that wait for the loop; who asks more waits.
pub const CONTROL_ASKS_MAX: usize = 16;

/// What those who follow a log get to take its last lines when afresh ends.
pub const CONTROL_CLOSE_WAIT: Duration = Duration::from_millis(100);

/// How long a command waits for the first word of a running afresh; then that one counts as stuck.
/// Many silent connections in front of ours take a few times [`CONTROL_HEADER_WAIT`].
pub const CONTROL_ANSWER_WAIT: Duration = Duration::from_secs(5);

/// Questions that a command asks at once; the others wait. Fewer than one afresh answers at once, so
/// that 10,000 copies of a service can be restarted by one command.
pub const CONTROL_QUESTIONS_MAX: usize = 32;

/// The longest answer that a command reads: the status of 10,000 copies takes some 6 MB.
pub const CONTROL_ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Refusals that are recorded in a [`REFUSALS_WINDOW`]: enough to see who tries what. Further ones are counted, and the
/// next record has their number: a program that tries tokens cannot push everything else out of the trail.
pub const REFUSALS_RECORDED_MAX: u32 = 20;

/// See [`REFUSALS_RECORDED_MAX`].
pub const REFUSALS_WINDOW: Duration = Duration::from_secs(60);

/// What a record has of the path that was refused; the rest is cut off. Our own paths are shorter.
pub const REFUSAL_PATH_CHARS_MAX: usize = 200;

/// What a record has of the name that a client gives itself; the rest is cut off.
pub const ACTOR_NAME_CHARS_MAX: usize = 100;

/// Restart calls whose callers a server of the gateway remembers until the conversation has them: one loop turn.
/// The oldest is forgotten, and its restart is recorded without the client's name.
pub const RESTART_CALLERS_MAX: usize = 64;

/// Connections to a port that wait to be accepted; the system may have a lower bound. With more, clients try again after a
/// second.
pub const LISTEN_BACKLOG: i32 = 4_096;

/// How long git may take to say whether it tracks the file of a token; then a token of a project is refused, and one that
/// afresh has made is used. It reads one index, which takes milliseconds, some hundred in the largest repositories.
pub const GIT_TRACKED_WAIT: Duration = Duration::from_secs(10);

/// Bytes of its message that are read where it cannot say it.
pub const GIT_MESSAGE_BYTES_MAX: u64 = 1_000;

/// Files in the runtime folder that are looked at; a folder with more is not only ours.
pub const CONTROL_SOCKETS_MAX: usize = 4_096;

/// A socket that has no name yet after this time belongs to a process that was killed while making it.
pub const CONTROL_LEFTOVER_AGE: Duration = Duration::from_secs(60);
