//! Owns the control API of a running afresh: HTTP/1.1 and JSON over a socket of this user alone, and, where it is
//! asked for, over a port of this machine, for clients that know a token. Nothing here holds state of a service, and
//! the loop waits for none of it.
//!
//! `socket_path.rs` has the sockets' paths and `port_and_token.rs` the port and its token; `connections.rs` takes connections, and
//! `request_handlers.rs`, `lifecycle_requests.rs` and `log_and_event_requests.rs` turn requests into ones for the loop
//! (`loop_requests.rs`, with its answers);
//! `event_streams.rs` streams to clients. `client.rs` and `stream_client.rs` are the other end, for the commands.

mod client;
mod connections;
mod event_streams;
mod lifecycle_requests;
mod log_and_event_requests;
mod loop_requests;
mod port_and_token;
mod request_handlers;
mod socket_path;
mod stream_client;

pub use self::client::{
    ControlError, Daemon, FoundServices, Reached, ServiceAddress, change, daemons, events, find,
    input, logs, metrics, reload, shutdown,
};
pub(crate) use self::connections::Control;
pub(crate) use self::loop_requests::{
    About, ChangeRefused, ChangeUnderWay, LoopRequest, Reloading, StateBefore, reloaded,
};
pub(crate) use self::port_and_token::{Bound, BoundPort, token};
pub use self::port_and_token::{ControlPort, ListenError};
pub use self::socket_path::RuntimeFolders;
pub use self::stream_client::{AtEnd, Followed, Follower, Parted, Watcher, Woken};

/// A value as JSON. Keys of the API are text, so it cannot fail.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
