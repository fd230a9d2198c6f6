//! Finds the folder of git for a work tree. A `.git` that is a file or a link can come with an archive and name any folder,
//! so what it names counts only where it names this work tree in return. Driven by locks, trust and runs. Never starts git.

use std::io::Read;
use std::path::{Path, PathBuf};

use afresh_core::limits::{CONFIG_FILE_BYTES_MAX, GIT_LINK_BYTES_MAX};

use crate::os;

/// A `.git` leads to a folder that does not name its work tree.
#[derive(Debug, thiserror::Error)]
#[error("`{}` leads to `{}`, which does not name `{}` as its work tree", git.display(), target.display(), tree.display())]
pub struct ForeignGitFolder {
    git: PathBuf,
    target: PathBuf,
    tree: PathBuf,
}

impl ForeignGitFolder {
    /// The command by which the owner of both makes it known.
    pub fn remedy(&self) -> String {
        let (target, tree) = (self.target.display(), self.tree.display());
        format!("git config --file '{target}/config' core.worktree '{tree}'")
    }
}

/// The folder of git for the work tree that a folder is in; none where there is no work tree, or `.git` is nothing that
/// git would take.
pub fn git_folder(folder: &Path) -> Result<Option<PathBuf>, ForeignGitFolder> {
    let is_there = |git: &PathBuf| git.symlink_metadata().is_ok();
    let Some(git) = folder.ancestors().map(|above| above.join(".git")).find(is_there) else {
        return Ok(None);
    };
    if git.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Ok(Some(git));
    }
    let tree = git.parent().unwrap_or(folder);
    let Some(target) = target_of(&git) else { return Ok(None) };
    match worktree_link(&target).or_else(|| configured_tree(&target)) {
        Some(named) if is_same(&named, &git) || is_same(&named, tree) => Ok(Some(target)),
        _ => Err(ForeignGitFolder { target, tree: tree.to_owned(), git }),
    }
}

/// The folder that all worktrees of a repository share, by the `.git` file of one of them; none where the repository
/// does not know this worktree.
pub(super) fn shared_folder(git: &Path) -> Option<PathBuf> {
    let own = target_of(git)?;
    let is_known = is_same(&worktree_link(&own)?, git);
    let worktrees = own.parent().filter(|folder| folder.ends_with("worktrees"))?;
    is_known.then(|| worktrees.parent().map(Path::to_owned))?
}

/// The text of a file that git writes; none where it is no file, or longer than any path.
pub fn git_link(path: &Path) -> Option<String> {
    short_text(path, GIT_LINK_BYTES_MAX)
}

/// The folder that a `.git` leads to which is a file or a link.
fn target_of(git: &Path) -> Option<PathBuf> {
    if git.is_dir() {
        return git.canonicalize().ok();
    }
    let text = git_link(git)?;
    git.parent()?.join(text.strip_prefix("gitdir:")?.trim()).canonicalize().ok()
}

/// The `.git` file of the worktree that a folder of git is for.
fn worktree_link(target: &Path) -> Option<PathBuf> {
    Some(target.join(git_link(&target.join("gitdir"))?.trim()))
}

/// The work tree in the configuration of a folder of git, as submodules have it.
fn configured_tree(target: &Path) -> Option<PathBuf> {
    let text = short_text(&target.join("config"), CONFIG_FILE_BYTES_MAX as u64)?;
    let (mut is_core, mut tree) = (false, None);
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            is_core = line.eq_ignore_ascii_case("[core]");
        }
        let (key, value) = line.split_once('=').unwrap_or_default();
        if is_core && key.trim().eq_ignore_ascii_case("worktree") {
            tree = Some(target.join(value.trim().trim_matches('"')));
        }
    }
    tree
}

fn is_same(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

fn short_text(path: &Path, bytes_max: u64) -> Option<String> {
    let mut text = String::new();
    let file = os::open_to_read(path).ok()?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return None;
    }
    file.take(bytes_max + 1).read_to_string(&mut text).ok()?;
    (text.len() as u64 <= bytes_max).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;
    use crate::store::testing::TempDir;

    fn git(dir: &TempDir, args: &[&str]) {
        let settings =
            ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"];
        let mut command = Command::new("git");
        let done = command.args(settings).args(args).current_dir(dir.join("")).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }

    #[test]
    fn the_folders_of_worktrees_submodules_and_plain_repositories_are_found() {
        let dir = TempDir::new();
        git(&dir, &["init", "--quiet", "main"]);
        git(&dir, &["-C", "main", "commit", "--quiet", "--allow-empty", "-m", "a"]);
        git(&dir, &["-C", "main", "worktree", "add", "--quiet", "../tree"]);
        git(&dir, &["-C", "main", "submodule", "--quiet", "add", "../main", "sub"]);
        fs::create_dir(dir.join("main/deep")).unwrap();
        let top = dir.join("").canonicalize().unwrap();
        for (folder, found) in [
            ("main", "main/.git"),
            ("main/deep", "main/.git"),
            ("tree", "main/.git/worktrees/tree"),
            ("main/sub", "main/.git/modules/sub"),
        ] {
            assert_eq!(git_folder(&top.join(folder)).unwrap(), Some(top.join(found)), "{folder}");
        }
    }

    #[test]
    fn a_folder_that_knows_nothing_of_the_work_tree_does_not_count() {
        let dir = TempDir::new();
        git(&dir, &["init", "--quiet", "other"]);
        fs::create_dir_all(dir.join("archive/linked")).unwrap();
        fs::create_dir_all(dir.join("home")).unwrap();
        for target in ["../other/.git", "../home"] {
            fs::write(dir.join("archive/.git"), format!("gitdir: {target}\n")).unwrap();
            let error = git_folder(&dir.join("archive")).unwrap_err();
            assert!(error.to_string().contains("does not name"), "{error}");
        }
        symlink(dir.join("other/.git"), dir.join("archive/linked/.git")).unwrap();
        let error = git_folder(&dir.join("archive/linked")).unwrap_err();
        // What the hint says makes it known.
        let tree = dir.join("archive/linked").display().to_string();
        assert!(error.remedy().ends_with(&format!("core.worktree '{tree}'")), "{}", error.remedy());
        git(&dir, &["config", "--file", "other/.git/config", "core.worktree", &tree]);
        assert!(git_folder(&dir.join("archive/linked")).unwrap().is_some());
    }

    #[test]
    fn what_is_no_file_or_endless_holds_up_nothing() {
        let dir = TempDir::new();
        nix::unistd::mkfifo(&dir.join(".git"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(git_folder(&dir.join("")).unwrap(), None);
        fs::remove_file(dir.join(".git")).unwrap();
        symlink("/dev/zero", dir.join(".git")).unwrap();
        assert_eq!(git_folder(&dir.join("")).unwrap(), None);
    }
}
