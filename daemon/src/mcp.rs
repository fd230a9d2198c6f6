//! `afresh mcp`: drives the conversation machine over pipes, with one server whose instances come
//! and go below it.
//!
//! One loop owns both machines: the restart machine says when an instance comes, the conversation
//! machine what it is told. Nothing in the loop waits for a peer: lines for the client stand in a
//! short line of their own, and while it is full, no more is read from the server; the same the
//! other way round.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;

use afresh_core::control::Face;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{
    CLIENT_GONE_WITHIN, CLOSED_STDOUT_MAX, HANDSHAKE_MAX, OUTBOX_LINES_MAX, QUEUE_WAIT,
    RETRY_WHEN_WANTED, TALK_LINES_MAX, TRAIL_SYNC_WAIT,
};
use afresh_core::mcp::frame::{Frame, Lines};
use afresh_core::mcp::{Conversation, Effect, Input};
use afresh_core::service::{Ending, Input as ServiceInput, Rest};
use afresh_core::time::Time;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::control::{About, Control};
use crate::definition::{Definition, Surroundings, Talker};
use crate::keep::{self, Keep, KeepError};
use crate::os::{self, Asked, Signals};
use crate::output::Output;
use crate::pipe::{Form, read_stdin};
use crate::process::{Processes, Report, ignore_in_supervisor};
use crate::store::chain;
use crate::supervise::{Happened, Supervise, seed};
use crate::talk::{Word, listen, speak, until_room};

/// Stands in front of an MCP server until the client is gone or the server has ended for good.
/// Returns the exit code.
pub fn mcp(keep: Keep) -> Result<i32, KeepError> {
    keep::block_on(run(keep))
}

async fn run(mut keep: Keep) -> Result<i32, KeepError> {
    let signals = Signals::listen().map_err(KeepError::Signals)?;
    ignore_in_supervisor().map_err(KeepError::Signals)?;
    let processes = Processes::start()?;
    let (stderr, stderr_thread) = keep::output("stderr", false, os::stderr, |_| {})?;
    let (stdout, stdout_thread) = keep::output("stdout", false, os::stdout, {
        let stderr = stderr.clone();
        move |loss: &str| stderr.log(loss)
    })?;
    let (talkers, arrivals) = mpsc::channel(2);
    let around = Surroundings {
        talkers: Some(talkers),
        logger: "afresh.mcp",
        ..keep::surroundings(&mut keep, stdout.clone(), stderr, &mut JoinSet::new())
    };
    let mut supervise = Supervise::new(processes, around);
    supervise.note(keep::started(&keep));
    let service = supervise.add(
        Definition {
            name: keep.name.clone(),
            title: keep.name.clone(),
            command: keep.command.clone(),
            policy: keep.policy.clone(),
            form: Form::Lines(format!("[{}] ", keep.name)),
        },
        seed(),
    );
    let mut front = Front {
        conversation: Conversation::new(QUEUE_WAIT),
        supervise,
        service,
        start: Instant::now(),
        client: Lines::default(),
        outbox: VecDeque::new(),
        instances: BTreeMap::new(),
        tasks: JoinSet::new(),
        deadlines: BTreeMap::new(),
        last_wanted: None,
    };
    front.supervise.input_to(service, ServiceInput::Start).await;
    let client = read_stdin().map_err(KeepError::Output)?;
    let about = About::new(&keep, Face::Mcp);
    let mut control = Control::start(keep.control.take(), about, front.supervise.stderr());
    front.drive(signals, client, arrivals, &stdout, &mut control, stdout_thread.broken).await;
    let Front { supervise, mut tasks, outbox, .. } = front;
    let code = keep::exit_code(supervise.core().services().map(|(_, service)| service));
    supervise.note(keep::stopped(&keep.name, code));
    tasks.shutdown().await;
    control.close().await;
    let written = async {
        for line in outbox {
            stdout.pass(line).await;
        }
        let (around, _) = supervise.shutdown().await;
        if let Err(error) = around.trail.close(TRAIL_SYNC_WAIT) {
            around.stderr.log(&chain(&error));
        }
        drop((around, stdout));
        stdout_thread.done.await.ok();
        stderr_thread.done.await.ok();
    };
    timeout(CLIENT_GONE_WITHIN * 2, pin!(written)).await.ok();
    Ok(code)
}

/// Both machines, and what stands between them and the pipes.
struct Front {
    conversation: Conversation,
    supervise: Supervise,
    service: ServiceId,
    start: Instant,
    client: Lines,
    /// Lines that the client has not taken yet.
    outbox: VecDeque<Vec<u8>>,
    /// Where lines for each instance go.
    instances: BTreeMap<Generation, mpsc::Sender<Vec<u8>>>,
    tasks: JoinSet<()>,
    /// Instances that owe something, until when, and what it means if they do not pay.
    deadlines: BTreeMap<Generation, (Instant, &'static str)>,
    last_wanted: Option<Instant>,
}

impl Front {
    async fn drive(
        &mut self,
        mut signals: Signals,
        mut client: mpsc::Receiver<Vec<u8>>,
        mut arrivals: mpsc::Receiver<Talker>,
        stdout: &Output,
        control: &mut Control,
        mut client_gone: tokio::sync::oneshot::Receiver<()>,
    ) {
        let (words_sender, mut words) = mpsc::channel(TALK_LINES_MAX);
        let mut leaving = false;
        while !self.is_over(leaving) {
            let full = self.full_instance();
            let may_read_client = !leaving && full.is_none();
            let may_read_server = self.outbox.len() < OUTBOX_LINES_MAX;
            let wakeup = self.next_wakeup();
            tokio::select! {
                biased;
                asked = signals.next() => match asked {
                    Asked::Restart(reason) => {
                        let input = ServiceInput::Restart { reason: reason.to_owned() };
                        self.supervise.input_to(self.service, input).await;
                    }
                    Asked::Stop(_) | Asked::Interrupt => self.leave(&mut leaving).await,
                },
                _ = &mut client_gone, if !leaving => self.leave(&mut leaving).await,
                ask = control.next() => control.answer(&mut self.supervise, ask).await,
                place = stdout.reserve(), if !self.outbox.is_empty() => {
                    if let Some(line) = self.outbox.pop_front() {
                        stdout.pass_at(place, line);
                    }
                }
                happened = self.supervise.wait() => self.react(happened).await,
                Some(talker) = arrivals.recv() => self.welcome(talker, &words_sender),
                Some(word) = words.recv(), if may_read_server => self.hear(word).await,
                () = until_room(full.as_ref()), if full.is_some() => {}
                chunk = client.recv(), if may_read_client => match chunk {
                    Some(bytes) => self.hear_client(&bytes).await,
                    None => self.leave(&mut leaving).await,
                },
                () = sleep_until(wakeup.unwrap_or_else(Instant::now)), if wakeup.is_some() => {
                    self.wake().await;
                }
            }
        }
    }

    /// Over when the server is down for good and nobody is left to be told about it.
    fn is_over(&self, leaving: bool) -> bool {
        let service = self.supervise.core().service(self.service);
        match service.and_then(|service| service.rest()) {
            None | Some(Rest::NotStarted) => false,
            // After giving up the connection stays, and every call gets a clear error.
            Some(Rest::Failed(Ending::SpawnFailed(_))) => true,
            Some(Rest::Failed(_)) => leaving,
            Some(Rest::Stopped | Rest::Finished(_)) => true,
        }
    }

    /// The client is gone, or we were told to go: all of it within a second.
    async fn leave(&mut self, leaving: &mut bool) {
        let input = match *leaving {
            true => ServiceInput::HurryUp,
            false => ServiceInput::Shutdown { within: Some(CLIENT_GONE_WITHIN) },
        };
        *leaving = true;
        self.instances.clear();
        self.supervise.input_to(self.service, input).await;
    }

    /// An instance that does not take its lines as fast as they come.
    fn full_instance(&self) -> Option<mpsc::Sender<Vec<u8>>> {
        self.instances.values().find(|lines| lines.capacity() <= TALK_LINES_MAX / 2).cloned()
    }

    fn now(&self) -> Time {
        Time::after_start(self.start.elapsed())
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let conversation = self.conversation.next_wakeup().map(|at| self.start + at.since_start());
        conversation.into_iter().chain(self.deadlines.values().map(|(at, _)| *at)).min()
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
            let input = ServiceInput::HandshakeFailed { generation, why: why.to_owned() };
            self.supervise.input_to(self.service, input).await;
        }
    }

    async fn hear_client(&mut self, bytes: &[u8]) {
        for frame in self.client.push(bytes) {
            match frame {
                Frame::Line(line) => self.converse(Input::Client(line)).await,
                Frame::TooLong { bytes, .. } => {
                    let text =
                        format!("a message of the client's was dropped: {bytes} bytes is too long");
                    self.supervise.log(&text);
                }
            }
        }
    }

    async fn hear(&mut self, word: Word) {
        match word {
            Word::Frame(generation, Frame::Line(line)) => {
                self.converse(Input::Server { generation, line }).await;
            }
            Word::Frame(generation, Frame::TooLong { beginning, .. }) => {
                self.converse(Input::ServerTooLong { generation, beginning }).await;
            }
            Word::End(generation) => {
                // A server that closes its stdout and lives on is of no use. Most are simply about
                // to exit, with a code that matters.
                if self.instances.remove(&generation).is_some() {
                    let until = Instant::now() + CLOSED_STDOUT_MAX;
                    self.deadlines.insert(generation, (until, "it closed its stdout"));
                }
                self.converse(Input::Ended { generation }).await;
            }
        }
    }

    fn welcome(&mut self, talker: Talker, words: &mpsc::Sender<Word>) {
        let Talker { generation, stdin, stdout, gone } = talker;
        let (lines, queue) = mpsc::channel(TALK_LINES_MAX);
        self.instances.insert(generation, lines);
        self.tasks.spawn(speak(stdin, queue));
        self.tasks.spawn(listen(generation, stdout, gone, words.clone()));
        while self.tasks.try_join_next().is_some() {}
    }

    async fn react(&mut self, happened: Happened) {
        let spawned = match &happened {
            Happened::Report(Report::Spawned { generation, .. }) => Some(*generation),
            _ => None,
        };
        let ended = match &happened {
            Happened::Report(
                Report::Exited { generation, .. } | Report::SpawnFailed { generation, .. },
            ) => Some(*generation),
            _ => None,
        };
        self.supervise.react(happened).await;
        if let Some(generation) = spawned {
            let until = Instant::now() + HANDSHAKE_MAX;
            self.deadlines.insert(generation, (until, "it did not answer the handshake in time"));
            self.converse(Input::Started { generation }).await;
        }
        if let Some(generation) = ended {
            self.deadlines.remove(&generation);
            self.instances.remove(&generation);
            self.note_failure().await;
        }
    }

    /// Tells the conversation when nothing will come by itself any more.
    async fn note_failure(&mut self) {
        let service = self.supervise.core().service(self.service);
        if let Some(Rest::Failed(ending)) = service.and_then(|service| service.rest()) {
            let exit = service.and_then(|service| service.last_exit());
            let exit = exit.map_or_else(String::new, |exit| format!(", it {exit}"));
            let why = format!("it was given up after repeated failures (last: {ending}{exit})");
            self.converse(Input::Down { why }).await;
        }
    }

    /// Hands an input to the conversation, and does what it says.
    async fn converse(&mut self, input: Input) {
        let effects = self.conversation.handle(self.now(), input);
        for effect in effects {
            self.perform(effect).await;
        }
    }

    async fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::ToClient(mut line) => {
                line.push(b'\n');
                self.outbox.push_back(line);
            }
            Effect::ToServer { generation, mut line } => {
                line.push(b'\n');
                let sent = self.instances.get(&generation).map(|lines| lines.try_send(line));
                if let Some(Err(mpsc::error::TrySendError::Full(_))) = sent {
                    self.supervise.log("the server does not read its input");
                }
            }
            Effect::Serving { generation } => {
                self.deadlines.remove(&generation);
            }
            Effect::HandshakeFailed { generation, why } => {
                let input = ServiceInput::HandshakeFailed { generation, why };
                self.supervise.input_to(self.service, input).await;
            }
            Effect::Replace { .. } => {
                let reason = "the client fell back to the older protocol".to_owned();
                self.supervise.input_to(self.service, ServiceInput::Restart { reason }).await;
            }
            Effect::DiedOfProbe { .. } | Effect::Drained { .. } => {}
            Effect::Wanted => {
                let due = self.last_wanted.is_none_or(|at| at.elapsed() > RETRY_WHEN_WANTED);
                if due {
                    self.last_wanted = Some(Instant::now());
                    self.supervise.input_to(self.service, ServiceInput::Start).await;
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
