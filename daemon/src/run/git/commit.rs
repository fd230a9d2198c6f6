//! Owns the commits of a run: stages all files but the excluded ones, also where those were staged before, and commits
//! them. The messages are those of `core/src/run/machine/commit_messages.rs`. Driven by [`Git`]. Never deletes a file.

use std::path::Path;

use afresh_core::run::{Exclude, GitAnswer, GitPosition, named};

use super::{Git, GitOutput};

/// How many folders a workspace is above the folder of the run; none where it is not above it.
pub(super) fn steps_up(folder: &Path, root: Option<&Path>) -> usize {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = real(folder);
    let below =
        root.and_then(|root| Some(folder.strip_prefix(real(root)).ok()?.components().count()));
    below.unwrap_or(0)
}

impl Git {
    /// Commits where the run stands, and nowhere else.
    pub(super) async fn commit_at(
        &mut self,
        position: &GitPosition,
        message: &str,
    ) -> Result<GitAnswer, String> {
        if let Some(why) = self.astray(position).await? {
            return Ok(GitAnswer::Unready(why));
        }
        // Of a lock that stays, git itself says so.
        self.wait_for_lock().await?;
        self.commit(message).await.map(GitAnswer::Committed)
    }

    async fn commit(&mut self, message: &str) -> Result<Option<String>, String> {
        self.unstage_excluded().await?;
        // What was staged and is different in the files would be in no commit.
        let is_twice = |(state, _): &(String, String)| {
            state.bytes().all(|letter| matches!(letter, b'M' | b'A' | b'D' | b'T'))
        };
        if self.status().await?.iter().any(is_twice) {
            self.commit_staged(&format!("{message} (as it was staged)")).await?;
        }
        let added = self.add().await;
        // A merge can be over without a change: what it leaves has to be concluded all the same.
        let is_same = self.holds(&["diff", "--cached", "--quiet"]).await?;
        if is_same && !self.has_file("MERGE_HEAD").await? {
            return added.map(|_| None);
        }
        self.commit_staged(message).await?;
        added?;
        Ok(self.head().await)
    }

    async fn commit_staged(&self, message: &str) -> GitOutput {
        let mut words = vec!["-c", "commit.gpgSign=false"];
        // Whose machine has no name for commits still has its work committed.
        if self.run(&["var", "GIT_COMMITTER_IDENT"]).await.is_err() {
            words.extend(["-c", "user.name=afresh", "-c", "user.email=afresh@localhost"]);
        }
        // A message may begin with what is a comment elsewhere.
        words.extend(["commit", "-q", "--no-verify", "--cleanup=whitespace", "-m", message]);
        self.run(&words).await
    }

    /// Runs it on all files but those that are never committed.
    async fn run_on_ours(&self, words: &[&str]) -> GitOutput {
        let mut excludes = self.excluded("exclude,").await?;
        let left_out =
            |name: &String| format!(":(top,exclude,literal){}", name.trim_end_matches('/'));
        excludes.extend(self.left_out.iter().map(left_out));
        let mut all = [words, &["--", ":/"]].concat();
        all.extend(excludes.iter().map(String::as_str));
        self.run(&all).await
    }

    /// What is changed or new: two letters, and a name.
    pub(super) async fn status(&mut self) -> Result<Vec<(String, String)>, String> {
        // What is changed inside of a submodule is that one's to commit.
        let words = [
            "status",
            "--porcelain=v1",
            "-z",
            "--untracked-files=all",
            "--no-renames",
            "--ignore-submodules=dirty",
        ];
        let status = self.run_on_ours(&words).await?;
        let entry = |entry: &str| {
            Some((
                entry.get(..2)?.to_owned(),
                entry.get(3..).filter(|name| !name.is_empty())?.to_owned(),
            ))
        };
        let mut entries: Vec<_> = status.split('\0').filter_map(entry).collect();
        // Folders are named only where they are repositories.
        let is_nested = |(state, name): &(String, String)| state == "??" && name.ends_with('/');
        if entries.iter().any(is_nested) {
            let nested = entries.iter().filter(|entry| is_nested(entry));
            self.look_into(nested.map(|(_, name)| name.clone()).collect()).await?;
            entries.retain(|(_, name)| !self.left_out.contains(name));
        }
        Ok(entries)
    }

    /// Looks which of these repositories inside of ours are not added, and says what becomes of all.
    async fn look_into(&mut self, nested: Vec<String>) -> Result<(), String> {
        let top = self.run(&["rev-parse", "--show-toplevel"]).await?;
        let top = top.trim_end_matches('\n');
        let worktrees = self.run(&["worktree", "list", "--porcelain"]).await?;
        let worktrees = worktrees.lines().filter_map(|line| line.strip_prefix("worktree "));
        let worktrees: Vec<_> =
            worktrees.filter_map(|it| Path::new(it).canonicalize().ok()).collect();
        let (mut born, mut unborn, mut ours) = (Vec::new(), Vec::new(), Vec::new());
        for name in nested {
            let folder = format!("{top}/{name}");
            // Added, it would be a submodule that no clone can fetch.
            if Path::new(&folder).canonicalize().is_ok_and(|it| worktrees.contains(&it)) {
                ours.push(name);
                continue;
            }
            let words = ["-C", &folder, "rev-parse", "-q", "--verify", "HEAD"];
            // One that git cannot read cannot be added either.
            match self.holds(&words).await.unwrap_or(false) {
                true => born.push(name),
                false => unborn.push(name),
            }
        }
        for (names, has) in
            [(&born, "only the commit it is on is kept"), (&unborn, "it has no commit")]
        {
            if !names.is_empty() {
                let names = named(names.iter().map(String::as_str));
                self.notes.push(format!(
                    "a repository of its own is here, and its files are in no commit of the run ({has}): {names}"
                ));
            }
        }
        if !ours.is_empty() {
            let names = named(ours.iter().map(String::as_str));
            self.notes.push(format!(
                "a worktree of this repository is here, and its files are in no commit of the run: {names}"
            ));
        }
        self.left_out = [unborn, ours].concat();
        Ok(())
    }

    /// Adds all that is ours to the index. Where a file cannot be added, all others are.
    pub(super) async fn add(&self) -> GitOutput {
        let words = ["add", "-A", "--ignore-errors"];
        let sparse = self.run(&["config", "--type=bool", "--get", "core.sparseCheckout"]).await;
        if sparse.is_ok_and(|is_sparse| is_sparse.trim() == "true") {
            let added = self.run_on_ours(&["add", "-A", "--ignore-errors", "--sparse"]).await;
            // Older ones do not know it, and do not need it.
            if !added.as_ref().is_err_and(|why| why.contains("unknown option")) {
                return added;
            }
        }
        self.run_on_ours(&words).await
    }

    /// What is excluded, for git. What counts from a folder does so from that of the run and from the workspace:
    /// which one was meant is not known, and one too few is worse than one too many.
    async fn excluded(&self, magic: &str) -> Result<Vec<String>, String> {
        let mut ups = vec![String::new()];
        if self.steps_up > 0 && self.excludes.iter().any(|exclude| exclude.is_anchored) {
            // Where the workspace is above the repository, nothing can be there.
            let to_top = self.run(&["rev-parse", "--show-cdup"]).await?;
            if self.steps_up <= to_top.matches("../").count() {
                ups.push("../".repeat(self.steps_up));
            }
        }
        let specs = |exclude: &Exclude| {
            let ups = if exclude.is_anchored { &ups[..] } else { &ups[..1] };
            let top = if exclude.is_anchored { "" } else { "top," };
            let all = exclude.globs().flat_map(|glob| {
                ups.iter().map(move |up| format!(":({top}{magic}glob){up}{glob}"))
            });
            all.collect::<Vec<_>>()
        };
        Ok(self.excludes.iter().flat_map(specs).collect())
    }

    /// Takes what is excluded out of the index, where it then stands as in HEAD. The files stay as they are.
    pub(super) async fn unstage_excluded(&mut self) -> Result<(), String> {
        let words = ["diff", "--cached", "--name-only", "--no-renames", "-z"];
        let mut staged = self.excluded_names(&words).await?;
        // What comes from the other side of a merge is committed there already.
        if !staged.is_empty() && self.has_file("MERGE_HEAD").await? {
            let new = self.excluded_names(&[&words[..], &["MERGE_HEAD"]].concat()).await?;
            staged.retain(|name| new.contains(name));
        }
        if staged.is_empty() {
            return Ok(());
        }
        let names: Vec<String> =
            staged.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        let mut specs = Vec::new();
        for name in staged {
            specs.extend_from_slice(b":(top,literal)");
            specs.extend(name);
            specs.push(0);
        }
        let words = ["reset", "-q", "--pathspec-from-file=-", "--pathspec-file-nul"];
        self.run_with(&words, specs).await?;
        let names = named(names.iter().map(String::as_str));
        self.notes.push(format!("what is excluded was staged, and is in no commit: {names}"));
        Ok(())
    }

    /// Says which of the files that are excluded an agent has committed by itself.
    pub(super) async fn note_committed(&mut self, range: [&str; 2]) -> Result<(), String> {
        let words = ["diff", "--name-only", "--no-renames", "--diff-filter=d", "-z"];
        let names = self.excluded_names(&[&words[..], &range].concat()).await?;
        if !names.is_empty() {
            let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
            let names = named(names.iter().map(AsRef::as_ref));
            self.notes.push(format!("the agent has committed what is excluded: {names}"));
        }
        Ok(())
    }

    /// The names that git prints, of what is excluded.
    async fn excluded_names(&self, words: &[&str]) -> Result<Vec<Vec<u8>>, String> {
        let excluded = self.excluded("").await?;
        if excluded.is_empty() {
            return Ok(Vec::new());
        }
        let mut words = [words, &["--"]].concat();
        words.extend(excluded.iter().map(String::as_str));
        // Not every name is text.
        let names = self.run_with(&words, Vec::new()).await?;
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }
}
