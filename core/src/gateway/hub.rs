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
//! | [`Directory`] | each `ClientSession`, `Backends` (servers, each `Link`), `Names` (which server has a name) |
//! | `last_lists.rs` | the lists of the last run, until those of this one are read |
//! | [`Outgoing`] | effects, and `PendingRequests` with their deadlines |
//! | [`ServerRequests`] | requests of servers to clients |
//! | `HeldCalls` | calls whose clients are asked by their results, as the newer protocol has it |
//! | [`Tasks`] | the server and the client that each task belongs to, and its handle |
//! | `AskingCalls` | what a shared server asks its clients in, so that it is known whose a question is |
//! | [`HeldRequests`] | requests that wait for servers to start, to take roots, or for calls of other clients |

mod admin_tools;
mod asking_calls;
mod backends;
mod circuit_breaker;
mod client_lists;
mod held_calls;
mod held_requests;
mod hub_state;
mod last_lists;
mod link;
mod link_calls;
mod name_index;
mod outgoing;
mod pinned_lists;
mod route_request;
mod server_lists;
mod server_messages;
mod server_requests;
mod sessions;
mod tasks;
#[cfg(test)]
mod tests;
mod tool_search;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use self::backends::Backends;
pub use self::held_calls::StateKey;
use self::held_requests::{HeldRequests, HeldStep};
use self::hub_state::Directory;
use self::link::LinkStage;
use self::name_index::Names;
use self::outgoing::Outgoing;
use self::route_request::Request;
use self::server_requests::{ROOTS, ServerRequests};
use self::sessions::{ClientSession, Principal};
use self::tasks::Tasks;
use super::backend::{Backend, ClientEra, Expose};
use super::spans::Span;
use super::{ClientId, Effect, Input, LinkId};
use crate::limits::{
    CLIENT_ID_BYTES_MAX, FRONT_BATCH_MAX, MESSAGE_BYTES_MAX, MESSAGE_DEPTH_MAX, ROOTS_TAKEN_WAIT,
};
use crate::mcp::envelope::{
    Id, Inspected, Message, batched, look, look_at_ends, look_closely, param,
};
use crate::mcp::{Kind, json as raw, responses};
use crate::service::State;
use crate::time::Time;

/// Ambiguous messages are never passed on: a reader that finds another id in one takes it for the response to another
/// request, and one that finds another name calls a tool that is denied.
const AMBIGUOUS: &str = "a key of the message stands there twice, or is written with escapes: not everybody reads the \
     same in it";

/// A server that reads them ends by a full stack, for all of its clients.
const TOO_DEEP: &str = "the message has more than 127 brackets in one another; nothing was done; send flatter arguments";

/// Why a request with a long id is not passed on.
const LONG_ID: &str =
    "the id of the request has more than 1024 bytes; nothing was done; send a shorter one";

const _: () = assert!(MESSAGE_DEPTH_MAX == 127 && CLIENT_ID_BYTES_MAX == 1024);

/// Clients over HTTP are sent nothing that their parsers cannot read.
const INVALID_JSON: &str = "the message of the server is not valid JSON, and is not passed on";

/// What the log says where a server sends more messages at once than any client may.
const LONG_BATCH: &str = "a batch of a server has too many messages, and is dropped";

/// How many messages a batch has, without a list of them.
fn batch_len(line: &[u8]) -> usize {
    let mut count = 0;
    raw::each_element(line, |_| count += 1);
    count
}

/// The rest of a batch whose answers are too much for one turn.
const BUSY: &str = "server busy: answers not read; nothing was done; send fewer requests at once";

/// Why a call of a shared server is refused that waited too long.
const NO_TURN: &str = "nothing was done: calls of other clients of this shared server have not ended in time; try again \
     later";

/// The settings of a hub.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The version of afresh, for the servers and the clients.
    pub version: String,
    /// There is one client at most: servers get its name and its capabilities.
    pub is_single: bool,
    /// How much of the list of tools is shown.
    pub expose: Expose,
    /// Whether tools of our own stand beside the servers'.
    pub admin_tools: bool,
    /// How long a client's first lists wait for servers that are still starting.
    pub start_wait: Duration,
    /// Which generation of the protocol clients may speak.
    pub era: ClientEra,
    /// What makes the states of held calls unguessable.
    pub state_key: StateKey,
    /// Whether a span is made of each call.
    pub is_traced: bool,
    /// There is one server, and clients see it as if they talked to it directly: its own names, lists, capabilities and
    /// instructions.
    pub is_transparent: bool,
    /// The links are numbered from the one after this: several hubs of one loop have different ones.
    pub first_link: u64,
}

/// Clients and servers, and the messages between them.
#[derive(Debug)]
pub struct Hub {
    directory: Directory,
    server_requests: ServerRequests,
    tasks: Tasks,
    held: HeldRequests,
}

impl Hub {
    /// A hub without servers and clients.
    pub fn new(settings: Settings) -> Self {
        let directory = Directory {
            sessions: BTreeMap::new(),
            backends: Backends::new(settings),
            names: Names::default(),
            out: Outgoing::default(),
        };
        let (server_requests, held) = (ServerRequests::default(), HeldRequests::default());
        Self { directory, server_requests, tasks: Tasks::default(), held }
    }

    /// Records one input, and returns what has to be done now.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Effect> {
        let directory = &mut self.directory;
        directory.out.begin(now);
        match input {
            Input::Configured(backends) => self.configure(backends),
            Input::Untrusted(names) => {
                let before = directory.own_definitions();
                directory.backends.untrusted = names;
                directory.notify_own_changed(before);
            }
            Input::LeftOut(servers) => directory.backends.left_out = servers,
            Input::Pinned(stored) => {
                directory.backends.take_pins(stored, &mut directory.out);
            }
            Input::LastLists(lists) => directory.backends.last_lists = lists,
            Input::Joined { client, access } => {
                directory.sessions.insert(client, ClientSession::new(access));
            }
            Input::Resumed { client, params } => {
                let session = directory.sessions.get_mut(&client);
                if session.is_some_and(|session| session.resume(&params)) {
                    directory.use_servers(client);
                }
                self.server_requests.client_ready(client, directory);
            }
            Input::Client { client, line } => self.client_line(client, &line, false),
            Input::ClientTooLong { client, beginning, ending } => {
                // A request is answered; nothing else can be.
                if let Some((id, _)) = look_at_ends(&beginning, &ending) {
                    let why = format!(
                        "the request is longer than the limit of {MESSAGE_BYTES_MAX} bytes; nothing was \
                         done; send less"
                    );
                    directory.out.answer_error(client, &id, -32600, &why);
                }
            }
            Input::Left { client } => self.client_left(client),
            Input::Link { link, line, about } => self.link_line(link, line, about.as_ref()),
            Input::NotTaken { link, line, why } => self.not_taken(link, &line, &why),
            Input::Serves { link, state } => directory.set_server_state(link, state),
            Input::LinkLost { link, why } => directory.lose_link(link, &why),
            Input::Wakeup => {
                self.expire_requests();
                self.server_requests.held_calls.expire(&mut self.directory);
                self.directory.wake_links();
                self.retry_server_requests();
                self.resume_held();
            }
        }
        self.settle();
        self.directory.backends.links.note();
        std::mem::take(&mut self.directory.out.effects)
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let links = self.directory.backends.links.next_wakeup();
        let deadline = self.directory.out.requests.next_deadline();
        let held = self.held.next_wakeup(&self.server_requests.asking_calls, &self.directory.out);
        let all = [deadline, held, self.server_requests.next_wakeup(), links];
        all.into_iter().flatten().min()
    }

    /// How many requests of clients have no response yet.
    pub fn in_flight(&self) -> usize {
        let waiting = self.directory.backends.links.waiting() + self.held.len();
        self.directory.out.requests.client_count() + waiting
    }

    /// The servers that are reached over HTTP, each with its address and its state.
    pub fn remotes(&self) -> Vec<(String, String, State)> {
        self.directory.backends.remotes(self.directory.out.now)
    }

    /// The state of a server that runs, by its answers over this link; none where the link was not used yet.
    pub fn state_of(&self, link: LinkId) -> Option<State> {
        let link = self.directory.backends.links.get(link)?;
        (link.stage != LinkStage::Fresh).then(|| link.state(self.directory.out.now))
    }

    /// Whether servers have changed since they were pinned: the user may accept that at any time.
    pub fn has_changes_to_accept(&self) -> bool {
        self.directory.backends.pins.has_pending()
    }

    /// Ends the spans of all requests that have no response: the gateway ends.
    pub fn end_spans(&mut self, now: Time) -> Vec<Box<Span>> {
        let spans = self.directory.out.requests.take_spans();
        spans.map(|span| Box::new(Span { ended: now, ..*span })).collect()
    }

    /// Takes a new configuration.
    fn configure(&mut self, backends: Vec<Backend>) {
        let directory = &mut self.directory;
        let before = directory.own_definitions();
        for (slot, why) in directory.backends.outdated(&backends) {
            for link in directory.backends.remove(slot) {
                directory.close_link(link, why);
            }
            directory.notify_server_changed(slot, &Kind::ALL);
        }
        let names: Vec<String> = backends.iter().map(|its| its.name.clone()).collect();
        for backend in backends {
            if !directory.backends.add(backend, &mut directory.out) {
                continue;
            }
            directory.backends.put_in_order(&names);
            // Clients that are there already use it from now on.
            let begun = directory.sessions.iter().filter(|(_, session)| session.has_begun());
            for client in begun.map(|(client, _)| *client).collect::<Vec<_>>() {
                directory.use_servers(client);
            }
        }
        directory.backends.put_in_order(&names);
        let moved = directory.names.rebuild(&Kind::ALL, &directory.backends, &mut directory.out);
        // The definitions of our own tools name the programs among the servers.
        let told = directory.notify_own_changed(before);
        directory.notify_moved(&moved, told);
        self.resume_held();
    }

    /// A client is gone: its requests are cancelled.
    fn client_left(&mut self, client: ClientId) {
        let directory = &mut self.directory;
        let Some(session) = directory.sessions.remove(&client) else { return };
        self.held.forget(client, None);
        directory.backends.links.forget_waiting(client, None);
        for number in session.requests.values() {
            self.server_requests.withdraw(directory, client, (*number, "the client is gone"));
        }
        self.server_requests.client_left(client, &mut directory.out);
        let principal = Principal::Session(client);
        self.server_requests.held_calls.client_left(directory, &principal, "the client is gone");
        for link in session.links.values() {
            directory.close_link(*link, "its client is gone");
        }
        self.tasks.forget(&principal);
        self.retry_server_requests();
        for link in self.directory.backends.links.ids() {
            if session.subscriptions.uris().next().is_some() {
                self.directory.sync_subscriptions(link);
            }
            if session.log_level.is_some() {
                self.directory.sync_log_level(link);
            }
        }
    }

    /// Drops the requests of servers over links that were closed, and what else these had.
    fn forget_closed(&mut self) {
        for (number, why) in self.directory.out.lost_calls.drain(..) {
            self.server_requests.held_calls.fail(number, "server_lost", &why);
        }
        for (link, why) in self.directory.out.closed.drain(..) {
            self.server_requests.link_closed(link);
            self.tasks.lose(link, &why);
        }
    }

    /// Passes on the requests of servers that wait for a client, except those over links that were closed.
    fn retry_server_requests(&mut self) {
        self.forget_closed();
        self.server_requests.retry_deferred(&mut self.directory);
    }

    /// Does what an input has made possible: lines that have waited for a link, and held requests, go on.
    fn settle(&mut self) {
        loop {
            let (out, asking) = (&mut self.directory.out, &self.server_requests.asking_calls);
            if let Some((client, line)) = out.resumed.pop_front() {
                self.client_line(client, &line, true);
            } else if std::mem::take(&mut out.is_settled)
                || self.held.has_free_turn(asking, out) && !out.is_full()
            {
                self.resume_held();
            } else {
                break;
            }
        }
        self.forget_closed();
    }

    /// Dispatches the held requests whose servers are up, or that have waited long enough. What is too much for one turn
    /// goes on in the next one.
    fn resume_held(&mut self) {
        for held in self.held.take() {
            let asking = &self.server_requests.asking_calls;
            match self.held.decide(held, &self.directory, asking) {
                HeldStep::Dispatch(held) => self.client_line(held.client, &held.line, true),
                HeldStep::Refuse(held) => {
                    if let Some(Message::Request { id, method, .. }) = look(&held.line) {
                        let client = held.client;
                        self.directory.answer_failure(client, &id, &method, "server_busy", NO_TURN);
                    }
                }
                HeldStep::Keep => {}
            }
        }
    }

    /// A line of a client's. One that has waited is late: it is not held again.
    fn client_line(&mut self, client: ClientId, line: &[u8], is_late: bool) {
        if !self.directory.sessions.contains_key(&client) {
            return;
        }
        let Some(inspected) = look_closely(line) else { return };
        let refusal = inspected.is_ambiguous.then_some(AMBIGUOUS);
        let refusal = refusal.or((inspected.depth > MESSAGE_DEPTH_MAX).then_some(TOO_DEEP));
        let is_long = |id: &Id| id.raw().len() > CLIENT_ID_BYTES_MAX;
        let refusal = match &inspected.message {
            Message::Request { id, .. } if is_long(id) => refusal.or(Some(LONG_ID)),
            _ => refusal,
        };
        let out = &mut self.directory.out;
        match (inspected.message, refusal) {
            (Message::Request { id, .. } | Message::Invalid { id }, Some(why)) => {
                out.answer(client, &id, responses::invalid(&id, why));
            }
            // A server waits for it.
            (Message::Response { id: Some(id), .. }, Some(why)) => {
                self.server_requests.refuse(client, &id, why, out);
            }
            (_, Some(_)) => {}
            (message, None) => self.client_message(client, message, line, is_late),
        }
    }

    /// A message of a client's that can be passed on.
    fn client_message(&mut self, client: ClientId, message: Message, line: &[u8], is_late: bool) {
        let out = &mut self.directory.out;
        match message {
            Message::Request { id, method, params } => {
                self.handle_request(Request::new(client, &id, &method, &params, line), is_late);
            }
            Message::Notification { method } => self.client_notification(client, &method, line),
            Message::Response { id: Some(id), .. } => {
                let own = self.tasks.with_own_ids(&self.directory, client, line);
                let (line, out) = (own.as_deref().unwrap_or(line), &mut self.directory.out);
                self.server_requests.reply(client, &id, line, out);
            }
            Message::Response { id: None, .. } => {}
            Message::Batch => self.client_batch(client, line, is_late),
            Message::Invalid { id } => {
                let why = "this is no request: it needs a method, and a text or a number as its id";
                out.answer(client, &id, responses::invalid(&id, why));
            }
        }
    }

    /// Several messages in one line. Where their answers are too much for one turn, the requests that are left are
    /// answered with an error.
    fn client_batch(&mut self, client: ClientId, line: &[u8], is_late: bool) {
        if batch_len(line) > FRONT_BATCH_MAX {
            let why =
                format!("the batch has more than {FRONT_BATCH_MAX} messages; nothing was done");
            let none = Id::new(b"null");
            return self.directory.out.send_to_client(
                client,
                responses::invalid(&none, &why),
                None,
            );
        }
        for line in batched(line).flatten() {
            match look(line) {
                Some(Message::Request { id, method, .. }) if self.directory.out.is_full() => {
                    self.directory.answer_failure(client, &id, &method, "server_busy", BUSY);
                }
                _ => self.client_line(client, line, is_late),
            }
        }
    }

    fn client_notification(&mut self, client: ClientId, method: &str, line: &[u8]) {
        let directory = &mut self.directory;
        match method {
            "notifications/cancelled" => self.cancel(client, line),
            "notifications/progress" => {
                self.server_requests.progress(client, line, &mut directory.out);
            }
            "notifications/initialized" => self.server_requests.client_ready(client, directory),
            "notifications/roots/list_changed" => {
                self.server_requests.roots_changed(directory, client, line);
            }
            _ if directory.backends.settings.is_transparent => {
                for link in directory.links_of(client) {
                    directory.out.send_to_link(link, line.to_vec());
                }
            }
            // The links have their own handshakes; others are not for servers.
            _ => {}
        }
    }

    fn cancel(&mut self, client: ClientId, line: &[u8]) {
        let Some(id) = param(line, &["requestId"]).map(Id::new) else { return };
        let Some(session) = self.directory.sessions.get_mut(&client) else { return };
        if session.subscriptions.listeners.remove(&id).is_some() {
            return self.sync_subscriptions_of(client);
        }
        if let Some(number) = session.requests.remove(&id) {
            let reason = param(line, &["reason"]).and_then(raw::text).unwrap_or_default();
            return self.server_requests.withdraw(&mut self.directory, client, (number, &reason));
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
        if self.tasks.has_any()
            && let Some(Message::Notification { method }) = look(&line)
        {
            self.tasks.note_told(link, &method, &line);
        }
        let line = self.tasks.with_handles(link, line);
        let Some(Inspected { message, is_ambiguous, .. }) = look_closely(&line) else { return };
        let refusal = match &message {
            _ if is_ambiguous => Some(AMBIGUOUS),
            // Each message of a batch is looked at, and each entry of a list.
            Message::Batch => (batch_len(&line) > FRONT_BATCH_MAX).then_some(LONG_BATCH),
            Message::Response { id: Some(id), .. }
                if !self.directory.out.requests.is_of_client(link, id) =>
            {
                None
            }
            _ if self.directory.backends.settings.is_single => None,
            _ => (!raw::is_valid(&line)).then_some(INVALID_JSON),
        };
        match (message, refusal) {
            // The client of the request, as we read it, gets to know why there is no other response.
            (Message::Response { id: Some(id), .. }, Some(why)) => {
                let data = json!({"reason": "bad_reply"});
                let error = json!({"code": -32603, "message": why, "data": data});
                self.handle_response(link, &id, responses::line(&id, "error", &error), true);
            }
            (Message::Request { id, .. }, Some(why)) => {
                self.directory.out.send_to_link(link, responses::invalid(&id, why));
            }
            (Message::Batch, Some(why)) => {
                self.directory.out.effects.push(Effect::Log(why.to_owned()));
            }
            (_, Some(_)) => {}
            (Message::Request { id, method, params }, None) => {
                let request = (id, &*method, &params, &*line);
                let of_task = self.tasks.owner_of(link, &line);
                self.server_requests.handle(&mut self.directory, link, request, about, of_task);
                let held_calls = &self.server_requests.held_calls;
                if method == ROOTS && held_calls.kept_roots(&self.directory, link, None).is_some() {
                    // It looks at them now.
                    let at = self.directory.out.now + ROOTS_TAKEN_WAIT;
                    self.held.roots_asked(link, at);
                }
            }
            (Message::Notification { method }, None) => {
                self.handle_server_notification(link, &method, line, about);
            }
            (Message::Response { id: Some(id), is_error }, None) => {
                self.handle_response(link, &id, line, is_error);
            }
            (Message::Batch, None) => {
                for line in batched(&line).flatten() {
                    self.link_line(link, line.to_vec(), about);
                }
            }
            (Message::Response { .. } | Message::Invalid { .. }, None) => {}
        }
    }
}
