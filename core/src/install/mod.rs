//! Writes the files that make `afresh up` start with the machine: a unit for systemd, or an agent for launchd.
//!
//! Makes texts and judges those that are there; writes nothing and starts nothing.

mod launchd;
mod mark;
mod systemd;

use std::fmt;

pub use self::mark::{Standing, standing};
use crate::limits::INSTALL_NAME_CHARS_MAX;

/// A manager of programs that start with the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// The systemd of the user.
    Systemd,
    /// launchd, on macOS.
    Launchd,
}

/// One `afresh up` that is to start with the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The manager that starts it.
    pub manager: Manager,
    /// Its name there, besides `afresh`; see [`name_of`].
    pub name: String,
    /// afresh itself, by its whole path.
    pub program: String,
    /// The folder that it works for.
    pub workspace: String,
    /// The PATH for programs; that of the shell, because a manager's own is short.
    pub path: Option<String>,
}

/// A value that a manager does not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallError {
    what: &'static str,
    value: String,
    why: &'static str,
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = crate::text::harmless(&self.value);
        write!(f, "{} `{value}` {}", self.what, self.why)
    }
}

impl std::error::Error for InstallError {}

impl Installation {
    /// Its name for the manager.
    pub fn label(&self) -> String {
        match self.manager {
            Manager::Systemd => format!("afresh-{}.service", self.name),
            Manager::Launchd => format!("afresh.{}", self.name),
        }
    }

    /// The name of its file.
    pub fn file_name(&self) -> String {
        match self.manager {
            Manager::Systemd => self.label(),
            Manager::Launchd => format!("{}.plist", self.label()),
        }
    }

    /// The content of its file.
    pub fn text(&self) -> Result<String, InstallError> {
        match self.manager {
            Manager::Systemd => systemd::text(self),
            Manager::Launchd => launchd::text(self),
        }
    }

    /// The commands after its file is written, each with whether it may fail. `user` is the number of
    /// the user, `file` where it was written.
    pub fn enable(&self, user: u32, file: &str) -> Vec<InstallStep> {
        let label = self.label();
        match self.manager {
            Manager::Systemd => vec![
                InstallStep::must(&["systemctl", "--user", "daemon-reload"]),
                InstallStep::must(&["systemctl", "--user", "enable", "--now", &label]),
                // Without it, the user's systemd starts with the first login, and ends with the last.
                InstallStep::may(&["loginctl", "enable-linger"]),
            ],
            Manager::Launchd => {
                vec![InstallStep::must(&["launchctl", "bootstrap", &format!("gui/{user}"), file])]
            }
        }
    }

    /// The commands before its file is removed.
    pub fn disable(&self, user: u32) -> Vec<InstallStep> {
        let label = self.label();
        match self.manager {
            Manager::Systemd => {
                vec![InstallStep::may(&["systemctl", "--user", "disable", "--now", &label])]
            }
            Manager::Launchd => {
                vec![InstallStep::may(&["launchctl", "bootout", &format!("gui/{user}/{label}")])]
            }
        }
    }

    /// The commands after its file is removed.
    pub fn forget(&self) -> Vec<InstallStep> {
        match self.manager {
            Manager::Systemd => vec![InstallStep::may(&["systemctl", "--user", "daemon-reload"])],
            Manager::Launchd => Vec::new(),
        }
    }
}

/// A command of the manager's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallStep {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether all else is in vain when it fails.
    pub must: bool,
}

impl InstallStep {
    fn new(words: &[&str], must: bool) -> Self {
        Self { command: words.iter().map(|word| (*word).to_owned()).collect(), must }
    }

    fn must(words: &[&str]) -> Self {
        Self::new(words, true)
    }

    fn may(words: &[&str]) -> Self {
        Self::new(words, false)
    }
}

/// A name for the manager out of one of a folder: short, and only of what every manager takes.
pub fn name_of(folder: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' };
    let name: String = folder.chars().take(INSTALL_NAME_CHARS_MAX).map(plain).collect();
    let name = name.trim_matches(['.', '-']);
    if name.is_empty() { "workspace".to_owned() } else { name.to_owned() }
}

fn refused(what: &'static str, value: &str, why: &'static str) -> InstallError {
    InstallError { what, value: value.to_owned(), why }
}

#[cfg(test)]
mod tests;
