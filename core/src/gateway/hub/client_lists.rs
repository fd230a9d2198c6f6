//! Read-only queries for one client: the servers and links that it uses, and the tools, prompts and resources that
//! it may use. Made by [`Directory::client`](super::hub_state::Directory::client) for each request. Never changes
//! anything.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::backends::Backends;
use super::link::Link;
use super::name_index::Names;
use super::route_request::Request;
use super::sessions::{ClientSession, LEGACY, MODERN};
use crate::gateway::LinkId;
use crate::gateway::backend::Expose;
use crate::gateway::catalog::{self, CatalogEntry};
use crate::gateway::exposed_names;
use crate::limits::{PAGE_BYTES_MAX, PAGE_ENTRIES_MAX};
use crate::mcp::envelope::{Id, param};
use crate::mcp::{Era, Kind, json as raw, responses, tasks};
use crate::time::Time;

/// What the URIs of MCP Apps begin with.
pub(super) const APP_SCHEME: &str = "ui://";

/// What one client may see and use.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientView<'a> {
    pub(super) session: &'a ClientSession,
    pub(super) backends: &'a Backends,
    pub(super) names: &'a Names,
}

/// The server that a request is for, and the part of the request that the server has another name for.
pub(super) type Route = (usize, Option<(Range<usize>, String)>);

impl<'a> ClientView<'a> {
    /// The servers that it may use, in the order of the configuration.
    pub(super) fn slots(self) -> impl Iterator<Item = usize> {
        self.backends.order.iter().copied().filter(move |slot| self.has_server(*slot))
    }

    /// Whether a server is in the configuration, and it may use it.
    pub(super) fn has_server(self, slot: usize) -> bool {
        !self.backends.slots[slot].is_removed && self.may_use_server(slot)
    }

    /// Whether it may use a server, in the configuration or not.
    pub(super) fn may_use_server(self, slot: usize) -> bool {
        let backend = &self.backends.slots[slot].backend;
        self.session.access.has_server(&backend.name, &exposed_names::prefix(backend))
    }

    /// The servers whose entries of a kind it may use.
    fn slots_with(self, kind: Kind) -> impl Iterator<Item = usize> {
        self.slots().filter(move |slot| self.may_see(*slot, kind))
    }

    /// Whether it may use entries of a kind of a server that it may use. Where its access is a list of tools
    /// alone, it may use all else of a server that has one of these tools.
    pub(super) fn may_see(self, slot: usize, kind: Kind) -> bool {
        let access = &self.session.access;
        let mut tools = self.backends.slots[slot].known(Kind::Tools).iter();
        kind == Kind::Tools
            || !access.is_by_tools()
            || tools.any(|tool| access.has_tool(&tool.exposed))
    }

    /// Its link to a server, where there is one.
    pub(super) fn link_to(self, slot: usize) -> Option<LinkId> {
        self.backends.link_to(slot, self.session)
    }

    fn link(self, slot: usize) -> Option<&'a Link> {
        self.backends.links.get(self.link_to(slot)?)
    }

    fn links(self) -> impl Iterator<Item = &'a Link> {
        self.slots().filter_map(move |slot| self.link(slot))
    }

    /// Until when a request waits for servers whose lists are still being read, each for so long.
    pub(super) fn settles_at(self, within: Duration, now: Time) -> Option<Time> {
        self.links().filter_map(|link| link.settles_at(within)).filter(|at| *at > now).max()
    }

    /// A list of a server, as far as it is known.
    pub(super) fn entries(self, slot: usize, kind: Kind) -> &'a [CatalogEntry] {
        let server = &self.backends.slots[slot];
        let link = self.link(slot);
        if server.backend.hide_when_down && link.is_some_and(|link| !link.is_up()) {
            return &[];
        }
        let read = link.and_then(|link| link.lists.complete.get(&kind));
        read.map_or_else(|| server.known(kind), Vec::as_slice)
    }

    /// The names of servers that are still starting, or whose lists are being read.
    pub(super) fn starting(self) -> Vec<&'a str> {
        let is_starting = |slot: &usize| {
            self.link(*slot).is_some_and(|link| link.settles_at(Duration::ZERO).is_some())
        };
        self.slots().filter(is_starting).map(|slot| self.backends.slots[slot].name()).collect()
    }

    /// All entries of a kind that it may use, in the order of the servers; each name once.
    pub(super) fn usable(self, kind: Kind) -> Vec<&'a CatalogEntry> {
        self.usable_of_servers(kind).into_iter().map(|(_, entry)| entry).collect()
    }

    /// The same, each with the name of its server.
    pub(super) fn usable_of_servers(self, kind: Kind) -> Vec<(&'a str, &'a CatalogEntry)> {
        let (mut all, mut names) = (Vec::new(), BTreeSet::new());
        for slot in self.slots_with(kind) {
            for entry in self.entries(slot, kind) {
                let name = &entry.exposed;
                let is_allowed = kind != Kind::Tools
                    || self.session.access.has_tool(name) && !self.backends.reserves(name);
                if is_allowed && self.names.is_reachable(slot, kind, entry) && names.insert(name) {
                    all.push((self.backends.slots[slot].name(), entry));
                }
            }
        }
        all
    }

    /// The server that has the tool or prompt of this name, and its own name for it.
    pub(super) fn route(self, kind: Kind, name: &str) -> Option<(usize, String)> {
        if kind == Kind::Tools && self.backends.reserves(name) {
            return None;
        }
        let may_use = |slot: usize| {
            self.has_server(slot)
                && self.may_see(slot, kind)
                && (kind != Kind::Tools || self.session.access.has_tool(name))
        };
        if let Some((slot, own)) = self.names.route(kind, name) {
            // A name means the same to all clients: one that may not use it has no other one of that name.
            return may_use(*slot).then(|| (*slot, own.clone()));
        }
        // A server may list something for one client and not for another: for that of another era, say.
        let listed = |slot: usize| {
            let entry = self.entries(slot, kind).iter().find(|entry| entry.exposed == name)?;
            may_use(slot).then(|| (slot, entry.own.clone()))
        };
        // Or the server's list was not read yet.
        let unlisted = |slot: usize| {
            let backend = &self.backends.slots[slot].backend;
            let own = exposed_names::own(backend, name)?;
            let is_read =
                self.link(slot).is_some_and(|link| link.lists.complete.contains_key(&kind));
            let is_allowed = catalog::is_allowed(backend, kind, own);
            let may_be_it = is_allowed && !is_read && self.backends.may_be_unread(slot, kind, own);
            (may_use(slot) && may_be_it).then(|| (slot, own.to_owned()))
        };
        let mut slots = self.backends.order.iter().copied();
        let found = slots.clone().find_map(listed).or_else(|| slots.find_map(unlisted));
        found.or_else(|| (kind == Kind::Tools).then(|| self.tool_of_app(name)).flatten())
    }

    /// The tool that an MCP App means, which knows it by its server's own name: that of the only server with an app that has
    /// it, or of the one whose app the client has read last.
    fn tool_of_app(self, name: &str) -> Option<(usize, String)> {
        let is_it = |entry: &CatalogEntry| {
            entry.own == name && self.session.access.has_tool(&entry.exposed)
        };
        let has = |slot: &usize| {
            self.entries(*slot, Kind::Tools).iter().any(is_it) && self.has_app(*slot)
        };
        let found: Vec<usize> = self.slots_with(Kind::Tools).filter(has).collect();
        let slot = match found[..] {
            [slot] => Some(slot),
            _ => self.session.app.filter(|slot| found.contains(slot)),
        };
        slot.map(|slot| (slot, name.to_owned()))
    }

    /// Whether a server has an MCP App: a page among its resources, or a tool that is shown by one.
    fn has_app(self, slot: usize) -> bool {
        let is_page = |entry: &CatalogEntry| entry.own.starts_with(APP_SCHEME);
        let has_page = |entry: &CatalogEntry| {
            let of = |key| raw::get(&entry.json, &["_meta", key]).is_some();
            of("ui") || of("ui/resourceUri")
        };
        self.entries(slot, Kind::Resources).iter().any(is_page)
            || self.entries(slot, Kind::Tools).iter().any(has_page)
    }

    /// The server that a resource is of: by its list, by its templates, or because no other has any.
    pub(super) fn slot_of_uri(self, uri: &str) -> Option<usize> {
        if self.backends.settings.is_transparent {
            return self.slots().next();
        }
        let slots: Vec<usize> = self.slots_with(Kind::Resources).collect();
        let has = |slot: usize, kind: Kind, fits: &dyn Fn(&str) -> bool| {
            self.entries(slot, kind).iter().any(|entry| fits(&entry.own))
        };
        let exact = slots.iter().find(|slot| has(**slot, Kind::Resources, &|own| own == uri));
        let template = || {
            let fits = |template: &str| catalog::is_of_template(template, uri);
            slots.iter().find(|slot| has(**slot, Kind::Templates, &fits))
        };
        let only = || {
            let offers = |slot: &&usize| {
                let is_offer =
                    |link: &Link| !link.is_open() || link.capabilities["resources"].is_object();
                self.link(**slot).is_none_or(is_offer)
            };
            let mut those = slots.iter().filter(offers);
            those.next().filter(|_| those.next().is_none())
        };
        exact.or_else(template).or_else(only).copied()
    }

    /// The server that has a template, or the resource of this URI.
    pub(super) fn slot_of_template(self, uri: &str) -> Option<usize> {
        let has = |slot: &usize| {
            self.entries(*slot, Kind::Templates).iter().any(|entry| entry.own == uri)
        };
        self.slots_with(Kind::Templates).find(has).or_else(|| self.slot_of_uri(uri))
    }

    /// The server that a call of a tool, a prompt, a completion or an unknown method is for; else the error.
    pub(super) fn server_of(self, request: &Request<'_>) -> Result<Route, (i32, String)> {
        let Request { method, params, line, .. } = request;
        let named = |kind: Kind, what: &str| {
            let name = request.name().unwrap_or_default();
            let (slot, own) = self.route(kind, &name).ok_or_else(|| {
                let withheld = self.withheld(kind, what, &name);
                (-32602, withheld.unwrap_or_else(|| format!("no server has the {what} `{name}`")))
            })?;
            Ok((slot, params.name.clone().map(|part| (part, own))))
        };
        match *method {
            _ if self.backends.settings.is_transparent => {
                let slot = self.slots().next();
                slot.map(|slot| (slot, None))
                    .ok_or_else(|| (-32601, "there is no server".to_owned()))
            }
            "tools/call" => named(Kind::Tools, "tool"),
            "prompts/get" => named(Kind::Prompts, "prompt"),
            "completion/complete" => {
                let name = param(line, &["ref", "name"]);
                let uri = || param(line, &["ref", "uri"]).and_then(raw::text);
                let found = match name.and_then(raw::text) {
                    Some(own) => self.route(Kind::Prompts, &own),
                    None => {
                        uri().and_then(|uri| Some((self.slot_of_template(&uri)?, String::new())))
                    }
                };
                let (slot, own) =
                    found.ok_or_else(|| (-32602, "no server has what `ref` names".to_owned()))?;
                Ok((slot, name.map(|name| (raw::place(line, name), own))))
            }
            // A method that we do not know can only be meant for a server that is alone.
            _ => {
                let mut slots = self.slots();
                match (slots.next(), slots.next()) {
                    (Some(slot), None) => Ok((slot, None)),
                    _ => Err((-32601, "method not found".to_owned())),
                }
            }
        }
    }

    /// The sentence for a name that a server has, and that is withheld because it has changed.
    fn withheld(self, kind: Kind, what: &str, name: &str) -> Option<String> {
        let is_allowed = kind != Kind::Tools || self.session.access.has_tool(name);
        let withholds = |slot: &usize| {
            let backend = &self.backends.slots[*slot].backend;
            let own = exposed_names::own(backend, name);
            own.is_some_and(|own| self.backends.withholds(*slot, kind, own))
        };
        let slot = self.slots_with(kind).find(withholds).filter(|_| is_allowed)?;
        let server = self.backends.slots[slot].name();
        Some(format!(
            "nothing was done: the {what} `{name}` of the server `{server}` has changed since it was pinned, or is new, \
             and is withheld (`pin = \"block\"`); `afresh trust {server}` shows the change and accepts it"
        ))
    }

    /// The result of `initialize`.
    pub(super) fn initialize_result(self) -> Value {
        self.with_instructions(json!({
            "protocolVersion": self.session.version(),
            "capabilities": self.capabilities(),
            "serverInfo": self.server_info(),
        }))
    }

    /// The result of `server/discover`.
    pub(super) fn discover_result(self) -> Value {
        let versions: Vec<&str> = [MODERN].into_iter().chain(LEGACY.into_iter().rev()).collect();
        self.with_instructions(json!({
            "supportedVersions": versions,
            "capabilities": self.capabilities(),
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": self.server_info()},
        }))
    }

    /// Why the server that is alone cannot introduce itself in its own words: the error.
    pub(super) fn missing_introduction(self, method: &str) -> Option<(i32, String)> {
        let Some(link) = self.links().next() else {
            return Some((-32603, "the server is not there".to_owned()));
        };
        if link.introduction.is_none() {
            let why = link.failure().unwrap_or("it did not answer the handshake in time");
            return Some((-32603, format!("the server cannot be used: {why}")));
        }
        let is_older = link.era == Era::Legacy && method == "server/discover";
        is_older
            .then(|| (-32601, "method not found: the server speaks an older version".to_owned()))
    }

    /// The result of the first request, in the words of the server that is alone. The version is the client's where the
    /// server speaks a newer one.
    pub(super) fn introduction(self, method: &str) -> Value {
        let raw = self.links().next().and_then(|link| link.introduction.as_deref());
        let mut result = raw::value(raw);
        if method == "initialize"
            && let (Some(ours), Some(its)) =
                (self.session.version(), result["protocolVersion"].as_str())
            && *ours < *its
        {
            result["protocolVersion"] = ours.into();
        }
        result
    }

    fn server_info(self) -> Value {
        json!({"name": "afresh", "version": self.backends.settings.version})
    }

    /// The capabilities of all its servers together. One that has no session yet may turn out to have any.
    fn capabilities(self) -> Value {
        let links: Vec<&Link> = self.links().collect();
        // So may one that becomes trusted.
        let is_unknown =
            links.iter().any(|link| !link.is_open()) || self.untrusted_note().is_some();
        let has = |name: &str| links.iter().any(|link| link.capabilities[name].is_object());
        let mut all = Map::new();
        // There are tools of our own, or there may be some of a server's.
        all.insert("tools".to_owned(), json!({"listChanged": true}));
        for (name, value) in [
            ("prompts", json!({"listChanged": true})),
            ("resources", json!({"subscribe": true, "listChanged": true})),
            ("completions", json!({})),
            ("logging", json!({})),
        ] {
            let may_have = is_unknown && !(name == "logging" && self.session.is_modern());
            if has(name) || may_have {
                all.insert(name.to_owned(), value);
            }
        }
        // Tasks are offered in the protocol of their server; apps are tools and resources.
        let is_same_era = |link: &&Link| (link.era == Era::Modern) == self.session.is_modern();
        for link in &links {
            for extension in [tasks::EXTENSION, "io.modelcontextprotocol/ui"] {
                let its = &link.capabilities["extensions"][extension];
                if its.is_object() && (extension != tasks::EXTENSION || is_same_era(link)) {
                    let extensions = all.entry("extensions").or_insert_with(|| json!({}));
                    extensions[extension] = its.clone();
                }
            }
            if !self.session.is_modern() && link.capabilities["tasks"].is_object() {
                merge(all.entry("tasks").or_insert_with(|| json!({})), &link.capabilities["tasks"]);
            }
        }
        // Capabilities that we do not know are passed on from a server that is alone.
        if let [link] = &links[..]
            && let Value::Object(its) = &link.capabilities
        {
            for (name, value) in its.iter().filter(|(name, _)| *name != "tasks") {
                all.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        Value::Object(all)
    }

    /// Adds the instructions of its servers to a result, each under the server's name where there are several, and what
    /// is not trusted.
    fn with_instructions(self, mut result: Value) -> Value {
        let parts = self.links().filter_map(|link| {
            Some((self.backends.slots[link.slot].name(), self.backends.instructions_of(link)?))
        });
        let mut texts: Vec<String> = match self.links().count() {
            1 => parts.map(|(_, text)| text.clone()).collect(),
            _ => parts.map(|(name, text)| format!("# {name}\n\n{text}")).collect(),
        };
        let note = self.untrusted_note();
        texts.extend(
            note.map(|note| format!("{note}. The tools then appear here without a restart.")),
        );
        if !texts.is_empty() {
            result["instructions"] = texts.join("\n\n").into();
        }
        result
    }

    /// Whether it sees the entry of this name of a server that it may use.
    pub(super) fn is_shown(self, kind: Kind, name: &str) -> bool {
        kind != Kind::Tools || self.session.access.has_tool(name) && self.is_revealed(name)
    }

    /// Whether it sees a tool that it may use: all, or those that it has found.
    fn is_revealed(self, name: &str) -> bool {
        self.backends.settings.expose == Expose::All || self.session.revealed.contains(name)
    }

    /// The response to a request for a list; none where its cursor is not one of ours.
    pub(super) fn list(self, id: &Id, kind: Kind, line: &[u8]) -> Option<Vec<u8>> {
        let cursor = param(line, &["cursor"]).filter(|raw| *raw != b"null").map(raw::text);
        let begin = match cursor {
            None => 0,
            Some(cursor) => cursor?.strip_prefix('p')?.parse().ok()?,
        };
        let own = if kind == Kind::Tools { self.own_definitions() } else { Vec::new() };
        let own: Vec<String> = own.iter().map(Value::to_string).collect();
        let mut entries = self.usable(kind);
        entries.retain(|entry| kind != Kind::Tools || self.is_revealed(&entry.exposed));
        let all = entries.iter().map(|entry| entry.json.as_slice());
        let all: Vec<&[u8]> = all.chain(own.iter().map(String::as_bytes)).collect();
        let mut page = Vec::new();
        let mut end = begin;
        for json in all.iter().skip(begin) {
            let is_full = page.len() + json.len() > PAGE_BYTES_MAX && !page.is_empty();
            if is_full || end - begin == PAGE_ENTRIES_MAX {
                break;
            }
            page.extend_from_slice(if page.is_empty() { b"" } else { b"," });
            page.extend_from_slice(json);
            end += 1;
        }
        let next = match end < all.len() {
            true => format!(r#","nextCursor":"p{end}""#),
            false => String::new(),
        };
        Some(responses::page(id, self.session.era, kind.members().0, &page, &next))
    }
}

/// Adds what another server offers.
fn merge(all: &mut Value, its: &Value) {
    match (all, its) {
        (Value::Object(all), Value::Object(its)) => {
            for (name, value) in its {
                merge(all.entry(name.clone()).or_insert_with(|| value.clone()), value);
            }
        }
        (all, its) if *its == true => *all = its.clone(),
        _ => {}
    }
}
