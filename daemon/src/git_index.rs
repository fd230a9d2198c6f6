//! Answers whether git tracks a file. Used before a token is taken from a file. Never changes a repository, and never takes
//! a folder among its files for a repository of its own.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use afresh_core::limits::{DOWN_LOOK_INTERVAL, GIT_MESSAGE_BYTES_MAX, GIT_TRACKED_WAIT};
use tokio::time::Instant;

/// Variables about another repository, such as that of a hook that has started afresh: they are not passed on to git.
pub(crate) const REPOSITORY_VARIABLES: [&str; 16] = [
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

/// Settings of the call: a repository can name programs that git starts for it, and none of them is needed here.
const SETTINGS: [&str; 6] = [
    "-c",
    "core.fsmonitor=false",
    "-c",
    "safe.bareRepository=explicit",
    "-c",
    "protocol.allow=never",
];

/// Whether git tracks a file: then all who have the repository can read it. An error says why this cannot be known, in
/// words that go on after "whether git tracks it is not known:".
pub fn git_tracks(file: &Path) -> Result<bool, String> {
    // A link to a file that git tracks is no better than that file.
    match file.canonicalize() {
        Ok(target) if file.is_symlink() => Ok(is_tracked(file)? || is_tracked(&target)?),
        _ => is_tracked(file),
    }
}

fn is_tracked(file: &Path) -> Result<bool, String> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let (Ok(folder), Some(name)) = (folder.canonicalize(), file.file_name()) else {
        return Ok(false);
    };
    // Asked from there, git does not look for another one in between.
    let Some(top) = folder.ancestors().find(|above| above.join(".git").symlink_metadata().is_ok())
    else {
        return Ok(false);
    };
    let path = folder.strip_prefix(top).unwrap_or(&folder).join(name);
    let mut command = Command::new("git");
    command.args(SETTINGS).arg("-C").arg(top).args(["ls-files", "--error-unmatch", "--"]).arg(path);
    for variable in REPOSITORY_VARIABLES {
        command.env_remove(variable);
    }
    command.env("GIT_LITERAL_PATHSPECS", "1").env("GIT_NO_LAZY_FETCH", "1").env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let git = command.spawn().map_err(|error| format!("git cannot be run: {error}"))?;
    answer(git)
}

/// Waits for the answer of git, but not for ever.
fn answer(mut git: Child) -> Result<bool, String> {
    let deadline = Instant::now() + GIT_TRACKED_WAIT;
    while Instant::now() < deadline {
        match git.try_wait() {
            Ok(None) => std::thread::sleep(DOWN_LOOK_INTERVAL),
            Ok(Some(status)) => {
                return match status.code() {
                    Some(0) => Ok(true),
                    // The index was read, and does not have it.
                    Some(1) => Ok(false),
                    _ => Err(complaint(git)),
                };
            }
            Err(_) => break,
        }
    }
    git.kill().ok();
    git.wait().ok();
    Err("git does not answer".to_owned())
}

/// The first line that git wrote to its stderr.
fn complaint(git: Child) -> String {
    let mut text = Vec::new();
    if let Some(stderr) = git.stderr {
        // What cannot be read is not said.
        stderr.take(GIT_MESSAGE_BYTES_MAX).read_to_end(&mut text).ok();
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().next().unwrap_or_default();
    format!("git says `{}`", line.trim_start_matches("fatal: "))
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
        let tracks = |name: &str| git_tracks(&dir.join(name));
        assert_eq!(tracks("a/tracked"), Ok(false), "there is no repository");
        git(&["init", "--quiet"]);
        assert_eq!(tracks("a/tracked"), Ok(false));
        git(&["add", "a/tracked"]);
        assert_eq!(tracks("a/tracked"), Ok(true));
        for name in ["a/ignored", "a/missing", "*"] {
            assert_eq!(tracks(name), Ok(false), "{name}: a name is no pattern");
        }
        std::os::unix::fs::symlink("tracked", dir.join("a/link")).unwrap();
        assert_eq!(tracks("a/link"), Ok(true), "the file it leads to is tracked");
        // A folder that looks like a repository, as a clone can have it, is none.
        fs::create_dir_all(dir.join("a/refs")).unwrap();
        fs::create_dir_all(dir.join("a/objects")).unwrap();
        fs::write(dir.join("a/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(dir.join("a/config"), "[core]\nbare = false\nworktree = .\n").unwrap();
        assert_eq!(tracks("a/tracked"), Ok(true));
        fs::write(dir.join(".git/index"), "damaged").unwrap();
        let error = tracks("a/tracked").unwrap_err();
        assert!(error.starts_with("git says `"), "{error}");
    }
}
