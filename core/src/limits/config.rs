//! The bounds of configuration files and of what they define.

use std::time::Duration;

/// A configuration file beyond this is refused: a full one is about 2 KiB, so a file of this size
/// is something else.
pub const CONFIG_FILE_BYTES_MAX: usize = 1024 * 1024;

/// Errors of one configuration file that are shown; one more says that there are others. Each
/// of them quotes a line.
pub const CONFIG_ERRORS_MAX: usize = 100;

/// The longest duration that can be configured. A year is as good as for ever, and a sum of some of
/// them is far from the end of every clock.
pub const CONFIG_DURATION_MAX: Duration = Duration::from_secs(365 * 86_400);

/// Services of one configuration. Each has a guardian, a log and a place on the screen; with one more,
/// the configuration is refused.
pub const SERVICES_MAX: usize = 1_000;

/// Services that are not defined any more and whose instances go on being counted where they come back;
/// those of any more begin with 1 again.
pub const SERVICES_REMEMBERED_MAX: usize = 10 * SERVICES_MAX;

/// The longest value after its variables are filled in, in bytes: the system hands no longer one to a
/// process. A longer one is refused.
pub const EXPANDED_BYTES_MAX: usize = 128 * 1024;

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

/// A file of variables beyond this is refused: all of them together have to fit into what the system
/// hands to a process, which is some megabytes at most.
pub const ENV_FILE_BYTES_MAX: usize = 1024 * 1024;

/// Names in a file of variables. With more, it is refused: it is something else.
pub const ENV_FILE_NAMES_MAX: usize = 10_000;
