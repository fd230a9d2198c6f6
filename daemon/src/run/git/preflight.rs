//! Finds what would keep git from committing, before an agent begins. Driven by [`Git`](super::Git). Never removes a
//! lock.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use afresh_core::limits::{GIT_LOCK_LOOK_EVERY, GIT_LOCK_PATIENCE};
use tokio::time::{Instant, sleep};

use super::command::GitCommand;

/// Variables about another repository, such as that of a hook that has started afresh: they are not passed on.
const ELSEWHERE: [&str; 16] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_QUARANTINE_PATH",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
];

/// The environment of our git.
pub(in crate::run) fn env_of_git(env: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let is_of_git =
        |(name, _): &&(OsString, OsString)| !ELSEWHERE.iter().any(|it| OsStr::new(it) == name);
    let mut env: Vec<_> = env.iter().filter(is_of_git).cloned().collect();
    // Git must not prompt, and its messages are parsed.
    env.push(("GIT_TERMINAL_PROMPT".into(), "0".into()));
    env.push(("LC_ALL".into(), "C".into()));
    env
}

impl GitCommand {
    /// Why nothing could be committed here: the index is locked, or the disk is not writable.
    pub(super) async fn obstacle(&self) -> Result<Option<String>, String> {
        if let Some(lock) = self.wait_for_lock().await? {
            return Ok(Some(format!(
                "`{}` is there: another git is at work here, or one was killed; if none is, remove that file",
                lock.display()
            )));
        }
        for name in [".", "objects"] {
            let folder = self.path(name).await?;
            if let Err(error) = try_to_write(&folder) {
                let folder = folder.display();
                return Ok(Some(format!("nothing can be written to `{folder}`: {error}")));
            }
        }
        Ok(None)
    }

    /// The lock, where it stays: an editor that looks at the repository holds it for a moment.
    pub(super) async fn wait_for_lock(&self) -> Result<Option<PathBuf>, String> {
        let lock = self.path("index.lock").await?;
        let end = Instant::now() + GIT_LOCK_PATIENCE;
        while lock.exists() {
            if Instant::now() >= end {
                return Ok(Some(lock));
            }
            sleep(GIT_LOCK_LOOK_EVERY).await;
        }
        Ok(None)
    }
}

/// Makes a file and takes it away: rights alone do not say whether a disk can be written.
fn try_to_write(folder: &Path) -> std::io::Result<()> {
    let path = folder.join(format!("afresh-{}.tmp", std::process::id()));
    OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
    std::fs::remove_file(&path)
}
