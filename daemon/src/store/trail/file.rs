//! Owns the trail's file, which other processes share: locked appends, rotation, sync; the
//! repair of a torn line is in `repair.rs`.
//!
//! Every append holds an exclusive lock on the file and checks that its path still leads to it, so
//! that no two processes rotate, and none appends to a file that was removed. The lock is not held
//! during a sync: it is free again after microseconds.

use std::fs::File;
use std::io;
use std::iter::successors;
use std::path::PathBuf;
use std::time::Duration;

use afresh_core::limits::TRAIL_LOCK_WAIT;
use afresh_core::time::Stamp;
use tokio::time::Instant;

use super::Settings;
use crate::os::{self, FileKind};
use crate::store::atomic_replace::without_unsupported;
use crate::store::lock::lock_patiently;
use crate::store::rotation::{ends_torn, rotate, write_lines};
use crate::store::workspace::make_state_folder;
use crate::write_path::WritePath;

/// The file of the trail, which may be away at times.
pub(super) struct TrailFile {
    settings: Settings,
    open: Option<OpenTrailFile>,
    /// Files that were written to and rotated since the last sync.
    unsynced: Vec<File>,
    /// The record of a repair that is still to be written.
    repaired: Option<String>,
    /// Why the file grows over its limit.
    pub(super) rotate_error: Option<io::Error>,
}

pub(super) struct OpenTrailFile {
    pub(super) file: File,
    /// The path without symbolic links: rotated files stand beside the file itself.
    real: WritePath,
    /// Not a device.
    is_regular: bool,
    is_written: bool,
    is_folder_synced: bool,
}

/// Why a record is not on disk.
#[derive(Debug, thiserror::Error)]
pub enum WriteTrailError {
    /// The trail's folder is gone and can't be made again.
    #[error("cannot create the folder `{0}`")]
    CreateFolder(PathBuf, #[source] io::Error),
    /// The file can't be opened.
    #[error("cannot open it")]
    Open(#[source] io::Error),
    /// The path leads to something that records can't be appended to.
    #[error("it is {0}, not a file")]
    NotAFile(&'static str),
    /// It has something else in it.
    #[error("it is no trail: it does not begin with a record, and is left alone")]
    NotATrail,
    /// The record can't be appended.
    #[error("cannot append to it")]
    Append(#[source] io::Error),
    /// The record was appended, but may not have reached the disk.
    #[error("cannot sync it")]
    Sync(#[source] io::Error),
}

impl TrailFile {
    pub(super) fn new(settings: Settings) -> Self {
        let (open, unsynced, repaired) = (None, Vec::new(), None);
        Self { settings, open, unsynced, repaired, rotate_error: None }
    }

    /// Appends the lines in order, and returns how many of them were. `stamp` is for a record of
    /// the trail's own, if one has to go before them.
    pub(super) fn append(
        &mut self,
        stamp: Stamp,
        lines: &[String],
    ) -> (usize, Result<(), WriteTrailError>) {
        let mut written = 0;
        while written < lines.len() {
            let result = self.lock_current().and_then(|is_locked| {
                let rest = &lines[written..];
                let result = self.append_locked(is_locked, stamp, rest, &mut written);
                if let Some(open) = self.open.as_ref().filter(|_| is_locked) {
                    // Closing the file frees the lock too.
                    open.file.unlock().ok();
                }
                result.map_err(WriteTrailError::Append)
            });
            if let Err(error) = result {
                return (written, Err(error));
            }
        }
        (written, Ok(()))
    }

    /// Brings to disk what was appended, names included.
    pub(super) fn sync(&mut self) -> Result<(), WriteTrailError> {
        let mut result = Ok(());
        for file in self.unsynced.drain(..) {
            result = result.and(without_unsupported(file.sync_data()));
        }
        if let Some(open) = self.open.as_mut().filter(|open| open.is_written) {
            result = result.and(without_unsupported(open.file.sync_data()));
            open.is_written = false;
            // Others may have created the file: every process makes sure of its name once.
            if open.is_regular && !open.is_folder_synced {
                let synced = open.real.in_folder(|folder, _| folder.sync());
                result = result.and(without_unsupported(synced));
                open.is_folder_synced = true;
            }
        }
        result.map_err(WriteTrailError::Sync)
    }

    /// Opens the file that the path leads to now, and locks it, if that can be had: its holder may be stopped, or the
    /// file system has no locks. Without the lock nothing may be cut or rotated.
    fn lock_current(&mut self) -> Result<bool, WriteTrailError> {
        let deadline = Instant::now() + TRAIL_LOCK_WAIT;
        // Other processes do not rotate that often.
        for _ in 0..1000 {
            let open = match self.open.take() {
                Some(open) => open,
                None => OpenTrailFile::new(&self.settings.path)?,
            };
            let pauses = successors(Some(Duration::from_micros(200)), |pause| {
                Some((*pause * 2).min(Duration::from_millis(5)))
            });
            let in_time = pauses.take_while(|_| Instant::now() < deadline);
            let is_locked = lock_patiently(&open.file, in_time).is_ok();
            if os::is_at_path(&open.file, self.settings.path.path()) {
                self.open = Some(open);
                return Ok(is_locked);
            }
            self.retire(open);
        }
        Err(WriteTrailError::Open(io::ErrorKind::NotFound.into()))
    }

    /// Lets go of a file that is no longer the current one.
    fn retire(&mut self, open: OpenTrailFile) {
        if open.is_written {
            open.file.unlock().ok();
            self.unsynced.push(open.file);
        }
    }

    fn append_locked(
        &mut self,
        is_locked: bool,
        stamp: Stamp,
        lines: &[String],
        written: &mut usize,
    ) -> io::Result<()> {
        let Some(open) = self.open.as_mut() else {
            return Ok(());
        };
        let may_cut = is_locked && open.is_regular;
        if may_cut {
            if let Some(line) = open.repair(stamp)? {
                self.repaired = Some(line);
            }
            if let Some(line) = &self.repaired {
                open.append_line(line, may_cut)?;
                self.repaired = None;
            }
        }
        for line in lines {
            let len = open.len()?;
            if may_cut && len > 0 && len + line.len() as u64 > self.settings.file_bytes_max {
                match rotate(&open.real, self.settings.files_kept.max(1)) {
                    Ok(()) => {
                        if let Some(open) = self.open.take() {
                            self.retire(open);
                        }
                        return Ok(());
                    }
                    // A file that is too long is better than a record that is lost.
                    Err(error) => self.rotate_error = Some(error),
                }
            }
            open.append_line(line, may_cut)?;
            *written += 1;
        }
        Ok(())
    }
}

/// Whether a file is empty or begins with a record: anything else is not ours, and a link in
/// a project that was merely cloned may lead to it.
fn begins_as_trail(file: &File) -> io::Result<bool> {
    const BEGINNING: &[u8] = br#"{"timestamp":""#;
    let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut start = [0; BEGINNING.len()];
    let start = &mut start[..len.min(BEGINNING.len())];
    os::read_exact_at(file, start, 0)?;
    Ok(BEGINNING.starts_with(start))
}

impl OpenTrailFile {
    fn new(path: &WritePath) -> Result<Self, WriteTrailError> {
        make_state_folder(path)
            .map_err(|error| WriteTrailError::CreateFolder(path.parent().to_owned(), error))?;
        // Opening it would create the file that it leads to, somewhere.
        let is_link = path.path().is_symlink();
        if is_link && path.path().metadata().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            return Err(WriteTrailError::NotAFile("a symbolic link to nothing"));
        }
        // Reading is for the repair.
        let file = path.open_to_append().map_err(|e| match e.kind() {
            io::ErrorKind::IsADirectory => WriteTrailError::NotAFile("a directory"),
            _ => WriteTrailError::Open(e),
        })?;
        let is_regular = match os::file_kind(&file).map_err(WriteTrailError::Open)? {
            FileKind::Regular => true,
            // A link to `/dev/null` is meant so.
            FileKind::CharacterDevice => false,
            FileKind::Fifo => return Err(WriteTrailError::NotAFile("a FIFO")),
            FileKind::Other => return Err(WriteTrailError::NotAFile("a socket or a block device")),
        };
        if is_regular && is_link {
            return Err(WriteTrailError::NotAFile("a symbolic link"));
        }
        if is_regular && !begins_as_trail(&file).map_err(WriteTrailError::Open)? {
            // In our own folder it is a trail that was damaged: kept, but out of the way.
            let own = path.parent().file_name().is_some_and(|name| name == ".afresh");
            if !own || path.rename(&path.suffixed(".damaged")).is_err() {
                return Err(WriteTrailError::NotATrail);
            }
            return Self::new(path);
        }
        Ok(Self {
            file,
            real: path.resolved().unwrap_or_else(|_| path.clone()),
            is_regular,
            is_written: false,
            is_folder_synced: false,
        })
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Appends a line with one `write`, so that not even appends without the lock tear it. What
    /// was written of a line that does not fit on the disk is cut off again.
    pub(super) fn append_line(&mut self, line: &str, may_cut: bool) -> io::Result<()> {
        let before = self.len()?;
        // Without the lock a torn line can't be cut off, but ours need not be joined to it.
        let is_torn = !may_cut && self.is_regular && ends_torn(&self.file)?;
        let line = if is_torn { &format!("\n{line}") } else { line };
        self.is_written = true;
        write_lines(&self.file, before, line.as_bytes(), may_cut).1
    }
}
