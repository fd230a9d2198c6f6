//! Classifies the errors of Codex, and reads until when a limit holds. Never tries anything again.

use crate::agent::stream::{Object, told_time};
use crate::agent::{TurnEnd, TurnFailure};
use crate::limits::{AGENT_LIMITED_MAX, AGENT_TEXT_CHARS_MAX};
use crate::mcp::json;
use crate::text::cut;
use crate::time::Stamp;

/// When the limits of the account that are reached end, the primary and the secondary one.
#[derive(Debug, Default)]
pub(super) struct Limits([Option<Stamp>; 2]);

impl Limits {
    /// Takes in a snapshot. It is sparse: what it does not have, it does not take back.
    pub(super) fn update(&mut self, told: &Object<'_>) {
        for (end, key) in self.0.iter_mut().zip(["primary", "secondary"]) {
            let window = told.object(key);
            if let Some(used) = window.number("usedPercent") {
                *end = window.number("resetsAt").map(told_time).filter(|_| used >= 100);
            }
        }
    }

    /// When the last of those that are reached ends.
    fn until(&self, now: Stamp) -> Option<Stamp> {
        let last = self.0.into_iter().flatten().max();
        // A time in the past or far from now is no time to wait for.
        last.filter(|until| *until > now && until.since(now) <= AGENT_LIMITED_MAX)
    }
}

/// Reads the error of a turn, or one that answers a request of ours.
pub(super) fn read(error: &Object<'_>, limits: &Limits, now: Stamp) -> TurnEnd {
    let why = error.cut_text("message", AGENT_TEXT_CHARS_MAX).unwrap_or_default();
    let data = error.object("data");
    let info = error.raw("codexErrorInfo").or_else(|| data.raw("codexErrorInfo"));
    let failure = match info.map_or(TurnFailure::Other, |info| by_info(info, limits, now)) {
        // A provider that is not OpenAI's own says it in its words only, and Codex hands them on.
        TurnFailure::Other if why.contains("context_length_exceeded") => TurnFailure::Overflow,
        // After its own tries it says no more than that.
        TurnFailure::Other if BROKEN_STREAM.iter().any(|words| why.contains(words)) => {
            TurnFailure::Unreachable
        }
        failure => failure,
    };
    TurnEnd::Failed { failure, why }
}

/// What Codex says of a connection that broke.
const BROKEN_STREAM: [&str; 4] = [
    "error sending request",
    "error decoding response body",
    "stream closed before response.completed",
    "idle timeout waiting for SSE",
];

/// An error that nothing but its words tell of.
pub(super) fn other(why: &str) -> TurnEnd {
    TurnEnd::Failed { failure: TurnFailure::Other, why: cut(why, AGENT_TEXT_CHARS_MAX) }
}

/// The errors of a call that had no whole answer.
const CONNECTION_ERRORS: [&str; 4] = [
    "httpConnectionFailed",
    "responseStreamConnectionFailed",
    "responseStreamDisconnected",
    "responseTooManyFailedAttempts",
];

/// The info is a name, or an object with a name and a status of HTTP.
fn by_info(info: &[u8], limits: &Limits, now: Stamp) -> TurnFailure {
    let object = Object::read(info).unwrap_or_default();
    let Some(name) = json::read_text(info).or_else(|| object.first_key()) else {
        return TurnFailure::Other;
    };
    match name.as_ref() {
        "contextWindowExceeded" => TurnFailure::Overflow,
        "sessionBudgetExceeded" => TurnFailure::Budget,
        "usageLimitExceeded" => TurnFailure::Limited { until: limits.until(now) },
        "rateLimitExceeded" => TurnFailure::Limited { until: None },
        // The errors of a server come as this one too, with "high demand" as their words.
        "serverOverloaded"
        | "flexUnavailable"
        | "policyCapacityUnavailable"
        | "internalServerError" => TurnFailure::Overloaded,
        "unauthorized" => TurnFailure::Unauthorized,
        name => match object.object(name).number("httpStatusCode") {
            Some(401 | 403) => TurnFailure::Unauthorized,
            Some(429) => TurnFailure::Limited { until: limits.until(now) },
            Some(500..=599) => TurnFailure::Overloaded,
            // The connection broke before there was a status, or could not be made.
            None if CONNECTION_ERRORS.contains(&name) => TurnFailure::Unreachable,
            _ => TurnFailure::Other,
        },
    }
}

/// The number of the try in `Reconnecting... 2/5`.
pub(super) fn attempt(message: &str) -> Option<u32> {
    let (before, _) = message.rsplit_once('/')?;
    before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn failure(info: &str) -> TurnFailure {
        let text = format!(r#"{{"message":"m","codexErrorInfo":{info}}}"#);
        let object = Object::read(text.as_bytes()).expect("an object");
        match read(&object, &Limits::default(), Stamp::default()) {
            TurnEnd::Failed { failure, .. } => failure,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_error_has_its_kind() {
        let status = |name: &str, status: &str| {
            failure(&format!(r#"{{"{name}":{{"httpStatusCode":{status}}}}}"#))
        };
        let limited = TurnFailure::Limited { until: None };
        assert_eq!(failure(r#""contextWindowExceeded""#), TurnFailure::Overflow);
        assert_eq!(failure(r#""usageLimitExceeded""#), limited);
        assert_eq!(failure(r#""rateLimitExceeded""#), limited);
        assert_eq!(failure(r#""sessionBudgetExceeded""#), TurnFailure::Budget);
        assert_eq!(failure(r#""serverOverloaded""#), TurnFailure::Overloaded);
        assert_eq!(failure(r#""internalServerError""#), TurnFailure::Overloaded);
        assert_eq!(failure(r#""unauthorized""#), TurnFailure::Unauthorized);
        assert_eq!(status("responseTooManyFailedAttempts", "429"), limited);
        assert_eq!(status("httpConnectionFailed", "401"), TurnFailure::Unauthorized);
        assert_eq!(status("responseStreamDisconnected", "503"), TurnFailure::Overloaded);
        assert_eq!(status("responseStreamDisconnected", "null"), TurnFailure::Unreachable);
        assert_eq!(status("httpConnectionFailed", "null"), TurnFailure::Unreachable);
        assert_eq!(status("httpConnectionFailed", "400"), TurnFailure::Other);
        let last = r#"{"message":"stream disconnected before completion: error sending request","codexErrorInfo":"other"}"#;
        let last = read(
            &Object::read(last.as_bytes()).expect("an object"),
            &Limits::default(),
            Stamp::default(),
        );
        let TurnEnd::Failed { failure: class, .. } = last else { panic!("{last:?}") };
        assert_eq!(class, TurnFailure::Unreachable);
        for unknown in ["\"somethingNew\"", "{\"new\":{\"x\":1}}", "null", "7", "[]"] {
            assert_eq!(failure(unknown), TurnFailure::Other, "{unknown}");
        }
    }

    #[test]
    fn a_limit_ends_when_the_last_window_that_is_full_does() {
        let now = Stamp::since_unix_epoch(Duration::from_secs(1000));
        let until = |snapshots: &[&str]| {
            let mut limits = Limits::default();
            for text in snapshots {
                limits.update(&Object::read(text.as_bytes()).expect("an object"));
            }
            limits.until(now).map(Stamp::unix_seconds)
        };
        let full = r#"{"primary":{"usedPercent":100,"resetsAt":2000},"secondary":null}"#;
        let both = r#"{"secondary":{"usedPercent":100,"resetsAt":3000}}"#;
        assert_eq!(until(&[full]), Some(2000.0));
        assert_eq!(until(&[full, r#"{"primary":null}"#]), Some(2000.0), "null takes nothing back");
        assert_eq!(until(&[full, both]), Some(3000.0));
        assert_eq!(until(&[full, r#"{"primary":{"usedPercent":3,"resetsAt":9000}}"#]), None);
        // Some are in milliseconds.
        let now = Stamp::since_unix_epoch(Duration::from_secs(1_794_000_000));
        let mut limits = Limits::default();
        let millis = r#"{"primary":{"usedPercent":100,"resetsAt":1794003600500}}"#;
        limits.update(&Object::read(millis.as_bytes()).expect("an object"));
        assert_eq!(limits.until(now).map(Stamp::unix_seconds), Some(1_794_003_600.0));
        for odd in ["1000", "1", "99999999999999999999", "null", "\"soon\""] {
            let text = format!(r#"{{"primary":{{"usedPercent":100,"resetsAt":{odd}}}}}"#);
            assert_eq!(until(&[&text]), None, "{odd}");
        }
    }

    #[test]
    fn the_number_of_a_try_is_in_its_words() {
        assert_eq!(attempt("Reconnecting... 2/5"), Some(2));
        assert_eq!(attempt("Reconnecting... x/5"), None);
        assert_eq!(attempt("Reconnecting"), None);
        assert_eq!(attempt("see https://example.com/a"), None);
    }
}
