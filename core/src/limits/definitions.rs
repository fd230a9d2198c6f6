//! The bounds of what can be defined: services, hooks, and files of variables.

use std::time::Duration;

/// Services of one configuration. Each has a guardian, a log and a place on the screen; with one more,
/// the configuration is refused.
pub const SERVICES_MAX: usize = 1_000;

/// Services that are not defined any more and whose instances go on being counted where they come back;
/// those of any more begin with 1 again.
pub const SERVICES_REMEMBERED_MAX: usize = 10 * SERVICES_MAX;

/// Hooks of one configuration: each event is offered to all of them. With one more, it is refused.
pub const HOOKS_MAX: usize = 100;

/// Servers of one gateway: each has processes, queues and a place in the list of tools. With one more, the
/// configuration is refused.
pub const SERVERS_MAX: usize = 500;

/// Tokens of one gateway: each request is held against all of them. With one more, the configuration is
/// refused.
pub const TOKENS_MAX: usize = 1_000;

/// The shortest token, in characters: a shorter one can be guessed.
pub const TOKEN_CHARS_MIN: usize = 16;

/// The longest token, in characters: it has to fit into a header beside others.
pub const TOKEN_CHARS_MAX: usize = 4 * 1024;

/// The longest value after its variables are filled in, in bytes: the system hands no longer one to a
/// process. A longer one is refused.
pub const EXPANDED_BYTES_MAX: usize = 128 * 1024;

/// Calls that may be on their way to one server at once, where it does not say otherwise: far more than
/// agents make, far fewer than would fill the memory.
pub const SERVER_IN_FLIGHT_MAX: usize = 256;

/// Instances of a server that each client has its own of, where it does not say otherwise.
pub const SERVER_INSTANCES_MAX: usize = 16;

/// When an idle instance of such a server is ended, where it does not say otherwise.
pub const SERVER_IDLE_AFTER: Duration = Duration::from_secs(5 * 60);

/// Clients of one gateway at once, where nothing else is said.
pub const GATEWAY_CLIENTS_MAX: usize = 1_000;

/// The largest request that a gateway takes over HTTP, where nothing else is said: one message.
pub const GATEWAY_BODY_BYTES_MAX: u64 = super::MESSAGE_BYTES_MAX as u64;

/// When a client over HTTP that says nothing is forgotten, where nothing else is said.
pub const GATEWAY_SESSION_IDLE: Duration = Duration::from_secs(30 * 60);

/// How long an MCP server has to go after its input has ended, where nothing else is set: that is how it is
/// told to, and most need no time for it.
pub const MCP_STDIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest name of a service or hook, in characters: it is part of file names and of every line.
pub const NAME_CHARS_MAX: usize = 64;

/// The longest title of a service, in characters; it stands in every line of the log about it.
pub const TITLE_CHARS_MAX: usize = 64;

/// The longest line of text in the configuration, such as the command of an agent, in characters: longer ones
/// belong into a script.
pub const CONFIG_LINE_CHARS_MAX: usize = 4_096;

/// Items of a list in the configuration, such as the arguments of a command, and names in a table of
/// variables or headers. A longer one is refused: a file can hold more.
pub const CONFIG_LIST_LEN_MAX: usize = 1_000;

/// The longest URL that can be configured: most servers take none that is longer.
pub const CONFIG_URL_BYTES_MAX: usize = 8 * 1024;

/// The shortest time between two checks of a service, and for one of them: a check costs the service
/// and the machine something, and a shorter time is a mistake. Less is refused.
pub const HEALTH_TIME_MIN: Duration = Duration::from_millis(10);

/// A file of variables beyond this is refused: all of them together have to fit into what the system
/// hands to a process, which is some megabytes at most.
pub const ENV_FILE_BYTES_MAX: usize = 1024 * 1024;

/// Names in a file of variables. With more, it is refused: it is something else.
pub const ENV_FILE_NAMES_MAX: usize = 10_000;
