//! Follows the trail as it grows, across rotation, deletion and the loss of its folder.
//!
//! The watch is set before the files are looked at: what happens in between wakes up the next wait,
//! so that nothing is missed. A wake-up for nothing is harmless.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::time::Instant;

use super::history::{Entry, Filter, History};

/// The records of a trail: first those that exist, then each new one.
pub struct Follow {
    history: History,
    watch: watch::Watch,
    /// Where the records are written to, when its end is ours too.
    sink: Option<OwnedFd>,
}

impl Follow {
    /// Opens the trail, which may not exist yet.
    pub fn open(path: &Path, filter: Filter) -> io::Result<Self> {
        let mut watch = watch::Watch::new(path);
        watch.renew();
        let history = History::open(path, filter)?;
        Ok(Self { history, watch, sink: None })
    }

    /// Makes waits end when nobody reads from this pipe or terminal any more; a trail that is
    /// silent would not show it.
    pub fn end_with(&mut self, sink: OwnedFd) {
        self.sink = Some(sink);
    }

    /// The next record. Waits for it, forever or for so long, or until nobody reads from the sink;
    /// then there is none.
    pub fn next(&mut self, wait_max: Option<Duration>) -> io::Result<Option<Entry>> {
        let deadline = wait_max.map(|wait| Instant::now() + wait);
        loop {
            if let Some(entry) = self.history.next() {
                return entry.map(Some);
            }
            let left = deadline.map(|deadline| deadline.duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            let sink = self.sink.as_ref().map(AsFd::as_fd);
            self.watch.wait(left, sink)?;
            if sink.is_some_and(is_closed) {
                return Ok(None);
            }
            self.watch.renew();
            self.history.rescan()?;
        }
    }

    /// See [`History::damaged`].
    pub fn damaged(&self) -> u64 {
        self.history.damaged()
    }
}

/// Whether nobody reads any more: the kernel says so without being asked for an event.
fn is_closed(sink: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(sink, PollFlags::empty())];
    poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

#[cfg(target_os = "linux")]
mod watch {
    //! Lets the kernel say that something changed.

    use std::io;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use afresh_core::limits::FOLLOW_POLL_INTERVAL;
    use nix::errno::Errno;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

    use super::super::replace::folder_of;

    pub(super) struct Watch {
        path: PathBuf,
        /// None when the user has used up what the kernel grants.
        inotify: Option<Inotify>,
        watched: Option<WatchDescriptor>,
    }

    impl Watch {
        pub(super) fn new(path: &Path) -> Self {
            let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok();
            Self { path: path.to_owned(), inotify, watched: None }
        }

        /// Watches the trail's folder, or the nearest one above it that exists.
        pub(super) fn renew(&mut self) {
            let Some(inotify) = &self.inotify else {
                return;
            };
            let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
            let moves = AddWatchFlags::IN_CREATE
                | AddWatchFlags::IN_MOVED_TO
                | AddWatchFlags::IN_DELETE_SELF
                | AddWatchFlags::IN_MOVE_SELF;
            let all = moves | AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_DELETE;
            let folder = folder_of(&path);
            let above = folder.ancestors().skip(1).map(|above| (above, moves));
            let watched = std::iter::once((folder, all))
                .chain(above)
                .find_map(|(folder, flags)| inotify.add_watch(folder, flags).ok());
            // Watching the same folder again gives the same descriptor.
            if let Some(old) = self.watched
                && self.watched != watched
            {
                // It fails where the folder is gone, and the watch with it.
                inotify.rm_watch(old).ok();
            }
            self.watched = watched;
        }

        /// Waits for a change, or for the end of the sink.
        pub(super) fn wait(
            &self,
            wait_max: Option<Duration>,
            sink: Option<BorrowedFd<'_>>,
        ) -> io::Result<()> {
            let Some((inotify, _)) = self.inotify.as_ref().zip(self.watched) else {
                let pause = wait_max.unwrap_or(FOLLOW_POLL_INTERVAL);
                std::thread::sleep(pause.min(FOLLOW_POLL_INTERVAL));
                return Ok(());
            };
            let timeout = wait_max.map_or(PollTimeout::NONE, |wait| {
                // Rounded up, so that the last millisecond is not spent in circles.
                let wait = wait + Duration::from_millis(1);
                PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)
            });
            let mut polled = vec![PollFd::new(inotify.as_fd(), PollFlags::POLLIN)];
            polled.extend(sink.map(|sink| PollFd::new(sink, PollFlags::empty())));
            match poll(&mut polled, timeout).map(|_| inotify.read_events()) {
                Ok(Ok(_) | Err(Errno::EAGAIN | Errno::EINTR)) | Err(Errno::EINTR) => Ok(()),
                Ok(Err(errno)) | Err(errno) => Err(errno.into()),
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod watch {
    //! Looks again every so often.

    use std::io;
    use std::os::fd::BorrowedFd;
    use std::path::Path;
    use std::time::Duration;

    use afresh_core::limits::FOLLOW_POLL_INTERVAL;

    pub(super) struct Watch;

    impl Watch {
        pub(super) fn new(_path: &Path) -> Self {
            Self
        }

        pub(super) fn renew(&mut self) {}

        pub(super) fn wait(
            &self,
            wait_max: Option<Duration>,
            _sink: Option<BorrowedFd<'_>>,
        ) -> io::Result<()> {
            let pause = wait_max.unwrap_or(FOLLOW_POLL_INTERVAL);
            std::thread::sleep(pause.min(FOLLOW_POLL_INTERVAL));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::store::testing::TempDir;
    use crate::store::trail::tests::{event, number, numbers};
    use crate::store::trail::{Settings, Trail};

    const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

    fn open(dir: &TempDir, file_bytes_max: u64) -> (Trail, Follow) {
        let path = dir.join("state/audit.jsonl");
        let settings = Settings { path: path.clone(), file_bytes_max, files_kept: 3 };
        let follow = Follow::open(&path, Filter::default()).unwrap();
        (Trail::open(settings, |_| {}), follow)
    }

    #[test]
    fn records_arrive_once_and_in_order_across_rotation() {
        let dir = TempDir::new();
        let (trail, mut follow) = open(&dir, 600);
        let writer = std::thread::spawn(move || {
            for n in 0..300 {
                trail.announce_blocking(event(n)).unwrap();
            }
        });
        // Only three rotated files are kept: whoever lags behind that much misses records.
        let mut found = Vec::new();
        while found.last() != Some(&299) {
            found.push(number(&follow.next(PATIENCE).unwrap().expect("a record")));
        }
        writer.join().unwrap();
        assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
        assert!(follow.next(Some(Duration::ZERO)).unwrap().is_none());
    }

    #[test]
    fn no_record_is_missed_by_one_who_keeps_up() {
        let dir = TempDir::new();
        let (trail, mut follow) = open(&dir, 600);
        for n in 0..100 {
            trail.announce_blocking(event(n)).unwrap();
            assert_eq!(number(&follow.next(PATIENCE).unwrap().unwrap()), n);
        }
        assert!(numbers(&dir.join("state/audit.jsonl")).len() < 100, "it was rotated");
    }

    #[test]
    fn deleted_files_and_folders_are_followed_when_they_are_back() {
        let dir = TempDir::new();
        let (trail, mut follow) = open(&dir, 1_000_000);
        for n in 0..20 {
            trail.announce_blocking(event(n)).unwrap();
            assert_eq!(number(&follow.next(PATIENCE).unwrap().unwrap()), n);
            match n % 3 {
                0 => fs::remove_file(dir.join("state/audit.jsonl")).unwrap(),
                1 => fs::remove_dir_all(dir.join("state")).unwrap(),
                _ => fs::write(dir.join("state/audit.jsonl"), "").unwrap(),
            }
            // An emptied file that has the old length again when it is looked at can't be told.
            assert!(follow.next(Some(Duration::from_millis(1))).unwrap().is_none());
        }
    }

    #[test]
    fn a_torn_line_is_not_taken_before_it_is_whole() {
        let dir = TempDir::new();
        let (trail, mut follow) = open(&dir, 1_000_000);
        fs::create_dir(dir.join("state")).unwrap();
        fs::write(dir.join("state/audit.jsonl"), "{\"torn").unwrap();
        assert!(follow.next(Some(Duration::from_millis(20))).unwrap().is_none());
        trail.announce_blocking(event(1)).unwrap();
        let repaired = follow.next(PATIENCE).unwrap().unwrap();
        assert_eq!(repaired.event_type(), Some("trail_repaired"));
        assert_eq!(number(&follow.next(PATIENCE).unwrap().unwrap()), 1);
    }
}
