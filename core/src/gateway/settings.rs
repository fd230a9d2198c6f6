//! Owns the configuration of a gateway, checked and complete, and the notes about its changes at a reload. Made by
//! `config`. Never reads a file.

use core::net::SocketAddr;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::access_patterns::Access;
use super::backend::{Backend, ClientEra, Expose};
use crate::limits::{GATEWAY_BODY_BYTES_MAX, GATEWAY_CLIENTS_MAX, GATEWAY_SESSION_IDLE};

/// The configuration of `afresh gateway`.
#[derive(Clone, PartialEq)]
pub struct Gateway {
    /// The servers, in the order of the files. Each has its own name.
    pub servers: Vec<Backend>,
    /// How much of the list of tools a client is shown.
    pub expose: Expose,
    /// Whether afresh's own tools stand beside those of the servers.
    pub admin_tools: bool,
    /// How long a client's first lists wait for servers that are still starting.
    pub start_wait: Duration,
    /// Which generation of the protocol clients may speak.
    pub era: ClientEra,
    /// How clients reach it.
    pub front: FrontSettings,
    /// The receiver of spans; without it none are sent, unless the command line names one.
    pub otlp: Option<String>,
    /// The names of what the project's files ask for and the user has not accepted: none of it is here.
    pub untrusted: Vec<String>,
    /// Servers that cannot be used, each with why: a variable is not set, say. None of them is in `servers`.
    pub left_out: Vec<(String, String)>,
    /// Variables that are the gateway's own, such as those that hold tokens: servers do not get them.
    pub own_variables: Vec<String>,
}

/// Where a gateway listens for clients over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrontAddress {
    /// A port, which every user of the machine can connect to.
    Port(SocketAddr),
    /// The path of a Unix socket, which only its user can connect to.
    Socket(PathBuf),
}

impl FrontAddress {
    /// The address, where it is a port.
    pub const fn port(&self) -> Option<SocketAddr> {
        match self {
            Self::Port(address) => Some(*address),
            Self::Socket(_) => None,
        }
    }

    /// Whether programs of other users of this machine can connect to it, and no program of another machine: a token is
    /// then made where none is configured.
    pub fn needs_own_token(&self) -> bool {
        self.port().is_some_and(|address| address.ip().is_loopback())
    }
}

impl FromStr for FrontAddress {
    type Err = core::net::AddrParseError;

    /// Reads `unix:PATH`, or an address with its port.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            Some(path) => Ok(Self::Socket(path.into())),
            None => text.parse().map(Self::Port),
        }
    }
}

impl fmt::Display for FrontAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(address) => address.fmt(f),
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// How clients reach a gateway; all but the address changes with a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontSettings {
    /// Where it listens for clients over HTTP; none is stdio.
    pub http: Option<FrontAddress>,
    /// What it may be called in `Host` besides this machine's own names, with a port or for every port.
    pub allowed_hosts: Vec<String>,
    /// Pages that may use it, besides its own: `https://chat.example`.
    pub allowed_origins: Vec<String>,
    /// The tokens of clients over HTTP; without any, every client may use everything. Each secret is there once.
    pub tokens: Vec<Token>,
    /// The file of the only token, where it was made because none is configured.
    pub token_file: Option<PathBuf>,
    /// Sessions, and requests without one, at once; more are refused.
    pub clients_max: usize,
    /// A longer message is refused.
    pub body_bytes_max: u64,
    /// Requests of one session, or of one address without a session; as many may come at once. None is as
    /// many as they like.
    pub requests_per_second: Option<u32>,
    /// A session that was not used for this long is ended.
    pub session_idle: Duration,
    /// How often a quiet stream gets a sign of life, for proxies that close what is quiet; none is never, and
    /// then nothing wakes for those who only listen.
    pub keep_alive: Option<Duration>,
}

/// A bearer token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The token itself.
    pub secret: String,
    /// What it opens; the name is that of the token.
    pub access: Access,
}

impl Gateway {
    /// The changes of a configuration that was read again, except those of the servers: a sentence each. They take
    /// effect at once, except where the sentence asks for a restart.
    pub fn changes(&self, new: &Self) -> Vec<String> {
        let mut notes = Vec::new();
        // These only matter over HTTP.
        if self.front.http.is_some() {
            notes.extend(self.front.token_changes(&new.front));
            let keys = self.front.changes(&new.front);
            if !keys.is_empty() {
                notes.push(format!("`[gateway]` is otherwise from now on: {}", keys.join(", ")));
            }
        }
        let fixed = [
            ("http", self.front.http != new.front.http),
            ("expose", self.expose != new.expose),
            ("tools", self.admin_tools != new.admin_tools),
            ("start_wait", self.start_wait != new.start_wait),
            ("era", self.era != new.era),
            ("otlp", self.otlp != new.otlp),
        ];
        let fixed = fixed.iter().filter(|(_, is_other)| *is_other);
        notes.extend(fixed.map(|(key, _)| {
            format!("`{key}` of `[gateway]` has changed, which needs a restart of the gateway")
        }));
        notes
    }
}

/// Why settings are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Every machine could use it without a token.
    #[error(
        "`{0}` can be reached from other machines, and there is no token; give clients a token, or \
         listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    /// A token is empty, or has something in it that no header can have.
    #[error("the token `{0}` is empty, or has blanks or other than visible ASCII characters in it")]
    Token(String),
}

impl FrontSettings {
    /// Whether this may be served.
    pub fn check(&self) -> Result<(), SettingsError> {
        let port = self.http.as_ref().and_then(FrontAddress::port);
        let open = port.filter(|at| self.tokens.is_empty() && !at.ip().is_loopback());
        if let Some(address) = open {
            return Err(SettingsError::Open(address));
        }
        let is_bad = |token: &&Token| {
            token.secret.is_empty() || !token.secret.bytes().all(|b| b.is_ascii_graphic())
        };
        match self.tokens.iter().find(is_bad) {
            Some(token) => Err(SettingsError::Token(token.access.name.clone())),
            None => Ok(()),
        }
    }

    fn token_changes(&self, new: &Self) -> Vec<String> {
        let mut notes = Vec::new();
        for token in &new.tokens {
            let name = &token.access.name;
            match self.tokens.iter().find(|old| old.access.name == *name) {
                None => notes.push(format!("token `{name}` is new")),
                Some(old) if old == token => {}
                Some(_) => {
                    notes.push(format!("token `{name}` has changed: its sessions have ended"));
                }
            }
        }
        let is_gone = |old: &&Token| !new.tokens.iter().any(|t| t.access.name == old.access.name);
        notes.extend(self.tokens.iter().filter(is_gone).map(|old| {
            let name = &old.access.name;
            format!("token `{name}` is gone: its sessions have ended")
        }));
        match (self.tokens.is_empty(), new.tokens.is_empty()) {
            (true, false) => {
                notes.push("clients need a token now: sessions without one have ended".to_owned())
            }
            (false, true) => notes.push("clients need no token any more".to_owned()),
            _ => {}
        }
        notes
    }

    /// The keys that have changed, except the address.
    fn changes(&self, new: &Self) -> Vec<&'static str> {
        let all = [
            ("allowed_hosts", self.allowed_hosts != new.allowed_hosts),
            ("allowed_origins", self.allowed_origins != new.allowed_origins),
            ("clients_max", self.clients_max != new.clients_max),
            ("body_max", self.body_bytes_max != new.body_bytes_max),
            ("requests_per_second", self.requests_per_second != new.requests_per_second),
            ("session_idle", self.session_idle != new.session_idle),
            ("keep_alive", self.keep_alive != new.keep_alive),
        ];
        all.into_iter().filter(|(_, is_other)| *is_other).map(|(key, _)| key).collect()
    }
}

impl Default for FrontSettings {
    fn default() -> Self {
        Self {
            http: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            tokens: Vec::new(),
            token_file: None,
            clients_max: GATEWAY_CLIENTS_MAX,
            body_bytes_max: GATEWAY_BODY_BYTES_MAX,
            requests_per_second: None,
            session_idle: GATEWAY_SESSION_IDLE,
            keep_alive: None,
        }
    }
}

impl fmt::Debug for Gateway {
    /// Servers by their names alone: variables, headers and arguments hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<&str> = self.servers.iter().map(|server| server.name.as_str()).collect();
        f.debug_struct("Gateway")
            .field("servers", &servers)
            .field("expose", &self.expose)
            .field("admin_tools", &self.admin_tools)
            .field("start_wait", &self.start_wait)
            .field("era", &self.era)
            .field("front", &self.front)
            .finish()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("access", &self.access).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::GATEWAY_START_WAIT;

    fn gateway(http: Option<&str>, tokens: &[(&str, &str)]) -> Gateway {
        let token = |(name, secret): &(&str, &str)| Token {
            secret: (*secret).to_owned(),
            access: Access { name: (*name).to_owned(), ..Access::default() },
        };
        Gateway {
            servers: Vec::new(),
            expose: Expose::All,
            admin_tools: true,
            start_wait: GATEWAY_START_WAIT,
            era: ClientEra::Auto,
            front: FrontSettings {
                http: http.map(|at| at.parse().unwrap()),
                tokens: tokens.iter().map(token).collect(),
                ..FrontSettings::default()
            },
            otlp: None,
            own_variables: Vec::new(),
            untrusted: Vec::new(),
            left_out: Vec::new(),
        }
    }

    #[test]
    fn a_port_of_this_machine_needs_a_token_and_a_socket_none() {
        for (text, needs) in [
            ("127.0.0.1:0", true),
            ("[::1]:80", true),
            ("0.0.0.0:80", false),
            ("unix:/run/gateway.sock", false),
            ("unix:gateway.sock", false),
        ] {
            let address: FrontAddress = text.parse().unwrap();
            assert_eq!(address.needs_own_token(), needs, "{text}");
            assert_eq!(address.to_string(), text);
        }
        assert!("unix:".parse::<FrontAddress>().is_err());
    }

    #[test]
    fn what_is_otherwise_is_said() {
        let old = gateway(Some("127.0.0.1:1"), &[("a", "1"), ("b", "2"), ("c", "3")]);
        assert_eq!(old.changes(&old), [""; 0]);
        let mut new = gateway(Some("127.0.0.1:2"), &[("a", "1"), ("b", "4"), ("d", "5")]);
        new.front.requests_per_second = Some(3);
        new.front.keep_alive = Some(Duration::from_secs(1));
        new.expose = Expose::Search;
        new.admin_tools = false;
        let needs = |key| {
            format!("`{key}` of `[gateway]` has changed, which needs a restart of the gateway")
        };
        assert_eq!(
            old.changes(&new),
            [
                "token `b` has changed: its sessions have ended".to_owned(),
                "token `d` is new".to_owned(),
                "token `c` is gone: its sessions have ended".to_owned(),
                "`[gateway]` is otherwise from now on: requests_per_second, keep_alive".to_owned(),
                needs("http"),
                needs("expose"),
                needs("tools"),
            ]
        );
        let open = gateway(Some("127.0.0.1:1"), &[]);
        assert!(
            open.changes(&old)
                .contains(&"clients need a token now: sessions without one have ended".to_owned())
        );
        assert!(old.changes(&open).contains(&"clients need no token any more".to_owned()));
        // On stdio there are neither tokens nor limits.
        let stdio = gateway(None, &[]);
        assert_eq!(stdio.changes(&new), [needs("http"), needs("expose"), needs("tools")]);
    }
}
