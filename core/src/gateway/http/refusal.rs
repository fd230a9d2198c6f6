//! Owns the rejections of requests: a status and a JSON-RPC error. Driven by the other files of the front. Keeps no state.

use serde_json::{Value, json};

use crate::mcp::envelope::Id;

/// An answer that is a no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRefusal {
    /// The status of HTTP.
    pub status: u16,
    /// The code of JSON-RPC.
    pub code: i64,
    /// Why, and what to do.
    pub message: String,
    /// Of the request, where one was read.
    pub id: Option<Id>,
    /// Methods that there are instead.
    pub allow: Option<&'static str>,
}

/// The request is none, or not one that can be served.
pub(super) const INVALID_REQUEST: i64 = -32600;
const PARSE_ERROR: i64 = -32700;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;
const HEADER_MISMATCH: i64 = -32020;

impl HttpRefusal {
    /// A no with this status.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        // Below 500 it is the client who has to do something else.
        let code = if status < 500 { INVALID_REQUEST } else { INTERNAL_ERROR };
        Self { status, code, message: message.into(), id: None, allow: None }
    }

    /// The body is no JSON.
    pub(super) fn parse_error() -> Self {
        Self { code: PARSE_ERROR, ..Self::new(400, "the body is not JSON") }
    }

    /// The modern era: a header says something else than the body.
    pub(super) fn mismatch(id: &Id, message: String) -> Self {
        Self { code: HEADER_MISMATCH, ..Self::new(400, message) }.of(id)
    }

    /// The modern era: the request lacks what every request has.
    pub(super) fn params(id: &Id, message: &str) -> Self {
        Self { code: INVALID_PARAMS, ..Self::new(400, message) }.of(id)
    }

    /// The method of HTTP is not known here.
    pub(super) fn method(allow: &'static str) -> Self {
        Self { allow: Some(allow), ..Self::new(405, format!("there is only {allow} here")) }
    }

    /// Too often, or too much at once.
    pub(super) fn too_many(message: &str) -> Self {
        Self::new(429, message)
    }

    /// The token is none of ours, or not any more.
    pub(super) fn unknown_token() -> Self {
        Self::new(401, "this token is not known here")
    }

    /// There is no such session, for this client.
    pub(super) fn no_session() -> Self {
        Self::new(404, "there is no such session; begin one with `initialize`")
    }

    /// We end.
    pub(super) fn closing() -> Self {
        Self::new(503, "the gateway ends")
    }

    /// The answer to a request.
    pub(super) fn of(self, id: &Id) -> Self {
        Self { id: Some(id.clone()), ..self }
    }

    /// Whether it may be otherwise in a second.
    pub fn is_passing(&self) -> bool {
        [429, 503].contains(&self.status)
    }

    /// As the body of an answer.
    pub fn body(&self) -> Vec<u8> {
        let error = json!({"code": self.code, "message": self.message});
        let mut body = br#"{"jsonrpc":"2.0","#.to_vec();
        if let Some(id) = &self.id {
            body.extend_from_slice(br#""id":"#);
            body.extend_from_slice(id.raw());
            body.push(b',');
        }
        body.extend_from_slice(format!(r#""error":{}}}"#, Value::to_string(&error)).as_bytes());
        body
    }
}
