//! Owns one MCP server: its conversation, what stands between that and its restart machine, and what is known of its
//! instances: deadlines that they have to meet, and why they are ended. Driven by the loop of `afresh mcp` or of the
//! gateway, which lends it the supervisor as a [`ServerDriver`], and by the events of supervisor and pipes. The end of an
//! instance comes here once, with its exit status, when all of its output was read. Has no loop and no restart machine
//! of its own.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use afresh_core::audit::Actor;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{
    CLIENT_GONE_WITHIN, CLOSED_STDIN_MAX, CLOSED_STDOUT_MAX, HANDSHAKE_MAX, RESTART_CALLERS_MAX,
    RETRY_WHEN_WANTED,
};
use afresh_core::mcp::envelope::Id;
use afresh_core::mcp::{AdminRequest, Changes, Effect, EndCause, Input, Kind, Notice, hint_of};
use afresh_core::service::{Ending, Input as ServiceInput, Rest, Service};
use afresh_core::share::protocol::{HubFrame, line_of};
use afresh_core::time::Stamp;
use tokio::time::Instant;

use super::fast_path::{FastPath, Interruption};
use super::restart_triggers::{RestartTriggers, Trigger};
use crate::clock::now;
use crate::control::About;
use crate::driver::Driver;
use crate::os;
use crate::recent_lines::Logs;
use crate::supervise::{InstanceChange, InstanceEvent, Supervisor};
use crate::wires::{InstanceEnd, WireEvent};

/// The state of one server.
pub(crate) struct Server {
    pub(super) lane: FastPath,
    pub(super) service: ServiceId,
    pub(super) instances: InstanceWatch,
    /// When a client last needed a server that was down.
    last_wanted: Option<Instant>,
    /// The client is gone, or afresh was told to end.
    pub(super) leaving: bool,
    pub(super) triggers: RestartTriggers,
    pub(super) about: About,
    /// When the conversation began.
    pub(super) begun: Stamp,
    /// The clients of the gateway that have called a restart, by the ids of their requests.
    callers: VecDeque<(Id, Actor)>,
}

/// A server together with the supervisor of all services, one of which is its own.
pub(crate) struct ServerDriver<'a> {
    pub(super) server: &'a mut Server,
    pub(super) supervise: &'a mut Supervisor,
}

impl Server {
    pub(crate) fn new(
        lane: FastPath,
        service: ServiceId,
        triggers: RestartTriggers,
        about: About,
    ) -> Self {
        Self {
            lane,
            service,
            instances: InstanceWatch::default(),
            last_wanted: None,
            leaving: false,
            triggers,
            about,
            begun: now(),
            callers: VecDeque::new(),
        }
    }

    /// The request of this id, which is on its way, is a call of a restart by this client.
    pub(crate) fn note_caller(&mut self, id: Id, by: Actor) {
        if self.callers.len() >= RESTART_CALLERS_MAX {
            self.callers.pop_front();
        }
        self.callers.push_back((id, by));
    }

    /// The client that has called a restart by the request of this id: of the gateway, or the only one.
    fn caller(&mut self, id: &Id) -> Actor {
        let noted = self.callers.iter().position(|(its, _)| its == id);
        if let Some((_, by)) = noted.and_then(|index| self.callers.remove(index)) {
            return by;
        }
        let name = self.lane.conversation.client_name();
        Actor::Client { name, token: None, tool: "restart_server" }
    }
}

impl ServerDriver<'_> {
    /// Over when the server is down for good and no client waits for an error about it.
    pub(super) fn is_over(&self) -> bool {
        match self.machine().and_then(Service::rest) {
            None | Some(Rest::NotStarted) => false,
            // After giving up the connection stays, and every call gets a clear error.
            // One that could not be started at all ends it, when the client has heard why.
            Some(Rest::Failed(Ending::SpawnFailed(_))) if !self.has_run() => {
                self.server.leaving
                    || self.server.lane.has_answered
                    || self.server.lane.start.elapsed() > CLIENT_GONE_WITHIN
            }
            Some(Rest::Failed(_)) => self.server.leaving,
            // Its last lines may be answers, or tell that it did not end by its own will.
            Some(Rest::Stopped | Rest::Finished(_)) => {
                self.server.leaving || self.server.lane.wires.are_alone()
            }
        }
    }

    /// The restart machine of the server.
    pub(super) fn machine(&self) -> Option<&Service> {
        self.supervise.fleet.service(self.server.service)
    }

    /// A command that never ran is not there at all; one that did may be back soon.
    pub(super) fn has_run(&self) -> bool {
        self.machine().is_some_and(Service::has_run)
    }

    /// The client is gone, or afresh was told to end: all of it within a second.
    pub(crate) async fn leave(&mut self, by: &Actor) {
        let input = ServiceInput::Shutdown { within: Some(CLIENT_GONE_WITHIN) };
        self.leave_as(input, by).await;
    }

    pub(crate) async fn leave_as(&mut self, input: ServiceInput, by: &Actor) {
        if !self.server.leaving {
            self.supervise.services.note_stop(self.server.service, by);
        }
        let input = if self.server.leaving { ServiceInput::HurryUp } else { input };
        self.server.leaving = true;
        self.server.lane.wires.leave();
        self.tell_service(input).await;
    }

    /// Acts on deadlines that have passed.
    pub(super) async fn wake(&mut self) {
        self.input(Input::Wakeup).await;
        let now = Instant::now();
        self.server.lane.drop_spare(now);
        for (generation, why) in self.server.instances.take_late(now) {
            self.fail(generation, why.to_owned()).await;
        }
    }

    /// Hands an input to the restart machine.
    pub(super) async fn tell_service(&mut self, input: ServiceInput) {
        self.supervise.input_to(self.server.service, input).await;
    }

    pub(super) async fn restart(&mut self, reason: String, by: Actor) {
        self.tell_service(ServiceInput::Restart { reason, by }).await;
    }

    /// Tells the conversation that the current instance is to be replaced.
    fn replacing(&self) -> Option<Input> {
        let snapshot = self.supervise.snapshot(self.server.service)?;
        let is_stopped = snapshot.pid.is_some_and(os::is_stopped);
        Some(Input::Replacing { generation: Generation(snapshot.generation?), is_stopped })
    }

    /// The instance is of no use.
    pub(crate) async fn fail(&mut self, generation: Generation, why: String) {
        self.server.instances.condemn(generation, &why);
        self.tell_service(ServiceInput::HandshakeFailed(generation, why)).await;
    }

    /// Writes a line of the log. Where the client has no pipe, the log is about several servers.
    pub(super) fn log(&self, message: &str) {
        if self.server.lane.wires.have_client() {
            return self.supervise.log(message);
        }
        let name = self.supervise.services.name(self.server.service);
        self.supervise.log(&format!("{name}: {message}"));
    }

    /// Deals with what interrupts the fast path, and passes on what was read together with it.
    pub(super) async fn deal_with(&mut self, interruption: Interruption) {
        let mut next = Some(interruption);
        while let Some(interruption) = next {
            match interruption {
                Interruption::News(news) => self.hear(news).await,
                Interruption::Effect(effect) => {
                    if let Some(input) = self.perform(effect).await {
                        self.input(input).await;
                    }
                }
                // It may have been all that was waited for.
                Interruption::FirstAnswer => {}
            }
            next = self.server.lane.pass();
        }
    }

    async fn hear(&mut self, news: WireEvent) {
        match news {
            WireEvent::ClientGone if self.server.leaving => {}
            WireEvent::ClientGone => self.leave(&Actor::Afresh("client has gone")).await,
            WireEvent::InstanceSilent(generation) => {
                self.closed_a_pipe(generation, CLOSED_STDOUT_MAX, "it closed its stdout").await;
            }
            WireEvent::InstanceDeaf(generation) => {
                self.closed_a_pipe(generation, CLOSED_STDIN_MAX, "it closed its stdin").await;
            }
            WireEvent::InstanceGone { generation, read, end } => {
                self.gone(generation, read, end).await
            }
        }
    }

    /// Acts on a restart trigger.
    pub(super) async fn react(&mut self, trigger: Trigger) {
        match trigger {
            Trigger::Changed(paths) => {
                let snapshot = self.supervise.snapshot(self.server.service);
                let uptime = snapshot.and_then(|snapshot| snapshot.uptime_ms);
                let (reason, warning) = self.server.triggers.note_change(paths, uptime);
                if let Some(warning) = warning {
                    self.log(&warning);
                }
                if let Some(reason) = reason {
                    self.restart(reason, Actor::Afresh("watch")).await;
                }
            }
            Trigger::Delayed(reason) => self.restart(reason, Actor::Afresh("watch")).await,
            Trigger::ProcessorTime(generation, time) => {
                self.input(Input::Worked { generation, time }).await;
            }
        }
    }

    /// Logs what a new instance offers differently.
    fn log_changes(&self, kind: Kind, changes: &Changes) {
        let kind = match kind {
            Kind::Tools => "tools",
            Kind::Prompts => "prompts",
            Kind::Resources => "resources",
            Kind::Templates => "resource templates",
        };
        let Changes { added, removed, changed, .. } = changes;
        let lists = [("added", added), ("removed", removed), ("changed", changed)];
        let shown: Vec<String> = lists
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(word, names)| format!("{word} {}", names.join(", ")))
            .collect();
        self.log(&format!("its {kind} have changed: {}", shown.join("; ")));
    }
}

impl Driver for ServerDriver<'_> {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, input: Input) -> Vec<Effect> {
        self.server.lane.handle(input)
    }

    async fn perform(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::ToClient(line) => self.server.lane.tell_client(line),
            Effect::ToServer { generation, line } => self.server.lane.tell_server(generation, line),
            Effect::Serving(generation) => {
                self.server.instances.settle(generation);
                self.tell_service(ServiceInput::Ready(generation)).await;
            }
            Effect::Drained(generation) => {
                self.tell_service(ServiceInput::Drained(generation)).await;
            }
            Effect::HandshakeFailed { generation, why } => {
                self.fail(generation, format!("it refused the session: {why}")).await;
            }
            Effect::Replace(generation) => {
                let reason = "the client fell back to the older protocol".to_owned();
                self.tell_service(ServiceInput::Replace(generation, reason)).await;
            }
            Effect::DiedOfProbe(generation) => {
                self.tell_service(ServiceInput::DiedOfProbe(generation)).await;
            }
            Effect::Sample(generation) => {
                let snapshot = self.supervise.snapshot(self.server.service);
                let current = snapshot.filter(|its| its.generation == Some(generation.0));
                if let Some(pid) = current.and_then(|its| its.pid) {
                    self.server.triggers.measure_processor_time(generation, pid);
                }
            }
            Effect::Silent { generation, silence } => {
                let trouble =
                    silence.map(|silence| format!("no answer since {}", now().earlier_by(silence)));
                self.log(&match &trouble {
                    Some(trouble) => format!("the server is degraded: {trouble}"),
                    None => "the server answers again".to_owned(),
                });
                self.tell_service(ServiceInput::Silent(generation, trouble)).await;
            }
            Effect::Wedged { generation, why } => {
                self.server.instances.condemn(generation, &why);
                self.tell_service(ServiceInput::Unhealthy(generation, why)).await;
            }
            Effect::AdminRequest { id, request } => {
                let result = match request {
                    // The conversation answers, when the new instance serves.
                    AdminRequest::Restart { reason } => {
                        let (by, replacing) = (self.server.caller(&id), self.replacing());
                        self.restart(reason, by).await;
                        return replacing;
                    }
                    AdminRequest::Verify { since } => self.verify_restart(since),
                    AdminRequest::Status => self.status(),
                    AdminRequest::Logs { lines, filter } => self.logs(lines, filter.as_deref()),
                };
                return Some(Input::AdminResult { id, result });
            }
            Effect::ListChanged { kind, changes } => self.log_changes(kind, &changes),
            // In its place between the answers.
            Effect::Notice(notice) => {
                let frame = match notice {
                    Notice::StateLost(how) => HubFrame::StateLost { how },
                    Notice::RestartFailed(why) => HubFrame::RestartFailed { why },
                };
                self.server.lane.tell_client(line_of(&frame));
            }
            Effect::Wanted => {
                let due = self.server.last_wanted.is_none_or(|at| at.elapsed() > RETRY_WHEN_WANTED);
                if due && self.has_run() {
                    self.server.last_wanted = Some(Instant::now());
                    self.tell_service(ServiceInput::TryOnce).await;
                }
            }
            Effect::Divert { generation, line } => {
                let whose = if generation.is_some() { "the server's stdout" } else { "the client" };
                let text = String::from_utf8_lossy(&line);
                self.log(&format!("from {whose}, not a message: {text}"));
            }
        }
        None
    }
}

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
                self.input(Input::Leaving(generation)).await;
                self.server.instances.settle(generation);
                self.server.lane.wires.end(generation);
            }
            InstanceChange::SpawnFailed { why, is_replacement } => {
                let how = format!("could not be started: {why}");
                if is_replacement {
                    // The conversation has never heard of it.
                    let why = format!("the new instance {how}");
                    self.input(Input::RestartFailed(why)).await;
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
        self.input(Input::Leaving(generation)).await;
    }

    /// The process of an instance has ended: the pipes hand its end on after its last output.
    async fn ended(&mut self, generation: Generation, how: String) {
        let ending = self.machine().and_then(|service| service.exits().last_ending.as_ref());
        let cause = match ending {
            Some(Ending::Replaced) => EndCause::Superseded,
            Some(Ending::Clean) => EndCause::ByItself,
            Some(ending) if ending.is_crash() => EndCause::ByItself,
            _ => EndCause::Other,
        };
        let how = self.server.instances.condemned.remove(&generation).unwrap_or(how);
        let end = InstanceEnd { how: self.with_last_lines(generation, &how), cause };
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
        let InstanceEnd { how, cause } = end;
        self.server.instances.settle(generation);
        let is_owing = self.server.lane.conversation.report().owed > 0 && !self.server.leaving;
        self.input(Input::Ended { generation, read, how, cause }).await;
        if is_owing {
            self.tell_service(ServiceInput::Owing(generation)).await;
        }
        if let Some(why) = self.failure() {
            self.input(Input::Down(why)).await;
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
            service.exits().last_exit.map_or_else(String::new, |exit| format!(", it {exit}"));
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
