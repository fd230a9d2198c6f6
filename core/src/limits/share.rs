//! The bounds of shared servers: the shim in front of a client, the hub with the servers, and what both say to each other.

use std::time::Duration;

use super::{HANDSHAKE_MAX, OUTBOX_BYTES_MAX, QUEUE_WAIT};

/// The first line of a shim, with its command and its environment, in bytes: the kernel gives a process 2 MiB of both, and
/// JSON may write a byte in six.
pub const SHARE_HELLO_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How long a shim may take for its first line, and a hub for the answer. A hub that was stopped as by SIGSTOP accepts
/// connections and says nothing.
pub const SHARE_HELLO_WAIT: Duration = Duration::from_secs(5);

/// How long a shim looks for a hub, or waits until one that it has started listens. Then the first time the server runs
/// unshared, and later the requests that wait are answered with an error.
pub const SHARE_HUB_WAIT: Duration = Duration::from_secs(10);

/// The pause between two looks at the socket while a hub starts: it takes about 20 ms.
pub const SHARE_LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The same after a hub could not be had.
pub const SHARE_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How long a client's first request waits for a server that is starting: as long as a server may take for its handshake,
/// and no less than a request waits for an instance.
pub const SHARE_START_WAIT: Duration = Duration::from_secs(90);

const _: () = assert!(SHARE_START_WAIT.as_secs() > HANDSHAKE_MAX.as_secs());
const _: () = assert!(SHARE_START_WAIT.as_secs() > QUEUE_WAIT.as_secs());

/// When a shim whose requests have no answer asks the hub whether it lives, and how long the hub may take for that. It
/// answers in its loop, in no time; a machine that swaps takes seconds.
pub const SHARE_SILENCE_MAX: Duration = Duration::from_secs(10);

/// How long a server runs on after its last client, where nothing else is said: a client that is started anew finds it warm.
pub const SHARE_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a client may take to tell its roots; then it counts as one that has none.
pub const SHARE_ROOTS_WAIT: Duration = Duration::from_secs(5);

/// Roots of a client that count, and lines of it that wait until they are known; then no more are read.
pub const SHARE_ROOTS_MAX: usize = 1_000;

/// The longest that can be said.
pub const SHARE_IDLE_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a hub without servers waits for a shim: one that has just started it connects at once.
pub const SHARE_HUB_IDLE: Duration = Duration::from_secs(2);

/// Sessions of one hub; a shim more runs its server unshared.
pub const SHARE_SESSIONS_MAX: usize = 256;

/// Servers of one hub; a session that needs one more runs its server unshared.
pub const SHARE_INSTANCES_MAX: usize = 64;

/// The most that waits for a shim, in bytes; a shim that does not read is dropped, and attaches again.
pub const SHARE_UNREAD_BYTES_MAX: usize = 16 * OUTBOX_BYTES_MAX;

/// Tools, prompts and resources of a shared server that have asked their clients something; with more, all count so.
pub const ASKING_CALLS_MAX: usize = 256;

/// The longest name or URI of one; with a longer one, all count so.
pub const ASKING_TARGET_BYTES_MAX: usize = 1_024;

/// How long a call of a shared server waits for calls of other clients, whose users may be thinking about a question; then it
/// is answered with an error.
pub const SHARED_TURN_WAIT: Duration = Duration::from_secs(10 * 60);

/// How long a cancelled call counts as running: many servers go on with it, and may ask something.
pub const WITHDRAWN_CALL_WAIT: Duration = Duration::from_secs(60);

/// Cancelled calls that are remembered so; the oldest ones are forgotten first.
pub const WITHDRAWN_CALLS_MAX: usize = 256;

/// What a shim reads at once: it holds nothing else in memory for each client.
pub const SHARE_CHUNK_BYTES: usize = 16 * 1024;

/// Lines of one shim that are looked at before the servers and the other shims have their turn.
pub const SHARE_LINES_MAX: usize = 64;
