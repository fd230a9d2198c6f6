//! The control socket of a running afresh: HTTP/1.1 and JSON over a socket of this user alone.
//!
//! `place.rs` knows where sockets are, `server.rs` takes connections and `route.rs` turns requests into
//! asks for the loop; `answer.rs` is the loop's side of them. `client.rs` is the other end, for the
//! commands. Nothing here holds state of a service, and the loop waits for none of it.

mod answer;
mod client;
mod follow;
mod place;
mod route;
mod server;
mod wire;

pub(crate) use self::answer::{About, Ask};
pub use self::client::{ControlError, Found, Reached, Target, find, follow, logs, restart};
pub use self::place::RuntimeFolders;
pub(crate) use self::server::Control;
