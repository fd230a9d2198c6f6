//! Does what core decides: processes, pipes, files, sockets. One function for each face of the program.
//!
//! # Theory of operation
//! A face (`keep`, `up`, `mcp`, `gateway`, `run`) sets up its streams and the process layer (`startup.rs`) and runs one
//! loop on one thread. The loop owns all state: it waits on a `Runtime` (supervisor, control API, signals) and on its
//! own pipes, hands each input to a machine of `afresh-core`, and performs the effects in order (`driver.rs`,
//! `supervise.rs`). Effects that take time run in tasks or threads and come back as inputs; nothing else changes state.
//! The supervisor starts processes through guardians, so that no process outlives its instance (`process`). What
//! happens is in the trail before it is told (`supervise/recorder.rs`, `store`).
//!
//! # Reading order
//! `supervise.rs` and its parts · `up.rs`, `up/service_loop.rs`, `keep.rs` · `mcp.rs`, `mcp/server.rs`,
//! `mcp/fast_path.rs`, `wires.rs` · `gateway.rs` · `share` · `run` · `control` · `process` and `os`, which alone know the system.

mod clock;
pub mod control;
mod definition;
mod doctor;
mod driver;
pub mod error_chain;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gateway;
mod git_index;
mod health;
mod hooks;
mod http;
mod install_files;
mod keep;
mod mcp;
mod os;
mod output;
mod pipe;
mod process;
mod recent_events;
mod recent_lines;
mod refusals;
mod run;
mod run_briefly;
mod runtime;
mod self_test;
mod share;
mod startup;
pub mod store;
mod stream;
mod supervise;
mod systemd_notify;
mod up;
mod watch;
mod wires;
mod write_path;

pub use self::clock::monotonic;
pub use self::doctor::{Check, CheckVerdict, Examined, examine};
pub use self::gateway::{Gateway, OwnTokenError, ReloadGateway, gateway, guard_front};
pub use self::git_index::git_tracks;
pub use self::hooks::{HookSetup, TryHookError, try_hook};
pub use self::install_files::{
    Home, InstallFileError, read_installed, remove_installed, run_steps, write_installed,
};
pub use self::keep::{Keep, keep};
pub use self::mcp::{Mcp, mcp};
pub use self::os::{
    HAS_SCRIPT_RUNNERS, HOME_VARIABLE, Job, Keys, Stopped, detach, is_in_front,
    is_readable_by_others, is_variable, leave_session, next_keys, program_in, suspend,
};
pub use self::process::{AbandonedWarden, Command};
pub use self::run::{
    AgentSetup, ProcessMark, Run, RunError, RunUpdate, Servers, UserRequestSender, run, run_events,
    user_requests,
};
pub use self::self_test::{SELF_TEST_COMMAND, self_test_process};
pub use self::share::{
    HubPlace, ResolveServer, SHARE_HUB_COMMAND, ShareHub, SharedServer, ShimEnd, ShimSetup,
    run_shim, share_hub,
};
pub use self::startup::SetupError;
pub use self::systemd_notify::without_notify;
pub use self::up::{Lines, Reload, Reloaded, Up, UpError, up};
pub use self::write_path::{WritePath, leads_out};

/// This process and its user, as the actor of a decision.
pub fn own_actor() -> afresh_core::audit::Actor {
    use afresh_core::audit::Actor;
    match os::own_uid() {
        Some(uid) => Actor::Process { uid, pid: Some(std::process::id()) },
        None => Actor::Afresh("command"),
    }
}

/// The hidden subcommand that runs the warden; see [`warden`].
pub const WARDEN_COMMAND: &str = process::WARDEN_COMMAND;

/// Runs the warden on the socket that is our stdin, until the supervisor is gone.
pub fn warden() -> std::io::Result<()> {
    process::run_warden()
}

/// The warden that keeps services in this folder of a workspace although its supervisor is gone, if
/// there is one.
pub fn abandoned_warden(folder: &std::path::Path) -> Option<AbandonedWarden> {
    process::abandoned_warden(folder)
}

/// Ends the services of a workspace that have neither a supervisor nor a socket of their warden any more, and waits
/// until they are gone. Returns how many those were, or the processes that are left.
pub fn end_lost_services(folder: &std::path::Path) -> Result<usize, Vec<u32>> {
    process::end_lost(folder)
}

/// Kills one process, for the demo.
pub fn kill_process(pid: u32) -> std::io::Result<()> {
    process::kill_one(pid)
}

/// Whether a process is there, for the demo.
pub fn process_is_alive(pid: u32) -> bool {
    process::is_alive(pid)
}
