//! Owns the delivery of events to hooks, in a task of its own: the loop hands an event over and goes on.
//! Driven by [`Hooks::push`]. Never waits in the loop, and starts no process itself.
//!
//! ```text
//!   the loop ──push, never waits──▶ queue ──▶ dispatcher: core's machine ──▶ one task a delivery
//!      ▲                                             └──▶ log and trail           │
//!      └──────────── commands are run by the loop, which owns all processes ◀─────┘
//! ```
//! `hooks`. Never retries.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use afresh_core::audit::redact::excerpt;
use afresh_core::audit::{EventType, Level, Record};
use afresh_core::duration::show_duration;
use afresh_core::hook::{
    About, Deliveries, Delivery, DeliveryFailure, Effect, Happening, HookDefinition, HookEvent,
    HookId, HookTarget, Input, Message, Shape, Stories,
};
use afresh_core::limits::{
    HOOK_ANSWER_BYTES_MAX, HOOK_COMMAND_BYTES_MAX, HOOK_COMMAND_WAIT, HOOK_EVENTS_MAX,
    HOOK_REQUEST_WAIT, HOOKS_CLOSE_WAIT,
};
use afresh_core::service::{Event, Exit};
use afresh_core::time::Time;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

use crate::clock::{now, seed, sleep_until};
use crate::error_chain::chain;
use crate::http::{HttpClient, HttpError, Limits, Request};
use crate::os;
use crate::output::Output;
use crate::process::{Command, Processes};
use crate::run_briefly::{Brief, BriefEnding, BriefOutcome, BriefRunner, Briefs};
use crate::store::trail::Trail;

/// Which hooks there are, and what they are told with.
#[derive(Clone, Debug, Default)]
pub struct HookSetup {
    /// The hooks.
    pub definitions: Vec<HookDefinition>,
    /// The folder that commands start in.
    pub cwd: PathBuf,
    /// The environment of commands, which get the event and the service besides.
    pub env: Vec<(OsString, OsString)>,
    /// A file of root certificates for `https`, in place of the system's: `SSL_CERT_FILE`.
    pub certificates: Option<PathBuf>,
    /// The folder that afresh works for.
    pub workspace: Option<PathBuf>,
    /// afresh's version.
    pub version: &'static str,
}

/// The log and the trail of the deliveries.
pub(crate) struct HookLog {
    pub(crate) stderr: Output,
    pub(crate) trail: Trail,
    pub(crate) logger: &'static str,
}

/// The loop's end of the hooks.
#[derive(Default)]
pub(crate) struct Hooks {
    stories: Stories,
    events: Option<mpsc::Sender<Happening>>,
    /// Events that found no place, which cannot be told any more.
    lost: u64,
    /// The newest, and earlier ones that have not ended yet.
    dispatchers: JoinSet<()>,
}

impl Hooks {
    /// Starts the task that tells these hooks; without hooks there is none. What earlier ones were not
    /// told yet they still are, within the time that an end gives them.
    pub(crate) fn start(&mut self, setup: HookSetup, briefs: BriefRunner, log: HookLog) {
        self.events = None;
        while self.dispatchers.try_join_next().is_some() {}
        if setup.definitions.is_empty() {
            return;
        }
        let (events, inbox) = mpsc::channel(HOOK_EVENTS_MAX);
        let definitions = setup.definitions.clone();
        let dispatcher = Dispatcher {
            deliveries: Deliveries::new(definitions, seed()),
            start: Instant::now(),
            inbox,
            under_way: JoinSet::new(),
            hook_of: BTreeMap::new(),
            sender: Arc::new(DeliverySender::new(setup, briefs)),
            log,
        };
        self.dispatchers.spawn(dispatcher.run());
        self.events = Some(events);
    }

    /// Hands an event of a service over. Never waits.
    pub(crate) fn push(&mut self, service: &str, title: &str, event: &Event) {
        let Some(events) = &self.events else { return };
        for happening in self.stories.hear(now(), service, title, event) {
            if events.try_send(happening).is_err() {
                self.lost += 1;
            }
        }
    }

    /// No more events come. The tasks end when all are delivered, or when their time is over; the loop has
    /// to run commands for them meanwhile. Also returns how many events were lost on the way.
    pub(crate) fn close(&mut self) -> (JoinSet<()>, u64) {
        self.events = None;
        (std::mem::take(&mut self.dispatchers), self.lost)
    }
}

/// What became of one delivery.
type Delivered = (HookId, Result<(), DeliveryFailure>);

/// Owns the machine, and does what it says.
struct Dispatcher {
    deliveries: Deliveries,
    start: Instant,
    inbox: mpsc::Receiver<Happening>,
    /// One for each hook at most.
    under_way: JoinSet<Delivered>,
    hook_of: BTreeMap<Id, HookId>,
    sender: Arc<DeliverySender>,
    log: HookLog,
}

impl Dispatcher {
    async fn run(mut self) {
        let mut ends_at: Option<Instant> = None;
        while ends_at.is_none() || !self.deliveries.is_done() {
            let wakeup = self.deliveries.next_wakeup().map(|at| self.start + at.since_start());
            let input = tokio::select! {
                happening = self.inbox.recv(), if ends_at.is_none() => match happening {
                    Some(happening) => Input::Happened(happening),
                    None => {
                        ends_at = Some(Instant::now() + HOOKS_CLOSE_WAIT);
                        Input::Close
                    }
                },
                Some(done) = self.under_way.join_next_with_id() => match self.outcome(done) {
                    Some(input) => input,
                    None => continue,
                },
                () = sleep_until(wakeup) => Input::Wakeup,
                () = sleep_until(ends_at) => break,
            };
            let now = Time::after_start(self.start.elapsed());
            for effect in self.deliveries.handle(now, input) {
                self.perform(effect);
            }
        }
        self.name_the_rest();
        self.under_way.shutdown().await;
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Deliver(hook, delivery) => {
                let Some(definition) = self.deliveries.definition(hook).cloned() else { return };
                let sender = Arc::clone(&self.sender);
                let task = self
                    .under_way
                    .spawn(async move { (hook, sender.deliver(&definition, &delivery).await) });
                self.hook_of.insert(task.id(), hook);
            }
            Effect::Tell(record) => {
                // That an event is lost follows from what was said before.
                if record.event_type != EventType::HookEventLost {
                    self.log.stderr.log(&record.message);
                }
                self.log.trail.append(Record { logger: self.log.logger.to_owned(), ..record });
            }
        }
    }

    fn outcome(&mut self, done: Result<(Id, Delivered), tokio::task::JoinError>) -> Option<Input> {
        match done {
            Ok((id, (hook, outcome))) => {
                self.hook_of.remove(&id);
                Some(match outcome {
                    Ok(()) => Input::Delivered(hook),
                    Err(failure) => Input::Failed(hook, failure),
                })
            }
            Err(broken) => {
                let hook = self.hook_of.remove(&broken.id())?;
                let why = "afresh itself failed; please report it".to_owned();
                Some(Input::Failed(hook, DeliveryFailure { why, again: false, after: None }))
            }
        }
    }

    /// What could not be told before the end.
    fn name_the_rest(&self) {
        for left in self.deliveries.left() {
            let events = match left.count {
                1 => "an event".to_owned(),
                count => format!("{count} events"),
            };
            let message = format!("hook `{}` is never told of {events}: afresh ends", left.hook);
            self.log.stderr.log(&message);
            self.log.trail.append(Record {
                level: Level::Error,
                logger: self.log.logger.to_owned(),
                message,
                event_type: EventType::HookEventLost,
                props: vec![("hook", left.hook.into()), ("count", left.count.into())],
            });
        }
    }
}

/// Why a hook could not be tried.
#[derive(Debug, thiserror::Error)]
pub enum TryHookError {
    /// There is none of that name.
    #[error("there is no hook `{0}`")]
    Unknown(String),
    /// The event loop could not be made.
    #[error("cannot set up the event loop")]
    Runtime(#[source] std::io::Error),
    /// The process layer could not be set up.
    #[error("cannot set up process supervision")]
    Processes(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It does not work.
    #[error("hook `{hook}` was not told: {why}")]
    Failed {
        /// Its name.
        hook: String,
        /// Why.
        why: String,
    },
}

/// Tells one hook an event that did not happen, once, to see whether it works.
pub fn try_hook(setup: HookSetup, name: &str) -> Result<(), TryHookError> {
    let found = setup.definitions.iter().find(|definition| definition.name == name);
    let definition = found.cloned().ok_or_else(|| TryHookError::Unknown(name.to_owned()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(TryHookError::Runtime)?;
    let outcome = runtime.block_on(async {
        let started = Processes::start();
        let mut processes = started.map_err(|error| TryHookError::Processes(error.into()))?;
        let mut briefs = Briefs::new();
        let sender = DeliverySender::new(setup, briefs.runner());
        let delivery = example(&definition);
        let mut told = std::pin::pin!(sender.deliver(&definition, &delivery));
        let outcome = loop {
            tokio::select! {
                outcome = &mut told => break outcome,
                report = processes.next() => briefs.hear(report),
                step = briefs.next() => briefs.react(&mut processes, step),
            }
        };
        processes.shutdown().await;
        let failed = |failure: DeliveryFailure| TryHookError::Failed {
            hook: name.to_owned(),
            why: failure.why,
        };
        outcome.map_err(failed)
    });
    // A look-up of a name may hang for as long as the system likes.
    runtime.shutdown_background();
    outcome
}

fn example(definition: &HookDefinition) -> Delivery {
    let event = definition.events.first().copied().unwrap_or(HookEvent::Crash);
    let happening = Happening {
        event,
        service: definition.services.first().cloned().unwrap_or_else(|| "example".to_owned()),
        time: now(),
        pid: None,
        exit: None,
        reason: Some("a test".to_owned()),
        restarts: 0,
        message: format!("this is a test of the hook `{}`; nothing happened", definition.name),
    };
    Delivery { happening, count: 1, dropped: 0 }
}

/// What deliveries are made with.
struct DeliverySender {
    about: About,
    client: HttpClient,
    briefs: BriefRunner,
    cwd: PathBuf,
    env: Vec<(OsString, OsString)>,
}

impl DeliverySender {
    fn new(setup: HookSetup, briefs: BriefRunner) -> Self {
        let about = About {
            host: os::host_name(),
            workspace: setup.workspace.map(|path| path.display().to_string()),
            version: setup.version.to_owned(),
        };
        let client = HttpClient::new(setup.certificates);
        Self { about, client, briefs, cwd: setup.cwd, env: setup.env }
    }

    /// Tells it, once.
    async fn deliver(
        &self,
        definition: &HookDefinition,
        delivery: &Delivery,
    ) -> Result<(), DeliveryFailure> {
        match &definition.target {
            HookTarget::Webhook { url, shape, headers } => {
                self.send(url, *shape, headers, delivery).await
            }
            HookTarget::Command(argv) => {
                let argv = argv.iter().map(OsString::from).collect();
                let body = delivery.to_json(&self.about);
                self.run(argv, format!("{body}\n"), delivery).await
            }
            HookTarget::Desktop => {
                let (title, text) = delivery.notification(&self.about);
                match os::notification(&title, &text) {
                    Some(argv) => self.run(argv, String::new(), delivery).await,
                    None => Err(never("there are no desktop notifications on this system yet")),
                }
            }
        }
    }

    async fn send(
        &self,
        url: &str,
        shape: Shape,
        own_headers: &[(String, String)],
        delivery: &Delivery,
    ) -> Result<(), DeliveryFailure> {
        let Message { headers, body } = delivery.message(shape, &self.about);
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value));
        // The user's come last, and win.
        let headers: Vec<(String, String)> = headers.chain(own_headers.iter().cloned()).collect();
        let request = Request { method: "POST", url, headers: &headers, body };
        let limits = Limits { time_max: HOOK_REQUEST_WAIT, body_bytes_max: HOOK_ANSWER_BYTES_MAX };
        match self.client.request(request, limits).await {
            Ok(answer) => DeliveryFailure::of_answer(
                answer.status,
                answer.header("retry-after"),
                &answer.body,
            ),
            Err(error) => {
                let hopeless = matches!(error, HttpError::Url(_) | HttpError::Header(_));
                Err(DeliveryFailure { why: chain(&error), again: !hopeless, after: None })
            }
        }
    }

    async fn run(
        &self,
        argv: Vec<OsString>,
        stdin: String,
        delivery: &Delivery,
    ) -> Result<(), DeliveryFailure> {
        if argv.is_empty() {
            return Err(never("its command is empty"));
        }
        let mut env = self.env.clone();
        let happening = &delivery.happening;
        for (name, value) in
            [("AFRESH_EVENT", happening.event.name()), ("AFRESH_SERVICE", &happening.service)]
        {
            env.retain(|(other, _)| other != name);
            env.push((name.into(), value.into()));
        }
        let brief = Brief {
            command: Command { argv, cwd: Some(self.cwd.clone()), env },
            stdin: stdin.into_bytes(),
            time_max: HOOK_COMMAND_WAIT,
            output_bytes_max: HOOK_COMMAND_BYTES_MAX,
        };
        match self.briefs.run(brief).await {
            Some(outcome) => judge(&outcome),
            None => Err(never("afresh ends")),
        }
    }
}

fn judge(outcome: &BriefOutcome) -> Result<(), DeliveryFailure> {
    let again = |why: String| DeliveryFailure { why, again: true, after: None };
    match &outcome.ending {
        BriefEnding::Exited(Exit::Code(0)) => Ok(()),
        BriefEnding::Exited(exit) => {
            let said = if outcome.stderr.is_empty() { &outcome.stdout } else { &outcome.stderr };
            let said = excerpt(said);
            let said = if said.is_empty() { said } else { format!(": {said}") };
            Err(again(format!("its command {exit}{said}")))
        }
        BriefEnding::SpawnFailed(failure) => Err(DeliveryFailure {
            why: failure.message.clone(),
            again: !failure.permanent,
            after: None,
        }),
        BriefEnding::TimedOut => {
            let limit = show_duration(HOOK_COMMAND_WAIT);
            Err(again(format!("its command has not ended within {limit}, and was ended")))
        }
        BriefEnding::TooMuchOutput => Err(never("its command prints too much, and was ended")),
    }
}

fn never(why: &str) -> DeliveryFailure {
    DeliveryFailure { why: why.to_owned(), again: false, after: None }
}
