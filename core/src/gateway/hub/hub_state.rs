//! Composes the clients' sessions, the servers with their links, the names and the output: handles each event that
//! concerns more than one of them, such as the end of a handshake, a changed list or a lost link. Driven by
//! [`Hub`](super::Hub). Never dispatches a client's message: lines that can go on are put into the output.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::backends::Backends;
use super::client_lists::ClientView;
use super::held_calls::can_ask;
use super::last_lists::forget_last_lists;
use super::link::{HandshakeOutcome, Link, LinkStage};
use super::name_index::{MovedName, Names};
use super::outgoing::{ClientRequest, Outgoing, PendingRequest, Purpose, Response};
use super::route_request::Request;
use super::server_lists::{PageOutcome, Reading};
use super::sessions::{ClientSession, Principal};
use crate::gateway::catalog::CatalogEntry;
use crate::gateway::spans::{Parent, Span, SpanOutcome, SpanTarget};
use crate::gateway::{ClientId, Effect, LinkId};
use crate::limits::CIRCUIT_OPEN_FOR;
use crate::mcp::envelope::{Id, Message, look, param};
use crate::mcp::{Era, Kind, ToolResult, json as raw, responses};
use crate::service::State;

/// Sessions, servers and names, and what leaves the hub.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) sessions: BTreeMap<ClientId, ClientSession>,
    pub(super) backends: Backends,
    pub(super) names: Names,
    pub(super) out: Outgoing,
}

impl Directory {
    /// The view of a client that is connected.
    pub(super) fn client(&self, client: ClientId) -> Option<ClientView<'_>> {
        let session = self.sessions.get(&client)?;
        Some(ClientView { session, backends: &self.backends, names: &self.names })
    }

    /// The clients that have the response to their first request.
    pub(super) fn open_clients(&self) -> Vec<ClientId> {
        self.sessions.iter().filter(|(_, session)| session.is_open).map(|(id, _)| *id).collect()
    }

    /// The definitions of our own tools, as each client sees them.
    pub(super) fn own_definitions(&self) -> Vec<(ClientId, Vec<Value>)> {
        let of_client = |client| Some((client, self.client(client)?.own_definitions()));
        self.open_clients().into_iter().filter_map(of_client).collect()
    }

    /// Tells the clients whose definitions of our own tools are others now, and returns them.
    pub(super) fn notify_own_changed(
        &mut self,
        before: Vec<(ClientId, Vec<Value>)>,
    ) -> BTreeSet<(ClientId, Kind)> {
        let mut told = BTreeSet::new();
        for (client, before) in before {
            if self.client(client).is_some_and(|view| view.own_definitions() != before) {
                self.notify(client, Kind::Tools);
                told.insert((client, Kind::Tools));
            }
        }
        told
    }

    /// The era of the protocol that a client speaks.
    pub(super) fn era_of(&self, client: ClientId) -> Era {
        self.sessions.get(&client).map_or(Era::Unknown, |session| session.era)
    }

    /// Who a client is beyond one request.
    pub(super) fn principal_of(&self, client: ClientId) -> Option<Principal> {
        let session = self.sessions.get(&client)?;
        Some(match session.is_modern() && !self.backends.settings.is_single {
            true => session.named(),
            false => Principal::Session(client),
        })
    }

    /// The links that a client uses now.
    pub(super) fn links_of(&self, client: ClientId) -> Vec<LinkId> {
        let Some(view) = self.client(client) else { return Vec::new() };
        view.slots().filter_map(|slot| view.link_to(slot)).collect()
    }

    /// The clients that use a link, and may.
    pub(super) fn users_of(&self, id: LinkId) -> BTreeSet<ClientId> {
        let Some(link) = self.backends.links.get(id) else { return BTreeSet::new() };
        let slot = link.slot;
        let uses = |client: &ClientId| {
            self.client(*client)
                .is_some_and(|view| view.link_to(slot) == Some(id) && view.has_server(slot))
        };
        match &link.owner {
            Some(Principal::Session(owner)) => BTreeSet::from([*owner]),
            Some(Principal::Named { .. }) | None => {
                self.sessions.keys().copied().filter(uses).collect()
            }
        }
    }

    /// Whether a client speaks the newer protocol, and the server behind a link the older.
    pub(super) fn is_bridged(&self, client: ClientId, link: LinkId) -> bool {
        self.era_of(client) == Era::Modern
            && self.backends.links.get(link).is_some_and(|link| link.era == Era::Legacy)
    }

    /// The link over which a client talks to a server; opens it where there is none.
    pub(super) fn link_for(&mut self, client: ClientId, slot: usize) -> Result<LinkId, String> {
        match self.sessions.get_mut(&client) {
            Some(session) => self.backends.link_for(slot, client, session, &mut self.out),
            None => Err("the client is gone".to_owned()),
        }
    }

    /// Opens the links to all servers that a client may use.
    pub(super) fn use_servers(&mut self, client: ClientId) {
        let slots = self.client(client).map_or_else(Vec::new, |view| view.slots().collect());
        for slot in slots {
            // A failure is reported when the server is used.
            self.link_for(client, slot).ok();
        }
    }

    pub(super) fn answer_result(&mut self, client: ClientId, id: &Id, mut result: Value) {
        if self.era_of(client) == Era::Modern {
            result["resultType"] = Value::from("complete");
        }
        self.out.answer(client, id, responses::line(id, "result", &result));
    }

    /// Answers a call of a tool.
    pub(super) fn answer_tool(&mut self, client: ClientId, id: &Id, result: &ToolResult) {
        self.out.answer(client, id, responses::said(id, self.era_of(client), result));
    }

    /// Answers in a server's place that a request failed: as a tool's result, which the model gets to see, or as
    /// an error.
    pub(super) fn answer_failure(
        &mut self,
        client: ClientId,
        id: &Id,
        method: &str,
        reason: &str,
        why: &str,
    ) {
        match method {
            "tools/call" => self.answer_tool(client, id, &ToolResult::error(why)),
            _ => self.out.answer(client, id, responses::failure(id, -32603, reason, true, why)),
        }
    }

    /// Tells one client that a list has changed for it.
    pub(super) fn notify(&mut self, client: ClientId, kind: Kind) {
        let Some(session) = self.sessions.get(&client) else { return };
        let lines = match session.is_modern() {
            true => session.subscriptions.list_changes(kind),
            false => vec![(responses::notification(kind.notification(), None), None)],
        };
        for (line, about) in lines {
            self.out.send_to_client(client, line, about);
        }
    }

    /// Asks a server for the lowest level of log messages that one of its clients wants.
    pub(super) fn sync_log_level(&mut self, link: LinkId) {
        let users = self.users_of(link);
        let level = users.iter().filter_map(|user| self.sessions.get(user)?.log_level).min();
        if let (Some(level), Some(link)) = (level, self.backends.links.get_mut(link)) {
            link.set_log_level(level, &mut self.out);
        }
    }

    /// Asks a server for changes of the resources that its clients want to hear of.
    pub(super) fn sync_subscriptions(&mut self, id: LinkId) {
        let Some(link) = self.backends.links.get(id).filter(|link| link.is_open()) else { return };
        let slot = link.slot;
        let mut wanted = BTreeSet::new();
        for view in self.users_of(id).into_iter().filter_map(|user| self.client(user)) {
            let uris = view.session.subscriptions.uris();
            wanted.extend(uris.filter(|uri| view.slot_of_uri(uri) == Some(slot)).cloned());
        }
        if let Some(link) = self.backends.links.get_mut(id) {
            link.subscribe(wanted, &mut self.out);
        }
    }

    /// Forgets a client's request, whose response does not matter any more. Its server is told so, unless it ends the
    /// request anyway.
    pub(super) fn withdraw(&mut self, number: u64, reason_to_tell: Option<&str>) {
        let Some(PendingRequest { link, span, purpose, .. }) = self.out.requests.take(number)
        else {
            return;
        };
        if let Purpose::Client(call) = purpose
            && self.backends.settings.is_transparent
            && can_ask(&call.method)
        {
            self.out.requests.note_withdrawn(number, link, call.client, self.out.now);
        }
        if let Some(its) = self.backends.links.get_mut(link) {
            its.calls.end();
        }
        self.out.end_span(span, SpanOutcome::Cancelled);
        if let Some(reason) = reason_to_tell {
            self.out.cancel(link, number, reason);
        }
    }

    /// Answers each request over a link that has no response with an error.
    fn fail_requests(&mut self, id: LinkId, why: &str) {
        let Some(link) = self.backends.links.get_mut(id) else { return };
        (link.calls.in_flight, link.listener) = (0, None);
        let name = self.backends.slots[link.slot].name();
        let text =
            format!("the server `{name}` is gone while this ran; its outcome is unknown: {why}");
        for (number, request) in self.out.requests.take_all_over(id) {
            if let Purpose::Client(its) = request.purpose {
                self.out.end_span(request.span, SpanOutcome::Failed("server_lost"));
                match its.is_held {
                    true => self.out.lost_calls.push((number, text.clone())),
                    false => self.end_request(&its, "server_lost", &text),
                }
            }
        }
    }

    /// Answers a client's request that its server had, in the server's place.
    fn end_request(&mut self, request: &ClientRequest, reason: &str, why: &str) {
        let ClientRequest { client, id, method, .. } = request;
        if let Some(session) = self.sessions.get_mut(client) {
            session.requests.remove(id);
        }
        self.answer_failure(*client, id, method, reason, why);
    }

    /// Closes a link, and answers the requests over it.
    pub(super) fn close_link(&mut self, id: LinkId, reason: &str) {
        self.fail_requests(id, reason);
        let Some(link) = self.backends.detach(id) else { return };
        let slot = link.slot;
        if let Some(Principal::Session(owner)) = &link.owner
            && let Some(owner) = self.sessions.get_mut(owner)
        {
            owner.links.remove(&slot);
        }
        let why =
            format!("the server `{}` is not there: {reason}", self.backends.slots[slot].name());
        for (client, line) in link.calls.waiting {
            self.refuse_line(client, slot, &line, &why);
        }
        self.out.close(id, reason);
    }

    /// Answers a request that does not go to its server.
    pub(super) fn refuse(
        &mut self,
        slot: usize,
        request: &Request<'_>,
        reason: &'static str,
        why: &str,
    ) {
        let span = self.begin_span(slot, request);
        self.out.end_span(span, SpanOutcome::Failed(reason));
        self.answer_failure(request.client, request.id, request.method, reason, why);
    }

    /// Answers a request that has waited for its server in vain.
    fn refuse_line(&mut self, client: ClientId, slot: usize, line: &[u8], why: &str) {
        if let Some(Message::Request { id, method, params }) = look(line) {
            let request = Request::new(client, &id, &method, &params, line);
            self.refuse(slot, &request, "server_down", why);
        }
    }

    /// The span of a request that goes to a server, where calls are traced and its trace is sampled.
    pub(super) fn begin_span(&self, slot: usize, request: &Request<'_>) -> Option<Box<Span>> {
        // Without tracing nothing is looked up.
        if !self.backends.settings.is_traced {
            return None;
        }
        let Request { id, method, params, line, .. } = request;
        let session = self.sessions.get(&request.client)?;
        let parent = params.meta.clone().and_then(|meta| Parent::of_meta(&line[meta]));
        if parent.as_ref().is_some_and(|parent| !parent.is_sampled()) {
            return None;
        }
        let target = match *method {
            "tools/call" => request.name().map(SpanTarget::Tool),
            "prompts/get" => request.name().map(SpanTarget::Prompt),
            _ => param(line, &["uri"]).and_then(raw::text).map(SpanTarget::Resource),
        };
        Some(Box::new(Span {
            parent,
            method: (*method).to_owned(),
            target: target.unwrap_or(SpanTarget::Nothing),
            server: self.backends.slots[slot].name().to_owned(),
            client: session.access.name.clone(),
            request: (*id).clone(),
            version: session.version(),
            is_stdio: self.backends.settings.is_single,
            began: self.out.now,
            ended: self.out.now,
            outcome: SpanOutcome::Cancelled,
        }))
    }

    /// A handshake has ended: with the response to its request, or because there was none in time.
    pub(super) fn end_handshake(&mut self, id: LinkId, response: Option<Response<'_>>) {
        let Some(link) = self.backends.links.get_mut(id) else { return };
        let outcome = match response {
            Some(response) => link.finish_handshake(response, &mut self.out),
            None => link.handshake_timeout(),
        };
        match outcome {
            HandshakeOutcome::Open => {
                self.backends.check_introduction(id, &mut self.out);
                forget_last_lists(self, id);
                self.sync_log_level(id);
                self.sync_subscriptions(id);
                self.backends.resume_waiting(id, &mut self.out);
                self.out.is_settled = true;
            }
            HandshakeOutcome::Failed(why) => self.fail_link(id, &why),
            HandshakeOutcome::Refused(why) => {
                self.out.effects.push(Effect::Refused { link: id, why: why.clone() });
                self.fail_link(id, &why);
            }
            HandshakeOutcome::UnknownProtocol => {
                if self.backends.fall_back(id, &mut self.out) {
                    self.backends.resume_waiting(id, &mut self.out);
                    self.close_link(id, "it does not know the newer protocol");
                    self.out.is_settled = true;
                }
            }
        }
    }

    /// A link has no session for now: the requests that wait for it are answered with an error.
    fn fail_link(&mut self, id: LinkId, why: &str) {
        let Some(link) = self.backends.links.get_mut(id) else { return };
        let is_news = link.fail(why, self.out.now);
        let (slot, waiting) = (link.slot, std::mem::take(&mut link.calls.waiting));
        forget_last_lists(self, id);
        let text = self.backends.slots[slot].unusable(why);
        for (client, line) in waiting {
            self.refuse_line(client, slot, &line, &text);
        }
        if is_news {
            let name = self.backends.slots[slot].name();
            self.out.log(format!("no session with the server `{name}`: {why}"));
        }
        self.out.is_settled = true;
    }

    /// Nothing comes over a link any more.
    pub(super) fn lose_link(&mut self, id: LinkId, why: &str) {
        // A link that was not used yet has nothing to lose.
        let is_fresh = |link: &Link| link.stage == LinkStage::Fresh;
        if self.backends.links.get(id).is_none_or(is_fresh) {
            return;
        }
        self.fail_requests(id, why);
        self.fail_link(id, why);
    }

    /// The state of the server behind a link has changed.
    pub(super) fn set_server_state(&mut self, id: LinkId, state: State) {
        let Some(link) = self.backends.links.get_mut(id) else { return };
        let was_up = link.is_up();
        link.set_server_state(state, self.out.requests.last_number + 1);
        let (slot, is_up) = (link.slot, link.is_up());
        if matches!(link.stage, LinkStage::Failed(_)) && is_up && !was_up {
            return link.open_session(&mut self.out);
        }
        if is_up != was_up && self.backends.slots[slot].backend.hide_when_down {
            self.notify_server_changed(slot, &Kind::ALL);
        }
        self.out.is_settled = true;
    }

    /// Reads the lists, opens the sessions again and closes the links whose time has come.
    pub(super) fn wake_links(&mut self) {
        let now = self.out.now;
        for id in self.backends.links.due(now) {
            let Some(link) = self.backends.links.get_mut(id) else { continue };
            for kind in link.lists.take_due(now) {
                link.read_list(kind, &mut self.out);
            }
            if link.is_retry_due(now) {
                link.open_session(&mut self.out);
            } else if link.calls.idle_at().is_some_and(|at| at <= now) {
                // It comes back with the next call.
                self.close_link(id, "no client has used it for a while");
            }
        }
    }

    /// A page of a list has come. Where it is the last one, the list is kept.
    pub(super) fn add_page(&mut self, id: LinkId, kind: Kind, page: Response<'_>) {
        let Some(link) = self.backends.links.get_mut(id) else { return };
        let backend = &self.backends.slots[link.slot].backend;
        match link.lists.add_page(backend, kind, page) {
            None => {}
            Some(PageOutcome::Next(cursor)) => {
                link.request_page(kind, Some(&cursor), &mut self.out);
            }
            Some(PageOutcome::End { list, has_changed }) => {
                if let Some(list) = list {
                    self.keep_list(id, kind, list);
                }
                if let Some(link) = self.backends.links.get_mut(id).filter(|_| has_changed) {
                    link.read_list(kind, &mut self.out);
                }
                self.out.is_settled = true;
            }
        }
    }

    /// Keeps a list that was read to its end, and tells the clients that see another one now.
    fn keep_list(&mut self, id: LinkId, kind: Kind, mut list: Reading) {
        let Some(slot) = self.backends.links.get(id).map(|link| link.slot) else { return };
        self.backends.check_list(slot, kind, &mut list, &mut self.out);
        let Some(link) = self.backends.links.get_mut(id) else { return };
        let server = &mut self.backends.slots[slot];
        for (defect, text) in list.defects(server.name(), kind) {
            if defect.is_none_or(|defect| server.defects.insert((kind, defect))) {
                self.out.log(text);
            }
        }
        let new = list.entries;
        if link.lists.complete.get(&kind) == Some(&new) {
            return;
        }
        let known = server.known.insert(kind, new.clone()).unwrap_or_default();
        server.unconfirmed.remove(&kind);
        // Other links of the server may have other lists.
        let seen = link.lists.complete.insert(kind, new.clone()).unwrap_or_else(|| known.clone());
        if known != new {
            self.out.effects.extend(self.backends.slots[slot].store_list(kind));
        }
        let mut moved = self.names.rebuild(&[kind], &self.backends, &mut self.out);
        let users = self.users_of(id);
        for user in users.iter().filter(|_| seen != new) {
            let Some(view) = self.client(*user).filter(|view| view.session.is_open) else {
                continue;
            };
            let is_seen = |entry: &&CatalogEntry| view.is_shown(kind, &entry.exposed);
            if !seen.iter().filter(is_seen).eq(new.iter().filter(is_seen)) {
                self.notify(*user, kind);
            }
        }
        // Entries of other servers can have lost their names to these, or have them back.
        moved.retain(|moved| moved.slot != slot);
        self.notify_moved(&moved, users.into_iter().map(|user| (user, kind)).collect());
        if kind == Kind::Tools {
            self.notify_let_in(slot, &known, &new);
        }
    }

    /// A client's request had no response in time.
    pub(super) fn time_out_request(
        &mut self,
        id: LinkId,
        number: u64,
        request: &ClientRequest,
        span: Option<Box<Span>>,
    ) {
        let Some(link) = self.backends.links.get_mut(id) else { return };
        link.calls.end();
        let timeouts = link.calls.circuit.time_out(self.out.now);
        let server = &self.backends.slots[link.slot];
        let name = server.name().to_owned();
        let why = match link.absence_since(number) {
            Some(why) => server.unusable(&why),
            None => format!(
                "the server `{name}` has not answered in time (`call_timeout`); its outcome is \
                 unknown"
            ),
        };
        self.out.end_span(span, SpanOutcome::Failed("timed_out"));
        self.out.cancel(id, number, "it took too long");
        self.end_request(request, "timed_out", &why);
        if let Some(timeouts) = timeouts {
            self.out.log(format!(
                "the server `{name}` left {timeouts} calls in a row without an answer: for {} s calls \
                 to it are answered at once, with an error",
                CIRCUIT_OPEN_FOR.as_secs()
            ));
        }
    }

    /// Tells the clients of a server that all its entries of these kinds have come or gone.
    pub(super) fn notify_server_changed(&mut self, slot: usize, kinds: &[Kind]) {
        for client in self.open_clients() {
            let Some(view) = self.client(client).filter(|view| view.may_use_server(slot)) else {
                continue;
            };
            let sees = |kind: Kind| {
                let mut entries = self.backends.slots[slot].known(kind).iter();
                kinds.contains(&kind)
                    && view.may_see(slot, kind)
                    && entries.any(|entry| view.is_shown(kind, &entry.exposed))
            };
            let seen = Kind::ALL.map(sees);
            self.notify_kinds(client, seen);
        }
    }

    /// Tells one client which of the four lists have changed: resources and their templates have one notification.
    fn notify_kinds(
        &mut self,
        client: ClientId,
        [tools, prompts, resources, templates]: [bool; 4],
    ) {
        let resources = resources || templates;
        for (kind, has_changed) in
            [(Kind::Tools, tools), (Kind::Prompts, prompts), (Kind::Resources, resources)]
        {
            if has_changed {
                self.notify(client, kind);
            }
        }
    }

    /// Tells clients of names that are another server's now, except those that were told that the list has changed.
    pub(super) fn notify_moved(&mut self, all: &[MovedName], mut told: BTreeSet<(ClientId, Kind)>) {
        for MovedName { kind, slot, name } in all {
            if self.backends.slots[*slot].is_removed {
                continue;
            }
            for client in self.open_clients() {
                if !told.contains(&(client, *kind))
                    && self.client(client).is_some_and(|view| {
                        view.may_use_server(*slot)
                            && view.may_see(*slot, *kind)
                            && view.is_shown(*kind, name)
                    })
                {
                    told.insert((client, *kind));
                    self.notify(client, *kind);
                }
            }
        }
    }

    /// Tells clients whose access is a list of tools alone, where a server has come or gone for them by its tools.
    fn notify_let_in(&mut self, slot: usize, old: &[CatalogEntry], new: &[CatalogEntry]) {
        let has =
            |kind: Kind| kind != Kind::Tools && !self.backends.slots[slot].known(kind).is_empty();
        let has = Kind::ALL.map(has);
        for client in self.open_clients() {
            let Some(view) = self.client(client) else { continue };
            let access = &view.session.access;
            let is_in =
                |tools: &[CatalogEntry]| tools.iter().any(|tool| access.has_tool(&tool.exposed));
            if access.is_by_tools() && view.may_use_server(slot) && is_in(old) != is_in(new) {
                self.notify_kinds(client, has);
            }
        }
    }
}
