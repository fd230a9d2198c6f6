//! Reads the trail back, rotated files included, oldest first, one line in memory at a time. Driven by
//! `afresh history` and the doctor. Never writes.

use std::io;
use std::path::Path;

use afresh_core::audit::Level;
use afresh_core::limits::TRAIL_LINE_BYTES_MAX;
use afresh_core::time::Stamp;
use serde_json::Value;

use super::file_follower::{FileFollower, FileLine, FollowedFiles, NumberedLines};

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
pub struct HistoryEntry {
    /// The record as it stands in the file, without the newline.
    pub line: String,
    /// The time at which it was handed in.
    pub stamp: Option<Stamp>,
    /// Its level.
    pub level: Option<Level>,
    /// The whole record.
    pub value: Value,
}

impl HistoryEntry {
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

    /// The type of the event.
    pub fn event_type(&self) -> Option<&str> {
        self.value["props"]["event_type"].as_str()
    }

    /// The service that it happened to.
    pub fn service(&self) -> Option<&str> {
        self.value["props"]["service"].as_str()
    }
}

impl Filter {
    fn accepts(&self, entry: &HistoryEntry) -> bool {
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
    filter: Filter,
    lines: NumberedLines,
    damaged: u64,
}

impl History {
    /// Opens the trail; one that does not exist has no records.
    pub fn open(path: &Path, filter: Filter) -> io::Result<Self> {
        Ok(Self { filter, lines: NumberedLines::open(path, TRAIL_LINE_BYTES_MAX)?, damaged: 0 })
    }

    /// Opens the newest files of the trail, all records of them.
    pub(crate) fn open_last(path: &Path, files_max: usize) -> io::Result<Self> {
        let mut history = Self::open(path, Filter::default())?;
        let files = &mut history.lines.files;
        files.drain(..files.len().saturating_sub(files_max));
        Ok(history)
    }

    /// Lines so far that are no records: not JSON, too long, or torn at the end of a file.
    pub fn damaged(&self) -> u64 {
        let torn = self.lines.files.iter().filter(|file| file.is_torn).count();
        self.damaged + torn as u64
    }
}

impl FollowedFiles for History {
    type Item = HistoryEntry;

    fn next_item(&mut self) -> io::Result<Option<HistoryEntry>> {
        self.next().transpose()
    }

    fn rescan(&mut self) -> io::Result<()> {
        self.lines.rescan()
    }
}

/// Follows the trail.
pub type TrailFollower = FileFollower<History>;

impl TrailFollower {
    /// Opens the trail, which may not exist yet.
    pub fn open(path: &Path, filter: Filter) -> io::Result<Self> {
        Self::watching(path, || History::open(path, filter))
    }
}

impl Iterator for History {
    type Item = io::Result<HistoryEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.lines.next_line() {
                Ok(Some(FileLine::Whole(line))) => match HistoryEntry::parse(line) {
                    Some(entry) if self.filter.accepts(&entry) => return Some(Ok(entry)),
                    Some(_) => {}
                    None => self.damaged += 1,
                },
                Ok(Some(FileLine::TooLong)) => self.damaged += 1,
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::store::rotation::rotated;
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
