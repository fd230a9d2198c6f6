//! Owns the folder in which a supervisor finds what an earlier one of the workspace has left: a lock that
//! the warden and all guardians hold, and the socket of a warden that outlives its supervisor. Used before
//! anything starts. Never ends a process itself.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use afresh_core::limits::{ORPHANED_GRACE, SWEEP_MAX, SWEEP_PAUSE};
use tokio::time::{Instant, sleep};

use super::handover_protocol::{VisitorRequest, WardenConnection, millis};
use super::os::short_path;
use super::{AbandonedWarden, HandoverFolderError};
use crate::os::{make_private, not_ours_alone};

/// The name of the socket in the folder.
pub(super) const SOCKET: &str = "warden.sock";

/// The name of the lock in the folder.
const LOCK: &str = "warden.lock";

/// A folder of a workspace, always the same: otherwise no earlier supervisor would be found.
#[derive(Clone, Debug)]
pub(crate) struct HandoverFolder {
    path: PathBuf,
}

/// The lock of the folder. Inherited by the warden and, when they are forked, by all guardians; it is free
/// again when the last of them is gone.
#[derive(Debug)]
pub(crate) struct FolderLock(pub(super) File);

impl HandoverFolder {
    /// Makes the folder, for this user alone, where it is not there yet.
    pub(crate) fn open(folder: &Path) -> Result<Self, HandoverFolderError> {
        let failed = |source| HandoverFolderError::Folder { path: folder.to_owned(), source };
        let mut builder = DirBuilder::new();
        make_private(&mut builder);
        match builder.create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        let metadata = fs::symlink_metadata(folder).map_err(failed)?;
        let wrong = match () {
            () if metadata.is_symlink() => Some("is a link"),
            () if !metadata.is_dir() => Some("is not a folder"),
            () => not_ours_alone(&metadata),
        };
        match wrong {
            Some(what) => Err(HandoverFolderError::NotOurs { path: folder.to_owned(), what }),
            // The warden has another working folder.
            None => Ok(Self { path: fs::canonicalize(folder).map_err(failed)? }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }

    /// Takes the lock; none where a warden or guardian of an earlier supervisor still holds it.
    fn try_lock(&self) -> Result<Option<FolderLock>, HandoverFolderError> {
        let path = self.path.join(LOCK);
        let failed = |source| HandoverFolderError::Lock { path: path.clone(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(nix::libc::O_NOFOLLOW).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(FolderLock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Listens for the next supervisor. The caller holds the lock, so a file of that name is left over.
    pub(super) fn listen(&self) -> io::Result<OwnedFd> {
        let (named, unnamed) = (self.socket(), self.path.join("warden.new"));
        for left in [&named, &unnamed] {
            fs::remove_file(left).ok();
        }
        let open = File::open(&self.path)?;
        let short = short_path(&open, "warden.new");
        let listener = UnixListener::bind(short.as_ref().unwrap_or(&unnamed))?;
        fs::set_permissions(&unnamed, fs::Permissions::from_mode(0o600))?;
        fs::rename(&unnamed, &named)?;
        listener.set_nonblocking(true)?;
        Ok(listener.into())
    }
}

/// Waits until all wardens and guardians of earlier supervisors are gone, and with them all that they
/// guarded, for this long at most. Nothing may be started before.
pub(super) async fn wait_until_free(
    folder: &HandoverFolder,
    patience: Duration,
) -> Result<FolderLock, HandoverFolderError> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(lock) = folder.try_lock()? {
            return Ok(lock);
        }
        if deadline <= Instant::now() {
            return Err(HandoverFolderError::StillThere { path: folder.path.clone() });
        }
        sleep(SWEEP_PAUSE).await;
    }
}

/// Ends the services that are kept in this folder: SIGTERM, this long, SIGKILL. Waits until all are gone.
pub(super) async fn end_kept(
    folder: &HandoverFolder,
    grace: Duration,
) -> Result<FolderLock, HandoverFolderError> {
    if let Ok(Some(warden)) = WardenConnection::open(&folder.path) {
        // A request that does not arrive is covered by the wait for the lock.
        warden.request(VisitorRequest::End { grace_ms: millis(grace) }).ok();
    }
    wait_until_free(folder, grace + ORPHANED_GRACE * 2 + SWEEP_MAX * 2).await
}

/// The warden that keeps services in this folder although it has no supervisor, if there is one.
pub(crate) fn abandoned_warden(folder: &Path) -> Option<AbandonedWarden> {
    let greeting = WardenConnection::open(folder).ok()??.greeting;
    (!greeting.busy).then_some(AbandonedWarden {
        pid: greeting.warden,
        version: greeting.version,
        instances: greeting.instances,
        alone: Duration::from_millis(greeting.alone_ms),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::TempDir;

    #[tokio::test]
    async fn a_folder_is_free_when_the_last_holder_is_gone() {
        let scratch = TempDir::new();
        let folder = HandoverFolder::open(&scratch.join("run")).unwrap();
        let soon = Duration::from_millis(20);
        let lock = wait_until_free(&folder, soon).await.unwrap();
        let inherited = lock.0.try_clone().unwrap();
        drop(lock);
        let refused = wait_until_free(&folder, soon).await;
        assert!(matches!(refused, Err(HandoverFolderError::StillThere { .. })), "{refused:?}");
        drop(inherited);
        wait_until_free(&folder, soon).await.unwrap();
        assert!(abandoned_warden(folder.path()).is_none());
    }

    #[test]
    fn a_folder_that_others_may_change_is_refused() {
        let scratch = TempDir::new();
        let (folder, link) = (scratch.join("open"), scratch.join("link"));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        for path in [&folder, &link] {
            let refused = HandoverFolder::open(path);
            assert!(matches!(refused, Err(HandoverFolderError::NotOurs { .. })), "{refused:?}");
        }
    }

    #[test]
    fn a_socket_can_be_deep_down() {
        let scratch = TempDir::new();
        let deep = scratch.join("x".repeat(100)).join("y".repeat(100));
        fs::create_dir_all(&deep).unwrap();
        let folder = HandoverFolder::open(&deep.join("run")).unwrap();
        if cfg!(target_os = "linux") {
            folder.listen().unwrap();
            assert!(folder.socket().exists());
            // The listener is dropped.
            assert!(abandoned_warden(folder.path()).is_none());
        }
    }
}
