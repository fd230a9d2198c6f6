//! Reads the lines of a file and of those that it was rotated to, while they are written and rotated. Driven
//! by the readers of the trail and of the logs. Never writes; `rotating.rs` does.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::rotating::{numbers, rotated};
use crate::os::{FileId, open_to_read};

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
                None => LineReader::new(id, file),
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

    /// Takes that back.
    pub(super) fn go_on(&mut self) {
        self.files.iter_mut().for_each(|file| file.end = None);
    }

    /// Files that end without the end of a line.
    pub(super) fn torn(&self) -> usize {
        self.files.iter().filter(|file| file.is_torn).count()
    }
}

/// Opens the files, newest first. A file that is rotated meanwhile moves to a higher number, where it
/// is found again but not taken twice: going upwards misses none.
fn open_files(path: &Path) -> io::Result<Vec<(FileId, File)>> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut files: Vec<(FileId, File)> = Vec::new();
    let rotations_meanwhile = 8;
    let highest = numbers(&path)?.into_iter().max().unwrap_or(0);
    for number in 0..=highest + rotations_meanwhile {
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

/// Reads one file line by line, and stays before a last line that has no end yet.
#[derive(Debug)]
pub(super) struct LineReader {
    id: FileId,
    file: BufReader<File>,
    /// The offset of the next line.
    offset: u64,
    /// Lines that begin behind this are not read.
    end: Option<u64>,
    is_torn: bool,
    is_gone: bool,
}

/// A line of a file.
#[derive(Debug)]
pub(super) enum FileLine {
    Whole(Vec<u8>),
    TooLong,
}

impl LineReader {
    fn new(id: FileId, file: File) -> Self {
        Self {
            id,
            file: BufReader::new(file),
            offset: 0,
            end: None,
            is_torn: false,
            is_gone: false,
        }
    }

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

    /// afresh only cuts a line that has no end yet, and that was not taken: so another program emptied the file.
    fn rewind_if_cut(&mut self) -> io::Result<()> {
        if self.file.get_ref().metadata()?.len() < self.offset {
            self.go_to(0)?;
        }
        Ok(())
    }
}
