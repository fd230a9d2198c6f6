//! Replaces a small file atomically: readers, and a machine that dies, find the old or the new one.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use afresh_core::limits::MARKER_LEFTOVER_AGE;

use crate::os;

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
    path: &Path,
    content: &[u8],
    rights: Rights<'_>,
) -> Result<(), ReplaceFileError> {
    let error = |step: &'static str, path: &Path| {
        let path = path.to_owned();
        move |source| ReplaceFileError { step, path, source }
    };
    if path.is_dir() {
        return Err(error("write", path)(io::ErrorKind::IsADirectory.into()));
    }
    let folder = folder_of(path);
    fs::create_dir_all(folder).map_err(error("create", folder))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    remove_leftovers(folder, &name);

    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!(".{name}.{}.{count}.tmp", std::process::id()));
    let write = |mut file: File| {
        if let Rights::Like(old) = rights {
            os::keep_owner(&file, old)?;
            file.set_permissions(old.permissions())?;
        }
        file.write_all(content)?;
        file.sync_all()
    };
    let created = match rights {
        Rights::Private => os::create_private(&temporary),
        Rights::Usual | Rights::Like(_) => File::create_new(&temporary),
    };
    let written = created
        .and_then(write)
        .map_err(error("write", &temporary))
        .and_then(|()| fs::rename(&temporary, path).map_err(error("replace", path)));
    if written.is_err() {
        // The first error says more than one about the cleaning up.
        fs::remove_file(&temporary).ok();
    }
    written?;
    sync_folder(folder).map_err(error("sync", folder))
}

/// The folder that a file is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    without_unsupported(os::sync_folder(folder))
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
fn remove_leftovers(folder: &Path, name: &str) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let is_old = entry.metadata().and_then(|metadata| metadata.modified()).is_ok_and(|at| {
            SystemTime::now().duration_since(at).is_ok_and(|age| age > MARKER_LEFTOVER_AGE)
        });
        if is_temporary(&entry.file_name().to_string_lossy(), name) && is_old {
            fs::remove_file(entry.path()).ok();
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
