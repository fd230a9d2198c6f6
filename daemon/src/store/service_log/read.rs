//! Reads logs back: of one service or several by time, the last lines or all of them, and new ones as they
//! come. Driven by `afresh logs`. Holds one line of each service in memory at a time, and never writes.
//!
//! Where the last lines are wanted, their beginning is looked for from the end; from there everything is
//! read in order, so that following goes on where the past ends.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use afresh_core::control::LogStream;
use afresh_core::limits::{LINE_BYTES_MAX, SERVICE_LOG_READ_BYTES};
use afresh_core::log_line::{LOG_HEAD_BYTES_MAX, LogHead, parse_file_head};
use afresh_core::time::Stamp;

use super::file::number_of;
use super::{file_of, services};
use crate::os;
use crate::store::file_follower::{
    FileFollower, FileLine, FollowedFiles, LineReader, NumberedLines,
};

/// A longer line is none of ours.
const BYTES_MAX: usize = LOG_HEAD_BYTES_MAX + LINE_BYTES_MAX + 1;

/// Which lines are wanted; by default, all.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Not older than this.
    pub since: Option<Stamp>,
    /// With this text in them.
    pub grep: Option<String>,
    /// Of this stream.
    pub stream: Option<LogStream>,
    /// The last so many of those that are there already, over all services.
    pub lines_max: Option<usize>,
}

impl Query {
    fn wants(&self, head: &LogHead, text: &[u8]) -> bool {
        self.since.is_none_or(|since| head.time >= since)
            && self.stream.is_none_or(|stream| head.stream == stream)
            && self
                .grep
                .as_ref()
                .is_none_or(|grep| memchr::memmem::find(text, grep.as_bytes()).is_some())
    }
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedLine {
    /// Its service, as a place in [`LogReader::services`].
    pub service: usize,
    /// What stands in front of it.
    pub head: LogHead,
    /// What was written, without its end.
    pub text: Vec<u8>,
}

/// Lines of the logs in a folder, oldest first, up to their end when it was opened.
#[derive(Debug)]
pub struct LogReader {
    folder: PathBuf,
    /// Whether services that come later belong to it.
    is_open: bool,
    query: Query,
    names: Vec<String>,
    sources: Vec<ServiceLines>,
}

#[derive(Debug)]
struct ServiceLines {
    lines: NumberedLines,
    /// The next line.
    next: Option<(LogHead, Vec<u8>)>,
    /// The number of the file that is read.
    number: Option<u64>,
    missed: u64,
    damaged: u64,
}

impl LogReader {
    /// Opens the logs of these services, or of all. Those that do not exist have no lines yet.
    pub fn open(folder: &Path, names: Option<Vec<String>>, query: Query) -> io::Result<Self> {
        let is_open = names.is_none();
        let mut reader = Self {
            folder: folder.to_owned(),
            is_open,
            query,
            names: Vec::new(),
            sources: Vec::new(),
        };
        for name in names.unwrap_or_else(|| services(folder)) {
            reader.add(name)?;
        }
        // A writer that is faster than this reader would never let it end.
        reader.sources.iter_mut().try_for_each(|source| source.lines.stop_at_present_end())?;
        match reader.query.lines_max {
            Some(lines_max) => reader.skip_to_last(lines_max)?,
            None => reader.skip_old()?,
        }
        Ok(reader)
    }

    /// The services, in the order in which lines count them.
    pub fn services(&self) -> &[String] {
        &self.names
    }

    /// The next line that is there; the oldest of all services.
    pub fn next_line(&mut self) -> io::Result<Option<LoggedLine>> {
        for source in &mut self.sources {
            source.fill(&self.query)?;
        }
        let heads = self.sources.iter().enumerate();
        let times = heads.filter_map(|(at, source)| Some((source.next.as_ref()?.0.time, at)));
        let Some((_, service)) = times.min() else { return Ok(None) };
        let next = self.sources[service].next.take();
        Ok(next.map(|(head, text)| LoggedLine { service, head, text }))
    }

    /// Files that were removed before they could be read, since this was last asked.
    pub fn take_missed(&mut self) -> u64 {
        self.sources.iter_mut().map(|source| std::mem::take(&mut source.missed)).sum()
    }

    /// Lines so far that are not in our form: torn, or edited.
    pub fn damaged(&self) -> u64 {
        self.sources.iter().map(|source| source.damaged).sum()
    }

    fn add(&mut self, name: String) -> io::Result<()> {
        let path = file_of(&self.folder, &name);
        let lines = NumberedLines::open(&path, BYTES_MAX)?;
        self.sources.push(ServiceLines { lines, next: None, number: None, missed: 0, damaged: 0 });
        self.names.push(name);
        Ok(())
    }

    /// Passes over files that were last written before what is wanted.
    fn skip_old(&mut self) -> io::Result<()> {
        let Some(since) = self.query.since else { return Ok(()) };
        let since = SystemTime::UNIX_EPOCH + since.since(Stamp::default());
        for file in self.sources.iter_mut().flat_map(|source| &mut source.lines.files) {
            let metadata = file.file().metadata()?;
            if metadata.modified()? < since {
                file.go_to(metadata.len())?;
            }
        }
        Ok(())
    }

    /// Goes to where the last so many lines begin.
    fn skip_to_last(&mut self, lines_max: usize) -> io::Result<()> {
        let mut ends: Vec<FromEnd> = Vec::new();
        for source in &self.sources {
            ends.push(FromEnd::new(&source.lines)?);
        }
        let mut found = 0;
        while found < lines_max {
            for (end, source) in ends.iter_mut().zip(&self.sources) {
                end.fill(&source.lines, &self.query)?;
            }
            let heads = ends.iter().enumerate();
            let times = heads.filter_map(|(at, end)| Some((end.next?.time, at)));
            let Some((_, newest)) = times.max() else { break };
            ends[newest].take();
            found += 1;
        }
        for (end, source) in ends.into_iter().zip(&mut self.sources) {
            let (at, offset) = end.taken;
            for file in source.lines.files.iter_mut().take(at) {
                let len = file.file().metadata()?.len();
                file.go_to(len)?;
            }
            if let Some(file) = source.lines.files.get_mut(at) {
                source.number = number_of(file.file());
                file.go_to(offset)?;
            }
        }
        Ok(())
    }
}

impl ServiceLines {
    /// Looks for the next line that is wanted.
    fn fill(&mut self, query: &Query) -> io::Result<()> {
        while self.next.is_none() {
            let line = match self.lines.next_line()? {
                Some(FileLine::Whole(line)) => line,
                Some(FileLine::TooLong) => {
                    self.damaged += 1;
                    continue;
                }
                None => return Ok(()),
            };
            if let Some((head, text)) = LogHead::parse(&line) {
                if query.wants(&head, text) {
                    self.next = Some((head, text.to_vec()));
                }
            } else if let Some(number) = parse_file_head(&line) {
                let before = self.number.replace(number).unwrap_or(number);
                self.missed += number.saturating_sub(before.saturating_add(1));
            } else {
                self.damaged += 1;
            }
        }
        Ok(())
    }
}

/// The same lines, and then each new one.
pub type LogFollower = FileFollower<LogReader>;

impl LogFollower {
    /// Opens the logs; see [`LogReader::open`].
    pub fn open(folder: &Path, names: Option<Vec<String>>, query: Query) -> io::Result<Self> {
        Self::watching(&folder.join("any"), || {
            let mut reader = LogReader::open(folder, names, query)?;
            let files = reader.sources.iter_mut().flat_map(|source| &mut source.lines.files);
            files.for_each(|file| file.end = None);
            Ok(reader)
        })
    }
}

impl FollowedFiles for LogReader {
    type Item = LoggedLine;

    fn next_item(&mut self) -> io::Result<Option<LoggedLine>> {
        self.next_line()
    }

    fn rescan(&mut self) -> io::Result<()> {
        for source in &mut self.sources {
            source.lines.rescan()?;
        }
        if self.is_open {
            for name in services(&self.folder) {
                if !self.names.contains(&name) {
                    self.add(name)?;
                }
            }
        }
        Ok(())
    }
}

/// The lines of one log from its end, to find where the last of them begin.
#[derive(Default)]
struct FromEnd {
    /// The file that is read, of those of its source; it goes down.
    at: usize,
    /// What was read of it, up to the end of the next line.
    block: Vec<u8>,
    /// Where that stands in the file.
    start: u64,
    /// The next line that is wanted, by its head.
    next: Option<LogHead>,
    /// Where it begins.
    next_place: (usize, u64),
    /// Where the last one that was taken begins: a file, and a place in it.
    taken: (usize, u64),
    is_at_begin: bool,
}

impl FromEnd {
    fn new(lines: &NumberedLines) -> io::Result<Self> {
        let at = lines.files.len().saturating_sub(1);
        let (taken, is_at_begin) = ((at, 0), lines.files.is_empty());
        let mut end = Self { at, taken, is_at_begin, ..Self::default() };
        if let Some(file) = lines.files.last() {
            end.open(file)?;
            // Nothing is taken yet; what has no end yet is for later.
            end.taken = (at, end.start + end.block.len() as u64);
        }
        Ok(end)
    }

    fn take(&mut self) {
        self.next = None;
        self.taken = self.next_place;
    }

    fn fill(&mut self, lines: &NumberedLines, query: &Query) -> io::Result<()> {
        while self.next.is_none() && !self.is_at_begin {
            let Some(file) = lines.files.get(self.at) else { return Ok(()) };
            match self.line_before(file.file())? {
                Some((offset, line)) => {
                    let Some((head, text)) = LogHead::parse(&line) else { continue };
                    if query.wants(&head, text) {
                        self.next = Some(head);
                        self.next_place = (self.at, offset);
                    } else if query.since.is_some_and(|since| head.time < since) {
                        self.is_at_begin = true;
                    }
                }
                None if self.at == 0 => self.is_at_begin = true,
                None => {
                    self.at -= 1;
                    self.open(&lines.files[self.at])?;
                }
            }
        }
        Ok(())
    }

    /// Begins at the end of a file; behind its last newline.
    fn open(&mut self, reader: &LineReader) -> io::Result<()> {
        self.start = reader.end()?;
        self.skip_line(reader.file())
    }

    /// Goes back to behind the next newline before what was read, of which nothing is kept.
    fn skip_line(&mut self, file: &File) -> io::Result<()> {
        self.block.clear();
        while self.start > 0 {
            self.read_more(file)?;
            if let Some(end) = memchr::memrchr(b'\n', &self.block) {
                self.block.truncate(end + 1);
                return Ok(());
            }
            self.block.clear();
        }
        Ok(())
    }

    /// The next line towards the beginning of the file, and where it begins.
    fn line_before(&mut self, file: &File) -> io::Result<Option<(u64, Vec<u8>)>> {
        loop {
            let Some(end) = self.block.len().checked_sub(1) else { return Ok(None) };
            let before = memchr::memrchr(b'\n', &self.block[..end]);
            if let Some(begin) = before.map(|at| at + 1).or((self.start == 0).then_some(0)) {
                let line = self.block[begin..end].to_vec();
                self.block.truncate(begin);
                return Ok(Some((self.start + begin as u64, line)));
            }
            if self.block.len() > BYTES_MAX {
                // None of ours: goes on at the end of the line before it.
                self.skip_line(file)?;
            } else {
                self.read_more(file)?;
            }
        }
    }

    fn read_more(&mut self, file: &File) -> io::Result<()> {
        let size = self.start.min(SERVICE_LOG_READ_BYTES as u64);
        let mut block = vec![0; usize::try_from(size).unwrap_or_default()];
        self.start -= size;
        os::read_exact_at(file, &mut block, self.start)?;
        block.extend_from_slice(&self.block);
        self.block = block;
        Ok(())
    }
}
