//! Owns `afresh up`: all services of a workspace, from one process. Called by the command. The loop is in
//! `service_loop.rs`, the services of the configuration are in `configured_services.rs`.

mod configured_services;
mod service_loop;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;

use afresh_core::audit::Record;
use afresh_core::audit::recovery::TrailSummary;
use afresh_core::config::TrailSettings;
use afresh_core::control::{Face, ServiceStatus};
use afresh_core::definition::{OnSupervisorDeath, ServiceDefinition};
use afresh_core::hook::HookDefinition;
use afresh_core::limits::{LOG_FILE_BYTES_MAX, PAST_FILES_MAX};
use afresh_core::policy::Policy;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use self::configured_services::ConfiguredServices;
pub(crate) use self::service_loop::ServiceLoop;
use self::service_loop::{Configuration, StatusView};
use crate::control::{About, Bound, Control, ControlPort, RuntimeFolders};
use crate::definition::Surroundings;
use crate::hooks::HookSetup;
use crate::os;
use crate::output::{Output, OutputThread, SanitizedStream, Sanitizer};
use crate::process::{Entered, Processes};
use crate::runtime::Runtime;
use crate::startup::{self, SetupError};
use crate::store::history::History;
use crate::store::lock::{Lock, LockError, Sole};
use crate::store::rotation::RotatingFile;
use crate::store::workspace::{TrailFiles, Workspace};
use crate::supervise::Supervisor;
use crate::systemd_notify::{Notify, without_notify};

/// The services to keep alive, and their settings.
pub struct Up {
    /// All services of the workspace.
    pub services: Vec<ServiceDefinition>,
    /// The rules of services that have none of their own.
    pub defaults: Policy,
    /// The hooks that get the events.
    pub hooks: HookSetup,
    /// Those that are started, and what they need; none for all that start by themselves.
    pub chosen: Vec<String>,
    /// Where state lives.
    pub workspace: Workspace,
    /// Where the trail is written.
    pub trail: TrailSettings,
    /// afresh's version, for the log.
    pub version: &'static str,
    /// Where the control socket may be.
    pub control: RuntimeFolders,
    /// What becomes of the services when this process is killed.
    pub on_supervisor_death: OnSupervisorDeath,
    /// Where the control API listens besides; none for nowhere.
    pub listen: Option<ControlPort>,
    /// What services get besides their own variables.
    pub environment: Vec<(OsString, OsString)>,
    /// The folder that their paths count from.
    pub base: PathBuf,
    /// Where lines go.
    pub lines: Lines,
    /// Whether names of services in front of lines have colours.
    pub colours: bool,
    /// Gets the states of all services: at first when all is set up, then with every change.
    pub statuses: Option<SyncSender<Vec<ServiceStatus>>>,
    /// Reads the configuration again.
    pub reload: Reload,
}

/// Where lines of afresh and of the services go.
pub enum Lines {
    /// To our own stdout and stderr. Where one is a terminal, what services print is not obeyed there,
    /// but for colours, where they are wanted.
    Plain {
        /// Whether they are.
        wants_colours: bool,
    },
    /// All of them to this one, in whole lines.
    Drawn(Box<dyn Write + Send>),
    /// To a file in the state folder. There is no terminal: SIGHUP means to read the configuration
    /// again.
    File,
}

/// Reads the configuration again; what is wrong with it comes as text.
pub type Reload = Box<dyn FnMut() -> Result<Reloaded, String> + Send>;

/// What a configuration says that was read again.
#[derive(Debug)]
pub struct Reloaded {
    /// All services of the workspace.
    pub services: Vec<ServiceDefinition>,
    /// The hooks that get the events.
    pub hooks: Vec<HookDefinition>,
    /// What people should know.
    pub notes: Vec<String>,
}

/// Why nothing could be supervised at all.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// Another one is there, or the lock cannot be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// What every face needs could not be set up.
    #[error(transparent)]
    Keep(#[from] SetupError),
}

/// Supervises until the user wants it to end. Returns the exit code.
pub fn up(mut up: Up) -> Result<i32, UpError> {
    // The folder has to be there for the lock; what is wrong with it is said later, in the log.
    up.workspace.prepare().ok();
    let lock = Lock::take(&up.workspace.writable_state(), Sole::Up)?;
    let code = startup::block_on(run(up))?;
    drop(lock);
    Ok(code)
}

async fn run(mut up: Up) -> Result<i32, SetupError> {
    let bound = up.listen.take().map(Bound::bind).transpose().map_err(SetupError::Listen)?;
    let signals = startup::signals()?;
    let folder = up.workspace.writable_state().join("run");
    let entered = Processes::enter(&folder, up.on_supervisor_death).await?;
    let Entered { processes, instances, notices } = entered;
    let Streams { stdout, stderr, broken, written } = Streams::open(&mut up)?;
    let audit = TrailFiles::of(&up.workspace, &up.trail).audit;
    // A trail that is not ours to write says nothing of our services.
    let past = match audit.link() {
        Some(_) => TrailSummary::default(),
        None => past_of(audit.path()),
    };
    let around = Surroundings {
        logger: "afresh.up",
        holds_stdin: true,
        ..Surroundings::new(&mut up.workspace, &up.trail, stdout, stderr)
    };
    let about = About::new(Face::Up, None, &up.workspace, up.version);
    let listen = bound.map(Bound::guarded).transpose().map_err(SetupError::Listen)?;
    let mut supervise = Supervisor::new(processes, around);
    supervise.recorder.note(started(&up));
    let control = Control::start(Some(up.control.clone()), listen, about.clone(), &supervise);
    supervise.start_hooks(up.hooks.clone());
    let notify = Notify::new(&up.environment);
    without_notify(&mut up.environment);
    let logs = startup::start_logs(&supervise)?;
    let mut services = ConfiguredServices::new(&up, logs.clone());
    if past.was_killed {
        supervise.log("the afresh before this one was killed; going on from what it recorded");
    }
    notices.iter().for_each(|notice| supervise.log(notice));
    services.begin(&mut supervise, up.services, &past);
    services.adopt(&mut supervise, instances).await;
    services.start(&mut supervise, &up.chosen, &past).await;
    let configuration = Configuration {
        services,
        hooks: up.hooks,
        reload: up.reload,
        has_terminal: !matches!(up.lines, Lines::File),
        notify,
        view: StatusView::new(about, up.statuses, supervise.recorder.changes.subscribe()),
    };
    let runtime = Runtime { supervise, control, signals };
    let mut service_loop = ServiceLoop::new(runtime, Some(configuration));
    service_loop.drive(broken).await;
    service_loop.close(stopped(), Some(logs), JoinSet::new(), written).await;
    Ok(0)
}

/// What the trail says of the supervisors before; nothing where it cannot be read.
fn past_of(trail: &Path) -> TrailSummary {
    let mut past = TrailSummary::default();
    if let Ok(history) = History::open_last(trail, PAST_FILES_MAX) {
        history.map_while(Result::ok).for_each(|entry| past.note(&entry.value));
    }
    past
}

/// Where lines go.
struct Streams {
    stdout: Output,
    stderr: Output,
    broken: oneshot::Receiver<()>,
    /// Resolve when all is written.
    written: Vec<oneshot::Receiver<()>>,
}

impl Streams {
    fn open(up: &mut Up) -> Result<Self, SetupError> {
        let mut wants_colours = false;
        let stream: Option<Box<dyn Write + Send>> = match &mut up.lines {
            Lines::Plain { wants_colours: wanted } => {
                wants_colours = *wanted;
                None
            }
            Lines::Drawn(stream) => Some(std::mem::replace(stream, Box::new(io::sink()))),
            Lines::File => {
                let path = up.workspace.writable_state().join("up.log");
                let file =
                    RotatingFile::open(&path, LOG_FILE_BYTES_MAX).map_err(SetupError::File)?;
                Some(Box::new(file))
            }
        };
        if let Some(stream) = stream {
            let (stdout, thread) = startup::output("output", Ok(stream), |_| {})?;
            let (stderr, OutputThread { broken, done }) = (stdout.clone(), thread);
            return Ok(Self { stdout, stderr, broken, written: vec![done] });
        }
        let tamed = |stream: File| SanitizedStream::new(stream, Sanitizer::lines(wants_colours));
        let (stderr, stderr_thread) = startup::output("stderr", os::stderr().map(tamed), |_| {})?;
        let complain = stderr.clone();
        let complain = move |loss: &str| complain.log(loss);
        let (stdout, thread) = startup::output("stdout", os::stdout().map(tamed), complain)?;
        let written = vec![thread.done, stderr_thread.done];
        Ok(Self { stdout, stderr, broken: thread.broken, written })
    }
}

fn started(up: &Up) -> Record {
    let names: Vec<&str> = up.services.iter().map(|service| service.name.as_str()).collect();
    let what = format!("services: {}", names.join(", "));
    startup::started("afresh.up", up.version, &up.base, &what, vec![("services", names.into())])
}

fn stopped() -> Record {
    startup::stopped("afresh.up", "afresh ends, all services are down", 0, Vec::new())
}
