//! Reads the trail back, rotated files included, oldest first, one line in memory at a time.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use afresh_core::audit::Level;
use afresh_core::limits::TRAIL_LINE_BYTES_MAX;
use afresh_core::time::Stamp;
use serde_json::Value;

use super::replace::folder_of;
use super::trail::rotated;
use crate::os::{FileId, open_to_read};

/// Which records are wanted; by default, all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Not older than this.
    pub since: Option<Stamp>,
    /// Of this service.
    pub service: Option<String>,
    /// Of this event type.
    pub event_type: Option<String>,
    /// At least as grave as this.
    pub level_min: Option<Level>,
}

/// A record of the trail. What a record does not have, or has in another form, is none.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The record as it stands in the file, without the newline.
    pub line: String,
    /// When it was handed in.
    pub stamp: Option<Stamp>,
    /// How grave it is.
    pub level: Option<Level>,
    /// The whole record.
    pub value: Value,
}

impl Entry {
    fn parse(line: Vec<u8>) -> Option<Self> {
        let line = String::from_utf8(line).ok()?;
        let value: Value = serde_json::from_str(&line).ok()?;
        let levels = [Level::Info, Level::Warning, Level::Error];
        let level =
            value["level"].as_str().and_then(|name| levels.into_iter().find(|l| l.name() == name));
        value.is_object().then(|| Self {
            stamp: value["timestamp"].as_str().and_then(Stamp::parse),
            level,
            line,
            value,
        })
    }

    /// The sentence for people.
    pub fn message(&self) -> Option<&str> {
        self.value["message"].as_str()
    }

    /// What happened.
    pub fn event_type(&self) -> Option<&str> {
        self.value["props"]["event_type"].as_str()
    }

    /// The service that it happened to.
    pub fn service(&self) -> Option<&str> {
        self.value["props"]["service"].as_str()
    }
}

impl Filter {
    fn accepts(&self, entry: &Entry) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        self.since.is_none_or(|since| entry.stamp.is_some_and(|stamp| stamp >= since))
            && self.level_min.is_none_or(|min| entry.level.is_some_and(|level| level >= min))
            && is(&self.service, entry.service())
            && is(&self.event_type, entry.event_type())
    }
}

/// The records of a trail, oldest first, up to its present end.
pub struct History {
    path: PathBuf,
    filter: Filter,
    /// Oldest first. They stay open, so that a new file can't get the number of an old one.
    files: Vec<TrailReader>,
    /// The one that is being read.
    current: usize,
    damaged: u64,
}

impl History {
    /// Opens the trail; one that does not exist has no records.
    pub fn open(path: &Path, filter: Filter) -> io::Result<Self> {
        let mut history =
            Self { path: path.to_owned(), filter, files: Vec::new(), current: 0, damaged: 0 };
        history.rescan()?;
        Ok(history)
    }

    /// Opens the newest files of the trail, all records of them.
    pub(crate) fn open_last(path: &Path, files_max: usize) -> io::Result<Self> {
        let mut history = Self::open(path, Filter::default())?;
        history.files.drain(..history.files.len().saturating_sub(files_max));
        Ok(history)
    }

    /// Lines so far that are no records: not JSON, too long, or torn at the end of a file.
    pub fn damaged(&self) -> u64 {
        let torn = self.files.iter().filter(|file| file.is_torn).count();
        self.damaged + torn as u64
    }

    /// Looks which files there are now. Each is read on from where its reader is.
    pub(super) fn rescan(&mut self) -> io::Result<()> {
        let mut files = Vec::new();
        for (id, file) in open_files(&self.path)? {
            let known = self.files.iter().position(|reader| reader.id == id);
            files.push(match known {
                Some(known) => self.files.remove(known),
                None => TrailReader::new(id, file),
            });
        }
        // A file that is gone is read to its end once, before the others.
        self.files.retain_mut(|file| !std::mem::replace(&mut file.is_gone, true));
        files.extend(self.files.drain(..).rev());
        files.reverse();
        for file in &mut files {
            file.rewind_if_cut()?;
        }
        self.files = files;
        self.current = 0;
        Ok(())
    }
}

impl Iterator for History {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(file) = self.files.get_mut(self.current) {
            match file.next_line() {
                Ok(Line::Whole(line)) => match Entry::parse(line) {
                    Some(entry) if self.filter.accepts(&entry) => return Some(Ok(entry)),
                    Some(_) => {}
                    None => self.damaged += 1,
                },
                Ok(Line::TooLong) => self.damaged += 1,
                Ok(Line::End) => self.current += 1,
                Err(error) => {
                    self.current += 1;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

/// Opens the files of the trail, newest first. A file that is rotated meanwhile moves to a higher
/// number, where it is found again but not taken twice: going upwards misses none.
fn open_files(path: &Path) -> io::Result<Vec<(FileId, File)>> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut files: Vec<(FileId, File)> = Vec::new();
    let rotations_meanwhile = 8;
    for number in 0..=highest_number(&path)? + rotations_meanwhile {
        let named = if number == 0 { path.clone() } else { rotated(&path, number) };
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

fn highest_number(path: &Path) -> io::Result<u32> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let entries = match fs::read_dir(folder_of(path)) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(e),
    };
    let numbers = entries.flatten().filter_map(|entry| {
        let entry = entry.file_name().into_string().ok()?;
        let number: u32 = entry.strip_prefix(&name)?.strip_prefix('.')?.parse().ok()?;
        // More than anyone keeps is somebody else's file.
        (number < 10_000).then_some(number)
    });
    Ok(numbers.max().unwrap_or(0))
}

/// Reads one file line by line, and stays before a last line that has no end yet.
struct TrailReader {
    id: FileId,
    file: BufReader<File>,
    /// Where the next line starts.
    offset: u64,
    is_torn: bool,
    is_gone: bool,
}

enum Line {
    Whole(Vec<u8>),
    TooLong,
    End,
}

impl TrailReader {
    fn new(id: FileId, file: File) -> Self {
        Self { id, file: BufReader::new(file), offset: 0, is_torn: false, is_gone: false }
    }

    fn next_line(&mut self) -> io::Result<Line> {
        let mut line = Vec::new();
        let mut len = 0;
        loop {
            let block = self.file.fill_buf()?;
            if block.is_empty() {
                self.is_torn = len > 0;
                self.file.seek(SeekFrom::Start(self.offset))?;
                return Ok(Line::End);
            }
            let newline = block.iter().position(|b| *b == b'\n');
            let part = newline.unwrap_or(block.len());
            if line.len() + part < TRAIL_LINE_BYTES_MAX {
                line.extend_from_slice(&block[..part]);
            }
            let used = part + usize::from(newline.is_some());
            self.file.consume(used);
            len += used;
            if newline.is_some() {
                self.offset += len as u64;
                let is_whole = line.len() + 1 == len;
                return Ok(if is_whole { Line::Whole(line) } else { Line::TooLong });
            }
        }
    }

    /// afresh only cuts what has no end yet, and that was not taken. Somebody else emptied the file.
    fn rewind_if_cut(&mut self) -> io::Result<()> {
        if self.file.get_ref().metadata()?.len() < self.offset {
            self.offset = 0;
            self.file.seek(SeekFrom::Start(0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::store::testing::TempDir;

    fn line(second: u32, level: &str, service: &str, event: &str) -> String {
        format!(
            "{{\"timestamp\":\"2026-01-01T00:00:{second:02}.000Z\",\"level\":\"{level}\",\
             \"message\":\"m\",\"props\":{{\"event_type\":\"{event}\",\"service\":\"{service}\"}}}}\n"
        )
    }

    fn seconds(path: &Path, filter: Filter) -> (Vec<u64>, u64) {
        let mut history = History::open(path, filter).unwrap();
        let start = Stamp::parse("2026-01-01T00:00:00Z").unwrap();
        let stamps = history.by_ref().map(|entry| entry.unwrap().stamp.unwrap());
        let seconds = stamps.map(|stamp| stamp.since(start).as_secs()).collect();
        (seconds, history.damaged())
    }

    #[test]
    fn rotated_files_come_first_and_filters_apply() {
        let dir = TempDir::new();
        let path = dir.join("audit.jsonl");
        assert_eq!(seconds(&path, Filter::default()), (vec![], 0));
        fs::write(rotated(&path, 10), line(1, "INFO", "a", "x")).unwrap();
        // A killed rotation left a gap.
        fs::write(rotated(&path, 2), line(2, "ERROR", "b", "x")).unwrap();
        let newest = line(3, "WARNING", "a", "y") + &line(4, "INFO", "b", "y");
        fs::write(&path, newest).unwrap();
        assert_eq!(seconds(&path, Filter::default()), (vec![1, 2, 3, 4], 0));
        let since = Stamp::parse("2026-01-01T00:00:03Z");
        assert_eq!(seconds(&path, Filter { since, ..Filter::default() }).0, [3, 4]);
        let service = Some("a".to_owned());
        assert_eq!(seconds(&path, Filter { service, ..Filter::default() }).0, [1, 3]);
        let event_type = Some("x".to_owned());
        assert_eq!(seconds(&path, Filter { event_type, ..Filter::default() }).0, [1, 2]);
        let level_min = Some(Level::Warning);
        assert_eq!(seconds(&path, Filter { level_min, ..Filter::default() }).0, [2, 3]);
    }

    #[test]
    fn damaged_lines_are_counted_and_passed_over() {
        let dir = TempDir::new();
        let path = dir.join("audit.jsonl");
        let mut content = line(1, "INFO", "a", "x").into_bytes();
        content.extend(b"no json\n\n[1]\n\xff\n");
        content.extend(vec![b'x'; 3 * TRAIL_LINE_BYTES_MAX]);
        content.push(b'\n');
        content.extend(line(2, "INFO", "a", "x").bytes());
        content.extend(b"{\"torn");
        fs::write(&path, content).unwrap();
        assert_eq!(seconds(&path, Filter::default()), (vec![1, 2], 6));
    }
}
