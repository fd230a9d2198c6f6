//! What clients ask, and which server it is for.

use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::ClientId;
use super::super::LinkId;
use super::super::catalog;
use super::client_notifications::LEVELS;
use super::era_bridge::log_level;
use super::link::Stage;
use super::{Flight, Hub, What, edit, member, own_id, place, raw};
use crate::limits::{CLIENT_FLIGHTS_MAX, CLIENT_SUBSCRIPTIONS_MAX, MESSAGE_BYTES_MAX};
use crate::mcp::envelope::{Id, Params, look_at_ends, param};
use crate::mcp::{Kind, responses};
use crate::service::State;

/// Methods of the older protocol only.
const SESSION_METHODS: [&str; 5] =
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// A request of a client's on its way.
pub(super) struct Request<'a> {
    pub(super) id: &'a Id,
    pub(super) method: &'a str,
    pub(super) params: &'a Params,
    pub(super) line: &'a [u8],
    /// What is different in it for the server.
    pub(super) edits: Vec<(Range<usize>, Vec<u8>)>,
    /// The resource that it is about.
    pub(super) uri: Option<String>,
}

impl<'a> Request<'a> {
    pub(super) fn new(id: &'a Id, method: &'a str, params: &'a Params, line: &'a [u8]) -> Self {
        Self { id, method, params, line, edits: Vec::new(), uri: None }
    }

    /// The same with something else in a place of it.
    fn with(mut self, part: Option<Range<usize>>, by: &str) -> Self {
        self.edits.extend(part.map(|part| (part, quoted(by))));
        self
    }
}

impl Hub {
    /// A request of a client's. One that was held is not held again.
    pub(super) fn ask(&mut self, client: ClientId, request: Request<'_>, is_late: bool) {
        let Request { id, method, params, line, .. } = request;
        let Some(its) = self.clients.get(&client) else { return };
        let is_open = its.flights.contains_key(id) || its.listens.contains_key(id);
        if is_open || !is_late && self.is_waiting(client, id) {
            // Two requests with one id cannot be answered apart: the first one is.
            return;
        }
        let mut open = its.flights.len();
        if open + self.held.len() >= CLIENT_FLIGHTS_MAX {
            open += self.held.iter().filter(|held| held.client == client).count();
        }
        if open >= CLIENT_FLIGHTS_MAX {
            let why =
                "too many requests have no answer yet; nothing was done; wait for some of them";
            return self.answer_failure(client, id, method, "too_many_requests", why);
        }
        if !self.note_era(client, id, params, line) {
            return;
        }
        let is_modern = self.clients.get(&client).is_some_and(|client| client.is_modern());
        if params.version.is_some() && is_modern && SESSION_METHODS.contains(&method) {
            let why = "method not found: this version of the protocol does not have it";
            return self.answer_error(client, id, -32601, why);
        }
        let request = Request::new(id, method, params, line);
        match method {
            "initialize" => self.initialize(client, id, line, is_late),
            "server/discover" => self.discover(client, id, line, is_late),
            "ping" => self.answer(client, id, responses::pong(id)),
            "logging/setLevel" => self.level(client, id, line),
            "tools/call" => self.call(client, request, is_late),
            "prompts/get" => {
                let name = params.name.clone().and_then(|name| raw::text(&line[name]));
                match name.and_then(|name| self.route(client, Kind::Prompts, &name)) {
                    Some((slot, own)) => {
                        self.pass(client, slot, request.with(params.name.clone(), &own));
                    }
                    None => self.unknown(client, id, line, "name", "prompt"),
                }
            }
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
                self.resource(client, request);
            }
            "completion/complete" => self.complete(client, request),
            "subscriptions/listen" => self.listen(client, id, line),
            _ => match Kind::of_method(method) {
                Some(kind) => self.list(client, id, kind, line, is_late),
                // A method that we do not know: only one server can mean it.
                None => match self.slots_of(client)[..] {
                    [slot] => self.pass(client, slot, request),
                    _ => self.answer_error(client, id, -32601, "method not found"),
                },
            },
        }
    }

    /// A message of a client's that is longer than allowed: a request is answered, nothing else can be.
    pub(super) fn client_too_long(&mut self, client: ClientId, beginning: &[u8], ending: &[u8]) {
        if let Some((id, _)) = look_at_ends(beginning, ending) {
            let why = format!(
                "the request is longer than the limit of {MESSAGE_BYTES_MAX} bytes; nothing was done; \
                 send less"
            );
            self.answer_error(client, &id, -32600, &why);
        }
    }

    /// Which of a client's servers has this, and what it calls it.
    fn route(&self, client: ClientId, kind: Kind, name: &str) -> Option<(usize, String)> {
        let access = &self.clients.get(&client)?.access;
        if kind == Kind::Tools && self.is_own_name(name) {
            return None;
        }
        let may_use = |slot: usize| {
            self.has_server(client, slot)
                && self.may_see(client, slot, kind)
                && (kind != Kind::Tools || access.has_tool(name))
        };
        if let Some((slot, own)) = self.routes.get(&(kind, name.to_owned())) {
            // A name means the same to everybody: whoever may not use it has no other one of that name.
            return may_use(*slot).then(|| (*slot, own.clone()));
        }
        // A server may have something for one client and not for another: for that of another era, say.
        let its_own = |slot: usize| {
            let mut entries = self.entries_of(client, slot, kind).iter();
            let entry = entries.find(|entry| entry.exposed == name)?;
            may_use(slot).then(|| (slot, entry.own.clone()))
        };
        if let Some(found) = self.order.iter().copied().find_map(its_own) {
            return Some(found);
        }
        // Not in any list: but it may be of a server that has not said yet what it has.
        let of = |slot: usize| {
            let backend = &self.servers[slot].backend;
            let own = catalog::own(backend, name)?;
            let is_open = |link: LinkId| {
                self.links.get(&link).is_some_and(|link| link.lists.contains_key(&kind))
            };
            let is_known = self.current_link(client, slot).is_some_and(is_open);
            let is_allowed = catalog::is_allowed(backend, kind, own);
            (may_use(slot) && is_allowed && !is_known).then(|| (slot, own.to_owned()))
        };
        self.order.iter().copied().find_map(of)
    }

    pub(super) fn call(&mut self, client: ClientId, request: Request<'_>, is_late: bool) {
        let Request { id, params, line, .. } = request;
        let Some(name) = params.name.clone().and_then(|name| raw::text(&line[name])) else {
            return self.answer_error(client, id, -32602, "`name` is missing: the tool to call");
        };
        let request = Request::new(id, "tools/call", params, line);
        if let Some(own) = self.own_tool(client, &name) {
            return self.call_own(client, own, request, is_late);
        }
        match self.route(client, Kind::Tools, &name) {
            Some((slot, own)) => self.pass(client, slot, request.with(params.name.clone(), &own)),
            None => self.unknown(client, id, line, "name", "tool"),
        }
    }

    /// Nobody has what was asked for.
    fn unknown(&mut self, client: ClientId, id: &Id, line: &[u8], key: &str, what: &str) {
        let name = param(line, &[key]).and_then(raw::text).unwrap_or_default();
        let why = format!("no server has the {what} `{name}`");
        self.answer_error(client, id, -32602, &why);
    }

    fn resource(&mut self, client: ClientId, mut request: Request<'_>) {
        let (id, method) = (request.id, request.method);
        let uri = param(request.line, &["uri"]).and_then(raw::text).unwrap_or_default();
        let Some(slot) = self.slot_of_uri(client, &uri) else {
            let why = format!("no server has the resource `{uri}`");
            let is_modern = self.clients.get(&client).is_some_and(|client| client.is_modern());
            let code = if is_modern { -32602 } else { -32002 };
            let error = json!({"code": code, "message": why, "data": {"uri": uri}});
            return self.answer(client, id, responses::line(id, "error", &error));
        };
        if method == "resources/unsubscribe" {
            if let Some(its) = self.clients.get_mut(&client) {
                its.subscribed.remove(&uri);
            }
            let others = self.current_link(client, slot).is_some_and(|link| {
                self.users_of(link).iter().any(|user| {
                    self.clients.get(user).is_some_and(|user| user.uris().any(|its| *its == uri))
                })
            });
            if others {
                return self.answer_result(client, id, json!({}));
            }
        }
        let count = self.clients.get(&client).map_or(0, |client| client.subscribed.len());
        if method == "resources/subscribe" && count >= CLIENT_SUBSCRIPTIONS_MAX {
            let why =
                format!("no more than {CLIENT_SUBSCRIPTIONS_MAX} resources can be subscribed to");
            return self.answer_error(client, id, -32603, &why);
        }
        request.uri = Some(uri);
        self.pass(client, slot, request);
    }

    /// The server that a resource is of: by its list, by its templates, or because no other has any.
    pub(super) fn slot_of_uri(&self, client: ClientId, uri: &str) -> Option<usize> {
        let slots = self.slots_for(client, Kind::Resources);
        let has = |slot: &&usize, kind: Kind, fits: &dyn Fn(&str) -> bool| {
            self.entries_of(client, **slot, kind).iter().any(|entry| fits(&entry.own))
        };
        let exact = slots.iter().find(|slot| has(slot, Kind::Resources, &|own| own == uri));
        let template = || {
            let fits = |template: &str| catalog::is_of_template(template, uri);
            slots.iter().find(|slot| has(slot, Kind::Templates, &fits))
        };
        let only = || {
            let offers = |slot: &&usize| {
                self.current_link(client, **slot).and_then(|link| self.links.get(&link)).is_none_or(
                    |link| link.stage != Stage::Open || link.capabilities["resources"].is_object(),
                )
            };
            let mut those = slots.iter().filter(offers);
            those.next().filter(|_| those.next().is_none())
        };
        exact.or_else(template).or_else(only).copied()
    }

    fn complete(&mut self, client: ClientId, request: Request<'_>) {
        let line = request.line;
        let name = param(line, &["ref", "name"]);
        let uri = param(line, &["ref", "uri"]).and_then(raw::text);
        let found = match (name.and_then(raw::text), uri) {
            (Some(own), _) => self.route(client, Kind::Prompts, &own),
            (None, Some(uri)) => {
                let is_it = |slot: &usize| {
                    let entries = self.entries_of(client, *slot, Kind::Templates);
                    entries.iter().any(|entry| entry.own == uri)
                };
                let slots = self.slots_for(client, Kind::Templates);
                let slot = slots.into_iter().find(is_it);
                slot.or_else(|| self.slot_of_uri(client, &uri)).map(|slot| (slot, String::new()))
            }
            (None, None) => None,
        };
        match found {
            Some((slot, own)) => {
                let part = name.map(|name| place(line, name));
                self.pass(client, slot, request.with(part, &own));
            }
            None => self.answer_error(client, request.id, -32602, "no server has what `ref` names"),
        }
    }

    /// Passes a request on to a server, as soon as there is a session with it.
    fn pass(&mut self, client: ClientId, slot: usize, request: Request<'_>) {
        let name = self.servers[slot].backend.name.clone();
        let link = match self.link_for(client, slot) {
            Ok(link) => link,
            Err(why) => {
                let why = format!("nothing was done, the server `{name}` cannot be used: {why}");
                return self.refuse_call(client, slot, &request, "server_down", &why);
            }
        };
        self.retry(link);
        let Some(its) = self.links.get_mut(&link) else { return };
        its.used_at = self.now;
        if let (Some(State::Stopped | State::Stopping), Some(why)) = (&its.state, its.absence()) {
            let why = self.unusable(slot, &why);
            return self.refuse_call(client, slot, &request, "server_down", &why);
        }
        match &its.stage {
            Stage::Open => {}
            Stage::Failed(why) => {
                let why = why.clone();
                let why = self.unusable(slot, &why);
                return self.refuse_call(client, slot, &request, "server_down", &why);
            }
            Stage::Fresh | Stage::Opening => {
                let count = its.waiting.len();
                if count < self.servers[slot].backend.in_flight_max {
                    its.waiting.push_back((client, request.line.to_vec()));
                    return;
                }
                let why = format!(
                    "nothing was done: {count} calls wait for the server `{name}`, which is still \
                     starting, as many as `in_flight_max` allows; try again later"
                );
                return self.refuse_call(client, slot, &request, "server_busy", &why);
            }
        }
        if let Some((reason, why)) = self.why_not(link) {
            return self.refuse_call(client, slot, &request, reason, &why);
        }
        let timeout = self.servers[slot].backend.call_timeout;
        self.send(client, link, request, timeout);
    }

    /// Sends a client's request over a link, under an id of ours.
    pub(super) fn send(
        &mut self,
        client: ClientId,
        link: LinkId,
        request: Request<'_>,
        timeout: Option<Duration>,
    ) {
        self.is_ready(client);
        let span = self.begin_span_over(client, link, &request);
        let Request { id, method, params, line, mut edits, uri } = request;
        let Some(id_part) = member(line, "id") else { return };
        let number = self.number();
        let token = params.progress_token.clone();
        let own_token = token.clone().map(|part| line[part].to_vec());
        edits.push((id_part, own_id('g', number)));
        edits.extend(token.map(|part| (part, own_id('g', number))));
        let level = self.is_between(client, link).then(|| log_level(line)).flatten();
        let line = edit(line, edits);
        if let Some(its) = self.clients.get_mut(&client) {
            its.flights.insert(id.clone(), number);
        }
        let (id, method) = (id.clone(), method.to_owned());
        let what = What::Client { client, id, method, token: own_token, uri, level };
        self.flights.insert(number, Flight { link, what, until: None, span });
        if let Some(timeout) = timeout {
            self.expect(number, timeout);
        }
        if let Some(its) = self.links.get_mut(&link) {
            its.in_flight += 1;
            its.caller = Some(client);
        }
        self.tell_link(link, line);
    }

    fn level(&mut self, client: ClientId, id: &Id, line: &[u8]) {
        let level = param(line, &["level"]).and_then(raw::text);
        let place = LEVELS.iter().position(|name| level.as_deref() == Some(*name));
        let Some(place) = place else {
            let why = format!("`level` must be one of {}", LEVELS.join(", "));
            return self.answer_error(client, id, -32602, &why);
        };
        if let Some(its) = self.clients.get_mut(&client) {
            its.level = Some(place);
        }
        for link in self.links_of(client) {
            self.set_level(link);
        }
        self.answer_result(client, id, json!({}));
    }
}

fn quoted(text: &str) -> Vec<u8> {
    Value::from(text).to_string().into_bytes()
}
