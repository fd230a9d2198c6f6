//! Instances that come and go, as the conversation has to hear of them.

use std::time::Duration;

use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{CLIENT_GONE_WITHIN, HANDSHAKE_MAX};
use afresh_core::mcp::Input;
use afresh_core::service::{Ending, Input as ServiceInput, Rest};
use tokio::time::Instant;

use super::server::Seat;
use crate::process::Report;
use crate::supervise::{Becomes, Happened, Supervise, Turn};

/// How an instance ended.
#[derive(Default)]
pub(super) struct End {
    how: String,
    /// A newer one was wanted in its place.
    superseded: bool,
}

/// The end of an instance as it was reported; seen before its machine hears of it, and dealt with after.
pub(super) struct Ended {
    pub(super) service: ServiceId,
    generation: Generation,
    how: String,
    /// It could not be started, and was to take the place of another.
    never_came: bool,
}

impl Ended {
    pub(super) fn of(happened: &Happened, supervise: &Supervise) -> Option<Self> {
        match happened {
            Happened::Report(Report::Exited { service, generation, exit, .. }) => Some(Self {
                service: *service,
                generation: *generation,
                how: exit.to_string(),
                never_came: false,
            }),
            Happened::Report(Report::SpawnFailed { service, generation, failure }) => {
                let its = supervise.core().service(*service);
                Some(Self {
                    service: *service,
                    generation: *generation,
                    how: format!("could not be started: {}", failure.message),
                    never_came: its.is_some_and(|service| service.awaits(*generation)),
                })
            }
            _ => None,
        }
    }
}

impl Seat<'_> {
    /// The instance is of no use.
    pub(crate) async fn fail(&mut self, generation: Generation, why: String) {
        self.note_end(generation, &why);
        self.tell_service(ServiceInput::HandshakeFailed { generation, why }).await;
    }

    /// Whoever waits for the instance hears why it ends, and not only that it was ended for it.
    pub(super) fn note_end(&mut self, generation: Generation, why: &str) {
        let end = End { how: format!("was ended: {why}"), superseded: false };
        self.server.exits.insert(generation, end);
    }

    /// A server that closes a pipe and lives on is of no use. Most are simply about to exit, with a code
    /// that matters.
    pub(super) async fn turned_away(
        &mut self,
        generation: Generation,
        within: Duration,
        why: &'static str,
    ) {
        if !self.server.leaving {
            let until = Instant::now() + within;
            self.server.deadlines.insert(generation, (until, why));
        }
        self.converse(Input::Leaving { generation }).await;
    }

    pub(super) async fn gone(&mut self, generation: Generation, read: Option<u64>) {
        self.server.deadlines.remove(&generation);
        let End { how, superseded } = self.server.exits.remove(&generation).unwrap_or_default();
        self.converse(Input::Ended { generation, read, how, superseded }).await;
        self.note_failure().await;
        if !self.has_run() {
            // The end is looked at again when the client has had its time to ask.
            let until = Instant::now() + CLIENT_GONE_WITHIN;
            self.server.deadlines.insert(generation, (until, "it could not be started"));
        }
    }

    /// An instance gets the session, or is on its way out.
    pub(super) async fn take_turn(&mut self, turn: Turn) {
        let generation = turn.generation;
        match turn.becomes {
            Becomes::Opened(pid) => {
                let until = Instant::now() + HANDSHAKE_MAX;
                let why = "it did not answer the handshake in time";
                self.server.deadlines.insert(generation, (until, why));
                self.server.lane.wires.begin(generation);
                self.converse(Input::Started { generation, pid }).await;
            }
            Becomes::Leaving => {
                self.converse(Input::Leaving { generation }).await;
                self.server.deadlines.remove(&generation);
                self.server.lane.wires.end(generation);
            }
        }
    }

    /// Acts on what `Supervise::wait` brought.
    pub(super) async fn react(&mut self, happened: Happened) {
        let ended = Ended::of(&happened, self.supervise);
        self.supervise.react(happened).await;
        if let Some(ended) = ended.filter(|ended| ended.service == self.server.service) {
            self.ended(ended).await;
        }
    }

    /// An instance has ended, and its machine has heard of it.
    pub(super) async fn ended(&mut self, ended: Ended) {
        let Ended { generation, how, never_came, .. } = ended;
        if never_came {
            // The conversation has never heard of it.
            let why = format!("the new instance {how}");
            self.converse(Input::RestartFailed { why }).await;
        }
        let service = self.supervise.core().service(self.server.service);
        let ending = service.and_then(|service| service.exits().last_ending());
        let superseded = ending == Some(&Ending::Replaced);
        let noted = self.server.exits.get(&generation).map_or(&how, |end| &end.how);
        let how = self.last_words(generation, noted);
        self.server.exits.insert(generation, End { how, superseded });
        // Else its last words come first.
        if !self.server.lane.wires.has(generation) {
            self.gone(generation, None).await;
        }
    }

    /// Why there is no server any more, for whoever still waits for an answer.
    pub(super) fn why_it_ended(&self) -> String {
        let service = self.supervise.core().service(self.server.service);
        match service.and_then(|service| service.rest()) {
            Some(Rest::Failed(Ending::SpawnFailed(failure))) => {
                let hint =
                    failure.hint.as_ref().map_or_else(String::new, |hint| format!(" ({hint})"));
                format!("{}{hint}", failure.message)
            }
            _ => "it has ended, and it is not started again".to_owned(),
        }
    }

    /// Tells the conversation when nothing will come by itself any more.
    async fn note_failure(&mut self) {
        let service = self.supervise.core().service(self.server.service);
        let exit = service.and_then(|service| service.exits().last_exit());
        let exit = exit.map_or_else(String::new, |exit| format!(", it {exit}"));
        let why = match service.and_then(|service| service.rest()) {
            Some(Rest::Failed(Ending::SpawnFailed(_))) if !self.has_run() => self.why_it_ended(),
            Some(Rest::Failed(ending @ Ending::SpawnFailed(_))) => {
                format!("it was given up after repeated failures (last: {ending})")
            }
            Some(Rest::Failed(ending)) => {
                format!("it was given up after repeated failures (last: {ending}{exit})")
            }
            Some(Rest::Finished(ending)) => format!("it has ended for good ({ending}{exit})"),
            _ => return,
        };
        let generation = service.map(|service| service.generation()).unwrap_or_default();
        let why = match self.has_run() {
            true => self.last_words(generation, &why),
            false => why,
        };
        self.converse(Input::Down { why }).await;
    }
}
