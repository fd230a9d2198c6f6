//! Classifies the result of a turn. The exit code of the process says nothing of it: an interrupted turn exits with 0,
//! and a failed one calls itself a success.

use std::borrow::Cow;

use crate::agent::stream::{Object, at_second, told_time};
use crate::agent::{TurnEnd, TurnFailure};
use crate::limits::AGENT_TEXT_CHARS_MAX;
use crate::mcp::json;
use crate::text::cut;
use crate::time::Stamp;

/// What is known of a turn beside its result.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The agent's word for what went wrong.
    pub(super) trouble: Option<String>,
    /// A limit that was met; it can outlive the turn.
    pub(super) limit: Option<RateLimit>,
    /// Whether we want it to end.
    pub(super) is_interrupted: bool,
}

/// A limit that was met, and its end where that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RateLimit {
    until: Option<Stamp>,
}

/// How the turn ended that has this result.
pub(super) fn turn_end(result: &Object<'_>, known: &Known, now: Stamp) -> TurnEnd {
    let reason = result.text("terminal_reason").unwrap_or_default();
    let subtype = result.text("subtype").unwrap_or_default();
    if matches!(&*reason, "aborted_streaming" | "aborted_tools") {
        return TurnEnd::Interrupted;
    }
    let said = result.text("result").unwrap_or_default();
    let is_bare = subtype.is_empty() && said.trim().is_empty();
    if !result.is_true("is_error") && matches!(&*subtype, "success" | "") && !is_bare {
        return TurnEnd::Done(cut(&said, AGENT_TEXT_CHARS_MAX));
    }
    let word = if is_bare { "its result says nothing" } else { &*subtype };
    let why = why(result).unwrap_or(Cow::Borrowed(word));
    let failure = match (&*reason, &*subtype) {
        ("prompt_too_long" | "blocking_limit" | "rapid_refill_breaker", _) => TurnFailure::Overflow,
        ("budget_exhausted" | "max_turns", _) => TurnFailure::Budget,
        (_, "error_max_budget_usd" | "error_max_turns") => TurnFailure::Budget,
        _ => {
            let limit = known.limit.filter(|limit| limit.until.is_none_or(|until| until > now));
            let until = limit.and_then(|limit| limit.until).or_else(|| until_in(&why, now));
            let until = until.filter(|until| *until > now);
            match refused(result, known.trouble.as_deref(), until) {
                // The result of a limit does not always say that it is one…
                TurnFailure::Other if limit.is_some() => TurnFailure::Limited { until },
                // …nor that of an interrupt.
                TurnFailure::Other if known.is_interrupted => return TurnEnd::Interrupted,
                failure => failure,
            }
        }
    };
    TurnEnd::Failed { failure, why: cut(&why, AGENT_TEXT_CHARS_MAX) }
}

/// Why the API of the model refused.
fn refused(result: &Object<'_>, trouble: Option<&str>, until: Option<Stamp>) -> TurnFailure {
    let kind = result.text("api_error_type").unwrap_or_default();
    match (result.number("api_error_status"), &*kind, trouble) {
        (Some(429), _, _) | (_, "rate_limit_error", _) | (None, "", Some("rate_limit")) => {
            TurnFailure::Limited { until }
        }
        (Some(529 | 503), _, _) | (_, "overloaded_error", _) | (None, "", Some("overloaded")) => {
            TurnFailure::Overloaded
        }
        (Some(500..=599), _, _) | (None, "", Some("server_error")) => TurnFailure::Unreachable,
        // A run cannot pay either.
        (Some(401..=403), _, _)
        | (_, "authentication_error" | "permission_error" | "billing_error", _)
        | (_, _, Some("authentication_failed" | "billing_error")) => TurnFailure::Unauthorized,
        // A call that had no answer at all.
        (None, "", _) if result.text("terminal_reason").as_deref() == Some("api_error") => {
            TurnFailure::Unreachable
        }
        _ => TurnFailure::Other,
    }
}

/// Why a call is tried again that has this status and is called by this word.
pub(super) fn of_retry(status: Option<u64>, word: &str) -> TurnFailure {
    match (status, word) {
        (Some(401..=403), _) | (_, "authentication_failed" | "billing_error") => {
            TurnFailure::Unauthorized
        }
        (Some(429), _) | (None, "rate_limit") => TurnFailure::Limited { until: None },
        (Some(529 | 503), _) | (None, "overloaded") => TurnFailure::Overloaded,
        (Some(500..=599) | None, _) => TurnFailure::Unreachable,
        _ => TurnFailure::Other,
    }
}

fn why<'a>(result: &Object<'a>) -> Option<Cow<'a, str>> {
    let said = result.text("result").filter(|said| !said.trim().is_empty());
    said.or_else(|| json::read_text(result.elements("errors").next()?))
}

/// The limit that was met; none where there is room.
pub(super) fn limit_met(info: &Object<'_>) -> Option<RateLimit> {
    let is_met = info.text("status").as_deref() == Some("rejected");
    let until = info.number("resetsAt").map(told_time);
    is_met.then_some(RateLimit { until })
}

/// The end of a limit, where it stands in the words for it: `…|1794780000`, or `resets 3:45pm (UTC)`. In
/// other zones than UTC it is not known what the words mean.
fn until_in(words: &str, now: Stamp) -> Option<Stamp> {
    let second = words.rsplit_once('|').and_then(|(_, number)| number.trim().parse().ok());
    if let Some(second) = second {
        return Some(told_time(second));
    }
    let (_, clock) = words.split_once("resets ")?;
    let (clock, zone) = clock.split_once(" (")?;
    let (is_morning, clock) = match (clock.strip_suffix("am"), clock.strip_suffix("pm")) {
        (Some(clock), _) => (true, clock),
        (_, Some(clock)) => (false, clock),
        (None, None) => return None,
    };
    let (hour, minute) = clock.split_once(':').unwrap_or((clock, "0"));
    let (hour, minute): (u64, u64) = (hour.parse().ok()?, minute.parse().ok()?);
    if !zone.starts_with("UTC)") || !(1..=12).contains(&hour) || minute > 59 {
        return None;
    }
    let of_day = (hour % 12 + if is_morning { 0 } else { 12 }) * 3600 + minute * 60;
    let second = now.since(Stamp::default()).as_secs();
    let today = second - second % DAY_SECONDS + of_day;
    Some(at_second(if today > second { today } else { today + DAY_SECONDS }))
}

const DAY_SECONDS: u64 = 24 * 60 * 60;
