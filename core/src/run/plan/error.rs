//! Owns the errors and warnings of a plan: message, position, hint.

use std::fmt;

use crate::audit::redact::redact_text;
use crate::excerpt::Excerpt;
use crate::report::{Origin, write_report};

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
    pub(super) fn hide_secret(&mut self) {
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourcePosition {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) excerpt: Option<Excerpt>,
}

impl SourcePosition {
    /// The start of a file that has no line to show.
    pub(super) fn start(path: &str) -> Self {
        Self { path: path.to_owned(), line: 1, column: 1, excerpt: None }
    }

    pub(super) fn error(&self, message: String, hint: impl Into<String>) -> PlanError {
        self.report(Severity::Error, message, hint.into())
    }

    pub(super) fn warning(&self, message: String, hint: impl Into<String>) -> PlanError {
        self.report(Severity::Warning, message, hint.into())
    }

    fn report(&self, severity: Severity, message: String, hint: String) -> PlanError {
        let excerpt = self.excerpt.clone();
        let origin = Origin::File { path: self.path.clone(), line: self.line, column: self.column };
        PlanError { severity, message, origin, excerpt, hint: Some(hint) }
    }
}

impl fmt::Display for SourcePosition {
    /// `path:line`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path, self.line)
    }
}
