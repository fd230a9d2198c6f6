//! Owns plans: a title, and phases with their tasks, as a person writes them in Markdown.
//!
//! [`read`] makes a plan out of texts and finds every mistake in them. It opens no file: [`links`] names those that
//! a plan needs beside its own, and the caller reads them.

mod keys;
mod markdown;
mod parse;
#[cfg(test)]
mod tests;
mod validate;
mod value;

use std::fmt;
use std::time::Duration;

pub use self::parse::{CheckedPlan, LinkedFile, PlanFile, links, read};
use crate::audit::redact::redact_text;
use crate::error_excerpt::Excerpt;
use crate::report::{Origin, write_report};

/// An example of a plan, which has no mistake and shows what can be said.
pub const EXAMPLE: &str = include_str!("plan/example.md");

/// A plan, read and found to be sound.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Its title.
    pub title: String,
    /// What stands outside of all phases, and is for each of them; empty where there is nothing.
    pub preface: String,
    /// Its phases, in an order in which each comes after those that it depends on.
    pub phases: Vec<Phase>,
}

/// One part of a plan, done in one session of an agent unless that is restarted.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its name, as it is written.
    pub name: String,
    /// The task, in prose.
    pub task: String,
    /// Names of phases that have to be done before.
    pub depends_on: Vec<String>,
    /// What has to pass when the agent is done.
    pub gates: Vec<Gate>,
    /// Patterns of the files that it may touch; all where there is none.
    pub files: Vec<String>,
    /// How long it may take in all.
    pub time_max: Option<Duration>,
    /// What it may cost, in US dollars.
    pub dollars_max: Option<f64>,
    /// How many tokens it may use, in and out.
    pub tokens_max: Option<u64>,
}

/// A command that must pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// How it is called: the command itself, where it has no name.
    pub name: String,
    /// What a shell is to run.
    pub command: String,
    /// How long it may take, where the plan says so.
    pub time_max: Option<Duration>,
}

/// Something wrong in one place of a plan. Its `Display` is the whole report, without a newline at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// Whether the plan can be carried out all the same.
    pub severity: Severity,
    /// What is wrong, in a sentence.
    pub message: String,
    /// Where that is; always in a file.
    pub origin: Origin,
    /// The line, quoted; none where there is no line to show.
    pub excerpt: Option<Excerpt>,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Whether a plan can be carried out all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It cannot.
    Error,
    /// It can, but something looks like a mistake.
    Warning,
}

impl Severity {
    /// The first word of the report.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

impl PlanError {
    /// Does not quote a line with something like a secret in it: errors get into logs.
    fn hide_secret(&mut self) {
        let is_secret = |excerpt: &Excerpt| *redact_text(&excerpt.text) != excerpt.text;
        self.excerpt = self.excerpt.take().filter(|excerpt| !is_secret(excerpt));
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (excerpt, hint) = (self.excerpt.as_ref(), self.hint.as_deref());
        write_report(f, self.severity.word(), &self.message, &self.origin, excerpt, hint)
    }
}

impl std::error::Error for PlanError {}

/// A place in a file of a plan, with the line to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SourcePosition {
    path: String,
    line: usize,
    column: usize,
    excerpt: Option<Excerpt>,
}

impl SourcePosition {
    fn error(&self, message: impl Into<String>, hint: impl Into<String>) -> PlanError {
        PlanError {
            severity: Severity::Error,
            message: message.into(),
            origin: Origin::File { path: self.path.clone(), line: self.line, column: self.column },
            excerpt: self.excerpt.clone(),
            hint: Some(hint.into()),
        }
    }

    fn warning(&self, message: impl Into<String>, hint: impl Into<String>) -> PlanError {
        PlanError { severity: Severity::Warning, ..self.error(message, hint) }
    }
}

impl fmt::Display for SourcePosition {
    /// `path:line`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path, self.line)
    }
}
