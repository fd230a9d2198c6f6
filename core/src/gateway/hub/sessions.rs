//! Owns the sessions of the clients: the protocol that each speaks, its capabilities and its requests in flight.
//! Changed by clients' messages, through the hub. Never knows a server.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::outgoing::Outgoing;
use super::route_request::Request;
use super::subscriptions::Subscriptions;
use crate::gateway::access::Access;
use crate::gateway::{ClientId, LinkId};
use crate::mcp::envelope::Id;
use crate::mcp::{Era, Kind, json as raw, responses};

/// The versions of the protocol that have sessions.
pub(super) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", NEWEST_LEGACY];

/// The newest of them.
pub(super) const NEWEST_LEGACY: &str = "2025-11-25";

/// The version that has none.
pub(super) const MODERN: &str = "2026-07-28";

/// The sessions of all clients.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    sessions: BTreeMap<ClientId, ClientSession>,
}

/// One client.
#[derive(Debug, Default)]
pub(super) struct ClientSession {
    access: Access,
    era: Era,
    /// It has the response to its `initialize`, or speaks a protocol that has none.
    is_open: bool,
    /// It has begun to use its session: servers' requests can be passed to it.
    is_ready: bool,
    /// The parameters of its `initialize`, raw, with the version that was agreed on.
    opening: Option<Vec<u8>>,
    /// The `_meta` of its last request, raw, without what belongs to that request alone.
    meta: Option<Vec<u8>>,
    capabilities: Value,
    /// The lowest level of log messages that it wants, as an index of [`LEVELS`](super::log_levels::LEVELS).
    pub(super) log_level: Option<usize>,
    /// The links that are its own, by their servers.
    pub(super) links: BTreeMap<usize, LinkId>,
    /// Its requests in flight, and the numbers that they go by.
    pub(super) requests: BTreeMap<Id, u64>,
    pub(super) subscriptions: Subscriptions,
    /// Tools that it has found by a search.
    revealed: BTreeSet<String>,
}

impl Sessions {
    pub(super) fn join(&mut self, client: ClientId, access: Access) {
        self.sessions.insert(client, ClientSession::new(access));
    }

    pub(super) fn remove(&mut self, client: ClientId) -> Option<ClientSession> {
        self.sessions.remove(&client)
    }

    pub(super) fn get(&self, client: ClientId) -> Option<&ClientSession> {
        self.sessions.get(&client)
    }

    pub(super) fn get_mut(&mut self, client: ClientId) -> Option<&mut ClientSession> {
        self.sessions.get_mut(&client)
    }

    pub(super) fn ids(&self) -> Vec<ClientId> {
        self.sessions.keys().copied().collect()
    }

    /// The clients that have the response to their first request.
    pub(super) fn open(&self) -> impl Iterator<Item = ClientId> {
        self.sessions.iter().filter(|(_, session)| session.is_open).map(|(id, _)| *id)
    }

    pub(super) fn is_modern(&self, client: ClientId) -> bool {
        self.get(client).is_some_and(ClientSession::is_modern)
    }

    /// A client's request has its response.
    pub(super) fn end_request(&mut self, client: ClientId, id: &Id) {
        if let Some(session) = self.get_mut(client) {
            session.requests.remove(id);
        }
    }

    pub(super) fn answer_result(
        &self,
        client: ClientId,
        id: &Id,
        mut result: Value,
        out: &mut Outgoing,
    ) {
        if self.is_modern(client) {
            result["resultType"] = Value::from("complete");
        }
        out.answer(client, id, responses::line(id, "result", &result));
    }

    /// Answers in a server's place that a request failed: as a tool's result, which the model gets to see, or as
    /// an error.
    pub(super) fn answer_failure(
        &self,
        client: ClientId,
        id: &Id,
        method: &str,
        reason: &str,
        why: &str,
        out: &mut Outgoing,
    ) {
        if method == "tools/call" {
            return self.answer_tool(client, id, ToolResult::error(why), out);
        }
        let data = json!({"reason": reason, "retryable": true});
        let error = json!({"code": -32603, "message": why, "data": data});
        out.answer(client, id, responses::line(id, "error", &error));
    }

    /// Answers a call of a tool.
    pub(super) fn answer_tool(
        &self,
        client: ClientId,
        id: &Id,
        result: ToolResult,
        out: &mut Outgoing,
    ) {
        let ToolResult { text, data, is_error } = result;
        let mut result = json!({"content": [{"type": "text", "text": text}], "isError": is_error});
        if let Some(data) = data {
            result["structuredContent"] = data;
        }
        self.answer_result(client, id, result, out);
    }

    /// Tells one client that a list has changed for it.
    pub(super) fn notify_list_changed(&self, client: ClientId, kind: Kind, out: &mut Outgoing) {
        let Some(session) = self.get(client) else { return };
        let lines = match session.is_modern() {
            true => session.subscriptions.list_changes(kind),
            false => vec![(responses::notification(kind.notification(), None), None)],
        };
        for (line, about) in lines {
            out.send_to_client(client, line, about);
        }
    }
}

/// The result of a tool of the gateway's own.
pub(super) struct ToolResult {
    pub(super) text: String,
    pub(super) data: Option<Value>,
    pub(super) is_error: bool,
}

impl ToolResult {
    pub(super) fn error(text: &str) -> Self {
        Self { text: text.to_owned(), data: None, is_error: true }
    }
}

impl ClientSession {
    fn new(access: Access) -> Self {
        Self { access, ..Self::default() }
    }

    pub(super) const fn access(&self) -> &Access {
        &self.access
    }

    pub(super) fn is_modern(&self) -> bool {
        self.era == Era::Modern
    }

    /// Whether it has sent a request.
    pub(super) fn has_begun(&self) -> bool {
        self.era != Era::Unknown
    }

    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    pub(super) const fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// It has begun to use its session; returns whether that is new.
    pub(super) fn set_ready(&mut self) -> bool {
        !std::mem::replace(&mut self.is_ready, true)
    }

    /// The parameters of its `initialize`, raw.
    pub(super) fn opening(&self) -> Option<&[u8]> {
        self.opening.as_deref()
    }

    /// The `_meta` that describes it, raw.
    pub(super) fn meta(&self) -> Option<&[u8]> {
        self.meta.as_deref()
    }

    /// The version of the protocol that it speaks.
    pub(super) fn version(&self) -> Option<String> {
        match self.is_modern() {
            true => Some(MODERN.to_owned()),
            false => raw::get(self.opening()?, &["protocolVersion"]).and_then(raw::text),
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
        let meta = params.meta.clone().and_then(|meta| {
            let all: Map<String, Value> = serde_json::from_slice(&line[meta]).ok()?;
            let lasts = |(key, _): &(String, Value)| {
                let keys = ["protocolVersion", "clientInfo", "clientCapabilities"];
                let name = key.strip_prefix("io.modelcontextprotocol/");
                name.is_some_and(|name| keys.contains(&name))
            };
            Some(Value::Object(all.into_iter().filter(lasts).collect()))
        });
        if let Some(meta) = meta {
            self.capabilities = meta["io.modelcontextprotocol/clientCapabilities"].clone();
            self.meta = Some(meta.to_string().into_bytes());
        }
        Ok(())
    }

    /// Takes the parameters of `initialize`, and agrees on a version.
    pub(super) fn initialize(&mut self, line: &[u8]) {
        let params: Value = raw::get(line, &["params"])
            .and_then(|raw| serde_json::from_slice(raw).ok())
            .unwrap_or(Value::Null);
        let wanted = params["protocolVersion"].as_str().unwrap_or_default();
        let version = LEGACY.into_iter().find(|known| *known == wanted).unwrap_or(NEWEST_LEGACY);
        self.era = Era::Legacy;
        self.capabilities = params["capabilities"].clone();
        let mut opening = match params {
            Value::Object(params) => params,
            _ => Map::new(),
        };
        opening.insert("protocolVersion".to_owned(), version.into());
        opening.entry("capabilities").or_insert_with(|| json!({}));
        self.opening = Some(Value::Object(opening).to_string().into_bytes());
    }

    /// Its `initialize` is being answered.
    pub(super) fn set_open(&mut self) {
        self.is_open = true;
    }

    /// Whether a server's request can be passed to it. The newer protocol has none.
    pub(super) fn can_answer(&self, method: &str) -> bool {
        let capability = match method {
            "sampling/createMessage" => "sampling",
            "elicitation/create" => "elicitation",
            "roots/list" => "roots",
            _ => return self.is_open && !self.is_modern(),
        };
        self.is_open && !self.is_modern() && self.capabilities[capability].is_object()
    }

    /// Shows these tools in its list from now on; returns whether one of them is new.
    pub(super) fn reveal(&mut self, names: Vec<String>) -> bool {
        let before = self.revealed.len();
        self.revealed.extend(names);
        self.revealed.len() > before
    }

    pub(super) fn is_revealed(&self, name: &str) -> bool {
        self.revealed.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_version_gets_the_newest_with_sessions() {
        for (wanted, agreed) in [("2025-03-26", "2025-03-26"), ("1999-01-01", NEWEST_LEGACY)] {
            let mut session = ClientSession::new(Access::default());
            let params = json!({"protocolVersion": wanted, "capabilities": {"roots": {}}});
            session.initialize(json!({"params": params}).to_string().as_bytes());
            assert_eq!(session.version().as_deref(), Some(agreed));
            assert!(!session.can_answer("roots/list"), "it has no response yet");
            session.set_open();
            assert!(session.can_answer("roots/list") && !session.can_answer("elicitation/create"));
        }
    }

    #[test]
    fn a_tool_is_revealed_once() {
        let mut session = ClientSession::new(Access::default());
        assert!(session.reveal(vec!["a".to_owned()]));
        assert!(!session.reveal(vec!["a".to_owned()]));
        assert!(session.is_revealed("a") && !session.is_revealed("b"));
    }
}
