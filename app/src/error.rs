//! Owns the error of a command: kind, cause, hints, and one exit code for each kind. Never prints.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use afresh_daemon::error_chain::causes;

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

/// Every documented code, with what it means.
pub(crate) const EXIT_CODES: [(&str, &str); 10] = [
    ("0", "success; also `afresh keep` after Ctrl+C, SIGTERM or a clean exit of the command"),
    (
        "1",
        "a check found something wrong, `adopt` has changes to make, a restart or the kept command failed",
    ),
    ("2", "the command line is wrong"),
    (
        "3",
        "the configuration or a plan is wrong; `afresh config check` or `afresh plan check` says where",
    ),
    ("4", "what was asked for does not exist"),
    ("5", "the system refuses what is needed; `afresh doctor` says what"),
    ("70", "afresh itself is broken: please report it"),
    ("126", "`afresh keep`: the command exists, but cannot be run (125: its folder is missing)"),
    ("127", "`afresh keep`: the command was not found"),
    ("128+N", "`afresh keep`: the command was ended by signal N and not restarted"),
];

impl Exit {
    const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            // What a process can give is one byte.
            Self::Command(code) => (code & 0xff) as u8,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Config => 3,
            Self::NotFound => 4,
            Self::Unavailable => 5,
            Self::Internal => 70,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

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

    /// Whether the system would not let us.
    pub(crate) fn is_refused(&self) -> bool {
        self.exit == Exit::Unavailable
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

impl From<clap::Error> for CommandError {
    fn from(error: clap::Error) -> Self {
        let exit = if error.use_stderr() { Exit::Usage } else { Exit::Success };
        let stray = error.kind() == clap::error::ErrorKind::UnknownArgument
            && error.to_string().contains("afresh keep");
        let hint = "the command comes after `--`: afresh keep [OPTIONS] -- COMMAND";
        let hints = stray.then(|| hint.to_owned()).into_iter().collect();
        Self { exit, text: Text::Clap(Box::new(error)), hints }
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
