//! Owns the decisions of `afresh mcp --share`: one server for the sessions of several clients. Driven by the daemon's shim
//! and hub. Never does IO.
//!
//! A client starts a shim, which keeps the connection. The shim attaches to the hub of its user and workspace, which has the
//! servers. `protocol.rs` is what both say to each other, `session.rs` what a session needs and what keeps two of them
//! apart, `session_variables.rs` the variables that do not; `instances.rs` decides in the hub which server a session gets,
//! `shim.rs` in the shim what its client is told while hubs come and go.

mod instances;
pub mod protocol;
mod session;
mod session_variables;
mod shim;

pub use self::instances::{Effect as InstanceEffect, InstanceId, Instances, SessionId};
pub use self::session::{Identity, Roots, SessionRequest};
pub use self::session_variables::is_of_session;
pub use self::shim::{Effect as ShimEffect, Input as ShimInput, Shim};
