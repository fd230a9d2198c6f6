//! Classifies the body of a POST, and checks that it agrees with the headers. Driven by the daemon once a body is
//! received. Keeps no state.

use std::borrow::Cow;

use super::admission::{Head, LEGACY, is_modern};
use super::{HttpRefusal, PARSE_ERROR};
use crate::base64;
use crate::limits::FRONT_BATCH_MAX;
use crate::mcp::envelope::{Id, Message, Params, look};
use crate::mcp::json;

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
        match look(line) {
            None if serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok() => {
                Err(HttpRefusal::new(400, "the body is no message of JSON-RPC"))
            }
            None => {
                let refusal = HttpRefusal::new(400, "the body is not JSON");
                Err(HttpRefusal { code: PARSE_ERROR, ..refusal })
            }
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
    let refused = |message: String| {
        let refusal = HttpRefusal::new(400, message);
        Err(match id {
            Some(id) => refusal.of(id),
            None => refusal,
        })
    };
    if let Some(version) = head.version.filter(|version| !LEGACY.contains(version)) {
        let known = LEGACY.join(", ");
        return refused(format!(
            "`MCP-Protocol-Version: {version}` is not known; there is {known}"
        ));
    }
    if head.session.is_none() {
        return refused("there is no `Mcp-Session-Id`; begin with `initialize`".to_owned());
    }
    Ok(())
}

/// A batch, with its requests.
fn batch(line: &[u8]) -> Result<PostBody, HttpRefusal> {
    let elements = json::elements(line).unwrap_or_default();
    if elements.is_empty() {
        return Err(HttpRefusal::new(400, "the batch is empty"));
    }
    if elements.len() > FRONT_BATCH_MAX {
        let what = format!("the batch has more than {FRONT_BATCH_MAX} messages; send less at once");
        return Err(HttpRefusal::new(413, what));
    }
    let count = u32::try_from(elements.len()).unwrap_or(u32::MAX);
    let mut ids = Vec::new();
    for element in elements {
        match look(&line[element]) {
            Some(Message::Request { method, .. }) if method == "initialize" => {
                return Err(HttpRefusal::new(400, "`initialize` must not be in a batch"));
            }
            Some(Message::Request { id, .. }) if ids.contains(&id) => {
                return Err(HttpRefusal::new(400, "two requests of the batch have the same id"));
            }
            Some(Message::Request { id, .. }) => ids.push(id),
            Some(Message::Invalid { .. } | Message::Batch) | None => {
                return Err(HttpRefusal::new(
                    400,
                    "something in the batch is no message of JSON-RPC",
                ));
            }
            Some(Message::Notification { .. } | Message::Response { .. }) => {}
        }
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
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_as_the_specification_has_it() {
        for (text, value) in [
            ("SGVsbG8sIOS4lueVjA==", "Hello, 世界"),
            ("IHBhZGRlZCA=", " padded "),
            ("bGluZTEKbGluZTI=", "line1\nline2"),
            ("PT9iYXNlNjQ/bGl0ZXJhbD89", "=?base64?literal?="),
            ("", ""),
        ] {
            assert_eq!(decoded(&format!("=?base64?{text}?=")).unwrap(), value);
        }
        for bad in
            ["a", "ab", "abc", "a===", "ab=c", "a b=", "QQ=", "QR==", "=", "====", "/////w=="]
        {
            assert!(decoded(&format!("=?base64?{bad}?=")).is_err(), "{bad}");
        }
        assert_eq!(decoded("=?BASE64?QQ==?=").unwrap(), "=?BASE64?QQ==?=");
    }
}
