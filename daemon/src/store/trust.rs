//! Owns `trust.json` in the user's private folder: which requests of projects' files the user has accepted, for each
//! repository. Read by every command that loads a project's files, changed by `afresh trust`. Never lies in a workspace.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use afresh_core::limits::TRUSTED_VERSIONS_MAX;
use afresh_core::trust::TrustRequest;
use serde::{Deserialize, Serialize};

use super::digest::sha256;
use super::git_folder::shared_folder;
use super::user_state::StateFile;
use crate::clock::now;

/// What the user has accepted, by repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustFile {
    #[serde(default)]
    repositories: BTreeMap<String, Vec<TrustedRequest>>,
}

/// A request that the user has accepted. Branches of a repository may have one name with several contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedRequest {
    /// The name of the request.
    pub name: String,
    /// The digest of its text.
    pub sha256: String,
    /// The text that the user saw.
    pub text: String,
    /// When that was.
    pub at: String,
    /// Who it was, as far as the environment says.
    pub by: String,
}

impl StateFile for TrustFile {
    const NAME: &'static str = "trust.json";
    const VERSION: u64 = 1;
}

impl TrustFile {
    /// Whether this very request was accepted for a repository.
    pub fn accepts(&self, repository: &str, request: &TrustRequest) -> bool {
        self.accepted(repository, request).is_some()
    }

    /// When and by whom this very request was accepted for a repository, if it was.
    pub fn accepted(&self, repository: &str, request: &TrustRequest) -> Option<&TrustedRequest> {
        let digest = sha256(request.text().as_bytes());
        let is_it = |known: &&TrustedRequest| known.name == request.name && known.sha256 == digest;
        self.of(repository).iter().find(is_it)
    }

    /// What was accepted for a repository, oldest first.
    pub fn of(&self, repository: &str) -> &[TrustedRequest] {
        self.repositories.get(repository).map_or(&[], Vec::as_slice)
    }

    /// The newest request of this name that was accepted for a repository.
    pub fn last_of(&self, repository: &str, name: &str) -> Option<&TrustedRequest> {
        self.of(repository).iter().rev().find(|known| known.name == name)
    }

    /// Accepts a request for a repository.
    pub fn grant(&mut self, repository: &str, request: &TrustRequest, by: &str) {
        let text = request.text();
        let granted = TrustedRequest {
            name: request.name.clone(),
            sha256: sha256(text.as_bytes()),
            text,
            at: now().to_string(),
            by: by.to_owned(),
        };
        let all = self.repositories.entry(repository.to_owned()).or_default();
        all.retain(|known| (&known.name, &known.sha256) != (&granted.name, &granted.sha256));
        all.push(granted);
        let versions = all.iter().filter(|known| known.name == request.name).count();
        if versions > TRUSTED_VERSIONS_MAX
            && let Some(oldest) = all.iter().position(|known| known.name == request.name)
        {
            all.remove(oldest);
        }
    }

    /// Takes back what is meant, for a repository. Returns the names.
    pub fn revoke(
        &mut self,
        repository: &str,
        is_meant: impl Fn(&TrustedRequest) -> bool,
    ) -> Vec<String> {
        let Some(all) = self.repositories.get_mut(repository) else { return Vec::new() };
        let mut names: Vec<String> =
            all.extract_if(.., |known| is_meant(known)).map(|known| known.name).collect();
        if all.is_empty() {
            self.repositories.remove(repository);
        }
        names.sort();
        names.dedup();
        names
    }
}

/// The repository that a workspace is in: what is accepted for one of its worktrees is accepted for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// The folder that git keeps for all of its worktrees, or the workspace where there is no git.
    pub identity: String,
    /// The top folder of this worktree.
    pub top: PathBuf,
}

impl Repository {
    /// Finds it. A folder that only claims to be a worktree of another repository is one by itself: an archive could
    /// ship a `.git` that points to a repository whose owner trusts it.
    pub fn of(root: &Path) -> Self {
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let top = root.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok());
        let top = top.unwrap_or(&root).to_owned();
        let git = top.join(".git");
        let kind = git.symlink_metadata().map(|metadata| metadata.file_type());
        let identity = match kind {
            Ok(kind) if kind.is_dir() => Some(git),
            Ok(kind) if kind.is_file() => shared_folder(&git),
            _ => None,
        };
        let identity = identity.unwrap_or_else(|| top.clone()).to_string_lossy().into_owned();
        Self { identity, top }
    }
}

/// Tells whether `trust.json` has changed since it was last looked at.
#[derive(Clone, Debug)]
pub struct TrustWatch {
    path: PathBuf,
    seen: Option<(SystemTime, u64)>,
}

impl TrustWatch {
    /// Looks at the file for the first time: before it is read, so that no change is missed.
    pub fn new(path: PathBuf) -> Self {
        let seen = look(&path);
        Self { path, seen }
    }

    /// Looks again.
    pub fn has_changed(&mut self) -> bool {
        let seen = look(&self.path);
        let has_changed = seen != self.seen;
        self.seen = seen;
        has_changed
    }
}

fn look(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::store::testing::TempDir;
    use crate::store::user_state::UserState;

    fn request(name: &str, line: &str) -> TrustRequest {
        let (name, file) = (name.to_owned(), "afresh.toml".to_owned());
        TrustRequest { name, file, lines: vec![line.to_owned()] }
    }

    #[test]
    fn the_very_content_is_accepted_until_it_is_revoked() {
        let dir = TempDir::new();
        let state = UserState::find(Some(&dir.join("")), None).unwrap();
        let (one, two) = (request("server.a", "x = 1"), request("server.a", "x = 2"));
        state.change(|file: &mut TrustFile| file.grant("/r", &one, "ada")).unwrap();
        let file: TrustFile = state.read().unwrap();
        assert!(file.accepts("/r", &one) && !file.accepts("/r", &two) && !file.accepts("/s", &one));
        let other = request("server.b", "x = 1");
        assert!(!file.accepts("/r", &other));
        state.change(|file: &mut TrustFile| file.grant("/r", &two, "ada")).unwrap();
        let file: TrustFile = state.read().unwrap();
        assert!(file.accepts("/r", &one) && file.accepts("/r", &two), "branches differ");
        assert_eq!(file.last_of("/r", "server.a").unwrap().text, two.text());
        let revoked =
            state.change(|file: &mut TrustFile| file.revoke("/r", |it| it.name == "server.a"));
        assert_eq!(revoked.unwrap(), ["server.a"]);
        assert_eq!(state.read::<TrustFile>().unwrap(), TrustFile::default());
    }

    #[test]
    fn a_name_keeps_so_many_versions() {
        let mut file = TrustFile::default();
        for number in 0..TRUSTED_VERSIONS_MAX + 1 {
            file.grant("/r", &request("server.a", &number.to_string()), "ada");
        }
        assert_eq!(file.of("/r").len(), TRUSTED_VERSIONS_MAX);
        assert!(!file.accepts("/r", &request("server.a", "0")));
        assert!(file.accepts("/r", &request("server.a", "1")));
    }

    #[test]
    fn worktrees_share_a_repository_and_nothing_else_does() {
        let dir = TempDir::new();
        let of = |path: &str| Repository::of(&dir.join(path)).identity;
        for folder in ["main/.git/worktrees/w", "main/packages/a", "w", "fake", "linked", "plain"] {
            fs::create_dir_all(dir.join(folder)).unwrap();
        }
        let own = dir.join("main/.git/worktrees/w");
        let pointer = format!("gitdir: {}\n", own.display());
        fs::write(dir.join("w/.git"), &pointer).unwrap();
        fs::write(own.join("gitdir"), format!("{}\n", dir.join("w/.git").display())).unwrap();
        let main = dir.join("main/.git").display().to_string();
        assert_eq!(
            [of("main"), of("main/packages/a"), of("w")],
            [main.clone(), main.clone(), main]
        );
        // These say that they are worktrees of it, and are not.
        fs::write(dir.join("fake/.git"), &pointer).unwrap();
        symlink(dir.join("main/.git"), dir.join("linked/.git")).unwrap();
        assert_eq!(of("fake"), dir.join("fake").display().to_string());
        assert_eq!(of("linked"), dir.join("linked").display().to_string());
        assert_eq!(of("plain"), dir.join("plain").display().to_string());
    }

    #[test]
    fn a_change_is_seen_once() {
        let dir = TempDir::new();
        let mut watch = TrustWatch::new(dir.join("trust.json"));
        assert!(!watch.has_changed());
        fs::write(dir.join("trust.json"), "{}").unwrap();
        assert!(watch.has_changed());
        assert!(!watch.has_changed());
    }
}
