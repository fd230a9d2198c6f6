//! Owns the errors of a link, and the responses in place of the server's, in words that a model can act on.
//! Driven by the other files of the link. Never keeps state.

use std::time::Duration;

use serde_json::{Value, json};

use super::HttpReply;
use super::http_request::origin as origin_of;
use crate::duration::show_duration;
use crate::limits::{MESSAGE_BYTES_MAX, REPLY_EXCERPT_CHARS_MAX};
use crate::mcp::Era;
use crate::mcp::envelope::Id;
use crate::mcp::inflight::Class;
use crate::mcp::json::{get, text};

/// Why a request is answered in place of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LinkError {
    /// No connection.
    Unreachable(String),
    /// The connection broke while the request was with the server.
    Broke(String),
    /// The session was lost while the request was with the server.
    Forgotten,
    /// Each new session is forgotten at once.
    ForgetsAlways,
    /// It denies access.
    Denied(u16),
    /// It asked for a wait.
    Busy(Duration),
    /// It redirects to this origin.
    Redirected(String),
    /// It responded with this status and text.
    Status(u16, String),
    /// Its response is not valid.
    Strange(String),
    /// It refused a session, with this text.
    NoSession(String),
    /// Its response was longer than allowed.
    TooLong,
    /// No response in time.
    Silent,
    /// Too many requests are pending.
    TooMany,
}

impl LinkError {
    /// The error of a response that is none to a request.
    pub(super) fn of_reply(reply: &HttpReply, origin: &str) -> Self {
        match reply.status {
            401 | 403 => Self::Denied(reply.status),
            429 => Self::Busy(reply.retry_after.unwrap_or_default()),
            503 => match reply.retry_after {
                Some(wait) => Self::Busy(wait),
                None => Self::Unreachable("it answers with status 503".to_owned()),
            },
            300..=399 if reply.location.is_some() => {
                let to = reply.location.as_deref().unwrap_or_default();
                let is_absolute = to.contains("://");
                let to = if is_absolute { origin_of(to) } else { origin };
                Self::Redirected(to.to_owned())
            }
            200..300 => Self::Strange("sent no stream of events".to_owned()),
            _ => Self::of_status(reply),
        }
    }

    /// The status and text of a response, as an error.
    pub(super) fn of_status(reply: &HttpReply) -> Self {
        let said = get(&reply.body, &["error", "message"]).and_then(text);
        Self::Status(reply.status, said.unwrap_or_else(|| excerpt(&reply.body)))
    }

    /// The reason for programs, and whether another try may end otherwise.
    fn reason(&self) -> (&'static str, bool) {
        match self {
            Self::Unreachable(_) => ("server_unreachable", true),
            Self::Broke(_) => ("connection_broken", true),
            Self::Forgotten | Self::ForgetsAlways => ("session_lost", true),
            Self::Denied(_) => ("access_denied", false),
            Self::Busy(_) => ("server_busy", true),
            Self::Redirected(_) => ("redirected", false),
            Self::Status(status, _) => ("bad_reply", *status >= 500),
            Self::Strange(_) => ("bad_reply", false),
            Self::NoSession(_) => ("session_refused", false),
            Self::TooLong => ("message_too_long", false),
            Self::Silent => ("server_silent", true),
            Self::TooMany => ("too_many_requests", true),
        }
    }

    /// Whether another try would not change it.
    pub(super) fn is_final(&self) -> bool {
        !self.reason().1 || *self == Self::TooMany
    }

    /// In words; `origin` is the server's.
    pub(super) fn text(&self, origin: &str) -> String {
        match self {
            Self::Unreachable(why) => {
                format!("nothing was done, the server at `{origin}` cannot be reached: {why}")
            }
            Self::Broke(why) => format!(
                "the connection to the server at `{origin}` broke while this ran ({why}); its \
                 outcome is unknown; call it again if that is safe"
            ),
            Self::Forgotten => format!(
                "the server at `{origin}` lost the session while this ran; its outcome is unknown; \
                 call it again if that is safe"
            ),
            Self::ForgetsAlways => format!(
                "nothing was done, the server at `{origin}` forgets each session as soon as it is \
                 opened; several instances behind one address do that when they do not share them"
            ),
            Self::Denied(status) => format!(
                "nothing was done, the server at `{origin}` denied access with status {status}; set \
                 a token in `headers` of this server, such as `authorization = \"Bearer …\"`"
            ),
            Self::Busy(wait) if wait.is_zero() => {
                format!("nothing was done, the server at `{origin}` takes no more requests now")
            }
            Self::Busy(wait) => format!(
                "nothing was done, the server at `{origin}` takes no more requests for {}; try \
                 again after that",
                show_duration(*wait)
            ),
            Self::Redirected(to) => format!(
                "nothing was done, the server at `{origin}` redirects to `{to}`, which is not \
                 followed; set `url` of this server to where it is"
            ),
            Self::Status(status, said) => {
                let said = if said.is_empty() { String::new() } else { format!(": {said}") };
                format!("the server at `{origin}` answered with status {status}{said}")
            }
            Self::Strange(what) => format!(
                "the server at `{origin}` {what}; check that `url` of this server leads to MCP"
            ),
            Self::NoSession(why) => {
                format!("nothing was done, the server at `{origin}` refused a session: {why}")
            }
            Self::TooLong => format!(
                "the answer of the server at `{origin}` is longer than the limit of \
                 {MESSAGE_BYTES_MAX} bytes; ask for less"
            ),
            Self::Silent => format!("the server at `{origin}` did not answer in time"),
            Self::TooMany => {
                "too many requests have no answer yet; nothing was done; wait for some of them"
                    .to_owned()
            }
        }
    }

    /// The response to a request, as a line: a failed tool call is a result, which the model gets to see;
    /// anything else is an error.
    pub(super) fn response(&self, id: &Id, class: Class, era: Era, origin: &str) -> Vec<u8> {
        let text = self.text(origin);
        if class == Class::Tool {
            let mut result = json!({"content": [{"type": "text", "text": text}], "isError": true});
            if era == Era::Modern {
                result["resultType"] = Value::from("complete");
            }
            return line(id, "result", result.to_string().as_bytes());
        }
        let (reason, is_retryable) = self.reason();
        let data = json!({"reason": reason, "retryable": is_retryable});
        let error = json!({"code": -32603, "message": text, "data": data});
        line(id, "error", error.to_string().as_bytes())
    }
}

/// A response with this member, raw.
pub(super) fn line(id: &Id, member: &str, value: &[u8]) -> Vec<u8> {
    let member = format!(r#","{member}":"#);
    [br#"{"jsonrpc":"2.0","id":"#, id.raw(), member.as_bytes(), value, b"}"].concat()
}

/// The beginning of a body, as text in one line.
pub(super) fn excerpt(body: &[u8]) -> String {
    let beginning = &body[..body.len().min(4 * REPLY_EXCERPT_CHARS_MAX)];
    let text = String::from_utf8_lossy(beginning);
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(REPLY_EXCERPT_CHARS_MAX).collect()
}
