//! Passes the responses and notifications of servers on to the clients that they are for. Driven by [`Hub::handle`].
//! Never sends a request.

use serde_json::json;

use super::Hub;
use super::bytes::{edit, place};
use super::era_bridge::modern_answer;
use super::log_levels::{INFO, level_in};
use super::pending_requests::{ClientRequest, PendingRequest, Purpose, Response};
use super::sessions::ClientSession;
use super::tracing::outcome_of;
use crate::gateway::span::Span;
use crate::gateway::{ClientId, LinkId, NotTaken};
use crate::mcp::envelope::{Id, Message, look, param, with_id};
use crate::mcp::{Kind, json as raw, responses};

impl Hub {
    /// The response to a request of ours.
    pub(super) fn handle_response(&mut self, link: LinkId, id: &Id, line: Vec<u8>, is_error: bool) {
        let (directory, out) = (&mut self.directory, &mut self.out);
        let Some((number, request)) = out.requests.take_answered(link, id) else { return };
        let PendingRequest { purpose, span, .. } = request;
        let response = Response { line: &line, is_error };
        match purpose {
            Purpose::Client(request) => self.pass_response(link, request, span, response),
            Purpose::OpenSession => directory.end_handshake(link, Some(response), out),
            Purpose::ListPage(kind) => directory.add_page(link, kind, response, out),
            Purpose::Listen => {
                if let Some(link) = directory.backends.links.get_mut(link) {
                    link.end_listener(number);
                }
            }
            Purpose::Unawaited => {}
        }
    }

    fn pass_response(
        &mut self,
        id: LinkId,
        request: ClientRequest,
        span: Option<Box<Span>>,
        Response { line, is_error }: Response<'_>,
    ) {
        let mut link = self.directory.backends.links.get_mut(id);
        if let Some(link) = &mut link {
            link.calls.end();
            link.calls.circuit.close();
        }
        if span.is_some() {
            self.out.end_span(span, outcome_of(line, is_error));
        }
        let method = &request.method;
        if let Some(session) = self.directory.sessions.get_mut(request.client) {
            session.requests.remove(&request.id);
            if let Some(uri) = request.uri
                && !is_error
                && method == "resources/subscribe"
            {
                session.subscriptions.subscribe(uri.clone());
                if let Some(link) = link {
                    link.note_subscribed(uri);
                }
            }
        }
        if let Some(line) = with_id(line, request.id.raw()) {
            let line = match self.directory.is_bridged(request.client, id) {
                true => modern_answer(line, method),
                false => line,
            };
            self.out.answer(request.client, &request.id, line);
        }
    }

    /// A request of ours did not get to its server: it is answered in the server's place.
    pub(super) fn not_taken(&mut self, link: LinkId, line: &[u8], why: &NotTaken) {
        let Some(Message::Request { id, .. }) = look(line) else { return };
        let (reason, why) = match why {
            NotTaken::Full => (
                "server_busy",
                "nothing was done: the server does not read what it is sent, and too much waits for it",
            ),
            NotTaken::Blocked(why) => ("server_down", why.as_str()),
        };
        let data = json!({"reason": reason, "retryable": true});
        let error = json!({"code": -32603, "message": why, "data": data});
        self.handle_response(link, &id, responses::line(&id, "error", &error), true);
    }

    /// Ends the requests whose deadlines have passed.
    pub(super) fn expire_requests(&mut self) {
        let (directory, out) = (&mut self.directory, &mut self.out);
        while let Some((number, request)) = out.requests.take_expired(out.now()) {
            let PendingRequest { link, purpose, span, .. } = request;
            match purpose {
                Purpose::OpenSession => directory.end_handshake(link, None, out),
                Purpose::Client(request) => {
                    directory.time_out_request(link, number, &request, span, out);
                }
                Purpose::ListPage(_) | Purpose::Listen | Purpose::Unawaited => {}
            }
        }
    }

    /// A notification of a server's.
    pub(super) fn handle_server_notification(
        &mut self,
        link: LinkId,
        method: &str,
        line: Vec<u8>,
        about: Option<&Id>,
    ) {
        if let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.notification() == method) {
            if let Some(link) = self.directory.backends.links.get_mut(link) {
                // Resources and their templates have one notification.
                for kind in
                    Kind::ALL.into_iter().filter(|its| its.notification() == kind.notification())
                {
                    link.read_list(kind, &mut self.out);
                }
            }
            return;
        }
        match method {
            "notifications/progress" => self.pass_progress(link, &line),
            "notifications/message" => self.pass_log_message(link, &line, about),
            "notifications/resources/updated" => self.pass_resource_update(link, &line),
            "notifications/cancelled" => self.server_requests.cancel(link, &line, &mut self.out),
            "notifications/subscriptions/acknowledged" => {}
            _ => match self.out.requests.about(link, about).filter(|_| about.is_some()) {
                Some((client, about)) => self.out.send_to_client(client, line, Some(about)),
                None => {
                    for client in self.directory.users_of(link) {
                        if !self.directory.sessions.is_modern(client) {
                            self.out.send_to_client(client, line.clone(), None);
                        }
                    }
                }
            },
        }
    }

    fn pass_progress(&mut self, link: LinkId, line: &[u8]) {
        let Some(token) = param(line, &["progressToken"]) else { return };
        if let Some(request) = self.out.requests.by_token(link, token)
            && let Some(theirs) = &request.token
        {
            let edited = edit(line, vec![(place(line, token), theirs.clone())]);
            let (client, about) = (request.client, Some(request.id.clone()));
            self.out.send_to_client(client, edited, about);
        }
    }

    fn pass_log_message(&mut self, link: LinkId, line: &[u8], about: Option<&Id>) {
        let level = level_in(line, &["level"]);
        // Where another client asked for more, one that has not asked does not get all of it.
        let is_asked =
            self.directory.backends.links.get(link).is_some_and(|its| its.has_log_level());
        let default = if is_asked { INFO } else { 0 };
        let wants = |session: &ClientSession| {
            level.is_none_or(|level| level >= session.log_level.unwrap_or(default))
        };
        let request = self.out.requests.about(link, about);
        if let Some((client, id)) = request.clone().filter(|_| about.is_some()) {
            if self.directory.sessions.get(client).is_some_and(wants)
                && self.wants_log(client, &id, level)
            {
                self.out.send_to_client(client, line.to_vec(), Some(id));
            }
            return;
        }
        // It may be about a call that runs, which must not reach other clients.
        let callers = self.out.requests.callers(link);
        let users = if callers.is_empty() { self.directory.users_of(link) } else { callers };
        for client in users {
            let Some(session) = self.directory.sessions.get(client) else { continue };
            let own = request.clone().filter(|(whose, _)| *whose == client).map(|(_, id)| id);
            // Without a session only messages that belong to a request are passed on.
            let is_asked = |id: &Id| self.wants_log(client, id, level);
            if session.is_open()
                && wants(session)
                && (!session.is_modern() || own.as_ref().is_some_and(is_asked))
            {
                self.out.send_to_client(client, line.to_vec(), own);
            }
        }
    }

    /// Whether log messages of this level are wanted for a request. A server of the newer protocol knows that
    /// itself.
    fn wants_log(&self, client: ClientId, id: &Id, level: Option<usize>) -> bool {
        let session = self.directory.sessions.get(client);
        let number = session.and_then(|session| session.requests.get(id));
        match number.and_then(|number| self.out.requests.client_request(*number)) {
            Some((link, ClientRequest { log_level, .. })) => {
                !self.directory.is_bridged(client, link)
                    || log_level.is_some_and(|least| level.is_none_or(|level| level >= least))
            }
            None => false,
        }
    }

    fn pass_resource_update(&mut self, link: LinkId, line: &[u8]) {
        let Some(uri) = param(line, &["uri"]).and_then(raw::text) else { return };
        // Over the newer protocol it names our own listener: all else is passed on.
        let params = raw::get(line, &["params"]).unwrap_or(b"{}");
        let mut members = Vec::new();
        for member in raw::members(params).unwrap_or_default() {
            if &params[member.key.clone()] != br#""_meta""# {
                members.push(b',');
                members.extend_from_slice(&params[member.key]);
                members.push(b':');
                members.extend_from_slice(&params[member.value]);
            }
        }
        let Some(slot) = self.directory.backends.links.get(link).map(|its| its.slot) else {
            return;
        };
        for client in self.directory.users_of(link) {
            let Some(view) = self.directory.client(client) else { continue };
            // The client may mean another server's resource by this URI.
            if view.slot_of_uri(&uri).is_some_and(|its| its != slot) {
                continue;
            }
            for (line, about) in view.session.subscriptions.updates(&uri, &members) {
                self.out.send_to_client(client, line, about);
            }
        }
    }
}
