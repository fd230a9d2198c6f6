//! A client's session: how it begins, and what is remembered of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::access::Access;
use super::super::{ClientId, LinkId};
use super::link::Stage;
use super::{Hub, raw};
use crate::limits::GATEWAY_HELLO_WAIT;
use crate::mcp::Era;
use crate::mcp::envelope::{Id, Params};
use crate::mcp::responses;

/// The versions of the protocol that have sessions.
pub(super) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", NEWEST_LEGACY];

/// The newest of them.
pub(super) const NEWEST_LEGACY: &str = "2025-11-25";

/// The version that has none.
pub(super) const MODERN: &str = "2026-07-28";

/// What is known of a client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) access: Access,
    pub(super) era: Era,
    /// It has had the answer to its `initialize`, or is of an era that has none.
    pub(super) is_open: bool,
    /// It has begun to use its session: it can be asked.
    pub(super) is_ready: bool,
    /// The parameters of its `initialize`, raw, with the version that was agreed on.
    pub(super) opening: Option<Vec<u8>>,
    /// The `_meta` of its last request, raw, without what belongs to that request alone.
    pub(super) meta: Option<Vec<u8>>,
    pub(super) capabilities: Value,
    /// The least of a server's log that it wants, as a place in [`super::client_notifications::LEVELS`].
    pub(super) level: Option<usize>,
    /// The links that are its own, by their servers.
    pub(super) links: BTreeMap<usize, LinkId>,
    /// Its requests that are on their way, and the numbers that they go by.
    pub(super) flights: BTreeMap<Id, u64>,
    pub(super) subscribed: BTreeSet<String>,
    pub(super) listens: BTreeMap<Id, Filter>,
    /// Tools that it has found by a search.
    pub(super) revealed: BTreeSet<String>,
}

/// What a client listens to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// The lists, by the names that the filter has for them.
    pub(super) lists: BTreeSet<&'static str>,
    pub(super) uris: BTreeSet<String>,
}

impl Client {
    pub(super) fn new(access: Access) -> Self {
        Self {
            access,
            era: Era::Unknown,
            is_open: false,
            is_ready: false,
            opening: None,
            meta: None,
            capabilities: Value::Null,
            level: None,
            links: BTreeMap::new(),
            flights: BTreeMap::new(),
            subscribed: BTreeSet::new(),
            listens: BTreeMap::new(),
            revealed: BTreeSet::new(),
        }
    }

    pub(super) fn is_modern(&self) -> bool {
        self.era == Era::Modern
    }

    /// What it wants to hear of: the resources.
    pub(super) fn uris(&self) -> impl Iterator<Item = &String> {
        self.subscribed.iter().chain(self.listens.values().flat_map(|filter| &filter.uris))
    }
}

/// The `_meta` of our own requests, where no client stands for them.
pub(super) fn generic_meta(version: &str) -> Vec<u8> {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "afresh", "version": version},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
    .to_string()
    .into_bytes()
}

impl Hub {
    /// Notes which era a request is of. Says no to a version that nobody knows.
    pub(super) fn note_era(
        &mut self,
        client: ClientId,
        id: &Id,
        params: &Params,
        line: &[u8],
    ) -> bool {
        let Some(version) = params.version.clone() else { return true };
        let version = raw::text(&line[version]).unwrap_or_default();
        if version != MODERN {
            let data = json!({"supported": [MODERN], "requested": version});
            let message = format!("the version `{version}` of the protocol is not supported");
            let error = json!({"code": -32022, "message": message, "data": data});
            self.answer(client, id, responses::line(id, "error", &error));
            return false;
        }
        let Some(its) = self.clients.get_mut(&client) else { return false };
        if its.era != Era::Legacy {
            (its.era, its.is_open) = (Era::Modern, true);
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
            its.capabilities = meta["io.modelcontextprotocol/clientCapabilities"].clone();
            its.meta = Some(meta.to_string().into_bytes());
        }
        true
    }

    /// A client of the older protocol begins.
    pub(super) fn initialize(&mut self, client: ClientId, id: &Id, line: &[u8], is_late: bool) {
        let params: Value = raw::get(line, &["params"])
            .and_then(|raw| serde_json::from_slice(raw).ok())
            .unwrap_or(Value::Null);
        let asked = params["protocolVersion"].as_str().unwrap_or_default();
        let version = LEGACY.into_iter().find(|known| *known == asked).unwrap_or(NEWEST_LEGACY);
        let Some(its) = self.clients.get_mut(&client) else { return };
        its.era = Era::Legacy;
        its.capabilities = params["capabilities"].clone();
        let mut opening = match params {
            Value::Object(params) => params,
            _ => Map::new(),
        };
        opening.insert("protocolVersion".to_owned(), version.into());
        opening.entry("capabilities").or_insert_with(|| json!({}));
        its.opening = Some(Value::Object(opening).to_string().into_bytes());
        self.use_servers(client);
        if !is_late && self.waits(client, line, GATEWAY_HELLO_WAIT) {
            return;
        }
        if let Some(its) = self.clients.get_mut(&client) {
            its.is_open = true;
        }
        let mut result = json!({
            "protocolVersion": version,
            "capabilities": self.capabilities(client),
            "serverInfo": self.server_info(),
        });
        if let Some(instructions) = self.instructions(client) {
            result["instructions"] = instructions.into();
        }
        self.answer_result(client, id, result);
    }

    /// A client of the newer protocol asks what there is.
    pub(super) fn discover(&mut self, client: ClientId, id: &Id, line: &[u8], is_late: bool) {
        self.use_servers(client);
        if !is_late && self.waits(client, line, GATEWAY_HELLO_WAIT) {
            return;
        }
        let versions: Vec<&str> = [MODERN].into_iter().chain(LEGACY.into_iter().rev()).collect();
        let mut result = json!({
            "supportedVersions": versions,
            "capabilities": self.capabilities(client),
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": self.server_info()},
        });
        if let Some(instructions) = self.instructions(client) {
            result["instructions"] = instructions.into();
        }
        self.answer_result(client, id, result);
    }

    fn server_info(&self) -> Value {
        json!({"name": "afresh", "version": self.settings.version})
    }

    /// What all of a client's servers can do together. One that is not there yet may turn out to have
    /// anything.
    fn capabilities(&self, client: ClientId) -> Value {
        let links: Vec<_> =
            self.links_of(client).iter().filter_map(|link| self.links.get(link)).collect();
        let is_unknown = links.iter().any(|link| link.stage != Stage::Open);
        let has = |name: &str| links.iter().any(|link| link.capabilities[name].is_object());
        let is_modern = self.clients.get(&client).is_some_and(Client::is_modern);
        let mut all = Map::new();
        // There are tools of our own, or there may be some of a server's.
        all.insert("tools".to_owned(), json!({"listChanged": true}));
        if has("prompts") || is_unknown {
            all.insert("prompts".to_owned(), json!({"listChanged": true}));
        }
        if has("resources") || is_unknown {
            all.insert("resources".to_owned(), json!({"subscribe": true, "listChanged": true}));
        }
        if has("completions") || is_unknown {
            all.insert("completions".to_owned(), json!({}));
        }
        if has("logging") || is_unknown && !is_modern {
            all.insert("logging".to_owned(), json!({}));
        }
        // What only one server can mean, it may say for itself.
        if let [link] = &links[..]
            && let Value::Object(its) = &link.capabilities
        {
            for (name, value) in its {
                all.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        Value::Object(all)
    }

    fn instructions(&self, client: ClientId) -> Option<String> {
        let links = self.links_of(client);
        let mut parts = links.iter().filter_map(|link| {
            let link = self.links.get(link)?;
            Some((&self.servers[link.slot].backend.name, link.instructions.as_ref()?))
        });
        let (name, first) = parts.next()?;
        let mut text = match links.len() {
            1 => return Some(first.clone()),
            _ => format!("# {name}\n\n{first}"),
        };
        for (name, instructions) in parts {
            text.push_str(&format!("\n\n# {name}\n\n{instructions}"));
        }
        Some(text)
    }

    /// A client is gone: what it asked for is not wanted any more.
    pub(super) fn left(&mut self, client: ClientId) {
        let Some(its) = self.clients.remove(&client) else { return };
        self.held.retain(|held| held.client != client);
        for link in self.links.values_mut() {
            link.waiting.retain(|(whose, _)| *whose != client);
        }
        for number in its.flights.values() {
            self.withdraw(*number, "the client is gone");
        }
        let asked: Vec<u64> = self
            .asked
            .iter()
            .filter(|(_, asked)| asked.client == client)
            .map(|(number, _)| *number)
            .collect();
        for number in asked {
            self.refuse(number, "the client is gone");
        }
        let links: Vec<LinkId> = its.links.values().copied().collect();
        for link in links {
            self.close(link, "its client is gone");
        }
        self.ask_again();
        if its.uris().next().is_some() {
            for link in self.links.keys().copied().collect::<Vec<_>>() {
                self.sync_subscriptions(link);
            }
        }
        if its.level.is_some() {
            for link in self.links.keys().copied().collect::<Vec<_>>() {
                self.set_level(link);
            }
        }
    }
}
