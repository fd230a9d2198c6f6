//! Writes the messages of afresh itself, in words that a model can act on.

use serde_json::{Value, json};

use super::envelope::Id;
use super::inflight::{Class, Flight};
use super::replay::Era;
use super::tools::AdminResult;

/// Why we answer in the server's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The instance that had the request is gone: how, with its last words.
    Restarted(String),
    /// No instance came up in time, or none will: with what is known about it.
    Down(String),
    /// The queue is full.
    Full,
    /// Too many requests have no answer yet.
    TooMany,
    /// The message was longer than allowed.
    TooLong(usize),
    /// The request itself was.
    RequestTooLong(usize),
    /// A probe for the modern era killed a server that does not know it.
    NoSuchMethod,
}

impl Why {
    fn reason(&self) -> &'static str {
        match self {
            Self::Restarted(_) => "server_restarted",
            Self::Down(_) => "server_down",
            Self::Full => "queue_full",
            Self::TooMany => "too_many_requests",
            Self::TooLong(_) | Self::RequestTooLong(_) => "message_too_long",
            Self::NoSuchMethod => "method_not_found",
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Restarted(how) => {
                let how =
                    if how.is_empty() { String::new() } else { format!("\nThe server {how}") };
                format!(
                    "the server restarted while this ran; its outcome is unknown; call it again if \
                     that is safe{how}"
                )
            }
            Self::Down(why) => format!("nothing was done, the server is not running: {why}"),
            Self::Full => {
                "the server is not running and too many requests wait for it; nothing was done"
                    .to_owned()
            }
            Self::TooMany => {
                "too many requests have no answer yet; nothing was done; wait for some of them"
                    .to_owned()
            }
            Self::TooLong(limit) => {
                format!("the answer is longer than the limit of {limit} bytes; ask for less")
            }
            Self::RequestTooLong(limit) => format!(
                "the request is longer than the limit of {limit} bytes; nothing was done; send less"
            ),
            Self::NoSuchMethod => "method not found".to_owned(),
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
    let body = if flight.class == Class::Tool && *why != Why::NoSuchMethod {
        let mut result = json!({
            "content": [{"type": "text", "text": why.text()}],
            "isError": true,
        });
        if era == Era::Modern {
            result["resultType"] = Value::from("complete");
        }
        ("result", result)
    } else {
        // The codes from -32099 to -32000 are the SDKs' own or reserved.
        let code = match why {
            Why::NoSuchMethod => -32601,
            Why::RequestTooLong(_) => -32600,
            Why::Restarted(_) | Why::Down(_) | Why::Full | Why::TooMany | Why::TooLong(_) => -32603,
        };
        let retryable = matches!(why, Why::Restarted(_) | Why::Down(_) | Why::Full | Why::TooMany);
        let data = json!({"reason": why.reason(), "retryable": retryable});
        ("error", json!({"code": code, "message": why.text(), "data": data}))
    };
    line(id, body.0, &body.1)
}

/// What one of our tools has to say, as the answer to its call.
pub(super) fn said(id: &Id, era: Era, said: &AdminResult) -> Vec<u8> {
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

/// A `tools/list` with nothing but these.
pub(super) fn only_tools(id: &Id, era: Era, definitions: &str) -> Vec<u8> {
    let more = match era {
        Era::Modern => r#","resultType":"complete","ttlMs":0,"cacheScope":"private""#,
        Era::Legacy | Era::Unknown => "",
    };
    let mut line = br#"{"jsonrpc":"2.0","id":"#.to_vec();
    line.extend_from_slice(id.raw());
    line.extend_from_slice(format!(r#","result":{{"tools":[{definitions}]{more}}}}}"#).as_bytes());
    line
}

/// The answer to something that wants one and is no request, or none that can be passed on.
pub(crate) fn invalid(id: &Id, why: &str) -> Vec<u8> {
    line(id, "error", &json!({"code": -32600, "message": why}))
}

/// `{}` for a ping that no server can answer now.
pub(crate) fn pong(id: &Id) -> Vec<u8> {
    line(id, "result", &json!({}))
}

/// Tells the client that a request of a server that is gone needs no answer any more.
pub(crate) fn cancelled(request: &str) -> Vec<u8> {
    let params = json!({"requestId": request, "reason": "the server restarted"});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        .to_string()
        .into_bytes()
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
    let mut line = head.into_bytes();
    if let Some(params) = params {
        line.extend_from_slice(br#","params":"#);
        line.extend_from_slice(params);
    }
    line.push(b'}');
    line
}

/// An answer, as a line.
pub(crate) fn line(id: &Id, member: &str, value: &Value) -> Vec<u8> {
    let mut line = br#"{"jsonrpc":"2.0","id":"#.to_vec();
    line.extend_from_slice(id.raw());
    line.extend_from_slice(format!(r#","{member}":{value}}}"#).as_bytes());
    line
}
