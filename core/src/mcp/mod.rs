//! Owns the conversation of a client with a server, across the server's instances.
//!
//! `conversation.rs` is the machine, and its folder has its parts. Messages are forwarded as the bytes that
//! came: `json.rs` finds the few members that matter, `envelope.rs` classifies a message, `frame.rs` splits
//! bytes into lines. `replay.rs` keeps the session for a new instance, `inflight.rs` the requests without an
//! answer, `responses.rs` writes afresh's own messages, `lists.rs` compares the lists of two instances,
//! `admin_tools.rs` has the tools that afresh adds, `restart_notice.rs` tells a model that its server was restarted,
//! `tasks.rs` knows the tasks of instances that are gone, and
//! `wedge.rs` decides whether a server that owes an answer hangs.

mod admin_tools;
mod conversation;
pub mod envelope;
pub mod frame;
pub(crate) mod inflight;
pub mod json;
mod lists;
pub(crate) mod replay;
pub(crate) mod responses;
mod restart_notice;
mod start_failures;
pub(crate) mod tasks;
mod wedge;

pub use self::admin_tools::{AddedTools, AdminRequest, ToolNames, ToolResult, WhichTools};
pub(crate) use self::admin_tools::{AdminTool, RESERVED_PREFIX, definition, since_schema};
pub use self::conversation::{
    Conversation, ConversationReport, Effect, EndCause, Input, Notice, Settings, TellRestarts,
};
pub(crate) use self::lists::next_cursor;
pub use self::lists::{Changes, Kind};
pub use self::replay::Era;
pub use self::responses::hint_of;
