//! Owns the failures of instances that ended before they served. Driven by [`Conversation`](super::Conversation). Two alike
//! in a row are reported to the clients that wait, while the supervisor goes on trying. Never starts an instance.

use crate::limits::START_FAILURE_REPORT_AFTER;
use crate::time::Time;

/// The failures since an instance has served.
#[derive(Debug, Default)]
pub(super) struct StartFailures {
    /// How the last one ended.
    last: String,
    /// How many in a row have ended like it.
    alike: u32,
    /// When clients hear of it, unless an instance serves before.
    report_at: Option<Time>,
    is_reported: bool,
}

impl StartFailures {
    /// An instance has ended before it served.
    pub(super) fn note(&mut self, now: Time, how: &str) {
        let is_alike = self.alike > 0 && without_numbers(how).eq(without_numbers(&self.last));
        how.clone_into(&mut self.last);
        self.alike = if is_alike { self.alike + 1 } else { 1 };
        if self.is_reported {
            self.report_at = Some(now);
        } else if is_alike && self.report_at.is_none() {
            self.report_at = Some(now + START_FAILURE_REPORT_AFTER);
        }
    }

    /// An instance serves.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) const fn next_expiry(&self) -> Option<Time> {
        self.report_at
    }

    /// The failure to report now, in words.
    pub(super) fn take_due(&mut self, now: Time) -> Option<String> {
        self.report_at.take_if(|at| *at <= now)?;
        self.is_reported = true;
        let (alike, last) = (self.alike, &self.last);
        Some(match alike {
            1 => format!("it does not start, and is tried again; the last instance {last}"),
            _ => format!(
                "it does not start, and is tried again; {alike} instances in a row ended alike, the last one {last}"
            ),
        })
    }
}

/// Process ids, times and addresses differ each time.
fn without_numbers(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|letter| !letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::after_start(Duration::from_millis(millis))
    }

    #[test]
    fn two_alike_are_reported_soon_and_what_follows_at_once() {
        let mut failures = StartFailures::default();
        failures.note(at(0), "exited with code 1: (node:12) no key");
        assert_eq!(failures.next_expiry(), None);
        failures.note(at(100), "exited with code 1: (node:345) no key");
        let due = at(100) + START_FAILURE_REPORT_AFTER;
        assert_eq!(failures.next_expiry(), Some(due));
        // Another one does not put it off.
        failures.note(at(900), "exited with code 1: (node:7) no key");
        assert_eq!((failures.take_due(at(101)), failures.next_expiry()), (None, Some(due)));
        let why = failures.take_due(due).expect("it is due");
        assert!(why.contains("3 instances in a row ended alike"), "{why}");
        assert!(why.ends_with("the last one exited with code 1: (node:7) no key"), "{why}");
        assert_eq!(failures.next_expiry(), None);
        failures.note(at(9_000), "was killed");
        let why = failures.take_due(at(9_000)).expect("it was reported before");
        assert!(why.ends_with("the last instance was killed"), "{why}");
    }

    #[test]
    fn failures_that_differ_or_end_are_not_reported() {
        let mut failures = StartFailures::default();
        failures.note(at(0), "exited with code 1: no key");
        failures.note(at(1), "exited with code 1: no door");
        assert_eq!(failures.next_expiry(), None);
        failures.note(at(2), "exited with code 1: no door");
        failures.clear();
        assert_eq!(failures.take_due(at(60_000)), None);
        failures.note(at(3), "exited with code 1: no door");
        assert_eq!(failures.next_expiry(), None, "it counts anew");
    }
}
