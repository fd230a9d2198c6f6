//! Owns the session of a client: the protocol that it speaks, its capabilities, its requests in flight, and the
//! resources, lists and log messages that it wants to hear of. Changed by the client's messages, through the hub. Never
//! talks to a server.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::hub_state::Directory;
use super::route_request::Request;
use crate::audit::Actor;
use crate::gateway::access_patterns::Access;
use crate::gateway::{ClientId, LinkId};
use crate::limits::{
    CATALOG_NAME_CHARS_MAX, CLIENT_INTRODUCTION_BYTES_MAX, CLIENT_LISTENS_MAX,
    CLIENT_NAME_CHARS_MAX, CLIENT_SUBSCRIPTIONS_BYTES_MAX, CLIENT_SUBSCRIPTIONS_MAX,
    GATEWAY_SESSION_IDLE,
};
use crate::mcp::envelope::{Id, param};
use crate::mcp::replay::{client_name, listener_params};
use crate::mcp::{AdminTool, Era, Kind, json as raw, responses};
use crate::time::Time;

/// The versions of the protocol that have sessions.
pub(super) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", NEWEST_LEGACY];

/// The newest of them.
pub(super) const NEWEST_LEGACY: &str = "2025-11-25";

/// The version that has none.
pub(super) const MODERN: &str = "2026-07-28";

/// Who a client is. Over HTTP, each request of the newer protocol is a client of its own, and what has to last longer
/// belongs to the one behind them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Principal {
    /// A connection, or a session.
    Session(ClientId),
    /// Requests without a session: those of one token from clients of one name.
    Named {
        /// The name of the token; empty where there is none.
        token: String,
        /// What the client calls itself; empty where it does not say.
        client: String,
    },
}

impl Principal {
    /// Whether it is gone; one without a session, where it was not there for a while.
    pub(super) fn has_left(&self, directory: &Directory, used_at: Time) -> bool {
        match self {
            Self::Session(client) => !directory.sessions.contains_key(client),
            Self::Named { .. } => used_at + GATEWAY_SESSION_IDLE <= directory.out.now,
        }
    }

    /// Whether it can be told from others.
    pub(super) fn is_known(&self) -> bool {
        match self {
            Self::Session(_) => true,
            Self::Named { token, client } => !(token.is_empty() && client.is_empty()),
        }
    }
}

/// The questions that a server may ask, each with the capability of a client that can answer it.
const QUESTIONS: [(&str, &str); 3] = [
    ("sampling/createMessage", "sampling"),
    ("elicitation/create", "elicitation"),
    ("roots/list", "roots"),
];

/// One client.
#[derive(Debug, Default)]
pub(super) struct ClientSession {
    pub(super) access: Access,
    pub(super) era: Era,
    /// It has the response to its `initialize`, or speaks a protocol that has none.
    pub(super) is_open: bool,
    /// It has begun to use its session: servers' requests can be passed to it.
    pub(super) is_ready: bool,
    /// The parameters of its `initialize`, raw, with the version that was agreed on.
    pub(super) opening: Option<Vec<u8>>,
    /// The `_meta` of its last request, raw, without what belongs to that request alone.
    pub(super) meta: Option<Vec<u8>>,
    /// The lowest level of log messages that it wants, as an index of [`LEVELS`].
    pub(super) log_level: Option<usize>,
    /// The links that are its own, by their servers.
    pub(super) links: BTreeMap<usize, LinkId>,
    /// Its requests in flight, and the numbers that they go by.
    pub(super) requests: BTreeMap<Id, u64>,
    pub(super) subscriptions: Subscriptions,
    /// The server whose MCP App it has read last.
    pub(super) app: Option<usize>,
    /// Tools that it has found by a search.
    pub(super) revealed: BTreeSet<String>,
}

impl ClientSession {
    pub(super) fn new(access: Access) -> Self {
        Self { access, ..Self::default() }
    }

    pub(super) fn is_modern(&self) -> bool {
        self.era == Era::Modern
    }

    /// Whether it has sent a request.
    pub(super) fn has_begun(&self) -> bool {
        self.era != Era::Unknown
    }

    /// The version of the protocol that it speaks.
    pub(super) fn version(&self) -> Option<String> {
        match self.is_modern() {
            true => Some(MODERN.to_owned()),
            false => raw::get(self.opening.as_deref()?, &["protocolVersion"]).and_then(raw::text),
        }
    }

    /// The client as the caller of a tool of ours, for the trail.
    pub(super) fn caller_of(&self, tool: AdminTool) -> Actor {
        Actor::Client {
            name: client_name(self.opening.as_deref(), self.meta.as_deref()),
            token: Some(self.access.name.clone()).filter(|name| !name.is_empty()),
            tool: tool.name(),
        }
    }

    /// Notes the version that a request of the newer protocol names; returns the error where it is unknown.
    pub(super) fn note_version(&mut self, request: &Request<'_>) -> Result<(), Value> {
        let Request { params, line, .. } = request;
        let Some(version) = params.version.clone() else { return Ok(()) };
        let version = raw::text(&line[version]).unwrap_or_default();
        if version != MODERN {
            let data = json!({"supported": [MODERN], "requested": version});
            let message = format!("the version `{version}` of the protocol is not supported");
            return Err(json!({"code": -32022, "message": message, "data": data}));
        }
        if self.era != Era::Legacy {
            (self.era, self.is_open) = (Era::Modern, true);
        }
        if let Some(meta) = params.meta.clone() {
            let lasting = LASTING.map(|key| (key, raw::get(&line[meta.clone()], &[key])));
            let bytes = lasting.iter().filter_map(|(_, value)| *value).map(<[u8]>::len).sum();
            if let Some(message) = too_long("what `_meta` says of the client", bytes) {
                return Err(json!({"code": -32602, "message": message}));
            }
            let pair = |(key, value): (&str, Option<&[u8]>)| {
                Some([b"\"", key.as_bytes(), b"\":", value?].concat())
            };
            let pairs: Vec<Vec<u8>> = lasting.into_iter().filter_map(pair).collect();
            self.meta = Some([b"{", pairs.join(&b',').as_slice(), b"}"].concat());
        }
        Ok(())
    }

    /// Takes an `initialize`. Says why where there is too much of it.
    pub(super) fn initialize(&mut self, line: &[u8]) -> Result<(), String> {
        self.begin(raw::get(line, &["params"]).unwrap_or_default())
    }

    /// Takes the parameters of `initialize`, and agrees on a version. Says why where there is too much of them: each
    /// session keeps its own.
    pub(super) fn begin(&mut self, params: &[u8]) -> Result<(), String> {
        if let Some(why) = too_long("the parameters of `initialize`", params.len()) {
            return Err(why);
        }
        let params = raw::value(Some(params));
        let wanted = params["protocolVersion"].as_str().unwrap_or_default();
        let version = LEGACY.into_iter().find(|known| *known == wanted).unwrap_or(NEWEST_LEGACY);
        self.era = Era::Legacy;
        let mut opening = match params {
            Value::Object(params) => params,
            _ => Map::new(),
        };
        opening.insert("protocolVersion".to_owned(), version.into());
        opening.entry("capabilities").or_insert_with(|| json!({}));
        self.opening = Some(Value::Object(opening).to_string().into_bytes());
        Ok(())
    }

    /// Has all that its client got in a gateway before: it is open at once, also while its servers start. False where the
    /// parameters are refused.
    pub(super) fn resume(&mut self, params: &[u8]) -> bool {
        // The id of a session has less of them than is refused.
        self.is_open = self.begin(params).is_ok();
        self.is_open
    }

    /// Whether it has said that it has this capability.
    fn has_capability(&self, name: &str) -> bool {
        let value = match self.is_modern() {
            true => raw::get(self.meta.as_deref().unwrap_or_default(), &[CAPABILITIES_KEY, name]),
            false => raw::get(self.opening.as_deref().unwrap_or_default(), &["capabilities", name]),
        };
        value.is_some_and(|value| value.starts_with(b"{"))
    }

    /// Whether a server's request can be passed to it. The newer protocol has none.
    pub(super) fn can_answer(&self, method: &str) -> bool {
        let has =
            |(name, capability): &(&str, &str)| *name != method || self.has_capability(capability);
        self.is_open && !self.is_modern() && QUESTIONS.iter().all(has)
    }

    /// The questions that it can be asked by the result of a call; only in the newer protocol.
    pub(super) fn inputs(&self) -> Vec<&'static str> {
        let has =
            |(_, capability): &&(&str, &str)| self.is_modern() && self.has_capability(capability);
        QUESTIONS.iter().filter(has).map(|(method, _)| *method).collect()
    }

    /// The one behind the requests of a client without a session.
    pub(super) fn named(&self) -> Principal {
        let client = client_name(None, self.meta.as_deref()).unwrap_or_default();
        let client = client.chars().take(CLIENT_NAME_CHARS_MAX).collect();
        Principal::Named { token: self.access.name.clone(), client }
    }

    /// The parameters of `initialize` for an older server that is for this client of the newer protocol alone.
    pub(super) fn opening_of_meta(&self) -> Option<Vec<u8>> {
        let meta = raw::value(Some(self.meta.as_deref()?));
        let mut capabilities = meta[CAPABILITIES_KEY].clone();
        if capabilities["roots"].is_object() {
            // The gateway tells it when it has others.
            capabilities["roots"]["listChanged"] = true.into();
        }
        let opening = json!({
            "protocolVersion": NEWEST_LEGACY,
            "capabilities": capabilities,
            "clientInfo": meta["io.modelcontextprotocol/clientInfo"],
        });
        Some(opening.to_string().into_bytes()).filter(|_| opening["clientInfo"].is_object())
    }

    /// Shows these tools in its list from now on; returns whether one of them is new.
    pub(super) fn reveal(&mut self, names: Vec<String>) -> bool {
        let before = self.revealed.len();
        self.revealed.extend(names);
        self.revealed.len() > before
    }
}

const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

/// The members of `_meta` by which a client says in each request who it is.
const LASTING: [&str; 3] = [
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientInfo",
    CAPABILITIES_KEY,
];

/// Why a client may not say so much of itself; none where it may.
fn too_long(what: &str, bytes: usize) -> Option<String> {
    (bytes > CLIENT_INTRODUCTION_BYTES_MAX).then(|| {
        format!("{what}: {bytes} bytes came, and at most {CLIENT_INTRODUCTION_BYTES_MAX} are taken")
    })
}

/// A client's subscriptions, of both protocols.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    /// By `resources/subscribe`.
    pub(super) resources: BTreeSet<String>,
    /// By `subscriptions/listen`: the ids of the requests, each with its filter.
    pub(super) listeners: BTreeMap<Id, ListenFilter>,
}

/// The changes that a listener is told of.
#[derive(Debug)]
pub(super) struct ListenFilter {
    /// The lists, by the names that the filter has for them.
    lists: BTreeSet<&'static str>,
    resources: BTreeSet<String>,
}

impl Subscriptions {
    /// All resources.
    pub(super) fn uris(&self) -> impl Iterator<Item = &String> {
        self.resources.iter().chain(self.listeners.values().flat_map(|filter| &filter.resources))
    }

    /// Why one more resource cannot be subscribed to; none where it can.
    pub(super) fn refusal_of(&self, uri: &str) -> Option<String> {
        if uri.chars().count() > CATALOG_NAME_CHARS_MAX {
            return Some(format!("the URI has more than {CATALOG_NAME_CHARS_MAX} characters"));
        }
        let is_full = self.resources.len() >= CLIENT_SUBSCRIPTIONS_MAX
            || self.bytes() + uri.len() > CLIENT_SUBSCRIPTIONS_BYTES_MAX;
        (is_full && !self.resources.contains(uri)).then(|| {
            format!(
                "no more than {CLIENT_SUBSCRIPTIONS_MAX} resources can be subscribed to, with {CLIENT_SUBSCRIPTIONS_BYTES_MAX} bytes of URIs together"
            )
        })
    }

    fn bytes(&self) -> usize {
        self.uris().map(String::len).sum()
    }

    /// Adds a listener; says why it is refused.
    pub(super) fn listen(&mut self, id: &Id, filter: &Value) -> Result<(), String> {
        let lists = [Kind::Tools, Kind::Prompts, Kind::Resources].map(Kind::filter);
        let uris = filter["resourceSubscriptions"].as_array().into_iter().flatten();
        let filter = ListenFilter {
            lists: lists.into_iter().filter(|name| filter[*name] == true).collect(),
            resources: uris.filter_map(|uri| uri.as_str().map(str::to_owned)).collect(),
        };
        if self.listeners.len() >= CLIENT_LISTENS_MAX
            || filter.resources.len() > CLIENT_SUBSCRIPTIONS_MAX
            || self.bytes() + filter.resources.iter().map(String::len).sum::<usize>()
                > CLIENT_SUBSCRIPTIONS_BYTES_MAX
        {
            return Err(format!(
                "no more than {CLIENT_LISTENS_MAX} streams and {CLIENT_SUBSCRIPTIONS_MAX} resources, with \
                 {CLIENT_SUBSCRIPTIONS_BYTES_MAX} bytes of URIs together"
            ));
        }
        self.listeners.insert(id.clone(), filter);
        Ok(())
    }

    /// The notification that a resource has changed, once for each way in which the client subscribed to it.
    /// `members` are those of its parameters.
    pub(super) fn updates(&self, uri: &str, members: &[u8]) -> Vec<(Vec<u8>, Option<Id>)> {
        let method = "notifications/resources/updated";
        let mut lines = Vec::new();
        if self.resources.contains(uri) {
            let params = [b"{", members, b"}"].concat();
            lines.push((responses::notification(method, Some(&params)), None));
        }
        let listeners = self.listeners.iter().filter(|(_, filter)| filter.resources.contains(uri));
        let line = |id: &Id| responses::notification(method, Some(&listener_params(id, members)));
        lines.extend(listeners.map(|(id, _)| (line(id), Some(id.clone()))));
        lines
    }

    /// The notification that a list has changed, for each listener that asked for it.
    pub(super) fn list_changes(&self, kind: Kind) -> Vec<(Vec<u8>, Option<Id>)> {
        let asks = |filter: &ListenFilter| filter.lists.contains(kind.filter());
        let listeners = self.listeners.iter().filter(|(_, filter)| asks(filter));
        let method = kind.notification();
        let line = |id: &Id| responses::notification(method, Some(&listener_params(id, b"")));
        listeners.map(|(id, _)| (line(id), Some(id.clone()))).collect()
    }
}

/// The levels, from the least severe.
pub(super) const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// The index of `info`.
pub(super) const INFO: usize = 1;

/// The level that a message names at this place of its parameters, as an index of [`LEVELS`].
pub(super) fn level_in(line: &[u8], path: &[&str]) -> Option<usize> {
    let level = param(line, path).and_then(raw::text)?;
    LEVELS.iter().position(|name| *name == level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_version_gets_the_newest_with_sessions() {
        for (wanted, agreed) in [("2025-03-26", "2025-03-26"), ("1999-01-01", NEWEST_LEGACY)] {
            let mut session = ClientSession::new(Access::default());
            let params = json!({"protocolVersion": wanted, "capabilities": {"roots": {}}});
            session.initialize(json!({"params": params}).to_string().as_bytes()).unwrap();
            assert_eq!(session.version().as_deref(), Some(agreed));
            assert!(!session.can_answer("roots/list"), "it has no response yet");
            session.is_open = true;
            assert!(session.can_answer("roots/list") && !session.can_answer("elicitation/create"));
        }
    }

    #[test]
    fn a_client_that_says_too_much_of_itself_is_refused() {
        let params = |length: usize| {
            let long = "x".repeat(length);
            json!({"params": {"capabilities": {"experimental": {"a": long}}}}).to_string()
        };
        let mut session = ClientSession::new(Access::default());
        let why = session.initialize(params(CLIENT_INTRODUCTION_BYTES_MAX).as_bytes());
        assert!(why.is_err_and(|why| why.contains("at most 16384 are taken")));
        assert_eq!(session.opening, None, "nothing of it is kept");
        let short = params(CLIENT_INTRODUCTION_BYTES_MAX / 2);
        assert_eq!(session.initialize(short.as_bytes()), Ok(()));
    }

    #[test]
    fn a_tool_is_revealed_once() {
        let mut session = ClientSession::new(Access::default());
        assert!(session.reveal(vec!["a".to_owned()]));
        assert!(!session.reveal(vec!["a".to_owned()]));
        assert!(session.revealed.contains("a") && !session.revealed.contains("b"));
    }
}

#[cfg(test)]
mod subscription_tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_is_told_once_for_each_subscription() {
        let mut all = Subscriptions::default();
        all.resources.insert("x://a".to_owned());
        let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["x://a", "x://b"]});
        assert_eq!(all.listen(&Id::new(b"5"), &filter), Ok(()));
        let about = |lines: Vec<(Vec<u8>, Option<Id>)>| -> Vec<Option<Id>> {
            lines.into_iter().map(|(_, about)| about).collect()
        };
        assert_eq!(about(all.updates("x://a", b"")), [None, Some(Id::new(b"5"))]);
        assert_eq!(about(all.updates("x://b", b"")), [Some(Id::new(b"5"))]);
        assert_eq!(about(all.list_changes(Kind::Tools)), [Some(Id::new(b"5"))]);
        assert_eq!(about(all.list_changes(Kind::Prompts)), []);
        assert!(all.listeners.remove(&Id::new(b"5")).is_some());
        assert_eq!(all.uris().count(), 1);
    }
}
