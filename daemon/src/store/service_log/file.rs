//! Owns one log file and those that it was rotated to, for its only writer. Driven by `writer.rs`. Never
//! follows a link.

use std::fs::{self, File};
use std::io;
use std::iter::repeat_n;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use afresh_core::definition::LogLimits;
use afresh_core::log_line::{LogHead, age_look_interval, file_head, parse_file_head};
use afresh_core::time::Stamp;

use crate::os::{self, FileKind};
use crate::store::lock::lock_patiently;
use crate::store::rotation::{ends_torn, numbers, rotate, rotated, write_lines};
use crate::store::workspace::make_state_folder;
use crate::write_path::WritePath;

/// A log file, which may be away at times.
#[derive(Debug, Default)]
pub(super) struct LogFile {
    pub(super) path: WritePath,
    limits: LogLimits,
    open: Option<OpenLogFile>,
    /// The number of the newest file, where it is known.
    number: Option<u64>,
}

#[derive(Debug)]
struct OpenLogFile {
    file: File,
    /// Held as long as it is open: no other process rotates or cuts.
    _lock: File,
    /// Where the first line begins, after the line that is the file's own.
    begin: u64,
    /// When its first line was written.
    first: Option<Stamp>,
    /// When the age of files is looked at next.
    look_at: Stamp,
    /// The last line has no end.
    is_torn: bool,
}

/// Why lines could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteLogError {
    #[error("cannot create the folder `{0}`")]
    CreateFolder(PathBuf, #[source] io::Error),
    #[error("it is {0}, not a file; remove it")]
    NotAFile(&'static str),
    #[error("another afresh writes it; give one of the two services another name")]
    Taken,
    #[error("cannot open it")]
    Open(#[source] io::Error),
    #[error("cannot append to it")]
    Append(#[source] io::Error),
    #[error("cannot be rotated, and has grown enough")]
    Rotate(#[source] io::Error),
}

impl LogFile {
    /// Appends whole lines, and returns how many bytes of them are in the file: all, or whole lines up
    /// to where it failed.
    pub(super) fn append(
        &mut self,
        now: Stamp,
        limits: LogLimits,
        lines: &[u8],
    ) -> (usize, Result<(), WriteLogError>) {
        self.limits = limits;
        let mut written = 0;
        while written < lines.len() {
            match self.append_some(now, &lines[written..]) {
                (some, Ok(())) => written += some,
                (some, Err(error)) => {
                    // The next one that is opened may be writable.
                    self.open = None;
                    return (written + some, Err(error));
                }
            }
        }
        (written, Ok(()))
    }

    /// Appends as many lines as fit into the file of the moment.
    fn append_some(&mut self, now: Stamp, lines: &[u8]) -> (usize, Result<(), WriteLogError>) {
        let len = match self.current(now) {
            Ok(len) => len,
            Err(error) => return (0, Err(error)),
        };
        let Some(open) = self.open.as_mut() else { return (0, Ok(())) };
        let room = self.limits.file_bytes_max.saturating_sub(len);
        let mut part = whole_lines(lines, room);
        if part == 0 && len > open.begin {
            let Err(error) = self.rotate() else { return (0, Ok(())) };
            // A file that is too long is better than lines that are lost, up to the room that all files
            // of this service may take.
            let files = u64::from(self.limits.files_kept) + 1;
            let room = self.limits.file_bytes_max.saturating_mul(files).saturating_sub(len);
            part = whole_lines(lines, room);
            if part == 0 {
                return (0, Err(WriteLogError::Rotate(error)));
            }
        }
        let Some(open) = self.open.as_mut() else { return (0, Ok(())) };
        if part == 0 {
            // A file has one line at least, however long it is.
            part = memchr::memchr(b'\n', lines).map_or(lines.len(), |end| end + 1);
        }
        let (written, result) = write_lines(&open.file, len, &lines[..part], true);
        if written > 0 {
            open.first.get_or_insert(now);
        }
        (written, result.map_err(WriteLogError::Append))
    }

    /// Makes sure that the file that the path leads to is open, and returns its length.
    fn current(&mut self, now: Stamp) -> Result<u64, WriteLogError> {
        // It may have been removed or moved.
        self.open = self.open.take().filter(|open| os::is_at_path(&open.file, self.path.path()));
        if let (Some(open), Some(age_max)) = (&mut self.open, self.limits.age_max)
            // The clock may have been set back since.
            && (now >= open.look_at || open.look_at.since(now) > age_look_interval(age_max))
        {
            open.look_at = now.later_by(age_look_interval(age_max));
            let is_old = open.first.is_some_and(|first| now.since(first) > age_max);
            if is_old && self.rotate().is_ok() {
                self.open = None;
            }
            self.sweep();
        }
        let open = match self.open.take() {
            Some(open) => open,
            None => self.open(now)?,
        };
        let open = self.open.insert(open);
        let mut len = open.file.metadata().map_err(WriteLogError::Append)?.len();
        if len == 0 {
            // New, or emptied by another program.
            let number = self.number.map_or(1, |number| number.saturating_add(1));
            let head = file_head(number);
            write_lines(&open.file, 0, head.as_bytes(), true).1.map_err(WriteLogError::Append)?;
            self.number = Some(number);
            (len, open.begin, open.first) = (head.len() as u64, head.len() as u64, None);
        }
        if open.is_torn {
            let text =
                b"[the line before this one was torn: afresh was killed, or the disk was full]";
            let stream = afresh_core::control::LogStream::Afresh;
            let mut note = b"\n".to_vec();
            LogHead { time: now, stream, generation: 0, continues: false }
                .write_lines(text, &mut note);
            write_lines(&open.file, len, &note, true).1.map_err(WriteLogError::Append)?;
            open.is_torn = false;
            len += note.len() as u64;
        }
        Ok(len)
    }

    fn open(&mut self, now: Stamp) -> Result<OpenLogFile, WriteLogError> {
        make_state_folder(&self.path)
            .map_err(|error| WriteLogError::CreateFolder(self.path.parent().to_owned(), error))?;
        let lock = self.lock()?;
        self.sweep();
        let file = open_regular(&self.path)?;
        let (file, begin, first) = match beginning(&file).map_err(WriteLogError::Open)? {
            FileStart::Not => (file, 0, None),
            FileStart::As { number, begin, first } => {
                self.number = Some(number);
                (file, begin, first)
            }
            // Not a log: kept as it is, with a number.
            FileStart::Otherwise => {
                drop(file);
                self.rotate().map_err(WriteLogError::Open)?;
                (open_regular(&self.path)?, 0, None)
            }
        };
        if self.number.is_none() {
            let older = os::open_to_read(&rotated(self.path.path(), 1)).ok();
            self.number = older.as_ref().and_then(number_of);
        }
        let is_torn = ends_torn(&file).map_err(WriteLogError::Open)?;
        Ok(OpenLogFile { file, _lock: lock, begin, first, look_at: now, is_torn })
    }

    /// Takes the right to write, which the system takes back when we end, however we do.
    fn lock(&self) -> Result<File, WriteLogError> {
        let file = open_regular(&self.path.suffixed(super::LOCK))?;
        // `is_written` holds it for a moment.
        match lock_patiently(&file, repeat_n(Duration::from_millis(1), 20)) {
            Err(fs::TryLockError::WouldBlock) => Err(WriteLogError::Taken),
            // A file system without locks has to do without.
            Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(file),
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        match self.limits.files_kept {
            0 => self.path.remove()?,
            kept => rotate(&self.path, kept)?,
        }
        self.open = None;
        Ok(())
    }

    /// Removes files that are too many or too old. One that can't be removed is tried again.
    fn sweep(&self) {
        let oldest = self.limits.age_max.and_then(|age| SystemTime::now().checked_sub(age));
        for number in numbers(self.path.path()).unwrap_or_default() {
            let path = self.path.suffixed(&format!(".{number}"));
            let written =
                fs::symlink_metadata(path.path()).and_then(|metadata| metadata.modified());
            let is_old = oldest.is_some_and(|oldest| written.is_ok_and(|at| at < oldest));
            if number > self.limits.files_kept || is_old {
                path.remove().ok();
            }
        }
    }
}

/// The beginning of a file.
enum FileStart {
    /// It is empty.
    Not,
    As {
        number: u64,
        begin: u64,
        first: Option<Stamp>,
    },
    Otherwise,
}

fn beginning(file: &File) -> io::Result<FileStart> {
    let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut bytes = [0; 256];
    let bytes = &mut bytes[..len.min(256)];
    os::read_exact_at(file, bytes, 0)?;
    let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
    let Some(first_line) = lines.next().filter(|line| !line.is_empty()) else {
        return Ok(if bytes.is_empty() { FileStart::Not } else { FileStart::Otherwise });
    };
    let Some(number) = parse_file_head(first_line) else { return Ok(FileStart::Otherwise) };
    let first = lines.next().and_then(LogHead::parse).map(|(head, _)| head.time);
    Ok(FileStart::As { number, begin: first_line.len() as u64 + 1, first })
}

/// The number of a file of a log.
pub(super) fn number_of(file: &File) -> Option<u64> {
    match beginning(file).ok()? {
        FileStart::As { number, .. } => Some(number),
        FileStart::Not | FileStart::Otherwise => None,
    }
}

/// Opens a file of ours to append.
fn open_regular(path: &WritePath) -> Result<File, WriteLogError> {
    let file = path.open_to_append().map_err(|error| match error.kind() {
        io::ErrorKind::IsADirectory => WriteLogError::NotAFile("a folder"),
        _ => WriteLogError::Open(error),
    })?;
    match os::file_kind(&file).map_err(WriteLogError::Open)? {
        FileKind::Regular => Ok(file),
        _ => Err(WriteLogError::NotAFile("a pipe or a device")),
    }
}

/// The bytes of the whole lines that fit into so many.
fn whole_lines(lines: &[u8], room: u64) -> usize {
    let room = usize::try_from(room).unwrap_or(usize::MAX).min(lines.len());
    memchr::memrchr(b'\n', &lines[..room]).map_or(0, |end| end + 1)
}
