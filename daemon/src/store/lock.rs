//! Owns the locks in the state folder: one `afresh up` and one `afresh run` a workspace. The kernel releases
//! a lock when its process ends or is killed. Never waits for long.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::iter::repeat_n;
use std::path::{Path, PathBuf};
use std::time::Duration;

use afresh_core::limits::{DOWN_LOOK_INTERVAL, LOCK_TRIES_MAX};

use crate::os;
use crate::write_path::WritePath;

/// A process of which there is only one in a workspace, or in the folder of git.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sole {
    /// The daemon of its services.
    Up,
    /// A run of a plan.
    Run,
    /// A run of a plan in a git repository, which more than one workspace can be in.
    RunInGit,
}

impl Sole {
    /// Its file, what is there while it is held, and what its holder does.
    const fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Up => ("up.lock", "services of this workspace are up already", "keeps them"),
            Self::Run => ("run.lock", "a plan is carried out in this workspace already", "does"),
            Self::RunInGit => {
                ("afresh-run.lock", "a plan is carried out in this git repository already", "does")
            }
        }
    }
}

/// Held as long as it lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why it cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another one holds it.
    #[error("{}", taken(*sole, *pid))]
    Taken {
        /// What there is already.
        sole: Sole,
        /// Which process, where it could be told.
        pid: Option<u32>,
    },
    /// The file cannot be used.
    #[error("cannot use the lock file `{0}`")]
    File(PathBuf, #[source] io::Error),
}

fn taken(sole: Sole, pid: Option<u32>) -> String {
    let (_, what, does) = sole.words();
    let by = pid.map_or_else(String::new, |pid| format!(": afresh with pid {pid} {does}"));
    format!("{what}{by}")
}

impl Lock {
    /// Takes a lock of a state folder, if it is free.
    pub fn take(state: &WritePath, sole: Sole) -> Result<Self, LockError> {
        let path = state.join(sole.words().0);
        let failed = |source| LockError::File(path.path().to_owned(), source);
        // It is made private: any process that can read the file could take the lock.
        let mut file = path.open_to_append().map_err(failed)?;
        // `up_holder` takes it for a moment, too.
        match lock_patiently(&file, repeat_n(DOWN_LOOK_INTERVAL, LOCK_TRIES_MAX)) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Taken { sole, pid: holder(&mut file) });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // Only for people; the lock itself is the kernel's.
        let note = |file: &mut File| {
            os::cut(file, 0)?;
            writeln!(file, "{}", std::process::id())
        };
        note(&mut file).ok();
        Ok(Self { _file: file })
    }
}

/// Locks a file, and tries again after each of these pauses while another process holds it: the kernel has no lock
/// with a time limit.
pub(super) fn lock_patiently(
    file: &File,
    mut pauses: impl Iterator<Item = Duration>,
) -> Result<(), TryLockError> {
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => match pauses.next() {
                Some(pause) => std::thread::sleep(pause),
                None => return Err(TryLockError::WouldBlock),
            },
            result => return result,
        }
    }
}

/// The process that holds the lock of a state folder; none where it is free. 0 where it is not told.
pub fn up_holder(state: &Path) -> Option<u32> {
    let mut file = os::open_to_read(&state.join(Sole::Up.words().0)).ok()?;
    // One that we get is given back when the file is closed.
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(holder(&mut file).unwrap_or(0)),
        _ => None,
    }
}

/// The process that wrote its number into the file.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::TempDir;

    #[test]
    fn only_one_can_hold_it() {
        let folder = TempDir::new();
        let first = Lock::take(&WritePath::named(folder.join("")), Sole::Up).unwrap();
        let second = Lock::take(&WritePath::named(folder.join("")), Sole::Up).unwrap_err();
        let own = std::process::id();
        assert!(
            matches!(second, LockError::Taken { pid: Some(pid), .. } if pid == own),
            "{second}"
        );
        drop(first);
        Lock::take(&WritePath::named(folder.join("")), Sole::Up).unwrap();
        Lock::take(&WritePath::named(folder.join("")), Sole::Run).unwrap();
    }
}
