//! Owns the restart marker on disk: overwritten by each restart, never deleted, never half written (R5).

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use afresh_core::audit::marker::{Marker, ParseMarkerError};
use afresh_core::limits::MARKER_BYTES_MAX;
use tokio::sync::oneshot;

use super::atomic_replace::{ReplaceFileError, Rights, replace_file};
use crate::os::open_to_read;
use crate::write_path::WritePath;

/// Why the marker could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteMarkerError {
    /// The system does not let us.
    #[error("cannot write the restart marker `{0}`")]
    Replace(PathBuf, #[source] ReplaceFileError),
    /// The file has something else in it, or cannot be read.
    #[error(
        "`{0}` is not a restart marker, and is left alone; remove it, or name another file by `marker_file` in \
         `[trail]`"
    )]
    NotAMarker(PathBuf),
}

/// Why there is no marker to be had.
#[derive(Debug, thiserror::Error)]
pub enum ReadMarkerError {
    /// No restart has been marked yet.
    #[error("restart marker `{0}` does not exist")]
    Missing(PathBuf),
    /// The file is something else.
    #[error("restart marker `{0}` is corrupt")]
    Corrupt(PathBuf, #[source] ParseMarkerError),
    /// The file can't be read.
    #[error("cannot read the restart marker `{0}`")]
    Io(PathBuf, #[source] io::Error),
}

/// Replaces the marker; it is on disk when this returns. Only a marker is ever replaced: any other file of that name is
/// the user's, or the project's.
pub fn write(path: &WritePath, marker: &Marker) -> Result<(), WriteMarkerError> {
    let place = || path.path().to_owned();
    let is_marker_or_none = match read(path.path()) {
        Ok(_) | Err(ReadMarkerError::Missing(_)) => true,
        Err(ReadMarkerError::Corrupt(..)) => false,
        // What else is wrong shows when it is replaced.
        Err(ReadMarkerError::Io(_, error)) => error.kind() != io::ErrorKind::PermissionDenied,
    };
    // A link in the way says more.
    if !is_marker_or_none && path.link().is_none() {
        return Err(WriteMarkerError::NotAMarker(place()));
    }
    replace_file(path, format!("{}\n", marker.to_json()).as_bytes(), Rights::Private)
        .map_err(|source| WriteMarkerError::Replace(place(), source))
}

/// Writes the marker in a thread of its own, so that a hung disk does not hang the loop; here,
/// where there can be no thread.
pub(crate) async fn write_apart(path: WritePath, mark: Marker) -> Result<(), WriteMarkerError> {
    let (sender, written) = oneshot::channel();
    let (path_there, mark_there) = (path.clone(), mark.clone());
    let thread = std::thread::Builder::new().name("marker".to_owned()).spawn(move || {
        // The caller is gone when the disk took too long.
        sender.send(write(&path_there, &mark_there)).ok();
    });
    match thread {
        Ok(_) => written.await.unwrap_or_else(|_| write(&path, &mark)),
        Err(_) => write(&path, &mark),
    }
}

/// Reads the marker.
pub fn read(path: &Path) -> Result<Marker, ReadMarkerError> {
    let mut bytes = Vec::new();
    let file = open_to_read(path);
    file.and_then(|file| file.take(MARKER_BYTES_MAX as u64).read_to_end(&mut bytes)).map_err(
        |source| match source.kind() {
            io::ErrorKind::NotFound => ReadMarkerError::Missing(path.to_owned()),
            _ => ReadMarkerError::Io(path.to_owned(), source),
        },
    )?;
    // What is too long was read only in part, and so is no JSON.
    Marker::parse(&String::from_utf8_lossy(&bytes))
        .map_err(|source| ReadMarkerError::Corrupt(path.to_owned(), source))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::clock::now;
    use crate::error_chain::chain;
    use crate::store::testing::TempDir;

    #[test]
    fn a_marker_is_replaced_and_read_back() {
        let dir = TempDir::new();
        let path = dir.join("state/restart_marker.json");
        assert!(matches!(read(&path), Err(ReadMarkerError::Missing { .. })));
        for reason in ["first", "second"] {
            let marker = Marker::new(now(), 7, reason);
            write(&WritePath::named(&path), &marker).unwrap();
            assert_eq!(read(&path).unwrap(), marker);
        }
        assert_eq!(fs::read_dir(dir.join("state")).unwrap().count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "its reasons are as private as the trail");
        }
    }

    #[test]
    fn leftovers_of_dead_writers_are_removed() {
        let dir = TempDir::new();
        let old = SystemTime::now() - Duration::from_secs(120);
        for (name, modified) in [
            (".m.json.1.0.tmp", old),
            (".m.json.2.0.tmp", SystemTime::now()),
            (".m.json.x.tmp", old),
            (".other.json.1.0.tmp", old),
        ] {
            let file = File::create(dir.join(name)).unwrap();
            file.set_modified(modified).unwrap();
        }
        write(&WritePath::named(dir.join("m.json")), &Marker::new(now(), 7, "")).unwrap();
        let mut names: Vec<_> = fs::read_dir(dir.join(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let kept = [".m.json.2.0.tmp", ".m.json.x.tmp", ".other.json.1.0.tmp", "m.json"];
        assert_eq!(names, kept);
    }

    #[test]
    fn what_is_no_marker_gives_a_clear_error() {
        let dir = TempDir::new();
        let path = dir.join("m.json");
        fs::create_dir(&path).unwrap();
        let error = write(&WritePath::named(&path), &Marker::new(now(), 7, "")).unwrap_err();
        assert!(chain(&error).ends_with("is a directory"), "{}", chain(&error));
        assert!(matches!(read(&path), Err(ReadMarkerError::Io { .. })));
        fs::remove_dir(&path).unwrap();
        for content in ["", "{\"timestamp\":", "\0\0\0", "{\"name\": \"app\"}", "export A=1\n"] {
            fs::write(&path, content).unwrap();
            assert!(matches!(read(&path), Err(ReadMarkerError::Corrupt { .. })));
            let written = write(&WritePath::named(&path), &Marker::new(now(), 7, ""));
            assert!(matches!(written, Err(WriteMarkerError::NotAMarker(_))), "{written:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), content, "it is left alone");
        }
        // A file where the folder should be fails for root too.
        let error =
            write(&WritePath::named(path.join("m.json")), &Marker::new(now(), 7, "")).unwrap_err();
        assert!(chain(&error).contains("cannot create"), "{}", chain(&error));
    }
}
