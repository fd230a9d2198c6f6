//! Owns the output that an instance prints while there is no supervisor: files written by its guardian, and
//! read by the next supervisor. Never keeps more than `SPILL_BYTES_MAX`.
//!
//! There are two files, of half of the room each. When the newer one is full, the older one goes. They
//! have no name, so that nothing stays on the disk when the last descriptor is closed.
//!
//! Each begins with how far it has been read, for each stream: a supervisor that is killed while it reads
//! leaves the rest to the next, as it does with a pipe.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use afresh_core::control::LogStream;
use afresh_core::limits::{PIPE_CHUNK_BYTES, SPILL_BYTES_MAX};
use tokio::sync::oneshot;

/// At the beginning of a file: two offsets.
const PROGRESS_BYTES: u64 = 16;

/// In front of each chunk: which stream it is of, and its length.
const HEADER_BYTES: u64 = 5;

/// The guardian's end.
#[derive(Debug)]
pub(super) struct OutputSpool {
    folder: PathBuf,
    older: Option<SpoolFile>,
    newer: Option<SpoolFile>,
    half_bytes_max: u64,
    /// Bytes of output that had no room.
    pub(super) lost: u64,
}

#[derive(Debug)]
struct SpoolFile {
    file: File,
    length: u64,
    /// Without the headers.
    output_bytes: u64,
}

impl OutputSpool {
    pub(super) fn new(folder: &Path) -> Self {
        let half_bytes_max = SPILL_BYTES_MAX / 2;
        Self { folder: folder.to_owned(), older: None, newer: None, half_bytes_max, lost: 0 }
    }

    /// Writes a chunk of output, which is at most [`PIPE_CHUNK_BYTES`] long.
    pub(super) fn write(&mut self, stream: LogStream, bytes: &[u8]) {
        let needed = HEADER_BYTES + bytes.len() as u64;
        if self.newer.as_ref().is_some_and(|half| half.length + needed > self.half_bytes_max) {
            let dropped = std::mem::replace(&mut self.older, self.newer.take());
            self.lost += dropped.map_or(0, |half| half.output_bytes);
        }
        if self.append(stream, bytes).is_err() {
            // A service must not wait for a disk that is full: better to lose its output, and say so.
            self.lost += bytes.len() as u64;
        }
    }

    fn append(&mut self, stream: LogStream, bytes: &[u8]) -> io::Result<()> {
        let half = match &mut self.newer {
            Some(half) => half,
            None => {
                let file = unnamed_file(&self.folder)?;
                file.write_all_at(&[PROGRESS_BYTES.to_le_bytes(); 2].concat(), 0)?;
                self.newer.insert(SpoolFile { file, length: PROGRESS_BYTES, output_bytes: 0 })
            }
        };
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        let kind = kind_of(stream);
        let chunk = [&[kind], &length[..], bytes].concat();
        // What is only half written is not counted, and written over by the next.
        half.file.write_all_at(&chunk, half.length)?;
        half.length += chunk.len() as u64;
        half.output_bytes += bytes.len() as u64;
        Ok(())
    }

    /// The files, the older one first.
    pub(super) fn files(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [&self.older, &self.newer].map(|half| half.as_ref().map(|half| half.file.as_fd()))
    }

    /// Begins anew: all of it was passed on.
    pub(super) fn clear(&mut self) {
        (self.older, self.newer, self.lost) = (None, None, 0);
    }
}

fn unnamed_file(folder: &Path) -> io::Result<File> {
    // Guardians have one thread, and each its own number.
    let path = folder.join(format!("output-{}", std::process::id()));
    // A file of this name was left by a guardian that was killed before it could remove it.
    fs::remove_file(&path).ok();
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// The supervisor's end: what was written, until it is passed on.
#[derive(Debug)]
pub(crate) struct SpooledOutput {
    files: Vec<File>,
    /// Dropped with the last reader.
    _taken: oneshot::Sender<()>,
}

impl SpooledOutput {
    /// Reads from these files. The receiver resolves when the last reader is dropped.
    pub(super) fn new(files: Vec<OwnedFd>) -> (Arc<Self>, oneshot::Receiver<()>) {
        let (taken, is_taken) = oneshot::channel();
        let files = files.into_iter().map(File::from).collect();
        (Arc::new(Self { files, _taken: taken }), is_taken)
    }
}

/// Notes that a chunk is passed on.
pub(crate) type ProgressNote = Box<dyn FnOnce() + Send>;

/// Reads the spooled output of one stream of an instance, before its pipe is read again.
#[derive(Debug)]
pub(crate) struct SpoolReader {
    spool: Arc<SpooledOutput>,
    stream: LogStream,
    file: usize,
    /// The offset of the next chunk; none where the file has it.
    offset: Option<u64>,
}

impl SpoolReader {
    pub(super) const fn new(spool: Arc<SpooledOutput>, stream: LogStream) -> Self {
        Self { spool, stream, file: 0, offset: None }
    }

    /// The next chunk, and what is to be called when it is passed on: the next supervisor does not need it then,
    /// should this one be killed. None at the end, or where the files are not what they should be.
    pub(crate) fn next(&mut self) -> Option<(Vec<u8>, ProgressNote)> {
        loop {
            let file = self.spool.files.get(self.file)?;
            if let Ok(Some((bytes, offset))) = read_chunk(file, self.stream, self.offset) {
                self.offset = Some(offset);
                let (spool, stream, file) = (self.spool.clone(), self.stream, self.file);
                let note = move || {
                    // Where it fails, the next one passes it on again.
                    let progress = offset.to_le_bytes();
                    spool.files[file].write_all_at(&progress, progress_at(stream)).ok();
                };
                return Some((bytes, Box::new(note)));
            }
            (self.file, self.offset) = (self.file + 1, None);
        }
    }
}

/// The offset in a file of the progress of a stream.
fn progress_at(stream: LogStream) -> u64 {
    u64::from(kind_of(stream)) * 8
}

fn kind_of(stream: LogStream) -> u8 {
    u8::from(stream == LogStream::Stderr)
}

/// Reads on at an offset, or where it was read before. Returns how far it is read then.
fn read_chunk(
    file: &File,
    stream: LogStream,
    offset: Option<u64>,
) -> io::Result<Option<(Vec<u8>, u64)>> {
    let mut progress = [0; 8];
    file.read_exact_at(&mut progress, progress_at(stream))?;
    let mut offset = offset.unwrap_or(u64::from_le_bytes(progress));
    loop {
        let mut header = [0; HEADER_BYTES as usize];
        file.read_exact_at(&mut header, offset)?;
        let [kind, length @ ..] = header;
        let length = u32::from_le_bytes(length) as usize;
        if length > PIPE_CHUNK_BYTES {
            return Ok(None);
        }
        let begin = offset.saturating_add(HEADER_BYTES);
        offset = begin.saturating_add(length as u64);
        if kind == kind_of(stream) {
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, begin)?;
            return Ok(Some((bytes, offset)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::TempDir;

    fn read(spool: &OutputSpool, stream: LogStream) -> Vec<u8> {
        let files = spool.files().into_iter().flatten();
        let files = files.map(|file| file.try_clone_to_owned().unwrap()).collect();
        let (spool, mut taken) = SpooledOutput::new(files);
        let mut earlier = SpoolReader::new(spool, stream);
        let mut all = Vec::new();
        while let Some((bytes, note_progress)) = earlier.next() {
            all.extend(bytes);
            note_progress();
        }
        assert_eq!(taken.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        drop(earlier);
        assert_eq!(taken.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        all
    }

    #[test]
    fn each_stream_comes_back_in_order() {
        let folder = TempDir::new();
        let mut spool = OutputSpool::new(&folder.join(""));
        spool.write(LogStream::Stdout, b"one ");
        spool.write(LogStream::Stderr, b"error");
        spool.write(LogStream::Stdout, b"two");
        assert_eq!(read(&spool, LogStream::Stdout), b"one two");
        assert_eq!(read(&spool, LogStream::Stderr), b"error");
        spool.write(LogStream::Stdout, b"three");
        assert_eq!(read(&spool, LogStream::Stdout), b"three", "nothing is read twice");
        assert_eq!(read(&spool, LogStream::Stderr), b"");
        assert_eq!(fs::read_dir(folder.join("")).unwrap().count(), 0, "the files have no name");
        spool.clear();
        assert_eq!(read(&spool, LogStream::Stdout), b"");
    }

    #[test]
    fn the_oldest_half_goes_when_there_is_no_room_and_is_counted() {
        let folder = TempDir::new();
        let mut spool = OutputSpool { half_bytes_max: 60, ..OutputSpool::new(&folder.join("")) };
        let lines: Vec<String> = (0..40).map(|n| format!("line {n:04}\n")).collect();
        for line in &lines {
            spool.write(LogStream::Stdout, line.as_bytes());
        }
        let kept = read(&spool, LogStream::Stdout);
        let all = lines.concat();
        assert!(all.as_bytes().ends_with(&kept), "{}", String::from_utf8_lossy(&kept));
        assert_eq!(spool.lost + kept.len() as u64, all.len() as u64);
        assert!((20..=80).contains(&kept.len()), "{}", kept.len());
    }

    #[test]
    fn without_a_folder_output_is_lost_and_counted() {
        let folder = TempDir::new();
        let mut spool = OutputSpool::new(&folder.join("nowhere"));
        spool.write(LogStream::Stdout, b"12345");
        assert_eq!((spool.lost, spool.files().into_iter().flatten().count()), (5, 0));
    }

    #[test]
    fn files_that_are_garbage_are_at_their_end() {
        let folder = TempDir::new();
        let file = unnamed_file(&folder.join("")).unwrap();
        file.write_all_at(&[0xff; 64], PROGRESS_BYTES).unwrap();
        file.write_all_at(&PROGRESS_BYTES.to_le_bytes(), 0).unwrap();
        file.write_all_at(&u64::MAX.to_le_bytes(), 8).unwrap();
        let (spool, _taken) = SpooledOutput::new(vec![file.into()]);
        for stream in [LogStream::Stdout, LogStream::Stderr] {
            assert!(SpoolReader::new(spool.clone(), stream).next().is_none());
        }
    }
}
