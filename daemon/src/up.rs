//! `afresh up`: keeps all services of a workspace alive, from one process.

mod fleet;
mod lock;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use afresh_core::audit::past::Past;
use afresh_core::audit::{Level, Record};
use afresh_core::config::TrailSettings;
use afresh_core::control::{Face, ServiceStatus};
use afresh_core::definition::ServiceDefinition;
use afresh_core::limits::{
    LOG_FILE_BYTES_MAX, OUTPUT_FLUSH_MAX, PAST_FILES_MAX, TRAIL_SYNC_WAIT, VIEW_INTERVAL,
};
use afresh_core::service::Input;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use self::fleet::Fleet;
use self::lock::Lock;
pub use self::lock::LockError;
use crate::control::{About, Control, RuntimeFolders};
use crate::definition::Surroundings;
use crate::keep::{self, KeepError, Wish};
use crate::os::{self, Asked, Signals};
use crate::output::{Output, OutputThread};
use crate::process::{MECHANISM, Processes, ignore_in_supervisor};
use crate::store::chain;
use crate::store::history::History;
use crate::store::rotating::RotatingFile;
use crate::store::workspace::{TrailFiles, Workspace};
use crate::supervise::Supervise;

/// What is to be kept alive, and how.
pub struct Up {
    /// All services of the workspace.
    pub services: Vec<ServiceDefinition>,
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
    /// What services get besides their own variables.
    pub environment: Vec<(OsString, OsString)>,
    /// The folder that their paths count from.
    pub base: PathBuf,
    /// Where lines go.
    pub lines: Lines,
    /// Whether names of services in front of lines have colours.
    pub colours: bool,
    /// Told of every change, and at first when all is set up.
    pub show: Show,
    /// Reads the configuration again.
    pub reload: Reload,
}

/// Where lines of afresh and of the services go.
pub enum Lines {
    /// To our own stdout and stderr.
    Plain,
    /// All of them to this one, in whole lines.
    Drawn(Box<dyn Write + Send>),
    /// To a file in the state folder. There is no terminal: SIGHUP means to read the configuration
    /// again.
    File,
}

/// Shows how all services are; says after what time it wants to do so again, if nothing happens.
pub type Show = Box<dyn FnMut(&[ServiceStatus]) -> Option<Duration> + Send>;

/// Reads the configuration again: its services, or what is wrong, as text.
pub type Reload = Box<dyn FnMut() -> Result<Vec<ServiceDefinition>, String> + Send>;

/// Why nothing could be supervised at all.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// Another one is there, or the lock cannot be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// What every face needs could not be set up.
    #[error(transparent)]
    Keep(#[from] KeepError),
}

/// Supervises until somebody wants it to end. Returns the exit code.
pub fn up(mut up: Up) -> Result<i32, UpError> {
    // The folder has to be there for the lock; what is wrong with it is said later, in the log.
    up.workspace.prepare().ok();
    let lock = Lock::take(up.workspace.state())?;
    let code = keep::block_on(run(up))?;
    drop(lock);
    Ok(code)
}

async fn run(mut up: Up) -> Result<i32, KeepError> {
    let signals = Signals::listen().map_err(KeepError::Signals)?;
    ignore_in_supervisor().map_err(KeepError::Signals)?;
    let processes = Processes::start()?;
    let Streams { stdout, stderr, broken, written } = Streams::open(&mut up)?;
    let past = past_of(&TrailFiles::of(&up.workspace, &up.trail).audit);
    let around = Surroundings {
        logger: "afresh.up",
        ..Surroundings::new(&mut up.workspace, &up.trail, stdout, stderr)
    };
    let about = About::new(Face::Up, None, &up.workspace, up.version);
    let mut supervise = Supervise::new(processes, around);
    supervise.note(started(&up));
    let control = Control::start(Some(up.control.clone()), about.clone(), supervise.stderr());
    let mut fleet = Fleet::new(&up, keep::start_logs(&supervise)?);
    if past.was_killed() {
        supervise.log("the afresh before this one was killed; going on from what it recorded");
    }
    fleet.begin(&mut supervise, std::mem::take(&mut up.services), &up.chosen, &past).await;
    let changes = supervise.changes();
    let mut daemon = Daemon {
        supervise,
        fleet,
        control,
        about,
        signals,
        changes,
        show_at: Instant::now(),
        show_again: None,
        stopping_since: None,
        up,
    };
    daemon.drive(broken).await;

    let Daemon { mut supervise, fleet, control, mut signals, up, .. } = daemon;
    supervise.finish().await;
    supervise.note(stopped());
    control.close().await;
    let (around, lingering) = supervise.shutdown().await;
    if let Err(error) = around.trail.close(TRAIL_SYNC_WAIT) {
        around.stderr.log(&chain(&error));
    }
    if !fleet.logs.flush().await {
        around.stderr.log("log: the disk did not take the last lines");
    }
    drop((around, up, fleet));
    let rest = async {
        for mut pumps in lingering {
            while pumps.join_next().await.is_some() {}
        }
        for thread in written {
            thread.await.ok();
        }
    };
    tokio::select! {
        _ = timeout(OUTPUT_FLUSH_MAX, rest) => {}
        _ = signals.next() => {}
    }
    Ok(0)
}

/// What the trail says of the supervisors before; nothing where it cannot be read.
fn past_of(trail: &Path) -> Past {
    let mut past = Past::default();
    if let Ok(history) = History::open_last(trail, PAST_FILES_MAX) {
        history.map_while(Result::ok).for_each(|entry| past.note(&entry.value));
    }
    past
}

/// Where lines go.
struct Streams {
    stdout: Output,
    stderr: Output,
    broken: tokio::sync::oneshot::Receiver<()>,
    /// Resolve when all is written.
    written: Vec<tokio::sync::oneshot::Receiver<()>>,
}

impl Streams {
    fn open(up: &mut Up) -> Result<Self, KeepError> {
        let stream: Option<Box<dyn Write + Send>> = match &mut up.lines {
            Lines::Plain => None,
            Lines::Drawn(stream) => Some(std::mem::replace(stream, Box::new(std::io::sink()))),
            Lines::File => {
                let path = up.workspace.state().join("up.log");
                let file =
                    RotatingFile::open(&path, LOG_FILE_BYTES_MAX).map_err(KeepError::File)?;
                Some(Box::new(file))
            }
        };
        if let Some(stream) = stream {
            let (output, thread) =
                Output::start("output", stream, |_| {}).map_err(KeepError::Output)?;
            let OutputThread { broken, done } = thread;
            return Ok(Self {
                stdout: output.clone(),
                stderr: output,
                broken,
                written: vec![done],
            });
        }
        let (stderr, stderr_thread) = keep::output("stderr", os::stderr, |_| {})?;
        let complain = stderr.clone();
        let (stdout, thread) =
            keep::output("stdout", os::stdout, move |loss: &str| complain.log(loss))?;
        let written = vec![thread.done, stderr_thread.done];
        Ok(Self { stdout, stderr, broken: thread.broken, written })
    }
}

/// The loop of `afresh up`, and all it looks at.
struct Daemon {
    supervise: Supervise,
    fleet: Fleet,
    control: Control,
    about: About,
    signals: Signals,
    changes: watch::Receiver<u64>,
    /// States that changed are shown from then on.
    show_at: Instant,
    /// And those that did not, then.
    show_again: Option<Instant>,
    stopping_since: Option<Instant>,
    up: Up,
}

impl Daemon {
    /// Runs until somebody wants it to end, and all is down.
    async fn drive(&mut self, mut broken: tokio::sync::oneshot::Receiver<()>) {
        let mut stream_works = true;
        self.show();
        while self.stopping_since.is_none() || !self.supervise.is_at_rest() {
            self.fleet.tidy(&mut self.supervise);
            let wish = tokio::select! {
                happened = self.supervise.wait() => {
                    self.supervise.react(happened).await;
                    continue;
                }
                ask = self.control.next() => {
                    self.control.answer(&mut self.supervise, ask).await;
                    continue;
                }
                asked = self.signals.next() => self.wish_of(asked),
                () = due(&mut self.changes, self.show_at, self.show_again) => {
                    self.show();
                    continue;
                }
                _ = &mut broken, if stream_works => {
                    stream_works = false;
                    let is_new = self.stopping_since.is_none();
                    is_new.then_some(Wish::Stop("whoever read our output is gone"))
                }
            };
            self.follow(wish).await;
        }
        self.show();
    }

    fn wish_of(&self, asked: Asked) -> Option<Wish> {
        match asked {
            Asked::Stop("SIGHUP") if matches!(self.up.lines, Lines::File) => Some(Wish::Reload),
            asked => keep::wish_of(asked, self.stopping_since),
        }
    }

    async fn follow(&mut self, wish: Option<Wish>) {
        match wish {
            None => {}
            Some(Wish::Restart(_) | Wish::Reload) if self.stopping_since.is_some() => {
                self.supervise.log("nothing is begun any more: afresh is stopping");
            }
            Some(Wish::Restart(reason)) => self.supervise.input(&Input::Restart { reason }).await,
            Some(Wish::Reload) => self.reload().await,
            Some(Wish::Stop(why)) => {
                self.stopping_since = Some(Instant::now());
                self.supervise.log(&format!("{why}: stopping"));
                self.supervise.shut_down().await;
            }
            Some(Wish::Hurry) => self.supervise.hurry_up().await,
        }
    }

    async fn reload(&mut self) {
        match (self.up.reload)() {
            Ok(services) => self.fleet.apply(&mut self.supervise, services).await,
            Err(why) => {
                self.supervise.log(&format!("the configuration stays as it was:\n{why}"));
            }
        }
    }

    fn show(&mut self) {
        self.changes.borrow_and_update();
        let now = Instant::now();
        self.show_at = now + VIEW_INTERVAL;
        let ids = self.supervise.core().services().map(|(id, _)| id);
        let all: Vec<ServiceStatus> =
            ids.filter_map(|id| self.about.status(&self.supervise, id)).collect();
        self.show_again = (self.up.show)(&all).map(|after| now + after);
    }
}

/// Waits until states are to be shown. Cancel safe.
async fn due(changes: &mut watch::Receiver<u64>, at: Instant, again: Option<Instant>) {
    let changed = async {
        // Whoever changes it lives as long as the loop.
        changes.changed().await.ok();
        changes.mark_changed();
        sleep_until(at).await;
    };
    match again {
        Some(again) => timeout_at(again, changed).await.unwrap_or(()),
        None => changed.await,
    }
}

fn started(up: &Up) -> Record {
    let (version, pid) = (up.version, std::process::id());
    let names: Vec<&str> = up.services.iter().map(|service| service.name.as_str()).collect();
    Record {
        level: Level::Info,
        logger: "afresh.up".to_owned(),
        message: format!(
            "afresh {version} started (pid {pid}, cwd {}), services: {}",
            up.base.display(),
            names.join(", ")
        ),
        event_type: "supervisor_started",
        props: vec![
            ("pid", pid.into()),
            ("version", version.into()),
            ("cwd", up.base.display().to_string().into()),
            ("services", names.into()),
            ("mechanism", MECHANISM.into()),
        ],
    }
}

fn stopped() -> Record {
    let pid = std::process::id();
    Record {
        level: Level::Info,
        logger: "afresh.up".to_owned(),
        message: "afresh ends, all services are down".to_owned(),
        event_type: "supervisor_stopped",
        props: vec![("pid", pid.into()), ("exit_code", 0.into())],
    }
}
