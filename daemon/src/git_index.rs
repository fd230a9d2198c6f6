//! Answers whether git tracks a file. Used before a token is taken from a file. Never changes a repository.

use std::path::Path;
use std::process::{Command, Stdio};

use afresh_core::limits::{DOWN_LOOK_INTERVAL, GIT_TRACKED_WAIT};
use tokio::time::Instant;

/// Whether git tracks a file: then all who have the repository can read it. Without git, or where git does not answer
/// in time, it counts as not tracked.
pub fn git_tracks(file: &Path) -> bool {
    let Some(name) = file.file_name() else { return false };
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let Ok(folder) = folder.canonicalize() else { return false };
    if !folder.ancestors().any(|above| above.join(".git").exists()) {
        return false;
    }
    let mut command = Command::new("git");
    // A repository names programs that git starts for it; none of them is needed here.
    command.arg("-C").arg(&folder).args(["-c", "core.fsmonitor=false", "ls-files"]);
    command.args(["--error-unmatch", "--"]).arg(name);
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"] {
        command.env_remove(variable);
    }
    command.env("GIT_LITERAL_PATHSPECS", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut git) = command.spawn() else { return false };
    let deadline = Instant::now() + GIT_TRACKED_WAIT;
    while Instant::now() < deadline {
        match git.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(DOWN_LOOK_INTERVAL),
            Err(_) => break,
        }
    }
    git.kill().ok();
    git.wait().ok();
    false
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::store::testing::TempDir;

    #[test]
    fn only_what_is_in_the_index_is_tracked() {
        let dir = TempDir::new();
        let git = |arguments: &[&str]| {
            let mut command = Command::new("git");
            command.arg("-C").arg(dir.join("")).args(arguments).stdout(Stdio::null());
            assert!(command.status().unwrap().success(), "{arguments:?}");
        };
        fs::create_dir(dir.join("a")).unwrap();
        for name in ["a/tracked", "a/ignored", "*"] {
            fs::write(dir.join(name), "x").unwrap();
        }
        assert!(!git_tracks(&dir.join("a/tracked")), "there is no repository");
        git(&["init", "--quiet"]);
        assert!(!git_tracks(&dir.join("a/tracked")));
        git(&["add", "a/tracked"]);
        assert!(git_tracks(&dir.join("a/tracked")));
        assert!(!git_tracks(&dir.join("a/ignored")) && !git_tracks(&dir.join("a/missing")));
        assert!(!git_tracks(&dir.join("*")), "a name is no pattern");
    }
}
