//! Owns the records of refused requests, and how many of them the trail takes. Driven by the control API and by the
//! gateway's port through the daemon. Never refuses anything itself.

use super::{Actor, EventType, Level, Record};
use crate::limits::{REFUSAL_PATH_CHARS_MAX, REFUSALS_RECORDED_MAX, REFUSALS_WINDOW};
use crate::time::Time;

/// A request that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What or who sent it.
    pub by: Actor,
    /// The status of HTTP; none where the connection was closed before a request.
    pub status: Option<u16>,
    /// The method and the path; empty without a request.
    pub request: String,
    /// Why.
    pub reason: String,
}

impl Refusal {
    /// Whether a status refuses access, or says that there is nothing to be accessed.
    pub const fn is_refusal(status: u16) -> bool {
        matches!(status, 401 | 403 | 404)
    }

    /// The record of the trail; `suppressed` others before it have none.
    pub fn record(&self, logger: &str, suppressed: u64) -> Record {
        let request: String = self.request.chars().take(REFUSAL_PATH_CHARS_MAX).collect();
        let message = match request.is_empty() {
            true => "connection refused".to_owned(),
            false => format!("request refused: {request}"),
        };
        let mut props = Vec::new();
        if let Some(status) = self.status {
            props.push(("status", status.into()));
            props.push(("request", request.into()));
        }
        props.push(("reason", self.reason.as_str().into()));
        if suppressed > 0 {
            props.push(("suppressed", suppressed.into()));
        }
        props.push(("by", self.by.to_json()));
        let (level, event_type) = (Level::Warning, EventType::RequestRefused);
        Record { level, logger: logger.to_owned(), message, event_type, props }
    }
}

/// How many refusals are recorded: a caller that is refused again and again cannot fill the trail.
#[derive(Debug, Default)]
pub struct RefusalBudget {
    /// When the window began; none before the first refusal.
    since: Option<Time>,
    recorded: u32,
    suppressed: u64,
    last: Option<Refusal>,
}

impl RefusalBudget {
    /// Counts a refusal. Returns it where it is to be recorded, with the number of those before it that were not.
    pub fn note(&mut self, now: Time, refusal: Refusal) -> Option<(Refusal, u64)> {
        if self.since.is_none_or(|since| now.since(since) >= REFUSALS_WINDOW) {
            (self.since, self.recorded) = (Some(now), 0);
        }
        if self.recorded >= REFUSALS_RECORDED_MAX {
            self.suppressed += 1;
            self.last = Some(refusal);
            return None;
        }
        self.recorded += 1;
        self.last = None;
        Some((refusal, std::mem::take(&mut self.suppressed)))
    }

    /// The last refusal that was not recorded, with the number of those before it: for the end of the trail.
    pub fn finish(&mut self) -> Option<(Refusal, u64)> {
        let last = self.last.take()?;
        Some((last, std::mem::take(&mut self.suppressed).saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn refusal(number: u64) -> Refusal {
        Refusal {
            by: Actor::Process { uid: 1001, pid: Some(7) },
            status: Some(401),
            request: format!("GET /{number}"),
            reason: "the token is missing".to_owned(),
        }
    }

    #[test]
    fn a_flood_is_counted_and_the_count_is_recorded() {
        let mut budget = RefusalBudget::default();
        let at = |seconds: u64| Time::after_start(Duration::from_secs(seconds));
        let max = u64::from(REFUSALS_RECORDED_MAX);
        for number in 0..max {
            assert_eq!(budget.note(at(number % 50), refusal(number)), Some((refusal(number), 0)));
        }
        for number in 0..1_000 {
            assert_eq!(budget.note(at(59), refusal(number)), None);
        }
        assert_eq!(budget.note(at(60), refusal(1)), Some((refusal(1), 1_000)));
        assert_eq!(budget.finish(), None);
        for number in 0..max + 4 {
            budget.note(at(61), refusal(number));
        }
        // What is still unsaid at the end is said.
        assert_eq!(budget.finish(), Some((refusal(max + 3), 4)));
        assert_eq!(budget.finish(), None);
    }

    #[test]
    fn a_record_names_the_request_and_its_sender() {
        let long = Refusal { request: format!("GET /{}", "x".repeat(5_000)), ..refusal(0) };
        let record = long.record("afresh.up", 3);
        assert!(record.message.chars().count() < REFUSAL_PATH_CHARS_MAX + 50);
        let props: Vec<&str> = record.props.iter().map(|(name, _)| *name).collect();
        assert_eq!(props, ["status", "request", "reason", "suppressed", "by"]);
        let closed = Refusal { status: None, request: String::new(), ..refusal(0) };
        let record = closed.record("afresh.up", 0);
        assert_eq!(record.message, "connection refused");
        let props: Vec<&str> = record.props.iter().map(|(name, _)| *name).collect();
        assert_eq!(props, ["reason", "by"]);
    }
}
