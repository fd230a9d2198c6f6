//! Reads the lines of one log from its end, to find where the last of them begin. Driven by [`LogReader`].
//!
//! [`LogReader`]: super::read::LogReader

use std::fs::File;
use std::io;

use afresh_core::limits::SERVICE_LOG_READ_BYTES;
use afresh_core::log_line::LogHead;

use super::read::{BYTES_MAX, Query};
use crate::os;
use crate::store::numbered::{LineReader, NumberedLines};

/// The lines of one log, newest first.
pub(super) struct FromEnd {
    /// The file that is read, of those of its source; it goes down.
    at: usize,
    /// What was read of it, up to the end of the next line.
    block: Vec<u8>,
    /// Where that stands in the file.
    start: u64,
    /// The next line that is wanted, by its head.
    pub(super) next: Option<LogHead>,
    /// Where it begins.
    next_place: (usize, u64),
    /// Where the last one that was taken begins: a file, and a place in it.
    pub(super) taken: (usize, u64),
    is_at_begin: bool,
}

impl FromEnd {
    pub(super) fn new(lines: &NumberedLines) -> io::Result<Self> {
        let at = lines.files.len().saturating_sub(1);
        let mut end = Self {
            at,
            block: Vec::new(),
            start: 0,
            next: None,
            next_place: (at, 0),
            taken: (at, 0),
            is_at_begin: lines.files.is_empty(),
        };
        if let Some(file) = lines.files.last() {
            end.open(file)?;
            // Nothing is taken yet; what has no end yet is for later.
            end.taken = (at, end.start + end.block.len() as u64);
        }
        Ok(end)
    }

    pub(super) fn take(&mut self) {
        self.next = None;
        self.taken = self.next_place;
    }

    pub(super) fn fill(&mut self, lines: &NumberedLines, query: &Query) -> io::Result<()> {
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
        let file = reader.file();
        self.start = reader.end()?;
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
                // None of ours: only its end is remembered.
                self.block.drain(..end);
                self.start += end as u64;
                let newline = self.start;
                self.skip_line(file, newline)?;
            } else {
                self.read_more(file)?;
            }
        }
    }

    /// Goes to the end of the line before the one that is too long.
    fn skip_line(&mut self, file: &File, mut before: u64) -> io::Result<()> {
        while before > 0 {
            let size = before.min(SERVICE_LOG_READ_BYTES as u64);
            let mut block = vec![0; usize::try_from(size).unwrap_or_default()];
            before -= size;
            os::read_exact_at(file, &mut block, before)?;
            if let Some(end) = memchr::memrchr(b'\n', &block) {
                block.truncate(end + 1);
                (self.block, self.start) = (block, before);
                return Ok(());
            }
        }
        (self.block, self.start) = (Vec::new(), 0);
        Ok(())
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
