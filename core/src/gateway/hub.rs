//! Owns the whole of a gateway: the clients' sessions on the one side, the links to the servers on the other. Driven by
//! [`Hub::handle`]; the daemon performs the effects. Never opens a connection and never looks at a clock.
//!
//! To a client the hub is a server, to a server it is a client. Requests that are about all servers (the handshake, the
//! lists) it answers itself; all others go over the link of the server that they are for, under an id of the hub's
//! own, and the response comes back under the client's. Ids and names are the only bytes of a message that change.
//!
//! ```text
//!   Fresh ──(a client needs it)──▶ Opening ──(handshake, all lists)──▶ Open
//!                                     │  ▲                              │
//!                                     ▼  └──(a while later, or needed)  │
//!                                   Failed ◀───────(link lost)──────────┘
//! ```
//!
//! | part | owns |
//! |---|---|
//! | [`Directory`] | `Sessions` (clients), `Backends` (servers, each `Link`), `Names` (which server has a name) |
//! | [`ServerRequests`] | requests of servers to clients |
//! | [`HeldRequests`] | first requests that wait for servers to start |
//! | [`Outgoing`] | effects, and `PendingRequests` with their deadlines |

mod admin_tools;
mod backends;
mod bytes;
mod client_view;
mod directory;
mod era_bridge;
mod held_requests;
mod link;
mod link_calls;
mod list_paging;
mod log_levels;
mod names;
mod outgoing;
mod pending_requests;
mod route_request;
mod server_messages;
mod server_requests;
mod sessions;
mod subscriptions;
#[cfg(test)]
mod tests;
mod tracing;

use std::collections::BTreeSet;

use serde_json::json;

use self::directory::Directory;
use self::held_requests::HeldRequests;
use self::link::LinkStage;
use self::outgoing::Outgoing;
use self::route_request::Request;
use self::server_requests::ServerRequests;
use super::backend::{Backend, Expose};
use super::span::Span;
use super::{ClientId, Effect, Input, LinkId};
use crate::limits::MESSAGE_BYTES_MAX;
use crate::mcp::envelope::{Id, Message, look, look_at_ends, look_closely, param};
use crate::mcp::{Kind, json as raw, responses};
use crate::service::State;
use crate::time::Time;

/// Ambiguous messages are never passed on: a reader that finds another id in one takes it for the response to another
/// request, and one that finds another name calls a tool that is denied.
const AMBIGUOUS: &str = "a key of the message stands there twice, or is written with escapes: not everybody reads the \
     same in it";

/// The settings of a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The version of afresh, for the servers and the clients.
    pub version: String,
    /// There is one client at most: servers get its name and its capabilities.
    pub is_single: bool,
    /// How much of the list of tools is shown.
    pub expose: Expose,
    /// Whether tools of our own stand beside the servers'.
    pub admin_tools: bool,
    /// Whether a span is made of each call.
    pub is_traced: bool,
}

/// Clients and servers, and the messages between them.
#[derive(Debug)]
pub struct Hub {
    directory: Directory,
    server_requests: ServerRequests,
    held: HeldRequests,
    out: Outgoing,
}

impl Hub {
    /// A hub without servers and clients.
    pub fn new(settings: Settings) -> Self {
        Self {
            directory: Directory::new(settings),
            server_requests: ServerRequests::default(),
            held: HeldRequests::default(),
            out: Outgoing::default(),
        }
    }

    /// Records one input, and returns what has to be done now.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Effect> {
        self.out.begin(now);
        let (directory, out) = (&mut self.directory, &mut self.out);
        match input {
            Input::Configured(backends) => self.configure(backends),
            Input::Joined { client, access } => directory.sessions.join(client, access),
            Input::Client { client, line } => self.client_line(client, &line, false),
            Input::ClientTooLong { client, beginning, ending } => {
                // A request is answered; nothing else can be.
                if let Some((id, _)) = look_at_ends(&beginning, &ending) {
                    let why = format!(
                        "the request is longer than the limit of {MESSAGE_BYTES_MAX} bytes; nothing was \
                         done; send less"
                    );
                    out.answer_error(client, &id, -32600, &why);
                }
            }
            Input::Left { client } => self.client_left(client),
            Input::Link { link, line, about } => self.link_line(link, line, about.as_ref()),
            Input::NotTaken { link, line, why } => self.not_taken(link, &line, &why),
            Input::Serves { link, state } => directory.set_server_state(link, state, out),
            Input::LinkLost { link, why } => directory.lose_link(link, &why, out),
            Input::Wakeup => self.wake(),
        }
        self.settle();
        self.directory.backends.links.note();
        self.out.take_effects()
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let links = self.directory.backends.links.next_wakeup();
        let deadline = self.out.requests.next_deadline();
        let all = [deadline, self.held.next_wakeup(), self.server_requests.next_wakeup(), links];
        all.into_iter().flatten().min()
    }

    /// How many requests of clients have no response yet.
    pub fn in_flight(&self) -> usize {
        self.out.requests.client_count()
    }

    /// The servers that are reached over HTTP, each with its address and its state.
    pub fn remotes(&self) -> Vec<(String, String, State)> {
        self.directory.backends.remotes(self.out.now())
    }

    /// The state of a server that runs, by its answers over this link; none where the link was not used yet.
    pub fn state_of(&self, link: LinkId) -> Option<State> {
        let link = self.directory.backends.links.get(link)?;
        (*link.stage() != LinkStage::Fresh).then(|| link.state(self.out.now()))
    }

    /// Ends the spans of all requests that have no response: the gateway ends.
    pub fn end_spans(&mut self, now: Time) -> Vec<Box<Span>> {
        let spans = self.out.requests.take_spans();
        spans.map(|span| Box::new(Span { ended: now, ..*span })).collect()
    }

    /// Takes a new configuration.
    fn configure(&mut self, backends: Vec<Backend>) {
        let (directory, out) = (&mut self.directory, &mut self.out);
        let definitions = |directory: &Directory, client| {
            directory.client(client).map(|view| view.own_definitions())
        };
        let open = directory.sessions.open();
        let before: Vec<_> = open.map(|client| (client, definitions(directory, client))).collect();
        for (slot, why) in directory.backends.outdated(&backends) {
            for link in directory.backends.remove(slot) {
                directory.close_link(link, why, out);
            }
            directory.notify_server_changed(slot, out);
        }
        let names: Vec<String> = backends.iter().map(|its| its.name.clone()).collect();
        for backend in backends {
            if !directory.backends.add(backend, out) {
                continue;
            }
            directory.backends.put_in_order(&names);
            // Clients that are there already use it from now on.
            for client in directory.sessions.ids() {
                if directory.sessions.get(client).is_some_and(|session| session.has_begun()) {
                    directory.use_servers(client, out);
                }
            }
        }
        directory.backends.put_in_order(&names);
        let moved = directory.names.rebuild(&Kind::ALL, &directory.backends, directory.tools, out);
        // The definitions of our own tools name the programs among the servers.
        let mut told = BTreeSet::new();
        for (client, before) in before {
            if definitions(directory, client) != before {
                directory.sessions.notify_list_changed(client, Kind::Tools, out);
                told.insert((client, Kind::Tools));
            }
        }
        directory.notify_moved(&moved, told, out);
        self.resume_held();
    }

    /// A client is gone: its requests are cancelled.
    fn client_left(&mut self, client: ClientId) {
        let (directory, out) = (&mut self.directory, &mut self.out);
        let Some(session) = directory.sessions.remove(client) else { return };
        self.held.forget(client, None);
        directory.backends.links.forget_waiting(client, None);
        for number in session.requests.values() {
            directory.withdraw(*number, "the client is gone", out);
        }
        self.server_requests.client_left(client, out);
        for link in session.links.values() {
            directory.close_link(*link, "its client is gone", out);
        }
        self.retry_server_requests();
        let (directory, out) = (&mut self.directory, &mut self.out);
        for link in directory.backends.links.ids() {
            if session.subscriptions.uris().next().is_some() {
                directory.sync_subscriptions(link, out);
            }
            if session.log_level.is_some() {
                directory.sync_log_level(link, out);
            }
        }
    }

    fn wake(&mut self) {
        self.expire_requests();
        self.directory.wake_links(&mut self.out);
        self.retry_server_requests();
        self.resume_held();
    }

    /// Passes on the requests of servers that wait for a client, except those over links that were closed.
    fn retry_server_requests(&mut self) {
        for link in self.out.take_closed() {
            self.server_requests.link_closed(link);
        }
        self.server_requests.retry_deferred(&mut self.directory, &mut self.out);
    }

    /// Does what an input has made possible: lines that have waited for a link, and held requests, go on.
    fn settle(&mut self) {
        loop {
            if let Some((client, line)) = self.out.next_resumed() {
                self.client_line(client, &line, true);
            } else if self.out.take_settled() {
                self.resume_held();
            } else {
                break;
            }
        }
        for link in self.out.take_closed() {
            self.server_requests.link_closed(link);
        }
    }

    /// Dispatches the held requests whose servers are up, or that have waited long enough.
    fn resume_held(&mut self) {
        for held in self.held.take() {
            let view = self.directory.client(held.client);
            let now = self.out.now();
            if held.until <= now
                || view.is_none_or(|its| its.settles_at(held.within, now).is_none())
            {
                self.client_line(held.client, &held.line, true);
            } else {
                self.held.hold(held);
            }
        }
    }

    /// A line of a client's. One that has waited is late: it is not held again.
    fn client_line(&mut self, client: ClientId, line: &[u8], is_late: bool) {
        if self.directory.sessions.get(client).is_none() {
            return;
        }
        let Some((message, is_ambiguous)) = look_closely(line) else { return };
        let out = &mut self.out;
        match message {
            Message::Request { id, .. } | Message::Invalid { id } if is_ambiguous => {
                out.answer(client, &id, responses::invalid(&id, AMBIGUOUS));
            }
            // A server waits for it.
            Message::Response { id: Some(id), .. } if is_ambiguous => {
                self.server_requests.refuse(client, &id, AMBIGUOUS, out);
            }
            _ if is_ambiguous => {}
            Message::Request { id, method, params } => {
                self.handle_request(Request::new(client, &id, &method, &params, line), is_late);
            }
            Message::Notification { method } => self.client_notification(client, &method, line),
            Message::Response { id: Some(id), .. } => {
                self.server_requests.reply(client, &id, line, out);
            }
            Message::Response { id: None, .. } => {}
            Message::Batch => {
                for element in raw::elements(line).unwrap_or_default() {
                    // A batch in a batch is invalid, and would recurse.
                    if !matches!(look(&line[element.clone()]), Some(Message::Batch)) {
                        self.client_line(client, &line[element], is_late);
                    }
                }
            }
            Message::Invalid { id } => {
                let why = "this is no request: it needs a method, and a text or a number as its id";
                out.answer(client, &id, responses::invalid(&id, why));
            }
        }
    }

    fn client_notification(&mut self, client: ClientId, method: &str, line: &[u8]) {
        let (directory, out) = (&mut self.directory, &mut self.out);
        match method {
            "notifications/cancelled" => self.cancel(client, line),
            "notifications/progress" => self.server_requests.progress(client, line, out),
            "notifications/initialized" => {
                self.server_requests.client_ready(client, directory, out);
            }
            "notifications/roots/list_changed" => {
                self.server_requests.roots_changed(client, line, directory, out);
            }
            // The links have their own handshakes; others are not for servers.
            _ => {}
        }
    }

    fn cancel(&mut self, client: ClientId, line: &[u8]) {
        let Some(id) = param(line, &["requestId"]).map(Id::new) else { return };
        let Some(session) = self.directory.sessions.get_mut(client) else { return };
        if session.subscriptions.stop_listening(&id) {
            return self.sync_subscriptions_of(client);
        }
        if let Some(number) = session.requests.remove(&id) {
            let reason = param(line, &["reason"]).and_then(raw::text).unwrap_or_default();
            return self.directory.withdraw(number, &reason, &mut self.out);
        }
        // It may not have been sent yet.
        self.held.forget(client, Some(&id));
        self.directory.backends.links.forget_waiting(client, Some(&id));
    }

    /// A line of a server's.
    fn link_line(&mut self, link: LinkId, line: Vec<u8>, about: Option<&Id>) {
        if self.directory.backends.links.get(link).is_none() {
            return;
        }
        let Some((message, is_ambiguous)) = look_closely(&line) else { return };
        match message {
            // The client of the request, as we read it, gets to know why there is no other response.
            Message::Response { id: Some(id), .. } if is_ambiguous => {
                let data = json!({"reason": "bad_reply"});
                let error = json!({"code": -32603, "message": AMBIGUOUS, "data": data});
                self.handle_response(link, &id, responses::line(&id, "error", &error), true);
            }
            Message::Request { id, .. } if is_ambiguous => {
                self.out.send_to_link(link, responses::invalid(&id, AMBIGUOUS));
            }
            _ if is_ambiguous => {}
            Message::Request { id, method, params } => {
                let (request, out) = ((id, &*method, &params, &*line), &mut self.out);
                self.server_requests.handle(link, request, about, &mut self.directory, out);
            }
            Message::Notification { method } => {
                self.handle_server_notification(link, &method, line, about);
            }
            Message::Response { id: Some(id), is_error } => {
                self.handle_response(link, &id, line, is_error);
            }
            Message::Batch => {
                for element in raw::elements(&line).unwrap_or_default() {
                    let line = &line[element];
                    if !matches!(look(line), Some(Message::Batch)) {
                        self.link_line(link, line.to_vec(), about);
                    }
                }
            }
            Message::Response { .. } | Message::Invalid { .. } => {}
        }
    }
}
