//! Owns `afresh mcp`: drives the conversation machine over pipes, with one server whose instances come
//! and go below it. Called by the command; ends with the client or the server.
//!
//! One loop owns both machines: the restart machine says when an instance comes, the conversation
//! machine what it is sent. The loop itself reads and writes the pipes, by `wires.rs`; it never waits
//! for a peer.

mod fast_path;
mod gateway_servers;
mod poll;
mod ready_queue;
mod restart_triggers;
mod server;
mod status_and_logs;

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use afresh_core::audit::Actor;
use afresh_core::control::Face;
use afresh_core::definition::HealthSettings;
use afresh_core::launchers::StartedBy;
use afresh_core::limits::{CLIENT_GONE_WITHIN, QUEUE_WAIT, TRAIL_SYNC_WAIT};
use afresh_core::mcp::{AddedTools, Conversation, Input, Settings};
use afresh_core::service::{Ending, Input as ServiceInput};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

pub(crate) use self::fast_path::FastPath;
pub(crate) use self::gateway_servers::{ServerPoll, Servers};
pub(crate) use self::poll::{MessagePath, PipePoll, Polled};
pub(crate) use self::ready_queue::{ReadyFlag, ReadyQueue};
pub(crate) use self::restart_triggers::RestartTriggers;
use self::restart_triggers::Trigger;
pub(crate) use self::server::Server;
use self::server::ServerDriver;
use crate::clock::seed;
use crate::control::Control;
use crate::definition::{Definition, Surroundings, Variables};
use crate::driver::Driver;
use crate::keep::{self, Keep};
use crate::os;
use crate::os::SignalRequest;
use crate::output::{Output, SanitizedStream, Sanitizer};
use crate::pipe::read_stdin_in_thread;
use crate::runtime::{Runtime, RuntimeInput};
use crate::startup::{self, SetupError, StdioStartup};
use crate::store::rotation::rotated;
use crate::stream::{Completion, StreamReader, StreamWriter};
use crate::supervise::Supervisor;
use crate::wires::Wires;

/// Which server is stood in front of, and how.
#[derive(Debug)]
pub struct Mcp {
    /// The server.
    pub keep: Keep,
    /// The tools of afresh beside the server's.
    pub tools: AddedTools,
    /// Whether results of tools say that the server was restarted.
    pub tell_restarts: bool,
    /// Where all traffic is recorded.
    pub trace: Option<PathBuf>,
    /// Where the log goes besides stderr.
    pub log_file: Option<PathBuf>,
    /// Files and folders whose changes restart the server.
    pub watched: Vec<PathBuf>,
    /// How long these must be quiet before a change counts.
    pub watch_debounce: Duration,
    /// When the server counts as sick.
    pub health: HealthSettings,
    /// How this process was started: the end of a launcher is that of the client.
    pub started_by: StartedBy,
}

/// Stands in front of an MCP server until the client is gone or the server has ended for good.
/// Returns the exit code.
pub fn mcp(mcp: Mcp) -> Result<i32, SetupError> {
    startup::block_on(run(mcp))
}

async fn run(mcp: Mcp) -> Result<i32, SetupError> {
    let Mcp { mut keep, tools, tell_restarts, trace, log_file, watched, watch_debounce, .. } = mcp;
    let health = mcp.health;
    let own_files = own_files([&trace, &log_file]);
    let StdioStartup { mut signals, processes, stderr, stderr_thread, trace } =
        StdioStartup::new(log_file, trace)?;
    signals.end_with(os::Launchers::find(mcp.started_by)).map_err(SetupError::Signals)?;
    let base = keep.command.cwd.clone().unwrap_or_default();
    let log = {
        let stderr = stderr.clone();
        move |text: &str| stderr.log(text)
    };
    let triggers = RestartTriggers::new(&watched, &base, watch_debounce, own_files, log)
        .map_err(|error| SetupError::Watch(Box::new(error)))?;
    let Stdout { writer, abandoned, done } = stdout(&stderr)?;
    let around = Surroundings {
        has_talkers: true,
        logger: "afresh.mcp",
        // Only the conversation writes to our stdout.
        ..keep::surroundings(&mut keep, stderr.clone(), stderr, &mut JoinSet::new())
    };
    let mut supervise = Supervisor::new(processes, around);
    supervise.recorder.note(keep::started(&keep));
    let (command, policy) = (keep.command.clone(), keep.policy.clone());
    let (variables, memory) = (Variables::default(), health.memory_bytes_max);
    let definition = Definition::talker(&keep.name, command, variables, policy, memory);
    let service = supervise.add(definition, seed());
    supervise.input_to(service, ServiceInput::Start).await;
    let reader = own_stdin()?;
    let wedge_timeout = health.wedge_timeout;
    let (server, patience) = (keep.name.clone(), QUEUE_WAIT);
    let tell_restarts = tell_restarts.into();
    let settings = Settings { server, patience, tools, tell_restarts, wedge_timeout };
    let about = keep.about(Face::Mcp);
    let poll = PipePoll::start().map_err(SetupError::Runtime)?;
    let lane = FastPath::new(Conversation::new(&settings), Wires::new(reader, writer), trace);
    let server = Server::new(lane, service, triggers, about.clone());
    let control = Control::start(keep.control.take(), None, about, &supervise);
    let runtime = Runtime { supervise, control, signals };
    let mut event_loop = EventLoop { server, runtime, poll };
    event_loop.drive(abandoned).await;
    let EventLoop { server: Server { lane, leaving, triggers, .. }, runtime, .. } = event_loop;
    // A watch holds our stderr, whose end is waited for below.
    drop(triggers);
    let FastPath { mut wires, trace, .. } = lane;
    let Runtime { mut supervise, control, .. } = runtime;
    supervise.finish().await;
    let code = match leaving {
        // A client that hangs up wants no more, in any state of the server.
        true => 0,
        false => keep::exit_code(&supervise.fleet),
    };
    let mut end = keep::stopped(&keep.name, code);
    end.props.push(("by", supervise.services.stopped_by(service, &Ending::Clean).to_json()));
    supervise.recorder.note(end);
    control.close().await;
    let written = async {
        wires.flush().await;
        let (recorder, _) = supervise.shutdown().await;
        recorder.close(TRAIL_SYNC_WAIT);
        drop(wires);
        done.await.ok();
        if let Some(trace) = trace {
            trace.close().await;
        }
        stderr_thread.done.await.ok();
    };
    timeout(CLIENT_GONE_WITHIN * 2, pin!(written)).await.ok();
    Ok(code)
}

/// The files that we write, and what they become when they are full.
fn own_files(files: [&Option<PathBuf>; 2]) -> Vec<PathBuf> {
    let named = |path: &PathBuf| {
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        let path = match (folder, path.file_name()) {
            (Some(folder), Some(name)) => folder.join(name),
            _ => path.clone(),
        };
        [rotated(&path, 1), path]
    };
    files.into_iter().flatten().flat_map(named).collect()
}

/// Our stdin: read by the loop where it can be, else by a thread.
pub(crate) fn own_stdin() -> Result<StreamReader, SetupError> {
    Ok(match os::own_stdin() {
        Some(reader) => reader,
        None => Box::new(read_stdin_in_thread().map_err(SetupError::Output)?),
    })
}

/// Where lines for the client go.
pub(crate) struct Stdout {
    pub(crate) writer: StreamWriter,
    /// Resolves when the client does not read them any more.
    pub(crate) abandoned: Completion,
    /// When all is written, once the writer is dropped.
    pub(crate) done: oneshot::Receiver<()>,
}

/// Our stdout: written by the loop where it can be, else by a thread.
pub(crate) fn stdout(stderr: &Output) -> Result<Stdout, SetupError> {
    if let Some((writer, abandoned)) = os::own_stdout() {
        let (_, done) = oneshot::channel();
        return Ok(Stdout { writer, abandoned, done });
    }
    let stderr = stderr.clone();
    let complain = move |loss: &str| stderr.log(loss);
    let tamed = |stream| SanitizedStream::new(stream, Sanitizer::lines(true));
    let (output, thread) = startup::output("stdout", os::stdout().map(tamed), complain)?;
    let abandoned = Box::pin(async move { thread.broken.await.unwrap_or(()) });
    Ok(Stdout { writer: Box::new(output.into_writer()), abandoned, done: thread.done })
}

/// Both machines, and what stands between them and the pipes.
struct EventLoop {
    server: Server,
    runtime: Runtime,
    poll: PipePoll,
}

impl EventLoop {
    fn driver(&mut self) -> ServerDriver<'_> {
        ServerDriver { server: &mut self.server, supervise: &mut self.runtime.supervise }
    }

    async fn drive(&mut self, mut abandoned: Completion) {
        while !self.driver().is_over() {
            while let Some(event) = self.runtime.supervise.instances.next_event() {
                self.driver().follow(event).await;
            }
            let deadline = self.server.instances.deadline();
            let others = async {
                tokio::select! {
                    biased;
                    () = &mut abandoned, if !self.server.leaving => Other::Abandoned,
                    input = self.runtime.wait() => Other::Runtime(input),
                    trigger = self.server.triggers.next(), if !self.server.leaving => {
                        Other::Trigger(trigger)
                    }
                }
            };
            match self.poll.pass_until(&mut self.server.lane, deadline, others).await {
                Polled::Interruption(interruption) => self.driver().deal_with(interruption).await,
                Polled::Due => self.driver().wake().await,
                Polled::Other(other) => self.react(other).await,
            }
        }
        // A client that is still there is owed an answer.
        if !self.server.leaving {
            let why = self.driver().why_it_ended();
            self.driver().input(Input::Down(why)).await;
        }
    }

    async fn react(&mut self, other: Other) {
        match other {
            Other::Runtime(RuntimeInput::Signal(SignalRequest::Restart(reason))) => {
                self.driver().restart(reason.to_owned(), Actor::Signal(reason)).await;
            }
            Other::Runtime(RuntimeInput::Signal(signal)) => {
                self.driver().leave(&Actor::Signal(signal.name())).await;
            }
            Other::Abandoned => self.driver().leave(&Actor::Afresh("client has gone")).await,
            Other::Runtime(RuntimeInput::Control(ask)) => self.runtime.answer(ask).await,
            Other::Runtime(RuntimeInput::Supervise(wakeup)) => {
                self.runtime.supervise.react(wakeup).await;
            }
            Other::Trigger(trigger) => self.driver().react(trigger).await,
        }
    }
}

/// Inputs of the loop besides messages and deadlines.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, on the stack of the loop")]
enum Other {
    /// The client does not read our stdout any more.
    Abandoned,
    Runtime(RuntimeInput),
    Trigger(Trigger),
}
