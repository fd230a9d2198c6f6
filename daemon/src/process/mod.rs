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
//!   the service's process, its children, and all that they start, setsid or not
//! ```
//!
//! If one of the three is killed, those above see it at once (a socket closes, a child ends),
//! and those below end what they guard. Only when all three are killed in the same instant can a
//! grandchild stay behind.
//!
//! Where services are to outlive their supervisor (`on_supervisor_death = "keep"`), its death alone ends
//! nothing:
//!
//! ```text
//!   supervisor, killed     the next supervisor ── connects ──▶ warden, which listens in the workspace
//!                              │                               │ a line to each guardian
//!                              └── a new socket, the pipes, ◀── guardian, which spools the output
//!                                  the output, the end          and remembers the end meanwhile
//! ```
//!
//! There the guardians wait for the loss of the warden, too, before they end what they guard. In both
//! cases the warden and the guardians hold a lock; [`Processes::enter`] waits for it.
//!
//! All of that is for Linux and, as far as it goes, macOS. `windows.rs` needs none of it.

mod spawn_error;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use afresh_core::audit::redact::redact_args;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::service::{Exit, SpawnFailure};

#[cfg(unix)]
use self::unix as system;
#[cfg(windows)]
use self::windows as system;
use crate::os::is_variable;

pub(crate) use self::system::{
    AdoptedInstance, InstanceStdio, MECHANISM, Processes, SpoolReader, StartError,
    abandoned_warden, end_lost, ignore_in_supervisor, is_alive, kill_one, own_cgroup,
    own_executable, own_usage, run_warden, terminate_one, usage_of_tree, usage_of_trees,
};

#[cfg(feature = "fuzzing")]
pub use self::system::{FRAME_KINDS, FramesRead, read_frames};

/// The end of the output of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputEnd {
    /// When no process has it open any more.
    WhenClosed,
    /// Not before the end of the instance was told, though it may close it itself.
    WithTheInstance,
}

/// The hidden subcommand that runs the warden.
pub(crate) const WARDEN_COMMAND: &str = "__warden";

/// The command of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

    /// The command as users may see it: without what looks like a secret.
    pub(crate) fn shown(&self) -> String {
        let argv: Vec<String> =
            self.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        redact_args(&argv).join(" ")
    }
}

/// The reports of the process layer.
#[derive(Debug)]
pub(crate) enum Report {
    /// The instance runs.
    Spawned { service: ServiceId, generation: Generation, pid: u32 },
    /// It could not be started.
    #[cfg_attr(windows, expect(dead_code, reason = "a start fails at once there"))]
    SpawnFailed { service: ServiceId, generation: Generation, failure: SpawnFailure },
    /// It is gone, with its whole tree.
    Exited { service: ServiceId, generation: Generation, exit: Exit, remains: Remains },
    /// A notice for the user.
    #[cfg_attr(windows, expect(dead_code, reason = "there is no warden to tell of"))]
    Notice(String),
}

/// Processes that an instance left behind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Remains {
    /// Processes that outlived it and were killed.
    pub(crate) leftovers: u32,
    /// Processes that could not be killed: pid and name.
    pub(crate) survivors: Vec<(u32, String)>,
}

/// The identity of an instance that outlives its supervisor, for the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InstanceIdentity {
    /// The name of its service.
    pub(crate) service: String,
    /// It is the current one of its service.
    pub(crate) current: bool,
    /// Its stdin is held open, too.
    pub(crate) stdin: bool,
}

/// An instance that has outlived its supervisor, or whose end no supervisor has been told.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RetainedInstance {
    /// The guardian's own process.
    pub(crate) guardian: u32,
    pub(crate) identity: InstanceIdentity,
    pub(crate) generation: Generation,
    pub(crate) pid: u32,
    /// How long it has run, or ran.
    pub(crate) uptime: Duration,
    /// Its stop had begun.
    pub(crate) stopping: bool,
    /// Its end and that of its whole tree.
    pub(crate) end: Option<(Exit, Remains)>,
    /// Which descriptors there are: stdin, stdout, stderr, the older and the newer file of output.
    pub(crate) descriptors: [bool; 5],
    /// Bytes of output that had no room.
    pub(crate) lost: u64,
}

/// The process layer of a supervisor that begins.
pub(crate) struct Entered {
    pub(crate) processes: Processes,
    /// The instances that run already: for the loop to adopt, each with [`Processes::take`].
    pub(crate) instances: Vec<AdoptedInstance>,
    /// Notices for the user.
    pub(crate) notices: Vec<String>,
}

/// A warden that keeps services, and has no supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbandonedWarden {
    /// Its process.
    pub pid: u32,
    /// The version of afresh that it is of.
    pub version: String,
    /// How many instances it keeps.
    pub instances: u64,
    /// For how long it has had no supervisor.
    pub alone: Duration,
}

/// Memory and processor time of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeUsage {
    /// Memory that is resident. What several processes share is counted for each of them, so
    /// this can be more than they hold together.
    pub(crate) memory_bytes: u64,
    /// Processor time since their start, with that of their children that have ended.
    pub(crate) cpu_time: Duration,
}
