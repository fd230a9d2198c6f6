//! Owns plans: a title, and phases with their tasks, as a person writes them in Markdown.
//!
//! [`read`] makes a plan out of texts and finds every mistake in them. It opens no file: [`links`] names those that
//! a plan needs beside its own, and the caller reads them.

mod body;
mod check;
mod error;
mod key;
mod markup;
mod outline;
mod page;
mod read;
#[cfg(test)]
mod tests;
mod value;

use std::time::Duration;

pub use self::error::{PlanError, Severity};
pub use self::read::{CheckedPlan, LinkedFile, PlanFile, links, read};

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
