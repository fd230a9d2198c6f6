//! Classifies the errors of opencode, and reads until when a limit holds. Never tries anything again.

use serde_json::Value;

use crate::agent::TurnFailure;
use crate::agent::stream::at_second;
use crate::time::Stamp;

/// Why a turn failed; none where it was interrupted.
pub(super) fn what_failed(error: &Value, now: Stamp) -> Option<TurnFailure> {
    let data = &error["data"];
    Some(match (error["name"].as_str().unwrap_or_default(), data["statusCode"].as_u64()) {
        ("MessageAbortedError", _) => return None,
        ("ContextOverflowError", _) => TurnFailure::Overflow,
        ("ProviderAuthError", _) | (_, Some(401 | 403)) => TurnFailure::Unauthorized,
        (_, Some(429)) => {
            TurnFailure::Limited { until: retry_after(&data["responseHeaders"], now) }
        }
        (_, Some(503 | 529)) => TurnFailure::Overloaded,
        (_, Some(500..=599)) => TurnFailure::Unreachable,
        (_, None) if is_of_connection(data["message"].as_str().unwrap_or_default()) => {
            TurnFailure::Unreachable
        }
        _ => TurnFailure::Other,
    })
}

/// Why it tries a call again, by its words: there is nothing else to tell it by.
pub(super) fn of_retry(words: &str) -> TurnFailure {
    if is_of_connection(words) { TurnFailure::Unreachable } else { TurnFailure::Other }
}

/// Whether words tell that there was no answer: those of Bun, of Node and of the system.
fn is_of_connection(words: &str) -> bool {
    const PARTS: [&str; 11] = [
        "Unable to connect",
        "Cannot connect",
        "Connection error",
        "Failed to fetch",
        "fetch failed",
        "socket connection was closed",
        "socket hang up",
        "ConnectionRefused",
        "ECONNREFUSED",
        "ECONNRESET",
        "ENOTFOUND",
    ];
    PARTS.iter().any(|part| words.contains(part))
}

/// When a limit is over, as the provider says it in seconds.
fn retry_after(headers: &Value, now: Stamp) -> Option<Stamp> {
    let seconds: u64 = headers["retry-after"].as_str()?.trim().parse().ok()?;
    Some(at_second(now.since(Stamp::default()).as_secs().saturating_add(seconds)))
}
