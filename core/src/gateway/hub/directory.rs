//! Composes the clients' sessions, the servers with their links, and the names: everything that needs more than one
//! of them. Driven by [`Hub`](super::Hub). Never reads a message of a client.

use std::collections::BTreeSet;

use super::Settings;
use super::admin_tools::GatewayTools;
use super::backends::Backends;
use super::client_view::ClientView;
use super::names::Names;
use super::outbox::Outbox;
use super::pending_requests::{PendingRequest, Purpose};
use super::route_request::Request;
use super::sessions::Sessions;
use super::tracing::Tracer;
use crate::gateway::span::{Outcome, Span};
use crate::gateway::{ClientId, LinkId};
use crate::mcp::Era;
use crate::mcp::envelope::{Message, look};

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
        let slot = link.slot();
        let uses = |client: &ClientId| {
            self.client(*client)
                .is_some_and(|view| view.link_to(slot) == Some(id) && view.has_server(slot))
        };
        match link.owner() {
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
        out: &mut Outbox,
    ) -> Result<LinkId, String> {
        match self.sessions.get_mut(client) {
            Some(session) => self.backends.link_for(slot, client, session, out),
            None => Err("the client is gone".to_owned()),
        }
    }

    /// Opens the links to all servers that a client may use.
    pub(super) fn use_servers(&mut self, client: ClientId, out: &mut Outbox) {
        let slots = self.client(client).map_or_else(Vec::new, |view| view.slots().collect());
        for slot in slots {
            // A failure is reported when the server is used.
            self.link_for(client, slot, out).ok();
        }
    }

    /// Asks a server for the lowest level of log messages that one of its clients wants.
    pub(super) fn sync_log_level(&mut self, link: LinkId, out: &mut Outbox) {
        let users = self.users_of(link);
        let level = users.iter().filter_map(|user| self.sessions.get(*user)?.log_level).min();
        if let (Some(level), Some(link)) = (level, self.backends.links.get_mut(link)) {
            link.set_log_level(level, out);
        }
    }

    /// Asks a server for changes of the resources that its clients want to hear of.
    pub(super) fn sync_subscriptions(&mut self, id: LinkId, out: &mut Outbox) {
        let Some(link) = self.backends.links.get(id).filter(|link| link.is_open()) else { return };
        let slot = link.slot();
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
    pub(super) fn withdraw(&mut self, number: u64, reason: &str, out: &mut Outbox) {
        let Some(PendingRequest { link, span, .. }) = out.requests.take(number) else { return };
        if let Some(its) = self.backends.links.get_mut(link) {
            its.calls.end();
        }
        out.end_span(span, Outcome::Cancelled);
        out.cancel(link, number, reason);
    }

    /// Answers each request over a link that has no response with an error.
    pub(super) fn fail_requests(&mut self, id: LinkId, why: &str, out: &mut Outbox) {
        let Some(link) = self.backends.links.get_mut(id) else { return };
        link.drop_requests();
        let slot = link.slot();
        let name = self.backends.slot(slot).name();
        let text =
            format!("the server `{name}` is gone while this ran; its outcome is unknown: {why}");
        for request in out.requests.take_all_over(id) {
            if let Purpose::Client(its) = request.purpose {
                self.sessions.end_request(its.client, &its.id);
                out.end_span(request.span, Outcome::Failed("server_lost"));
                let (client, reason) = (its.client, "server_lost");
                self.sessions.answer_failure(client, &its.id, &its.method, reason, &text, out);
            }
        }
    }

    /// Closes a link, and answers the requests over it.
    pub(super) fn close_link(&mut self, id: LinkId, why: &str, out: &mut Outbox) {
        self.fail_requests(id, why, out);
        let Some(mut link) = self.backends.detach(id) else { return };
        let slot = link.slot();
        if let Some(owner) = link.owner().and_then(|owner| self.sessions.get_mut(owner)) {
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
        out: &mut Outbox,
    ) {
        let span = self.begin_span(slot, request, out);
        out.end_span(span, Outcome::Failed(reason));
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
        out: &mut Outbox,
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
        out: &Outbox,
    ) -> Option<Box<Span>> {
        // Without tracing nothing is looked up.
        if !self.tracer.is_enabled() {
            return None;
        }
        let session = self.sessions.get(request.client)?;
        self.tracer.begin(session, self.backends.slot(slot).name(), request, out.now())
    }
}
