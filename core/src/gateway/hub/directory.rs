//! Composes the clients' sessions, the servers with their links, and the names: handles each event that concerns more
//! than one of them, such as the end of a handshake, a changed list or a lost link. Driven by [`Hub`](super::Hub).
//! Never dispatches a client's message: lines that can go on are put into the output.

use std::collections::BTreeSet;

use super::Settings;
use super::admin_tools::GatewayTools;
use super::backends::Backends;
use super::client_view::ClientView;
use super::link::{HandshakeOutcome, Link, LinkStage};
use super::list_paging::{PageOutcome, Reading};
use super::names::{MovedName, Names};
use super::outgoing::Outgoing;
use super::pending_requests::{ClientRequest, PendingRequest, Purpose, Response};
use super::route_request::Request;
use super::sessions::Sessions;
use super::tracing::Tracer;
use crate::gateway::catalog::CatalogEntry;
use crate::gateway::span::{Span, SpanOutcome};
use crate::gateway::{ClientId, Effect, LinkId};
use crate::limits::CIRCUIT_OPEN_FOR;
use crate::mcp::envelope::{Message, look};
use crate::mcp::{Era, Kind};
use crate::service::State;

/// Sessions, servers and names.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) sessions: Sessions,
    pub(super) backends: Backends,
    pub(super) names: Names,
    pub(super) tools: GatewayTools,
    tracer: Tracer,
}

impl Directory {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            sessions: Sessions::default(),
            tools: GatewayTools::new(settings.expose, settings.admin_tools),
            tracer: Tracer::new(settings.is_traced, settings.is_single),
            backends: Backends::new(settings.version, settings.is_single),
            names: Names::default(),
        }
    }

    /// The view of a client that is connected.
    pub(super) fn client(&self, client: ClientId) -> Option<ClientView<'_>> {
        let session = self.sessions.get(client)?;
        let (backends, names, tools) = (&self.backends, &self.names, self.tools);
        Some(ClientView { session, backends, names, tools })
    }

    /// The links that a client uses now.
    pub(super) fn links_of(&self, client: ClientId) -> Vec<LinkId> {
        self.client(client).map_or_else(Vec::new, |view| view.link_ids().collect())
    }

    /// The clients that use a link, and may.
    pub(super) fn users_of(&self, id: LinkId) -> BTreeSet<ClientId> {
        let Some(link) = self.backends.links.get(id) else { return BTreeSet::new() };
        let slot = link.slot;
        let uses = |client: &ClientId| {
            self.client(*client)
                .is_some_and(|view| view.link_to(slot) == Some(id) && view.has_server(slot))
        };
        match link.owner {
            Some(owner) => BTreeSet::from([owner]),
            None => self.sessions.ids().into_iter().filter(uses).collect(),
        }
    }

    /// Whether a client speaks the newer protocol, and the server behind a link the older.
    pub(super) fn is_bridged(&self, client: ClientId, link: LinkId) -> bool {
        self.sessions.is_modern(client)
            && self.backends.links.get(link).is_some_and(|link| link.era() == Era::Legacy)
    }

    /// The link over which a client talks to a server; opens it where there is none.
    pub(super) fn link_for(
        &mut self,
        client: ClientId,
        slot: usize,
        out: &mut Outgoing,
    ) -> Result<LinkId, String> {
        match self.sessions.get_mut(client) {
            Some(session) => self.backends.link_for(slot, client, session, out),
            None => Err("the client is gone".to_owned()),
        }
    }

    /// Opens the links to all servers that a client may use.
    pub(super) fn use_servers(&mut self, client: ClientId, out: &mut Outgoing) {
        let slots = self.client(client).map_or_else(Vec::new, |view| view.slots().collect());
        for slot in slots {
            // A failure is reported when the server is used.
            self.link_for(client, slot, out).ok();
        }
    }

    /// Asks a server for the lowest level of log messages that one of its clients wants.
    pub(super) fn sync_log_level(&mut self, link: LinkId, out: &mut Outgoing) {
        let users = self.users_of(link);
        let level = users.iter().filter_map(|user| self.sessions.get(*user)?.log_level).min();
        if let (Some(level), Some(link)) = (level, self.backends.links.get_mut(link)) {
            link.set_log_level(level, out);
        }
    }

    /// Asks a server for changes of the resources that its clients want to hear of.
    pub(super) fn sync_subscriptions(&mut self, id: LinkId, out: &mut Outgoing) {
        let Some(link) = self.backends.links.get(id).filter(|link| link.is_open()) else { return };
        let slot = link.slot;
        let mut wanted = BTreeSet::new();
        for view in self.users_of(id).into_iter().filter_map(|user| self.client(user)) {
            let uris = view.session.subscriptions.uris();
            wanted.extend(uris.filter(|uri| view.slot_of_uri(uri) == Some(slot)).cloned());
        }
        if let Some(link) = self.backends.links.get_mut(id) {
            link.subscribe(wanted, out);
        }
    }

    /// Cancels a client's request.
    pub(super) fn withdraw(&mut self, number: u64, reason: &str, out: &mut Outgoing) {
        let Some(PendingRequest { link, span, .. }) = out.requests.take(number) else { return };
        if let Some(its) = self.backends.links.get_mut(link) {
            its.calls.end();
        }
        out.end_span(span, SpanOutcome::Cancelled);
        out.cancel(link, number, reason);
    }

    /// Answers each request over a link that has no response with an error.
    pub(super) fn fail_requests(&mut self, id: LinkId, why: &str, out: &mut Outgoing) {
        let Some(link) = self.backends.links.get_mut(id) else { return };
        link.drop_requests();
        let slot = link.slot;
        let name = self.backends.slot(slot).name();
        let text =
            format!("the server `{name}` is gone while this ran; its outcome is unknown: {why}");
        for request in out.requests.take_all_over(id) {
            if let Purpose::Client(its) = request.purpose {
                self.sessions.end_request(its.client, &its.id);
                out.end_span(request.span, SpanOutcome::Failed("server_lost"));
                let (client, reason) = (its.client, "server_lost");
                self.sessions.answer_failure(client, &its.id, &its.method, reason, &text, out);
            }
        }
    }

    /// Closes a link, and answers the requests over it.
    pub(super) fn close_link(&mut self, id: LinkId, why: &str, out: &mut Outgoing) {
        self.fail_requests(id, why, out);
        let Some(mut link) = self.backends.detach(id) else { return };
        let slot = link.slot;
        if let Some(owner) = link.owner.and_then(|owner| self.sessions.get_mut(owner)) {
            owner.links.remove(&slot);
        }
        let why = format!("the server `{}` is not there: {why}", self.backends.slot(slot).name());
        for (client, line) in link.calls.take_waiting() {
            self.refuse_line(client, slot, &line, &why, out);
        }
        out.close(id);
    }

    /// Answers a request that does not go to its server.
    pub(super) fn refuse(
        &self,
        slot: usize,
        request: &Request<'_>,
        reason: &'static str,
        why: &str,
        out: &mut Outgoing,
    ) {
        let span = self.begin_span(slot, request, out);
        out.end_span(span, SpanOutcome::Failed(reason));
        let Request { client, id, method, .. } = request;
        self.sessions.answer_failure(*client, id, method, reason, why, out);
    }

    /// Answers a request that has waited for its server in vain.
    pub(super) fn refuse_line(
        &self,
        client: ClientId,
        slot: usize,
        line: &[u8],
        why: &str,
        out: &mut Outgoing,
    ) {
        if let Some(Message::Request { id, method, params }) = look(line) {
            let request = Request::new(client, &id, &method, &params, line);
            self.refuse(slot, &request, "server_down", why, out);
        }
    }

    /// The span of a request that goes to a server, where calls are traced.
    pub(super) fn begin_span(
        &self,
        slot: usize,
        request: &Request<'_>,
        out: &Outgoing,
    ) -> Option<Box<Span>> {
        // Without tracing nothing is looked up.
        if !self.tracer.is_enabled() {
            return None;
        }
        let session = self.sessions.get(request.client)?;
        self.tracer.begin(session, self.backends.slot(slot).name(), request, out.now())
    }

    /// A handshake has ended: with the response to its request, or because there was none in time.
    pub(super) fn end_handshake(
        &mut self,
        id: LinkId,
        response: Option<Response<'_>>,
        out: &mut Outgoing,
    ) {
        let Some(link) = self.backends.links.get_mut(id) else { return };
        let outcome = match response {
            Some(response) => link.finish_handshake(response, out),
            None => link.handshake_timeout(),
        };
        match outcome {
            HandshakeOutcome::Open => {
                self.sync_log_level(id, out);
                self.sync_subscriptions(id, out);
                self.resume_waiting(id, out);
                out.settle();
            }
            HandshakeOutcome::Failed(why) => self.fail_link(id, &why, out),
            HandshakeOutcome::Refused(why) => {
                out.push(Effect::Refused { link: id, why: why.clone() });
                self.fail_link(id, &why, out);
            }
            HandshakeOutcome::UnknownProtocol => {
                if self.backends.fall_back(id, out) {
                    self.resume_waiting(id, out);
                    self.close_link(id, "it does not know the newer protocol", out);
                    out.settle();
                }
            }
        }
    }

    fn resume_waiting(&mut self, id: LinkId, out: &mut Outgoing) {
        let Some(link) = self.backends.links.get_mut(id) else { return };
        for (client, line) in link.calls.take_waiting() {
            out.resume(client, line);
        }
    }

    /// A link has no session for now: the requests that wait for it are answered with an error.
    fn fail_link(&mut self, id: LinkId, why: &str, out: &mut Outgoing) {
        let Some(link) = self.backends.links.get_mut(id) else { return };
        let is_news = link.fail(why, out.now());
        let (slot, waiting) = (link.slot, link.calls.take_waiting());
        let text = self.backends.slot(slot).unusable(why);
        for (client, line) in waiting {
            self.refuse_line(client, slot, &line, &text, out);
        }
        if is_news {
            let name = self.backends.slot(slot).name();
            out.log(format!("no session with the server `{name}`: {why}"));
        }
        out.settle();
    }

    /// Nothing comes over a link any more.
    pub(super) fn lose_link(&mut self, id: LinkId, why: &str, out: &mut Outgoing) {
        // A link that was not used yet has nothing to lose.
        let is_fresh = |link: &Link| *link.stage() == LinkStage::Fresh;
        if self.backends.links.get(id).is_none_or(is_fresh) {
            return;
        }
        self.fail_requests(id, why, out);
        self.fail_link(id, why, out);
    }

    /// The state of the server behind a link has changed.
    pub(super) fn set_server_state(&mut self, id: LinkId, state: State, out: &mut Outgoing) {
        let Some(link) = self.backends.links.get_mut(id) else { return };
        let was_up = link.is_up();
        link.set_server_state(state, out.requests.next_number());
        let (slot, is_up) = (link.slot, link.is_up());
        if matches!(link.stage(), LinkStage::Failed(_)) && is_up && !was_up {
            return link.open_session(out);
        }
        if is_up != was_up && self.backends.slot(slot).backend.hide_when_down {
            self.notify_server_changed(slot, out);
        }
        out.settle();
    }

    /// Reads the lists, opens the sessions again and closes the links whose time has come.
    pub(super) fn wake_links(&mut self, out: &mut Outgoing) {
        for id in self.backends.links.due(out.now()) {
            let Some(link) = self.backends.links.get_mut(id) else { continue };
            for kind in link.lists.take_due(out.now()) {
                link.read_list(kind, out);
            }
            if link.is_retry_due(out.now()) {
                link.open_session(out);
            } else if link.is_idle(out.now()) {
                // It comes back with the next call.
                self.close_link(id, "nobody has used it for a while", out);
            }
        }
    }

    /// A page of a list has come.
    pub(super) fn add_page(
        &mut self,
        id: LinkId,
        kind: Kind,
        page: Response<'_>,
        out: &mut Outgoing,
    ) {
        let outcome = self.backends.add_page(id, kind, page, self.tools.has_admin(), out);
        let Some(PageOutcome::End { list, has_changed }) = outcome else { return };
        if let Some(list) = list {
            self.keep_list(id, kind, list, out);
        }
        if let Some(link) = self.backends.links.get_mut(id).filter(|_| has_changed) {
            link.read_list(kind, out);
        }
        out.settle();
    }

    /// A list was read to its end.
    fn keep_list(&mut self, id: LinkId, kind: Kind, list: Reading, out: &mut Outgoing) {
        let Some(slot) = self.backends.links.get(id).map(|link| link.slot) else { return };
        let Some([known, seen, new]) = self.backends.keep_list(id, kind, list, out) else { return };
        let mut moved = self.names.rebuild(&[kind], &self.backends, self.tools, out);
        self.notify_list_changed(kind, id, &seen, &new, out);
        // Entries of other servers can have lost their names to these, or have them back.
        moved.retain(|moved| moved.slot != slot);
        let told = self.users_of(id).into_iter().map(|user| (user, kind)).collect();
        self.notify_moved(&moved, told, out);
        if kind == Kind::Tools {
            self.notify_let_in(slot, &known, &new, out);
        }
    }

    /// A client's request had no response in time.
    pub(super) fn time_out_request(
        &mut self,
        id: LinkId,
        number: u64,
        request: &ClientRequest,
        span: Option<Box<Span>>,
        out: &mut Outgoing,
    ) {
        let Some(link) = self.backends.links.get_mut(id) else { return };
        link.calls.end();
        let (slot, absence) = (link.slot, link.absence_since(number));
        let timeouts = link.calls.circuit.time_out(out.now());
        let server = self.backends.slot(slot);
        let why = match absence {
            Some(why) => server.unusable(&why),
            None => format!(
                "the server `{}` has not answered in time (`call_timeout`); its outcome is unknown",
                server.name()
            ),
        };
        out.end_span(span, SpanOutcome::Failed("timed_out"));
        out.cancel(id, number, "it took too long");
        let ClientRequest { client, id, method, .. } = request;
        self.sessions.end_request(*client, id);
        self.sessions.answer_failure(*client, id, method, "timed_out", &why, out);
        if let Some(timeouts) = timeouts {
            out.log(format!(
                "the server `{}` left {timeouts} calls in a row without an answer: for {} s calls \
                 to it are answered at once, with an error",
                server.name(),
                CIRCUIT_OPEN_FOR.as_secs()
            ));
        }
    }

    /// Tells the clients of a server that all its entries have come or gone.
    pub(super) fn notify_server_changed(&self, slot: usize, out: &mut Outgoing) {
        let server = self.backends.slot(slot);
        for client in self.sessions.open() {
            let Some(view) = self.client(client).filter(|view| view.may_use_server(slot)) else {
                continue;
            };
            let sees = |kind: &Kind| {
                let mut entries = server.known(*kind).iter();
                view.may_see(slot, *kind)
                    && entries.any(|entry| view.is_shown(*kind, &entry.exposed))
            };
            // Resources and their templates have one notification.
            let methods: BTreeSet<&str> =
                Kind::ALL.into_iter().filter(sees).map(Kind::notification).collect();
            for kind in [Kind::Tools, Kind::Prompts, Kind::Resources] {
                if methods.contains(kind.notification()) {
                    self.sessions.notify_list_changed(client, kind, out);
                }
            }
        }
    }

    /// Tells the clients of a link that one of its lists has changed, where they see that. Other links of the
    /// server may have other lists.
    pub(super) fn notify_list_changed(
        &self,
        kind: Kind,
        link: LinkId,
        old: &[CatalogEntry],
        new: &[CatalogEntry],
        out: &mut Outgoing,
    ) {
        if old == new {
            return;
        }
        for user in self.users_of(link) {
            let Some(view) = self.client(user).filter(|view| view.session.is_open()) else {
                continue;
            };
            let is_seen = |entry: &&CatalogEntry| view.is_shown(kind, &entry.exposed);
            if !old.iter().filter(is_seen).eq(new.iter().filter(is_seen)) {
                self.sessions.notify_list_changed(user, kind, out);
            }
        }
    }

    /// Tells clients of names that are another server's now, except those that were told that the list has changed.
    pub(super) fn notify_moved(
        &self,
        all: &[MovedName],
        mut told: BTreeSet<(ClientId, Kind)>,
        out: &mut Outgoing,
    ) {
        for MovedName { kind, slot, name } in all {
            if self.backends.slot(*slot).is_removed() {
                continue;
            }
            for client in self.sessions.open() {
                if !told.contains(&(client, *kind))
                    && self.client(client).is_some_and(|view| {
                        view.may_use_server(*slot)
                            && view.may_see(*slot, *kind)
                            && view.is_shown(*kind, name)
                    })
                {
                    told.insert((client, *kind));
                    self.sessions.notify_list_changed(client, *kind, out);
                }
            }
        }
    }

    /// Tells clients whose access is a list of tools alone, where a server has come or gone for them by its tools.
    pub(super) fn notify_let_in(
        &self,
        slot: usize,
        old: &[CatalogEntry],
        new: &[CatalogEntry],
        out: &mut Outgoing,
    ) {
        let has = |kind: Kind| !self.backends.slot(slot).known(kind).is_empty();
        for client in self.sessions.open() {
            let Some(view) = self.client(client) else { continue };
            let access = view.session.access();
            let is_in =
                |tools: &[CatalogEntry]| tools.iter().any(|tool| access.has_tool(&tool.exposed));
            if !access.is_by_tools() || !view.may_use_server(slot) || is_in(old) == is_in(new) {
                continue;
            }
            if has(Kind::Prompts) {
                self.sessions.notify_list_changed(client, Kind::Prompts, out);
            }
            if has(Kind::Resources) || has(Kind::Templates) {
                self.sessions.notify_list_changed(client, Kind::Resources, out);
            }
        }
    }
}
