//! Owns the reports about files that users write: what is wrong, where, and what to write instead. Made by the
//! readers of configurations, plans and client files. Never quotes a line that holds a secret.

use std::fmt;

use crate::audit::redact::redact_text;
use crate::error_excerpt::Excerpt;
use crate::text::printable;

/// Something wrong in one place of the configuration. Its `Display` is the whole report, without a
/// newline at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// What sort of mistake it is.
    pub kind: ErrorKind,
    /// What is wrong, in a sentence.
    pub message: String,
    /// Where that is.
    pub origin: Origin,
    /// The line, quoted; none where there is no line to show.
    pub excerpt: Option<Excerpt>,
    /// What to do about it.
    pub hint: Option<String>,
}

/// What sort of mistake it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The file is larger than a configuration can be.
    TooLarge,
    /// The file is not UTF-8.
    Encoding,
    /// The file is not TOML.
    Syntax,
    /// There is no such section.
    UnknownSection,
    /// There is no such key.
    UnknownKey,
    /// There is no such variable. A warning: children of afresh inherit variables that are not its.
    UnknownVariable,
    /// The value has another type than the setting.
    WrongType,
    /// The value has the right type, but cannot be taken.
    BadValue,
    /// Something that has to be there is not.
    Missing,
    /// Two values that are right by themselves do not go together.
    Conflict,
    /// The value is never reached, because of another one. A warning.
    Idle,
    /// The file has more errors than are shown, or more of something than can be.
    TooMany,
}

impl ErrorKind {
    /// The first word of the report.
    pub const fn severity(self) -> &'static str {
        match self {
            Self::UnknownVariable | Self::Idle => "warning",
            _ => "error",
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// A configuration file.
    File {
        /// Its path, as it was given.
        path: String,
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
    },
    /// An environment variable of this name.
    Env(String),
    /// A flag of the command line, dashes included.
    Flag(String),
}

/// The origin of a value, with the line to show in an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) origin: Origin,
    pub(crate) excerpt: Option<Excerpt>,
}

impl Location {
    /// The location of built-in values.
    pub(crate) const BUILT_IN: Self = Self { origin: Origin::Default, excerpt: None };

    /// An error at this location. A line with something like a secret in it is not quoted: errors get
    /// into logs.
    pub(crate) fn error(
        &self,
        kind: ErrorKind,
        message: String,
        hint: impl Into<Option<String>>,
    ) -> ConfigError {
        let Self { origin, excerpt } = self.clone();
        let excerpt = excerpt.filter(|excerpt| *redact_text(&excerpt.text) == excerpt.text);
        ConfigError { kind, message, origin, excerpt, hint: hint.into() }
    }
}

impl fmt::Display for Origin {
    /// `default`, `path:line`, `env NAME` or `flag --name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line, .. } => write!(f, "{path}:{line}"),
            Self::Env(name) => write!(f, "env {}", printable(name)),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (excerpt, hint) = (self.excerpt.as_ref(), self.hint.as_deref());
        write_report(f, self.kind.severity(), &self.message, &self.origin, excerpt, hint)
    }
}

impl std::error::Error for ConfigError {}

/// Writes a report: what is wrong, where, the line with its carets, and what to do.
pub(crate) fn write_report(
    f: &mut fmt::Formatter<'_>,
    severity: &str,
    message: &str,
    origin: &Origin,
    excerpt: Option<&Excerpt>,
    hint: Option<&str>,
) -> fmt::Result {
    let number = match origin {
        Origin::File { line, .. } => line.to_string(),
        _ => " ".to_owned(),
    };
    let gutter = " ".repeat(number.len());
    write!(f, "{severity}: {message}")?;
    write!(f, "\n{gutter}--> {origin}")?;
    if let Origin::File { column, .. } = origin {
        write!(f, ":{column}")?;
    }
    if let Some(excerpt) = excerpt {
        let indent = " ".repeat(excerpt.indent);
        let carets = "^".repeat(excerpt.carets);
        let line = format!("{number} | {}", excerpt.text);
        write!(f, "\n{gutter} |\n{}", line.trim_end())?;
        write!(f, "\n{gutter} | {indent}{carets}")?;
    }
    match hint {
        Some(hint) => write!(f, "\nhint: {hint}"),
        None => Ok(()),
    }
}
