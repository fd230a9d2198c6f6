//! The lane of a conversation: messages that only pass through are passed on here, at once, and
//! nothing else is looked at for them. Whatever is more than that is left to the loop, in its order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use afresh_core::id::Generation;
use afresh_core::limits::{GATHER_BELOW, GATHER_FOR, GATHER_FROM, SPARE_KEPT, TALK_TURNS_MAX};
use afresh_core::mcp::frame::Frame;
use afresh_core::mcp::{Conversation, Effect, Input};
use afresh_core::time::Time;
use tokio::task::unconstrained;
use tokio::time::Instant;

use super::alarm::Alarm;
use crate::store::trace::{Trace, Way};
use crate::wires::{Heard, News, Wires};

/// The conversation, and the pipes that it is held over.
pub(super) struct Lane {
    pub(super) conversation: Conversation,
    pub(super) wires: Wires,
    pub(super) trace: Option<Trace>,
    pub(super) start: Instant,
    /// The client was told something.
    pub(super) has_answered: bool,
    /// What came over the wires and has not been looked at yet.
    heard: VecDeque<Heard>,
    /// What is still to be done for the last of it.
    effects: std::vec::IntoIter<Effect>,
    /// How often the pipes were served since everything else was looked at.
    turns: u32,
    /// When the memory of a long line is given back, if no message comes before.
    spare_until: Option<Instant>,
    alarm: Alarm,
    /// What wakes us for anything but a pipe.
    aside: Arc<Aside>,
}

/// What ends the passing of messages.
pub(super) enum Came<T> {
    /// Something over the wires that is more than a message on its way.
    Odd(Odd),
    /// A moment that was waited for.
    Due,
    /// What else was waited for.
    Other(T),
}

/// What only the loop can deal with.
pub(super) enum Odd {
    News(News),
    Effect(Effect),
    /// The client was told something for the first time.
    FirstAnswer,
}

impl Lane {
    pub(super) fn new(
        conversation: Conversation,
        wires: Wires,
        trace: Option<Trace>,
        alarm: Alarm,
    ) -> Self {
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
            alarm,
            aside: Aside::new(Waker::noop().clone()),
        }
    }

    /// Passes messages on until there is something else to do: until `others` is ready, or the
    /// conversation wants to be woken, or the moment `due` has come.
    pub(super) async fn pass_until<T>(
        &mut self,
        due: Option<Instant>,
        others: impl Future<Output = T>,
    ) -> Came<T> {
        let mut others = pin!(others);
        // These have not been looked at yet.
        self.aside.is_woken.store(true, Ordering::Release);
        // It is not held back in favour of other tasks: it looks at everything else in time.
        unconstrained(poll_fn(|context| {
            // Only copies are known to be told apart rightly.
            let task = context.waker().clone();
            if !self.aside.task.will_wake(&task) {
                self.aside = Aside::new(task);
                self.alarm.forget();
            }
            let waker = Waker::from(Arc::clone(&self.aside));
            let aside_context = &mut Context::from_waker(&waker);
            let is_woken = self.aside.is_woken.swap(false, Ordering::AcqRel);
            if is_woken {
                self.wires.look_for_ends(aside_context);
            }
            if let Some(odd) = self.poll_wires(context) {
                // The others are looked at anew after that.
                return Poll::Ready(Came::Odd(odd));
            }
            if is_woken && let Poll::Ready(other) = others.as_mut().poll(aside_context) {
                return Poll::Ready(Came::Other(other));
            }
            self.poll_moment(due, is_woken, &waker).map(|()| Came::Due)
        }))
        .await
    }

    /// Serves the pipes until nothing more comes. After some turns in a row it asks to be called again
    /// instead, so that everything else is looked at in between.
    fn poll_wires(&mut self, context: &mut Context<'_>) -> Option<Odd> {
        while self.turns < TALK_TURNS_MAX {
            if let Some(odd) = self.pass() {
                return Some(odd);
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
    pub(super) fn pass(&mut self) -> Option<Odd> {
        loop {
            while let Some(effect) = self.effects.next() {
                match effect {
                    Effect::ToClient(line) => {
                        let is_first = !self.has_answered;
                        self.tell_client(line);
                        if is_first {
                            return Some(Odd::FirstAnswer);
                        }
                    }
                    Effect::ToServer { generation, line } => self.tell_server(generation, line),
                    effect => return Some(Odd::Effect(effect)),
                }
            }
            let input = match self.heard.pop_front()? {
                Heard::Client(frame) => self.said_by_client(frame),
                Heard::Instance(generation, frame) => self.said_by_server(generation, frame),
                Heard::News(news) => return Some(Odd::News(news)),
            };
            self.effects = self.handle(input).into_iter();
        }
    }

    pub(super) fn handle(&mut self, input: Input) -> Vec<Effect> {
        self.conversation.handle(Time::after_start(self.start.elapsed()), input)
    }

    pub(super) fn tell_client(&mut self, line: Vec<u8>) {
        self.has_answered = true;
        self.trace(Way::ToClient, &line);
        self.wires.tell_client(line);
    }

    pub(super) fn tell_server(&mut self, generation: Generation, line: Vec<u8>) {
        self.trace(Way::ToServer(generation), &line);
        self.wires.tell_instance(generation, line);
    }

    fn said_by_client(&self, frame: Frame) -> Input {
        match frame {
            Frame::Line(line) => {
                self.trace(Way::FromClient, &line);
                Input::Client(line)
            }
            Frame::TooLong { beginning, ending, .. } => {
                self.trace(Way::FromClient, &beginning);
                Input::ClientTooLong { beginning, ending }
            }
        }
    }

    fn said_by_server(&self, generation: Generation, frame: Frame) -> Input {
        match frame {
            Frame::Line(line) => {
                self.trace(Way::FromServer(generation), &line);
                Input::Server { generation, line }
            }
            Frame::TooLong { beginning, .. } => {
                self.trace(Way::FromServer(generation), &beginning);
                Input::ServerTooLong { generation, beginning }
            }
        }
    }

    fn trace(&self, way: Way, line: &[u8]) {
        if let Some(trace) = &self.trace {
            trace.note(way, line);
        }
    }

    /// Rests for a moment where many answers are owed and come one by one, so that the next ones are
    /// passed on together: to be woken for each of them takes more of the processor than to pass it on.
    fn gather(&self) {
        if self.heard.len() < GATHER_BELOW && self.conversation.in_flight() >= GATHER_FROM {
            std::thread::sleep(GATHER_FOR);
        }
    }

    /// Ready when the next moment has come that is waited for.
    fn poll_moment(&mut self, due: Option<Instant>, is_woken: bool, waker: &Waker) -> Poll<()> {
        let conversation = self.conversation.next_wakeup().map(|at| self.start + at.since_start());
        let moment = conversation.into_iter().chain(due).chain(self.spare_until).min();
        if is_woken {
            let now = Instant::now();
            self.alarm.note(now);
            if moment.is_some_and(|moment| moment <= now) {
                return Poll::Ready(());
            }
        }
        if let Some(moment) = moment {
            self.alarm.set(moment, waker);
        }
        Poll::Pending
    }

    /// Gives back the memory of a long line, if none has come for a while.
    pub(super) fn drop_spare(&mut self, now: Instant) {
        if self.spare_until.take_if(|until| *until <= now).is_some() {
            self.wires.drop_spare();
        }
    }
}

/// Wakes the task for anything but a pipe, and lets it know that.
struct Aside {
    is_woken: AtomicBool,
    task: Waker,
}

impl Aside {
    /// Everything is to be looked at once with a new one.
    fn new(task: Waker) -> Arc<Self> {
        Arc::new(Self { is_woken: AtomicBool::new(true), task })
    }
}

impl Wake for Aside {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}
