//! The control API of a running afresh: HTTP/1.1 and JSON over a socket of this user alone, and where it
//! is asked for over a port of this machine, for those who know a token.
//!
//! `place.rs` knows where sockets are and `listen.rs` has the port and its token; `server.rs` takes
//! connections, and `route.rs` and `change.rs` turn requests into asks for the loop; `answer.rs` is the
//! loop's side of them, and `measure.rs` looks up what services use. `client.rs`, `follower.rs` and `watcher.rs` are the other end, for the commands.
//! Nothing here holds state of a service, and the loop waits for none of it.

mod answer;
mod ask;
mod change;
mod client;
mod follow;
mod follower;
mod listen;
mod measure;
mod place;
mod route;
mod server;
mod watcher;
mod wire;

pub(crate) use self::answer::About;
pub(crate) use self::ask::{Ask, Before, Begun, NotBegun, Reloading, reloaded};
pub use self::client::{
    ControlError, Daemon, Found, Reached, Target, change, daemons, events, find, input, logs,
    metrics, reload, shutdown,
};
pub use self::follower::{AtEnd, Followed, Follower, Parted};
pub use self::listen::ListenError;
pub(crate) use self::listen::{Bound, Listen, listen_on};
pub use self::place::RuntimeFolders;
pub(crate) use self::server::Control;
pub use self::watcher::{Watcher, Woken};
pub(crate) use self::wire::{Wire, all_bytes, drain, next_bytes, one};
