//! Reads the rules of what a project ignores: `.ignore`, `.gitignore`, `.git/info/exclude` and the user's own list.
//!
//! The files are not trusted: they are read up to a bound, and a line that cannot be understood is
//! passed over, as git does.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use afresh_core::limits::WATCH_RULES_BYTES_MAX;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder, gitconfig_excludes_path};

use crate::os::{FileKind, file_kind, open_to_read};

/// The rules that hold for what is in one folder.
#[derive(Debug)]
pub(super) struct Rules {
    /// Those of the folder above, up to the top of the project.
    above: Option<Arc<Self>>,
    /// Of `.ignore`, which wins over all of git's.
    own: Gitignore,
    /// Of `.gitignore`.
    git: Gitignore,
    /// Of the repository and of the user, at the top only.
    other: Vec<Gitignore>,
    /// Nothing is ignored here, nor below.
    is_off: bool,
}

impl Rules {
    /// The rules in a folder that was named to be watched. The user's word counts more than that of
    /// the project: in a folder that is ignored itself, nothing is.
    pub(super) fn of_named(folder: &Path, base: &Path) -> Arc<Self> {
        let top = top_of_project(folder, base);
        let mut rules = Arc::new(Self::at_top(top));
        let mut place = top.to_owned();
        let inside = folder.strip_prefix(top).unwrap_or(Path::new(""));
        for part in inside.components() {
            place.push(part);
            if rules.ignores(&place, true) {
                return Arc::new(Self::off());
            }
            rules = Self::of_child(&rules, &place);
        }
        // As `dist/*` does; but where some names are excepted, those are what is meant.
        let has_exceptions = rules.chain().any(|rules| rules.git.num_whitelists() > 0);
        if !has_exceptions && rules.ignores(&folder.join("any-name-at-all"), false) {
            return Arc::new(Self::off());
        }
        rules
    }

    /// The rules in a folder, given those of the folder above.
    pub(super) fn of_child(above: &Arc<Self>, folder: &Path) -> Arc<Self> {
        if above.is_off {
            return above.clone();
        }
        let (own, git) = (read(folder, ".ignore"), read(folder, ".gitignore"));
        if own.is_empty() && git.is_empty() {
            return above.clone();
        }
        let above = Some(above.clone());
        Arc::new(Self { above, own, git, other: Vec::new(), is_off: false })
    }

    /// Whether a file or folder is ignored; that the folders above it are not is known.
    pub(super) fn ignores(&self, path: &Path, is_folder: bool) -> bool {
        let own = self.chain().map(|rules| &rules.own);
        let git = self.chain().map(|rules| &rules.git);
        let other = self.chain().flat_map(|rules| &rules.other);
        let mut verdicts = own.chain(git).chain(other).map(|rules| rules.matched(path, is_folder));
        let first = verdicts.find(|verdict| !verdict.is_none());
        matches!(first, Some(Match::Ignore(_)))
    }

    fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |rules| rules.above.as_deref())
    }

    fn off() -> Self {
        let none = Gitignore::empty;
        Self { above: None, own: none(), git: none(), other: Vec::new(), is_off: true }
    }

    fn at_top(top: &Path) -> Self {
        let exclude = exclude_file(top).map(|path| read_at(top, &path));
        let of_user = gitconfig_excludes_path().map(|path| read_at(top, &path));
        Self {
            above: None,
            own: read(top, ".ignore"),
            git: read(top, ".gitignore"),
            other: exclude.into_iter().chain(of_user).collect(),
            is_off: false,
        }
    }
}

/// The repository that a folder is in; without one, the folder that we work in, or itself.
fn top_of_project<'a>(folder: &'a Path, base: &'a Path) -> &'a Path {
    let repository = folder.ancestors().find(|above| above.join(".git").exists());
    repository.unwrap_or(if folder.starts_with(base) { base } else { folder })
}

/// The file of a repository with the rules of this user alone.
fn exclude_file(top: &Path) -> Option<PathBuf> {
    let git = top.join(".git");
    if git.is_dir() {
        return Some(git.join("info/exclude"));
    }
    // One of several working trees: it says where its own data lie, and these say where all of it is.
    let own = top.join(text_of(&git)?.strip_prefix("gitdir:")?.trim());
    let shared = text_of(&own.join("commondir"));
    Some(own.join(shared.as_deref().unwrap_or("").trim()).join("info/exclude"))
}

fn read(folder: &Path, name: &str) -> Gitignore {
    read_at(folder, &folder.join(name))
}

/// Reads rules that count from `root`.
fn read_at(root: &Path, path: &Path) -> Gitignore {
    let Some(text) = text_of(path) else { return Gitignore::empty() };
    let mut builder = GitignoreBuilder::new(root);
    for line in text.trim_start_matches('\u{feff}').lines() {
        // A wrong line is passed over, as git does.
        builder.add_line(None, line).ok();
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// None where there is no such file, or a strange one.
fn text_of(path: &Path) -> Option<String> {
    fs::symlink_metadata(path).ok()?;
    let file = open_to_read(path).ok()?;
    if file_kind(&file).ok()? != FileKind::Regular {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(WATCH_RULES_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    let is_whole = bytes.len() as u64 <= WATCH_RULES_BYTES_MAX;
    is_whole.then(|| String::from_utf8_lossy(&bytes).into_owned())
}
