//! Owns the error of a command: kind, cause, hints, and one exit code for each kind. Never prints.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use afresh_core::report::ConfigError;
use afresh_core::suggest::nearest;
use afresh_core::text::harmless;
use afresh_daemon::SetupError;
use afresh_daemon::control::ControlError;
use afresh_daemon::error_chain::causes;
use afresh_daemon::store::runs::RunsError;

/// How a command ends. `afresh exit-codes` prints this table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All went well, or the user stopped it.
    Success,
    /// The code of the command that was kept alive.
    Command(i32),
    /// A check found something wrong.
    Failed,
    /// The command line is wrong.
    Usage,
    /// The configuration or a plan is wrong.
    Config,
    /// What was asked for does not exist.
    NotFound,
    /// The system refuses what is needed.
    Unavailable,
    /// afresh itself is broken.
    Internal,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            // What a process can give is one byte.
            Exit::Command(code) => (code & 0xff) as u8,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Config => 3,
            Exit::NotFound => 4,
            Exit::Unavailable => 5,
            Exit::Internal => 70,
        })
    }
}

/// How a command, or a part of one, went.
pub(crate) type CommandResult<T = Exit> = Result<T, CommandError>;

/// Why a command failed, for people.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) exit: Exit,
    pub(crate) text: Text,
    pub(crate) hints: Vec<String>,
}

#[derive(Debug)]
pub(crate) enum Text {
    /// A sentence and its causes.
    Chain(Box<dyn Error + Send + Sync>),
    /// Already laid out, `error:` included.
    Ready(String),
    /// Clap's own, with its colours: help and version come this way too.
    Clap(Box<clap::Error>),
    /// Nothing to say: our reader is gone.
    Silent,
}

impl CommandError {
    pub(crate) fn new(exit: Exit, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { exit, text: Text::Chain(error.into()), hints: Vec::new() }
    }

    /// One whose text is laid out already, `error:` included.
    pub(crate) fn ready(exit: Exit, text: String) -> Self {
        Self { exit, text: Text::Ready(text), hints: Vec::new() }
    }

    /// All that is wrong with a configuration or a plan.
    pub(crate) fn config(errors: &[impl ToString]) -> Self {
        let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Self::ready(Exit::Config, all.join("\n\n"))
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// With the name that was probably meant, or another hint where none is near.
    pub(crate) fn did_you_mean<'a>(
        self,
        name: &str,
        known: impl Iterator<Item = &'a str>,
        otherwise: &str,
    ) -> Self {
        match nearest(name, known) {
            Some(near) => self.hint(format!("did you mean `{}`?", harmless(near))),
            None => self.hint(otherwise),
        }
    }
}

/// Makes an error of a library the failure of a command.
pub(crate) trait OrExit<T> {
    /// The value, or the end of the command in this way.
    fn or_exit(self, exit: Exit) -> CommandResult<T>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> OrExit<T> for Result<T, E> {
    fn or_exit(self, exit: Exit) -> CommandResult<T> {
        self.map_err(|error| CommandError::new(exit, error))
    }
}

impl From<clap::Error> for CommandError {
    fn from(error: clap::Error) -> Self {
        let exit = if error.use_stderr() { Exit::Usage } else { Exit::Success };
        Self { exit, text: Text::Clap(Box::new(error)), hints: Vec::new() }
    }
}

impl From<std::io::Error> for CommandError {
    /// Errors of printing: a reader who has gone has seen enough.
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self { exit: Exit::Success, text: Text::Silent, hints: Vec::new() };
        }
        Self::new(Exit::Unavailable, format!("cannot print: {error}"))
    }
}

impl From<ControlError> for CommandError {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Print(error) => error.into(),
            ControlError::Refused { what, hint } => Self {
                hints: hint.iter().map(|hint| harmless(hint)).collect(),
                ..Self::new(Exit::Failed, harmless_lines(&what))
            },
            error @ ControlError::Unsupported => Self::new(Exit::Unavailable, error),
            error => Self::new(Exit::Unavailable, error).hint("run `afresh status --all`"),
        }
    }
}

impl From<SetupError> for CommandError {
    fn from(error: SetupError) -> Self {
        Self::new(Exit::Unavailable, error).hint("run `afresh doctor`")
    }
}

impl From<RunsError> for CommandError {
    fn from(error: RunsError) -> Self {
        let hint = error.hint();
        Self::new(Exit::Unavailable, error).hint(hint)
    }
}

impl From<Vec<ConfigError>> for CommandError {
    fn from(errors: Vec<ConfigError>) -> Self {
        Self::config(&errors)
    }
}

/// A text of several lines without what a terminal would obey.
pub(crate) fn harmless_lines(text: &str) -> String {
    text.lines().map(harmless).collect::<Vec<_>>().join("\n")
}

impl fmt::Display for CommandError {
    /// The message, its causes, its hints; no newline at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Text::Chain(error) => {
                write!(f, "error: {error}")?;
                for cause in causes(error.as_ref()) {
                    write!(f, "\n  caused by: {cause}")?;
                }
            }
            Text::Ready(text) => f.write_str(text)?,
            Text::Clap(error) => write!(f, "{error}")?,
            Text::Silent => {}
        }
        for hint in &self.hints {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}
