//! Owns the admission of a request by its head alone: path, host, origin, token, method and media types. Driven by
//! each connection. Never depends on another request.

use super::Settings;
use super::refusal::HttpRefusal;
use super::tokens::Tokens;
use crate::http_access::{Caller, bearer, loopback_hosts};

/// The head of a request, as far as it matters. More than one header of a kind is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head<'a> {
    /// `POST`.
    pub method: &'a str,
    /// Without the query.
    pub path: &'a str,
    /// `Host`, `Origin` and `Authorization`.
    pub caller: Caller<'a>,
    /// `Content-Type`.
    pub content_type: Option<&'a str>,
    /// `Content-Length`.
    pub content_length: Option<u64>,
    /// `Accept`, all of it.
    pub accept: Option<&'a str>,
    /// `Mcp-Session-Id`.
    pub session: Option<&'a str>,
    /// `MCP-Protocol-Version`.
    pub version: Option<&'a str>,
    /// `Last-Event-ID`.
    pub last_event: Option<&'a str>,
    /// `Mcp-Method`.
    pub mcp_method: Option<&'a str>,
    /// `Mcp-Name`.
    pub mcp_name: Option<&'a str>,
}

/// What a request is that was let in, with the number of its token where tokens are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// A health check, without a token.
    Health,
    /// What a browser asks before it lets a page ask.
    Preflight,
    /// Brings a message.
    Post(Option<usize>),
    /// Wants to listen.
    Get(Option<usize>),
    /// Ends its session.
    Delete(Option<usize>),
}

/// What a page of another origin that may use us must be told by its browser: header and value. The origin
/// itself is told besides.
pub const ORIGIN_HEADERS: [(&str, &str); 4] = [
    ("access-control-allow-methods", "POST, GET, DELETE, OPTIONS"),
    (
        "access-control-allow-headers",
        "content-type, accept, authorization, mcp-session-id, mcp-protocol-version, mcp-method, mcp-name, \
         last-event-id",
    ),
    ("access-control-expose-headers", "mcp-session-id"),
    ("access-control-max-age", "600"),
];

const METHODS: &str = "POST, GET, DELETE";

/// Versions of the protocol in which a session is opened by `initialize`.
pub(super) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Whether a version is of the modern era, known or not.
pub(super) fn is_modern(version: &str) -> bool {
    let is_date = version.len() == 10 && version.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    is_date && version > LEGACY[LEGACY.len() - 1]
}

/// Decides who is let in.
#[derive(Clone)]
pub struct Gate {
    own_hosts: Vec<String>,
    allowed_hosts: Vec<String>,
    allowed_origins: Vec<String>,
    tokens: Tokens,
    body_bytes_max: usize,
}

impl std::fmt::Debug for Gate {
    /// Without the tokens.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("own_hosts", &self.own_hosts).finish_non_exhaustive()
    }
}

impl Gate {
    /// The gate of this port, which is known once it is bound.
    pub fn new(settings: &Settings, port: u16) -> Self {
        let mut own_hosts = loopback_hosts(port).to_vec();
        let mut address = settings.listen;
        if !address.ip().is_unspecified() {
            address.set_port(port);
            own_hosts.push(address.to_string());
        }
        let tokens = Tokens::default();
        let gate = Self {
            own_hosts,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            tokens,
            body_bytes_max: 0,
        };
        gate.renewed(settings)
    }

    /// The same gate with other settings. Its address stays: it is bound.
    #[must_use]
    pub fn renewed(&self, settings: &Settings) -> Self {
        let lower = |all: &[String]| all.iter().map(|one| one.to_ascii_lowercase()).collect();
        let mut tokens = self.tokens.clone();
        tokens.renew(&settings.tokens);
        Self {
            own_hosts: self.own_hosts.clone(),
            allowed_hosts: lower(&settings.allowed_hosts),
            allowed_origins: lower(&settings.allowed_origins),
            tokens,
            body_bytes_max: settings.body_bytes_max,
        }
    }

    /// A longer body is refused.
    pub fn body_bytes_max(&self) -> usize {
        self.body_bytes_max
    }

    /// The rejection of a body that is too long.
    pub fn too_long(&self) -> HttpRefusal {
        let max = self.body_bytes_max;
        HttpRefusal::new(
            413,
            format!("the message is longer than the limit of {max} bytes; send less"),
        )
    }

    /// The rejection of a body that does not arrive.
    pub fn too_slow(&self) -> HttpRefusal {
        HttpRefusal::new(408, "the message did not come in time")
    }

    /// The rejection of a body for which there is no room.
    pub fn no_room(&self) -> HttpRefusal {
        let what = "there is no room for the message: too much comes at once; send it again later";
        HttpRefusal::new(503, what)
    }

    /// Whether a page of another origin may read the answer.
    pub fn is_allowed_origin(&self, origin: &str) -> bool {
        self.allowed_origins.contains(&origin.to_ascii_lowercase())
    }

    /// Whether a request is let in.
    pub fn admit(&self, head: &Head<'_>) -> Result<Admitted, HttpRefusal> {
        match head.path {
            "/health" if ["GET", "HEAD"].contains(&head.method) => return Ok(Admitted::Health),
            "/health" => return Err(HttpRefusal::method("GET")),
            _ => {}
        }
        self.admit_caller(&head.caller)?;
        if head.method == "OPTIONS" {
            return Ok(Admitted::Preflight);
        }
        let token = self.token(head.caller.authorization)?;
        if !["/mcp", "/mcp/", "/"].contains(&head.path) {
            return Err(HttpRefusal::new(404, "there is nothing at this path; there is `/mcp`"));
        }
        let is_modern = head.version.is_some_and(is_modern);
        match head.method {
            "POST" => self.admit_body(head).map(|()| Admitted::Post(token)),
            "GET" | "DELETE" if is_modern => Err(HttpRefusal::method("POST")),
            "GET" if !accepts(head.accept, "text/event-stream") => {
                Err(HttpRefusal::new(406, "a GET is answered as `text/event-stream`: accept it"))
            }
            "GET" => Ok(Admitted::Get(token)),
            "DELETE" => Ok(Admitted::Delete(token)),
            _ => Err(HttpRefusal::method(METHODS)),
        }
    }

    fn admit_caller(&self, caller: &Caller<'_>) -> Result<(), HttpRefusal> {
        let host = caller.host.map(str::to_ascii_lowercase).unwrap_or_default();
        // An address of IPv6 has colons in it, but ends with a bracket.
        let (name, _) =
            host.rsplit_once(':').filter(|_| !host.ends_with(']')).unwrap_or((&host, ""));
        let is_allowed =
            |allowed: &String| !allowed.is_empty() && (*allowed == host || *allowed == name);
        if !self.own_hosts.contains(&host) && !self.allowed_hosts.iter().any(is_allowed) {
            let what =
                "`Host` is not this machine and port; put what it is called into `allowed_hosts`";
            return Err(HttpRefusal::new(403, what));
        }
        let Some(origin) = caller.origin else { return Ok(()) };
        let is_own = |origin: &str| {
            let (scheme, rest) = origin.split_once("://").unwrap_or_default();
            // Encryption is a proxy's; what this machine's own pages come over has none.
            let schemes: &[&str] =
                if self.own_hosts.contains(&host) { &["http"] } else { &["http", "https"] };
            schemes.iter().any(|known| scheme.eq_ignore_ascii_case(known))
                && rest.eq_ignore_ascii_case(&host)
        };
        if !origin.is_some_and(|origin| is_own(origin) || self.is_allowed_origin(origin)) {
            let what = "`Origin` is another page; put it into `allowed_origins` if it may use this";
            return Err(HttpRefusal::new(403, what));
        }
        Ok(())
    }

    /// The number of the token; none where no token is needed.
    fn token(&self, authorization: Option<&str>) -> Result<Option<usize>, HttpRefusal> {
        if self.tokens.is_empty() {
            return Ok(None);
        }
        let given = bearer(authorization).ok_or_else(|| {
            HttpRefusal::new(401, "a token is needed: `Authorization: Bearer TOKEN`")
        })?;
        self.tokens.number(given).map(Some).ok_or_else(HttpRefusal::unknown_token)
    }

    fn admit_body(&self, head: &Head<'_>) -> Result<(), HttpRefusal> {
        let media = head.content_type.and_then(|text| text.split(';').next()).unwrap_or_default();
        if !media.trim().eq_ignore_ascii_case("application/json") {
            return Err(HttpRefusal::new(
                415,
                "a message is `application/json`: say so in `Content-Type`",
            ));
        }
        if !["application/json", "text/event-stream"].iter().all(|kind| accepts(head.accept, kind))
        {
            let what = "accept both `application/json` and `text/event-stream`";
            return Err(HttpRefusal::new(406, what));
        }
        if head.content_length.is_some_and(|length| length > self.body_bytes_max as u64) {
            return Err(self.too_long());
        }
        Ok(())
    }
}

/// Whether an `Accept` has room for this kind; who says nothing takes everything.
fn accepts(accept: Option<&str>, kind: &str) -> bool {
    let Some(accept) = accept else { return true };
    let (family, _) = kind.split_once('/').unwrap_or_default();
    accept.split(',').any(|range| {
        let range = range.split(';').next().unwrap_or_default().trim();
        range == "*/*"
            || range.eq_ignore_ascii_case(kind)
            || range.strip_suffix("/*").is_some_and(|its| its.eq_ignore_ascii_case(family))
    })
}

#[cfg(test)]
mod tests;
