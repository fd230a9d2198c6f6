//! Owns the inputs and effects of the HTTP front. Driven by `front.rs`. Keeps no state.

use core::net::IpAddr;
use std::sync::Arc;

use super::Settings;
use super::client::SessionId;
use super::post_body::PostBody;
use super::refusal::HttpRefusal;
use crate::gateway::ClientId;
use crate::gateway::access::Access;
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
    /// The settings are these now, all but the address.
    Configured(Box<Settings>),
    /// The moment that `next_wakeup` gave has come.
    Wakeup,
    /// We end.
    Close,
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
    /// Whether the client knows events without a message, as those of 2025-11-25 do.
    pub primes: bool,
    /// What it wants.
    pub ask: RequestKind,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrontEffect {
    /// Tell the hub that a client is there.
    Joined {
        /// Which.
        client: ClientId,
        /// What it may see and use.
        access: Access,
    },
    /// Tell the hub what it says.
    Said {
        /// Which.
        client: ClientId,
        /// In one line.
        line: Vec<u8>,
    },
    /// Tell the hub that it is gone.
    Left {
        /// Which.
        client: ClientId,
    },
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
    /// Something a person should know.
    Log(String),
}
