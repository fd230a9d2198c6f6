//! `afresh mcp`: drives the conversation machine over pipes, with one server whose instances come
//! and go below it.
//!
//! One loop owns both machines: the restart machine says when an instance comes, the conversation
//! machine what it is told. The loop itself reads and writes the pipes, by `wires.rs`; it never waits
//! for a peer.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;

use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{
    CLIENT_GONE_WITHIN, CLOSED_STDOUT_MAX, HANDSHAKE_MAX, QUEUE_WAIT, RETRY_WHEN_WANTED,
    SPARE_KEPT, TALK_TURNS_MAX, TRAIL_SYNC_WAIT,
};
use afresh_core::mcp::frame::Frame;
use afresh_core::mcp::{Conversation, Effect, Input};
use afresh_core::service::{Ending, Input as ServiceInput, Rest};
use afresh_core::time::Time;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinSet, unconstrained, yield_now};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::definition::{Definition, Surroundings, Talker};
use crate::keep::{self, Keep, KeepError};
use crate::os::{self, Asked, Signals};
use crate::output::Output;
use crate::pipe::{Form, read_stdin_in_thread};
use crate::process::{Processes, Report, ignore_in_supervisor};
use crate::store::chain;
use crate::supervise::{Happened, Supervise, seed};
use crate::wires::{Heard, Moment, Wires, Writer};

/// Stands in front of an MCP server until the client is gone or the server has ended for good.
/// Returns the exit code.
pub fn mcp(keep: Keep) -> Result<i32, KeepError> {
    keep::block_on(run(keep))
}

async fn run(mut keep: Keep) -> Result<i32, KeepError> {
    let signals = Signals::listen().map_err(KeepError::Signals)?;
    ignore_in_supervisor().map_err(KeepError::Signals)?;
    os::keep_freed_memory();
    let processes = Processes::start()?;
    let (stderr, stderr_thread) = keep::output("stderr", false, os::stderr, |_| {})?;
    let Stdout { writer, abandoned, done } = stdout(&stderr)?;
    let (talkers, arrivals) = mpsc::channel(2);
    let around = Surroundings {
        talkers: Some(talkers),
        logger: "afresh.mcp",
        // Only the conversation writes to our stdout.
        ..keep::surroundings(&mut keep, stderr.clone(), stderr, &mut JoinSet::new())
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
    supervise.input_to(service, ServiceInput::Start).await;
    let reader = match os::own_stdin() {
        Some(reader) => reader,
        None => Box::new(read_stdin_in_thread().map_err(KeepError::Output)?),
    };
    let mut front = Front {
        conversation: Conversation::new(QUEUE_WAIT),
        supervise,
        service,
        start: Instant::now(),
        wires: Wires::new(reader, writer),
        deadlines: BTreeMap::new(),
        last_wanted: None,
        leaving: false,
    };
    front.drive(signals, arrivals, abandoned).await;
    let Front { supervise, mut wires, .. } = front;
    let code = keep::exit_code(supervise.core().services().map(|(_, service)| service));
    supervise.note(keep::stopped(&keep.name, code));
    let written = async {
        wires.flush().await;
        let (around, _) = supervise.shutdown().await;
        if let Err(error) = around.trail.close(TRAIL_SYNC_WAIT) {
            around.stderr.log(&chain(&error));
        }
        drop((around, wires));
        done.await.ok();
        stderr_thread.done.await.ok();
    };
    timeout(CLIENT_GONE_WITHIN * 2, pin!(written)).await.ok();
    Ok(code)
}

/// Where lines for the client go.
struct Stdout {
    writer: Writer,
    /// When nobody reads them any more.
    abandoned: Moment,
    /// When all is written, once the writer is dropped.
    done: oneshot::Receiver<()>,
}

/// Our stdout: written by the loop where it can be, else by a thread.
fn stdout(stderr: &Output) -> Result<Stdout, KeepError> {
    if let Some((writer, abandoned)) = os::own_stdout() {
        let (_, done) = oneshot::channel();
        return Ok(Stdout { writer, abandoned, done });
    }
    let stderr = stderr.clone();
    let complain = move |loss: &str| stderr.log(loss);
    let (output, thread) = keep::output("stdout", false, os::stdout, complain)?;
    let abandoned = Box::pin(async move { thread.broken.await.unwrap_or(()) });
    Ok(Stdout { writer: Box::new(output.into_writer()), abandoned, done: thread.done })
}

/// Both machines, and what stands between them and the pipes.
struct Front {
    conversation: Conversation,
    supervise: Supervise,
    service: ServiceId,
    start: Instant,
    wires: Wires,
    /// Instances that owe something, until when, and what it means if they do not pay.
    deadlines: BTreeMap<Generation, (Instant, &'static str)>,
    last_wanted: Option<Instant>,
    /// The client is gone, or we were told to go.
    leaving: bool,
}

impl Front {
    async fn drive(
        &mut self,
        mut signals: Signals,
        mut arrivals: mpsc::Receiver<Talker>,
        mut abandoned: Moment,
    ) {
        let mut heard = Vec::new();
        let mut turns = 0;
        while !self.is_over() {
            let has_turn = turns < TALK_TURNS_MAX;
            let has_spare = self.wires.has_spare();
            // The wires come first, so that a message does not wait for all the others to be asked;
            // after some turns in a row they come last.
            tokio::select! {
                biased;
                () = talk(&mut self.wires, &mut heard), if has_turn => {
                    turns += 1;
                    for word in heard.drain(..) {
                        self.hear(word).await;
                    }
                    continue;
                }
                asked = signals.next() => match asked {
                    Asked::Restart(reason) => {
                        let input = ServiceInput::Restart { reason: reason.to_owned() };
                        self.supervise.input_to(self.service, input).await;
                    }
                    Asked::Stop(_) | Asked::Interrupt => self.leave().await,
                },
                () = &mut abandoned, if !self.leaving => self.leave().await,
                // Its pipes come before the news that it runs.
                Some(talker) = arrivals.recv() => self.wires.welcome(talker),
                happened = self.supervise.wait() => self.react(happened).await,
                () = next_wakeup(self.start, &self.conversation, &self.deadlines) => {
                    self.wake().await;
                }
                () = sleep(SPARE_KEPT), if has_spare => self.wires.drop_spare(),
                () = yield_now(), if !has_turn => {}
            }
            turns = 0;
        }
    }

    /// Over when the server is down for good and nobody is left to be told about it.
    fn is_over(&self) -> bool {
        let service = self.supervise.core().service(self.service);
        match service.and_then(|service| service.rest()) {
            None | Some(Rest::NotStarted) => false,
            // After giving up the connection stays, and every call gets a clear error.
            Some(Rest::Failed(Ending::SpawnFailed(_))) => true,
            Some(Rest::Failed(_)) => self.leaving,
            Some(Rest::Stopped | Rest::Finished(_)) => true,
        }
    }

    /// The client is gone, or we were told to go: all of it within a second.
    async fn leave(&mut self) {
        let input = match self.leaving {
            true => ServiceInput::HurryUp,
            false => ServiceInput::Shutdown { within: Some(CLIENT_GONE_WITHIN) },
        };
        self.leaving = true;
        self.wires.leave();
        self.supervise.input_to(self.service, input).await;
    }

    fn now(&self) -> Time {
        Time::after_start(self.start.elapsed())
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

    async fn hear(&mut self, word: Heard) {
        match word {
            Heard::Client(Frame::Line(line)) => self.converse(Input::Client(line)).await,
            Heard::Client(Frame::TooLong { beginning, ending, .. }) => {
                self.converse(Input::ClientTooLong { beginning, ending }).await;
            }
            Heard::ClientGone if self.leaving => {}
            Heard::ClientGone => self.leave().await,
            Heard::Instance(generation, Frame::Line(line)) => {
                self.converse(Input::Server { generation, line }).await;
            }
            Heard::Instance(generation, Frame::TooLong { beginning, .. }) => {
                self.converse(Input::ServerTooLong { generation, beginning }).await;
            }
            Heard::InstanceEnded { generation, is_alive } => {
                // A server that closes its stdout and lives on is of no use. Most are simply about
                // to exit, with a code that matters.
                if is_alive && !self.leaving {
                    let until = Instant::now() + CLOSED_STDOUT_MAX;
                    self.deadlines.insert(generation, (until, "it closed its stdout"));
                }
                self.converse(Input::Ended { generation }).await;
                if !is_alive {
                    self.note_failure().await;
                }
            }
        }
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
            self.wires.begin(generation);
            self.converse(Input::Started { generation }).await;
        }
        if let Some(generation) = ended {
            self.deadlines.remove(&generation);
            // Else its last words come first.
            if !self.wires.has(generation) {
                self.note_failure().await;
            }
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
            Effect::ToClient(line) => self.wires.tell_client(line),
            Effect::ToServer { generation, line } => self.wires.tell_instance(generation, line),
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

/// Waits until something comes over the wires. It is not held back in favour of other tasks: it
/// writes first, and who calls it looks at everything else in time.
async fn talk(wires: &mut Wires, heard: &mut Vec<Heard>) {
    unconstrained(poll_fn(|context| wires.poll_heard(context, heard))).await;
}

/// Waits for the next moment that the conversation or an instance's debt gives.
async fn next_wakeup(
    start: Instant,
    conversation: &Conversation,
    deadlines: &BTreeMap<Generation, (Instant, &'static str)>,
) {
    let conversation = conversation.next_wakeup().map(|at| start + at.since_start());
    match conversation.into_iter().chain(deadlines.values().map(|(at, _)| *at)).min() {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
