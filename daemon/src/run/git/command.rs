//! Owns one call of the `git` that the user has: its settings, environment and limits. Driven by [`Git`](super::Git).
//! Never changes the repository by itself.

use std::ffi::OsString;
use std::path::PathBuf;

use afresh_core::limits::{GIT_OUTPUT_BYTES_MAX, GIT_WAIT};
use afresh_core::service::Exit;

use crate::process::Command;
use crate::run_briefly::{Brief, BriefEnding, BriefOutcome, BriefRunner};

/// Settings of every call: no hooks, which judge finished work; no colours; names from the top; line ends are no reason
/// to refuse a file.
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

/// The output of git where it succeeded, else why it failed.
pub(super) type GitOutput = Result<String, String>;

/// Runs git in the folder of the run.
#[derive(Clone)]
pub(super) struct GitCommand {
    pub(super) runner: BriefRunner,
    pub(super) folder: PathBuf,
    pub(super) env: Vec<(OsString, OsString)>,
}

impl GitCommand {
    pub(super) async fn head(&self) -> Option<String> {
        let head = self.run(&["rev-parse", "--verify", "-q", "HEAD"]).await.ok()?;
        Some(head.trim().to_owned())
    }

    pub(super) async fn run(&self, words: &[&str]) -> GitOutput {
        let said = self.run_with(words, Vec::new()).await?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// Runs it with this on its stdin; what it said need not be text.
    pub(super) async fn run_with(&self, words: &[&str], stdin: Vec<u8>) -> Result<Vec<u8>, String> {
        let outcome = self.outcome(words, stdin).await?;
        match outcome.ending {
            BriefEnding::Exited(Exit::Code(0)) => Ok(outcome.stdout),
            _ => Err(failure(words, &outcome)),
        }
    }

    /// Whether something is so: git says no with 1, and anything else is a failure.
    pub(super) async fn holds(&self, words: &[&str]) -> Result<bool, String> {
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
    pub(super) async fn have_files(&self, names: &[&str]) -> Result<Vec<bool>, String> {
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
    pub(super) async fn has_file(&self, name: &str) -> Result<bool, String> {
        Ok(self.path(name).await?.exists())
    }

    /// The branch that HEAD is on.
    pub(super) async fn branch(&self) -> Option<String> {
        let name = self.run(&["symbolic-ref", "-q", "HEAD"]).await.ok()?;
        let name = name.trim_end_matches('\n');
        Some(name.strip_prefix("refs/heads/").unwrap_or(name).to_owned())
    }

    /// Where something is in the folder of git.
    pub(super) async fn path(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.run(&["rev-parse", "--git-path", name]).await?;
        Ok(self.folder.join(path.trim_end_matches('\n')))
    }
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
