//! What a section of the configuration is, and what a setting in it.

use super::kind::{Kind, Value};

/// A table of the configuration file.
#[derive(Debug)]
pub struct Section {
    /// The name in brackets.
    pub name: &'static str,
    /// What its settings are about, in one sentence.
    pub help: &'static str,
    /// What the names of its environment variables begin with.
    pub env_prefix: &'static str,
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// The name of its section.
    pub section: &'static str,
    /// The key within the section.
    pub key: &'static str,
    /// Which values it takes.
    pub kind: Kind,
    /// The value where no layer gives one.
    pub default: Value,
    /// What it does, in one sentence.
    pub help: &'static str,
    /// Who heeds it.
    pub scope: Scope,
}

/// Who heeds a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every service, and each can have its own.
    Service,
    /// Only `afresh mcp`.
    Mcp,
    /// afresh itself.
    Afresh,
}

impl Setting {
    /// The environment variable that sets it.
    pub fn env(&self) -> String {
        let section = SECTIONS.iter().find(|section| section.name == self.section);
        let prefix = section.map_or("", |section| section.env_prefix);
        format!("{prefix}{}", self.key.to_ascii_uppercase())
    }
}

/// Every section, in the order in which they are shown.
pub static SECTIONS: [Section; 4] = [
    Section {
        name: "defaults",
        help: "When a service is restarted, how long that waits, and how it is stopped.",
        env_prefix: "AFRESH_",
    },
    Section {
        name: "trail",
        help: "Where the audit trail is written, and how much of it is kept.",
        env_prefix: "AFRESH_TRAIL_",
    },
    Section {
        name: "daemon",
        help: "How `afresh up` itself behaves.",
        env_prefix: "AFRESH_DAEMON_",
    },
    Section {
        name: "run",
        help: "How `afresh run` carries out a plan.",
        env_prefix: "AFRESH_RUN_",
    },
];
