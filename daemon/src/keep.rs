//! `afresh keep`: supervises one command, or copies of it, in the foreground.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;

use afresh_core::audit::{EventType, Level, Record};
use afresh_core::config::TrailSettings;
use afresh_core::control::Face;
use afresh_core::definition::{LogLimits, Port, StopSignal};
use afresh_core::health::HealthCheck;
use afresh_core::limits::{HURRY_GAP, OUTPUT_FLUSH_MAX, TRAIL_SYNC_WAIT};
use afresh_core::policy::Policy;
use afresh_core::service::{Ending, Input, Rest, Service};
use afresh_core::text::harmless;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::control::{About, Bound, Control, Listen, ListenError, RuntimeFolders};
use crate::definition::{Definition, Surroundings, Variables};
use crate::error_chain::chain;
use crate::hooks::HookSetup;
use crate::os::{self, Asked, Signals};
use crate::output::{Output, OutputThread};
use crate::pipe::{Form, feed, read_stdin};
use crate::process::{Command, MECHANISM, Processes, StartError, ignore_in_supervisor};
use crate::store::rotating::OpenFileError;
use crate::store::service_log::{self, ServiceLogs};
use crate::store::workspace::Workspace;
use crate::supervise::{Supervise, seed};

/// What is to be kept alive, and how.
#[derive(Debug)]
pub struct Keep {
    /// The name in the trail and in the log.
    pub name: String,
    /// What is run.
    pub command: Command,
    /// When and how it is restarted.
    pub policy: Policy,
    /// How many of it are run at once.
    pub copies: u32,
    /// Where state lives.
    pub workspace: Workspace,
    /// Where the trail is written.
    pub trail: TrailSettings,
    /// afresh's version, for the log.
    pub version: &'static str,
    /// Where the control socket may be; none for none.
    pub control: Option<RuntimeFolders>,
    /// Where the control API listens besides; none for nowhere.
    pub listen: Option<SocketAddr>,
    /// Whether our stdin belongs to the command.
    pub stdin: bool,
    /// When it is ready, and whether it still is well.
    pub health: Option<HealthCheck>,
    /// What it must have for itself, checked before each start.
    pub port: Option<Port>,
    /// How much of its output is kept on disk; none for nothing.
    pub log: Option<LogLimits>,
    /// Who is told of what happens.
    pub hooks: HookSetup,
}

/// Why nothing could be supervised at all.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The event loop could not be made.
    #[error("cannot set up the event loop")]
    Runtime(#[source] io::Error),
    /// A file that was asked for could not be opened.
    #[error("cannot record what happens")]
    File(#[source] OpenFileError),
    /// Clients cannot be served over HTTP.
    #[error("cannot serve clients over HTTP")]
    Front(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// What is to be watched cannot be.
    #[error("cannot watch files")]
    Watch(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The control API could not be served where it was asked for.
    #[error("cannot serve the control API")]
    Listen(#[source] ListenError),
    /// The streams could not be set up.
    #[error("cannot start the output threads")]
    Output(#[source] io::Error),
    /// The process layer could not be set up.
    #[error("cannot set up process supervision")]
    Processes(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The signals could not be caught.
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
}

impl From<StartError> for KeepError {
    fn from(error: StartError) -> Self {
        Self::Processes(Box::new(error))
    }
}

/// Supervises until the command ends for good or we are told to stop. Returns the exit code: the
/// command's own, 128 + N for a signal, 126 or 127 for one that never started, 0 after a stop.
pub fn keep(keep: Keep) -> Result<i32, KeepError> {
    block_on(run(keep))
}

/// Runs a face in an event loop of its own.
pub(crate) fn block_on(
    face: impl Future<Output = Result<i32, KeepError>>,
) -> Result<i32, KeepError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(KeepError::Runtime)?;
    let result = runtime.block_on(face);
    // The stdin thread may sit in a read for ever: nobody waits for it.
    runtime.shutdown_background();
    result
}

async fn run(mut keep: Keep) -> Result<i32, KeepError> {
    let bound = keep.listen.map(Bound::bind).transpose().map_err(KeepError::Listen)?;
    let mut signals = Signals::listen().map_err(KeepError::Signals)?;
    ignore_in_supervisor().map_err(KeepError::Signals)?;
    let processes = Processes::start()?;
    let (stderr, stderr_thread) = output("stderr", os::stderr, |_| {})?;
    let (stdout, stdout_thread) = output("stdout", os::stdout, {
        let stderr = stderr.clone();
        move |loss: &str| stderr.log(loss)
    })?;
    let mut tasks = JoinSet::new();
    let around = surroundings(&mut keep, stdout, stderr, &mut tasks);
    let listen = bound.map(|bound| guarded(bound, &keep.workspace)).transpose()?;
    let mut supervise = Supervise::new(processes, around);
    supervise.note(started(&keep));
    let logs = keep.log.map(|_| start_logs(&supervise)).transpose()?;
    supervise.start_hooks(std::mem::take(&mut keep.hooks));
    for copy in 0..keep.copies {
        supervise.add(definition(&keep, copy, logs.as_ref()), seed().wrapping_add(copy.into()));
    }
    supervise.input(&Input::Start).await;
    let OutputThread { broken, done } = stdout_thread;
    let about = About::of(&keep, Face::Keep);
    let mut control = Control::start(keep.control.take(), listen, about, &supervise);
    let stopped_by_us = drive(&mut supervise, &mut signals, &mut control, broken).await;

    supervise.finish().await;
    supervise.close_hooks().await;
    let code = exit_code(supervise.core().services().map(|(_, service)| service));
    supervise.note(stopped(&keep.name, code));
    control.close().await;
    let (around, lingering) = supervise.shutdown().await;
    tasks.shutdown().await;
    if let Some(logs) = &logs
        && !logs.flush().await
    {
        around.stderr.log("log: the disk did not take the last lines");
    }
    if let Err(error) = around.trail.close(TRAIL_SYNC_WAIT) {
        around.stderr.log(&chain(&error));
    }
    let written = async {
        for mut pumps in lingering {
            while pumps.join_next().await.is_some() {}
        }
        if let Some(logs) = logs {
            logs.flush().await;
        }
        drop(around);
        // Both resolve with the end of their thread.
        done.await.ok();
        stderr_thread.done.await.ok();
    };
    flush(written, &mut signals, stopped_by_us).await;
    Ok(code)
}

/// Waits for our readers as long as they take, as the command itself would; a wish to stop makes it
/// short.
async fn flush(written: impl Future<Output = ()>, signals: &mut Signals, stopped: bool) {
    let mut written = pin!(written);
    let mut waits = !stopped;
    while waits {
        tokio::select! {
            () = &mut written => return,
            // A restart is no wish to stop, and there is nothing left to restart.
            asked = signals.next() => waits = matches!(asked, Asked::Restart(_)),
        }
    }
    // Whoever does not read by now has had the time.
    timeout(OUTPUT_FLUSH_MAX, written).await.ok();
}

/// The port, for those who know the token in the state folder.
pub(crate) fn guarded(bound: Bound, workspace: &Workspace) -> Result<Listen, KeepError> {
    bound.guarded(workspace.state().join("token")).map_err(KeepError::Listen)
}

/// Runs until every service is at rest, and none waits to be started again. Returns whether somebody wished it to stop.
async fn drive(
    supervise: &mut Supervise,
    signals: &mut Signals,
    control: &mut Control,
    mut stdout_broken: oneshot::Receiver<()>,
) -> bool {
    let mut stopping_since: Option<Instant> = None;
    let mut stdout_works = true;
    while !supervise.core().is_at_rest() || (stopping_since.is_none() && control.holds(supervise)) {
        let wish = tokio::select! {
            happened = supervise.wait() => {
                supervise.react(happened).await;
                continue;
            }
            ask = control.next() => {
                control.answer(supervise, ask).await;
                continue;
            }
            asked = signals.next() => wish_of(asked, stopping_since),
            _ = &mut stdout_broken, if stdout_works => {
                // As in `afresh keep … | head`: without us the command would have met the same end.
                stdout_works = false;
                stopping_since.is_none().then_some(Wish::Stop("whoever read our output is gone"))
            }
        };
        match wish {
            // There is no configuration to read again.
            None | Some(Wish::Reload) => {}
            Some(Wish::Restart(_)) if stopping_since.is_some() => {
                supervise.log("no restart: afresh is stopping");
            }
            Some(Wish::Restart(reason)) => supervise.input(&Input::Restart { reason }).await,
            Some(Wish::Stop(why)) => {
                stopping_since = Some(Instant::now());
                supervise.log(&format!("{why}: stopping"));
                supervise.input(&Input::Shutdown { within: None }).await;
            }
            Some(Wish::Hurry) => supervise.input(&Input::HurryUp).await,
        }
    }
    stopping_since.is_some()
}

/// What somebody wants of a supervisor that runs.
pub(crate) enum Wish {
    Restart(String),
    /// To read the configuration again.
    Reload,
    Stop(&'static str),
    Hurry,
}

/// What a signal wants. Only a person who presses Ctrl+C again, after a moment, wants it now: many
/// others send several signals for one stop.
pub(crate) fn wish_of(asked: Asked, stopping_since: Option<Instant>) -> Option<Wish> {
    match (asked, stopping_since) {
        (Asked::Restart(reason), _) => Some(Wish::Restart(reason.to_owned())),
        (Asked::Stop(name), None) => Some(Wish::Stop(name)),
        (Asked::Interrupt, None) => Some(Wish::Stop("interrupted")),
        (Asked::Interrupt, Some(since)) if since.elapsed() > HURRY_GAP => Some(Wish::Hurry),
        (Asked::Interrupt | Asked::Stop(_), Some(_)) => None,
    }
}

pub(crate) fn output(
    name: &str,
    stream: impl FnOnce() -> io::Result<File>,
    complain: impl Fn(&str) + Send + 'static,
) -> Result<(Output, OutputThread), KeepError> {
    let started = stream().and_then(|stream| Output::start(name, stream, complain));
    started.map_err(KeepError::Output)
}

pub(crate) fn surroundings(
    keep: &mut Keep,
    stdout: Output,
    stderr: Output,
    tasks: &mut JoinSet<()>,
) -> Surroundings {
    let stdin = keep.stdin.then(|| {
        let (feeder, instances) = mpsc::channel(2);
        match read_stdin() {
            Ok(chunks) => drop(tasks.spawn(feed(chunks, instances))),
            Err(error) => stderr.log(&format!("cannot read stdin: {error}")),
        }
        feeder
    });
    let around = Surroundings::new(&mut keep.workspace, &keep.trail, stdout, stderr);
    Surroundings { logger: "afresh.keep", stdin, ..around }
}

/// Starts to keep logs on disk; what is wrong with them is said in ours.
pub(crate) fn start_logs(supervise: &Supervise) -> Result<ServiceLogs, KeepError> {
    let stderr = supervise.stderr();
    ServiceLogs::start(move |text| stderr.log(text)).map_err(KeepError::Output)
}

fn definition(keep: &Keep, copy: u32, logs: Option<&ServiceLogs>) -> Definition {
    let mut command = keep.command.clone();
    let (name, form) = match keep.copies {
        1 => (keep.name.clone(), Form::Raw),
        _ => {
            command.env.push(("AFRESH_COPY".into(), copy.to_string().into()));
            let name = format!("{}-{copy}", keep.name);
            let form = Form::Lines(format!("{} | ", harmless(&name).replace('\n', " ")));
            (name, form)
        }
    };
    let log = logs.zip(keep.log).map(|(logs, limits)| {
        logs.open(service_log::file_of(&keep.workspace.logs(), &name), limits)
    });
    Definition {
        title: name.clone(),
        name,
        command,
        variables: Variables::default(),
        policy: keep.policy.clone(),
        stop_signal: StopSignal::default(),
        memory_bytes_max: None,
        form,
        health: keep.health.clone(),
        // Without a check, nobody says when a command is ready.
        ready_at_start: false,
        port: keep.port.clone(),
        log,
    }
}

pub(crate) fn started(keep: &Keep) -> Record {
    let (version, pid) = (keep.version, std::process::id());
    let cwd = std::env::current_dir().unwrap_or_default();
    let command = keep.command.shown();
    Record {
        level: Level::Info,
        logger: "afresh.keep".to_owned(),
        message: format!(
            "afresh {version} started (pid {pid}, cwd {}), keeping `{command}`",
            cwd.display()
        ),
        event_type: EventType::SupervisorStarted,
        props: vec![
            ("pid", pid.into()),
            ("version", version.into()),
            ("cwd", cwd.display().to_string().into()),
            ("service", keep.name.as_str().into()),
            ("command", command.into()),
            ("copies", keep.copies.into()),
            ("mechanism", MECHANISM.into()),
        ],
    }
}

pub(crate) fn stopped(name: &str, code: i32) -> Record {
    let pid = std::process::id();
    Record {
        level: Level::Info,
        logger: "afresh.keep".to_owned(),
        message: format!("afresh exits with code {code}"),
        event_type: EventType::SupervisorStopped,
        props: vec![("pid", pid.into()), ("service", name.into()), ("exit_code", code.into())],
    }
}

/// The first code that is not 0, in the order of the copies.
pub(crate) fn exit_code<'a>(services: impl Iterator<Item = &'a Service>) -> i32 {
    let code = |service: &Service| {
        let last = service.exits().last_exit().map_or(1, |exit| exit.shell_code());
        match service.rest() {
            None | Some(Rest::NotStarted | Rest::Stopped | Rest::Finished(Ending::Clean)) => 0,
            Some(
                Rest::Finished(Ending::SpawnFailed(failure))
                | Rest::Failed(Ending::SpawnFailed(failure)),
            ) => failure.code,
            Some(Rest::Finished(_)) => last,
            // Giving up is a failure, even if each exit was clean.
            Some(Rest::Failed(_)) => last.max(1),
        }
    };
    services.map(code).find(|code| *code != 0).unwrap_or(0)
}
