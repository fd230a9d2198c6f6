//! Owns the clients that come over Streamable HTTP, of both eras: admission, sessions, and the stream of each message.
//! Driven by the daemon's HTTP server. Never listens or writes: connections are numbers, and bytes are handed over.
//!
//! `admission.rs` checks the head and the body of a request, and knows no other. `sessions_and_streams.rs` is the machine that
//! knows all clients, with `client_state.rs` (one client and its streams) and `rate_limit.rs`.
//! `body_budget.rs` bounds the bodies that are received at once, `unread_budget.rs` the messages that clients have not
//! read. Inputs, effects and rejections are here.

mod admission;
mod body_budget;
mod client_state;
mod rate_limit;
mod resumption;
mod sessions_and_streams;
#[cfg(test)]
mod tests;
mod unread_budget;

use core::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};

pub use self::admission::{Admitted, Gate, Head, ORIGIN_HEADERS, PostBody};
pub use self::body_budget::{Bodies, BodyId, Room};
pub use self::client_state::SessionId;
pub use self::resumption::{SessionClaim, SessionText};
pub use self::sessions_and_streams::Front;
use super::settings::FrontSettings;
use super::{ClientId, Input};
use crate::mcp::envelope::Id;

/// A request over HTTP that has no answer yet, or whose answer is a stream: 1, 2, 3…
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HttpExchange(pub u64);

/// Something that happened outside.
#[derive(Clone, Debug)]
pub enum FrontInput {
    /// A request that was let in.
    Request(FrontRequest),
    /// The connection of an exchange is gone.
    Gone(HttpExchange),
    /// The same, because the client did not read.
    Slow(HttpExchange),
    /// The hub has a message for a client, about one of its requests.
    Told {
        /// Whom.
        client: ClientId,
        /// Without its end.
        line: Vec<u8>,
        /// Which request it belongs to.
        about: Option<Id>,
    },
    /// A message was handed to a connection, which keeps it in memory…
    Sent(SentMessage),
    /// …until it is written, or the connection is closed.
    Written(SentMessage),
    /// The settings are these now, all but the address.
    Configured(Box<FrontSettings>),
    /// The moment that `next_wakeup` gave has come.
    Wakeup,
    /// We end.
    Close,
}

/// A message that a connection has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentMessage {
    /// Of whose request it is.
    pub token: Option<usize>,
    /// Where it is written to.
    pub exchange: HttpExchange,
    /// Its length.
    pub bytes: usize,
}

/// A request that was let in.
#[derive(Clone, Debug)]
pub struct FrontRequest {
    /// Its number, higher than all before.
    pub exchange: HttpExchange,
    /// The number of its token.
    pub token: Option<usize>,
    /// Where it comes from.
    pub peer: IpAddr,
    /// `Mcp-Session-Id`.
    pub session: Option<String>,
    /// The id of the session that it may begin, as its client gets it: its name, and what is signed. None where that is the
    /// name alone.
    pub issued: Option<String>,
    /// What that session goes on with where it is not known: it began in a gateway before this one, and has not ended.
    pub resumes: Option<ResumedSession>,
    /// Whether the client knows events without a message, as those of 2025-11-25 do.
    pub primes: bool,
    /// What it wants.
    pub ask: RequestKind,
}

/// What a session goes on with that began in a gateway before this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumedSession {
    /// The parameters of its `initialize`.
    pub params: Vec<u8>,
    /// Its streams and events are numbered from here on: higher than any number that it had before.
    pub numbers_from: u64,
}

/// What a request wants.
#[derive(Clone, Debug)]
pub enum RequestKind {
    /// To bring a message.
    Post {
        /// The message, in one line.
        line: Vec<u8>,
        /// What it is.
        post: PostBody,
        /// The name of the session that it may begin, from random bytes.
        new: SessionId,
    },
    /// To listen.
    Get {
        /// `Last-Event-ID`.
        last_event: Option<String>,
    },
    /// To end its session.
    Delete,
}

/// Something that must be done, in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum FrontEffect {
    /// Tell the hub what a client does.
    Hub(Input),
    /// Answer an exchange, which ends it.
    Answer {
        /// Which.
        exchange: HttpExchange,
        /// The status of HTTP.
        status: u16,
        /// The session that has begun with it.
        session: Option<SessionId>,
        /// JSON, if anything.
        body: Option<Vec<u8>>,
    },
    /// Refuse it, which ends it.
    Refuse {
        /// Which.
        exchange: HttpExchange,
        /// Why.
        refusal: HttpRefusal,
    },
    /// Answer an exchange with a stream of events.
    Begin {
        /// Which.
        exchange: HttpExchange,
        /// The session that has begun with it.
        session: Option<SessionId>,
    },
    /// Write an event to its stream.
    Write {
        /// Which.
        exchange: HttpExchange,
        /// All of it.
        event: Arc<[u8]>,
    },
    /// End the stream.
    End {
        /// Which.
        exchange: HttpExchange,
    },
    /// A session has ended for good: its id opens none any more. The answers after it in the same list say so to clients,
    /// and are given when it is stored.
    SessionEnded(SessionId),
    /// Something a person should know.
    Log(String),
}

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
const INVALID_REQUEST: i64 = -32600;
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

    /// The modern era: a header says something else than the body.
    fn mismatch(id: &Id, message: String) -> Self {
        Self { code: HEADER_MISMATCH, ..Self::new(400, message) }.of(id)
    }

    /// The modern era: the request lacks what every request has.
    fn params(id: &Id, message: &str) -> Self {
        Self { code: INVALID_PARAMS, ..Self::new(400, message) }.of(id)
    }

    /// The method of HTTP is not known here.
    fn method(allow: &'static str) -> Self {
        Self { allow: Some(allow), ..Self::new(405, format!("there is only {allow} here")) }
    }

    /// The token is none of ours, or not any more.
    fn unknown_token() -> Self {
        Self::new(401, "this token is not known here")
    }

    /// There is no such session, for this client.
    fn no_session() -> Self {
        Self::new(404, "there is no such session; begin one with `initialize`")
    }

    /// The answer to a request.
    fn of(self, id: &Id) -> Self {
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
