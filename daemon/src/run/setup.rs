//! What a run is given: what is to be done, and who is told.

use std::ffi::OsString;
use std::path::PathBuf;

use afresh_core::agent::{AgentKind, Permission, Server};
use afresh_core::limits::RUN_ASKS_MAX;
use afresh_core::run::{Asked, Exclude, Machine, Record, Say, View};
use afresh_core::time::Stamp;
use tokio::sync::mpsc;

use crate::control::RuntimeFolders;
use crate::os;
use crate::process::StartError;
use crate::store::workspace::Workspace;

/// Writes records down together, or says why it cannot.
pub type Recorder = dyn FnMut(&[(Stamp, Record)]) -> Result<(), String>;

/// Shows what happened, together, beside the state of the run.
pub type Shower = dyn FnMut(&[Say], &View);

/// Says which MCP servers are laid over those of an agent.
pub type Servers = dyn FnMut() -> Vec<Server>;

/// Hears what job control does to us.
pub type JobHearer = dyn FnMut(os::Job);

/// What is to be run, and how.
pub struct Run {
    /// The machine, with what is known of its past.
    pub machine: Machine,
    /// The folder that the agent works in.
    pub folder: PathBuf,
    /// Where the logs of sessions go; it exists.
    pub logs: PathBuf,
    /// The agent.
    pub agent: AgentKind,
    /// Its program, and arguments that come before ours.
    pub program: Vec<String>,
    /// The model, where it is not the agent's usual one.
    pub model: Option<String>,
    /// What the agent may do.
    pub permission: Permission,
    /// Which MCP servers are laid over its own, asked for each session: it may change its files meanwhile.
    pub servers: Box<Servers>,
    /// A file that nobody else uses and that only this user can read, for as long as a session has it.
    pub servers_file: PathBuf,
    /// The environment of everything that is started.
    pub env: Vec<(OsString, OsString)>,
    /// Its number in the workspace.
    pub number: i64,
    /// The workspace, for whoever asks.
    pub workspace: Workspace,
    /// Where the control socket may be; none for none.
    pub control: Option<RuntimeFolders>,
    /// afresh's version, for whoever asks.
    pub version: &'static str,
    /// The branch to work on.
    pub branch: Option<String>,
    /// Patterns of what is never committed.
    pub excludes: Vec<Exclude>,
    /// Writes down what happened, before anything that comes after it is done.
    pub record: Box<Recorder>,
    /// Shows what happens.
    pub show: Box<Shower>,
    /// What a person wants.
    pub asked: Asks,
    /// Who draws on a terminal, and so has to know when that is taken away; none where nobody does.
    pub job: Option<Box<JobHearer>>,
}

/// What a person wants, on its way to a run.
#[derive(Debug)]
pub struct Asks(pub(super) mpsc::Receiver<Asked>);

/// Where a person says it.
#[derive(Clone, Debug)]
pub struct Asker(mpsc::Sender<Asked>);

impl Asker {
    /// Asks; one who asks faster than the run can hear is not heard.
    pub fn ask(&self, asked: Asked) {
        self.0.try_send(asked).ok();
    }
}

/// Both ends.
pub fn asks() -> (Asker, Asks) {
    let (sender, receiver) = mpsc::channel(RUN_ASKS_MAX);
    (Asker(sender), Asks(receiver))
}

/// Why a run could not be driven.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The event loop could not be made.
    #[error("cannot set up the event loop")]
    Runtime(#[source] std::io::Error),
    /// Signals cannot be heard.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
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
    /// What happened cannot be written down.
    #[error("cannot write down what happens: {0}")]
    Record(String),
}

impl From<StartError> for RunError {
    fn from(error: StartError) -> Self {
        Self::Processes(Box::new(error))
    }
}
