//! Owns what a shim does: its client's session across the hubs that come and go. Driven by the shim's loop. Never touches a
//! socket and never starts a hub.
//!
//! The session is a [`Conversation`] whose instances are connections to a hub: what holds for a server that dies holds for a
//! hub that does. Each request is answered once, by the hub or by the shim.
//!
//! ```text
//!   Looking ──(connected)──▶ Greeting ──(welcome)──▶ Attached ──(gone, silent)──▶ Looking
//!      │  ▲                     │
//!      ▼  └──(a while later)────┤
//!   Resting ◀──(no hub in time)─┘        before the first welcome: `Unshared`
//! ```

use std::collections::BTreeSet;

use super::protocol::{
    Hello, HubFrame, PROTOCOL, PROTOCOL_BEFORE, ShimFrame, fall_back, frame_of, is_frame, line_of,
};
use super::{Roots, SessionRequest};
use crate::id::Generation;
use crate::limits::{
    CLIENT_GONE_WITHIN, QUEUE_WAIT, SHARE_HELLO_WAIT, SHARE_HUB_WAIT, SHARE_LOOK_INTERVAL,
    SHARE_RETRY_PAUSE, SHARE_ROOTS_MAX, SHARE_ROOTS_WAIT, SHARE_SILENCE_MAX,
};
use crate::mcp::envelope::{Id, Message, look, param};
use crate::mcp::frame::Frame;
use crate::mcp::{
    AddedTools, Conversation, Effect as ConversationEffect, EndCause, Input as ConversationInput,
    Settings, TellRestarts, json as raw, responses,
};
use crate::text::harmless;
use crate::time::Time;

/// Something that happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The shim begins.
    Started,
    /// A line of the client.
    Client(Frame),
    /// The client has closed our stdin.
    ClientGone,
    /// There is a connection to a hub.
    Connected,
    /// There is none yet, and why.
    NotConnected(String),
    /// A line of the hub.
    Hub(Frame),
    /// The connection to the hub has ended.
    HubGone,
    /// The moment that `next_wakeup` gave has come.
    Wakeup,
}

/// Something that must be done, in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Write a line to the client.
    ToClient(Vec<u8>),
    /// Write a line to the hub.
    ToHub(Vec<u8>),
    /// Connect to the hub, and start one where there is none.
    Connect,
    /// End the connection to the hub.
    Disconnect,
    /// A line for the log.
    Log(String),
    /// Run the server in place of this process: nothing of the client was read yet.
    Unshared(String),
    /// Nothing is owed any more, and the client has gone.
    End,
}

/// One shim.
#[derive(Debug)]
pub struct Shim {
    conversation: Conversation,
    session: SessionRequest,
    /// The version of this afresh, and our process.
    version: String,
    pid: u32,
    connection: Connection,
    /// The version of the protocol that is tried.
    protocol: u32,
    generation: Generation,
    has_attached: bool,
    /// Whether the client is told that the server's state is lost, where the hub cannot.
    tells_restarts: bool,
    roots: RootsQuestion,
    /// Until when answers are waited for that the client may still read.
    leaving_until: Option<Time>,
    now: Time,
    effects: Vec<Effect>,
}

#[derive(Debug)]
enum Connection {
    Looking {
        since: Time,
        again_at: Time,
    },
    Greeting {
        looking_since: Time,
        until: Time,
    },
    Attached {
        /// When the hub was last heard, or something was asked of it that it owed nothing before.
        heard_at: Time,
        /// When it was asked whether it lives.
        asked_at: Option<Time>,
        /// What it has read of us, by its own last word.
        read: Option<u64>,
        /// The server goes on without this client, which loses nothing.
        keeps_state: bool,
    },
    Resting {
        until: Time,
    },
}

/// The question for the client's roots.
#[derive(Debug, Default)]
struct RootsQuestion {
    is_supported: bool,
    number: u64,
    /// Until when the answer is waited for.
    until: Option<Time>,
    /// What came meanwhile.
    held: Vec<Frame>,
}

impl RootsQuestion {
    fn id(&self) -> String {
        format!("afresh:roots:{}", self.number)
    }

    fn is_answer(&self, id: &Id) -> bool {
        self.until.is_some() && id.raw() == format!("\"{}\"", self.id()).as_bytes()
    }
}

/// The roots in the answer to the question.
fn roots_in(line: &[u8]) -> Roots {
    let answer = raw::value(raw::get(line, &["result", "roots"]));
    let Some(roots) = answer.as_array() else { return Roots::Unsupported };
    let uris = roots.iter().take(SHARE_ROOTS_MAX).filter_map(|root| root["uri"].as_str());
    let uris: BTreeSet<String> = uris.map(str::to_owned).collect();
    Roots::Uris(uris.into_iter().collect())
}

impl Shim {
    /// A shim that has not begun.
    pub fn new(session: SessionRequest, version: &str, pid: u32) -> Self {
        let settings = Settings {
            server: session.name.clone(),
            patience: QUEUE_WAIT,
            tools: AddedTools::default(),
            // The hub knows whether it is to be told, and hands nothing on where it is not.
            tell_restarts: TellRestarts::InResults,
            // The hub looks after the server.
            wedge_timeout: None,
        };
        Self {
            conversation: Conversation::new(&settings),
            session,
            version: version.to_owned(),
            pid,
            connection: Connection::Resting { until: Time::ZERO },
            protocol: PROTOCOL,
            generation: Generation(0),
            has_attached: false,
            tells_restarts: false,
            roots: RootsQuestion::default(),
            leaving_until: None,
            now: Time::ZERO,
            effects: Vec::new(),
        }
    }

    /// Records one input, and returns what has to be done now.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Effect> {
        self.now = now;
        match input {
            Input::Started => self.look(),
            Input::Client(frame) => self.client_line(frame),
            Input::ClientGone => self.leaving_until = Some(now + CLIENT_GONE_WITHIN),
            Input::Connected => self.greet(),
            Input::NotConnected(why) => self.look_again(&why),
            Input::Hub(frame) => self.hub_line(frame),
            Input::HubGone => match self.connection {
                Connection::Attached { .. } => self.lose("ended with its hub", EndCause::ByItself),
                _ => self.look_again("the hub ended the connection"),
            },
            Input::Wakeup => self.wake(),
        }
        if let Some(until) = self.leaving_until
            && (until <= now || self.conversation.owed() == 0)
        {
            self.effects.push(Effect::End);
        }
        std::mem::take(&mut self.effects)
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let connection = match self.connection {
            Connection::Looking { again_at, .. } => Some(again_at),
            Connection::Greeting { until, .. } | Connection::Resting { until } => Some(until),
            Connection::Attached { .. } => self.silent_at(),
        };
        let all =
            [connection, self.conversation.next_wakeup(), self.roots.until, self.leaving_until];
        all.into_iter().flatten().min()
    }

    /// Whether lines of the client are taken: none is before it is known whether the server is shared.
    pub fn takes_lines(&self) -> bool {
        let has_room = self.roots.held.len() < SHARE_ROOTS_MAX;
        self.has_attached && self.leaving_until.is_none() && has_room
    }

    /// A line of the client's. While it is asked for its roots, which say with whom it shares a server, others wait.
    fn client_line(&mut self, frame: Frame) {
        let message = match &frame {
            Frame::Line(line) => look(line),
            Frame::TooLong { .. } => None,
        };
        match (&frame, message) {
            (Frame::Line(line), Some(Message::Response { id: Some(id), .. }))
                if self.roots.is_answer(&id) =>
            {
                let roots = roots_in(line);
                return self.take_roots(roots);
            }
            _ if self.roots.until.is_some() => return self.roots.held.push(frame),
            (Frame::Line(line), Some(Message::Request { method, .. }))
                if method == "initialize" =>
            {
                self.roots.is_supported = param(line, &["capabilities", "roots"]).is_some();
            }
            (Frame::Line(_), Some(Message::Notification { method }))
                if method == "notifications/initialized"
                    || method == "notifications/roots/list_changed" =>
            {
                self.roots.held.push(frame);
                return match self.roots.is_supported {
                    true => self.ask_roots(),
                    false => self.take_roots(Roots::Unsupported),
                };
            }
            _ => {}
        }
        self.pass(frame);
    }

    fn ask_roots(&mut self) {
        self.roots.number += 1;
        self.roots.until = Some(self.now + SHARE_ROOTS_WAIT);
        let id = self.roots.id();
        self.effects.push(Effect::ToClient(responses::request(&id, "roots/list", None)));
    }

    /// The roots are known: the hub is told, and what waited goes on.
    fn take_roots(&mut self, roots: Roots) {
        self.roots.until = None;
        if self.session.roots.as_ref() != Some(&roots) {
            self.session.roots = Some(roots.clone());
            if self.protocol > PROTOCOL_BEFORE
                && matches!(self.connection, Connection::Attached { .. })
            {
                self.effects.push(Effect::ToHub(line_of(&ShimFrame::Roots(roots))));
            }
        }
        let mut held = std::mem::take(&mut self.roots.held).into_iter();
        // The first is the one that the question was for.
        held.next().into_iter().for_each(|frame| self.pass(frame));
        held.for_each(|frame| self.client_line(frame));
    }

    fn pass(&mut self, frame: Frame) {
        let was_idle = self.conversation.owed() == 0;
        self.converse(match frame {
            Frame::Line(line) => ConversationInput::Client(line),
            Frame::TooLong { beginning, ending, .. } => {
                ConversationInput::ClientTooLong { beginning, ending }
            }
        });
        if let Connection::Attached { heard_at, .. } = &mut self.connection
            && was_idle
        {
            *heard_at = self.now;
        }
    }

    fn look(&mut self) {
        self.connection =
            Connection::Looking { since: self.now, again_at: self.now + SHARE_LOOK_INTERVAL };
        self.effects.push(Effect::Connect);
    }

    /// There was no connection, or no welcome.
    fn look_again(&mut self, why: &str) {
        let since = match self.connection {
            Connection::Looking { since, .. } => since,
            Connection::Greeting { looking_since, .. } => looking_since,
            Connection::Attached { .. } | Connection::Resting { .. } => return,
        };
        match self.now < since + SHARE_HUB_WAIT {
            true => {
                let again_at = self.now + SHARE_LOOK_INTERVAL;
                self.connection = Connection::Looking { since, again_at };
            }
            false => self.give_up(why),
        }
    }

    /// No hub can be had now.
    fn give_up(&mut self, why: &str) {
        if !self.has_attached {
            return self.effects.push(Effect::Unshared(why.to_owned()));
        }
        self.connection = Connection::Resting { until: self.now + SHARE_RETRY_PAUSE };
        self.effects.push(Effect::Log(format!("no hub can be had: {why}")));
        self.converse(ConversationInput::Down(format!(
            "it is shared, and no hub can be had: {why}"
        )));
    }

    fn greet(&mut self) {
        let Connection::Looking { since, .. } = self.connection else { return };
        let until = self.now + SHARE_HELLO_WAIT;
        self.connection = Connection::Greeting { looking_since: since, until };
        let (version, session) = (self.version.clone(), self.session.clone());
        let hello = Hello { protocol: self.protocol, version, pid: self.pid, session };
        self.effects.push(Effect::ToHub(line_of(&ShimFrame::Hello(Box::new(hello)))));
    }

    fn hub_line(&mut self, frame: Frame) {
        if let Connection::Attached { heard_at, asked_at, .. } = &mut self.connection {
            (*heard_at, *asked_at) = (self.now, None);
        }
        let is_attached = matches!(self.connection, Connection::Attached { .. });
        let generation = self.generation;
        match frame {
            Frame::Line(line) if is_frame(&line) => self.hub_frame(&line),
            Frame::Line(line) if is_attached => {
                self.converse(ConversationInput::Server { generation, line });
            }
            Frame::TooLong { beginning, .. } if is_attached => {
                self.converse(ConversationInput::ServerTooLong { generation, beginning });
            }
            Frame::Line(_) | Frame::TooLong { .. } => {}
        }
    }

    fn hub_frame(&mut self, line: &[u8]) {
        match (frame_of(line), &mut self.connection) {
            (
                Some(HubFrame::Welcome { version, pid, tells_restarts, .. }),
                Connection::Greeting { .. },
            ) => {
                self.tells_restarts = tells_restarts;
                self.attach(&version, pid);
            }
            (Some(HubFrame::Refused { protocol, why }), Connection::Greeting { .. }) => {
                self.refused(protocol, &why);
            }
            (Some(HubFrame::StateLost { how }), Connection::Attached { .. }) => {
                self.converse(ConversationInput::StateLost { how });
            }
            (Some(HubFrame::RestartFailed { why }), Connection::Attached { .. }) => {
                self.converse(ConversationInput::RestartFailed(why));
            }
            (
                Some(HubFrame::Leaving { read, keeps_state }),
                Connection::Attached { read: known, keeps_state: keeps, .. },
            ) => (*known, *keeps) = (Some(read), keeps_state),
            _ => {}
        }
    }

    fn attach(&mut self, version: &str, pid: u32) {
        let is_first = !std::mem::replace(&mut self.has_attached, true);
        let (heard_at, keeps_state) = (self.now, false);
        self.connection =
            Connection::Attached { heard_at, asked_at: None, read: None, keeps_state };
        self.generation = Generation(self.generation.0 + 1);
        // Only at first: two that take turns as the newest would hand over for ever.
        if is_first && is_newer(&self.version, version) && self.protocol == PROTOCOL {
            self.effects.push(Effect::ToHub(line_of(&ShimFrame::HandOver)));
        }
        let generation = self.generation;
        self.converse(ConversationInput::Started { generation, pid });
    }

    fn refused(&mut self, protocol: u32, why: &str) {
        self.effects.push(Effect::Disconnect);
        if let Some(before) = fall_back(self.protocol, protocol) {
            self.protocol = before;
            return self.look();
        }
        self.protocol = PROTOCOL;
        self.give_up(why);
    }

    /// The connection is of no use any more.
    fn lose(&mut self, how: &str, cause: EndCause) {
        let Connection::Attached { read, keeps_state, .. } = self.connection else { return };
        let (generation, how) = (self.generation, how.to_owned());
        let is_told = self.tells_restarts && !keeps_state;
        let cause = if is_told { cause } else { EndCause::Other };
        self.look();
        self.converse(ConversationInput::Ended { generation, read, how, cause });
    }

    /// When it is asked whether the hub lives, or has not answered that in time.
    fn silent_at(&self) -> Option<Time> {
        let Connection::Attached { heard_at, asked_at, .. } = self.connection else { return None };
        let is_asked = self.protocol > PROTOCOL_BEFORE && self.conversation.owed() > 0;
        is_asked.then(|| asked_at.unwrap_or(heard_at) + SHARE_SILENCE_MAX)
    }

    fn wake(&mut self) {
        self.converse(ConversationInput::Wakeup);
        let now = self.now;
        if self.roots.until.is_some_and(|until| until <= now) {
            self.take_roots(Roots::Unsupported);
        }
        let is_silent = self.silent_at().is_some_and(|at| at <= now);
        match &mut self.connection {
            Connection::Looking { again_at, .. } if *again_at <= now => {
                *again_at = now + SHARE_LOOK_INTERVAL;
                self.effects.push(Effect::Connect);
            }
            Connection::Greeting { until, .. } if *until <= now => {
                self.effects.push(Effect::Disconnect);
                self.look_again("the hub does not answer");
            }
            Connection::Resting { until } if *until <= now => self.look(),
            Connection::Attached { asked_at, .. } if is_silent && asked_at.is_none() => {
                *asked_at = Some(now);
                self.effects.push(Effect::ToHub(line_of(&ShimFrame::Ping)));
            }
            Connection::Attached { .. } if is_silent => {
                self.effects.push(Effect::Disconnect);
                self.lose("is not reached: its hub does not answer", EndCause::ByItself);
            }
            _ => {}
        }
    }

    /// Hands an input to the conversation, and does what it decides.
    fn converse(&mut self, input: ConversationInput) {
        for effect in self.conversation.handle(self.now, input) {
            match effect {
                ConversationEffect::ToClient(line) => self.effects.push(Effect::ToClient(line)),
                ConversationEffect::ToServer { generation, line } => {
                    if generation == self.generation
                        && matches!(self.connection, Connection::Attached { .. })
                    {
                        self.effects.push(Effect::ToHub(line));
                    }
                }
                // A new session with the hub is one with a server that remembers nothing.
                ConversationEffect::Replace(_) => {
                    self.effects.push(Effect::Disconnect);
                    self.lose("is replaced", EndCause::Superseded);
                }
                ConversationEffect::HandshakeFailed { why, .. } => {
                    self.effects.push(Effect::Disconnect);
                    self.lose(&format!("refused the session: {why}"), EndCause::Other);
                    self.connection = Connection::Resting { until: self.now + SHARE_RETRY_PAUSE };
                    self.effects.retain(|effect| *effect != Effect::Connect);
                }
                ConversationEffect::Wanted => {
                    if matches!(self.connection, Connection::Resting { .. }) {
                        self.look();
                    }
                }
                ConversationEffect::Divert { line, .. } => {
                    let text = harmless(&String::from_utf8_lossy(&line));
                    self.effects.push(Effect::Log(format!("not a message: {text}")));
                }
                // These are the hub's business, which has the server.
                ConversationEffect::Serving(_)
                | ConversationEffect::Drained(_)
                | ConversationEffect::DiedOfProbe(_)
                | ConversationEffect::AdminRequest { .. }
                | ConversationEffect::Sample(_)
                | ConversationEffect::Silent { .. }
                | ConversationEffect::Wedged { .. }
                | ConversationEffect::Notice(_)
                | ConversationEffect::ListChanged { .. } => {}
            }
        }
    }
}

/// Whether a version of afresh is newer than another; what is no version is not.
fn is_newer(own: &str, other: &str) -> bool {
    let parts = |version: &str| -> Option<Vec<u32>> {
        let numbers = version.split(['-', '+']).next()?.split('.');
        numbers.map(|part| part.parse().ok()).collect()
    };
    matches!((parts(own), parts(other)), (Some(own), Some(other)) if own > other)
}

#[cfg(test)]
mod tests;
