//! Owns the status of one service. Made from its machine. Never decides anything.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Face;
use crate::health::HealthStatus;
use crate::service::{LastExit, State};

/// One service: `GET /v1/services/NAME`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceStatus {
    /// Its name in the log, in the trail and in commands.
    pub name: String,
    /// What it is a copy of, where there are several.
    pub group: Option<String>,
    /// Which command keeps it.
    pub face: Face,
    /// What is true of it.
    #[serde(flatten)]
    pub state: State,
    /// Whether it is known when it serves. Otherwise it counts as up when it runs.
    #[serde(default)]
    pub says_ready: bool,
    /// The process that runs.
    pub pid: Option<u32>,
    /// The afresh process that keeps it.
    pub supervisor_pid: u32,
    /// The how-manieth instance it is.
    pub generation: u64,
    /// When the process was started, RFC 3339 in UTC.
    #[schemars(extend("format" = "date-time"))]
    pub started_at: Option<String>,
    /// How long the process has run.
    pub uptime_ms: Option<u64>,
    /// What has become of the instances before.
    pub restarts: Restarts,
    /// The process that is to take the place of this one when it is ready.
    pub candidate_pid: Option<u32>,
    /// The process that takes over when this one crashes.
    pub spare_pid: Option<u32>,
    /// Other services that have to be there before it is started.
    #[serde(default)]
    pub waits_for: Vec<String>,
    /// Other services that it needs, as it is defined.
    #[serde(default)]
    pub depends_on: Vec<String>,
    /// Why the last restart by a swap failed.
    pub swap_failed: Option<RestartNote>,
    /// How the last instance ended.
    pub last_exit: Option<LastExit>,
    /// What its health check says; none where it has none.
    #[serde(default)]
    pub health: Option<HealthStatus>,
    /// What the process and its descendants use; none where it is not told.
    #[serde(default)]
    pub usage: Option<UsageStatus>,
    /// How far the plan is; none where it is no run of one.
    #[serde(default)]
    pub run: Option<RunStatus>,
    /// Who uses it; none where it is not shared.
    #[serde(default)]
    pub shared: Option<SharedStatus>,
    /// The project's folder; none outside of one.
    pub workspace: Option<String>,
    /// What is run, without what looks like a secret.
    pub command: String,
    /// How processes are kept from outliving it.
    pub mechanism: String,
    /// The version of the afresh that keeps it.
    pub version: String,
}

impl ServiceStatus {
    /// All that it waits for, and what those wait for, the nearest first. Only services of one supervisor depend on
    /// each other.
    pub fn waits_among<'a>(&self, all: &'a [Self]) -> Vec<&'a Self> {
        let named = |name: &String| {
            all.iter().find(|one| one.supervisor_pid == self.supervisor_pid && one.name == *name)
        };
        let mut found: Vec<&Self> = Vec::new();
        let mut next: Vec<&Self> = self.waits_for.iter().filter_map(named).collect();
        while !next.is_empty() {
            next.retain(|one| !found.iter().any(|known| known.name == one.name));
            found.extend(&next);
            next = next.iter().flat_map(|one| one.waits_for.iter().filter_map(named)).collect();
        }
        found
    }
}

/// How far a run of a plan is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunStatus {
    /// Its number in the workspace, as `afresh runs` has it.
    #[schemars(range(min = 0))]
    pub number: i64,
    /// The title of the plan.
    pub plan: String,
    /// The phase that is worked on.
    pub phase: String,
    /// Its place, from 1.
    pub phase_number: u64,
    /// How many phases there are.
    pub phases: u64,
    /// What is done now, in a few words.
    pub doing: String,
    /// How full the context of the agent is, in percent, where that is known.
    pub context_percent: Option<f64>,
    /// Tokens in it.
    pub context_tokens: Option<u64>,
    /// How many fit.
    pub context_window: Option<u64>,
    /// Whether the agent counts them; otherwise they are guessed.
    pub context_exact: bool,
    /// Uses of tools in this session.
    pub tool_calls: u64,
    /// Restarts of this phase; those of the whole run are the restarts of the service.
    pub phase_restarts: u64,
    /// Tokens that went in, in all.
    pub input_tokens: u64,
    /// Tokens that came out, in all.
    pub output_tokens: u64,
    /// What was spent, in US dollars, as far as the agent says.
    pub dollars: Option<f64>,
    /// Until when a limit is waited for, RFC 3339 in UTC.
    #[schemars(extend("format" = "date-time"))]
    pub waits_until: Option<String>,
}

/// What a process and all its descendants use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageStatus {
    /// Memory that is resident. What several of them share is counted for each.
    pub memory_bytes: u64,
    /// Processor time since their start.
    pub cpu_ms: u64,
}

/// A server that clients share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SharedStatus {
    /// How many clients use it.
    pub clients: usize,
    /// What keeps it apart from others of the same name or command, one sentence for each of them.
    pub apart: Vec<String>,
}

/// Restarts of every kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Restarts {
    /// All of them.
    pub total: u64,
    /// The last few, oldest first.
    pub last: Vec<RestartNote>,
}

/// Why an instance was followed by another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RestartNote {
    /// When that was known, RFC 3339 in UTC.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// Why.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(supervisor: u32, name: &str, waits_for: &[&str]) -> ServiceStatus {
        let status = json!({
            "name": name, "face": "up", "state": "waiting", "supervisor_pid": supervisor,
            "pid": null, "generation": 1, "restarts": { "total": 0, "last": [] },
            "command": "", "mechanism": "", "version": "", "waits_for": waits_for,
        });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn waits_are_followed_within_a_supervisor_and_through_a_circle() {
        let all = [
            service(1, "web", &["api"]),
            service(1, "api", &["db"]),
            service(1, "db", &["api"]),
            service(2, "db", &[]),
        ];
        let names = |service: &ServiceStatus| {
            let found = service.waits_among(&all);
            found.iter().map(|one| (one.supervisor_pid, one.name.as_str())).collect::<Vec<_>>()
        };
        assert_eq!(names(&all[0]), [(1, "api"), (1, "db")]);
        assert_eq!(names(&all[3]), []);
    }
}
