//! Reads the lines of a file and of those that it was rotated to, and follows them as they grow: across rotation,
//! deletion and the loss of their folder. Driven by the readers of the trail and of the logs. Never writes;
//! `rotation.rs` does.
//!
//! The watch is set before the files are looked at: what happens in between wakes up the next wait,
//! so that nothing is missed. A wake-up for nothing is harmless.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use afresh_core::limits::ROTATED_SCANS_MAX;
use tokio::time::Instant;

use super::atomic_replace::folder_of;
use super::rotation::{numbers, rotated};
use crate::os::{FileId, FileWatch, Sink, is_at_path, open_to_read};

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
    /// The files that are read.
    pub files: F,
    watch: FileWatch,
    /// The stream that the lines are written to, when its end is the end of waits too.
    sink: Option<Sink>,
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

    /// The next line or record. Waits for it, forever or for so long, or until the reader of the sink is
    /// gone; then there is none.
    pub fn next(&mut self, wait_max: Option<Duration>) -> io::Result<Option<F::Item>> {
        let deadline = wait_max.map(|wait| Instant::now() + wait);
        let mut is_last_look = false;
        loop {
            if let Some(item) = self.files.next_item()? {
                return Ok(Some(item));
            }
            if is_last_look {
                return Ok(None);
            }
            // However short the wait is, the files are looked at once: one that was emptied has the old length again
            // after the next record.
            let left = deadline.map(|deadline| deadline.duration_since(Instant::now()));
            is_last_look = left == Some(Duration::ZERO);
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

/// The lines of such files, oldest first, up to their present end.
#[derive(Debug)]
pub(super) struct NumberedLines {
    path: PathBuf,
    /// A longer line is passed over.
    line_bytes_max: usize,
    /// Oldest first. They stay open, so that a new file can't get the number of an old one.
    pub(super) files: Vec<LineReader>,
    /// The one that is being read.
    current: usize,
}

impl NumberedLines {
    /// Opens them; those that do not exist have no lines.
    pub(super) fn open(path: &Path, line_bytes_max: usize) -> io::Result<Self> {
        let mut lines =
            Self { path: path.to_owned(), line_bytes_max, files: Vec::new(), current: 0 };
        lines.rescan()?;
        Ok(lines)
    }

    /// Looks which files there are now. Each is read on from where its reader is.
    pub(super) fn rescan(&mut self) -> io::Result<()> {
        let mut files = Vec::new();
        for (id, file) in open_files(&self.path)? {
            let known = self.files.iter().position(|reader| reader.id == id);
            files.push(match known {
                Some(known) => self.files.remove(known),
                None => LineReader {
                    id,
                    file: BufReader::new(file),
                    offset: 0,
                    end: None,
                    is_torn: false,
                    is_gone: false,
                },
            });
        }
        // A file that is gone is read to its end once, before the others.
        self.files.retain_mut(|file| !std::mem::replace(&mut file.is_gone, true));
        files.extend(self.files.drain(..).rev());
        files.reverse();
        for file in &mut files {
            // afresh only cuts a line that has no end yet, and that was not taken: so another program emptied it.
            if file.file().metadata()?.len() < file.offset {
                file.go_to(0)?;
            }
        }
        self.files = files;
        self.current = 0;
        Ok(())
    }

    /// The next line, without its end; none where there is none yet. A file that can't be read is
    /// passed over after the error.
    pub(super) fn next_line(&mut self) -> io::Result<Option<FileLine>> {
        while let Some(file) = self.files.get_mut(self.current) {
            match file.next_line(self.line_bytes_max) {
                Ok(Some(line)) => return Ok(Some(line)),
                Ok(None) => self.current += 1,
                Err(error) => {
                    self.current += 1;
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Ends where the files end now, however they grow.
    pub(super) fn stop_at_present_end(&mut self) -> io::Result<()> {
        for file in &mut self.files {
            file.end = Some(file.file().metadata()?.len());
        }
        Ok(())
    }
}

/// Opens the files, newest first.
///
/// A file that is rotated meanwhile moves to a higher number, where it is found again but not taken twice: going
/// upwards misses none. After two rotations a file that is newer than the first one stands where an older one is
/// looked for, so the scan begins again.
fn open_files(path: &Path) -> io::Result<Vec<(FileId, File)>> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut tries = ROTATED_SCANS_MAX;
    loop {
        let files = open_files_once(&path)?;
        tries -= 1;
        let is_in_order = files.first().is_none_or(|(_, newest)| {
            is_at_path(newest, &path) || is_at_path(newest, &rotated(&path, 1))
        });
        if is_in_order || tries == 0 {
            return Ok(files);
        }
    }
}

fn open_files_once(path: &Path) -> io::Result<Vec<(FileId, File)>> {
    let mut files: Vec<(FileId, File)> = Vec::new();
    let rotations_meanwhile = 8;
    let highest = numbers(path)?.into_iter().max().unwrap_or(0);
    for number in 0..=highest + rotations_meanwhile {
        let named = if number == 0 { path.to_owned() } else { rotated(path, number) };
        let file = match open_to_read(&named) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        // Names change by rotation.
        let id = FileId::of(&file)?;
        if file.metadata()?.is_file() && files.iter().all(|(known, _)| *known != id) {
            files.push((id, file));
        }
    }
    Ok(files)
}

/// Reads one file line by line, and stays before a last line that has no end yet.
#[derive(Debug)]
pub(super) struct LineReader {
    id: FileId,
    file: BufReader<File>,
    /// The offset of the next line.
    offset: u64,
    /// Lines that begin behind this are not read.
    pub(super) end: Option<u64>,
    /// It ends without the end of a line.
    pub(super) is_torn: bool,
    is_gone: bool,
}

/// A line of a file.
#[derive(Debug)]
pub(super) enum FileLine {
    Whole(Vec<u8>),
    TooLong,
}

impl LineReader {
    /// The file itself, to look at it in other places.
    pub(super) fn file(&self) -> &File {
        self.file.get_ref()
    }

    /// The offset up to which it is read.
    pub(super) fn end(&self) -> io::Result<u64> {
        self.end.map_or_else(|| Ok(self.file().metadata()?.len()), Ok)
    }

    /// Goes on with the line that starts here.
    pub(super) fn go_to(&mut self, offset: u64) -> io::Result<()> {
        self.offset = offset;
        self.file.seek(SeekFrom::Start(offset))?;
        Ok(())
    }

    fn next_line(&mut self, bytes_max: usize) -> io::Result<Option<FileLine>> {
        if self.end.is_some_and(|end| self.offset >= end) {
            return Ok(None);
        }
        let mut line = Vec::new();
        let mut len = 0;
        loop {
            let block = self.file.fill_buf()?;
            if block.is_empty() {
                self.is_torn = len > 0;
                self.file.seek(SeekFrom::Start(self.offset))?;
                return Ok(None);
            }
            let newline = memchr::memchr(b'\n', block);
            let part = newline.unwrap_or(block.len());
            if line.len() + part < bytes_max {
                line.extend_from_slice(&block[..part]);
            }
            let used = part + usize::from(newline.is_some());
            self.file.consume(used);
            len += used;
            if newline.is_some() {
                self.offset += len as u64;
                let is_whole = line.len() + 1 == len;
                return Ok(Some(if is_whole { FileLine::Whole(line) } else { FileLine::TooLong }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;

    use super::*;
    use crate::store::history::{Filter, TrailFollower};
    use crate::store::rotation::rotate;
    use crate::store::testing::TempDir;
    use crate::store::trail::tests::{event, number, numbers};
    use crate::store::trail::{Settings, Trail};
    use crate::write_path::WritePath;

    const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

    fn open(dir: &TempDir, file_bytes_max: u64) -> (Trail, TrailFollower) {
        let path = dir.join("state/audit.jsonl");
        let settings = Settings { path: WritePath::named(&path), file_bytes_max, files_kept: 3 };
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
    fn files_are_in_order_however_often_they_are_rotated_meanwhile() {
        const FILES: u32 = 6_000;
        let dir = TempDir::new();
        let path = dir.join("log");
        fs::write(&path, "0").unwrap();
        let writer = std::thread::spawn({
            let path = path.clone();
            move || {
                let log = WritePath::named(&path);
                for number in 1..=FILES {
                    rotate(&log, 4).unwrap();
                    fs::write(&path, number.to_string()).unwrap();
                }
            }
        });
        while !writer.is_finished() {
            let mut found: Vec<u32> = Vec::new();
            for (_, mut file) in open_files(&path).unwrap() {
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                // A new file is empty for a moment.
                found.extend(text.parse::<u32>());
            }
            assert!(found.is_sorted_by(|newer, older| newer > older), "{found:?}");
        }
        writer.join().unwrap();
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
            assert!(follow.next(Some(Duration::ZERO)).unwrap().is_none());
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
