//! Follows files as they grow, across rotation, deletion and the loss of their folder. Driven by the command
//! that prints the lines. Never writes.
//!
//! The watch is set before the files are looked at: what happens in between wakes up the next wait,
//! so that nothing is missed. A wake-up for nothing is harmless.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::history::{Filter, History};
use super::replace::folder_of;
use crate::os::{FileWatch, Sink};

/// Files that are read up to their present end, and further after a new look at them.
pub trait FollowedFiles {
    /// One line or record of them.
    type Item;

    /// The next one that is there.
    fn next_item(&mut self) -> io::Result<Option<Self::Item>>;

    /// Looks which files there are now. Each is read on from where its reader is.
    fn rescan(&mut self) -> io::Result<()>;
}

/// Gives the lines or records of files: first those that exist, then each new one.
pub struct FileFollower<F> {
    /// One of the files.
    path: PathBuf,
    files: F,
    watch: FileWatch,
    /// The stream that the lines are written to, when its end is the end of waits too.
    sink: Option<Sink>,
}

/// Follows the trail.
pub type TrailFollower = FileFollower<History>;

impl TrailFollower {
    /// Opens the trail, which may not exist yet.
    pub fn open(path: &Path, filter: Filter) -> io::Result<Self> {
        Self::watching(path, || History::open(path, filter))
    }
}

impl<F: FollowedFiles> FileFollower<F> {
    /// Watches the folder of `path`, and opens the files.
    pub(super) fn watching(path: &Path, open: impl FnOnce() -> io::Result<F>) -> io::Result<Self> {
        let mut watch = FileWatch::new();
        renew(&mut watch, path);
        Ok(Self { path: path.to_owned(), files: open()?, watch, sink: None })
    }

    /// Makes waits end when the reader of our stdout is gone; files that are silent would not show it.
    pub fn end_with_stdout(&mut self) {
        self.sink = Sink::stdout();
    }

    /// The files that are read.
    pub fn files(&mut self) -> &mut F {
        &mut self.files
    }

    /// The next line or record. Waits for it, forever or for so long, or until the reader of the sink is
    /// gone; then there is none.
    pub fn next(&mut self, wait_max: Option<Duration>) -> io::Result<Option<F::Item>> {
        let deadline = wait_max.map(|wait| Instant::now() + wait);
        loop {
            if let Some(item) = self.files.next_item()? {
                return Ok(Some(item));
            }
            let left = deadline.map(|deadline| deadline.duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            self.watch.wait(left, self.sink.as_ref())?;
            if self.sink.as_ref().is_some_and(Sink::is_closed) {
                return Ok(None);
            }
            renew(&mut self.watch, &self.path);
            self.files.rescan()?;
        }
    }
}

/// Watches the folder that a file is really in.
fn renew(watch: &mut FileWatch, path: &Path) {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    watch.renew(folder_of(&path));
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::store::testing::TempDir;
    use crate::store::trail::tests::{event, number, numbers};
    use crate::store::trail::{Settings, Trail};

    const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

    fn open(dir: &TempDir, file_bytes_max: u64) -> (Trail, TrailFollower) {
        let path = dir.join("state/audit.jsonl");
        let settings = Settings { path: path.clone(), file_bytes_max, files_kept: 3 };
        let follow = TrailFollower::open(&path, Filter::default()).unwrap();
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
        // Only three rotated files are kept: a follower that lags behind that much misses records.
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
        fs::write(dir.join("state/audit.jsonl"), "{\"timestamp\":\"torn").unwrap();
        assert!(follow.next(Some(Duration::from_millis(20))).unwrap().is_none());
        trail.announce_blocking(event(1)).unwrap();
        let repaired = follow.next(PATIENCE).unwrap().unwrap();
        assert_eq!(repaired.event_type(), Some("trail_repaired"));
        assert_eq!(number(&follow.next(PATIENCE).unwrap().unwrap()), 1);
    }
}
