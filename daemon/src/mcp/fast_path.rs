//! Owns the fast path of a conversation: messages that only pass through are passed on here, at once, and
//! nothing else is looked at for them. Driven by `poll.rs` and `gateway_servers.rs`. Anything else is left to the
//! loop, in its order; see docs/design/0008-mcp-fast-path.md.

use std::collections::VecDeque;
use std::task::Context;

use afresh_core::id::Generation;
use afresh_core::limits::{GATHER_BELOW, GATHER_FOR, GATHER_FROM, SPARE_KEPT, TALK_TURNS_MAX};
use afresh_core::mcp::frame::Frame;
use afresh_core::mcp::{Conversation, Effect, Input};
use afresh_core::time::Time;
use tokio::time::Instant;

use super::poll::MessagePath;
use crate::store::trace::{MessageDirection, Trace};
use crate::wires::{WireEvent, WireInput, Wires};

/// The conversation, and the pipes that it is held over.
pub(crate) struct FastPath {
    pub(super) conversation: Conversation,
    pub(super) wires: Wires,
    pub(super) trace: Option<Trace>,
    pub(super) start: Instant,
    /// The client was told something.
    pub(super) has_answered: bool,
    /// What came over the wires and has not been looked at yet.
    heard: VecDeque<WireInput>,
    /// What is still to be done for the last of it.
    effects: std::vec::IntoIter<Effect>,
    /// How often the pipes were served since everything else was looked at.
    turns: u32,
    /// When the memory of a long line is given back, if no message comes before.
    spare_until: Option<Instant>,
}

/// What only the loop can deal with.
pub(crate) enum Interruption {
    News(WireEvent),
    Effect(Effect),
    /// The client was told something for the first time.
    FirstAnswer,
}

impl FastPath {
    pub(crate) fn new(conversation: Conversation, wires: Wires, trace: Option<Trace>) -> Self {
        Self {
            conversation,
            wires,
            trace,
            start: Instant::now(),
            has_answered: false,
            heard: VecDeque::new(),
            effects: Vec::new().into_iter(),
            turns: 0,
            spare_until: None,
        }
    }

    /// Serves the pipes until nothing more comes. After some turns in a row it asks to be called again
    /// instead, so that everything else is looked at in between.
    pub(super) fn poll_wires(&mut self, context: &mut Context<'_>) -> Option<Interruption> {
        while self.turns < TALK_TURNS_MAX {
            if let Some(interruption) = self.pass() {
                return Some(interruption);
            }
            if self.wires.poll_heard(context, &mut self.heard).is_pending() {
                self.turns = 0;
                return None;
            }
            self.turns += 1;
            self.gather();
            self.spare_until = self.wires.has_spare().then(|| Instant::now() + SPARE_KEPT);
        }
        self.turns = 0;
        context.waker().wake_by_ref();
        None
    }

    /// Passes on what was heard, up to the first thing that is more than a message on its way.
    pub(super) fn pass(&mut self) -> Option<Interruption> {
        loop {
            while let Some(effect) = self.effects.next() {
                match effect {
                    Effect::ToClient(line) => {
                        let is_first = !self.has_answered;
                        self.tell_client(line);
                        if is_first {
                            return Some(Interruption::FirstAnswer);
                        }
                    }
                    Effect::ToServer { generation, line } => self.tell_server(generation, line),
                    effect => return Some(Interruption::Effect(effect)),
                }
            }
            let input = match self.heard.pop_front()? {
                WireInput::Client(frame) => self.said_by_client(frame),
                WireInput::Instance(generation, frame) => self.said_by_server(generation, frame),
                WireInput::Event(news) => return Some(Interruption::News(news)),
            };
            self.effects = self.handle(input).into_iter();
        }
    }

    /// Takes a line of a client's that has no pipe; it is passed on when the lane is polled.
    pub(super) fn say(&mut self, line: Vec<u8>) {
        self.heard.push_back(WireInput::Client(Frame::Line(line)));
    }

    pub(super) fn handle(&mut self, input: Input) -> Vec<Effect> {
        self.conversation.handle(Time::after_start(self.start.elapsed()), input)
    }

    pub(super) fn tell_client(&mut self, line: Vec<u8>) {
        self.has_answered = true;
        self.trace(MessageDirection::ToClient, &line);
        self.wires.tell_client(line);
    }

    pub(super) fn tell_server(&mut self, generation: Generation, line: Vec<u8>) {
        self.trace(MessageDirection::ToServer(generation), &line);
        self.wires.tell_instance(generation, line);
    }

    fn said_by_client(&self, frame: Frame) -> Input {
        match frame {
            Frame::Line(line) => {
                self.trace(MessageDirection::FromClient, &line);
                Input::Client(line)
            }
            Frame::TooLong { beginning, ending, .. } => {
                self.trace(MessageDirection::FromClient, &beginning);
                Input::ClientTooLong { beginning, ending }
            }
        }
    }

    fn said_by_server(&self, generation: Generation, frame: Frame) -> Input {
        match frame {
            Frame::Line(line) => {
                self.trace(MessageDirection::FromServer(generation), &line);
                Input::Server { generation, line }
            }
            Frame::TooLong { beginning, .. } => {
                self.trace(MessageDirection::FromServer(generation), &beginning);
                Input::ServerTooLong { generation, beginning }
            }
        }
    }

    fn trace(&self, way: MessageDirection, line: &[u8]) {
        if let Some(trace) = &self.trace {
            trace.note(way, line);
        }
    }

    /// Rests for a moment where many answers are owed and come one by one, so that the next ones are
    /// passed on together: to be woken for each of them takes more of the processor than to pass it on.
    /// Not where other servers would be held up by it.
    fn gather(&self) {
        let is_only_one = self.wires.have_client();
        if is_only_one
            && self.heard.len() < GATHER_BELOW
            && self.conversation.in_flight() >= GATHER_FROM
        {
            std::thread::sleep(GATHER_FOR);
        }
    }

    /// Gives back the memory of a long line, if none has come for a while.
    pub(super) fn drop_spare(&mut self, now: Instant) {
        if self.spare_until.take_if(|until| *until <= now).is_some() {
            self.wires.drop_spare();
        }
    }
}

impl MessagePath for FastPath {
    type Interruption = Interruption;

    fn look_for_ends(&mut self, context: &mut Context<'_>) {
        self.wires.look_for_ends(context);
    }

    fn poll_messages(&mut self, context: &mut Context<'_>) -> Option<Interruption> {
        self.poll_wires(context)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let conversation = self.conversation.next_wakeup().map(|at| self.start + at.since_start());
        conversation.into_iter().chain(self.spare_until).min()
    }
}
