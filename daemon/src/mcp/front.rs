//! The loop of `afresh mcp`, and what happens between the two machines.

use std::collections::BTreeMap;

use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{
    CLIENT_GONE_WITHIN, CLOSED_STDIN_MAX, CLOSED_STDOUT_MAX, RETRY_WHEN_WANTED,
};
use afresh_core::mcp::{Effect, Input};
use afresh_core::service::{Ending, Input as ServiceInput, Rest, Service};
use afresh_core::time::Stamp;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::guard::{Found, Guard};
use super::instances::End;
use super::lane::{Came, Lane, Odd};
use crate::control::{About, Ask, Control};
use crate::definition::Talker;
use crate::os::{Asked, Signals};
use crate::output::now;
use crate::store::trace::Trace;
use crate::supervise::{Happened, Supervise};
use crate::wires::{Moment, News, Wires};

/// Both machines, and what stands between them and the pipes.
pub(super) struct Front {
    pub(super) lane: Lane,
    pub(super) supervise: Supervise,
    pub(super) service: ServiceId,
    /// Instances that owe something, until when, and what it means if they do not pay.
    pub(super) deadlines: BTreeMap<Generation, (Instant, &'static str)>,
    /// How instances ended whose last words have not been heard yet.
    pub(super) exits: BTreeMap<Generation, End>,
    last_wanted: Option<Instant>,
    /// The client is gone, or we were told to go.
    pub(super) leaving: bool,
    pub(super) guard: Guard,
    pub(super) about: About,
    /// When all of this began.
    pub(super) begun: Stamp,
}

impl Front {
    pub(super) fn new(
        lane: Lane,
        supervise: Supervise,
        service: ServiceId,
        guard: Guard,
        about: About,
    ) -> Self {
        Self {
            lane,
            supervise,
            service,
            deadlines: BTreeMap::new(),
            exits: BTreeMap::new(),
            last_wanted: None,
            leaving: false,
            guard,
            about,
            begun: now(),
        }
    }

    /// What has to be ended in order.
    pub(super) fn end(self) -> (Supervise, Wires, Option<Trace>) {
        (self.supervise, self.lane.wires, self.lane.trace)
    }

    pub(super) async fn drive(
        &mut self,
        mut signals: Signals,
        mut arrivals: mpsc::Receiver<Talker>,
        control: &mut Control,
        mut abandoned: Moment,
    ) {
        while !self.is_over() {
            // Who comes is welcomed before it is given anything.
            while let Ok(talker) = arrivals.try_recv() {
                self.lane.wires.welcome(talker);
            }
            while let Some(turn) = self.supervise.next_turn() {
                self.take_turn(turn).await;
            }
            let others = async {
                tokio::select! {
                    biased;
                    asked = signals.next() => Other::Asked(asked),
                    () = &mut abandoned, if !self.leaving => Other::Abandoned,
                    ask = control.next() => Other::Ask(ask),
                    // Its pipes come before the news that it runs.
                    Some(talker) = arrivals.recv() => Other::Arrived(talker),
                    happened = self.supervise.wait() => Other::Happened(happened),
                    found = self.guard.next(), if !self.leaving => Other::Found(found),
                }
            };
            let deadline = self.deadlines.values().map(|(at, _)| *at).min();
            match self.lane.pass_until(deadline, others).await {
                Came::Odd(odd) => self.deal_with(odd).await,
                Came::Due => self.wake().await,
                Came::Other(Other::Asked(Asked::Restart(reason))) => {
                    self.tell_service(ServiceInput::Restart { reason: reason.to_owned() }).await;
                }
                Came::Other(Other::Asked(_) | Other::Abandoned) => self.leave().await,
                Came::Other(Other::Ask(ask)) => control.answer(&mut self.supervise, ask).await,
                Came::Other(Other::Arrived(talker)) => self.lane.wires.welcome(talker),
                Came::Other(Other::Happened(happened)) => self.react(happened).await,
                Came::Other(Other::Found(found)) => self.found(found).await,
            }
        }
        // Who still listens is owed an answer.
        if !self.leaving {
            let why = self.why_it_ended();
            self.converse(Input::Down { why }).await;
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
                self.leaving
                    || self.lane.has_answered
                    || self.lane.start.elapsed() > CLIENT_GONE_WITHIN
            }
            Some(Rest::Failed(_)) => self.leaving,
            // Its last words may be answers, or tell that it ended by no will of its own.
            Some(Rest::Stopped | Rest::Finished(_)) => self.leaving || self.lane.wires.are_alone(),
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
        self.lane.wires.leave();
        self.supervise.input_to(self.service, input).await;
    }

    async fn wake(&mut self) {
        self.converse(Input::Wakeup).await;
        let now = Instant::now();
        self.lane.drop_spare(now);
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

    /// Deals with what cannot simply be passed on, and passes on what was heard together with it.
    async fn deal_with(&mut self, odd: Odd) {
        let mut next = Some(odd);
        while let Some(odd) = next {
            match odd {
                Odd::News(news) => self.hear(news).await,
                Odd::Effect(effect) => self.perform(effect).await,
                // It may have been all that was waited for.
                Odd::FirstAnswer => {}
            }
            next = self.lane.pass();
        }
    }

    async fn hear(&mut self, news: News) {
        match news {
            News::ClientGone if self.leaving => {}
            News::ClientGone => self.leave().await,
            News::InstanceSilent(generation) => {
                self.turned_away(generation, CLOSED_STDOUT_MAX, "it closed its stdout").await;
            }
            News::InstanceDeaf(generation) => {
                self.turned_away(generation, CLOSED_STDIN_MAX, "it closed its stdin").await;
            }
            News::InstanceGone { generation, read } => self.gone(generation, read).await,
        }
    }

    /// Hands an input to the conversation, and does what it says.
    pub(super) async fn converse(&mut self, input: Input) {
        for effect in self.lane.handle(input) {
            self.perform(effect).await;
        }
    }

    async fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::ToClient(line) => self.lane.tell_client(line),
            Effect::ToServer { generation, line } => self.lane.tell_server(generation, line),
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

/// What the loop waits for besides messages and moments.
enum Other {
    Asked(Asked),
    /// Nobody reads our stdout any more.
    Abandoned,
    Ask(Ask),
    Arrived(Talker),
    Happened(Happened),
    Found(Found),
}
