//! Replaces a small file atomically: readers, and a machine that dies, find the old or the new one.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use afresh_core::limits::MARKER_LEFTOVER_AGE;

use crate::os::{self, Folder};
use crate::write_path::WritePath;

/// Why a file could not be replaced.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} `{path}`")]
pub struct ReplaceFileError {
    step: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// The rights of the new file.
#[derive(Clone, Copy)]
pub(crate) enum Rights<'a> {
    Usual,
    /// This user's alone.
    Private,
    /// The owner and the rights of the file before, which it has before anything is in it.
    Like(&'a Metadata),
}

/// Writes a temporary file beside `path`, syncs it, renames it over `path` and syncs the folder,
/// which is created if need be.
pub(crate) fn replace_file(
    path: &WritePath,
    content: &[u8],
    rights: Rights<'_>,
) -> Result<(), ReplaceFileError> {
    let error = |step: &'static str, path: &Path| {
        let path = path.to_owned();
        move |source| ReplaceFileError { step, path, source }
    };
    if path.path().is_dir() {
        return Err(error("write", path.path())(io::ErrorKind::IsADirectory.into()));
    }
    // Replacing a link would follow nothing, but it may not be ours to remove.
    if let Some(link) = path.link_error() {
        return Err(error("write", path.path())(link));
    }
    path.make_parents().map_err(error("create", path.parent()))?;
    // The folder is opened once, and all happens in that one.
    path.in_folder(|folder, name| {
        remove_leftovers(path.parent(), folder, &name.to_string_lossy());
        write_and_rename(folder, name, content, rights)?;
        without_unsupported(folder.sync())
    })
    .map_err(error("write", path.path()))
}

fn write_and_rename(
    folder: &Folder,
    name: &OsStr,
    content: &[u8],
    rights: Rights<'_>,
) -> io::Result<()> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let temporary = format!(".{}.{}.{count}.tmp", name.to_string_lossy(), std::process::id());
    let temporary = OsStr::new(&temporary);
    let write = |mut file: File| {
        if let Rights::Like(old) = rights {
            os::keep_owner(&file, old)?;
            file.set_permissions(old.permissions())?;
        }
        file.write_all(content)?;
        file.sync_all()
    };
    let created = match rights {
        Rights::Private => folder.create_private(temporary),
        Rights::Usual | Rights::Like(_) => folder.create(temporary),
    };
    let written = created.and_then(write).and_then(|()| folder.rename(temporary, name));
    if written.is_err() {
        // The first error says more than one about the cleaning up.
        folder.remove(temporary).ok();
    }
    written
}

/// The folder that a file is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Some devices and file systems have nothing to sync, and say so.
pub(super) fn without_unsupported(synced: io::Result<()>) -> io::Result<()> {
    match synced {
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            Ok(())
        }
        other => other,
    }
}

/// Removes the temporary files of writers that died. What can't be removed is tried again next time.
fn remove_leftovers(path: &Path, folder: &Folder, name: &str) {
    let Ok(entries) = fs::read_dir(path) else {
        return;
    };
    for entry in entries.flatten() {
        let is_old = entry.metadata().and_then(|metadata| metadata.modified()).is_ok_and(|at| {
            SystemTime::now().duration_since(at).is_ok_and(|age| age > MARKER_LEFTOVER_AGE)
        });
        if is_temporary(&entry.file_name().to_string_lossy(), name) && is_old {
            folder.remove(&entry.file_name()).ok();
        }
    }
}

/// Whether a file has a name that `replace_file` gives: `.NAME.PID.COUNT.tmp`.
fn is_temporary(file: &str, name: &str) -> bool {
    let numbers = file
        .strip_prefix('.')
        .and_then(|rest| rest.strip_prefix(name)?.strip_prefix('.')?.strip_suffix(".tmp"))
        .and_then(|numbers| numbers.split_once('.'));
    numbers.is_some_and(|(pid, count)| pid.parse::<u32>().is_ok() && count.parse::<u32>().is_ok())
}
