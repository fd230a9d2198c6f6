//! Owns the clients that come over Streamable HTTP, of both eras: admission, sessions, and the stream of each message.
//! Driven by the daemon's HTTP server. Never listens or writes: connections are numbers, and bytes are handed over.
//!
//! `request_checks.rs` checks the head of a request, `post_body.rs` its body; both know no other request. `front.rs` is
//! the machine that knows all sessions (`input.rs`: its inputs and effects), with `client.rs` and `stream.rs` (one
//! session, one stream of messages) and `rate_limit.rs`. `tokens.rs` has the tokens, `body_budget.rs` bounds the bodies
//! that are received at once, `refusal.rs` has the rejections.

mod body_budget;
mod client;
mod front;
mod input;
mod post_body;
mod rate_limit;
mod refusal;
mod request_checks;
mod stream;
#[cfg(test)]
mod tests;
mod tokens;

use core::net::SocketAddr;
use std::fmt;
use std::time::Duration;

pub use self::body_budget::{Bodies, BodyId, Room};
pub use self::client::SessionId;
pub use self::front::Front;
pub use self::input::{FrontEffect, FrontInput, FrontRequest, HttpExchange, RequestKind};
pub use self::post_body::PostBody;
pub use self::refusal::HttpRefusal;
pub use self::request_checks::{Admitted, Gate, Head, ORIGIN_HEADERS};
use super::access::Access;

/// How clients are served over HTTP.
#[derive(Clone)]
pub struct Settings {
    /// Where.
    pub listen: SocketAddr,
    /// What it may be called in `Host` besides this machine's own names, with a port or for every port.
    pub allowed_hosts: Vec<String>,
    /// Pages that may use it, besides its own: `https://chat.example`.
    pub allowed_origins: Vec<String>,
    /// The tokens of clients, with the access of each; without any, every client may use everything.
    pub tokens: Vec<(String, Access)>,
    /// Sessions, and requests without one, at once; more are refused.
    pub clients_max: usize,
    /// A longer message is refused.
    pub body_bytes_max: usize,
    /// Requests of one session, or of one address without a session; as many may come at once. None is as
    /// many as they like.
    pub requests_per_second: Option<u32>,
    /// A session that was not used for this long is ended.
    pub session_idle: Duration,
    /// How often a quiet stream gets a sign of life, for proxies that close what is quiet; none is never, and
    /// then nothing wakes for those who only listen.
    pub keep_alive: Option<Duration>,
}

impl fmt::Debug for Settings {
    /// Without the tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.tokens.iter().map(|(_, access)| access.name.as_str()).collect();
        f.debug_struct("Settings")
            .field("listen", &self.listen)
            .field("allowed_hosts", &self.allowed_hosts)
            .field("allowed_origins", &self.allowed_origins)
            .field("tokens", &names)
            .field("clients_max", &self.clients_max)
            .field("body_bytes_max", &self.body_bytes_max)
            .field("requests_per_second", &self.requests_per_second)
            .field("session_idle", &self.session_idle)
            .field("keep_alive", &self.keep_alive)
            .finish()
    }
}

/// Why settings are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// Every machine could use it without a token.
    Open(SocketAddr),
    /// A token is empty, or has something in it that no header can have.
    Token(String),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(address) => write!(
                f,
                "`{address}` can be reached from other machines, and there is no token; give clients a \
                 token, or listen on 127.0.0.1"
            ),
            Self::Token(name) => write!(
                f,
                "the token `{name}` is empty, or has blanks or other than visible ASCII characters in it"
            ),
        }
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// Whether this may be served.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.tokens.is_empty() && !self.listen.ip().is_loopback() {
            return Err(SettingsError::Open(self.listen));
        }
        let is_bad =
            |secret: &str| secret.is_empty() || !secret.bytes().all(|b| b.is_ascii_graphic());
        match self.tokens.iter().find(|(secret, _)| is_bad(secret)) {
            Some((_, access)) => Err(SettingsError::Token(access.name.clone())),
            None => Ok(()),
        }
    }
}
