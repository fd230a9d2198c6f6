//! Owns the meaning of the end of a process, and its words for the log and the trail.
//!
//! Driven by `restart_decision.rs`. Never decides what follows.

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
    Crash,
    /// A signal that is a failure: SIGKILL, SIGSEGV and the like, or one that is not known. For an MCP server also
    /// SIGTERM and SIGINT.
    Killed,
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
            Self::Code(_) => Ending::Crash,
            Self::Signal(SIGTERM | SIGINT) if !policy.restart_on_term => Ending::StoppedByUser,
            Self::Signal(_) | Self::Unknown => Ending::Killed,
        }
    }

    /// Whether a signal ended it that programs are told to end by.
    pub(super) const fn is_term(self) -> bool {
        matches!(self, Self::Signal(SIGTERM | SIGINT))
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
        self.words().0
    }

    /// Whether the instance ended by itself, and not well.
    pub const fn is_crash(&self) -> bool {
        matches!(
            self,
            Self::Crash
                | Self::Killed
                | Self::SpawnFailed(_)
                | Self::HandshakeFailed(_)
                | Self::HealthFailed(_)
        )
    }

    /// The word for it in the trail, and the words for users, without details.
    const fn words(&self) -> (&'static str, &'static str) {
        match self {
            Self::Clean => ("clean", "clean exit"),
            Self::RestartRequested => ("restart_requested", "restart requested by the process"),
            Self::Crash => ("crash", "crash"),
            Self::Killed => ("killed", "killed"),
            Self::StoppedByUser => ("stopped_by_user", "stopped by user"),
            Self::Retired => ("retired", "stopped with its definition"),
            Self::Dismissed => ("dismissed", "stopped, as it is no longer needed"),
            Self::Shutdown => ("shutdown", "stopped with afresh"),
            Self::Replaced => ("replaced", "stopped for a restart"),
            Self::Unused => ("unused", "it has served no client"),
            Self::DiedOfProbe => ("died_of_probe", "it died of the client's probe"),
            Self::SpawnFailed(_) => ("spawn_failed", "could not be started"),
            Self::HandshakeFailed(_) => ("handshake_failed", "handshake failed"),
            Self::HealthFailed(_) => ("health_failed", "health check failed"),
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
            Self::SpawnFailed(failure) => f.write_str(&failure.message),
            Self::HandshakeFailed(why) | Self::HealthFailed(why) => {
                write!(f, "{}: {why}", self.words().1)
            }
            _ => f.write_str(self.words().1),
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
