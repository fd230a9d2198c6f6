//! What git is asked, by the `git` that the user has. Nothing here resets, cleans or throws away.

mod position;
mod preflight;
mod staging;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use afresh_core::limits::{GIT_OUTPUT_BYTES_MAX, GIT_STASHES_MAX, GIT_WAIT};
use afresh_core::run::{Exclude, GitAnswer, GitAsk, Looked, Stand, expand_braces};
use afresh_core::service::Exit;

pub(super) use self::preflight::env_of_git;
pub(super) use self::staging::steps_up;
use crate::process::Command;
use crate::run_briefly::{Brief, BriefEnding, BriefRunner, Outcome};

/// For every call: hooks judge finished work, and this keeps what there is; colours are not for us.
/// Names always count from the top. Ends of lines are no reason to lose the rest.
const SETTINGS: [&str; 8] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "color.ui=false",
    "-c",
    "diff.relative=false",
    "-c",
    "core.safecrlf=false",
];

#[derive(Clone)]
pub(super) struct Git {
    pub(super) runner: BriefRunner,
    pub(super) folder: PathBuf,
    pub(super) env: Vec<(OsString, OsString)>,
    /// Patterns of what is never committed.
    pub(super) excludes: Vec<Exclude>,
    /// How many folders the workspace is above ours.
    pub(super) steps_up: usize,
    /// The branch that somebody wants the run to work on.
    pub(super) wanted: Option<String>,
    /// Repositories inside of this one that are not added: they have no commit, or are worktrees of this one.
    pub(super) left_out: Vec<String>,
    /// What people should know about what is done for one who asks.
    pub(super) notes: Vec<String>,
}

/// What comes back to one who asks.
pub(super) struct Answered {
    pub(super) answer: GitAnswer,
    /// What is in the stash, where it was looked at.
    pub(super) stash: Option<Vec<String>>,
    /// What people should know.
    pub(super) notes: Vec<String>,
}

/// What git said, where it succeeded.
type Said = Result<String, String>;

impl Git {
    pub(super) async fn ask(mut self, ask: GitAsk) -> Answered {
        let is_look = matches!(ask, GitAsk::Look { .. });
        let answer = match ask {
            GitAsk::Base(stand) => self.base(&stand).await,
            GitAsk::Commit { message, stand } => self.commit_at(&stand, &message).await,
            GitAsk::Look { since, files, beside } => {
                self.look(since.as_deref(), &files, &beside).await.map(GitAnswer::Looked)
            }
        };
        let answer = answer.unwrap_or_else(GitAnswer::Failed);
        let stash = match is_look || matches!(answer, GitAnswer::NoRepository(_)) {
            true => None,
            false => self.stash().await.ok(),
        };
        Answered { answer, stash, notes: self.notes }
    }

    /// What is in the stash, the newest first.
    async fn stash(&self) -> Result<Vec<String>, String> {
        let stash =
            self.run(&["stash", "list", "--format=%H", &format!("-n{GIT_STASHES_MAX}")]).await?;
        Ok(stash.lines().map(str::to_owned).collect())
    }

    /// Makes a branch and goes there; one that is there already is gone to.
    pub(super) async fn switch(&self, branch: &str) -> Result<(), String> {
        let there =
            self.run(&["rev-parse", "--verify", "-q", &format!("refs/heads/{branch}")]).await;
        match there {
            Ok(_) => self.run(&["switch", branch]).await.map(drop),
            Err(_) => self.run(&["switch", "-c", branch]).await.map(drop),
        }
    }

    async fn base(&mut self, stand: &Stand) -> Result<GitAnswer, String> {
        match self.run(&["rev-parse", "--is-inside-work-tree"]).await {
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
        if let Some(why) = self.obstacle().await? {
            return Ok(GitAnswer::Unready(why));
        }
        let is_merge = self.has_file("MERGE_HEAD").await?;
        if is_merge && !stand.has_begun() {
            let why =
                "a merge is not finished here: commit it, or give it up with `git merge --abort`";
            return Ok(GitAnswer::Unready(why.to_owned()));
        }
        if let Some(why) = self.astray(stand).await? {
            return Ok(GitAnswer::Unready(why));
        }
        if is_merge {
            let why = "a merge is not finished here: conclude it with `git commit`";
            return Ok(GitAnswer::Unready(why.to_owned()));
        }
        let stand = Stand { branch: self.branch().await, commit: self.head().await };
        let dirty = self.status().await?.into_iter().map(|(_, name)| name).collect();
        Ok(GitAnswer::Base { stand, dirty })
    }

    async fn head(&self) -> Option<String> {
        let head = self.run(&["rev-parse", "--verify", "-q", "HEAD"]).await.ok()?;
        Some(head.trim().to_owned())
    }

    /// Commits where the run stands, and nowhere else.
    async fn commit_at(&mut self, stand: &Stand, message: &str) -> Result<GitAnswer, String> {
        if let Some(why) = self.astray(stand).await? {
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

    async fn commit_staged(&self, message: &str) -> Said {
        let mut words = vec!["-c", "commit.gpgSign=false"];
        // Whose machine has no name for commits still has its work committed.
        if self.run(&["var", "GIT_COMMITTER_IDENT"]).await.is_err() {
            words.extend(["-c", "user.name=afresh", "-c", "user.email=afresh@localhost"]);
        }
        // A message may begin with what is a comment elsewhere.
        words.extend(["commit", "-q", "--no-verify", "--cleanup=whitespace", "-m", message]);
        self.run(&words).await
    }

    async fn look(
        &mut self,
        since: Option<&str>,
        files: &[String],
        beside: &[(String, String)],
    ) -> Result<Looked, String> {
        let head = self.head().await;
        let Some(head) = head else { return Ok(Looked::default()) };
        let base = match since {
            Some(since) => since.to_owned(),
            // The tree without files.
            None => self.run(&["hash-object", "-t", "tree", "--stdin"]).await?.trim().to_owned(),
        };
        let range = [base.as_str(), &head];
        let commits = match since {
            Some(since) => {
                self.run(&["log", "--format=%h %s", &format!("{since}..{head}")]).await?
            }
            None => self.run(&["log", "--format=%h %s"]).await?,
        };
        self.note_committed(range).await?;
        let stat = self.run(&["diff", "--stat=100", range[0], range[1]]).await?;
        let named =
            self.run(&["diff", "--name-status", "--no-renames", "-z", range[0], range[1]]).await?;
        let mut looked = Looked {
            commits: commits.lines().map(str::to_owned).collect(),
            stat,
            head: Some(head.clone()),
            ..Looked::default()
        };
        let mut fields = named.split('\0');
        while let (Some(status), Some(name)) = (fields.next(), fields.next()) {
            match status {
                "A" => looked.new.push(name.to_owned()),
                _ => looked.modified.push(name.to_owned()),
            }
        }
        if !files.is_empty() {
            let mut words =
                vec!["diff", "--name-only", "--no-renames", "-z", range[0], range[1], "--", ":/"];
            let patterns = files.iter().flat_map(|pattern| expand_braces(pattern));
            let patterns: Vec<String> = patterns.map(|pattern| allowed(&pattern)).collect();
            words.extend(patterns.iter().map(String::as_str));
            let outside = self.run(&words).await?;
            let theirs = self.touched(beside).await?;
            let is_agents = |name: &&str| !name.is_empty() && !theirs.contains(*name);
            looked.outside = outside.split('\0').filter(is_agents).map(str::to_owned).collect();
        }
        Ok(looked)
    }

    /// The files that were touched between these commits.
    async fn touched(&self, ranges: &[(String, String)]) -> Result<BTreeSet<String>, String> {
        let mut names = BTreeSet::new();
        for (from, to) in ranges {
            let words = ["diff", "--name-only", "--no-renames", "-z", from, to, "--", ":/"];
            names.extend(self.run(&words).await?.split('\0').map(str::to_owned));
        }
        Ok(names)
    }

    async fn run(&self, words: &[&str]) -> Said {
        let said = self.run_with(words, Vec::new()).await?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// Runs it with this on its stdin; what it said need not be text.
    async fn run_with(&self, words: &[&str], stdin: Vec<u8>) -> Result<Vec<u8>, String> {
        let outcome = self.outcome(words, stdin).await?;
        match outcome.ending {
            BriefEnding::Exited(Exit::Code(0)) => Ok(outcome.stdout),
            _ => Err(failure(words, &outcome)),
        }
    }

    /// Whether something is so: git says no with 1, and anything else is a failure.
    async fn holds(&self, words: &[&str]) -> Result<bool, String> {
        let outcome = self.outcome(words, Vec::new()).await?;
        match outcome.ending {
            BriefEnding::Exited(Exit::Code(0)) => Ok(true),
            BriefEnding::Exited(Exit::Code(1)) => Ok(false),
            _ => Err(failure(words, &outcome)),
        }
    }

    /// What came of it, where it has ended by itself.
    async fn outcome(&self, words: &[&str], stdin: Vec<u8>) -> Result<Outcome, String> {
        let mut argv: Vec<OsString> = vec!["git".into()];
        argv.extend(SETTINGS.iter().chain(words).map(OsString::from));
        let command = Command { argv, cwd: Some(self.folder.clone()), env: self.env.clone() };
        let brief =
            Brief { command, stdin, time_max: GIT_WAIT, output_bytes_max: GIT_OUTPUT_BYTES_MAX };
        let Some(outcome) = self.runner.run(brief).await else {
            return Err("afresh is ending".to_owned());
        };
        match outcome.ending {
            BriefEnding::Exited(_) => Ok(outcome),
            BriefEnding::SpawnFailed(failure) => {
                Err(format!("git cannot be started: {}", failure.message))
            }
            BriefEnding::TimedOut => Err("git did not end in time".to_owned()),
            BriefEnding::TooMuchOutput => Err("git printed too much".to_owned()),
        }
    }
}

/// Why it has failed.
fn failure(words: &[&str], outcome: &Outcome) -> String {
    format!("git {}: {}", verb(words), reason(&String::from_utf8_lossy(&outcome.stderr)))
}

/// What git is to do, without settings.
fn verb<'a>(words: &[&'a str]) -> &'a str {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "-c" | "-C" => drop(words.next()),
            word => return word,
        }
    }
    ""
}

/// The line that says why: git explains at length, before and after it.
fn reason(said: &str) -> String {
    let is_reason = |line: &&str| line.starts_with("fatal:") || line.starts_with("error:");
    let is_aside = |line: &&str| line.starts_with("hint:") || line.starts_with("warning:");
    let mut lines = said.lines().filter(|line| !line.trim().is_empty());
    let line = said.lines().find(is_reason).or_else(|| lines.find(|line| !is_aside(line)));
    let line = line.or_else(|| said.trim().lines().last());
    line.unwrap_or("it says no more").trim().to_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_what_failed_and_no_advice() {
        for (said, wanted) in [
            ("warning: x\nfatal: bad\nhint: do\n", "fatal: bad"),
            ("error: first\nfatal: then\n", "error: first"),
            (
                "warning: x\n\nThese paths are outside\nhint: a\nhint: b\n",
                "These paths are outside",
            ),
            ("hint: a\nhint: b\n", "hint: b"),
            ("", "it says no more"),
        ] {
            assert_eq!(reason(said), wanted);
        }
    }
}
