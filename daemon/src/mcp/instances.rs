//! Owns what a server knows of its instances: deadlines that they have to meet, and why they are ended.
//! Driven by the events of the supervisor and of the pipes. The end of an instance comes here once, with
//! its exit status, when all of its output was read.

use std::collections::BTreeMap;
use std::time::Duration;

use afresh_core::id::Generation;
use afresh_core::limits::{CLIENT_GONE_WITHIN, HANDSHAKE_MAX};
use afresh_core::mcp::{Input, hint_of};
use afresh_core::service::{Ending, Rest, Service};
use tokio::time::Instant;

use super::server::ServerDriver;
use crate::driver::Driver;
use crate::logs::Logs;
use crate::supervise::{InstanceChange, InstanceEvent};
use crate::wires::InstanceEnd;

/// The instances of one server that are watched.
#[derive(Default)]
pub(super) struct InstanceWatch {
    /// Until when an instance has to do something, and what it means if it does not.
    deadlines: BTreeMap<Generation, (Instant, &'static str)>,
    /// Why instances are ended, where it was our decision.
    condemned: BTreeMap<Generation, String>,
}

impl InstanceWatch {
    pub(super) fn expect(&mut self, generation: Generation, within: Duration, why: &'static str) {
        self.deadlines.insert(generation, (Instant::now() + within, why));
    }

    /// The instance did what was expected of it, or it does not matter any more.
    pub(super) fn settle(&mut self, generation: Generation) {
        self.deadlines.remove(&generation);
    }

    /// The next deadline.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.values().map(|(at, _)| *at).min()
    }

    /// Takes the instances whose deadline has passed.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<(Generation, &'static str)> {
        let late = self.deadlines.extract_if(.., |_, (at, _)| *at <= now);
        late.map(|(generation, (_, why))| (generation, why)).collect()
    }

    /// Clients that wait for the instance hear why it ends, and not only that it was ended.
    pub(super) fn condemn(&mut self, generation: Generation, why: &str) {
        self.condemned.insert(generation, format!("was ended: {why}"));
    }
}

impl ServerDriver<'_> {
    /// Follows a step in the life of an instance.
    pub(super) async fn follow(&mut self, event: InstanceEvent) {
        let generation = event.generation;
        match event.change {
            InstanceChange::Attached(pipes) => self.server.lane.wires.welcome(*pipes),
            InstanceChange::Opened(pid) => {
                let why = "it did not answer the handshake in time";
                self.server.instances.expect(generation, HANDSHAKE_MAX, why);
                self.server.lane.wires.begin(generation);
                self.input(Input::Started { generation, pid }).await;
            }
            InstanceChange::Condemned(why) => self.server.instances.condemn(generation, &why),
            InstanceChange::Stopping => {
                self.input(Input::Leaving { generation }).await;
                self.server.instances.settle(generation);
                self.server.lane.wires.end(generation);
            }
            InstanceChange::SpawnFailed { why, is_replacement } => {
                let how = format!("could not be started: {why}");
                if is_replacement {
                    // The conversation has never heard of it.
                    let why = format!("the new instance {how}");
                    self.input(Input::RestartFailed { why }).await;
                }
                self.ended(generation, how).await;
            }
            InstanceChange::Exited(exit) => self.ended(generation, exit.to_string()).await,
        }
    }

    /// A server that closes a pipe and lives on is of no use. Most are simply about to exit, with a code
    /// that matters.
    pub(super) async fn closed_a_pipe(
        &mut self,
        generation: Generation,
        within: Duration,
        why: &'static str,
    ) {
        if !self.server.leaving {
            self.server.instances.expect(generation, within, why);
        }
        self.input(Input::Leaving { generation }).await;
    }

    /// The process of an instance has ended: the pipes hand its end on after its last output.
    async fn ended(&mut self, generation: Generation, how: String) {
        let superseded = self
            .machine()
            .is_some_and(|service| service.exits().last_ending() == Some(&Ending::Replaced));
        let how = self.server.instances.condemned.remove(&generation).unwrap_or(how);
        let end = InstanceEnd { how: self.with_last_lines(generation, &how), superseded };
        if let Some(end) = self.server.lane.wires.process_ended(generation, end) {
            // It had no pipes.
            self.gone(generation, None, end).await;
        }
    }

    /// An instance is gone, and all of its output was read.
    pub(super) async fn gone(
        &mut self,
        generation: Generation,
        read: Option<u64>,
        end: InstanceEnd,
    ) {
        let InstanceEnd { how, superseded } = end;
        self.server.instances.settle(generation);
        self.input(Input::Ended { generation, read, how, superseded }).await;
        if let Some(why) = self.failure() {
            self.input(Input::Down { why }).await;
        }
        if !self.has_run() {
            // The end is looked at again when the client has had its time to ask.
            let why = "it could not be started";
            self.server.instances.expect(generation, CLIENT_GONE_WITHIN, why);
        }
    }

    /// Why there is no server any more, for clients that still wait for an answer.
    pub(super) fn why_it_ended(&self) -> String {
        match self.machine().and_then(Service::rest) {
            Some(Rest::Failed(Ending::SpawnFailed(failure))) => {
                let hint =
                    failure.hint.as_ref().map_or_else(String::new, |hint| format!(" ({hint})"));
                format!("{}{hint}", failure.message)
            }
            _ => "it has ended, and it is not started again".to_owned(),
        }
    }

    /// Why no further instance will come by itself; none where one may.
    fn failure(&self) -> Option<String> {
        let service = self.machine()?;
        let exit =
            service.exits().last_exit().map_or_else(String::new, |exit| format!(", it {exit}"));
        let why = match service.rest()? {
            Rest::Failed(Ending::SpawnFailed(_)) if !self.has_run() => self.why_it_ended(),
            Rest::Failed(ending @ Ending::SpawnFailed(_)) => {
                format!("it was given up after repeated failures (last: {ending})")
            }
            Rest::Failed(ending) => {
                format!("it was given up after repeated failures (last: {ending}{exit})")
            }
            Rest::Finished(ending) => format!("it has ended for good ({ending}{exit})"),
            Rest::NotStarted | Rest::Stopped => return None,
        };
        Some(match self.has_run() {
            true => self.with_last_lines(service.generation(), &why),
            false => why,
        })
    }

    /// A reason with the last lines that an instance wrote to its stderr.
    fn with_last_lines(&self, generation: Generation, how: &str) -> String {
        let logs: Option<&Logs> = self.supervise.services.logs(self.server.service);
        let lines = logs.map(|logs| logs.last_words(|its| its == generation)).unwrap_or_default();
        if lines.is_empty() {
            return format!("{how}; it wrote nothing to stderr");
        }
        let lines = lines.join("\n");
        let hint = hint_of(&lines).map_or_else(String::new, |hint| format!("\n{hint}"));
        format!("{how}; the last lines of its stderr:\n{lines}{hint}")
    }
}
