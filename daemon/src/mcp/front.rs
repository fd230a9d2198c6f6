//! The loop of `afresh mcp`, and what happens between the two machines.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::time::Duration;

use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{
    CLIENT_GONE_WITHIN, CLOSED_STDIN_MAX, CLOSED_STDOUT_MAX, HANDSHAKE_MAX, RETRY_WHEN_WANTED,
    SPARE_KEPT, TALK_TURNS_MAX,
};
use afresh_core::mcp::frame::Frame;
use afresh_core::mcp::{Conversation, Effect, Input};
use afresh_core::service::{Ending, Input as ServiceInput, Rest};
use afresh_core::time::Time;
use tokio::sync::mpsc;
use tokio::task::{unconstrained, yield_now};
use tokio::time::{Instant, sleep, sleep_until};

use super::guard::Guard;
use crate::control::Control;
use crate::definition::Talker;
use crate::os::{Asked, Signals};
use crate::process::Report;
use crate::store::trace::{Trace, Way};
use crate::supervise::{Happened, Supervise, Turn};
use crate::wires::{Heard, Moment, Wires};

/// Both machines, and what stands between them and the pipes.
pub(super) struct Front {
    pub(super) conversation: Conversation,
    pub(super) supervise: Supervise,
    pub(super) service: ServiceId,
    start: Instant,
    wires: Wires,
    /// Instances that owe something, until when, and what it means if they do not pay.
    deadlines: BTreeMap<Generation, (Instant, &'static str)>,
    /// How instances ended whose last words have not been heard yet.
    exits: BTreeMap<Generation, String>,
    last_wanted: Option<Instant>,
    /// The client is gone, or we were told to go.
    leaving: bool,
    trace: Option<Trace>,
    pub(super) guard: Guard,
    /// A run longer than this was fine.
    pub(super) stable_after: Duration,
}

impl Front {
    pub(super) fn new(
        conversation: Conversation,
        supervise: Supervise,
        service: ServiceId,
        wires: Wires,
        guard: Guard,
        stable_after: Duration,
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
            leaving: false,
            trace,
            guard,
            stable_after,
        }
    }

    /// What has to be ended in order.
    pub(super) fn end(self) -> (Supervise, Wires) {
        (self.supervise, self.wires)
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
            let why = "it has ended, and it is not started again".to_owned();
            self.converse(Input::Down { why }).await;
        }
    }

    /// Over when the server is down for good and nobody is left to be told about it.
    fn is_over(&self) -> bool {
        let service = self.supervise.core().service(self.service);
        match service.and_then(|service| service.rest()) {
            None | Some(Rest::NotStarted) => false,
            // After giving up the connection stays, and every call gets a clear error.
            Some(Rest::Failed(Ending::SpawnFailed(_))) => true,
            Some(Rest::Failed(_)) => self.leaving,
            // Its last words may be answers, or tell that it ended by no will of its own.
            Some(Rest::Stopped | Rest::Finished(_)) => self.leaving || self.wires.are_alone(),
        }
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

    /// The instance is of no use.
    async fn fail(&mut self, generation: Generation, why: String) {
        // Whoever asked for it hears why, and not only that it was ended for it.
        self.exits.insert(generation, why.clone());
        self.tell_service(ServiceInput::HandshakeFailed { generation, why }).await;
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
                self.converse(Input::ClientTooLong { beginning, ending }).await;
            }
            Heard::ClientGone if self.leaving => {}
            Heard::ClientGone => self.leave().await,
            Heard::Instance(generation, Frame::Line(line)) => {
                self.trace(Way::FromServer(generation), &line);
                self.converse(Input::Server { generation, line }).await;
            }
            Heard::Instance(generation, Frame::TooLong { beginning, .. }) => {
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

    /// A server that closes a pipe and lives on is of no use. Most are simply about to exit, with a code
    /// that matters.
    async fn turned_away(&mut self, generation: Generation, within: Duration, why: &'static str) {
        if !self.leaving {
            let until = Instant::now() + within;
            self.deadlines.insert(generation, (until, why));
        }
        self.converse(Input::Leaving { generation }).await;
    }

    async fn gone(&mut self, generation: Generation, read: Option<u64>) {
        self.deadlines.remove(&generation);
        let how = self.exits.remove(&generation).unwrap_or_default();
        self.converse(Input::Ended { generation, read, how }).await;
        self.note_failure().await;
    }

    /// An instance gets the session, or is on its way out.
    async fn take_turn(&mut self, turn: Turn) {
        match turn {
            Turn::Opens(generation, pid) => {
                let until = Instant::now() + HANDSHAKE_MAX;
                let why = "it did not answer the handshake in time";
                self.deadlines.insert(generation, (until, why));
                self.wires.begin(generation);
                self.converse(Input::Started { generation, pid }).await;
            }
            Turn::Leaves(generation) => {
                self.converse(Input::Leaving { generation }).await;
                self.deadlines.remove(&generation);
                self.wires.end(generation);
            }
        }
    }

    async fn react(&mut self, happened: Happened) {
        let ended = match &happened {
            Happened::Report(Report::Exited { generation, exit, .. }) => {
                Some((*generation, exit.to_string()))
            }
            Happened::Report(Report::SpawnFailed { generation, failure, .. }) => {
                Some((*generation, format!("could not be started: {}", failure.message)))
            }
            _ => None,
        };
        self.supervise.react(happened).await;
        if let Some((generation, how)) = ended {
            let how = self.last_words(generation, self.exits.get(&generation).unwrap_or(&how));
            self.exits.insert(generation, how);
            // Else its last words come first.
            if !self.wires.has(generation) {
                self.gone(generation, None).await;
            }
        }
    }

    /// Tells the conversation when nothing will come by itself any more.
    async fn note_failure(&mut self) {
        let service = self.supervise.core().service(self.service);
        if let Some(Rest::Failed(ending)) = service.and_then(|service| service.rest()) {
            let exit = service.and_then(|service| service.last_exit());
            let exit = exit.map_or_else(String::new, |exit| format!(", it {exit}"));
            let why = format!("it was given up after repeated failures (last: {ending}{exit})");
            let generation = service.map(|service| service.generation()).unwrap_or_default();
            let why = self.last_words(generation, &why);
            self.converse(Input::Down { why }).await;
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
                self.fail(generation, format!("refused the session: {why}")).await;
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
                self.tell_service(ServiceInput::Unhealthy { generation, why }).await;
            }
            Effect::Asked { id, asked } => self.asked(id, asked).await,
            Effect::ListChanged { kind, changes } => self.tell_changes(kind, &changes),
            Effect::Wanted => {
                let due = self.last_wanted.is_none_or(|at| at.elapsed() > RETRY_WHEN_WANTED);
                if due {
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
