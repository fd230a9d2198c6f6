//! Owns the admission of a request by its head alone: path, token, method and media types; `crate::http_access` checks
//! host and origin. Tokens have numbers: one that stays the same keeps its number when the configuration is reloaded,
//! and no number is reused, so a session keeps its owner. Driven by each connection. Never depends on another request.

use super::HttpRefusal;
use crate::gateway::access::Access;
use crate::gateway::settings::{FrontSettings, Token};
use crate::http_access::{AccessDenied, AllowedCallers, Caller, bearer, is_same};

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
#[derive(Clone, Debug)]
pub struct Gate {
    /// `Host` and `Origin` of requests.
    pub callers: AllowedCallers,
    tokens: Tokens,
    /// A longer body is refused.
    pub body_bytes_max: u64,
}

impl Gate {
    /// The gate of this port, which is known once it is bound.
    pub fn new(settings: &FrontSettings, port: u16) -> Self {
        let mut callers = AllowedCallers::of_port(port);
        if let Some(mut address) = settings.http.filter(|address| !address.ip().is_unspecified()) {
            address.set_port(port);
            callers.own_hosts.push(address.to_string());
        }
        Self { callers, tokens: Tokens::default(), body_bytes_max: 0 }.renewed(settings)
    }

    /// The same gate with other settings. Its address stays: it is bound.
    #[must_use]
    pub fn renewed(&self, settings: &FrontSettings) -> Self {
        let lower = |all: &[String]| all.iter().map(|one| one.to_ascii_lowercase()).collect();
        let mut tokens = self.tokens.clone();
        tokens.renew(&settings.tokens);
        let callers = AllowedCallers {
            own_hosts: self.callers.own_hosts.clone(),
            hosts: lower(&settings.allowed_hosts),
            origins: lower(&settings.allowed_origins),
        };
        Self { callers, tokens, body_bytes_max: settings.body_bytes_max }
    }

    /// The rejection of a body that is too long.
    pub fn too_long(&self) -> HttpRefusal {
        let max = self.body_bytes_max;
        HttpRefusal::new(
            413,
            format!("the message is longer than the limit of {max} bytes; send less"),
        )
    }

    /// Whether a request is let in.
    pub fn admit(&self, head: &Head<'_>) -> Result<Admitted, HttpRefusal> {
        match head.path {
            "/health" if ["GET", "HEAD"].contains(&head.method) => return Ok(Admitted::Health),
            "/health" => return Err(HttpRefusal::method("GET")),
            _ => {}
        }
        self.callers.admit(head.caller).map_err(|denied| {
            HttpRefusal::new(
                403,
                match denied {
                    AccessDenied::Origin => {
                        "`Origin` is another page; put it into `allowed_origins` if it may use this"
                    }
                    _ => "`Host` is not this machine and port; put what it is called into `allowed_hosts`",
                },
            )
        })?;
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
        if head.content_length.is_some_and(|length| length > self.body_bytes_max) {
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

/// All tokens. The gate has them and the front has them, and both number them alike.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens {
    /// With their numbers.
    all: Vec<(usize, Token)>,
    next: usize,
}

impl Tokens {
    /// The tokens are these now.
    pub(super) fn renew(&mut self, tokens: &[Token]) {
        let before = std::mem::take(&mut self.all);
        for token in tokens {
            let kept = before.iter().find(|(_, old)| old == token);
            let number = kept.map_or(self.next, |(number, _)| *number);
            self.next = self.next.max(number + 1);
            self.all.push((number, token.clone()));
        }
    }

    /// Whether no token is needed.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of a token. All are compared, for a constant time.
    pub(super) fn number(&self, given: &str) -> Option<usize> {
        let mut found = None;
        for (number, token) in &self.all {
            if is_same(given.as_bytes(), token.secret.as_bytes()) {
                found = Some(*number);
            }
        }
        found
    }

    /// What a token opens; none where there is no such one any more, or where one is needed.
    pub(super) fn access(&self, number: Option<usize>) -> Option<Access> {
        match number {
            None => self.is_empty().then(Access::default),
            Some(number) => {
                let known = self.all.iter().find(|(its, _)| *its == number)?;
                Some(known.1.access.clone())
            }
        }
    }
}
