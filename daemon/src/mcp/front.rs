//! The loop of `afresh mcp`, and what happens between the two machines.

use std::collections::BTreeMap;
use std::future::poll_fn;

use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{
    CLIENT_GONE_WITHIN, CLOSED_STDIN_MAX, CLOSED_STDOUT_MAX, GATHER_BELOW, GATHER_FOR, GATHER_FROM,
    RETRY_WHEN_WANTED, SPARE_KEPT, TALK_TURNS_MAX,
};
use afresh_core::mcp::frame::Frame;
use afresh_core::mcp::{Conversation, Effect, Input};
use afresh_core::service::{Ending, Input as ServiceInput, Rest, Service};
use afresh_core::time::{Stamp, Time};
use tokio::sync::mpsc;
use tokio::task::{unconstrained, yield_now};
use tokio::time::{Instant, sleep, sleep_until};

use super::guard::Guard;
use super::instances::End;
use crate::control::{About, Control};
use crate::definition::Talker;
use crate::os::{Asked, Signals};
use crate::output::now;
use crate::store::trace::{Trace, Way};
use crate::supervise::Supervise;
use crate::wires::{Heard, Moment, Wires};

/// Both machines, and what stands between them and the pipes.
pub(super) struct Front {
    pub(super) conversation: Conversation,
    pub(super) supervise: Supervise,
    pub(super) service: ServiceId,
    start: Instant,
    pub(super) wires: Wires,
    /// Instances that owe something, until when, and what it means if they do not pay.
    pub(super) deadlines: BTreeMap<Generation, (Instant, &'static str)>,
    /// How instances ended whose last words have not been heard yet.
    pub(super) exits: BTreeMap<Generation, End>,
    last_wanted: Option<Instant>,
    /// The client was told something.
    has_answered: bool,
    /// The client is gone, or we were told to go.
    pub(super) leaving: bool,
    trace: Option<Trace>,
    pub(super) guard: Guard,
    pub(super) about: About,
    /// When all of this began.
    pub(super) begun: Stamp,
}

impl Front {
    pub(super) fn new(
        conversation: Conversation,
        supervise: Supervise,
        service: ServiceId,
        wires: Wires,
        guard: Guard,
        about: About,
        trace: Option<Trace>,
    ) -> Self {
        Self {
            conversation,
            supervise,
            service,
            start: Instant::now(),
            wires,
            deadlines: BTreeMap::new(),
            exits: BTreeMap::new(),
            last_wanted: None,
            has_answered: false,
            leaving: false,
            trace,
            guard,
            about,
            begun: now(),
        }
    }

    /// What has to be ended in order.
    pub(super) fn end(self) -> (Supervise, Wires, Option<Trace>) {
        (self.supervise, self.wires, self.trace)
    }

    pub(super) async fn drive(
        &mut self,
        mut signals: Signals,
        mut arrivals: mpsc::Receiver<Talker>,
        control: &mut Control,
        mut abandoned: Moment,
    ) {
        let mut heard = Vec::new();
        let mut turns = 0;
        while !self.is_over() {
            // Who comes is welcomed before it is given anything.
            while let Ok(talker) = arrivals.try_recv() {
                self.wires.welcome(talker);
            }
            while let Some(turn) = self.supervise.next_turn() {
                self.take_turn(turn).await;
            }
            let has_turn = turns < TALK_TURNS_MAX;
            let has_spare = self.wires.has_spare();
            // The wires come first, so that a message does not wait for all the others to be asked;
            // after some turns in a row they come last.
            tokio::select! {
                biased;
                () = talk(&mut self.wires, &mut heard), if has_turn => {
                    turns += 1;
                    self.gather(heard.len());
                    for word in heard.drain(..) {
                        self.hear(word).await;
                    }
                    continue;
                }
                asked = signals.next() => match asked {
                    Asked::Restart(reason) => {
                        let input = ServiceInput::Restart { reason: reason.to_owned() };
                        self.supervise.input_to(self.service, input).await;
                    }
                    Asked::Stop(_) | Asked::Interrupt => self.leave().await,
                },
                () = &mut abandoned, if !self.leaving => self.leave().await,
                ask = control.next() => control.answer(&mut self.supervise, ask).await,
                // Its pipes come before the news that it runs.
                Some(talker) = arrivals.recv() => self.wires.welcome(talker),
                happened = self.supervise.wait() => self.react(happened).await,
                found = self.guard.next(), if !self.leaving => self.found(found).await,
                () = next_wakeup(self.start, &self.conversation, &self.deadlines) => {
                    self.wake().await;
                }
                () = sleep(SPARE_KEPT), if has_spare => self.wires.drop_spare(),
                () = yield_now(), if !has_turn => {}
            }
            turns = 0;
        }
        // Who still listens is owed an answer.
        if !self.leaving {
            let why = self.why_it_ended();
            self.converse(Input::Down { why }).await;
        }
    }

    /// Rests for a moment where many answers are owed and come one by one, so that the next ones are
    /// passed on together: to be woken for each of them takes more of the processor than to pass it on.
    fn gather(&self, heard: usize) {
        if heard < GATHER_BELOW && self.conversation.in_flight() >= GATHER_FROM {
            std::thread::sleep(GATHER_FOR);
        }
    }

    /// Over when the server is down for good and nobody is left to be told about it.
    fn is_over(&self) -> bool {
        let service = self.supervise.core().service(self.service);
        match service.and_then(|service| service.rest()) {
            None | Some(Rest::NotStarted) => false,
            // After giving up the connection stays, and every call gets a clear error.
            // One that could not be started at all ends it, when the client has heard why.
            Some(Rest::Failed(Ending::SpawnFailed(_))) if !self.has_run() => {
                self.leaving || self.has_answered || self.start.elapsed() > CLIENT_GONE_WITHIN
            }
            Some(Rest::Failed(_)) => self.leaving,
            // Its last words may be answers, or tell that it ended by no will of its own.
            Some(Rest::Stopped | Rest::Finished(_)) => self.leaving || self.wires.are_alone(),
        }
    }

    /// A command that never ran is not there at all; one that did may be back soon.
    pub(super) fn has_run(&self) -> bool {
        self.supervise.core().service(self.service).is_some_and(Service::has_run)
    }

    /// The client is gone, or we were told to go: all of it within a second.
    async fn leave(&mut self) {
        let input = match self.leaving {
            true => ServiceInput::HurryUp,
            false => ServiceInput::Shutdown { within: Some(CLIENT_GONE_WITHIN) },
        };
        self.leaving = true;
        self.wires.leave();
        self.supervise.input_to(self.service, input).await;
    }

    fn now(&self) -> Time {
        Time::after_start(self.start.elapsed())
    }

    async fn wake(&mut self) {
        self.converse(Input::Wakeup).await;
        let now = Instant::now();
        let late: Vec<(Generation, &'static str)> = self
            .deadlines
            .iter()
            .filter(|(_, (at, _))| *at <= now)
            .map(|(generation, (_, why))| (*generation, *why))
            .collect();
        for (generation, why) in late {
            self.deadlines.remove(&generation);
            self.fail(generation, why.to_owned()).await;
        }
    }

    pub(super) async fn tell_service(&mut self, input: ServiceInput) {
        self.supervise.input_to(self.service, input).await;
    }

    fn trace(&self, way: Way, line: &[u8]) {
        if let Some(trace) = &self.trace {
            trace.note(way, line);
        }
    }

    async fn hear(&mut self, word: Heard) {
        match word {
            Heard::Client(Frame::Line(line)) => {
                self.trace(Way::FromClient, &line);
                self.converse(Input::Client(line)).await;
            }
            Heard::Client(Frame::TooLong { beginning, ending, .. }) => {
                self.trace(Way::FromClient, &beginning);
                self.converse(Input::ClientTooLong { beginning, ending }).await;
            }
            Heard::ClientGone if self.leaving => {}
            Heard::ClientGone => self.leave().await,
            Heard::Instance(generation, Frame::Line(line)) => {
                self.trace(Way::FromServer(generation), &line);
                self.converse(Input::Server { generation, line }).await;
            }
            Heard::Instance(generation, Frame::TooLong { beginning, .. }) => {
                self.trace(Way::FromServer(generation), &beginning);
                self.converse(Input::ServerTooLong { generation, beginning }).await;
            }
            Heard::InstanceSilent(generation) => {
                self.turned_away(generation, CLOSED_STDOUT_MAX, "it closed its stdout").await;
            }
            Heard::InstanceDeaf(generation) => {
                self.turned_away(generation, CLOSED_STDIN_MAX, "it closed its stdin").await;
            }
            Heard::InstanceGone { generation, read } => self.gone(generation, read).await,
        }
    }

    /// Hands an input to the conversation, and does what it says.
    pub(super) async fn converse(&mut self, input: Input) {
        let effects = self.conversation.handle(self.now(), input);
        for effect in effects {
            self.perform(effect).await;
        }
    }

    async fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::ToClient(line) => {
                self.has_answered = true;
                self.trace(Way::ToClient, &line);
                self.wires.tell_client(line);
            }
            Effect::ToServer { generation, line } => {
                self.trace(Way::ToServer(generation), &line);
                self.wires.tell_instance(generation, line);
            }
            Effect::Serving { generation } => {
                self.deadlines.remove(&generation);
                self.tell_service(ServiceInput::Ready { generation }).await;
            }
            Effect::Drained { generation } => {
                self.tell_service(ServiceInput::Drained { generation }).await;
            }
            Effect::HandshakeFailed { generation, why } => {
                self.fail(generation, format!("it refused the session: {why}")).await;
            }
            Effect::Replace { generation } => {
                let reason = "the client fell back to the older protocol".to_owned();
                self.tell_service(ServiceInput::Replace { generation, reason }).await;
            }
            Effect::DiedOfProbe { generation } => {
                self.tell_service(ServiceInput::DiedOfProbe { generation }).await;
            }
            Effect::Sample { generation } => self.sample(generation),
            Effect::Wedged { generation, why } => {
                self.note_end(generation, &why);
                self.tell_service(ServiceInput::Unhealthy { generation, why }).await;
            }
            Effect::Asked { id, asked } => self.asked(id, asked).await,
            Effect::ListChanged { kind, changes } => self.tell_changes(kind, &changes),
            Effect::Wanted => {
                let due = self.last_wanted.is_none_or(|at| at.elapsed() > RETRY_WHEN_WANTED);
                if due && self.has_run() {
                    self.last_wanted = Some(Instant::now());
                    self.tell_service(ServiceInput::Start).await;
                }
            }
            Effect::Divert { generation, line } => {
                let whose = if generation.is_some() { "the server's stdout" } else { "the client" };
                let text = String::from_utf8_lossy(&line);
                self.supervise.log(&format!("from {whose}, not a message: {text}"));
            }
        }
    }
}

/// Waits until something comes over the wires. It is not held back in favour of other tasks: it
/// writes first, and who calls it looks at everything else in time.
async fn talk(wires: &mut Wires, heard: &mut Vec<Heard>) {
    unconstrained(poll_fn(|context| wires.poll_heard(context, heard))).await;
}

/// Waits for the next moment that the conversation or an instance's debt gives.
async fn next_wakeup(
    start: Instant,
    conversation: &Conversation,
    deadlines: &BTreeMap<Generation, (Instant, &'static str)>,
) {
    let conversation = conversation.next_wakeup().map(|at| start + at.since_start());
    match conversation.into_iter().chain(deadlines.values().map(|(at, _)| *at)).min() {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
