//! Owns `afresh mcp --share`: the shim, which a client starts, and the hub, which has the servers. Called by the commands.
//!
//! `shim.rs` drives the shim's machine with one thread and no runtime: there is one for each client. `hub.rs` is the loop of
//! the hub, with `traffic.rs` for what is on its way and `shim_connections.rs` for its shims; `hub_place.rs` is where both find each other. Decides nothing.

mod hub;
mod hub_place;
mod shim;
mod shim_connections;
mod traffic;

pub use self::hub::{ResolveServer, ShareHub, SharedServer, share_hub};
pub use self::hub_place::HubPlace;
pub use self::shim::{ShimEnd, ShimSetup, run_shim};

/// The hidden subcommand that runs a hub.
pub const SHARE_HUB_COMMAND: &str = "__share-hub";
