//! What is said over the control socket: the values, and how they look as JSON. Version 1 of the API;
//! fields are only ever added.

mod service;

use serde::{Deserialize, Serialize};

pub use self::service::{LastExit, RestartNote, Restarts, ServiceStatus};
pub use crate::service::State;

/// Which command keeps a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Face {
    /// `afresh mcp`.
    Mcp,
    /// `afresh keep`.
    Keep,
    /// `afresh up`.
    Up,
}

impl Face {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Keep => "keep",
            Self::Up => "up",
        }
    }
}

/// All services of one afresh process: `GET /v1/services`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceList {
    /// In the order of their definition.
    pub services: Vec<ServiceStatus>,
}

/// What a restart is asked for with: `POST /v1/services/NAME/restart`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RestartAsked {
    /// Why, for the record.
    #[serde(default)]
    pub reason: Option<String>,
}

/// What became of a restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RestartAnswer {
    /// The service.
    pub name: String,
    /// How far it is.
    pub outcome: RestartOutcome,
    /// The process that was to be replaced.
    pub old_pid: Option<u32>,
    /// The process that runs now.
    pub new_pid: Option<u32>,
    /// What went wrong, as a sentence.
    pub detail: Option<String>,
}

/// How far a restart is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartOutcome {
    /// On record, and under way.
    Accepted,
    /// A new instance runs.
    Up,
    /// A new instance was tried, and is gone again.
    Failed,
    /// No new instance within the time that was waited.
    StillWaiting,
}

/// Remembered lines: `GET /v1/services/NAME/logs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogPage {
    /// Oldest first.
    pub lines: Vec<LogLine>,
    /// The number of the newest line there is; `since` with it goes on from there.
    pub newest: u64,
}

/// One line of a service's output, or of ours about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// Counted from 1 over all instances; a gap is lines that were forgotten.
    pub number: u64,
    /// When it was read, RFC 3339 in UTC.
    pub time: String,
    /// Which instance wrote it.
    pub generation: u64,
    /// Where it was written to.
    pub stream: Stream,
    /// The line, without its end.
    pub text: String,
}

/// Where a line was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// The service's stdout.
    Stdout,
    /// The service's stderr.
    Stderr,
    /// It is afresh's own, about the service.
    Afresh,
}

impl Stream {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Afresh => "afresh",
        }
    }
}

/// Every answer that is no success.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// What is wrong.
    pub error: Refused,
}

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// As a sentence.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Refusal {
    /// One without a hint.
    pub fn new(what: impl Into<String>) -> Self {
        Self { error: Refused { what: what.into(), hint: None } }
    }

    /// With a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.error.hint = Some(hint.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_api_are_fixed() {
        let line = LogLine {
            number: 7,
            time: "2026-11-15T08:42:00.123Z".to_owned(),
            generation: 2,
            stream: Stream::Stderr,
            text: "hello".to_owned(),
        };
        assert_eq!(
            serde_json::to_string(&line).unwrap(),
            r#"{"number":7,"time":"2026-11-15T08:42:00.123Z","generation":2,"stream":"stderr","text":"hello"}"#
        );
        for stream in [Stream::Stdout, Stream::Stderr, Stream::Afresh] {
            assert_eq!(serde_json::to_value(stream).unwrap(), stream.name());
        }
        for face in [Face::Mcp, Face::Keep, Face::Up] {
            assert_eq!(serde_json::to_value(face).unwrap(), face.name());
        }
        let refusal = Refusal::new("no service `x`").hint("run `afresh status`");
        assert_eq!(
            serde_json::to_string(&refusal).unwrap(),
            r#"{"error":{"what":"no service `x`","hint":"run `afresh status`"}}"#
        );
    }

    #[test]
    fn a_newer_afresh_may_say_more() {
        let asked: RestartAsked = serde_json::from_str(r#"{"later":1}"#).unwrap();
        assert_eq!(asked, RestartAsked::default());
        let asked: RestartAsked = serde_json::from_str(r#"{"reason":"new code"}"#).unwrap();
        assert_eq!(asked.reason.as_deref(), Some("new code"));
    }
}
