//! Owns the requests of a run to git: where it stands, commits, and what has changed. Driven by effects of the
//! machine, each in a task of its own. Never resets, cleans or throws away.

mod command;
mod position;
mod preflight;
mod staging;

use std::collections::BTreeSet;

use afresh_core::limits::GIT_STASHES_MAX;
use afresh_core::run::{Exclude, GitAnswer, GitPosition, GitRequest, PhaseChanges, expand_braces};

use self::command::{GitCommand, GitOutput};
use self::preflight::env_of_git;
use self::staging::steps_up;
use super::Run;
use crate::run_briefly::BriefRunner;

#[derive(Clone)]
pub(super) struct Git {
    command: GitCommand,
    /// Patterns of files that are never committed.
    excludes: Vec<Exclude>,
    /// How many folders the workspace is above that of the run.
    steps_up: usize,
    /// The branch that the user wants the run to work on.
    wanted: Option<String>,
    /// Repositories inside of this one that are not added: they have no commit, or are worktrees of this one.
    left_out: Vec<String>,
    /// Notes for people about the request in progress.
    notes: Vec<String>,
}

/// The reply to a request.
pub(super) struct GitReply {
    pub(super) answer: GitAnswer,
    /// The stash, where it was listed.
    pub(super) stash: Option<Vec<String>>,
    /// Notes for people.
    pub(super) notes: Vec<String>,
}

impl Git {
    pub(super) fn new(run: &Run, runner: BriefRunner) -> Self {
        Self {
            command: GitCommand { runner, folder: run.folder.clone(), env: env_of_git(&run.env) },
            excludes: run.excludes.clone(),
            steps_up: steps_up(&run.folder, run.workspace.root()),
            wanted: run.branch.clone(),
            left_out: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The branch that the run has to be on.
    pub(super) fn wanted_branch(&self) -> Option<&str> {
        self.wanted.as_deref()
    }

    pub(super) async fn ask(mut self, ask: GitRequest) -> GitReply {
        let is_look = matches!(ask, GitRequest::Changes { .. });
        let answer = match ask {
            GitRequest::Base(position) => self.base(&position).await,
            GitRequest::Commit { message, position } => self.commit_at(&position, &message).await,
            GitRequest::Changes { since, files, beside } => {
                self.look(since.as_deref(), &files, &beside).await.map(GitAnswer::Changes)
            }
        };
        let answer = answer.unwrap_or_else(GitAnswer::Failed);
        let stash = match is_look || matches!(answer, GitAnswer::NoRepository(_)) {
            true => None,
            false => self.stash().await.ok(),
        };
        GitReply { answer, stash, notes: self.notes }
    }

    /// What is in the stash, the newest first.
    async fn stash(&self) -> Result<Vec<String>, String> {
        let stash = self
            .command
            .run(&["stash", "list", "--format=%H", &format!("-n{GIT_STASHES_MAX}")])
            .await?;
        Ok(stash.lines().map(str::to_owned).collect())
    }

    /// Makes a branch and goes there; one that is there already is gone to.
    pub(super) async fn switch(&self, branch: &str) -> Result<(), String> {
        let there = self
            .command
            .run(&["rev-parse", "--verify", "-q", &format!("refs/heads/{branch}")])
            .await;
        match there {
            Ok(_) => self.command.run(&["switch", branch]).await.map(drop),
            Err(_) => self.command.run(&["switch", "-c", branch]).await.map(drop),
        }
    }

    async fn base(&mut self, position: &GitPosition) -> Result<GitAnswer, String> {
        match self.command.run(&["rev-parse", "--is-inside-work-tree"]).await {
            Ok(said) if said.trim() == "true" => {}
            Ok(_) => {
                let why = "this folder belongs to git itself: it has no files to work on";
                return Ok(GitAnswer::Unready(why.to_owned()));
            }
            Err(why) if why.contains("dubious ownership") => {
                let why = format!(
                    "{why}; it belongs to somebody else: if you trust it, run `git status` here, which says how to \
                     tell git so"
                );
                return Ok(GitAnswer::Unready(why));
            }
            Err(why) => {
                let why = format!("there is no git repository here: {why}");
                return Ok(GitAnswer::NoRepository(why));
            }
        }
        if let Some(why) = self.command.obstacle().await? {
            return Ok(GitAnswer::Unready(why));
        }
        let is_merge = self.command.has_file("MERGE_HEAD").await?;
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
        let position =
            GitPosition { branch: self.command.branch().await, commit: self.command.head().await };
        let dirty = self.status().await?.into_iter().map(|(_, name)| name).collect();
        Ok(GitAnswer::Base { position, dirty })
    }

    /// Commits where the run stands, and nowhere else.
    async fn commit_at(
        &mut self,
        position: &GitPosition,
        message: &str,
    ) -> Result<GitAnswer, String> {
        if let Some(why) = self.astray(position).await? {
            return Ok(GitAnswer::Unready(why));
        }
        // Of a lock that stays, git itself says so.
        self.command.wait_for_lock().await?;
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
        let is_same = self.command.holds(&["diff", "--cached", "--quiet"]).await?;
        if is_same && !self.command.has_file("MERGE_HEAD").await? {
            return added.map(|_| None);
        }
        self.commit_staged(message).await?;
        added?;
        Ok(self.command.head().await)
    }

    async fn commit_staged(&self, message: &str) -> GitOutput {
        let mut words = vec!["-c", "commit.gpgSign=false"];
        // Whose machine has no name for commits still has its work committed.
        if self.command.run(&["var", "GIT_COMMITTER_IDENT"]).await.is_err() {
            words.extend(["-c", "user.name=afresh", "-c", "user.email=afresh@localhost"]);
        }
        // A message may begin with what is a comment elsewhere.
        words.extend(["commit", "-q", "--no-verify", "--cleanup=whitespace", "-m", message]);
        self.command.run(&words).await
    }

    async fn look(
        &mut self,
        since: Option<&str>,
        files: &[String],
        beside: &[(String, String)],
    ) -> Result<PhaseChanges, String> {
        let head = self.command.head().await;
        let Some(head) = head else { return Ok(PhaseChanges::default()) };
        let base = match since {
            Some(since) => since.to_owned(),
            // The tree without files.
            None => {
                self.command.run(&["hash-object", "-t", "tree", "--stdin"]).await?.trim().to_owned()
            }
        };
        let range = [base.as_str(), &head];
        let commits = match since {
            Some(since) => {
                self.command.run(&["log", "--format=%h %s", &format!("{since}..{head}")]).await?
            }
            None => self.command.run(&["log", "--format=%h %s"]).await?,
        };
        self.note_committed(range).await?;
        let stat = self.command.run(&["diff", "--stat=100", range[0], range[1]]).await?;
        let named = self
            .command
            .run(&["diff", "--name-status", "--no-renames", "-z", range[0], range[1]])
            .await?;
        let mut changes = PhaseChanges {
            commits: commits.lines().map(str::to_owned).collect(),
            stat,
            head: Some(head.clone()),
            ..PhaseChanges::default()
        };
        let mut fields = named.split('\0');
        while let (Some(status), Some(name)) = (fields.next(), fields.next()) {
            match status {
                "A" => changes.new.push(name.to_owned()),
                _ => changes.modified.push(name.to_owned()),
            }
        }
        if !files.is_empty() {
            let mut words =
                vec!["diff", "--name-only", "--no-renames", "-z", range[0], range[1], "--", ":/"];
            let patterns = files.iter().flat_map(|pattern| expand_braces(pattern));
            let patterns: Vec<String> = patterns.map(|pattern| allowed(&pattern)).collect();
            words.extend(patterns.iter().map(String::as_str));
            let outside = self.command.run(&words).await?;
            let theirs = self.touched(beside).await?;
            let is_agents = |name: &&str| !name.is_empty() && !theirs.contains(*name);
            changes.outside = outside.split('\0').filter(is_agents).map(str::to_owned).collect();
        }
        Ok(changes)
    }

    /// The files that were touched between these commits.
    async fn touched(&self, ranges: &[(String, String)]) -> Result<BTreeSet<String>, String> {
        let mut names = BTreeSet::new();
        for (from, to) in ranges {
            let words = ["diff", "--name-only", "--no-renames", "-z", from, to, "--", ":/"];
            names.extend(self.command.run(&words).await?.split('\0').map(str::to_owned));
        }
        Ok(names)
    }
}

/// What a pattern of the plan leaves out of the list of what was touched: a folder is all that is in it. It counts from
/// where git is run, which is the folder of the run.
fn allowed(pattern: &str) -> String {
    let pattern = pattern.trim_start_matches("./");
    match pattern.strip_suffix('/') {
        Some(folder) => format!(":(exclude,glob){folder}/**"),
        None => format!(":(exclude,glob){pattern}"),
    }
}
