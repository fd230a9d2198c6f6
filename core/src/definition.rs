//! A service as it is defined: what is run, when it is restarted, what it needs, when it is well.
//!
//! A value between the configuration, which fills it in, and the daemon, which does it.

use std::path::PathBuf;
use std::time::Duration;

use crate::health::HealthCheck;
use crate::policy::Policy;

/// One service of `afresh up`.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceDefinition {
    /// Its key, in the trail and in commands.
    pub name: String,
    /// How the log calls it.
    pub title: String,
    /// The program and its arguments; no shell is involved.
    pub command: Vec<String>,
    /// The folder it starts in, from the workspace; the workspace itself where none is given.
    pub cwd: Option<PathBuf>,
    /// Variables that are set on top of afresh's own and of `env_file`.
    pub env: Vec<(String, String)>,
    /// A file of `NAME=value` lines, from the workspace; read at each start.
    pub env_file: Option<PathBuf>,
    /// When and how it is restarted and stopped.
    pub policy: Policy,
    /// The signal that asks it to stop.
    pub stop_signal: StopSignal,
    /// What has to be there before it is started. Stopped in the opposite order.
    pub depends_on: Vec<Dependency>,
    /// When it is ready, and whether it still is well. Without, it is ready as soon as it runs.
    pub health: Option<HealthCheck>,
    /// Restarted when its processes hold more memory than this together; none is any amount.
    pub memory_bytes_max: Option<u64>,
    /// Whether `afresh up` starts it.
    pub autostart: bool,
    /// How much of its output is kept on disk.
    pub log: LogLimits,
    /// The place that it must have for itself; checked before each start.
    pub port: Option<Port>,
}

/// The signal that asks a service to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGTERM.
    #[default]
    Terminate,
    /// SIGINT.
    Interrupt,
    /// SIGHUP.
    Hangup,
    /// SIGQUIT.
    Quit,
    /// SIGUSR1.
    User1,
    /// SIGUSR2.
    User2,
}

/// Another service that has to be there first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// Its name.
    pub name: String,
    /// How far it has to be.
    pub until: Until,
}

/// How far a service has to be for those that need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// Its process runs.
    Started,
    /// It is ready, by its health check where it has one.
    #[default]
    Ready,
}

/// How much output is kept on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// A file is rotated at this size.
    pub file_bytes_max: u64,
    /// Rotated files that are kept for each service.
    pub files_kept: u32,
    /// Files whose last line is older than this go; none keeps them.
    pub age_max: Option<Duration>,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self { file_bytes_max: 16 << 20, files_kept: 5, age_max: None }
    }
}

/// A place in the network that a service must have for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The name or address that it listens on.
    pub host: String,
    /// The number.
    pub port: u16,
}

/// What becomes of the services when the supervisor itself is killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnSupervisorDeath {
    /// They go with it.
    #[default]
    Kill,
    /// They run on, and the next `afresh up` takes them over.
    Keep,
}
