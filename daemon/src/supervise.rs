//! Owns the supervisor of one afresh process: a composer over the restart machines, the services, their
//! instances, the recorder and the process layer. Driven by the loop of a face (`keep`, `up`, `mcp`,
//! `gateway`): [`Supervisor::wait`] names an input, core decides, and the effects are performed in order.
//! Never decides itself what becomes of a service.

mod adoption;
mod instances;
mod lifecycle;
mod memory_limit;
mod recorder;
mod services;

use std::collections::VecDeque;

use afresh_core::audit::Actor;
use afresh_core::control::HealthStatus;
use afresh_core::fleet::Fleet;
use afresh_core::health::Verdict;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::SETTLE_AFTER;
use afresh_core::service::{Effect, Event, Input, Snapshot, SpawnFailure, State};
use afresh_core::stop_ladder::StopStep;
use afresh_core::time::Time;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::instances::Wiring;
pub(crate) use self::instances::{InstanceChange, InstanceEvent, Instances, StdinError};
use self::memory_limit::{Measurement, MemoryLimits};
pub(crate) use self::recorder::{Recorder, Written};
pub(crate) use self::services::Services;
use crate::clock::{now, sleep_until};
use crate::definition::Surroundings;
use crate::health::{CheckEvent, CheckRequest, Checks, port_holder};
use crate::hooks::HookSetup;
use crate::os::settle_memory;
use crate::process::{InstanceStdio, OutputEnd, Processes, Report};
use crate::run_briefly::{BriefStep, Briefs};

/// The supervisor of all services of one afresh process.
pub(crate) struct Supervisor {
    /// The restart machines.
    pub(crate) fleet: Fleet,
    /// The moment from which they count.
    start: Instant,
    pub(crate) services: Services,
    pub(crate) instances: Instances,
    /// The log, the trail and the events.
    pub(crate) recorder: Recorder,
    processes: Processes,
    checks: Checks,
    memory: MemoryLimits,
    /// Short commands beside the services: of hooks and of health checks.
    briefs: Briefs,
    /// Effects that are to be performed, in this order.
    queue: VecDeque<(ServiceId, Effect)>,
    /// Inputs that came from performing an effect.
    follow_ups: VecDeque<(ServiceId, Input)>,
    /// Resolved by being dropped when the queue is empty.
    waiting: Vec<oneshot::Sender<()>>,
    /// When memory that only the start needed is given back.
    settle_at: Option<Instant>,
}

/// What [`Supervisor::wait`] waits for.
pub(crate) enum Wakeup {
    Report(Report),
    Check(CheckEvent),
    Written(Written),
    Brief(BriefStep),
    Memory(Option<Vec<Measurement>>),
    Settled,
    Timer,
}

impl Supervisor {
    pub(crate) fn new(mut processes: Processes, around: Surroundings) -> Self {
        let Surroundings { stdout, stderr, trail, marker_file, logger, .. } = around;
        let Surroundings { has_talkers, stdin, holds_stdin, .. } = around;
        if has_talkers || stdin.is_some() || holds_stdin {
            processes.hold_stdin();
        }
        let recorder = Recorder::new(stderr.clone(), trail, marker_file, logger);
        let has_conversations = has_talkers;
        let wiring = Wiring { stdout, stderr, has_conversations, stdin, holds_stdin };
        let (start, briefs) = (Instant::now(), Briefs::new());
        Self {
            fleet: Fleet::default(),
            start,
            services: Services::new(has_conversations),
            instances: Instances::new(wiring),
            recorder,
            processes,
            checks: Checks::new(start, briefs.runner()),
            memory: MemoryLimits::default(),
            briefs,
            queue: VecDeque::new(),
            follow_ups: VecDeque::new(),
            waiting: Vec::new(),
            settle_at: Some(start + SETTLE_AFTER),
        }
    }

    /// The time by which the restart machines go.
    pub(crate) fn time(&self) -> Time {
        Time::after_start(self.start.elapsed())
    }

    /// The state of a service, by its machine and its health check.
    pub(crate) fn snapshot(&self, service: ServiceId) -> Option<Snapshot> {
        let mut snapshot = self.fleet.service(service)?.snapshot(self.time());
        if let Some(health) = self.health(service) {
            snapshot.state = snapshot.state.with_health(&health);
        }
        if snapshot.pid.is_none() && !self.fleet.waits_for(service).is_empty() {
            snapshot.state = State::Waiting;
        }
        Some(snapshot)
    }

    /// The health of a service; none where it has no check.
    pub(crate) fn health(&self, service: ServiceId) -> Option<HealthStatus> {
        self.checks.status(service, now())
    }

    /// Writes a line of the log.
    pub(crate) fn log(&self, message: &str) {
        self.recorder.stderr.log(message);
        self.services.remember_line_of_all(message);
    }

    /// Writes to the stdin of the current instance of a service; see [`Instances::write_stdin`].
    pub(crate) fn write_stdin(
        &mut self,
        service: ServiceId,
        bytes: &[u8],
    ) -> Result<u32, StdinError> {
        let current = self.fleet.service(service).and_then(|service| service.current());
        self.instances.write_stdin(service, current.ok_or(StdinError::NotRunning)?, bytes)
    }

    /// From now on these hooks get the events, and no others.
    pub(crate) fn start_hooks(&mut self, setup: HookSetup) {
        self.recorder.start_hooks(setup, self.briefs.runner());
    }

    /// Gives the hooks a bounded time for the events that are left, while the loop runs their commands.
    pub(crate) async fn close_hooks(&mut self) {
        let (mut deliveries, lost) = self.recorder.hooks.close();
        if lost > 0 {
            self.log(&format!("{lost} events were not told to hooks: too many came at once"));
        }
        while !deliveries.is_empty() {
            let wakeup = tokio::select! {
                _ = deliveries.join_next() => continue,
                wakeup = self.wait() => wakeup,
            };
            self.react(wakeup).await;
        }
    }

    /// Hands an input to all services.
    pub(crate) async fn input(&mut self, input: &Input) {
        let effects = self.fleet.handle_all(self.time(), input);
        self.perform(effects).await;
    }

    /// Hands an input to one service.
    pub(crate) async fn input_to(&mut self, service: ServiceId, input: Input) {
        let is_ready = matches!(input, Input::Ready(_));
        let effects = self.fleet.handle(self.time(), service, input);
        self.perform(effects).await;
        if is_ready {
            self.recorder.note_ready(self.time(), &mut self.services, service);
        }
    }

    /// Waits for the next report of a process, or the next moment that a machine waits for. Cancel
    /// safe.
    pub(crate) async fn wait(&mut self) -> Wakeup {
        let timer = self.fleet.next_wakeup().map(|at| self.start + at.since_start());
        tokio::select! {
            written = self.recorder.written() => Wakeup::Written(written),
            report = self.processes.next() => Wakeup::Report(report),
            event = self.checks.next() => Wakeup::Check(event),
            step = self.briefs.next() => Wakeup::Brief(step),
            measured = self.memory.next() => Wakeup::Memory(measured),
            () = sleep_until(self.settle_at) => Wakeup::Settled,
            () = sleep_until(timer) => Wakeup::Timer,
        }
    }

    /// Acts on what `wait` brought.
    pub(crate) async fn react(&mut self, wakeup: Wakeup) {
        match wakeup {
            Wakeup::Settled => {
                self.settle_at = None;
                settle_memory();
            }
            Wakeup::Timer => {
                let effects = self.fleet.wake(self.time());
                self.perform(effects).await;
            }
            Wakeup::Written(written) => self.finish_write(written).await,
            Wakeup::Check(event) => self.react_to_check(event).await,
            Wakeup::Memory(None) => {
                let now = self.time();
                self.memory.measure(&self.services, &self.fleet, now);
            }
            Wakeup::Memory(Some(measured)) => self.judge_memory(measured).await,
            Wakeup::Brief(step) => self.briefs.react(&mut self.processes, step),
            Wakeup::Report(report) if Briefs::are_meant(&report) => self.briefs.hear(report),
            Wakeup::Report(report) => self.react_to_report(report).await,
        }
    }

    async fn react_to_report(&mut self, report: Report) {
        match report {
            Report::Notice(text) => self.recorder.stderr.log(&text),
            Report::Spawned { service, generation, pid } => {
                self.instances.set_pid(service, generation, pid);
                self.input_to(service, Input::Spawned(generation, pid)).await;
            }
            Report::SpawnFailed { service, generation, failure } => {
                let machine = self.fleet.service(service);
                let is_replacement = machine.is_some_and(|machine| machine.awaits(generation));
                let why = failure.message.clone();
                self.end_instance(service, generation).await;
                self.input_to(service, Input::SpawnFailed(generation, failure)).await;
                let change = InstanceChange::SpawnFailed { why, is_replacement };
                self.instances.push_event(service, generation, change);
            }
            Report::Exited { service, generation, exit, remains } => {
                let requests = self.checks.gone(service, generation);
                self.queue_checks(requests);
                self.end_instance(service, generation).await;
                self.recorder.tell_remains(&self.services, service, &remains);
                self.input_to(service, Input::Exited(generation, exit)).await;
                self.instances.push_event(service, generation, InstanceChange::Exited(exit));
            }
        }
    }

    /// Performs all effects that are left, in order.
    pub(crate) async fn finish(&mut self) {
        while self.recorder.writing.is_some() {
            let written = self.recorder.written().await;
            self.finish_write(written).await;
        }
    }

    /// Resolves when all inputs so far are on record and their effects performed.
    pub(crate) fn recorded(&mut self) -> oneshot::Receiver<()> {
        let (sender, recorded) = oneshot::channel();
        if self.recorder.writing.is_some() {
            self.waiting.push(sender);
        }
        recorded
    }

    /// Ends the process layer. Returns the recorder, and the pumps that still have output for our
    /// reader.
    pub(crate) async fn shutdown(mut self) -> (Recorder, Vec<JoinSet<()>>) {
        let left: Vec<_> = self.instances.all.keys().copied().collect();
        for (service, generation) in left {
            self.end_instance(service, generation).await;
        }
        self.processes.shutdown().await;
        let lingering = self.instances.lingering.into_values().map(|its| its.pumps).collect();
        (self.recorder, lingering)
    }

    async fn finish_write(&mut self, written: Written) {
        self.recorder.finish(self.time(), &mut self.services, written);
        self.advance().await;
    }

    async fn perform(&mut self, effects: Vec<(ServiceId, Effect)>) {
        self.queue.extend(effects);
        self.advance().await;
    }

    /// Performs effects up to the first that has to wait for the disk.
    async fn advance(&mut self) {
        while self.recorder.writing.is_none() {
            if let Some((service, effect)) = next_effect(&mut self.queue) {
                self.perform_one(service, effect).await;
            } else if let Some((service, input)) = self.follow_ups.pop_front() {
                let effects = self.fleet.handle(self.time(), service, input);
                self.queue.extend(effects);
            } else {
                self.follow_ups.extend(self.fleet.due());
                if self.follow_ups.is_empty() {
                    self.waiting.clear();
                    return;
                }
            }
        }
    }

    async fn perform_one(&mut self, service: ServiceId, effect: Effect) {
        // The next supervisor has to know which instance is the current one.
        let current = self.fleet.service(service).and_then(|service| service.current());
        self.processes.mark(service, current);
        match effect {
            Effect::Spawn(generation) => {
                if let Err(failure) = self.spawn(service, generation).await {
                    let input = Input::SpawnFailed(generation, failure);
                    self.follow_ups.push_back((service, input));
                }
            }
            Effect::Open(generation) => {
                let (pid, command) = self.instances.process_of(service, generation);
                self.instances.push_event(service, generation, InstanceChange::Opened(pid));
                let definition = self.services.definition(service);
                if definition.is_some_and(|definition| definition.ready_at_start) {
                    self.follow_ups.push_back((service, Input::Ready(generation)));
                }
                let requests = self.checks.started(service, generation, pid, command);
                self.queue_checks(requests);
            }
            Effect::Stop(StopStep::CloseStdin, generation) => {
                self.processes.close_stdin(service, generation);
                self.instances.push_event(service, generation, InstanceChange::Stopping);
                let requests = self.checks.gone(service, generation);
                self.queue_checks(requests);
                self.instances.close_stdin(service, generation).await;
            }
            Effect::Stop(StopStep::Terminate, generation) => {
                let definition = self.services.definition(service);
                let signal = definition.map(|definition| definition.stop_signal);
                self.processes.terminate(service, generation, signal.unwrap_or_default());
            }
            Effect::Stop(StopStep::Kill, generation) => self.processes.kill(service, generation),
            Effect::Stop(StopStep::Abandon, generation) => {
                self.processes.abandon(service, generation)
            }
            Effect::MarkRestart { pid, reason } => {
                self.recorder.mark_restart(&self.services, service, pid, reason);
            }
            Effect::Tell(event) => {
                self.recorder.tell(self.time(), &mut self.services, service, event);
            }
        }
    }

    async fn spawn(
        &mut self,
        service: ServiceId,
        generation: Generation,
    ) -> Result<(), SpawnFailure> {
        let Some(definition) = self.services.definition(service) else { return Ok(()) };
        // An instance of its own may have the port, and is to be replaced.
        if let Some(port) = definition.port.as_ref().filter(|_| !self.instances.has_any_of(service))
            && let Some(failure) = port_holder(port).await
        {
            return Err(failure);
        }
        let command = definition.command_of(generation)?;
        let output = match self.instances.wiring.has_conversations {
            true => OutputEnd::WhenClosed,
            false => OutputEnd::WithTheInstance,
        };
        let stdio = self.processes.spawn(service, generation, &command, output)?;
        let command = definition.health.is_some().then_some(command);
        let InstanceStdio { stdin, stdout, stderr } = stdio;
        let (id, flows) = ((service, generation), [stdout.into(), stderr.into()]);
        self.instances.attach(&mut self.services, id, stdin, flows, command).await;
        Ok(())
    }

    async fn end_instance(&mut self, service: ServiceId, generation: Generation) {
        if self.instances.end(service, generation).await {
            let text = "output of earlier instances is dropped: it is not read";
            self.recorder.log_about(&self.services, service, text);
        }
    }

    async fn react_to_check(&mut self, event: CheckEvent) {
        if let CheckEvent::Probed { probe, verdict: Verdict::Well(latency), .. } = &event
            && let Some(history) = self.services.history_mut(probe.service)
        {
            history.vitals.health_checked(*latency);
        }
        let requests = self.checks.react(event);
        for (service, input) in self.record_checks(requests) {
            self.input_to(service, input).await;
        }
    }

    /// Records the events of health checks; their inputs follow the effects that are left.
    fn queue_checks(&mut self, requests: Vec<CheckRequest>) {
        let inputs = self.record_checks(requests);
        self.follow_ups.extend(inputs);
    }

    /// Records the events of health checks. Returns the inputs for the machines.
    fn record_checks(&mut self, requests: Vec<CheckRequest>) -> Vec<(ServiceId, Input)> {
        let mut inputs = Vec::new();
        for request in requests {
            match request {
                CheckRequest::Input(service, input) => inputs.push((service, input)),
                CheckRequest::Record(service, event) => {
                    let event = Event::Health(event);
                    self.recorder.tell(self.time(), &mut self.services, service, event);
                }
            }
        }
        inputs
    }

    async fn judge_memory(&mut self, measured: Vec<Measurement>) {
        for (service, generation, bytes) in measured {
            let snapshot = self.snapshot(service);
            let is_current = |s: &Snapshot| s.generation == Some(generation.0);
            // A candidate is about to replace it.
            let may_restart = |s: &Snapshot| is_current(s) && s.candidate_pid.is_none();
            let (Some(bytes), true) = (bytes, snapshot.as_ref().is_some_and(may_restart)) else {
                continue;
            };
            let Some(definition) = self.services.definition(service) else { continue };
            let Some(over) = self.memory.judge(service, definition, bytes) else { continue };
            let reason = over.reason;
            let input = match over.is_again {
                true => {
                    let change = InstanceChange::Condemned(reason.clone());
                    self.instances.push_event(service, generation, change);
                    Input::Unhealthy(generation, reason)
                }
                false => Input::Restart { reason, by: Actor::Afresh("memory limit") },
            };
            self.input_to(service, input).await;
        }
    }
}

/// The next effect to perform. To record a fact takes longer than to order a start, so a start goes
/// before facts; not before an announcement, which has to be on disk first.
fn next_effect(queue: &mut VecDeque<(ServiceId, Effect)>) -> Option<(ServiceId, Effect)> {
    let is_fact =
        |effect: &Effect| matches!(effect, Effect::Tell(event) if !event.is_announcement());
    let first = queue.iter().position(|(_, effect)| !is_fact(effect));
    let start = first.filter(|index| matches!(queue[*index].1, Effect::Spawn(_)));
    queue.remove(start.unwrap_or(0))
}
