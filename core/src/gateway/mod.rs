//! Owns the decisions of the gateway: many MCP servers behind one connection.
//!
//! `hub.rs` is the machine between the clients and the servers. It is made from `backend.rs` (a server),
//! `access_patterns.rs` (the rights of a client), `catalog.rs` (the names of tools, prompts and resources) and `pins.rs`
//! (what servers said about them at first), with `stored_catalogs.rs` (their lists of the last run); `tool_ranking.rs` says how well tools fit a query. `http/` is the server side of streamable HTTP, `remote/` its client side, `spans.rs` and `otlp_export.rs` the tracing of
//! calls, `variables.rs` expands variables in values. Driven by the daemon's loop. Never does IO.

pub mod access_patterns;
pub mod backend;
pub mod catalog;
mod exposed_names;
pub mod http;
mod hub;
pub mod inherited_env;
pub mod otlp_export;
pub mod pins;
pub mod remote;
pub mod settings;
pub mod spans;
pub mod stored_catalogs;
mod tool_ranking;

pub(crate) mod variables;

pub use self::hub::{Hub, Settings, StateKey};

use std::collections::BTreeMap;

use crate::audit::Actor;
use crate::mcp::envelope::Id;
use crate::service::State;

/// The name of the server that afresh itself would be: its tools have it as their prefix.
pub const OWN_NAME: &str = "afresh";

/// A connected client: 1, 2, 3…
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// A conversation of the gateway with a server: 1, 2, 3… A server has one for all clients or one for each client,
/// and one for each era that clients speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// An event outside of the hub.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The servers are these now, at the beginning and after each change of the configuration.
    Configured(Vec<backend::Backend>),
    /// These requests of the project's files are not trusted now, by name. It comes before each `Configured`.
    Untrusted(Vec<String>),
    /// Servers that cannot be used, each with why.
    LeftOut(Vec<(String, String)>),
    /// What is pinned of the servers, as it is stored: before they are configured, and after the user has accepted changes.
    Pinned(BTreeMap<pins::PinKey, pins::Sections>),
    /// The lists of the last run, by the names of servers that are started as they were then: once, before they are
    /// configured.
    LastLists(BTreeMap<String, stored_catalogs::StoredLists>),
    /// A client has connected.
    Joined {
        /// Which.
        client: ClientId,
        /// What it may see and use.
        access: access_patterns::Access,
    },
    /// A client's session goes on that began in a gateway before this one: its `initialize` was answered there. It comes
    /// right after `Joined`.
    Resumed {
        /// Whose.
        client: ClientId,
        /// The parameters of that `initialize`, raw.
        params: Vec<u8>,
    },
    /// A line of a client's.
    Client {
        /// Whose.
        client: ClientId,
        /// Without its end.
        line: Vec<u8>,
    },
    /// A client sent a line that is too long; these are its two ends.
    ClientTooLong {
        /// Whose.
        client: ClientId,
        /// How it began.
        beginning: Vec<u8>,
        /// How it ended.
        ending: Vec<u8>,
    },
    /// A client has disconnected: its responses are not needed any more.
    Left {
        /// Which.
        client: ClientId,
    },
    /// A line of a server's.
    Link {
        /// Over which link.
        link: LinkId,
        /// Without its end.
        line: Vec<u8>,
        /// The request of ours that it belongs to, where the transport names it: over HTTP, messages of a server
        /// during a call come on the stream of its response.
        about: Option<Id>,
    },
    /// A request could not be sent over a link.
    NotTaken {
        /// Over which link.
        link: LinkId,
        /// The request.
        line: Vec<u8>,
        /// Why not.
        why: NotTaken,
    },
    /// The state of the server behind a link, by its supervisor or its transport; before the first one it counts as
    /// starting.
    Serves {
        /// Over which link.
        link: LinkId,
        /// The new state.
        state: State,
    },
    /// Nothing comes over a link any more until it is opened anew: the hub's requests on it are not
    /// answered. Over pipes this never happens, the conversation answers for its server.
    LinkLost {
        /// Which.
        link: LinkId,
        /// In words.
        why: String,
    },
    /// The moment that `next_wakeup` gave has come.
    Wakeup,
}

/// The reason that a request does not get to its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The server does not read what it is sent, and too much waits for it.
    Full,
    /// It cannot be started, in words.
    Blocked(String),
}

/// A command to the daemon, to be performed in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Write a line to a client.
    ToClient {
        /// Which.
        client: ClientId,
        /// Without its end.
        line: Vec<u8>,
        /// The client's request that it belongs to or answers. Over HTTP it goes on the stream of that response,
        /// and all else on the client's own stream.
        about: Option<Id>,
    },
    /// Write a line to a server.
    ToLink {
        /// Over which link.
        link: LinkId,
        /// Without its end.
        line: Vec<u8>,
    },
    /// The request of this id, sent over a link just now, is a client's call of a restart.
    RestartCalled {
        /// Over which link.
        link: LinkId,
        /// Which request.
        id: Id,
        /// The client.
        by: Actor,
    },
    /// Start a conversation with a server.
    Open {
        /// Its number from now on.
        link: LinkId,
        /// Which server.
        backend: String,
        /// The suffix of the server's name in the names of its processes: empty for the first link.
        suffix: String,
    },
    /// The server has refused the session: its instance must be ended, and counts as crashed.
    Refused {
        /// Over which link.
        link: LinkId,
        /// What it said.
        why: String,
    },
    /// End it; nothing that still comes over it matters.
    Close {
        /// Which.
        link: LinkId,
    },
    /// A line for the log.
    Log(String),
    /// Note what was seen of a server whose tools are pinned.
    Pin(PinReport),
    /// Store a list for the next run.
    StoreList(stored_catalogs::CatalogReport),
    /// A call is over; only where calls are traced.
    Span(Box<spans::Span>),
}

/// What was seen of a server whose tools are pinned.
#[derive(Clone, Debug, PartialEq)]
pub struct PinReport {
    /// The note.
    pub update: pins::PinUpdate,
    /// What a change leads to.
    pub pin: backend::Pin,
    /// The items that have changed or are new, in words; the user is told where there are some.
    pub changed: Vec<String>,
}
