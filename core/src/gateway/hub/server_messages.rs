//! Passes the responses and notifications of servers on to the clients that they are for. Driven by [`Hub::handle`].
//! Never sends a request.

use super::Hub;
use super::outgoing::{ClientRequest, PendingRequest, Purpose, Response};
use super::sessions::{ClientSession, INFO, level_in};
use crate::gateway::spans::{Span, SpanOutcome};
use crate::gateway::{ClientId, LinkId, NotTaken};
use crate::mcp::envelope::{Id, Message, edit, look, param, with_id};
use crate::mcp::{Era, Kind, json as raw, responses};

impl Hub {
    /// The response to a request of ours.
    pub(super) fn handle_response(&mut self, link: LinkId, id: &Id, line: Vec<u8>, is_error: bool) {
        let directory = &mut self.directory;
        let answered = directory.out.requests.take_answered(link, id);
        let Some((number, request)) = answered else { return };
        let PendingRequest { purpose, span, .. } = request;
        let response = Response { line: &line, is_error };
        match purpose {
            Purpose::Client(request) => {
                self.pass_response(link, (number, request), span, response);
                if self.directory.backends.settings.is_transparent {
                    self.server_requests.retry_deferred(&mut self.directory);
                }
            }
            Purpose::OpenSession => directory.end_handshake(link, Some(response)),
            Purpose::ListPage(kind) => directory.add_page(link, kind, response),
            Purpose::Listen => {
                if let Some(link) = directory.backends.links.get_mut(link) {
                    link.listener.take_if(|listener| *listener == number);
                }
            }
            Purpose::Unawaited => {}
        }
    }

    fn pass_response(
        &mut self,
        id: LinkId,
        (number, request): (u64, ClientRequest),
        span: Option<Box<Span>>,
        Response { line, is_error }: Response<'_>,
    ) {
        if let Some(link) = self.directory.backends.links.get_mut(id) {
            link.calls.end();
            link.calls.circuit.close();
        }
        if request.is_held {
            self.directory.out.end_span(span, outcome_of(line, is_error));
            return self.server_requests.held_calls.finish(number, line);
        }
        if span.is_some() {
            self.directory.out.end_span(span, outcome_of(line, is_error));
        }
        let method = &request.method;
        if !is_error {
            self.tasks.note_told(id, method, line);
        }
        let replaced = match is_error {
            false if request.may_make_task => self.tasks.note(&self.directory, id, &request, line),
            false if method == "tasks/list" => {
                Some(self.tasks.own_page(&self.directory, id, &request, line))
            }
            false => self.tasks.answer_with_handles(&self.directory, id, &request, line),
            true => None,
        };
        let line = replaced.as_deref().unwrap_or(line);
        if let Some(session) = self.directory.sessions.get_mut(&request.client) {
            session.requests.remove(&request.id);
            if let Some(uri) = request.uri
                && !is_error
                && method == "resources/subscribe"
            {
                // Others may have been answered since it was let through.
                if let Some(why) = session.subscriptions.refusal_of(&uri) {
                    let (client, id) = (request.client, &request.id);
                    return self.directory.out.answer_error(client, id, -32603, &why);
                }
                session.subscriptions.resources.insert(uri.clone());
                if let Some(link) = self.directory.backends.links.get_mut(id) {
                    link.subscribed.insert(uri);
                }
            }
        }
        if let Some(line) = with_id(line, request.id.raw()) {
            let line = match self.directory.is_bridged(request.client, id) {
                true => modern_answer(line, method),
                false => line,
            };
            self.directory.out.answer(request.client, &request.id, line);
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
        let line = responses::failure(&id, -32603, reason, true, why);
        self.handle_response(link, &id, line, true);
    }

    /// Ends the requests whose deadlines have passed.
    pub(super) fn expire_requests(&mut self) {
        let directory = &mut self.directory;
        let now = directory.out.now;
        while let Some((number, request)) = directory.out.requests.take_expired(now) {
            let PendingRequest { link, purpose, span, .. } = request;
            match purpose {
                Purpose::OpenSession => directory.end_handshake(link, None),
                Purpose::Client(request) => {
                    directory.time_out_request(link, number, &request, span);
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
            if self.directory.backends.settings.is_transparent {
                for client in self.directory.users_of(link) {
                    if self.directory.sessions.get(&client).is_some_and(|its| its.is_open) {
                        self.directory.notify(client, kind);
                    }
                }
                return;
            }
            if let Some(link) = self.directory.backends.links.get_mut(link) {
                // Resources and their templates have one notification.
                for kind in
                    Kind::ALL.into_iter().filter(|its| its.notification() == kind.notification())
                {
                    link.read_list(kind, &mut self.directory.out);
                }
            }
            return;
        }
        match method {
            "notifications/progress" => self.pass_progress(link, &line),
            "notifications/message" => self.pass_log_message(link, &line, about),
            "notifications/resources/updated" => self.pass_resource_update(link, &line),
            "notifications/cancelled" => {
                self.server_requests.cancel(link, &line, &mut self.directory.out)
            }
            "notifications/subscriptions/acknowledged" => {}
            "notifications/tasks/status" => {
                if let Some(client) = self.tasks.owner_of(link, &line) {
                    self.directory.out.send_to_client(client, line, None);
                }
            }
            _ => match self.directory.out.requests.about(link, about).filter(|_| about.is_some()) {
                Some((client, about)) => {
                    self.directory.out.send_to_client(client, line, Some(about))
                }
                None => {
                    for client in self.directory.users_of(link) {
                        if self.directory.era_of(client) != Era::Modern {
                            self.directory.out.send_to_client(client, line.clone(), None);
                        }
                    }
                }
            },
        }
    }

    fn pass_progress(&mut self, link: LinkId, line: &[u8]) {
        let Some(token) = param(line, &["progressToken"]) else { return };
        if let Some(request) = self.directory.out.requests.by_token(link, token)
            && let Some(theirs) = &request.token
        {
            let edited = edit(line, vec![(raw::place(line, token), theirs.clone())]);
            let (client, about) = (request.client, Some(request.id.clone()));
            self.directory.out.send_to_client(client, edited, about);
        }
    }

    fn pass_log_message(&mut self, link: LinkId, line: &[u8], about: Option<&Id>) {
        let level = level_in(line, &["level"]);
        // Where another client asked for more, one that has not asked does not get all of it.
        let is_asked =
            self.directory.backends.links.get(link).is_some_and(|its| its.log_level.is_some());
        let default = if is_asked { INFO } else { 0 };
        let wants = |session: &ClientSession| {
            level.is_none_or(|level| level >= session.log_level.unwrap_or(default))
        };
        let request = self.directory.out.requests.about(link, about);
        if let Some((client, id)) = request.clone().filter(|_| about.is_some()) {
            if self.directory.sessions.get(&client).is_some_and(wants)
                && self.wants_log(client, &id, level)
            {
                self.directory.out.send_to_client(client, line.to_vec(), Some(id));
            }
            return;
        }
        // It may be about a call that runs, which must not reach other clients.
        let callers = self.directory.out.requests.callers(link);
        let users = if callers.is_empty() { self.directory.users_of(link) } else { callers };
        for client in users {
            let Some(session) = self.directory.sessions.get(&client) else { continue };
            let own = request.clone().filter(|(whose, _)| *whose == client).map(|(_, id)| id);
            // Without a session only messages that belong to a request are passed on.
            let is_asked = |id: &Id| self.wants_log(client, id, level);
            if session.is_open
                && wants(session)
                && (!session.is_modern() || own.as_ref().is_some_and(is_asked))
            {
                self.directory.out.send_to_client(client, line.to_vec(), own);
            }
        }
    }

    /// Whether log messages of this level are wanted for a request. A server of the newer protocol knows that
    /// itself.
    fn wants_log(&self, client: ClientId, id: &Id, level: Option<usize>) -> bool {
        let session = self.directory.sessions.get(&client);
        let number = session.and_then(|session| session.requests.get(id));
        match number.and_then(|number| self.directory.out.requests.client_request(*number)) {
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
        let members = raw::members(params).unwrap_or_default().into_iter();
        let others = members.filter(|member| &params[member.key.clone()] != br#""_meta""#);
        let parts = others.map(|member| &params[member.key.start..member.value.end]);
        let members = parts.collect::<Vec<_>>().join(&b',');
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
                self.directory.out.send_to_client(client, line, about);
            }
        }
    }
}

/// The response of an older server, with the members that the newer protocol requires.
pub(super) fn modern_answer(line: Vec<u8>, method: &str) -> Vec<u8> {
    // That a resource is not there has another code now.
    if let Some(code) = raw::get(&line, &["error", "code"]) {
        return match method == "resources/read" && code == b"-32002" {
            true => edit(&line, vec![(raw::place(&line, code), b"-32602".to_vec())]),
            false => line,
        };
    }
    let Some(result) = raw::get(&line, &["result"]) else { return line };
    let Some(members) = raw::members(result) else { return line };
    let cached: &[(&str, &str)] = match method {
        "resources/read" => &[("ttlMs", "0"), ("cacheScope", r#""private""#)],
        _ => &[],
    };
    let mut more = String::new();
    for (key, value) in [("resultType", r#""complete""#)].iter().chain(cached) {
        if raw::get(result, &[key]).is_none() {
            more.push_str(&format!(r#""{key}":{value},"#));
        }
    }
    if members.is_empty() {
        more.pop();
    }
    let start = raw::place(&line, result).start + 1;
    edit(&line, vec![(start..start, more.into_bytes())])
}

/// How a request ended, by its response.
fn outcome_of(line: &[u8], is_error: bool) -> SpanOutcome {
    if is_error {
        return SpanOutcome::Error {
            code: raw::get(line, &["error", "code"])
                .and_then(|raw| std::str::from_utf8(raw).ok()?.parse().ok()),
            message: raw::get(line, &["error", "message"]).and_then(raw::text).unwrap_or_default(),
        };
    }
    match raw::get(line, &["result", "isError"]) {
        Some(b"true") => SpanOutcome::ToolFailed,
        _ => SpanOutcome::Answered,
    }
}
