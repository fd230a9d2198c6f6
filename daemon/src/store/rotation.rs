//! Rotates files: `FILE` becomes `FILE.1`, that `FILE.2`, …; the higher the number, the older. Used by the
//! writers of the trail, of the logs of services and of our own log. Never reads a file's lines.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::atomic_replace::folder_of;
use crate::os::{cut, read_exact_at};
use crate::write_path::{WritePath, suffixed};

/// The path of a rotated file.
pub(crate) fn rotated(path: &Path, number: u32) -> PathBuf {
    suffixed(path.as_os_str(), &format!(".{number}")).into()
}

/// Makes room at `path`. Files only ever move to a higher number, the highest first: a reader that
/// goes from low to high misses none.
pub(super) fn rotate(path: &WritePath, files_kept: u32) -> io::Result<()> {
    path.in_folder(|folder, name| {
        let rotated = |number: u32| suffixed(name, &format!(".{number}"));
        // A rotation that was killed left a gap; it ends there.
        let top = (1..files_kept).find(|number| !folder.has(&rotated(*number)));
        for number in (1..top.unwrap_or(files_kept)).rev() {
            folder.rename(&rotated(number), &rotated(number + 1))?;
        }
        folder.rename(name, &rotated(1))
    })
}

/// The numbers of the rotated files that exist.
pub(super) fn numbers(path: &Path) -> io::Result<Vec<u32>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let entries = match fs::read_dir(folder_of(path)) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let numbers = entries.flatten().filter_map(|entry| {
        let entry = entry.file_name().into_string().ok()?;
        let number: u32 = entry.strip_prefix(&name)?.strip_prefix('.')?.parse().ok()?;
        // A higher number is not a rotated file.
        (1..10_000).contains(&number).then_some(number)
    });
    Ok(numbers.collect())
}

/// Whether the last line of a file has no end.
pub(super) fn ends_torn(file: &File) -> io::Result<bool> {
    let mut last = [b'\n'];
    let len = file.metadata()?.len();
    if len > 0 {
        read_exact_at(file, &mut last, len - 1)?;
    }
    Ok(last != *b"\n")
}

/// Appends whole lines to a file of this length, and returns how many bytes of them stay. Where not all of them fit on
/// the disk, a line of which only a part was written is cut off again. Without `may_cut`, as other processes append
/// too, all goes out with one `write`: the rest would not stand where it belongs.
pub(super) fn write_lines(
    mut file: &File,
    len: u64,
    lines: &[u8],
    may_cut: bool,
) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < lines.len() {
        let error = match file.write(&lines[written..]) {
            Ok(count) if written + count == lines.len() => break,
            // On a full disk the rest fails, and says why.
            Ok(count) if count > 0 && may_cut => {
                written += count;
                continue;
            }
            Ok(_) => io::ErrorKind::WriteZero.into(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => error,
        };
        let whole = memchr::memrchr(b'\n', &lines[..written]).map_or(0, |end| end + 1);
        let is_end = |metadata: fs::Metadata| metadata.len() == len + written as u64;
        if may_cut && whole < written && file.metadata().is_ok_and(is_end) {
            // A line that stays torn is mended when the file is opened again.
            cut(file, len + whole as u64).ok();
        }
        return (whole, Err(error));
    }
    (lines.len(), Ok(()))
}

/// A file that is appended to and never grows without end: a full one is rotated, and one is kept.
#[derive(Debug)]
pub(crate) struct RotatingFile {
    path: WritePath,
    file: File,
    bytes: u64,
    bytes_max: u64,
    /// The last line was not written whole.
    is_torn: bool,
}

/// Why it could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to `{path}`")]
pub struct OpenFileError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl RotatingFile {
    pub(crate) fn open(path: &WritePath, bytes_max: u64) -> Result<Self, OpenFileError> {
        let open = || {
            let file = path.open_to_append()?;
            let bytes = file.metadata()?.len();
            Ok(Self { path: path.clone(), file, bytes, bytes_max, is_torn: false })
        };
        open().map_err(|source| OpenFileError { path: path.path().to_owned(), source })
    }

    /// Appends whole lines. What follows a line that the disk did not take whole begins a new one.
    pub(crate) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.write_all(b"\n")?;
        }
        let before = self.bytes;
        let written = self.write_all(lines);
        self.is_torn = written.is_err() && self.bytes != before;
        written
    }
}

impl Write for RotatingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes > 0 && self.bytes + bytes.len() as u64 > self.bytes_max {
            rotate(&self.path, 1)?;
            self.file = self.path.open_to_append()?;
            self.bytes = 0;
        }
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes to a stream, and the same to a file. The file goes on when the stream's reader is gone, and
/// the stream when the disk is full.
#[derive(Debug)]
pub(crate) struct Tee<S> {
    stream: Option<S>,
    file: Option<RotatingFile>,
    /// It was said that the file cannot be written.
    is_said: bool,
}

impl<S> Tee<S> {
    pub(crate) fn new(stream: S, file: Option<RotatingFile>) -> Self {
        Self { stream: Some(stream), file, is_said: false }
    }
}

impl<S: Write> Write for Tee<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = Ok(bytes.len());
        if let Some(stream) = &mut self.stream {
            written = stream.write(bytes);
            let gone = |error: &io::Error| {
                error.kind() == io::ErrorKind::BrokenPipe && self.file.is_some()
            };
            if written.as_ref().is_err_and(gone) {
                self.stream = None;
                written = Ok(bytes.len());
            }
        }
        if let (Ok(count), Some(file)) = (&written, &mut self.file) {
            // A full disk must not stop the log that people see, and is said there.
            let kept = file.append(&bytes[..*count]);
            if let (Err(error), false, Some(stream)) = (&kept, self.is_said, &mut self.stream) {
                let text = format!("the log file cannot be written: {error}");
                writeln!(stream, "[{}] [SUPERVISOR] {text}", crate::clock::now()).ok();
            }
            self.is_said = kept.is_err();
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.as_mut().map_or(Ok(()), Write::flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::TempDir;

    #[test]
    fn a_full_file_makes_room() {
        let folder = TempDir::new();
        let path = folder.join("log");
        let mut file = RotatingFile::open(&WritePath::named(&path), 10).expect("it opens");
        for text in ["12345\n", "1234\n", "x\n", "a line that is longer than the file may be\n"] {
            file.write_all(text.as_bytes()).expect("it is written");
        }
        let older = fs::read_to_string(folder.join("log.1")).expect("there is one");
        assert_eq!(older, "1234\nx\n");
        let now = fs::read_to_string(&path).expect("there is one");
        assert!(now.starts_with("a line"), "{now}");
        assert!(RotatingFile::open(&WritePath::named(folder.join("no/such/folder")), 10).is_err());
    }

    #[test]
    fn the_file_goes_on_when_the_reader_is_gone() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let folder = TempDir::new();
        let path = folder.join("log");
        let mut tee = Tee::new(Gone, RotatingFile::open(&WritePath::named(&path), 1_000).ok());
        tee.write_all(b"one\n").expect("the file takes it");
        tee.write_all(b"two\n").expect("the file takes it");
        assert_eq!(fs::read_to_string(&path).expect("there is one"), "one\ntwo\n");
        assert!(Tee::new(Gone, None).write_all(b"x").is_err());
    }
}
