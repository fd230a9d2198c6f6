//! Where the supervisors of one workspace find what the one before them has left: a folder with a lock
//! that the warden and all guardians hold, and a socket where a warden listens that outlives its
//! supervisor.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use afresh_core::limits::{ORPHANED_GRACE, SWEEP_MAX, SWEEP_PAUSE};
use tokio::time::{Instant, sleep};

use super::handover_protocol::{Visit, Wish, millis};
use super::os::short_path;
use super::{AbandonedWarden, PlaceError};
use crate::os::{make_private, not_ours_alone};

/// The name of the socket in the folder.
pub(super) const SOCKET: &str = "warden.sock";

/// The name of the lock in the folder.
const LOCK: &str = "warden.lock";

/// A folder of a workspace, always the same: in another one nobody would be found.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    folder: PathBuf,
}

/// The lock of a place. Passed on to the warden and, by their birth, to all guardians; it is free again
/// when the last of them is gone.
#[derive(Debug)]
pub(crate) struct Hold(pub(super) File);

impl Place {
    /// Makes the folder, for this user alone, where it is not there yet.
    pub(crate) fn open(folder: &Path) -> Result<Self, PlaceError> {
        let failed = |source| PlaceError::Folder { path: folder.to_owned(), source };
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
            Some(what) => Err(PlaceError::NotOurs { path: folder.to_owned(), what }),
            // It has to mean the same to the warden, whose folder is another one.
            None => Ok(Self { folder: fs::canonicalize(folder).map_err(failed)? }),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join(SOCKET)
    }

    /// Takes the lock; none where somebody of a supervisor before us is still there.
    fn try_hold(&self) -> Result<Option<Hold>, PlaceError> {
        let path = self.folder.join(LOCK);
        let failed = |source| PlaceError::Lock { path: path.clone(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(nix::libc::O_NOFOLLOW).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Hold(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Listens for the next supervisor. The caller holds the lock, so whatever has the name is left.
    pub(super) fn listen(&self) -> io::Result<OwnedFd> {
        let (named, unnamed) = (self.socket(), self.folder.join("warden.new"));
        for left in [&named, &unnamed] {
            fs::remove_file(left).ok();
        }
        let open = File::open(&self.folder)?;
        let short = short_path(&open, "warden.new");
        let listener = UnixListener::bind(short.as_ref().unwrap_or(&unnamed))?;
        fs::set_permissions(&unnamed, fs::Permissions::from_mode(0o600))?;
        fs::rename(&unnamed, &named)?;
        listener.set_nonblocking(true)?;
        Ok(listener.into())
    }
}

/// What a supervisor of the same workspace has left.
#[derive(Debug)]
pub(crate) struct Predecessor;

impl Predecessor {
    /// Waits until all wardens and guardians of supervisors before us are gone, and with them all that
    /// they guarded, for this long at most. Nothing may be started before.
    pub(crate) async fn wait_gone(place: &Place, patience: Duration) -> Result<Hold, PlaceError> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(hold) = place.try_hold()? {
                return Ok(hold);
            }
            if deadline <= Instant::now() {
                return Err(PlaceError::StillThere { path: place.folder.clone() });
            }
            sleep(SWEEP_PAUSE).await;
        }
    }

    /// Ends what is kept in this place, in order: SIGTERM, this long, SIGKILL. Waits until all is gone.
    pub(crate) async fn end(place: &Place, grace: Duration) -> Result<Hold, PlaceError> {
        if let Ok(Some(visit)) = Visit::pay(&place.folder) {
            // Where it cannot be told any more, the lock tells the rest.
            visit.wish(Wish::End { grace_ms: millis(grace) }).ok();
        }
        Self::wait_gone(place, grace + ORPHANED_GRACE * 2 + SWEEP_MAX * 2).await
    }
}

/// The warden that keeps services in this folder although it has no supervisor, if there is one.
pub(crate) fn abandoned_warden(folder: &Path) -> Option<AbandonedWarden> {
    let greeting = Visit::pay(folder).ok()??.greeting;
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
    async fn a_place_is_free_when_the_last_holder_is_gone() {
        let scratch = TempDir::new();
        let place = Place::open(&scratch.join("run")).unwrap();
        let soon = Duration::from_millis(20);
        let hold = Predecessor::wait_gone(&place, soon).await.unwrap();
        let inherited = hold.0.try_clone().unwrap();
        drop(hold);
        let refused = Predecessor::wait_gone(&place, soon).await;
        assert!(matches!(refused, Err(PlaceError::StillThere { .. })), "{refused:?}");
        drop(inherited);
        Predecessor::wait_gone(&place, soon).await.unwrap();
        assert!(abandoned_warden(place.folder()).is_none());
    }

    #[test]
    fn a_place_that_others_may_change_is_none() {
        let scratch = TempDir::new();
        let (folder, link) = (scratch.join("open"), scratch.join("link"));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        for path in [&folder, &link] {
            let refused = Place::open(path);
            assert!(matches!(refused, Err(PlaceError::NotOurs { .. })), "{refused:?}");
        }
    }

    #[test]
    fn a_socket_can_be_deep_down() {
        let scratch = TempDir::new();
        let deep = scratch.join("x".repeat(100)).join("y".repeat(100));
        fs::create_dir_all(&deep).unwrap();
        let place = Place::open(&deep.join("run")).unwrap();
        if cfg!(target_os = "linux") {
            place.listen().unwrap();
            assert!(place.socket().exists());
            // Nobody accepts, and nobody listens any more.
            assert!(abandoned_warden(place.folder()).is_none());
        }
    }
}
