//! Many MCP servers behind one connection.
//!
//! `backend.rs` says what a server is to the gateway, `access.rs` who may use which, `catalog.rs` what things
//! are called, `http/` how clients
//! come over HTTP,
//! `remote/` how servers are reached over HTTP, `span.rs` what is said of each call where calls are traced. The hub stands between the clients and the servers: it knows every client's session, and over
//! which link each message goes.

pub mod access;
pub mod backend;
pub mod catalog;
pub mod http;
mod hub;
pub mod import;
pub mod remote;
pub mod settings;
pub mod span;
pub(crate) mod variables;

pub use self::hub::{Hub, Settings};

use crate::mcp::envelope::Id;
use crate::service::State;

/// The name of the server that afresh itself would be: its tools have it as their prefix.
pub const OWN_NAME: &str = "afresh";

/// One client among those that are connected: 1, 2, 3…
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// One conversation of the gateway's with a server: 1, 2, 3… A server has one for all clients, or one for
/// each, and one for each era that clients speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// Something that happened outside of the hub.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The servers are these now, at the beginning and after each change of the configuration.
    Configured(Vec<backend::Backend>),
    /// A client is there.
    Joined {
        /// Which.
        client: ClientId,
        /// What it may see and use.
        access: access::Access,
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
    /// A client is gone: nobody waits for its answers.
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
        /// The request of ours that it belongs to, where the way that it came says so: over HTTP, what a
        /// server says while it answers comes beside that answer.
        about: Option<Id>,
    },
    /// A request that was to go over a link did not.
    NotTaken {
        /// Over which link.
        link: LinkId,
        /// The request.
        line: Vec<u8>,
        /// Why not.
        why: NotTaken,
    },
    /// How the server behind a link does now, by those who keep it or speak to it; it is on its way where
    /// nothing was said yet.
    Serves {
        /// Over which link.
        link: LinkId,
        /// How.
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

/// Why a request does not get to its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The server does not read what it is sent, and too much waits for it.
    Full,
    /// It cannot be started, in words.
    Blocked(String),
}

/// Something that must be done, in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Write a line to a client.
    ToClient {
        /// Which.
        client: ClientId,
        /// Without its end.
        line: Vec<u8>,
        /// The client's request that it belongs to, itself included where it is the answer. Over HTTP it
        /// goes beside that answer, and everything else over the client's own stream.
        about: Option<Id>,
    },
    /// Write a line to a server.
    ToLink {
        /// Over which link.
        link: LinkId,
        /// Without its end.
        line: Vec<u8>,
    },
    /// Start a conversation with a server.
    Open {
        /// Its number from now on.
        link: LinkId,
        /// Which server.
        backend: String,
        /// What stands behind the server's name in the names of its processes: empty for the first link.
        suffix: String,
    },
    /// The server has not taken the session: its instance must go, and counts as crashed.
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
    /// Something a person should know.
    Log(String),
    /// A call is over; only where calls are traced.
    Span(Box<span::Span>),
}
