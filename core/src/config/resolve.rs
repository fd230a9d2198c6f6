//! The making of a checked configuration out of the values of the table.

use core::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::Given;
use super::kind::Value;
use super::settings::{SETTINGS, Setting, position};
use crate::definition::{HealthSettings, OnSupervisorDeath};
use crate::gateway::backend::Stdio;
use crate::limits::MCP_STDIN_TIMEOUT;
use crate::policy::{Backoff, Policy, Restart, RestartMode};
use crate::report::{ConfigError, ErrorKind, Location, Origin};

/// Where the audit trail is written, and how much of it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrailSettings {
    /// The trail; none is `.afresh/audit.jsonl` of the workspace.
    pub audit_file: Option<PathBuf>,
    /// The marker; none is `.afresh/restart_marker.json` of the workspace.
    pub marker_file: Option<PathBuf>,
    /// The trail is rotated at this size.
    pub file_bytes_max: u64,
    /// Rotated files that are kept.
    pub files_kept: u32,
}

/// How `afresh up` itself behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaemonSettings {
    /// What becomes of the services when it is killed.
    pub on_supervisor_death: OnSupervisorDeath,
    /// Where the control API also listens, beside its socket; only ever on this machine.
    pub listen: Option<SocketAddr>,
}

/// One value for each of [`SETTINGS`], in the same order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Values(pub(super) Vec<Given>);

impl Values {
    pub(super) fn of_defaults() -> Self {
        let given =
            |setting: &Setting| Given { value: setting.default.clone(), place: Location::BUILT_IN };
        Self(SETTINGS.iter().map(given).collect())
    }

    pub(super) fn daemon(&self) -> DaemonSettings {
        let listen = self.given("daemon", "listen").value.to_string();
        DaemonSettings {
            on_supervisor_death: match self.word("daemon", "on_supervisor_death") {
                "keep" => OnSupervisorDeath::Keep,
                _ => OnSupervisorDeath::Kill,
            },
            listen: (!listen.is_empty()).then(|| listen.parse().expect(KIND_HOLDS)),
        }
    }

    pub(super) fn trail(&self) -> TrailSettings {
        TrailSettings {
            audit_file: self.path("audit_file"),
            marker_file: self.path("marker_file"),
            file_bytes_max: self.size("trail", "max_size"),
            files_kept: self.integer("trail", "keep"),
        }
    }

    pub(super) fn health(&self) -> HealthSettings {
        HealthSettings {
            memory_bytes_max: self.memory_bytes_max(),
            wedge_timeout: Some(self.duration("wedge_timeout")).filter(|time| !time.is_zero()),
        }
    }

    /// None is any amount.
    pub(super) fn memory_bytes_max(&self) -> Option<u64> {
        Some(self.size("defaults", "max_rss")).filter(|bytes| *bytes > 0)
    }

    /// The waits must grow, not shrink.
    pub(super) fn check_delays(&self) -> Result<(), Box<ConfigError>> {
        if self.duration("max_delay") >= self.duration("delay") {
            return Ok(());
        }
        let delay = self.given("defaults", "delay");
        let max = self.given("defaults", "max_delay");
        // Shown where a person wrote one of them: the other may be built in.
        let (at, other, name) = match max.place.origin {
            Origin::Default => (delay, max, "max_delay"),
            _ => (max, delay, "delay"),
        };
        let message =
            format!("`max_delay` ({}) is shorter than `delay` ({})", max.value, delay.value);
        let hint = format!("`{name}` comes from: {}", other.place.origin);
        Err(at.place.error(ErrorKind::Conflict, message, hint).into())
    }

    pub(super) fn policy(&self) -> Policy {
        let backoff = match self.word("defaults", "backoff") {
            "stepped" => Backoff::Stepped,
            _ => Backoff::Exponential {
                base: self.duration("delay"),
                factor: self.float("defaults", "factor"),
                cap: self.duration("max_delay"),
                jitter_percent: match self.given("defaults", "jitter").value {
                    Value::Percent(percent) => percent,
                    _ => unreachable!("{KIND_HOLDS}"),
                },
            },
        };
        Policy {
            restart: match self.word("defaults", "policy") {
                "always" => Restart::Always,
                "never" => Restart::Never,
                _ => Restart::OnCrash,
            },
            restart_on_normal_exit: self.given("defaults", "restart_on_normal_exit").value
                == Value::Bool(true),
            restart_code: self.integer("defaults", "restart_code"),
            backoff,
            throttle: self.duration("throttle"),
            crash_loop_count: self.integer("defaults", "crash_loop_count"),
            crash_loop_window: self.duration("crash_loop_window"),
            stable_after: self.duration("stable_after"),
            max_restarts: self.integer("defaults", "max_restarts"),
            stdin_timeout: self.duration("stdin_timeout"),
            stop_timeout: self.duration("stop_timeout"),
            restart_mode: match self.word("defaults", "restart_mode") {
                "swap" => RestartMode::Swap,
                _ => RestartMode::Replace,
            },
            drain_timeout: self.duration("drain_timeout"),
            spare: self.given("defaults", "spare").value == Value::Bool(true),
            ..Policy::default()
        }
    }

    /// The policy of an MCP server, whose client waits at the other end.
    pub(super) fn mcp_policy(&self) -> Policy {
        let is_open = |key: &str| self.given("defaults", key).place.origin == Origin::Default;
        let policy = self.policy();
        Policy {
            first_at_once: true,
            // The end of its input is how an MCP server is told to go.
            stdin_timeout: match is_open("stdin_timeout") {
                true => MCP_STDIN_TIMEOUT,
                false => policy.stdin_timeout,
            },
            // A server is known to be ready when it has shaken hands.
            restart_mode: match is_open("restart_mode") {
                true => RestartMode::Swap,
                false => policy.restart_mode,
            },
            ..policy
        }
    }

    /// A program that speaks MCP, of which nothing more is known than the settings.
    pub(super) fn stdio(&self) -> Stdio {
        let policy = self.mcp_policy();
        Stdio {
            command: Vec::new(),
            cwd: None,
            env: Vec::new(),
            env_file: None,
            spare: policy.spare,
            policy,
            health: self.health(),
            watch: Vec::new(),
            watch_debounce: self.duration("watch_debounce"),
        }
    }

    pub(super) fn given(&self, section: &str, key: &str) -> &Given {
        let index = position(section, key);
        &self.0[index.expect("the key is in the table: every load asks for all of them")]
    }

    pub(super) fn duration(&self, key: &str) -> Duration {
        self.duration_of("defaults", key)
    }

    pub(super) fn duration_of(&self, section: &str, key: &str) -> Duration {
        match self.given(section, key).value {
            Value::Duration(duration) => duration,
            _ => unreachable!("{KIND_HOLDS}"),
        }
    }

    pub(super) fn float(&self, section: &str, key: &str) -> f64 {
        match self.given(section, key).value {
            Value::Float(number) => number,
            _ => unreachable!("{KIND_HOLDS}"),
        }
    }

    pub(super) fn integer<T: TryFrom<i64>>(&self, section: &str, key: &str) -> T {
        match self.given(section, key).value {
            Value::Integer(number) => T::try_from(number).ok(),
            _ => None,
        }
        .expect(KIND_HOLDS)
    }

    fn size(&self, section: &str, key: &str) -> u64 {
        match self.given(section, key).value {
            Value::Size(bytes) => bytes,
            _ => unreachable!("{KIND_HOLDS}"),
        }
    }

    pub(super) fn word(&self, section: &str, key: &str) -> &str {
        match self.given(section, key).value {
            Value::Word(word) => word,
            _ => unreachable!("{KIND_HOLDS}"),
        }
    }

    /// None where the place of the file is left to the app.
    fn path(&self, key: &str) -> Option<PathBuf> {
        match self.given("trail", key) {
            Given { place: Location { origin: Origin::Default, .. }, .. } => None,
            given => Some(given.value.to_string().into()),
        }
    }
}

const KIND_HOLDS: &str = "the kind and range in the table were checked when the value was read";
