//! The one way to start a process and the one way to end it, for everything that afresh runs.
//!
//! # Theory of operation
//!
//! ```text
//!   supervisor ── subreaper ───────────────┐  sweeps when even the warden was killed
//!      │  socket          sockets          │
//!   warden ─── subreaper ──────────┐       │  sweeps when a guardian was killed
//!      │ fork                      │       │
//!   guardian (one an instance) ─ subreaper │  reports the end when the whole tree is gone
//!      │ fork, exec, parent-death signal
//!   the service's process, its children, and whatever they start, setsid or not
//! ```
//!
//! Whoever of the three is killed, those above see it at once (a socket closes, a child ends),
//! and those below end what they guard. Only when all three are killed in the same instant can a
//! grandchild stay behind.
//!
//! All of that is for Linux and, as far as it goes, macOS. `windows.rs` needs none of it.

mod explain;
mod usage;

#[cfg(target_os = "linux")]
mod birth;
#[cfg(unix)]
mod burial;
#[cfg(target_os = "linux")]
mod cgroup;
#[cfg(unix)]
mod dispositions;
#[cfg(unix)]
mod frames;
#[cfg(unix)]
mod guardian;
#[cfg(unix)]
mod guardians;
#[cfg(unix)]
mod host;
#[cfg(unix)]
mod post;
#[cfg(unix)]
mod tree;
#[cfg(unix)]
mod warden;
#[cfg(unix)]
mod wire;

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod os;
#[cfg(all(unix, not(target_os = "linux")))]
#[path = "macos.rs"]
mod os;
#[cfg(windows)]
mod windows;

use std::ffi::OsString;
use std::path::PathBuf;

use afresh_core::audit::redact::redact_args;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::service::{Exit, SpawnFailure};

use crate::os::is_variable;

#[cfg(unix)]
pub(crate) use self::dispositions::{ignore_in_supervisor, ignores_hangup};
#[cfg(unix)]
pub(crate) use self::host::{Processes, StartError, Stdio};
#[cfg(unix)]
pub(crate) use self::os::{MECHANISM, own_cgroup, own_executable};
#[cfg(unix)]
pub(crate) use self::tree::{is_alive, kill_one};
pub(crate) use self::usage::{cpu_time_of_tree, memory_of_tree, own_usage};
#[cfg(unix)]
pub(crate) use self::warden::run as run_warden;
#[cfg(windows)]
pub(crate) use self::windows::{
    MECHANISM, Processes, StartError, Stdio, ignore_in_supervisor, is_alive, kill_one, own_cgroup,
    own_executable, run_warden,
};

/// The hidden subcommand that runs the warden.
pub(crate) const WARDEN_COMMAND: &str = "__warden";

/// What a service runs.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program and its arguments; no shell is involved.
    pub argv: Vec<OsString>,
    /// The folder it starts in; ours where none is given.
    pub cwd: Option<PathBuf>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
}

impl Command {
    /// A variable of its environment.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let mut named = self.env.iter().filter(|(other, _)| is_variable(other, name));
        named.next_back().map(|(_, value)| value.to_string_lossy().into_owned())
    }

    /// The command as people may see it: without what looks like a secret.
    pub(crate) fn shown(&self) -> String {
        let argv: Vec<String> =
            self.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        redact_args(&argv).join(" ")
    }
}

/// What the process layer tells.
#[derive(Debug)]
pub(crate) enum Report {
    /// The instance runs.
    Spawned { service: ServiceId, generation: Generation, pid: u32 },
    /// It could not be started.
    #[cfg_attr(windows, expect(dead_code, reason = "a start fails at once there"))]
    SpawnFailed { service: ServiceId, generation: Generation, failure: SpawnFailure },
    /// It is gone, with its whole tree.
    Exited { service: ServiceId, generation: Generation, exit: Exit, remains: Remains },
    /// Something that people should know.
    #[cfg_attr(windows, expect(dead_code, reason = "there is no warden to tell of"))]
    Notice(String),
}

/// What an instance left behind.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    /// Processes that outlived it and were killed.
    pub(crate) leftovers: u32,
    /// Processes that could not be killed: pid and name.
    pub(crate) survivors: Vec<(u32, String)>,
}
