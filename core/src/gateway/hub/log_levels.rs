//! The levels of servers' log messages. Used where clients ask for them and where messages are passed on.

use crate::mcp::envelope::param;
use crate::mcp::json as raw;

/// The levels, from the least severe.
pub(super) const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// The index of `info`.
pub(super) const INFO: usize = 1;

/// The level that a message names at this place of its parameters, as an index of [`LEVELS`].
pub(super) fn level_in(line: &[u8], path: &[&str]) -> Option<usize> {
    let level = param(line, path).and_then(raw::text)?;
    LEVELS.iter().position(|name| *name == level)
}

/// The lowest level that a request of the newer protocol asks for.
pub(super) fn level_of_request(line: &[u8]) -> Option<usize> {
    level_in(line, &["_meta", "io.modelcontextprotocol/logLevel"])
}
