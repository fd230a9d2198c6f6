//! Owns the bodies of requests and answers of the control API and their JSON. Version 1; fields are only ever added. Served
//! by the daemon, read by the CLI. Never does IO.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ServiceStatus;

/// The version of the API.
pub const API_VERSION: u32 = 1;

/// Which command keeps a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Face {
    /// `afresh mcp`.
    Mcp,
    /// `afresh keep`.
    Keep,
    /// `afresh up`.
    Up,
    /// `afresh gateway`.
    Gateway,
    /// `afresh run`.
    Run,
}

impl Face {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Keep => "keep",
            Self::Up => "up",
            Self::Gateway => "gateway",
            Self::Run => "run",
        }
    }
}

/// All services of one afresh process: `GET /v1/services`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceList {
    /// In the order of their definition.
    pub services: Vec<ServiceStatus>,
}

/// The body of a request for a change; without a body there is no reason. Unknown fields are refused: the client
/// wants something that would not be done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeRequest {
    /// Why, for the record; cut at 1,000 characters.
    #[serde(default)]
    pub reason: Option<String>,
}

impl ChangeRequest {
    /// Reads a body; an empty one says nothing.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let body = body.trim_ascii();
        match body.first() {
            None => Ok(Self::default()),
            Some(b'{') => serde_json::from_slice(body).map_err(|error| error.to_string()),
            Some(_) => Err("it has to be an object".to_owned()),
        }
    }
}

/// What can be done with a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is to run.
    Start,
    /// It is to be down, and to stay down.
    Stop,
    /// It is to get a new instance.
    Restart,
}

impl Change {
    /// The word for it, as in its path.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
        }
    }
}

/// What became of a start, a stop or a restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeAnswer {
    /// The service.
    pub name: String,
    /// How far it is.
    pub outcome: ChangeOutcome,
    /// The process that ran before.
    pub old_pid: Option<u32>,
    /// The process that runs now.
    pub new_pid: Option<u32>,
    /// What went wrong, as a sentence.
    pub detail: Option<String>,
}

impl ChangeAnswer {
    /// It is under way.
    pub const fn accepted(name: String, old_pid: Option<u32>) -> Self {
        Self { name, outcome: ChangeOutcome::Accepted, old_pid, new_pid: None, detail: None }
    }
}

/// A service and its dependents after a restart: `POST /v1/services/NAME/restart_all`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RestartAnswer {
    /// Each of them, in the order of their restarts.
    pub outcomes: Vec<ChangeAnswer>,
}

/// How far a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeOutcome {
    /// On record, and under way.
    Accepted,
    /// An instance runs; after a restart, a new one.
    Up,
    /// It is down, as asked.
    Down,
    /// It was tried, and has failed.
    Failed,
    /// Not done within the time that was waited.
    StillWaiting,
}

/// What is in the stdin of a service: `POST /v1/services/NAME/input`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InputAnswer {
    /// The service.
    pub name: String,
    /// The process that can read it now.
    pub pid: u32,
    /// How much it is.
    pub bytes: u64,
}

/// What has changed with the configuration: `POST /v1/reload`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadAnswer {
    /// Services that are new.
    pub added: Vec<String>,
    /// Services that are gone, and stopped.
    pub removed: Vec<String>,
    /// Services that are restarted, because they are defined otherwise.
    pub changed: Vec<String>,
    /// Services that were left alone.
    pub unchanged: Vec<String>,
    /// What people should know besides.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What has become of those that were started, stopped and restarted, where that was waited for.
    #[serde(default)]
    pub outcomes: Vec<ChangeAnswer>,
}

/// That afresh ends: `POST /v1/shutdown`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShutdownAnswer {
    /// The services that are stopped.
    pub stopping: Vec<String>,
}

/// The afresh process that answers: `GET /v1/version`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VersionAnswer {
    /// The version of afresh.
    pub version: String,
    /// The version of the API.
    pub api: u32,
    /// Which command it is.
    pub face: Face,
    /// The process.
    pub pid: u32,
    /// What its events are counted under.
    pub run: String,
    /// Since when it runs, RFC 3339 in UTC.
    #[schemars(extend("format" = "date-time"))]
    pub started_at: String,
    /// The project's folder; none outside of one.
    pub workspace: Option<String>,
}

/// Remembered lines: `GET /v1/services/NAME/logs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogPage {
    /// Oldest first.
    pub lines: Vec<LogLine>,
    /// The number of the newest line there is; `since` with it goes on from there.
    pub newest: u64,
}

/// One line of a service's output, or of ours about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogLine {
    /// Counted from 1 over all instances; a gap is lines that were forgotten.
    pub number: u64,
    /// When it was read, RFC 3339 in UTC.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// Which instance wrote it.
    pub generation: u64,
    /// Where it was written to.
    pub stream: LogStream,
    /// The line, without its end.
    pub text: String,
}

/// Where a line was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Stream")]
pub enum LogStream {
    /// The service's stdout.
    Stdout,
    /// The service's stderr.
    Stderr,
    /// It is afresh's own, about the service.
    Afresh,
}

impl LogStream {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Stdout, Self::Stderr, Self::Afresh];

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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Refusal")]
pub struct ErrorAnswer {
    /// What is wrong.
    pub error: Refused,
}

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Refused {
    /// As a sentence.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl ErrorAnswer {
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
            stream: LogStream::Stderr,
            text: "hello".to_owned(),
        };
        assert_eq!(
            serde_json::to_string(&line).unwrap(),
            r#"{"number":7,"time":"2026-11-15T08:42:00.123Z","generation":2,"stream":"stderr","text":"hello"}"#
        );
        for stream in LogStream::ALL {
            assert_eq!(serde_json::to_value(stream).unwrap(), stream.name());
        }
        for face in [Face::Mcp, Face::Keep, Face::Up, Face::Gateway, Face::Run] {
            assert_eq!(serde_json::to_value(face).unwrap(), face.name());
        }
        for (outcome, word) in [
            (ChangeOutcome::Accepted, "accepted"),
            (ChangeOutcome::Up, "up"),
            (ChangeOutcome::Down, "down"),
            (ChangeOutcome::Failed, "failed"),
            (ChangeOutcome::StillWaiting, "still_waiting"),
        ] {
            assert_eq!(serde_json::to_value(outcome).unwrap(), word);
        }
        let refusal = ErrorAnswer::new("no service `x`").hint("run `afresh status`");
        assert_eq!(
            serde_json::to_string(&refusal).unwrap(),
            r#"{"error":{"what":"no service `x`","hint":"run `afresh status`"}}"#
        );
    }

    #[test]
    fn a_body_says_what_is_known_and_nothing_else() {
        let reason = |body: &str| ChangeRequest::parse(body.as_bytes()).map(|asked| asked.reason);
        assert_eq!(reason(r#" {"reason":"new code"} "#), Ok(Some("new code".to_owned())));
        for nothing in ["", " \n", "{}", r#"{"reason":null}"#] {
            assert_eq!(reason(nothing), Ok(None), "{nothing}");
        }
        // An answer may say more one day. A request that does wants something that we do not know.
        for (body, said) in [
            (r#"{"later":1}"#, "unknown field `later`"),
            (r#"{"reason":"a","reason":"b"}"#, "duplicate field"),
            (r#"{"reason":1}"#, "invalid type"),
            (r#"["new code"]"#, "has to be an object"),
            ("null", "has to be an object"),
            ("{} {}", "trailing characters"),
        ] {
            let error = reason(body).unwrap_err();
            assert!(error.contains(said), "{body}: {error}");
        }
        let line = r#"{"number":1,"time":"","generation":1,"stream":"afresh","text":"","later":1}"#;
        assert_eq!(serde_json::from_str::<LogLine>(line).unwrap().number, 1);
    }
}
