//! One conversation of a client with a server, across the server's instances.
//!
//! Messages are forwarded as the bytes that came: `json.rs` finds the few members that matter,
//! `envelope.rs` says what a message is, `frame.rs` makes lines of bytes. `memory.rs` keeps what a
//! new instance must be told, `inflight.rs` what is owed to the client, `answer.rs` writes answers
//! of our own, `lists.rs` compares what two instances offer, `tools.rs` has the tools that we add,
//! `hint.rs` says what to do about a server that does not start,
//! and `conversation.rs` is the machine that uses them all. `wedge.rs` decides whether a server that
//! owes an answer is still alive.

mod conversation;
pub mod envelope;
pub mod frame;
mod hint;
pub(crate) mod inflight;
pub mod json;
mod lists;
pub(crate) mod replay;
pub(crate) mod responses;
mod tools;
pub mod wedge;

pub use self::conversation::{Conversation, ConversationReport, Effect, Input, Settings};
pub use self::hint::hint_of;
pub(crate) use self::lists::next_cursor;
pub use self::lists::{Changes, Kind};
pub use self::replay::Era;
pub(crate) use self::tools::AdminTool;
pub use self::tools::{Asked, Said};
