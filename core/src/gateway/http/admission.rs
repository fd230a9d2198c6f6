//! Owns the admission of a request: by its head alone (path, token, method and media types; `crate::http_access` checks
//! host and origin), and by its body, which has to agree with the head. Tokens have numbers: one that stays the same
//! keeps its number when the configuration is reloaded, and no number is reused, so a session keeps its owner. Driven by
//! each connection. Never depends on another request.

use std::borrow::Cow;

use super::{HttpRefusal, PARSE_ERROR};
use crate::base64;
use crate::gateway::access_patterns::Access;
use crate::gateway::settings::{FrontAddress, FrontSettings, Token};
use crate::http_access::{AccessDenied, AllowedCallers, Caller, bearer, is_same};
use crate::limits::{CLIENT_ID_BYTES_MAX, FRONT_BATCH_MAX};
use crate::mcp::envelope::{Id, Message, Params, look};
use crate::mcp::json;

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
    /// Requests come over a Unix socket, to which no page and no name of a host leads.
    is_socket: bool,
    tokens: Tokens,
    /// A longer body is refused.
    pub body_bytes_max: u64,
}

impl Gate {
    /// The gate of this port, which is known once it is bound; 0 for a socket.
    pub fn new(settings: &FrontSettings, port: u16) -> Self {
        let listens_at = settings.http.as_ref().and_then(FrontAddress::port);
        let mut callers = AllowedCallers::of_port(port);
        let is_socket = matches!(settings.http, Some(FrontAddress::Socket(_)));
        if let Some(mut address) = listens_at.filter(|address| !address.ip().is_unspecified()) {
            address.set_port(port);
            callers.own_hosts.push(address.to_string());
        }
        let tokens = Tokens::default();
        Self { callers, is_socket, tokens, body_bytes_max: 0 }.renewed(settings)
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
        let (is_socket, body_bytes_max) = (self.is_socket, settings.body_bytes_max);
        Self { callers, is_socket, tokens, body_bytes_max }
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
        let admitted = if self.is_socket { Ok(()) } else { self.callers.admit(head.caller) };
        admitted.map_err(|denied| {
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
            HttpRefusal::new(401, "a bearer token is needed, in the header `Authorization`")
        })?;
        self.tokens.number(given).map(Some).ok_or_else(HttpRefusal::unknown_token)
    }

    /// The name of a request's token, where it has one that is known.
    pub fn token_name(&self, authorization: Option<&str>) -> Option<String> {
        let number = self.tokens.number(bearer(authorization)?);
        number.and_then(|number| self.tokens.access(Some(number))).map(|access| access.name)
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

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// The numbers of all.
    pub(super) fn numbers(&self) -> impl Iterator<Item = usize> {
        self.all.iter().map(|(number, _)| *number)
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

/// What a POST brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostBody {
    /// A request that says everything about itself, and needs no session.
    Modern(Id),
    /// A notification of the modern era, which has no session and no recipient.
    Nothing,
    /// Opens a session.
    Initialize(Id),
    /// Messages of a session.
    Session {
        /// The requests among them.
        ids: Vec<Id>,
        /// How many there are.
        count: u32,
    },
}

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

impl PostBody {
    /// Looks at a body. What it is to the client: `line` is one line from then on.
    pub fn look(head: &Head<'_>, line: &mut [u8]) -> Result<Self, HttpRefusal> {
        // Its lines end between values: inside of one, a line end is escaped.
        json::flatten(line);
        let line = &*line;
        let header_is_modern = head.version.is_some_and(is_modern);
        // Servers may read something else in what is none, or end.
        if !json::is_valid(line) {
            let refusal = HttpRefusal::new(400, "the body is not JSON");
            return Err(HttpRefusal { code: PARSE_ERROR, ..refusal });
        }
        match look(line) {
            None => Err(HttpRefusal::new(400, "the body is no message of JSON-RPC")),
            Some(Message::Invalid { id }) => {
                Err(HttpRefusal::new(400, "the body is no request: it has no proper method or id")
                    .of(&id))
            }
            Some(Message::Request { id, method, params }) => {
                let version = params.version.clone().and_then(|at| json::text(&line[at]));
                // A client with a session is of the older era, unless it names a newer version.
                let is_ours = |version: &str| head.session.is_none() || is_modern(version);
                match version {
                    Some(version) if is_ours(&version) => {
                        let request =
                            ModernRequest { head, line, id: &id, method: &method, params: &params };
                        request.check(&version)?;
                        Ok(Self::Modern(id))
                    }
                    _ if header_is_modern => {
                        let what = "`_meta` has no `io.modelcontextprotocol/protocolVersion`";
                        Err(HttpRefusal::params(&id, what))
                    }
                    _ if method == "initialize" => Ok(Self::Initialize(id)),
                    _ => legacy(head, Some(&id)).map(|()| Self::one(vec![id])),
                }
            }
            Some(Message::Notification { .. }) if header_is_modern => Ok(Self::Nothing),
            Some(Message::Response { .. } | Message::Batch) if header_is_modern => {
                Err(HttpRefusal::new(400, "the body must be one request or notification"))
            }
            Some(Message::Notification { .. } | Message::Response { .. }) => {
                legacy(head, None).map(|()| Self::one(Vec::new()))
            }
            Some(Message::Batch) => {
                legacy(head, None)?;
                batch(line)
            }
        }
    }

    /// One message, with the request that it is where it is one.
    pub(super) fn one(ids: Vec<Id>) -> Self {
        Self::Session { ids, count: 1 }
    }

    /// How many messages it brings.
    pub(super) fn count(&self) -> u32 {
        match self {
            Self::Modern(_) | Self::Nothing | Self::Initialize(_) => 1,
            Self::Session { count, .. } => *count,
        }
    }
}

/// Whether the head is that of a message in a session.
fn legacy(head: &Head<'_>, id: Option<&Id>) -> Result<(), HttpRefusal> {
    let what = match head.version.filter(|version| !LEGACY.contains(version)) {
        Some(version) => {
            let known = LEGACY.join(", ");
            format!("`MCP-Protocol-Version: {version}` is not known; there is {known}")
        }
        None if head.session.is_none() => {
            "there is no `Mcp-Session-Id`; begin with `initialize`".to_owned()
        }
        None => return Ok(()),
    };
    Err(HttpRefusal { id: id.cloned(), ..HttpRefusal::new(400, what) })
}

/// A batch, with its requests.
fn batch(line: &[u8]) -> Result<PostBody, HttpRefusal> {
    let mut count = 0_usize;
    json::each_element(line, |_| count += 1);
    if count == 0 {
        return Err(HttpRefusal::new(400, "the batch is empty"));
    }
    if count > FRONT_BATCH_MAX {
        let what = format!("the batch has more than {FRONT_BATCH_MAX} messages; send less at once");
        return Err(HttpRefusal::new(413, what));
    }
    let elements = json::elements(line).unwrap_or_default();
    let count = u32::try_from(elements.len()).unwrap_or(u32::MAX);
    let mut ids = Vec::new();
    for element in elements {
        let what = match look(&line[element]) {
            Some(Message::Request { method, .. }) if method == "initialize" => {
                "`initialize` must not be in a batch"
            }
            Some(Message::Request { id, .. }) if id.raw().len() > CLIENT_ID_BYTES_MAX => {
                "the id of a request of the batch has more than 1024 bytes"
            }
            Some(Message::Request { id, .. }) if ids.contains(&id) => {
                "two requests of the batch have the same id"
            }
            Some(Message::Request { id, .. }) => {
                ids.push(id);
                continue;
            }
            Some(Message::Notification { .. } | Message::Response { .. }) => continue,
            Some(Message::Invalid { .. } | Message::Batch) | None => {
                "something in the batch is no message of JSON-RPC"
            }
        };
        return Err(HttpRefusal::new(400, what));
    }
    Ok(PostBody::Session { ids, count })
}

/// A request of the modern era.
struct ModernRequest<'a> {
    head: &'a Head<'a>,
    line: &'a [u8],
    id: &'a Id,
    method: &'a str,
    params: &'a Params,
}

impl ModernRequest<'_> {
    /// Headers must agree with the body, so that proxies can rely on them.
    fn check(&self, version: &str) -> Result<(), HttpRefusal> {
        self.agree("MCP-Protocol-Version", self.head.version.map(Cow::from), version)?;
        self.agree("Mcp-Method", self.head.mcp_method.map(Cow::from), self.method)?;
        let name = match self.method {
            "tools/call" | "prompts/get" => self.params.name.clone().map(|at| &self.line[at]),
            "resources/read" => json::get(self.line, &["params", "uri"]),
            _ => return self.check_meta(),
        };
        match (name.and_then(json::text), self.head.mcp_name) {
            (Some(name), given) => {
                let given = given.map(decoded).transpose().map_err(|()| {
                    HttpRefusal::mismatch(self.id, "`Mcp-Name` is no proper base64".to_owned())
                })?;
                self.agree("Mcp-Name", given, &name)?;
            }
            // The server reports a missing name.
            (None, None) => {}
            (None, Some(given)) => {
                let what =
                    format!("header mismatch: `Mcp-Name` is `{given}`, and the body has none");
                return Err(HttpRefusal::mismatch(self.id, what));
            }
        }
        self.check_meta()
    }

    fn agree(
        &self,
        name: &str,
        given: Option<Cow<'_, str>>,
        wanted: &str,
    ) -> Result<(), HttpRefusal> {
        let what = match given {
            Some(given) if given == wanted => return Ok(()),
            Some(given) => {
                format!("header mismatch: `{name}` is `{given}`, and the body has `{wanted}`")
            }
            None => format!("header mismatch: `{name}` is missing, and the body has `{wanted}`"),
        };
        Err(HttpRefusal::mismatch(self.id, what))
    }

    fn check_meta(&self) -> Result<(), HttpRefusal> {
        let meta = self.params.meta.clone().map(|at| &self.line[at]).unwrap_or_default();
        match json::get(meta, &[CAPABILITIES]) {
            Some(_) => Ok(()),
            None => Err(HttpRefusal::params(self.id, &format!("`_meta` has no `{CAPABILITIES}`"))),
        }
    }
}

/// The value of a header that may be encoded because it is no plain ASCII.
fn decoded(value: &str) -> Result<Cow<'_, str>, ()> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        None => Ok(Cow::from(value)),
        Some(encoded) => {
            let bytes = base64::decode(encoded.as_bytes()).ok_or(())?;
            String::from_utf8(bytes).map(Cow::from).map_err(|_| ())
        }
    }
}

#[cfg(test)]
mod tests;
