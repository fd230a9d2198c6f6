//! Owns what `afresh run` hands to the loop of a run, and both ends of its channels: requests of users go in, events
//! come out. Read once by the loop. Never runs anything.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use afresh_core::agent::{AgentKind, AgentServer, Permission};
use afresh_core::limits::{RUN_ASKS_MAX, RUN_EVENTS_MAX};
use afresh_core::run::{Exclude, Machine, RunEvent, UserRequest, View};
use tokio::sync::mpsc;

use super::ProcessMark;
use crate::control::RuntimeFolders;
use crate::os::Job;
use crate::process::StartError;
use crate::startup::SetupError;
use crate::store::runs::Runs;
use crate::store::workspace::Workspace;
use crate::write_path::WritePath;

/// Lists the MCP servers that are laid over those of an agent.
pub type Servers = dyn FnMut() -> Vec<AgentServer>;

/// A run to carry out.
pub struct Run {
    /// The machine, with what is known of its past.
    pub machine: Machine,
    /// The agent.
    pub agent: AgentSetup,
    /// The folder that the agent works in.
    pub folder: PathBuf,
    /// The folder for the logs of sessions; it exists.
    pub logs: WritePath,
    /// The environment of everything that is started.
    pub env: Vec<(OsString, OsString)>,
    /// The mark in that environment.
    pub mark: ProcessMark,
    /// The runs of the workspace.
    pub runs: Runs,
    /// The number of this one.
    pub number: i64,
    /// The workspace.
    pub workspace: Workspace,
    /// Where the control socket may be; none for none.
    pub control: Option<RuntimeFolders>,
    /// afresh's version, for clients of the control API.
    pub version: &'static str,
    /// The branch to work on.
    pub branch: Option<String>,
    /// Patterns of files that are never committed.
    pub excludes: Vec<Exclude>,
    /// Where events go.
    pub events: SyncSender<RunUpdate>,
    /// Requests of the user at the terminal.
    pub requests: mpsc::Receiver<UserRequest>,
    /// Whether job control is listened to, and told as [`RunUpdate::Job`]: for a drawn screen.
    pub hears_jobs: bool,
}

/// The agent of a run.
pub struct AgentSetup {
    /// Which.
    pub kind: AgentKind,
    /// Its program, and arguments that come before ours.
    pub program: Vec<String>,
    /// The model, where it is not the agent's usual one.
    pub model: Option<String>,
    /// What it may do.
    pub permission: Permission,
    /// The MCP servers laid over its own, asked for each session: it may change its files meanwhile.
    pub servers: Box<Servers>,
    /// A file for them that only this user can read, for as long as a session has it.
    pub servers_file: WritePath,
}

/// One message to the display.
#[derive(Debug)]
pub enum RunUpdate {
    /// Events, and the state of the run after them. The records before them are on disk.
    Progress {
        /// In order.
        says: Vec<RunEvent>,
        /// The state.
        view: Box<View>,
    },
    /// Job control stops or continues afresh.
    Job(Job),
}

/// A channel of events, in order; they end with the run. It waits while the display is behind by a whole channel: no
/// line of a run is lost.
pub fn run_events() -> (SyncSender<RunUpdate>, Receiver<RunUpdate>) {
    sync_channel(RUN_EVENTS_MAX)
}

/// The end of the channel of requests that a screen has. Those that come faster than the run takes them are dropped.
pub type UserRequestSender = mpsc::Sender<UserRequest>;

/// A channel of requests.
pub fn user_requests() -> (UserRequestSender, mpsc::Receiver<UserRequest>) {
    mpsc::channel(RUN_ASKS_MAX)
}

/// Why a run could not be driven.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The loop cannot be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// No process can be started.
    #[error("cannot set up the process layer")]
    Processes(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The branch cannot be gone to.
    #[error("cannot go to the branch `{branch}`: {why}")]
    Branch {
        /// The branch.
        branch: String,
        /// What git said.
        why: String,
    },
    /// What happened cannot be recorded.
    #[error("cannot write down what happens: {0}")]
    Record(String),
}

impl From<StartError> for RunError {
    fn from(error: StartError) -> Self {
        Self::Processes(Box::new(error))
    }
}
