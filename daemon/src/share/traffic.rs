//! Owns what is on its way between shims and servers: who is attached to which server, the machine of each server, and the
//! lines that they say. Driven by the loop of the hub, by `mcp/poll.rs`: lines are read, decided about and written in one
//! poll, and what needs more than that is left to the loop, in its order. Never starts or ends a process.

use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll};

use afresh_core::gateway::{ClientId, Effect, Hub, Input, LinkId};
use afresh_core::id::ServiceId;
use afresh_core::limits::{SHARE_LINES_MAX, TALK_TURNS_MAX};
use afresh_core::mcp::frame::Frame;
use afresh_core::share::protocol::{
    HubFrame, PROTOCOL_BEFORE, ShimFrame, frame_of, is_frame, line_of,
};
use afresh_core::share::{InstanceId, Instances, SessionId};
use afresh_core::time::Time;
use tokio::time::Instant;

use super::hub::SharedServer;
use super::shim_connections::{ShimReaders, ShimWriter};
use crate::gateway::links::Links;
use crate::mcp::{MessagePath, ServerPoll};

/// The servers, the shims of their clients, and what is between them.
pub(super) struct Traffic {
    pub(super) start: Instant,
    pub(super) links: Links,
    pub(super) shims: ShimReaders,
    pub(super) instances: Instances,
    pub(super) shared: BTreeMap<InstanceId, Shared>,
    pub(super) sessions: BTreeMap<SessionId, Session>,
    /// A newer afresh wants to take over as soon as nothing is in flight.
    pub(super) hands_over: bool,
    /// What was said and was not looked at yet.
    words: VecDeque<(InstanceId, Word)>,
    /// What is still to be done for the last of it.
    effects: VecDeque<(InstanceId, Effect)>,
    /// How often in a row something was passed on since everything else was looked at.
    turns: u32,
}

/// A server and its clients.
pub(super) struct Shared {
    pub(super) hub: Hub,
    pub(super) server: SharedServer,
}

/// A shim.
pub(super) struct Session {
    pub(super) instance: InstanceId,
    pub(super) writer: ShimWriter,
    pub(super) protocol: u32,
    /// Lines of MCP that it has sent.
    pub(super) read: u64,
}

/// For one server.
enum Word {
    Input(Input),
    /// A frame of ours for all of its clients.
    Frame(Vec<u8>),
}

/// What only the loop can deal with.
pub(super) enum Interruption {
    /// Of the machine of a server.
    Effect(InstanceId, Effect),
    /// Of a server, more than a message on its way.
    Server(ServiceId, ServerPoll),
    /// A newer afresh is there, and wants to take over.
    HandOverWanted,
    /// Nothing is in flight any more, and it can.
    HandOver,
    /// There is room for another shim.
    ShimGone,
}

/// The links of an instance have its number in their upper half.
pub(super) const LINK_BITS: u32 = 32;

pub(super) const fn instance_of(link: LinkId) -> InstanceId {
    InstanceId(link.0 >> LINK_BITS)
}

pub(super) const fn client_of(session: SessionId) -> ClientId {
    ClientId(session.0)
}

impl Traffic {
    pub(super) fn new(links: Links) -> Self {
        Self {
            start: Instant::now(),
            links,
            shims: ShimReaders::new(),
            instances: Instances::new(Time::ZERO),
            shared: BTreeMap::new(),
            sessions: BTreeMap::new(),
            hands_over: false,
            words: VecDeque::new(),
            effects: VecDeque::new(),
            turns: 0,
        }
    }

    pub(super) fn now(&self) -> Time {
        Time::after_start(self.start.elapsed())
    }

    /// Takes an input of the machine of a server, behind what was said before.
    pub(super) fn push(&mut self, instance: InstanceId, input: Input) {
        self.words.push_back((instance, Word::Input(input)));
    }

    /// Passes on what was said, up to the first effect that is more than a message on its way.
    pub(super) fn pass(&mut self) -> Option<(InstanceId, Effect)> {
        loop {
            while let Some((instance, effect)) = self.effects.pop_front() {
                match effect {
                    Effect::ToClient { client, line, .. } => self.tell_client(client, line),
                    Effect::ToLink { link, line } => {
                        if let Some(input) = self.links.tell(link, line) {
                            self.push(instance, input);
                        }
                    }
                    effect => return Some((instance, effect)),
                }
            }
            let (instance, word) = self.words.pop_front()?;
            match word {
                Word::Input(input) => {
                    let now = self.now();
                    let Some(shared) = self.shared.get_mut(&instance) else { continue };
                    let effects = shared.hub.handle(now, input).into_iter();
                    self.effects.extend(effects.map(|effect| (instance, effect)));
                }
                Word::Frame(line) => self.tell_all(instance, &line),
            }
        }
    }

    fn tell_client(&mut self, client: ClientId, line: Vec<u8>) {
        let id = SessionId(client.0);
        if let Some(session) = self.sessions.get(&id)
            && !session.writer.send(line)
        {
            // It does not read: it attaches again when it does.
            self.end_session(id);
        }
    }

    /// Hands a frame of ours on to all clients of a server.
    fn tell_all(&mut self, instance: InstanceId, line: &[u8]) {
        let of_instance = self.sessions.values().filter(|its| its.instance == instance);
        for session in of_instance.filter(|its| its.protocol > PROTOCOL_BEFORE) {
            session.writer.send(line.to_vec());
        }
    }

    /// Takes what a server has said.
    pub(super) fn take(&mut self, service: ServiceId) {
        let lines = self.links.servers.take_outbox(service);
        let Some(link) = self.links.links.get(&service).copied() else { return };
        let instance = instance_of(link);
        self.words.extend(lines.into_iter().map(|line| {
            let word = match is_frame(&line) {
                true => Word::Frame(line),
                false => Word::Input(Input::Link { link, line, about: None }),
            };
            (instance, word)
        }));
    }

    /// Takes what a shim has said, for a bounded time. Others have their turn after that.
    fn take_turn(&mut self, id: SessionId) -> Option<Interruption> {
        for _ in 0..SHARE_LINES_MAX {
            match self.shims.poll_line(id) {
                Poll::Pending => return None,
                Poll::Ready(Some(frame)) => {
                    if let Some(interruption) = self.line(id, frame) {
                        self.shims.poll_again(id);
                        return Some(interruption);
                    }
                }
                Poll::Ready(None) => {
                    self.end_session(id);
                    return Some(Interruption::ShimGone);
                }
            }
        }
        self.shims.poll_again(id);
        None
    }

    /// A line of a shim. One whose session is over is read to its end.
    fn line(&mut self, id: SessionId, frame: Frame) -> Option<Interruption> {
        let session = self.sessions.get_mut(&id)?;
        let (instance, client) = (session.instance, client_of(id));
        let input = match frame {
            Frame::Line(line) if is_frame(&line) => {
                match frame_of(&line) {
                    Some(ShimFrame::Ping) => drop(session.writer.send(line_of(&HubFrame::Pong))),
                    Some(ShimFrame::HandOver) => return Some(Interruption::HandOverWanted),
                    Some(ShimFrame::Roots(roots)) => {
                        if !self.instances.set_roots(id, roots) {
                            self.send_away(id);
                        }
                    }
                    Some(ShimFrame::Hello(_)) | None => {}
                }
                return None;
            }
            Frame::Line(line) => Input::Client { client, line },
            Frame::TooLong { beginning, ending, .. } => {
                Input::ClientTooLong { client, beginning, ending }
            }
        };
        session.read += 1;
        self.push(instance, input);
        None
    }

    /// Its client needs another server: it attaches again, and gets that one.
    fn send_away(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get(&id) {
            let (read, keeps_state) = (session.read, true);
            session.writer.send(line_of(&HubFrame::Leaving { read, keeps_state }));
        }
        self.end_session(id);
    }

    fn end_session(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else { return };
        let now = self.now();
        self.instances.detach(now, id);
        self.push(session.instance, Input::Left { client: client_of(id) });
    }

    fn can_hand_over(&self) -> bool {
        self.hands_over && self.shared.values().all(|shared| shared.hub.in_flight() == 0)
    }
}

impl MessagePath for Traffic {
    type Interruption = Interruption;

    /// Servers and shims have their turns one after another. After some of them in a row it asks to be called again
    /// instead, so that everything else is looked at in between.
    fn poll_messages(&mut self, context: &mut Context<'_>) -> Option<Interruption> {
        while self.turns < TALK_TURNS_MAX {
            if let Some((instance, effect)) = self.pass() {
                return Some(Interruption::Effect(instance, effect));
            }
            self.turns += 1;
            match self.links.servers.poll_next(context) {
                Poll::Ready((service, ServerPoll::Lines)) => {
                    self.take(service);
                    continue;
                }
                Poll::Ready((service, polled)) => {
                    return Some(Interruption::Server(service, polled));
                }
                Poll::Pending => {}
            }
            let Some(id) = self.shims.next_ready(context) else {
                self.turns = 0;
                return self.can_hand_over().then_some(Interruption::HandOver);
            };
            let interruption = self.take_turn(id);
            if interruption.is_some() {
                return interruption;
            }
        }
        self.turns = 0;
        context.waker().wake_by_ref();
        None
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let hubs = self.shared.values().filter_map(|shared| shared.hub.next_wakeup());
        let at = hubs.chain(self.instances.next_wakeup()).min()?;
        Some(self.start + at.since_start())
    }
}
