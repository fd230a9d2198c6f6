//! Reads one watched file: its metadata, and a checksum of its content.

use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use afresh_core::limits::WATCH_READ_BYTES_MAX;
use afresh_core::time::Stamp;
use afresh_core::watch::{ContentHash, FileFingerprint, Fingerprints};

use crate::os::{FileKind, file_kind, open_to_read};

/// Some file systems know only every second one.
const TIME_GRAIN: Duration = Duration::from_secs(2);

/// Whether a file is read even though its length and time are as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileReading {
    Always,
    IfNew,
}

/// Looks at a file. None where it is gone, or neither a file nor a link.
pub(super) fn look_at(
    real: &Path,
    shown: &Path,
    prints: &Fingerprints,
    reading: FileReading,
    cancelled: &AtomicBool,
) -> Option<FileFingerprint> {
    let own = fs::symlink_metadata(real).ok()?;
    if own.is_symlink() {
        // What a link leads to counts if it is a file; otherwise where it leads to.
        return match fs::metadata(real) {
            Ok(target) if target.is_file() => {
                of_file(real, shown, &target, prints, reading, cancelled)
            }
            _ => of_link(real),
        };
    }
    own.is_file().then(|| of_file(real, shown, &own, prints, reading, cancelled))?
}

fn of_file(
    real: &Path,
    shown: &Path,
    metadata: &Metadata,
    prints: &Fingerprints,
    reading: FileReading,
    cancelled: &AtomicBool,
) -> Option<FileFingerprint> {
    let (bytes, modified) = (metadata.len(), metadata.modified().ok());
    let stamp = modified.and_then(stamp);
    if reading == FileReading::IfNew
        && let Some(known) = prints.unchanged(shown, bytes, stamp)
    {
        return Some(known);
    }
    let age = modified.and_then(|modified| SystemTime::now().duration_since(modified).ok());
    let is_fresh = age.is_none_or(|age| age < TIME_GRAIN);
    let content = match bytes {
        0..=WATCH_READ_BYTES_MAX => match hash(real, cancelled) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => ContentHash::Unread,
        },
        _ => ContentHash::Unread,
    };
    Some(FileFingerprint { bytes, modified: stamp, content, is_fresh })
}

fn of_link(real: &Path) -> Option<FileFingerprint> {
    let target = fs::read_link(real).ok()?;
    let mut hasher = DefaultHasher::new();
    hasher.write(target.as_os_str().as_encoded_bytes());
    let content = ContentHash::Content(hasher.finish());
    Some(FileFingerprint { bytes: 0, modified: None, content, is_fresh: true })
}

/// The hash of what is in a file: fast, and the same in every process.
fn hash(path: &Path, cancelled: &AtomicBool) -> io::Result<ContentHash> {
    let file = open_to_read(path)?;
    if file_kind(&file)? != FileKind::Regular {
        return Ok(ContentHash::Unread);
    }
    let mut hasher = DefaultHasher::new();
    let mut chunk = vec![0; 64 * 1024];
    // It may grow while it is read.
    let mut file = file.take(WATCH_READ_BYTES_MAX + 1);
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(ContentHash::Content(hasher.finish())),
            Ok(length) => hasher.write(&chunk[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if cancelled.load(Ordering::Relaxed) {
            return Ok(ContentHash::Unread);
        }
    }
}

pub(super) fn stamp(time: SystemTime) -> Option<Stamp> {
    time.duration_since(UNIX_EPOCH).ok().map(Stamp::since_unix_epoch)
}
