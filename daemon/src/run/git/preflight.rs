//! Checks the repository before the first session and before each commit: it can be written, and is where the run works:
//! on its branch (which it is switched to), with its commits, without an unfinished merge or rebase.
//!
//! An agent has git too. What it does there is its affair, as long as our commits do not end up elsewhere and nothing
//! that was done is lost. Nothing here changes anything.

use std::path::{Path, PathBuf};

use afresh_core::limits::{GIT_LOCK_LOOK_EVERY, GIT_LOCK_PATIENCE, GIT_REFLOG_MAX};
use afresh_core::run::{GitAnswer, GitPosition, named};
use tokio::time::{Instant, sleep};

use super::{Git, Obstacle};
use crate::write_path::WritePath;

/// What stands there while git is in the middle of something, what that is, and the command that knows of it.
const UNFINISHED: [(&str, &str, &str); 6] = [
    ("rebase-merge", "a rebase", "git rebase"),
    ("rebase-apply/applying", "an `am` of patches", "git am"),
    ("rebase-apply", "a rebase", "git rebase"),
    ("CHERRY_PICK_HEAD", "a cherry-pick", "git cherry-pick"),
    ("REVERT_HEAD", "a revert", "git revert"),
    ("BISECT_LOG", "a bisection", BISECT),
];

/// It has no way but to end it, which leaves changed files as they are.
const BISECT: &str = "git bisect";

impl Git {
    /// Makes a branch and goes there; one that is there already is gone to.
    pub(in crate::run) async fn switch(&self, branch: &str) -> Result<(), String> {
        let there =
            self.run(&["rev-parse", "--verify", "-q", &format!("refs/heads/{branch}")]).await;
        match there {
            Ok(_) => self.run(&["switch", branch]).await.map(drop),
            Err(_) => self.run(&["switch", "-c", branch]).await.map(drop),
        }
    }

    /// What stands in the way of the first session, or where the run begins.
    pub(super) async fn base(&mut self, position: &GitPosition) -> Result<GitAnswer, String> {
        match self.run(&["rev-parse", "--is-inside-work-tree"]).await {
            Ok(said) if said.trim() == "true" => {}
            Ok(_) => {
                let why = "this folder belongs to git itself: it has no files to work on";
                return Ok(GitAnswer::Unready(why.to_owned()));
            }
            Err(why) if why.contains("dubious ownership") => {
                let why = format!(
                    "{why}; it belongs to another user: if you trust it, run `git status` here, which says how to \
                     tell git so"
                );
                return Ok(GitAnswer::Unready(why));
            }
            Err(why) => {
                let why = format!("there is no git repository here: {why}");
                return Ok(GitAnswer::NoRepository(why));
            }
        }
        if let Some(why) = self.obstacle().await? {
            return Ok(GitAnswer::Unready(why));
        }
        let is_merge = self.has_file("MERGE_HEAD").await?;
        if is_merge && !position.has_begun() {
            let why =
                "a merge is not finished here: commit it, or give it up with `git merge --abort`";
            return Ok(GitAnswer::Unready(why.to_owned()));
        }
        if let Some(why) = self.astray(position).await? {
            return Ok(GitAnswer::Unready(why));
        }
        if is_merge {
            let why = "a merge is not finished here: conclude it with `git commit`";
            return Ok(GitAnswer::Unready(why.to_owned()));
        }
        let position = GitPosition { branch: self.branch().await, commit: self.head().await };
        let dirty = self.status().await?.into_iter().map(|(_, name)| name).collect();
        Ok(GitAnswer::Base { position, dirty })
    }

    /// Why nothing could be committed here: the index is locked, or the disk is not writable.
    async fn obstacle(&self) -> Obstacle {
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

    /// Why a commit would end up on a wrong branch, or not on top of the run's work. Once a run has begun,
    /// no way is named that would throw away what is not committed.
    pub(super) async fn astray(&mut self, position: &GitPosition) -> Obstacle {
        let conflicts = self.run(&["diff", "--name-only", "--diff-filter=U", "-z"]).await?;
        let conflicts = (!conflicts.is_empty()).then(|| named(conflicts.split_terminator('\0')));
        if let Some((what, command)) = self.unfinished(conflicts.is_some()).await? {
            let way = self.way_out(position, command, conflicts).await?;
            return Ok(Some(format!("{what} is not finished here: {way}")));
        }
        if let Some(files) = conflicts {
            let end = match self.has_file("MERGE_HEAD").await? {
                true => ", and `git commit`",
                false => "",
            };
            return Ok(Some(format!(
                "there are conflicts in {files}: resolve them, then `git add` these files{end}"
            )));
        }
        let branch = self.branch().await;
        // Where the user names a branch, the run has switched to it.
        let wanted = self.wanted.clone().or_else(|| position.branch.clone());
        let Some(wanted) = wanted.or_else(|| branch.clone()) else {
            let why = "HEAD is on no branch, where commits are easily lost: go to one, or pass --branch NAME";
            return Ok(Some(why.to_owned()));
        };
        if branch.as_ref() != Some(&wanted) {
            return self.elsewhere(&wanted, branch, position).await.map(Some);
        }
        match &position.commit {
            Some(commit) => self.lost(&wanted, commit).await,
            None => Ok(None),
        }
    }

    /// What git is in the middle of, and the command that knows of it.
    async fn unfinished(
        &self,
        has_conflicts: bool,
    ) -> Result<Option<(&'static str, &'static str)>, String> {
        let mut files: Vec<&str> = UNFINISHED.iter().map(|(file, ..)| *file).collect();
        files.push("sequencer");
        let mut are_there = self.have_files(&files).await?;
        // Without conflicts and without more to come, the next commit concludes one.
        let has_more = are_there.pop() == Some(true);
        let is_concluded = !has_conflicts && !has_more;
        let mut all = UNFINISHED.into_iter().zip(are_there);
        let found = all
            .find(|((file, ..), is_there)| *is_there && !(is_concluded && file.ends_with("_HEAD")));
        Ok(found.map(|((_, what, command), _)| (what, command)))
    }

    /// How what is not finished comes to its end.
    async fn way_out(
        &self,
        position: &GitPosition,
        command: &str,
        conflicts: Option<String>,
    ) -> Result<String, String> {
        if command == BISECT {
            // What was committed on the way is in no branch.
            let (branch, head) =
                (self.wanted.as_ref().or(position.branch.as_ref()), self.head().await);
            let more = match (branch, head) {
                (Some(branch), Some(head))
                    if !self.is_in(&head, &format!("refs/heads/{branch}")).await? =>
                {
                    format!(" && git merge {}", short(&head))
                }
                _ => String::new(),
            };
            return Ok(format!("end it with `{command} reset{more}`"));
        }
        let first = conflicts.map(|files| {
            format!("resolve the conflicts in {files} and `git add` these files, then ")
        });
        let first = first.unwrap_or_default();
        Ok(match position.has_begun() {
            true => format!("{first}go on with `{command} --continue`"),
            false => format!(
                "{first}go on with `{command} --continue`, or give it up with `{command} --abort`"
            ),
        })
    }

    /// HEAD is not on the branch of the run: where it is, and the way back.
    async fn elsewhere(
        &self,
        wanted: &str,
        branch: Option<String>,
        position: &GitPosition,
    ) -> Result<String, String> {
        let wanted_ref = format!("refs/heads/{wanted}");
        let (shown, head) = (word(wanted), self.head().await);
        if !self.holds(&["rev-parse", "-q", "--verify", &wanted_ref]).await? {
            let from = match (&position.commit, &head) {
                (Some(commit), Some(_)) if self.is_in(commit, "HEAD").await? => String::new(),
                (Some(commit), _) => format!(" {commit}"),
                (None, _) => String::new(),
            };
            return Ok(format!(
                "the branch `{wanted}` is gone: make it again with `git switch -c {shown}{from}`"
            ));
        }
        // What was committed since then comes along.
        let has_more = head.is_some()
            && self.is_in(&wanted_ref, "HEAD").await?
            && !self.is_in("HEAD", &wanted_ref).await?;
        let other = branch.as_deref().map(word).or_else(|| head.map(|head| short(&head)));
        let more = other.filter(|_| has_more).map(|other| format!(" && git merge {other}"));
        let back = format!("go back with `git switch {shown}{}`", more.unwrap_or_default());
        Ok(match branch {
            Some(branch) => format!("HEAD went from the branch `{wanted}` to `{branch}`: {back}"),
            None => format!("HEAD has left the branch `{wanted}`, and is on none: {back}"),
        })
    }

    /// Why what the run has done is not there any more.
    async fn lost(&mut self, branch: &str, commit: &str) -> Obstacle {
        let shown = short(commit);
        let is_there = format!("{commit}^{{commit}}");
        if !self.holds(&["rev-parse", "-q", "--verify", &is_there]).await? {
            return Ok(Some(format!(
                "the last commit of the run, `{shown}`, is not in this repository any more: bring the one back in \
                 which the run began, or begin a new run"
            )));
        }
        if self.head().await.is_some() {
            if self.is_in(commit, "HEAD").await? {
                return Ok(None);
            }
            let amended = self.amended(branch, commit).await?;
            if amended != commit && self.is_in(&amended, "HEAD").await? {
                let note = format!(
                    "the commit `{shown}` was amended: the run goes on with `{}`",
                    short(&amended)
                );
                self.notes.push(note);
                return Ok(None);
            }
        }
        Ok(Some(format!(
            "the last commit of the run, `{shown}`, is not in the branch `{branch}`: bring it back with \
             `git merge {shown}`, or with `git merge -s ours {shown}` where you have rewritten it yourself"
        )))
    }

    /// What became of a commit by `git commit --amend`, which keeps its work and may have changed it.
    async fn amended(&self, branch: &str, commit: &str) -> Result<String, String> {
        let (max, branch) = (format!("-n{GIT_REFLOG_MAX}"), format!("refs/heads/{branch}"));
        let moves = self.run(&["log", "-g", &max, "--format=%H %gs", &branch, "--"]).await?;
        let mut moves: Vec<(&str, &str)> =
            moves.lines().filter_map(|line| line.split_once(' ')).collect();
        moves.reverse();
        let mut amended = commit;
        for pair in moves.windows(2) {
            let ((before, _), (after, what)) = (pair[0], pair[1]);
            if before == amended && what.starts_with("commit (amend)") {
                amended = after;
            }
        }
        Ok(amended.to_owned())
    }

    /// Whether a commit is a part of another one's history.
    async fn is_in(&self, commit: &str, other: &str) -> Result<bool, String> {
        self.holds(&["merge-base", "--is-ancestor", commit, other]).await
    }
}

/// A commit as people name it.
fn short(commit: &str) -> String {
    commit.get(..10).unwrap_or(commit).to_owned()
}

/// A name as a shell reads it: git lets a branch be called almost anything.
fn word(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./@+".contains(&byte);
    match name.bytes().all(is_plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

/// Makes a file and takes it away: rights alone do not say whether a disk can be written.
fn try_to_write(folder: &Path) -> std::io::Result<()> {
    let path = WritePath::beneath(folder, format!("afresh-{}.tmp", std::process::id()));
    path.open_to_append()?;
    path.remove()
}
