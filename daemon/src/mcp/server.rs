//! One MCP server: its conversation, and what stands between that and its restart machine.
//!
//! Owns no loop and no restart machine: whoever drives it lends it the one that all services share, as a
//! [`Seat`].

use std::collections::BTreeMap;

use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{
    CLIENT_GONE_WITHIN, CLOSED_STDIN_MAX, CLOSED_STDOUT_MAX, RETRY_WHEN_WANTED,
};
use afresh_core::mcp::{Effect, Input};
use afresh_core::service::{Ending, Input as ServiceInput, Rest, Service};
use afresh_core::time::Stamp;
use tokio::time::Instant;

use super::fast_path::{Lane, Odd};
use super::instances::End;
use super::restart_triggers::Guard;
use crate::clock::now;
use crate::control::About;
use crate::supervise::Supervise;
use crate::wires::News;

/// What belongs to one server.
pub(crate) struct Server {
    pub(super) lane: Lane,
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

/// A server at work: with the machines of all services, one of which is its own.
pub(crate) struct Seat<'a> {
    pub(super) server: &'a mut Server,
    pub(super) supervise: &'a mut Supervise,
}

impl Server {
    pub(crate) fn new(lane: Lane, service: ServiceId, guard: Guard, about: About) -> Self {
        Self {
            lane,
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

    /// When the next instance owes something.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.values().map(|(at, _)| *at).min()
    }
}

impl Seat<'_> {
    /// Over when the server is down for good and nobody is left to be told about it.
    pub(super) fn is_over(&self) -> bool {
        let service = self.supervise.core().service(self.server.service);
        match service.and_then(|service| service.rest()) {
            None | Some(Rest::NotStarted) => false,
            // After giving up the connection stays, and every call gets a clear error.
            // One that could not be started at all ends it, when the client has heard why.
            Some(Rest::Failed(Ending::SpawnFailed(_))) if !self.has_run() => {
                self.server.leaving
                    || self.server.lane.has_answered
                    || self.server.lane.start.elapsed() > CLIENT_GONE_WITHIN
            }
            Some(Rest::Failed(_)) => self.server.leaving,
            // Its last words may be answers, or tell that it ended by no will of its own.
            Some(Rest::Stopped | Rest::Finished(_)) => {
                self.server.leaving || self.server.lane.wires.are_alone()
            }
        }
    }

    /// A command that never ran is not there at all; one that did may be back soon.
    pub(super) fn has_run(&self) -> bool {
        self.supervise.core().service(self.server.service).is_some_and(Service::has_run)
    }

    /// The client is gone, or we were told to go: all of it within a second.
    pub(crate) async fn leave(&mut self) {
        self.leave_by(ServiceInput::Shutdown { within: Some(CLIENT_GONE_WITHIN) }).await;
    }

    /// Nobody needs this one any more.
    pub(crate) async fn dismiss(&mut self) {
        self.leave_by(ServiceInput::Dismiss { within: CLIENT_GONE_WITHIN }).await;
    }

    async fn leave_by(&mut self, input: ServiceInput) {
        let input = if self.server.leaving { ServiceInput::HurryUp } else { input };
        self.server.leaving = true;
        self.server.lane.wires.leave();
        self.supervise.input_to(self.server.service, input).await;
    }

    pub(super) async fn wake(&mut self) {
        self.converse(Input::Wakeup).await;
        let now = Instant::now();
        self.server.lane.drop_spare(now);
        let late: Vec<(Generation, &'static str)> = self
            .server
            .deadlines
            .iter()
            .filter(|(_, (at, _))| *at <= now)
            .map(|(generation, (_, why))| (*generation, *why))
            .collect();
        for (generation, why) in late {
            self.server.deadlines.remove(&generation);
            self.fail(generation, why.to_owned()).await;
        }
    }

    pub(super) async fn tell_service(&mut self, input: ServiceInput) {
        self.supervise.input_to(self.server.service, input).await;
    }

    /// Writes a line of the log. Where the client has no pipe, the log is about several servers.
    pub(super) fn log(&self, message: &str) {
        if self.server.lane.wires.have_client() {
            return self.supervise.log(message);
        }
        self.supervise.log(&format!("{}: {message}", self.supervise.name(self.server.service)));
    }

    /// Deals with what cannot simply be passed on, and passes on what was heard together with it.
    pub(super) async fn deal_with(&mut self, odd: Odd) {
        let mut next = Some(odd);
        while let Some(odd) = next {
            match odd {
                Odd::News(news) => self.hear(news).await,
                Odd::Effect(effect) => self.perform(effect).await,
                // It may have been all that was waited for.
                Odd::FirstAnswer => {}
            }
            next = self.server.lane.pass();
        }
    }

    async fn hear(&mut self, news: News) {
        match news {
            News::ClientGone if self.server.leaving => {}
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
        for effect in self.server.lane.handle(input) {
            self.perform(effect).await;
        }
    }

    async fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::ToClient(line) => self.server.lane.tell_client(line),
            Effect::ToServer { generation, line } => self.server.lane.tell_server(generation, line),
            Effect::Serving { generation } => {
                self.server.deadlines.remove(&generation);
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
                let due = self.server.last_wanted.is_none_or(|at| at.elapsed() > RETRY_WHEN_WANTED);
                if due && self.has_run() {
                    self.server.last_wanted = Some(Instant::now());
                    self.tell_service(ServiceInput::Start).await;
                }
            }
            Effect::Divert { generation, line } => {
                let whose = if generation.is_some() { "the server's stdout" } else { "the client" };
                let text = String::from_utf8_lossy(&line);
                self.log(&format!("from {whose}, not a message: {text}"));
            }
        }
    }
}
