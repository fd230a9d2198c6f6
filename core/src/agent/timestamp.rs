//! Times as agents write them.

use crate::limits::AGENT_SECONDS_MAX;

/// Seconds since 1970. A number so high is in milliseconds: as seconds it would be in thousands of years.
pub(super) const fn in_seconds(at: u64) -> u64 {
    if at > AGENT_SECONDS_MAX { at / 1_000 } else { at }
}
