//! The bounds of a gateway. Read by `gateway/` and the daemon's gateway.

use std::time::Duration;

/// The longest name of a tool or prompt, or URI of a resource; an entry with a longer one is left out.
pub const CATALOG_NAME_CHARS_MAX: usize = 4_096;

/// Brackets in one another within an entry; one with more is left out: many readers of JSON end at 128, and with
/// them the list of all servers.
pub const CATALOG_DEPTH_MAX: usize = 100;

/// Pages of one list that a server is asked for; what comes after them is left out, and said.
pub const CATALOG_PAGES_MAX: usize = 1_000;

/// Entries that one server's list may have; more are left out, and said.
pub const CATALOG_ENTRIES_MAX: usize = 10_000;

/// The same in bytes.
pub const CATALOG_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How often in a row a list is read from its beginning because the server says that it has changed…
pub const READINGS_IN_A_ROW_MAX: u32 = 8;

/// …within this time; then it is read again when this is over. Some servers say so whenever they are asked.
pub const READINGS_PAUSE: Duration = Duration::from_secs(1);

/// Names that two servers have which one line of the log names; of the rest it says how many.
pub const CLASHES_NAMED: usize = 5;

/// Entries of a list that a client gets at once; the rest comes with the next page.
pub const PAGE_ENTRIES_MAX: usize = 500;

/// The same in bytes, which one entry alone may pass.
pub const PAGE_BYTES_MAX: usize = 1024 * 1024;

/// How long a client's `initialize` waits for servers that are still starting, from when these were first
/// spoken to: what they say of themselves is in its answer. Clients give it 10 s, some for
/// all that they do at the beginning.
pub const GATEWAY_HELLO_WAIT: Duration = Duration::from_secs(2);

/// How long its first lists wait for them. Then they are answered with what is there, and the client is told
/// when more comes.
pub const GATEWAY_START_WAIT: Duration = Duration::from_secs(5);

const _: () = assert!(GATEWAY_HELLO_WAIT.as_millis() <= GATEWAY_START_WAIT.as_millis());

/// How long a question of a server's waits for a client that is still beginning its session; then it is
/// answered with an error. Servers themselves wait for 60 s or longer.
pub const QUESTION_WAIT: Duration = Duration::from_secs(30);

/// How long the gateway waits before it opens a session again that a server refused.
pub const SESSION_RETRY: Duration = Duration::from_secs(5);

/// How long a server may take to say whether it knows the newer protocol; then it is spoken to in the older.
pub const PROBE_MAX: Duration = Duration::from_secs(10);

/// Calls in a row that a server leaves unanswered beyond its `call_timeout` before the next ones are
/// answered at once, with an error…
pub const TIMEOUTS_IN_A_ROW_MAX: u32 = 3;

/// …for this long; then one call is let through to see.
pub const CIRCUIT_OPEN_FOR: Duration = Duration::from_secs(30);

/// Tools that `find_tools` answers with, unless asked for fewer or more…
pub const FOUND_TOOLS: usize = 10;

/// …up to this many.
pub const FOUND_TOOLS_MAX: usize = 50;

/// Requests that one client may have on their way through the gateway. One more is answered at once, with
/// an error.
pub const CLIENT_FLIGHTS_MAX: usize = 1_000;

/// Resources that one client may be subscribed to; one more is answered with an error.
pub const CLIENT_SUBSCRIPTIONS_MAX: usize = 1_000;

/// Streams of notifications that one client may have open; one more is answered with an error.
pub const CLIENT_LISTENS_MAX: usize = 32;

/// Lines of servers over HTTP that wait for the loop; then their links wait, and the servers with them.
pub const REMOTE_WORDS_MAX: usize = 64;

/// Lines of one server that are passed on before others have their turn, and connections of clients get to
/// write what they were given: who reads all the time is then not taken for one that does not.
pub const LINES_IN_A_ROW_MAX: usize = 256;

/// What clients, trail and log get each at the end to take what is for them, however late it is; they have more
/// where servers end sooner. All of it has to end within [`CLIENT_GONE_WITHIN`](super::CLIENT_GONE_WITHIN).
pub const GATEWAY_LAST_WAIT: Duration = Duration::from_millis(50);
