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

/// The longest name of a service or hook, in characters: it is part of file names and of every line.
pub const NAME_CHARS_MAX: usize = 64;

/// The longest title of a service, in characters; it stands in every line of the log about it.
pub const TITLE_CHARS_MAX: usize = 64;

/// Items of a list in the configuration, such as the arguments of a command, and names in a table of
/// variables or headers. Whoever needs more writes a file and names that; a longer one is refused.
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
