//! THE loop: select names an input, core decides, the effects are performed in order.

mod adopt;
mod attach;
mod checks;
mod dependency_order;
mod memory_limit;
mod record;
mod side_commands;
mod status;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use afresh_core::fleet::Fleet;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{DRAIN_MAX, LINGERING_MAX, SETTLE_AFTER};
use afresh_core::service::{Effect, Event, Input, Service};
use afresh_core::supervisor::Supervisor;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

pub(crate) use self::attach::{Becomes, NotTaken, Turn};
use self::memory_limit::{Scales, Weight};
pub(crate) use self::record::Written;
use self::record::{Writing, written};
use self::side_commands::Beside;
pub(crate) use self::side_commands::seed;
pub(crate) use self::status::Past;
use crate::definition::{Definition, Surroundings};
use crate::events::Events;
use crate::health::{Checks, Found};
use crate::logs::Logs;
use crate::os::{PipeWriter, settle_memory};
use crate::pipe::Pumps;
use crate::process::{Command, OutputEnd, Processes, Report, Stdio};
use crate::run_briefly::{BriefStep, Briefs};
use crate::wires::InstancePipes;

/// The supervisor of all services of one afresh process.
pub(crate) struct Supervise {
    core: Supervisor,
    fleet: Fleet,
    start: Instant,
    services: BTreeMap<ServiceId, Kept>,
    processes: Processes,
    around: Surroundings,
    /// Effects that are to be performed, in this order.
    queue: VecDeque<(ServiceId, Effect)>,
    /// What has to be on disk before the next of them. The loop goes on meanwhile: neither messages nor
    /// signals wait for a disk.
    writing: Option<Writing>,
    /// Who waits until all of that is done.
    waiting: Vec<oneshot::Sender<()>>,
    /// Inputs that came from performing an effect.
    follow_ups: VecDeque<(ServiceId, Input)>,
    /// A request that is on record, and is acknowledged when it is in the marker too.
    unsaid: Option<Event>,
    /// What conversations have to be told, where there are any.
    turns: VecDeque<Turn>,
    /// New instances whose pipes a conversation has not taken yet.
    talkers: VecDeque<InstancePipes>,
    /// How many services share the room for their last lines.
    sharers: Arc<AtomicUsize>,
    /// Counts what was told.
    changes: watch::Sender<u64>,
    checks: Checks,
    /// What was told, for the control API.
    events: Events,
    beside: Beside,
    scales: Scales,
    /// When the beginning is over.
    settle_at: Option<Instant>,
    /// All of it has to end soon.
    is_hurried: bool,
    /// Nobody has read the last output of an instance in time.
    is_unread: bool,
}

struct Kept {
    definition: Definition,
    instances: BTreeMap<Generation, Instance>,
    /// Pumps of instances that are gone, whose last output our reader has not taken yet; the next
    /// instance's wait for them.
    lingering: JoinSet<()>,
    lingering_count: usize,
    past: Past,
}

/// The pumps of one instance.
struct Instance {
    /// Known when it runs.
    pid: u32,
    /// What it runs, where somebody checks it: that is done with the same environment.
    command: Option<Command>,
    pumps: Pumps,
    /// Held while nobody else feeds it.
    stdin: Option<PipeWriter>,
}

impl Supervise {
    pub(crate) fn new(mut processes: Processes, around: Surroundings) -> Self {
        if around.has_talkers || around.stdin.is_some() || around.holds_stdin {
            processes.hold_stdin();
        }
        let start = Instant::now();
        let beside = Beside::new();
        Self {
            core: Supervisor::default(),
            fleet: Fleet::default(),
            start,
            services: BTreeMap::new(),
            processes,
            around,
            queue: VecDeque::new(),
            writing: None,
            waiting: Vec::new(),
            is_hurried: false,
            is_unread: false,
            follow_ups: VecDeque::new(),
            unsaid: None,
            turns: VecDeque::new(),
            talkers: VecDeque::new(),
            sharers: Arc::default(),
            changes: watch::Sender::new(0),
            checks: Checks::new(start, beside.briefs.runner()),
            events: Events::new(),
            beside,
            scales: Scales::default(),
            settle_at: Some(start + SETTLE_AFTER),
        }
    }

    /// Takes a service in; it is down until it is started.
    pub(crate) fn add(&mut self, definition: Definition, seed: u64) -> ServiceId {
        let id = self.core.add(Service::new(definition.policy.clone(), seed));
        if let Some(check) = definition.health.clone() {
            self.checks.add(id, check);
        }
        self.scales.expect(definition.memory_bytes_max);
        let kept = Kept {
            definition,
            instances: BTreeMap::new(),
            lingering: JoinSet::new(),
            lingering_count: 0,
            past: Past::new(Logs::new(&self.sharers)),
        };
        self.processes.introduce(id, &kept.definition.name);
        self.services.insert(id, kept);
        id
    }

    /// Hands an input to all services.
    pub(crate) async fn input(&mut self, input: &Input) {
        let effects = self.core.handle_all(self.now(), input);
        self.perform(effects).await;
    }

    /// Hands an input to one service.
    pub(crate) async fn input_to(&mut self, service: ServiceId, input: Input) {
        let is_news = matches!(input, Input::Ready { .. });
        let effects = self.core.handle(self.now(), service, input);
        self.perform(effects).await;
        if is_news {
            self.now_serves(service);
        }
    }

    /// Deals with the next report of a process, or the next moment that the machines wait for.
    /// Cancel safe: it is cancelled only while it waits.
    pub(crate) async fn wait(&mut self) -> Happened {
        let wakeup = self.core.next_wakeup().map(|at| self.start + at.since_start());
        let rest = async {
            match wakeup {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            written = written(&mut self.writing) => Happened::Written(written),
            report = self.processes.next() => Happened::Report(report),
            found = self.checks.next() => Happened::Found(found),
            step = self.beside.briefs.next() => Happened::Brief(step),
            weights = self.scales.next() => Happened::Weighed(weights),
            () = settled(self.settle_at) => Happened::Settled,
            () = rest => Happened::Wakeup,
        }
    }

    /// Acts on what `wait` brought.
    pub(crate) async fn react(&mut self, happened: Happened) {
        match happened {
            Happened::Settled => {
                self.settle_at = None;
                settle_memory();
            }
            Happened::Wakeup => {
                let effects = self.core.wake(self.now());
                self.perform(effects).await;
            }
            Happened::Written(written) => {
                self.written(written);
                self.advance().await;
            }
            Happened::Found(found) => self.checked(found).await,
            Happened::Weighed(weights) => self.weighed(weights).await,
            Happened::Brief(step) => self.beside.briefs.react(&mut self.processes, step),
            Happened::Report(report) if Briefs::are_meant(&report) => {
                self.beside.briefs.hear(report);
            }
            Happened::Report(Report::Notice(text)) => self.around.stderr.log(&text),
            Happened::Report(Report::Spawned { service, generation, pid }) => {
                let kept = self.services.get_mut(&service);
                if let Some(instance) = kept.and_then(|kept| kept.instances.get_mut(&generation)) {
                    instance.pid = pid;
                }
                self.input_to(service, Input::Spawned { generation, pid }).await;
            }
            Happened::Report(Report::SpawnFailed { service, generation, failure }) => {
                self.end_pumps(service, generation).await;
                self.input_to(service, Input::SpawnFailed { generation, failure }).await;
            }
            Happened::Report(Report::Exited { service, generation, exit, remains }) => {
                self.uncheck(service, generation);
                self.end_pumps(service, generation).await;
                self.tell_remains(service, &remains);
                self.input_to(service, Input::Exited { generation, exit }).await;
            }
        }
    }

    /// From now on output of instances is not waited for again and again where nobody reads it.
    pub(crate) fn hurry(&mut self) {
        self.is_hurried = true;
    }

    /// Does what is still to be done, in order.
    pub(crate) async fn finish(&mut self) {
        while let Some(writing) = self.writing.take() {
            self.written(writing.await);
            self.advance().await;
        }
    }

    /// Resolves when all that was asked so far is on record and done.
    pub(crate) fn done(&mut self) -> oneshot::Receiver<()> {
        let (sender, done) = oneshot::channel();
        if self.writing.is_some() {
            self.waiting.push(sender);
        }
        done
    }

    /// Ends the process layer. Returns what is around it, and the pumps that still have output for
    /// our reader.
    pub(crate) async fn shutdown(mut self) -> (Surroundings, Vec<JoinSet<()>>) {
        let of = |(id, kept): (&ServiceId, &Kept)| {
            kept.instances.keys().map(|generation| (*id, *generation)).collect::<Vec<_>>()
        };
        for (id, generation) in self.services.iter().flat_map(of).collect::<Vec<_>>() {
            self.end_pumps(id, generation).await;
        }
        self.processes.shutdown().await;
        let lingering = self.services.into_values().map(|kept| kept.lingering).collect();
        (self.around, lingering)
    }

    async fn perform(&mut self, effects: Vec<(ServiceId, Effect)>) {
        self.queue.extend(effects);
        self.advance().await;
    }

    /// Performs what is next, up to what has to wait for the disk.
    async fn advance(&mut self) {
        while self.writing.is_none() {
            if let Some((service, effect)) = self.next_effect() {
                self.perform_one(service, effect).await;
            } else if let Some((service, input)) = self.follow_ups.pop_front() {
                let effects = self.core.handle(self.now(), service, input);
                self.queue.extend(effects);
            } else if !self.follow_order() {
                // Dropping them is the word.
                self.waiting.clear();
                return;
            }
        }
    }

    async fn perform_one(&mut self, service: ServiceId, effect: Effect) {
        self.mark_current(service);
        match effect {
            Effect::Spawn { generation } => self.spawn(service, generation).await,
            Effect::Open { generation } => {
                let kept = self.services.get(&service);
                let instance = kept.and_then(|kept| kept.instances.get(&generation));
                let pid = instance.map_or(0, |instance| instance.pid);
                self.take_turn(Turn { service, generation, becomes: Becomes::Opened(pid) });
                self.check(service, generation, pid);
            }
            Effect::CloseStdin { generation } => {
                self.processes.close_stdin(service, generation);
                self.close_stdin(service, generation).await;
            }
            Effect::Terminate { generation } => {
                let kept = self.services.get(&service);
                let signal = kept.map(|kept| kept.definition.stop_signal).unwrap_or_default();
                self.processes.terminate(service, generation, signal);
            }
            Effect::Kill { generation } => self.processes.kill(service, generation),
            Effect::Abandon { generation } => self.processes.abandon(service, generation),
            Effect::MarkRestart { pid, reason } => self.mark_restart(service, pid, reason),
            Effect::Tell(event) => self.tell(service, event),
        }
    }

    async fn spawn(&mut self, service: ServiceId, generation: Generation) {
        if let Some(failure) = self.port_taken(service).await {
            self.follow_ups.push_back((service, Input::SpawnFailed { generation, failure }));
            return;
        }
        let Some(kept) = self.services.get_mut(&service) else { return };
        let spawned = kept.definition.command_of(generation).and_then(|command| {
            let output = match self.around.has_talkers {
                true => OutputEnd::WhenClosed,
                false => OutputEnd::WithTheInstance,
            };
            let stdio = self.processes.spawn(service, generation, &command, output)?;
            Ok((stdio, kept.definition.health.is_some().then_some(command)))
        });
        match spawned {
            Ok((Stdio { stdin, stdout, stderr }, command)) => {
                let flows = [stdout.into(), stderr.into()];
                self.attach(service, generation, stdin, flows, command).await;
            }
            Err(failure) => {
                self.follow_ups.push_back((service, Input::SpawnFailed { generation, failure }));
            }
        }
    }

    async fn close_stdin(&mut self, service: ServiceId, generation: Generation) {
        self.take_turn(Turn { service, generation, becomes: Becomes::Leaving });
        self.uncheck(service, generation);
        if let Some(feeder) = &self.around.stdin {
            feeder.send(None).await.ok();
        }
        let kept = self.services.get_mut(&service);
        if let Some(instance) = kept.and_then(|kept| kept.instances.get_mut(&generation)) {
            instance.stdin = None;
        }
    }

    /// The instance is gone: takes what is left in its pipes, so that its last words come before
    /// the log of its end.
    async fn end_pumps(&mut self, service: ServiceId, generation: Generation) {
        let kept = self.services.get_mut(&service);
        let instance = kept.and_then(|kept| kept.instances.remove(&generation));
        let Some(mut instance) = instance else { return };
        // While we hurry, the reader is waited for once for all.
        let wait = if self.is_hurried && self.is_unread { Duration::ZERO } else { DRAIN_MAX };
        self.is_unread = timeout(wait, instance.pumps.drain()).await.is_err();
        if !self.is_unread {
            return;
        }
        // Our own reader is slow: the rest follows when it reads on.
        let Some(kept) = self.services.get_mut(&service) else { return };
        kept.lingering_count += 1;
        if kept.lingering_count > LINGERING_MAX {
            kept.lingering_count = 0;
            instance.pumps.tasks.abort_all();
        }
        let dropped = kept.lingering_count == 0;
        kept.lingering = instance.pumps.tasks;
        if dropped {
            self.log_about(service, "output of earlier instances is dropped: nobody reads it");
        }
    }
}

/// What `wait` brought.
pub(crate) enum Happened {
    Report(Report),
    Found(Found),
    Written(Written),
    Brief(BriefStep),
    Weighed(Option<Vec<Weight>>),
    Settled,
    Wakeup,
}

async fn settled(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
