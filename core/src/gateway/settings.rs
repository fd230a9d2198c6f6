//! The configuration of a gateway, checked and complete.

use core::net::SocketAddr;
use std::fmt;
use std::time::Duration;

use super::access::Access;
use super::backend::{Backend, Expose};
use crate::limits::{GATEWAY_BODY_BYTES_MAX, GATEWAY_CLIENTS_MAX, GATEWAY_SESSION_IDLE};

/// What `afresh gateway` is told.
#[derive(Clone, PartialEq)]
pub struct Gateway {
    /// The servers, in the order of the files. Each has its own name.
    pub servers: Vec<Backend>,
    /// How much of the list of tools a client is shown.
    pub expose: Expose,
    /// Whether afresh's own tools stand beside those of the servers.
    pub admin_tools: bool,
    /// How clients reach it.
    pub front: Front,
    /// Who may come in over HTTP; everybody where there is none. Each secret is there once.
    pub tokens: Vec<Token>,
}

/// How clients reach a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// Where it listens for clients over HTTP; none is stdio.
    pub http: Option<SocketAddr>,
    /// Hosts that a request may be for, beside those of this machine.
    pub allowed_hosts: Vec<String>,
    /// Web pages that may ask, beside those of this machine.
    pub allowed_origins: Vec<String>,
    /// Clients at once.
    pub clients_max: usize,
    /// The largest request.
    pub body_bytes_max: u64,
    /// Requests of one client in a second; none is any number.
    pub requests_per_second: Option<u32>,
    /// A client that is silent for this long is forgotten.
    pub session_idle: Duration,
}

/// A bearer token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The token itself.
    pub secret: String,
    /// What it opens; the name is that of the token.
    pub access: Access,
}

impl Default for Front {
    fn default() -> Self {
        Self {
            http: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            clients_max: GATEWAY_CLIENTS_MAX,
            body_bytes_max: GATEWAY_BODY_BYTES_MAX,
            requests_per_second: None,
            session_idle: GATEWAY_SESSION_IDLE,
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
            .field("front", &self.front)
            .field("tokens", &self.tokens)
            .finish()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("access", &self.access).finish_non_exhaustive()
    }
}
