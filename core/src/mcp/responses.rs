//! Writes the messages of afresh itself, in words that a model can act on, and the hint for a server that does not start.

use serde_json::{Value, json};

use super::admin_tools::ToolResult;
use super::envelope::Id;
use super::inflight::{Class, Flight};
use super::replay::Era;
use crate::limits::MESSAGE_BYTES_MAX;

/// Why we answer in the server's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The instance that had the request is gone: how, with its last words.
    Ended(String),
    /// No instance came up in time, or none will: with what is known about it.
    Down(String),
    /// The queue is full.
    Full,
    /// Too many requests have no answer yet.
    TooMany,
    /// The message was longer than allowed.
    TooLong,
    /// The request itself was.
    RequestTooLong,
    /// A probe for the modern era killed a server that does not know it.
    NoSuchMethod,
}

impl Why {
    /// The code and the reason of the error, whether the same request can succeed later, and the words.
    fn error(&self) -> (i32, &'static str, bool, String) {
        // The codes from -32099 to -32000 are the SDKs' own or reserved.
        match self {
            Self::Ended(how) => {
                let mut text = "the server ended while this ran; its outcome is unknown; call it again if that \
                                is safe"
                    .to_owned();
                if !how.is_empty() {
                    text.push_str(&format!("\nThe server {how}"));
                }
                (-32603, "server_ended", true, text)
            }
            Self::Down(why) => {
                let text = format!("nothing was done, the server is not running: {why}");
                (-32603, "server_down", true, text)
            }
            Self::Full => {
                let text =
                    "the server is not running and too many requests wait for it; nothing was done";
                (-32603, "queue_full", true, text.to_owned())
            }
            Self::TooMany => {
                let text =
                    "too many requests have no answer yet; nothing was done; wait for some of them";
                (-32603, "too_many_requests", true, text.to_owned())
            }
            Self::TooLong => {
                let text = format!(
                    "the answer is longer than the limit of {MESSAGE_BYTES_MAX} bytes; ask for less"
                );
                (-32603, "message_too_long", false, text)
            }
            Self::RequestTooLong => {
                let text = format!(
                    "the request is longer than the limit of {MESSAGE_BYTES_MAX} bytes; nothing was \
                     done; send less"
                );
                (-32600, "message_too_long", false, text)
            }
            Self::NoSuchMethod => {
                (-32601, "method_not_found", false, "method not found".to_owned())
            }
        }
    }
}

/// Why a server is not there, out of the words for a request that it did not get.
pub(crate) fn without_consequence(text: &str) -> &str {
    let why = text.strip_prefix("nothing was done, ").unwrap_or(text);
    why.strip_prefix("the server is not running: ").unwrap_or(why)
}

/// The answer to a request, as a line. A tool's failure is a result that the model gets to see;
/// anything else is a JSON-RPC error.
pub(super) fn answer(flight: &Flight, id: &Id, era: Era, why: &Why) -> Vec<u8> {
    let (code, reason, retryable, text) = why.error();
    match flight.class {
        Class::Tool if *why != Why::NoSuchMethod => said(id, era, &ToolResult::error(text)),
        _ => failure(id, code, reason, retryable, &text),
    }
}

/// An error with its reason as a word, and whether the same request can succeed later.
pub(crate) fn failure(id: &Id, code: i32, reason: &str, retryable: bool, why: &str) -> Vec<u8> {
    let data = json!({"reason": reason, "retryable": retryable});
    line(id, "error", &json!({"code": code, "message": why, "data": data}))
}

/// What a tool has to say, as the answer to its call.
pub(crate) fn said(id: &Id, era: Era, said: &ToolResult) -> Vec<u8> {
    let mut result = json!({"content": [{"type": "text", "text": said.text}]});
    if let Some(data) = &said.data {
        result["structuredContent"] = data.clone();
    }
    result["isError"] = Value::from(said.is_error);
    if era == Era::Modern {
        result["resultType"] = Value::from("complete");
    }
    line(id, "result", &result)
}

/// An answer with this raw result.
pub(crate) fn result(id: &Id, result: &[u8]) -> Vec<u8> {
    [br#"{"jsonrpc":"2.0","id":"#, id.raw(), br#","result":"#, result, b"}"].concat()
}

/// A page of a list: the raw entries with commas between them, and the last member of the result where there is one.
pub(crate) fn page(id: &Id, era: Era, member: &str, entries: &[u8], next: &str) -> Vec<u8> {
    let more = match era {
        Era::Modern => r#","resultType":"complete","ttlMs":0,"cacheScope":"private""#,
        Era::Legacy | Era::Unknown => "",
    };
    let head = format!(r#","result":{{"{member}":["#);
    let end = format!("]{next}{more}}}}}");
    [br#"{"jsonrpc":"2.0","id":"#, id.raw(), head.as_bytes(), entries, end.as_bytes()].concat()
}

/// The answer to something that wants one and is no request, or none that can be passed on.
pub(crate) fn invalid(id: &Id, why: &str) -> Vec<u8> {
    error(id, -32600, why)
}

/// An error without more than its words.
pub(crate) fn error(id: &Id, code: i32, why: &str) -> Vec<u8> {
    line(id, "error", &json!({"code": code, "message": why}))
}

/// `{}` for a ping that no server can answer now.
pub(crate) fn pong(id: &Id) -> Vec<u8> {
    line(id, "result", &json!({}))
}

/// Tells the client that a request of a server that is gone needs no answer any more.
pub(crate) fn cancelled(request: &str) -> Vec<u8> {
    cancelled_because(request, "the server ended")
}

/// Tells either side that a request needs no answer any more.
pub(crate) fn cancelled_because(request: &str, reason: &str) -> Vec<u8> {
    let params = json!({"requestId": request, "reason": reason}).to_string();
    notification("notifications/cancelled", Some(params.as_bytes()))
}

/// A request of our own to the server.
pub(crate) fn request(id: &str, method: &str, params: Option<&[u8]>) -> Vec<u8> {
    let head = format!(r#"{{"jsonrpc":"2.0","id":{},"method":{}"#, json!(id), json!(method));
    with_params(head, params)
}

/// A notification of our own to either side.
pub(crate) fn notification(method: &str, params: Option<&[u8]>) -> Vec<u8> {
    with_params(format!(r#"{{"jsonrpc":"2.0","method":{}"#, json!(method)), params)
}

fn with_params(head: String, params: Option<&[u8]>) -> Vec<u8> {
    let key: &[u8] = if params.is_some() { br#","params":"# } else { b"" };
    [head.as_bytes(), key, params.unwrap_or_default(), b"}"].concat()
}

/// An answer, as a line.
pub(crate) fn line(id: &Id, member: &str, value: &Value) -> Vec<u8> {
    let rest = format!(r#","{member}":{value}}}"#);
    [br#"{"jsonrpc":"2.0","id":"#, id.raw(), rest.as_bytes()].concat()
}

/// What to do about a server that cannot live beside its older self.
pub fn hint_of(words: &str) -> Option<&'static str> {
    let words = words.to_lowercase();
    let held = ["eaddrinuse", "address already in use", "address in use", "is locked", "lock file"];
    held.iter().any(|word| words.contains(word)).then_some(
        "It seems to need a port or a lock that the old instance holds: `--restart-mode replace` \
         stops the old one first.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_cannot_be_there_twice_is_told_apart() {
        assert!(hint_of("Error: listen EADDRINUSE: address already in use :::8080").is_some());
        assert!(hint_of("sqlite3.OperationalError: database is locked").is_some());
        assert!(hint_of("SyntaxError: invalid syntax").is_none());
    }
}
