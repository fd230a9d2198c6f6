//! Owns the settings of one server, from `[server.NAME]` or from the configuration file of an MCP client. Made by
//! `config` and `import`, read by the hub and the daemon. Never changes after it is made.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::inherited_env::InheritedEnv;
use super::pins::PinKey;
use crate::definition::HealthSettings;
use crate::policy::Policy;

/// One server.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// Its key: in the names of its tools, in commands, in the trail.
    pub name: String,
    /// How it is reached.
    pub transport: Transport,
    /// What its tools and prompts are called.
    pub prefix: Prefix,
    /// Which of its tools there are; all where there is no list, none where that is empty. A `*` stands for any
    /// text.
    pub allow: Option<Vec<String>>,
    /// Which of these there are not.
    pub deny: Vec<String>,
    /// Which clients share one conversation with it.
    pub share: Share,
    /// Whether its tools leave the list while it is down.
    pub hide_when_down: bool,
    /// How long a call may take; none is as long as it likes.
    pub call_timeout: Option<Duration>,
    /// Calls that may be on their way at once; more get an error.
    pub in_flight_max: usize,
    /// What a change of its tools since they were pinned leads to.
    pub pin: Pin,
}

impl Backend {
    /// Whether it is a program of ours, and not a server that is reached over HTTP.
    pub const fn is_stdio(&self) -> bool {
        matches!(self.transport, Transport::Stdio(_))
    }

    /// What its pin is kept under: its name, and its address or program without what may be secret.
    pub fn pin_key(&self) -> PinKey {
        PinKey { server: self.name.clone(), address: self.transport.to_string() }
    }
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum Transport {
    /// A program that speaks over its stdin and stdout.
    Stdio(Box<StdioServer>),
    /// A server that speaks streamable HTTP, or the HTTP with server-sent events of before.
    Http(HttpServer),
}

impl fmt::Display for Transport {
    /// Without what may be secret: arguments and header fields.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio(stdio) => {
                f.write_str(stdio.command.first().map_or("", String::as_str))?;
                match stdio.command.len() {
                    0 | 1 => Ok(()),
                    _ => f.write_str(" …"),
                }
            }
            Self::Http(http) => f.write_str(http.url.split('?').next().unwrap_or_default()),
        }
    }
}

/// A program that speaks over its stdin and stdout.
#[derive(Clone, Debug, PartialEq)]
pub struct StdioServer {
    /// The program and its arguments; no shell is involved.
    pub command: Vec<String>,
    /// The folder it starts in; the workspace where none is given.
    pub cwd: Option<PathBuf>,
    /// Variables on top of afresh's own and of `env_file`.
    pub env: Vec<(String, String)>,
    /// Which of afresh's own variables it gets.
    pub inherit_env: InheritedEnv,
    /// A file of `NAME=value` lines, read at each start.
    pub env_file: Option<PathBuf>,
    /// When and how it is restarted and stopped.
    pub policy: Policy,
    /// When it counts as sick.
    pub health: HealthSettings,
    /// Whether another instance stands by for a crash.
    pub spare: bool,
    /// Files and folders whose changes restart it.
    pub watch: Vec<PathBuf>,
    /// How long these must be quiet before a change counts.
    pub watch_debounce: Duration,
    /// Whether results of its tools say that it was restarted.
    pub tell_restarts: bool,
}

/// A server that is reached over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpServer {
    /// Its address, such as `http://127.0.0.1:3000/mcp`.
    pub url: String,
    /// Header fields that each request has besides; values can be secret.
    pub headers: Vec<(String, String)>,
    /// Whether it speaks HTTP with server-sent events, as before 2025-03-26; found out where not given.
    pub sse: Option<bool>,
}

/// What a server's tools and prompts are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Prefix {
    /// `NAME__tool`.
    #[default]
    Name,
    /// This text, then the tool's own name.
    Text(String),
    /// The tool's own name, which no other may have.
    None,
}

/// Which clients share one conversation with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// One instance for all clients.
    All,
    /// One for each client.
    PerClient {
        /// At most so many at once; more clients get an error.
        instances_max: usize,
        /// One that was unused for so long is ended, and comes back with the next call.
        idle_after: Duration,
    },
}

/// What a change of a server's tools since they were pinned leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    /// Nothing: they are not pinned.
    #[default]
    Off,
    /// A line in the log, a record in the trail and a mark in `server_status`.
    Warn,
    /// The same, and what has changed or is new is withheld until the user accepts it.
    Block,
}

impl Pin {
    /// The word in the configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warn => "warn",
            Self::Block => "block",
        }
    }
}

impl Transport {
    /// What holds for a server that is reached like this where `pin` is not given: a program's code changes all day.
    pub const fn usual_pin(&self) -> Pin {
        match self {
            Self::Stdio(_) => Pin::Off,
            Self::Http(_) => Pin::Warn,
        }
    }
}

/// Which generation of the protocol clients may speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientEra {
    /// Any.
    #[default]
    Auto,
    /// The one with sessions, up to 2025-11-25: clients that know a newer one fall back to it.
    Legacy,
}

/// How much of the list of tools a client is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expose {
    /// All of it.
    #[default]
    All,
    /// A tool to search them with, and those that were found.
    Search,
}
