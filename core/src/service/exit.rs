//! Owns the meaning of the end of a process, and its words for the log and the trail.
//!
//! Driven by `after_exit.rs`. Never decides what follows.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::definition::Port;
use crate::policy::Policy;

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

/// How a process ended, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited by itself with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// It is gone, but what it ended with is not known: its guardian was killed.
    Unknown,
}

/// What the end of an instance means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Exit code 0.
    Clean,
    /// The code that asks for a restart.
    RestartRequested,
    /// Any other code.
    Crash {
        /// The code.
        code: i32,
    },
    /// A signal that is a failure: SIGKILL, SIGSEGV and the like.
    Killed {
        /// The signal; `None` where the kernel's word was lost.
        signal: Option<i32>,
    },
    /// The user ended it: our stop, or SIGTERM or SIGINT from outside.
    StoppedByUser,
    /// We ended it, as the configuration does not have it any more.
    Retired,
    /// We ended it, as it is not needed any more.
    Dismissed,
    /// We ended it, as afresh itself ends.
    Shutdown,
    /// We ended it to start it again.
    Replaced,
    /// It went before it served a client: a candidate that failed, or a spare.
    Unused,
    /// A client's probe ended it: no fault of its own.
    DiedOfProbe,
    /// It could not be started.
    SpawnFailed(SpawnFailure),
    /// It ran, but did not open its session as it must.
    HandshakeFailed(String),
    /// It ran, but its health checks failed.
    HealthFailed(String),
}

/// How an instance ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LastExit {
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// As a sentence.
    pub text: String,
}

impl From<Exit> for LastExit {
    fn from(exit: Exit) -> Self {
        let (code, signal) = match exit {
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal)),
            Exit::Unknown => (None, None),
        };
        Self { code, signal, text: exit.to_string() }
    }
}

/// Why a process could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnFailure {
    /// What failed and why, as a sentence.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Trying again cannot help: no such command, no permission, no such folder.
    pub permanent: bool,
    /// The exit code that a shell would give: 127 not found, 126 not executable, 125 otherwise.
    pub code: i32,
}

impl SpawnFailure {
    /// Another process has the port that the service needs; `holder` in words, where it is known.
    pub fn port_taken(port: &Port, holder: Option<&str>) -> Self {
        let by = holder.map_or_else(String::new, |holder| format!(" by {holder}"));
        Self {
            message: format!("port {} on {} is taken{by}", port.port, port.host),
            hint: Some("stop it, or set another port".to_owned()),
            // It may be free in a moment.
            permanent: false,
            code: 125,
        }
    }
}

impl Exit {
    /// Classifies an exit that was not requested here.
    pub(super) fn unrequested(self, policy: &Policy) -> Ending {
        match self {
            Self::Code(code) if code == policy.restart_code => Ending::RestartRequested,
            Self::Code(0) => Ending::Clean,
            Self::Code(code) => Ending::Crash { code },
            Self::Signal(SIGTERM | SIGINT) => Ending::StoppedByUser,
            Self::Signal(signal) => Ending::Killed { signal: Some(signal) },
            Self::Unknown => Ending::Killed { signal: None },
        }
    }

    /// The code that a shell would show for it.
    pub const fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
            Self::Unknown => 128 + 9,
        }
    }
}

impl Ending {
    /// The word for it in the trail.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::RestartRequested => "restart_requested",
            Self::Crash { .. } => "crash",
            Self::Killed { .. } => "killed",
            Self::StoppedByUser => "stopped_by_user",
            Self::Retired => "retired",
            Self::Dismissed => "dismissed",
            Self::Shutdown => "shutdown",
            Self::Replaced => "replaced",
            Self::Unused => "unused",
            Self::DiedOfProbe => "died_of_probe",
            Self::SpawnFailed(_) => "spawn_failed",
            Self::HandshakeFailed(_) => "handshake_failed",
            Self::HealthFailed(_) => "health_failed",
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "ended by signal {signal} ({name})"),
                None => write!(f, "ended by signal {signal}"),
            },
            Self::Unknown => f.write_str("ended together with its guardian"),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => f.write_str("clean exit"),
            Self::RestartRequested => f.write_str("restart requested by the process"),
            Self::Crash { .. } => f.write_str("crash"),
            Self::Killed { .. } => f.write_str("killed"),
            Self::StoppedByUser => f.write_str("stopped by user"),
            Self::Retired => f.write_str("stopped with its definition"),
            Self::Dismissed => f.write_str("stopped, as nobody needs it any more"),
            Self::Shutdown => f.write_str("stopped with afresh"),
            Self::Replaced => f.write_str("stopped for a restart"),
            Self::Unused => f.write_str("it has not served anybody"),
            Self::DiedOfProbe => f.write_str("it died of the client's probe"),
            Self::SpawnFailed(failure) => f.write_str(&failure.message),
            Self::HandshakeFailed(why) => write!(f, "handshake failed: {why}"),
            Self::HealthFailed(why) => write!(f, "health check failed: {why}"),
        }
    }
}

/// The name of a signal whose number is the same on Linux and macOS, and of Linux's others.
pub const fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        #[cfg(target_os = "linux")]
        7 => "SIGBUS",
        #[cfg(target_os = "linux")]
        10 => "SIGUSR1",
        #[cfg(target_os = "linux")]
        12 => "SIGUSR2",
        #[cfg(target_os = "linux")]
        31 => "SIGSYS",
        _ => return None,
    })
}
