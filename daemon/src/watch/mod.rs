//! Watches files for changes of their content. Driven by the loop of a service. Never restarts anything.
//!
//! Costs nothing while nothing happens: the kernel tells of touches, `core::watch` decides when to
//! look, and a look runs on a thread that ends with it. Where the kernel cannot tell, all files are
//! looked at every so often.

mod gitignore;
mod watched_paths;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use afresh_core::duration::show_duration;
use afresh_core::limits::{
    WATCH_DEPTH_MAX, WATCH_FILES_MAX, WATCH_FOLDERS_MAX, WATCH_POLL_INTERVAL,
};
use afresh_core::text::harmless;
use afresh_core::time::Time;
use afresh_core::watch::{Effect, Input, ScanScope, Watcher};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::watched_paths::{ScanOutcome, Scanner, stamp};
use crate::clock::sleep_until;
use crate::os::{FolderAlarm, FolderAlarms, Folders, WatchRefusal, watch_folders};

/// Why a path cannot be watched.
#[derive(Debug, thiserror::Error)]
#[error("`{path}` cannot be watched")]
pub(crate) struct WatchError {
    /// As it was given.
    path: String,
    source: io::Error,
}

/// The files and folders that are watched for one service.
pub(crate) struct Watch {
    machine: Watcher,
    start: Instant,
    /// None where the kernel watches nothing for us.
    alarms: Option<FolderAlarms>,
    look: ScanState,
    /// The time of the next scan without an event.
    poll_at: Option<Instant>,
    cancelled: Arc<AtomicBool>,
    said: Vec<WatchNotice>,
    say: Box<dyn Fn(&str) + Send>,
}

/// The scanner, or the thread that it is on.
enum ScanState {
    Idle(Box<Scanner>),
    Running(JoinHandle<(Box<Scanner>, ScanOutcome)>),
    /// It has come to grief, and that was said.
    Lost,
}

impl Watch {
    /// Begins to watch paths, which count from `base`. They need not exist. Changes are told from now
    /// on; notices about what cannot be watched go to `say`. Must be called in a runtime.
    pub(crate) fn start(
        paths: &[PathBuf],
        base: &Path,
        debounce: Duration,
        say: impl Fn(&str) + Send + 'static,
    ) -> Result<Self, WatchError> {
        Self::start_with(watch_folders(), paths, base, debounce, say)
    }

    fn start_with(
        watched: Result<(FolderAlarms, Folders), WatchRefusal>,
        paths: &[PathBuf],
        base: &Path,
        debounce: Duration,
        say: impl Fn(&str) + Send + 'static,
    ) -> Result<Self, WatchError> {
        let began = stamp(SystemTime::now());
        let named: Vec<PathBuf> =
            paths.iter().map(|path| named_path(path, base)).collect::<Result<_, _>>()?;
        let (alarms, folders, refusal) = match watched {
            Ok((alarms, folders)) => (Some(alarms), Some(folders), None),
            Err(refusal) => (None, None, Some(refusal)),
        };
        let scanner = Scanner::new(named, base.to_owned(), folders, began);
        let mut watch = Self {
            machine: Watcher::new(debounce),
            start: Instant::now(),
            alarms,
            cancelled: scanner.cancelled.clone(),
            look: ScanState::Idle(Box::new(scanner)),
            poll_at: None,
            said: Vec::new(),
            say: Box::new(say),
        };
        let refused = refusal.and_then(|refusal| WatchNotice::refused(base, &refusal));
        watch.tell(refused.into_iter().collect());
        // The first look finds nothing to tell, but for what is written while it lasts.
        watch.handle(Input::Due);
        Ok(watch)
    }

    /// Waits until files have changed, and returns their paths. Cancel safe.
    pub(crate) async fn changed(&mut self) -> Vec<PathBuf> {
        loop {
            let input = self.next().await;
            let changed = self.handle(input);
            if !changed.is_empty() {
                return changed;
            }
        }
    }

    /// The next event. Cancel safe: nothing is taken before it is certain to be returned.
    async fn next(&mut self) -> Input {
        if let ScanState::Running(look) = &mut self.look {
            // What happens meanwhile waits in the kernel.
            let joined = look.await;
            return self.looked(joined.ok());
        }
        let wakeup = self.machine.next_wakeup().map(|at| self.start + at.since_start());
        let alarms = self.alarms.as_ref().filter(|_| matches!(self.look, ScanState::Idle(_)));
        let heard = tokio::select! {
            heard = heard(alarms) => heard,
            () = sleep_until(wakeup) => return Input::Wakeup,
            () = sleep_until(self.poll_at) => {
                self.poll_at = None;
                return Input::Due;
            }
        };
        let ScanState::Idle(scanner) = &mut self.look else { return Input::Wakeup };
        let Some(folders) = &mut scanner.folders else { return Input::Wakeup };
        let Ok(heard) = heard else {
            // The kernel reports nothing any more: all files are polled.
            (self.alarms, scanner.folders) = (None, None);
            return Input::Lost;
        };
        let events: Vec<_> = heard.into_iter().flat_map(|alarm| folders.hear(alarm)).collect();
        let touched: Option<Vec<Vec<PathBuf>>> =
            events.into_iter().map(|event| scanner.touched(event)).collect();
        touched.map_or(Input::Lost, |paths| Input::Touched(paths.concat()))
    }

    fn handle(&mut self, input: Input) -> Vec<PathBuf> {
        let now = Time::after_start(self.start.elapsed());
        let mut told = Vec::new();
        for effect in self.machine.handle(now, input) {
            match effect {
                Effect::Look(scope) => self.begin(scope),
                Effect::Tell(changed) => told = changed,
            }
        }
        told
    }

    fn begin(&mut self, scope: ScanScope) {
        let ScanState::Idle(mut scanner) = std::mem::replace(&mut self.look, ScanState::Lost)
        else {
            return;
        };
        self.look = ScanState::Running(tokio::task::spawn_blocking(move || {
            let outcome = scanner.look(&scope);
            (scanner, outcome)
        }));
    }

    fn looked(&mut self, done: Option<(Box<Scanner>, ScanOutcome)>) -> Input {
        let Some((scanner, outcome)) = done else {
            self.look = ScanState::Lost;
            (self.say)("files are not watched any more: looking at them failed; restart afresh");
            return Input::Looked { changed: Vec::new() };
        };
        self.look = ScanState::Idle(scanner);
        if outcome.must_poll {
            self.poll_at = Some(Instant::now() + WATCH_POLL_INTERVAL);
        }
        self.tell(outcome.notices);
        Input::Looked { changed: outcome.changed }
    }

    /// Says each kind of notice once.
    fn tell(&mut self, notices: Vec<WatchNotice>) {
        for notice in notices {
            if !self.said.iter().any(|said| said.is_like(&notice)) {
                (self.say)(&notice.text());
                self.said.push(notice);
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A look that is under way ends soon: the runtime waits for it.
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

/// The absolute path of what is to be watched. It need not exist; but it must not be hidden from us.
fn named_path(path: &Path, base: &Path) -> Result<PathBuf, WatchError> {
    let failed = |source| WatchError { path: path.display().to_string(), source };
    if path.as_os_str().is_empty() {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    }
    let named = std::path::absolute(base.join(path)).map_err(failed)?;
    match named.metadata() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(failed(error)),
        Ok(_) | Err(_) => Ok(named),
    }
}

async fn heard(alarms: Option<&FolderAlarms>) -> io::Result<Vec<FolderAlarm>> {
    match alarms {
        Some(alarms) => alarms.next().await,
        None => std::future::pending().await,
    }
}

/// Something is not watched, or not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WatchNotice {
    TooManyFiles,
    TooManyFolders,
    TooDeep,
    /// What the system says, and what to do.
    Refused(String),
}

impl WatchNotice {
    /// None where there is nothing to say: the folder is gone, or the system never watches anything.
    fn refused(folder: &Path, refusal: &WatchRefusal) -> Option<Self> {
        Some(Self::Refused(match refusal {
            WatchRefusal::Limit { what, hint } => format!("{what}: {hint}"),
            WatchRefusal::Failed(error) => {
                format!("`{}` cannot be watched: {error}", harmless(&folder.to_string_lossy()))
            }
            WatchRefusal::Gone | WatchRefusal::Unsupported => return None,
        }))
    }

    /// Whether two are the same for the user: one folder that is refused stands for all.
    fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    fn text(&self) -> String {
        let instead = format!(
            "all watched files are looked at every {} instead",
            show_duration(WATCH_POLL_INTERVAL)
        );
        match self {
            Self::TooManyFiles => format!(
                "more than {WATCH_FILES_MAX} files are to be watched: changes of the others are not \
                 seen; watch a smaller folder, or add to `.ignore` what does not matter"
            ),
            Self::TooManyFolders => format!(
                "more than {WATCH_FOLDERS_MAX} folders are to be watched: {instead}; watch a smaller \
                 folder, or add to `.ignore` what does not matter"
            ),
            Self::TooDeep => format!(
                "folders more than {WATCH_DEPTH_MAX} deep are not watched; watch one of them itself"
            ),
            Self::Refused(why) => format!("{instead}: {why}"),
        }
    }
}

#[cfg(test)]
mod tests;
