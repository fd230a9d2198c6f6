//! Decides whether the processes of a service hold more memory than they may. Driven by the
//! measurements of the daemon; never measures.

use std::time::Duration;

use crate::limits::MEMORY_LOOK_INTERVAL;

/// More memory than allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverLimit {
    /// Why it is restarted, for the record.
    pub reason: String,
    /// It was restarted for the same a moment ago. That counts as a crash: there is no use in going on
    /// at that pace.
    pub is_again: bool,
}

/// Judges a measurement. `last` is the time since the last restart for this, and a run longer than
/// `stable_after` was fine.
pub fn over_limit(
    bytes: u64,
    bytes_max: u64,
    last: Option<Duration>,
    stable_after: Duration,
) -> Option<OverLimit> {
    if bytes <= bytes_max {
        return None;
    }
    let mebibytes = |bytes: u64| bytes.div_ceil(1024 * 1024);
    let reason = format!(
        "its processes use {} MiB of memory, more than the {} MiB that they may",
        mebibytes(bytes),
        mebibytes(bytes_max)
    );
    let is_again = last.is_some_and(|last| last < stable_after + MEMORY_LOOK_INTERVAL);
    Some(OverLimit { reason, is_again })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_too_much_counts_and_soon_again_is_a_crash() {
        let (mebibyte, minute) = (1 << 20, Duration::from_secs(60));
        assert_eq!(over_limit(mebibyte, mebibyte, None, minute), None);
        let first = over_limit(mebibyte + 1, mebibyte, None, minute).unwrap();
        assert!(!first.is_again);
        assert!(first.reason.contains("2 MiB") && first.reason.contains("1 MiB"), "{first:?}");
        let soon = Duration::from_secs(10);
        assert!(over_limit(2 * mebibyte, mebibyte, Some(soon), minute).unwrap().is_again);
        assert!(!over_limit(2 * mebibyte, mebibyte, Some(minute * 2), minute).unwrap().is_again);
    }
}
