//! The hub: every client's session on the one side, the links to the servers on the other.
//!
//! To a client the hub is a server, to a server it is a client. Requests that are about the whole (the
//! handshake, the lists) it answers itself; all others go over the link of the server that they are for,
//! under an id of the hub's own, and the answer comes back under the client's. Ids and names are the only
//! bytes of a message that change.
//!
//! ```text
//!   Fresh ──(a client needs it)──▶ Opening ──(handshake, all lists)──▶ Open
//!                                     │  ▲                              │
//!                                     ▼  └──(a while later, or wanted)  │
//!                                   Failed ◀───────(link lost)──────────┘
//! ```

mod admin_tools;
mod ambiguous_json;
mod bytes;
mod circuit;
mod client_notifications;
mod era_bridge;
mod handshake;
mod link;
mod links;
mod list_paging;
mod lists;
mod names;
mod queries;
mod reconnect;
mod route_request;
mod server_messages;
mod server_requests;
mod session;
mod subscriptions;
#[cfg(test)]
mod tests;
mod tracing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};

use self::bytes::{edit, member, number_in, own_id, place};
use self::link::Server;
use self::links::Links;
use self::names::Clash;
use self::route_request::Request;
use self::server_requests::Unasked;
use self::session::Client;
use super::backend::Expose;
use super::span::Span;
use super::{ClientId, Effect, Input, LinkId};
use crate::mcp::envelope::{Id, Message, look, look_closely};
use crate::mcp::responses;
use crate::mcp::{Kind, json as raw};
use crate::time::Time;

/// How a hub behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The version of afresh, for the servers and the clients.
    pub version: String,
    /// There is one client at most: the servers are told its name and what it can do.
    pub is_single: bool,
    /// How much of the list of tools is shown.
    pub expose: Expose,
    /// Whether tools of our own stand beside the servers'.
    pub admin_tools: bool,
    /// Whether a span is wanted of each call.
    pub is_traced: bool,
}

/// All of it.
#[derive(Debug)]
pub struct Hub {
    settings: Settings,
    /// By their slots; one that was taken out of the configuration keeps its slot.
    servers: Vec<Server>,
    /// The slots of those that are there, as they stand in the configuration.
    order: Vec<usize>,
    clients: BTreeMap<ClientId, Client>,
    links: Links,
    /// Requests of the hub's to servers that have no answer yet, by the number in their ids.
    flights: BTreeMap<u64, Flight>,
    /// Requests of servers that a client has not answered, by the number in their ids.
    asked: BTreeMap<u64, Asked>,
    /// Those that wait for a client that can be asked.
    unasked: VecDeque<Unasked>,
    /// Questions of clients that wait for servers to come up.
    held: VecDeque<Held>,
    /// Which server has the tool or prompt of a name, and what it calls it.
    routes: BTreeMap<(Kind, String), (usize, String)>,
    /// Names that two have, and that this was said of.
    clashes: BTreeSet<Clash>,
    /// When requests have taken too long.
    deadlines: BTreeSet<(Time, u64)>,
    next_number: u64,
    next_link: u64,
    now: Time,
    effects: Vec<Effect>,
}

/// A request of the hub's to a server.
#[derive(Debug)]
struct Flight {
    link: LinkId,
    what: What,
    /// When it has taken too long, as it stands in `deadlines`.
    until: Option<Time>,
    /// Only of a client's, and only where calls are traced.
    span: Option<Box<Span>>,
}

/// Whose request it is, or what for.
#[derive(Debug)]
enum What {
    /// A client's.
    Client {
        client: ClientId,
        id: Id,
        method: String,
        /// The client's own progress token, raw.
        token: Option<Vec<u8>>,
        /// The resource that it is about.
        uri: Option<String>,
        /// The least of the log that it asks for, where the server does not know that of its own.
        level: Option<usize>,
    },
    /// Opens the session.
    Opens,
    /// A page of a list.
    Page(Kind),
    /// Listens to what changes.
    Listens,
    /// Its answer does not matter.
    Ignored,
}

/// A request of a server's to a client.
#[derive(Debug)]
struct Asked {
    link: LinkId,
    theirs: Id,
    /// The server's own progress token, raw.
    token: Option<Vec<u8>>,
    client: ClientId,
    /// The client's request that it is asked for.
    about: Option<Id>,
}

#[derive(Debug)]
struct Held {
    client: ClientId,
    line: Vec<u8>,
    /// How long it waits for each server.
    within: Duration,
    until: Time,
}

impl Hub {
    /// A hub without servers and clients.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            servers: Vec::new(),
            order: Vec::new(),
            clients: BTreeMap::new(),
            links: Links::default(),
            flights: BTreeMap::new(),
            asked: BTreeMap::new(),
            unasked: VecDeque::new(),
            held: VecDeque::new(),
            routes: BTreeMap::new(),
            clashes: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            next_number: 1,
            next_link: 1,
            now: Time::ZERO,
            effects: Vec::new(),
        }
    }

    /// Records one input, and returns what has to be done now.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Effect> {
        self.now = now;
        match input {
            Input::Configured(backends) => {
                self.configure(backends);
                self.touch_links();
            }
            Input::Joined { client, access } => {
                self.clients.insert(client, Client::new(access));
            }
            Input::Client { client, line } => self.client(client, line, false),
            Input::ClientTooLong { client, beginning, ending } => {
                self.client_too_long(client, &beginning, &ending);
            }
            Input::Left { client } => self.left(client),
            Input::Link { link, line, about } => self.link(link, line, about.as_ref()),
            Input::NotTaken { link, line, why } => self.not_taken(link, &line, &why),
            Input::Serves { link, state } => self.serves(link, state),
            Input::LinkLost { link, why } => self.lost(link, &why),
            Input::Wakeup => self.wake(),
        }
        self.note_links();
        std::mem::take(&mut self.effects)
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let flights = self.deadlines.first().map(|(at, _)| *at);
        let held = self.held.iter().map(|held| held.until);
        let unasked = self.unasked.iter().map(|unasked| unasked.until);
        flights.into_iter().chain(held).chain(unasked).chain(self.links.next_moment()).min()
    }

    /// How many requests of clients' are on their way.
    pub fn in_flight(&self) -> usize {
        let is_clients = |flight: &&Flight| matches!(flight.what, What::Client { .. });
        self.flights.values().filter(is_clients).count()
    }

    fn wake(&mut self) {
        self.expire_flights();
        self.look_after_links();
        self.ask_again();
        self.resume_held();
    }

    /// A line of a client's. One that was held is not held again.
    fn client(&mut self, client: ClientId, line: Vec<u8>, is_late: bool) {
        if !self.clients.contains_key(&client) {
            return;
        }
        let Some((message, is_odd)) = look_closely(&line) else { return };
        if is_odd {
            return self.doubt_client(client, message);
        }
        match message {
            Message::Request { id, method, params } => {
                self.ask(client, Request::new(&id, &method, &params, &line), is_late);
            }
            Message::Notification { method } => self.tell(client, &method, &line),
            Message::Response { id, .. } => self.reply(client, id.as_ref(), &line),
            Message::Batch => {
                for element in raw::elements(&line).unwrap_or_default() {
                    let line = &line[element];
                    // A batch of batches is nothing, and a stack ends.
                    if !matches!(look(line), Some(Message::Batch)) {
                        self.client(client, line.to_vec(), is_late);
                    }
                }
            }
            Message::Invalid { id } => {
                let why = "this is no request: it needs a method, and a text or a number as its id";
                self.answer(client, &id, responses::invalid(&id, why));
            }
        }
    }

    /// A line of a server's.
    fn link(&mut self, link: LinkId, line: Vec<u8>, about: Option<&Id>) {
        if !self.links.contains_key(&link) {
            return;
        }
        let Some((message, is_odd)) = look_closely(&line) else { return };
        if is_odd {
            return self.doubt_link(link, message);
        }
        match message {
            Message::Request { id, method, params } => {
                self.asks(link, id, &method, &params, &line, about);
            }
            Message::Notification { method } => self.told(link, &method, line, about),
            Message::Response { id: Some(id), is_error } => {
                self.answered(link, &id, line, is_error);
            }
            Message::Batch => {
                for element in raw::elements(&line).unwrap_or_default() {
                    let line = &line[element];
                    if !matches!(look(line), Some(Message::Batch)) {
                        self.link(link, line.to_vec(), about);
                    }
                }
            }
            Message::Response { .. } | Message::Invalid { .. } => {}
        }
    }

    /// Gives a client the answer to its request.
    fn answer(&mut self, client: ClientId, id: &Id, line: Vec<u8>) {
        self.effects.push(Effect::ToClient { client, line, about: Some(id.clone()) });
    }

    fn answer_result(&mut self, client: ClientId, id: &Id, mut result: Value) {
        if self.clients.get(&client).is_some_and(Client::is_modern) {
            result["resultType"] = Value::from("complete");
        }
        self.answer(client, id, responses::line(id, "result", &result));
    }

    fn answer_error(&mut self, client: ClientId, id: &Id, code: i32, why: &str) {
        let error = json!({"code": code, "message": why});
        self.answer(client, id, responses::line(id, "error", &error));
    }

    /// Says in a server's place that something did not work: as a tool's result, which the model gets to
    /// see, or as an error.
    fn answer_failure(&mut self, client: ClientId, id: &Id, method: &str, reason: &str, why: &str) {
        if method == "tools/call" {
            let content = json!([{"type": "text", "text": why}]);
            self.answer_result(client, id, json!({"content": content, "isError": true}));
        } else {
            let data = json!({"reason": reason, "retryable": true});
            let error = json!({"code": -32603, "message": why, "data": data});
            self.answer(client, id, responses::line(id, "error", &error));
        }
    }

    fn log(&mut self, text: String) {
        self.effects.push(Effect::Log(text));
    }

    fn tell_link(&mut self, link: LinkId, line: Vec<u8>) {
        self.effects.push(Effect::ToLink { link, line });
    }

    /// Sends a request of the hub's own.
    fn request(&mut self, link: LinkId, method: &str, params: &[u8], what: What) -> u64 {
        let number = self.number();
        let line = responses::request(&format!("g{number}"), method, Some(params));
        self.flights.insert(number, Flight { link, what, until: None, span: None });
        self.tell_link(link, line);
        number
    }

    /// The request is to be answered within this time.
    fn expect(&mut self, number: u64, within: Duration) {
        if let Some(flight) = self.flights.get_mut(&number) {
            let until = self.now + within;
            flight.until = Some(until);
            self.deadlines.insert((until, number));
        }
    }

    /// Takes a request out, together with its deadline.
    fn take_flight(&mut self, number: u64) -> Option<Flight> {
        let flight = self.flights.remove(&number)?;
        if let Some(until) = flight.until {
            self.deadlines.remove(&(until, number));
        }
        Some(flight)
    }

    fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// Takes up the questions whose time has come: the servers are up, or it was long enough.
    fn resume_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        for held in held {
            let is_settled = self.settles_at(held.client, held.within).is_none();
            if held.until <= self.now || is_settled {
                self.client(held.client, held.line, true);
            } else {
                self.held.push_back(held);
            }
        }
    }

    /// Keeps a question while servers are still being asked what they have, each for so long at the most.
    /// Returns whether it waits.
    fn waits(&mut self, client: ClientId, line: &[u8], within: Duration) -> bool {
        let Some(until) = self.settles_at(client, within) else { return false };
        self.held.push_back(Held { client, line: line.to_vec(), within, until });
        true
    }
}
