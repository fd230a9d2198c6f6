//! Owns the requests of a run to git: where it stands, commits, and what has changed. Driven by effects of the
//! machine, each in a task of its own. Never resets, cleans or throws away.

mod commit;
mod preflight;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use afresh_core::limits::{GIT_OUTPUT_BYTES_MAX, GIT_STASHES_MAX, GIT_WAIT};
use afresh_core::run::{Exclude, GitAnswer, GitRequest, PhaseChanges, expand_braces};
use afresh_core::service::Exit;

use self::commit::steps_up;
use super::Run;
use crate::git_index::REPOSITORY_VARIABLES;
use crate::process::Command;
use crate::run_briefly::{Brief, BriefEnding, BriefOutcome, BriefRunner};

/// Settings of every call: no hooks, which judge finished work; no monitor of files, which a repository could choose; no
/// repository that stands among the files of another one; no colours; names from the top; line ends are no reason
/// to refuse a file.
const SETTINGS: [&str; 12] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "safe.bareRepository=explicit",
    "-c",
    "color.ui=false",
    "-c",
    "diff.relative=false",
    "-c",
    "core.safecrlf=false",
];

/// The output of git where it succeeded, else why it failed.
pub(super) type GitOutput = Result<String, String>;

/// Why nothing may be committed now, where git could say it.
type Obstacle = Result<Option<String>, String>;

#[derive(Clone)]
pub(super) struct Git {
    runner: BriefRunner,
    folder: PathBuf,
    env: Vec<(OsString, OsString)>,
    /// Patterns of files that are never committed.
    excludes: Vec<Exclude>,
    /// How many folders the workspace is above that of the run.
    steps_up: usize,
    /// The branch that the user wants the run to work on.
    pub(super) wanted: Option<String>,
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
            runner,
            folder: run.folder.clone(),
            env: env_of_git(&run.env),
            excludes: run.excludes.clone(),
            steps_up: steps_up(&run.folder, run.workspace.root()),
            wanted: run.branch.clone(),
            left_out: Vec::new(),
            notes: Vec::new(),
        }
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
        let mut stash = None;
        if !is_look && !matches!(answer, GitAnswer::NoRepository(_)) {
            let max = format!("-n{GIT_STASHES_MAX}");
            let list = self.run(&["stash", "list", "--format=%H", &max]).await;
            stash = list.ok().map(|list| list.lines().map(str::to_owned).collect());
        }
        GitReply { answer, stash, notes: self.notes }
    }

    async fn look(
        &mut self,
        since: Option<&str>,
        files: &[String],
        beside: &[(String, String)],
    ) -> Result<PhaseChanges, String> {
        let head = self.head().await;
        let Some(head) = head else { return Ok(PhaseChanges::default()) };
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
            let outside = self.run(&words).await?;
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
            names.extend(self.run(&words).await?.split('\0').map(str::to_owned));
        }
        Ok(names)
    }

    async fn head(&self) -> Option<String> {
        let head = self.run(&["rev-parse", "--verify", "-q", "HEAD"]).await.ok()?;
        Some(head.trim().to_owned())
    }

    async fn run(&self, words: &[&str]) -> GitOutput {
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
    async fn outcome(&self, words: &[&str], stdin: Vec<u8>) -> Result<BriefOutcome, String> {
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

    /// Which of these are in the folder of git.
    async fn have_files(&self, names: &[&str]) -> Result<Vec<bool>, String> {
        let mut words = vec!["rev-parse"];
        words.extend(names.iter().flat_map(|name| ["--git-path", name]));
        let paths = self.run(&words).await?;
        // A name may have more than one line, but all of these are in one folder: then they are asked for one by one.
        if paths.lines().count() == names.len() {
            return Ok(paths.lines().map(|path| self.folder.join(path).exists()).collect());
        }
        let mut are_there = Vec::new();
        for name in names {
            are_there.push(self.has_file(name).await?);
        }
        Ok(are_there)
    }

    /// Whether there is such a file in the folder of git.
    async fn has_file(&self, name: &str) -> Result<bool, String> {
        Ok(self.path(name).await?.exists())
    }

    /// The branch that HEAD is on.
    async fn branch(&self) -> Option<String> {
        let name = self.run(&["symbolic-ref", "-q", "HEAD"]).await.ok()?;
        let name = name.trim_end_matches('\n');
        Some(name.strip_prefix("refs/heads/").unwrap_or(name).to_owned())
    }

    /// Where something is in the folder of git.
    async fn path(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.run(&["rev-parse", "--git-path", name]).await?;
        Ok(self.folder.join(path.trim_end_matches('\n')))
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

/// The environment of our git.
fn env_of_git(env: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let is_of_git = |(name, _): &&(OsString, OsString)| {
        !REPOSITORY_VARIABLES.iter().any(|it| OsStr::new(it) == name)
    };
    let mut env: Vec<_> = env.iter().filter(is_of_git).cloned().collect();
    // Git must not prompt, and its messages are parsed.
    env.push(("GIT_TERMINAL_PROMPT".into(), "0".into()));
    env.push(("LC_ALL".into(), "C".into()));
    env
}

/// Why it has failed.
fn failure(words: &[&str], outcome: &BriefOutcome) -> String {
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
