//! The bounds of the gateway's links to servers over HTTP.

use std::time::Duration;

/// The wait before a server is tried again that could not be reached; the first time it is at once, and
/// each wait that follows is twice as long. A request meanwhile does not wait longer
/// than this for the next try.
pub const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// And none is longer than this, jitter included.
pub const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(60);

/// Up to this much is added to each wait at random, as a share of it: many links to a server that was
/// restarted must not come back in one moment.
pub const RECONNECT_JITTER: f64 = 0.5;

/// A stream or a session that lasted this long was fine: the waits begin anew.
pub const STREAM_STABLE: Duration = Duration::from_secs(5);

/// A server that says by `Retry-After` to wait longer than this is asked again after it.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// The same, for the `retry` of an event stream.
pub const STREAM_RETRY_MAX: Duration = Duration::from_secs(60);

/// How long a server that may speak the old HTTP with server-sent events has for the beginning of its
/// stream; then it speaks something else.
pub const GUESS_WAIT: Duration = Duration::from_secs(10);

/// Exchanges of one link that may be under way at once, each on a connection of its own. More wait.
pub const EXCHANGES_MAX: usize = 128;

/// How long a server may take to accept a notification; then its exchange is closed.
pub const NOTICE_WAIT: Duration = Duration::from_secs(30);

/// How often one request is given to a server that forgets its session each time; then it is answered
/// with an error.
pub const SENDINGS_MAX: u32 = 3;

/// How often a broken stream of a request is taken up in vain; then the request counts as lost.
pub const RESUMES_MAX: u32 = 6;

/// Characters of an answer that is no MCP that are shown.
pub const REPLY_EXCERPT_CHARS_MAX: usize = 200;

/// A longer session id, id of an event or name of a header is none: it would not fit into a head.
pub const HEADER_VALUE_BYTES_MAX: usize = 4 * 1024;

/// Lines that wait for a link's task. One more request is answered with an error; one more notification
/// is dropped, and said.
pub const LINK_QUEUE_LEN_MAX: usize = 1_000;

/// The same, in bytes. One alone may have any length.
pub const LINK_QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What exchanges have brought and the link's task has not looked at; those then wait.
pub const LINK_NEWS_MAX: usize = 64;

/// How long a link that ends tries to end its session too.
pub const LINK_FAREWELL_WAIT: Duration = Duration::from_millis(500);

/// How long a stream may go on after its answer, so that its connection can be used again.
pub const STREAM_LINGER: Duration = Duration::from_secs(2);

/// Idle connections of one link that are kept.
pub const IDLE_CONNECTIONS_MAX: usize = 8;

/// For so long, where the server does not say: below the 5 s after which those of Node.js and uvicorn
/// hang up, which would break off a call that is just being sent.
pub const IDLE_CONNECTION_MAX: Duration = Duration::from_secs(4);

/// And where it does say, no longer than this.
pub const IDLE_CONNECTION_NAMED_MAX: Duration = Duration::from_secs(600);

/// How long a connection may take to be there, with everything that makes it secure.
pub const HTTP_OPEN_WAIT: Duration = Duration::from_secs(10);

/// What is read of an answer that is none, but may say why.
pub const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// Arguments of one tool that are sent as headers; more are not, and the server may say so.
pub const PARAM_HEADERS_MAX: usize = 32;

/// Tools of one server whose arguments are sent as headers; those of more are not.
pub const MARKED_TOOLS_MAX: usize = 1_000;
