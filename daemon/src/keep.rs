//! Owns `afresh keep`: one command, or copies of it, in the foreground. Called by the command; the loop is that
//! of `afresh up`, without a configuration.

use std::fs::File;
use std::sync::Arc;

use afresh_core::audit::Record;
use afresh_core::config::TrailSettings;
use afresh_core::control::Face;
use afresh_core::definition::{LogLimits, Port};
use afresh_core::fleet::Fleet;
use afresh_core::health::HealthCheck;
use afresh_core::policy::Policy;
use afresh_core::service::{Ending, Input, Rest, Service};
use afresh_core::text::harmless;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::clock::seed;
use crate::control::{About, Bound, Control, ControlPort, RuntimeFolders};
use crate::definition::{Definition, Surroundings};
use crate::hooks::HookSetup;
use crate::os;
use crate::output::{Output, OutputThread, SanitizedStream, Sanitizer};
use crate::pipe::{OutputForm, feed, read_stdin};
use crate::process::{Command, Processes};
use crate::runtime::Runtime;
use crate::startup::{self, SetupError};
use crate::store::service_log::{self, ServiceLogs};
use crate::store::workspace::Workspace;
use crate::supervise::Supervisor;
use crate::up::ServiceLoop;

/// The command to keep alive, and its settings.
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
    pub listen: Option<ControlPort>,
    /// Whether our stdin belongs to the command.
    pub stdin: bool,
    /// When it is ready, and whether it still is well.
    pub health: Option<HealthCheck>,
    /// What it must have for itself, checked before each start.
    pub port: Option<Port>,
    /// How much of its output is kept on disk; none for nothing.
    pub log: Option<LogLimits>,
    /// The hooks that get the events.
    pub hooks: HookSetup,
}

/// Supervises until the command ends for good or we are told to stop. Returns the exit code: the
/// command's own, 128 + N for a signal, 126 or 127 for one that never started, 0 after a stop.
pub fn keep(keep: Keep) -> Result<i32, SetupError> {
    startup::block_on(run(keep))
}

impl Keep {
    /// The identity of this process for the control API.
    pub(crate) fn about(&self, face: Face) -> About {
        About::new(face, Some(self.name.clone()), &self.workspace, self.version)
    }
}

async fn run(mut keep: Keep) -> Result<i32, SetupError> {
    let bound = keep.listen.take().map(Bound::bind).transpose().map_err(SetupError::Listen)?;
    let signals = startup::signals()?;
    let processes = Processes::start()?;
    // Copies have a line each, and none may move into those of another.
    let sanitizer = || if keep.copies == 1 { Sanitizer::program() } else { Sanitizer::lines(true) };
    let tamed = |stream: File| SanitizedStream::new(stream, sanitizer());
    let (stderr, stderr_thread) = startup::output("stderr", os::stderr().map(tamed), |_| {})?;
    let (stdout, stdout_thread) = startup::output("stdout", os::stdout().map(tamed), {
        let stderr = stderr.clone();
        move |loss: &str| stderr.log(loss)
    })?;
    let mut stdin = JoinSet::new();
    let around = surroundings(&mut keep, stdout, stderr, &mut stdin);
    let listen = bound.map(Bound::guarded).transpose().map_err(SetupError::Listen)?;
    let mut supervise = Supervisor::new(processes, around);
    supervise.recorder.note(started(&keep));
    let logs = keep.log.map(|_| startup::start_logs(&supervise)).transpose()?;
    supervise.start_hooks(std::mem::take(&mut keep.hooks));
    for copy in 0..keep.copies {
        supervise.add(definition(&keep, copy, logs.as_ref()), seed().wrapping_add(copy.into()));
    }
    supervise.input(&Input::Start).await;
    let about = keep.about(Face::Keep);
    let control = Control::start(keep.control.take(), listen, about, &supervise);
    let OutputThread { broken, done } = stdout_thread;
    let mut service_loop = ServiceLoop::new(Runtime { supervise, control, signals }, None);
    service_loop.drive(broken).await;
    let code = exit_code(&service_loop.runtime.supervise.fleet);
    let written = vec![done, stderr_thread.done];
    service_loop.close(stopped(&keep.name, code), logs, stdin, written).await;
    Ok(code)
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

fn definition(keep: &Keep, copy: u32, logs: Option<&Arc<ServiceLogs>>) -> Definition {
    let mut command = keep.command.clone();
    let (name, form) = match keep.copies {
        1 => (keep.name.clone(), OutputForm::Raw),
        _ => {
            command.env.push(("AFRESH_COPY".into(), copy.to_string().into()));
            let name = format!("{}-{copy}", keep.name);
            let form = OutputForm::Lines(format!("{} | ", harmless(&name).replace('\n', " ")));
            (name, form)
        }
    };
    let log = logs.zip(keep.log).map(|(logs, limits)| {
        let folder = keep.workspace.writable_logs();
        logs.open(folder.join(service_log::file_name(&name)), limits)
    });
    Definition {
        title: name.clone(),
        name,
        command,
        policy: keep.policy.clone(),
        form,
        // Without a check, it is not known when a command is ready.
        health: keep.health.clone(),
        port: keep.port.clone(),
        log,
        ..Definition::default()
    }
}

pub(crate) fn started(keep: &Keep) -> Record {
    let command = keep.command.shown();
    let cwd = std::env::current_dir().unwrap_or_default();
    let what = format!("keeping `{command}`");
    let own = vec![
        ("service", keep.name.as_str().into()),
        ("command", command.into()),
        ("copies", keep.copies.into()),
    ];
    startup::started("afresh.keep", keep.version, &cwd, &what, own)
}

pub(crate) fn stopped(name: &str, code: i32) -> Record {
    let message = format!("afresh exits with code {code}");
    startup::stopped("afresh.keep", &message, code, vec![("service", name.into())])
}

/// The first code that is not 0, in the order of the copies.
pub(crate) fn exit_code(fleet: &Fleet) -> i32 {
    let code = |service: &Service| {
        let last = service.exits().last_exit.map_or(1, |exit| exit.shell_code());
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
    fleet.services().map(|(_, service)| code(service)).find(|code| *code != 0).unwrap_or(0)
}
