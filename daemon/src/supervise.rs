//! THE loop: select names an input, core decides, the effects are performed in order.

mod look;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use afresh_core::audit::marker::Marker;
use afresh_core::audit::{Level, Record};
use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{DRAIN_MAX, LINGERING_MAX, TRAIL_SYNC_WAIT};
use afresh_core::service::{Effect, Event, Input, Service};
use afresh_core::supervisor::Supervisor;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

pub(crate) use self::look::Past;
use crate::definition::{Definition, Surroundings, Talker};
use crate::logs::Logs;
use crate::os::PipeWriter;
use crate::output::now;
use crate::pipe::Pumps;
use crate::process::{Processes, Remains, Report, Stdio};
use crate::store::chain;
use crate::store::marker;

/// The supervisor of all services of one afresh process.
pub(crate) struct Supervise {
    core: Supervisor,
    start: Instant,
    services: BTreeMap<ServiceId, Kept>,
    processes: Processes,
    around: Surroundings,
    /// Inputs that came from performing an effect.
    follow_ups: VecDeque<(ServiceId, Input)>,
    /// A request that is on record, and is acknowledged when it is in the marker too.
    unsaid: Option<Event>,
    /// How many services share the room for their last lines.
    sharers: Arc<AtomicUsize>,
    /// Counts what was told.
    changes: watch::Sender<u64>,
}

struct Kept {
    definition: Definition,
    instance: Option<Instance>,
    /// Pumps of instances that are gone, whose last output our reader has not taken yet; the next
    /// instance's wait for them.
    lingering: JoinSet<()>,
    lingering_count: usize,
    past: Past,
}

/// The pumps of one instance.
struct Instance {
    pumps: Pumps,
    /// Held while nobody feeds it.
    _stdin: Option<PipeWriter>,
}

impl Supervise {
    pub(crate) fn new(processes: Processes, around: Surroundings) -> Self {
        Self {
            core: Supervisor::default(),
            start: Instant::now(),
            services: BTreeMap::new(),
            processes,
            around,
            follow_ups: VecDeque::new(),
            unsaid: None,
            sharers: Arc::default(),
            changes: watch::Sender::new(0),
        }
    }

    /// Takes a service in; it is down until it is started.
    pub(crate) fn add(&mut self, definition: Definition, seed: u64) -> ServiceId {
        let id = self.core.add(Service::new(definition.policy.clone(), seed));
        let past = Past::new(Logs::new(&self.sharers));
        let lingering = JoinSet::new();
        let kept = Kept { definition, instance: None, lingering, lingering_count: 0, past };
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
        let effects = self.core.handle(self.now(), service, input);
        self.perform(effects).await;
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
            report = self.processes.next() => Happened::Report(report),
            () = rest => Happened::Wakeup,
        }
    }

    /// Acts on what `wait` brought.
    pub(crate) async fn react(&mut self, happened: Happened) {
        match happened {
            Happened::Wakeup => {
                let effects = self.core.wake(self.now());
                self.perform(effects).await;
            }
            Happened::Report(Report::Notice(text)) => self.around.stderr.log(&text),
            Happened::Report(Report::Spawned { service, generation, pid }) => {
                self.input_to(service, Input::Spawned { generation, pid }).await;
            }
            Happened::Report(Report::SpawnFailed { service, generation, failure }) => {
                self.end_pumps(service).await;
                self.input_to(service, Input::SpawnFailed { generation, failure }).await;
            }
            Happened::Report(Report::Exited { service, generation, exit, remains }) => {
                self.end_pumps(service).await;
                self.tell_remains(service, &remains);
                self.input_to(service, Input::Exited { generation, exit }).await;
            }
        }
    }

    /// The machines, to look at.
    pub(crate) fn core(&self) -> &Supervisor {
        &self.core
    }

    /// Writes a line of the log.
    pub(crate) fn log(&self, message: &str) {
        self.around.stderr.log(message);
        self.services.keys().for_each(|service| self.remember_line(*service, message));
    }

    /// Records something about afresh itself, and logs it.
    pub(crate) fn note(&self, record: Record) {
        self.around.stderr.log(&record.message);
        self.around.trail.append(record);
    }

    /// Ends the process layer. Returns what is around it, and the pumps that still have output for
    /// our reader.
    pub(crate) async fn shutdown(mut self) -> (Surroundings, Vec<JoinSet<()>>) {
        for id in self.services.keys().copied().collect::<Vec<_>>() {
            self.end_pumps(id).await;
        }
        self.processes.shutdown().await;
        let lingering = self.services.into_values().map(|kept| kept.lingering).collect();
        (self.around, lingering)
    }

    async fn perform(&mut self, effects: Vec<(ServiceId, Effect)>) {
        let mut effects = VecDeque::from(effects);
        loop {
            while let Some((service, effect)) = effects.pop_front() {
                self.perform_one(service, effect).await;
            }
            let Some((service, input)) = self.follow_ups.pop_front() else {
                return;
            };
            effects.extend(self.core.handle(self.now(), service, input));
        }
    }

    async fn perform_one(&mut self, service: ServiceId, effect: Effect) {
        match effect {
            Effect::Spawn { generation } => self.spawn(service, generation).await,
            Effect::CloseStdin => self.close_stdin(service).await,
            Effect::Terminate => self.processes.terminate(service),
            Effect::Kill => self.processes.kill(service),
            Effect::Abandon => self.processes.abandon(service),
            Effect::MarkRestart { pid, reason } => self.mark_restart(service, pid, &reason).await,
            Effect::Tell(event) => self.tell(service, event).await,
        }
    }

    async fn spawn(&mut self, service: ServiceId, generation: Generation) {
        let Some(kept) = self.services.get_mut(&service) else {
            return;
        };
        let mut command = kept.definition.command.clone();
        for (name, value) in [
            ("AFRESH_SERVICE", kept.definition.name.clone()),
            ("AFRESH_GENERATION", generation.to_string()),
        ] {
            command.env.push((name.into(), value.into()));
        }
        match self.processes.spawn(service, generation, &command) {
            Ok(Stdio { stdin, stdout, stderr }) => {
                let earlier = std::mem::take(&mut kept.lingering);
                if earlier.is_empty() {
                    kept.lingering_count = 0;
                }
                let [out_tee, err_tee] = kept.past.tees(generation);
                let mut pumped = vec![(stderr, self.around.stderr.clone(), err_tee)];
                let form = &kept.definition.form;
                let (pumps, stdin) = match &self.around.talkers {
                    Some(talkers) => {
                        let pumps = Pumps::start(pumped, form, earlier);
                        let talker = Talker { generation, stdin, stdout, gone: pumps.gone() };
                        // Whoever talks lives as long as the loop.
                        talkers.send(talker).await.ok();
                        (pumps, None)
                    }
                    None => {
                        pumped.push((stdout, self.around.stdout.clone(), out_tee));
                        let stdin = match &self.around.stdin {
                            // The feeder lives as long as the loop.
                            Some(feeder) => {
                                feeder.send(Some(stdin)).await.err().and_then(|lost| lost.0)
                            }
                            None => None,
                        };
                        (Pumps::start(pumped, form, earlier), stdin)
                    }
                };
                kept.instance = Some(Instance { pumps, _stdin: stdin });
            }
            Err(failure) => {
                self.follow_ups.push_back((service, Input::SpawnFailed { generation, failure }));
            }
        }
    }

    async fn close_stdin(&mut self, service: ServiceId) {
        if let Some(feeder) = &self.around.stdin {
            feeder.send(None).await.ok();
        }
        if let Some(instance) = self.services.get_mut(&service).and_then(|k| k.instance.as_mut()) {
            instance._stdin = None;
        }
    }

    /// The instance is gone: takes what is left in its pipes, so that its last words come before
    /// the log of its end.
    async fn end_pumps(&mut self, service: ServiceId) {
        let instance = self.services.get_mut(&service).and_then(|kept| kept.instance.take());
        let Some(mut instance) = instance else { return };
        if timeout(DRAIN_MAX, instance.pumps.drain()).await.is_ok() {
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

    fn tell_remains(&self, service: ServiceId, remains: &Remains) {
        let title = self.title(service);
        if remains.leftovers > 0 {
            let count = match remains.leftovers {
                1 => "a process behind; it is ended".to_owned(),
                count => format!("{count} processes behind; they are ended"),
            };
            self.log_about(service, &format!("{title} left {count}"));
        }
        for (pid, name) in &remains.survivors {
            let text = format!(
                "{title} left a process that cannot be ended: {name} (pid {pid}); end it by hand"
            );
            self.log_about(service, &text);
            self.around.trail.append(Record {
                level: Level::Error,
                logger: self.around.logger.to_owned(),
                message: text,
                event_type: "process_survived",
                props: vec![
                    ("service", self.name(service).into()),
                    ("pid", (*pid).into()),
                    ("name", name.as_str().into()),
                ],
            });
        }
    }

    async fn tell(&mut self, service: ServiceId, event: Event) {
        let record = event.record(&self.title(service), &self.name(service), self.around.logger);
        let message = match &event {
            Event::SpawnFailed(failure) => match &failure.hint {
                Some(hint) => format!("{} (hint: {hint})", record.message),
                None => record.message.clone(),
            },
            _ => record.message.clone(),
        };
        if event.is_announcement() {
            if let Err(error) = self.around.trail.announce(record).await {
                self.around.stderr.log(&chain(&error));
            }
        } else {
            self.around.trail.append(record);
        }
        self.remember(service, &event);
        // Said only once it is on record, and a request only when it is in the marker too.
        if matches!(event, Event::RestartRequested { .. }) {
            self.unsaid = Some(event);
            return;
        }
        self.say(service, &message, event).await;
    }

    async fn say(&self, service: ServiceId, message: &str, event: Event) {
        self.log_about(service, message);
        if let Some(told) = &self.around.told {
            told.send((service, event)).await.ok();
        }
    }

    async fn mark_restart(&mut self, service: ServiceId, pid: Option<u32>, reason: &str) {
        let path = self.around.marker_file.clone();
        let mut mark = Marker::new(now(), pid.unwrap_or_default(), reason);
        mark.service = Some(self.name(service));
        let content = mark.to_json();
        let failure = match timeout(TRAIL_SYNC_WAIT, marker::write_apart(path.clone(), mark)).await
        {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(chain(&error)),
            Err(_) => Some("the disk does not answer".to_owned()),
        };
        let (level, event_type, message) = match &failure {
            None => (Level::Info, "restart_marker_written", "Restart marker written".to_owned()),
            Some(why) => (
                Level::Error,
                "restart_marker_failed",
                format!("the restart marker `{}` could not be written: {why}", path.display()),
            ),
        };
        if failure.is_some() {
            self.around.stderr.log(&message);
        }
        let record = Record {
            level,
            logger: self.around.logger.to_owned(),
            message,
            event_type,
            props: vec![
                ("service", self.name(service).into()),
                ("path", path.display().to_string().into()),
                ("content", content),
            ],
        };
        if let Err(error) = self.around.trail.announce(record).await {
            self.around.stderr.log(&chain(&error));
        }
        if let Some(event) = self.unsaid.take() {
            let title = self.title(service);
            let message = format!("{} for {title}: {reason}", event.message(&title));
            self.say(service, &message, event).await;
        }
    }
}

/// What `wait` brought.
#[derive(Debug)]
pub(crate) enum Happened {
    Report(Report),
    Wakeup,
}

/// A number that differs between two starts, for the jitter.
pub(crate) fn seed() -> u64 {
    let clock = Duration::from_secs_f64(now().unix_seconds()).as_nanos() as u64;
    clock ^ (u64::from(std::process::id()) << 32)
}
