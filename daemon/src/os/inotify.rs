//! Owns the inotify watches on folders, on Linux. Driven by `watch/`. Never reads a file.
//!
//! [`FolderAlarms`] is what the loop waits on; [`Folders`] says which folders are watched, and may be
//! used on another thread. Nothing is read while no loop waits: the kernel queues the events, and
//! reports an overflow.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use afresh_core::limits::{WATCHERS_MIN, WATCHES_MIN};
use nix::errno::Errno;
use nix::libc::{IN_EXCL_UNLINK, IN_MASK_ADD};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{FolderEvent, WatchExtent, WatchRefusal};

struct InotifyQueue(Inotify);

impl AsRawFd for InotifyQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// An event of the kernel about a folder; [`Folders::hear`] decodes it.
pub(crate) struct FolderAlarm(InotifyEvent);

/// Waits for what happens in the folders.
pub(crate) struct FolderAlarms(AsyncFd<Arc<InotifyQueue>>);

impl FolderAlarms {
    /// The events since the last call. Cancel safe.
    pub(crate) async fn next(&self) -> io::Result<Vec<FolderAlarm>> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|queue| Ok(queue.get_ref().0.read_events()?)) {
                Ok(events) => return Ok(events?.into_iter().map(FolderAlarm).collect()),
                Err(_would_block) => {}
            }
        }
    }
}

/// The folders that are watched.
pub(crate) struct Folders {
    queue: Arc<InotifyQueue>,
    by_path: BTreeMap<PathBuf, WatchDescriptor>,
    /// One folder can have several paths, by links and mounts.
    by_number: BTreeMap<i32, BTreeSet<PathBuf>>,
}

/// Begins to watch, with no folder yet. Needs a runtime.
pub(crate) fn watch_folders() -> Result<(FolderAlarms, Folders), WatchRefusal> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(refusal)?;
    let queue = Arc::new(InotifyQueue(inotify));
    // SAFETY: the queue owns its descriptor, never gives it away, and lives as long as `alarms`.
    #[expect(unsafe_code, reason = "tokio cannot see that the descriptor stays the same")]
    let alarms = unsafe { AsyncFd::register_with_interest(queue.clone(), Interest::READABLE) };
    let alarms = alarms.map_err(|error| WatchRefusal::Failed(error.into()))?;
    let folders = Folders { queue, by_path: BTreeMap::new(), by_number: BTreeMap::new() };
    Ok((FolderAlarms(alarms), folders))
}

impl Folders {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.by_path.len()
    }

    /// Whether a folder is one of them.
    pub(crate) fn has(&self, folder: &Path) -> bool {
        self.by_path.contains_key(folder)
    }

    /// Watches a folder. One that is watched already is watched for more.
    pub(crate) fn add(&mut self, folder: &Path, extent: WatchExtent) -> Result<(), WatchRefusal> {
        let itself = AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR
            | AddWatchFlags::from_bits_retain(IN_MASK_ADD | IN_EXCL_UNLINK);
        let flags = match extent {
            WatchExtent::Itself => itself,
            // Neither the rights nor the times of a file are asked for: only what is in it counts.
            WatchExtent::Entries => {
                itself
                    | AddWatchFlags::IN_CREATE
                    | AddWatchFlags::IN_DELETE
                    | AddWatchFlags::IN_MODIFY
                    | AddWatchFlags::IN_CLOSE_WRITE
                    | AddWatchFlags::IN_MOVED_FROM
                    | AddWatchFlags::IN_MOVED_TO
            }
        };
        let number = self.queue.0.add_watch(folder, flags).map_err(refusal)?;
        if let Some(old) = self.by_path.insert(folder.to_owned(), number)
            && old != number
        {
            self.leave(old, folder);
        }
        self.by_number.entry(number.as_raw()).or_default().insert(folder.to_owned());
        Ok(())
    }

    /// Watches only those of which this is true.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Path) -> bool) {
        let gone: Vec<PathBuf> = self.by_path.keys().filter(|path| !keep(path)).cloned().collect();
        for path in gone {
            if let Some(number) = self.by_path.remove(&path) {
                self.leave(number, &path);
            }
        }
    }

    /// Decodes an alarm.
    pub(crate) fn hear(&mut self, FolderAlarm(event): FolderAlarm) -> Vec<FolderEvent> {
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            return vec![FolderEvent::Lost];
        }
        let number = event.wd.as_raw();
        if event.mask.contains(AddWatchFlags::IN_IGNORED) {
            let paths = self.by_number.remove(&number).unwrap_or_default();
            for path in &paths {
                if self.by_path.get(path) == Some(&event.wd) {
                    self.by_path.remove(path);
                }
            }
            return paths.into_iter().map(FolderEvent::Folder).collect();
        }
        // Otherwise it is of one that we have left.
        let paths = self.by_number.get(&number).into_iter().flatten();
        let is_folder = event.mask.contains(AddWatchFlags::IN_ISDIR);
        let event = |folder: &PathBuf| match &event.name {
            Some(name) => {
                FolderEvent::Entry { folder: folder.clone(), name: name.clone(), is_folder }
            }
            None => FolderEvent::Folder(folder.clone()),
        };
        paths.map(event).collect()
    }

    fn leave(&mut self, number: WatchDescriptor, path: &Path) {
        let Some(paths) = self.by_number.get_mut(&number.as_raw()) else { return };
        paths.remove(path);
        if paths.is_empty() {
            self.by_number.remove(&number.as_raw());
            // It fails where the folder is gone, and the watch with it.
            self.queue.0.rm_watch(number).ok();
        }
    }
}

fn refusal(errno: Errno) -> WatchRefusal {
    let raise = |name: &str, number: u64| {
        format!(
            "run `sudo sysctl fs.inotify.{name}={number}`, and put it into `/etc/sysctl.d/` to keep it"
        )
    };
    match errno {
        Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP => WatchRefusal::Gone,
        Errno::ENOSPC => WatchRefusal::Limit {
            what: "this user may watch no more folders",
            hint: raise("max_user_watches", raised("max_user_watches", WATCHES_MIN)),
        },
        Errno::EMFILE => WatchRefusal::Limit {
            what: "this user may have no more watchers",
            hint: raise("max_user_instances", raised("max_user_instances", WATCHERS_MIN)),
        },
        errno => WatchRefusal::Failed(errno.into()),
    }
}

/// Four times what the kernel grants now.
fn raised(name: &str, min: u64) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/sys/fs/inotify/{name}"));
    let now = text.ok().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0);
    now.saturating_mul(4).max(min)
}
