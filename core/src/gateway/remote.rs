//! One link to a server over HTTP: streamable HTTP of both eras, and HTTP with server-sent events.
//!
//! The hub hands in lines, as to a pipe, and gets lines back. Each request of its is answered once,
//! whatever the server and the network do; one that the hub has cancelled is not. `hub.rs` takes its
//! lines, `send.rs` gives them to the server or answers in its place, `replies.rs` and `status.rs` hear how
//! exchanges went and `message.rs` what was said in them. `session.rs` opens the session, and opens it anew when it
//! is lost; `standalone.rs` listens to what belongs to no request. The machine sees neither sockets nor clocks: exchanges are asked for, and reported.

mod error_responses;
mod header_params;
mod headers;
mod message;
mod outgoing;
mod replies;
mod send;
mod session;
mod standalone;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod url;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use self::header_params::Marked;
pub use self::headers::Header;
use self::state::{
    Asked, At, Exchange, Owed, Own, Purpose, Session, Standalone, State, Step, Transport, Waiting,
};
use super::backend::HttpServer;
use crate::limits::{HANDSHAKE_MAX, QUEUE_WAIT, RETRY_AFTER_MAX};
use crate::mcp::envelope::Id;
use crate::mcp::json;
use crate::mcp::replay::Memory;
use crate::random::Random;
use crate::sse::{SseEvent, is_header_value};
use crate::time::Time;

/// One exchange over HTTP: a request, and all that comes back. 1, 2, 3…
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExchangeId(pub u64);

/// Something that happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A line of the hub's.
    Line(Vec<u8>),
    /// A request of the hub's found no place on its way here.
    Refused {
        /// Its id.
        id: Id,
        /// What was asked.
        method: String,
    },
    /// An exchange has become a stream of events.
    Opened {
        /// Which.
        exchange: ExchangeId,
        /// The session that its head names.
        session: Option<String>,
    },
    /// Something came over such a stream.
    Event {
        /// Of which exchange.
        exchange: ExchangeId,
        /// What.
        event: SseEvent,
    },
    /// Such a stream is over, in good order.
    Ended {
        /// Which exchange.
        exchange: ExchangeId,
    },
    /// An exchange is over, without a stream.
    Replied {
        /// Which.
        exchange: ExchangeId,
        /// What came back.
        reply: Reply,
    },
    /// An exchange broke off.
    Failed {
        /// Which.
        exchange: ExchangeId,
        /// How.
        failure: Failure,
    },
    /// The moment that `next_wakeup` gave has come.
    Wakeup,
}

/// What came back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The session that the head names.
    pub session: Option<String>,
    /// How long to wait, where the head says so.
    pub retry_after: Option<Duration>,
    /// Where else to go.
    pub location: Option<String>,
    /// All of the body.
    pub body: Vec<u8>,
    /// It was longer than allowed, and is not all here.
    pub is_too_long: bool,
}

/// How an exchange broke off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The server may have seen the request.
    pub was_sent: bool,
    /// In words, without anything of the URL but host and port.
    pub why: String,
}

/// Something that must be done, in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Begin an exchange.
    Ask {
        /// Its number.
        exchange: ExchangeId,
        /// What is asked.
        ask: Ask,
    },
    /// Nobody wants more of an exchange. Its connection is good, once it is over.
    Finish(ExchangeId),
    /// Close an exchange at once.
    Drop(ExchangeId),
    /// Hand a line to the hub.
    Tell {
        /// Without its end.
        line: Vec<u8>,
        /// The request that it belongs to, itself included where it is the answer.
        about: Option<Id>,
    },
    /// The server cannot be reached now, and why; or it is there again.
    Serves(Result<(), String>),
    /// Something a person should know.
    Log(String),
}

/// One request over HTTP. The headers of the configuration and those of the body's kind come on top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What for.
    pub method: Method,
    /// Where to.
    pub url: String,
    /// Those that MCP wants.
    pub headers: Vec<Header>,
    /// One message, or nothing.
    pub body: Vec<u8>,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Hands over a message.
    Post,
    /// Listens.
    Get,
    /// Ends the session.
    Delete,
}

/// One link.
#[derive(Debug)]
pub struct Remote {
    url: String,
    transport: Transport,
    memory: Memory,
    marked: Marked,
    session: Session,
    state: State,
    /// What the hub waits for.
    owed: BTreeMap<Id, Owed>,
    owed_bytes: usize,
    /// What goes out as soon as it can, in this order.
    waiting: VecDeque<Waiting>,
    /// None of it has waited long enough before this.
    waiting_due: Option<Time>,
    exchanges: BTreeMap<ExchangeId, Exchange>,
    /// Exchanges that nobody waits for after a moment.
    notices: BTreeMap<ExchangeId, Time>,
    /// Requests whose streams broke, and when these are taken up.
    broken: BTreeMap<Id, Time>,
    /// Listen requests that were made again, whose acknowledgement the hub has.
    again: BTreeSet<Id>,
    /// The hub's own `initialize`, while the server has it, and until when.
    handshake: Option<(Id, Time)>,
    /// Requests of the server's that the hub has not answered, by the ids that it knows them by.
    asked: BTreeMap<Id, Asked>,
    own: BTreeMap<Id, Own>,
    standalone: Standalone,
    /// Tries in a row that did not reach the server.
    failures: u32,
    /// The hub was told that it cannot be reached.
    is_away: bool,
    /// Sessions in a row that did not last.
    losses: u32,
    random: Random,
    next_number: u64,
    effects: Vec<Effect>,
}

impl Remote {
    /// A link that has not been used. The seed is for the jitter of waits.
    pub fn new(http: &HttpServer, seed: u64) -> Self {
        let transport = match http.sse {
            Some(true) => Transport::Old { stream: None, endpoint: None, instead: None },
            Some(false) => Transport::Streamable { is_certain: true },
            None => Transport::Streamable { is_certain: false },
        };
        let is_old = matches!(transport, Transport::Old { .. });
        Self {
            url: http.url.clone(),
            transport,
            memory: Memory::default(),
            marked: Marked::default(),
            session: Session::default(),
            state: if is_old { State::Closed } else { State::Up },
            owed: BTreeMap::new(),
            owed_bytes: 0,
            waiting: VecDeque::new(),
            waiting_due: None,
            exchanges: BTreeMap::new(),
            notices: BTreeMap::new(),
            broken: BTreeMap::new(),
            again: BTreeSet::new(),
            handshake: None,
            asked: BTreeMap::new(),
            own: BTreeMap::new(),
            standalone: Standalone::default(),
            failures: 0,
            is_away: false,
            losses: 0,
            random: Random::new(seed),
            next_number: 1,
            effects: Vec::new(),
        }
    }

    /// Takes in what happened, and says what must be done.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Effect> {
        let is_name = |session: &String| is_header_value(session.as_bytes());
        match input {
            Input::Line(line) => self.hub_says(now, line),
            Input::Refused { id, method } => self.refuse(&id, &method),
            Input::Opened { exchange, session } => {
                self.opened(now, exchange, session.filter(is_name));
            }
            Input::Event { exchange, mut event } => {
                // To the hub it is one line.
                json::flatten(&mut event.data);
                self.event(now, exchange, event);
            }
            Input::Ended { exchange } => {
                let why = "the stream ended without an answer".to_owned();
                self.failed(now, exchange, &Failure { was_sent: true, why });
            }
            Input::Replied { exchange, mut reply } => {
                json::flatten(&mut reply.body);
                reply.session = reply.session.filter(is_name);
                reply.retry_after = reply.retry_after.map(|wait| wait.min(RETRY_AFTER_MAX));
                self.replied(now, exchange, &reply);
            }
            Input::Failed { exchange, failure } => self.failed(now, exchange, &failure),
            Input::Wakeup => {}
        }
        self.step(now);
        std::mem::take(&mut self.effects)
    }

    /// When something has to be done even if nothing happens.
    pub fn next_wakeup(&self) -> Option<Time> {
        let waiting = self.waiting_due.filter(|_| !self.waiting.is_empty());
        let state = match &self.state {
            State::Opening { until, .. } => Some(*until),
            State::Down { at, .. } => *at,
            State::Up | State::Closed | State::Scouting(_) => None,
        };
        let standalone = self.standalone.at.filter(|_| self.state == State::Up);
        let handshake = self.handshake.as_ref().map(|(_, until)| *until);
        waiting
            .into_iter()
            .chain(self.notices.values().copied())
            .chain(self.broken.values().copied())
            .chain(state)
            .chain(standalone)
            .chain(handshake)
            .min()
    }

    /// The request that ends the session, for whoever ends the link.
    pub fn farewell(&self) -> Option<Ask> {
        let is_streamable = matches!(self.transport, Transport::Streamable { .. });
        let headers = self.session_headers();
        let url = self.url.clone();
        (is_streamable && self.session.id.is_some()).then_some(Ask {
            method: Method::Delete,
            url,
            headers,
            body: Vec::new(),
        })
    }

    /// Scheme, host and port of the server, to be shown.
    pub fn origin(&self) -> &str {
        url::origin(&self.url)
    }

    /// Whether the opening waits for this exchange.
    fn is_step(&self, exchange: ExchangeId) -> bool {
        matches!(&self.state, State::Opening { step, .. } if step.exchange() == exchange)
    }

    /// Until when what comes now waits at the most.
    fn waits_until(&mut self, now: Time) -> Time {
        let until = now + QUEUE_WAIT;
        if self.waiting.is_empty() {
            self.waiting_due = None;
        }
        self.waiting_due = Some(self.waiting_due.map_or(until, |due| due.min(until)));
        until
    }

    /// When something that waits has waited long enough.
    fn waits_for(&self, waiting: &Waiting) -> Option<Time> {
        match waiting {
            Waiting::Request(id) => match self.owed.get(id)?.at {
                At::Waiting { until } => until,
                At::Asked(_) | At::Given | At::Broken => None,
            },
            Waiting::Notice { until, .. } => Some(*until),
        }
    }

    fn opens_until(now: Time) -> Time {
        now + HANDSHAKE_MAX
    }
}
