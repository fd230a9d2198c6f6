//! Owns the values that layers give to settings, and makes the checked configuration of them. Driven by `load`.
//! Never reads a file.

use core::net::SocketAddr;
use std::path::PathBuf;
use std::ptr;

use super::key::{Field, FromValue, Lookup, Setting};
use super::keys::defaults::{
    BACKOFF, BackoffKind, CRASH_LOOP_COUNT, CRASH_LOOP_WINDOW, DELAY, DRAIN_TIMEOUT, FACTOR,
    JITTER, MAX_DELAY, MAX_RESTARTS, MAX_RSS, POLICY, RESTART_CODE, RESTART_MODE,
    RESTART_ON_NORMAL_EXIT, SPARE, STABLE_AFTER, STDIN_TIMEOUT, STOP_TIMEOUT, THROTTLE,
    WATCH_DEBOUNCE, WEDGE_TIMEOUT,
};
use super::keys::{daemon, trail};
use super::value::Value;
use crate::definition::{HealthSettings, OnSupervisorDeath};
use crate::gateway::backend::StdioServer;
use crate::limits::MCP_STDIN_TIMEOUT;
use crate::policy::{Backoff, Policy, RestartMode};
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

/// A value, and where it was given.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SourcedValue {
    pub(super) value: Value,
    pub(super) place: Location,
}

/// The settings that a layer gives; all others have their defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Values(Vec<(&'static Field, SourcedValue)>);

impl Lookup for Values {
    fn value(&self, field: &Field) -> Option<&Value> {
        self.find(field).map(|given| &given.value)
    }
}

impl Values {
    fn find(&self, field: &Field) -> Option<&SourcedValue> {
        self.0.iter().find(|(known, _)| ptr::eq(*known, field)).map(|(_, given)| given)
    }

    /// Whether no layer gives it.
    pub(super) fn is_default(&self, field: &Field) -> bool {
        self.find(field).is_none_or(|given| given.place.origin == Origin::Default)
    }

    /// The value in force, and where it comes from.
    pub(super) fn given(&self, field: &Field) -> SourcedValue {
        self.find(field).cloned().unwrap_or_else(|| SourcedValue {
            value: field.default().unwrap_or(Value::Text(String::new())),
            place: Location::BUILT_IN,
        })
    }

    /// Takes the value of a stronger layer.
    pub(super) fn put(&mut self, field: &'static Field, given: SourcedValue) {
        self.forget(field);
        self.0.push((field, given));
    }

    /// Goes back to the default.
    pub(super) fn forget(&mut self, field: &Field) {
        self.0.retain(|(known, _)| !ptr::eq(*known, field));
    }

    pub(super) fn daemon(&self) -> DaemonSettings {
        DaemonSettings {
            on_supervisor_death: daemon::ON_SUPERVISOR_DEATH.get(self),
            // Empty is nowhere.
            listen: daemon::LISTEN.get(self).parse().ok(),
        }
    }

    pub(super) fn trail(&self) -> TrailSettings {
        // Where a file is not named, the app finds its place.
        let path = |key: &Setting<PathBuf>| (!self.is_default(key.field())).then(|| key.get(self));
        TrailSettings {
            audit_file: path(&trail::AUDIT_FILE),
            marker_file: path(&trail::MARKER_FILE),
            file_bytes_max: trail::MAX_SIZE.get(self),
            files_kept: trail::KEEP.get(self),
        }
    }

    pub(super) fn health(&self) -> HealthSettings {
        HealthSettings {
            memory_bytes_max: MAX_RSS.get(self),
            wedge_timeout: WEDGE_TIMEOUT.get(self),
        }
    }

    /// The waits must grow, not shrink.
    pub(super) fn check_delays(&self) -> Result<(), Box<ConfigError>> {
        if MAX_DELAY.get(self) >= DELAY.get(self) {
            return Ok(());
        }
        let (delay, max) = (self.given(DELAY.field()), self.given(MAX_DELAY.field()));
        // Shown where a user wrote one of them: the other may be built in.
        let (at, other, name) = match max.place.origin {
            Origin::Default => (&delay, &max, "max_delay"),
            _ => (&max, &delay, "delay"),
        };
        let message =
            format!("`max_delay` ({}) is shorter than `delay` ({})", max.value, delay.value);
        let hint = format!("`{name}` comes from: {}", other.place.origin);
        Err(at.place.error(ErrorKind::Conflict, message, hint).into())
    }

    pub(super) fn policy(&self) -> Policy {
        Policy {
            restart: POLICY.get(self),
            restart_on_normal_exit: RESTART_ON_NORMAL_EXIT.get(self),
            restart_code: RESTART_CODE.get(self),
            backoff: match BACKOFF.get(self) {
                BackoffKind::Stepped => Backoff::Stepped,
                BackoffKind::Exponential => Backoff::Exponential {
                    base: DELAY.get(self),
                    factor: FACTOR.get(self),
                    cap: MAX_DELAY.get(self),
                    jitter_percent: JITTER.get(self),
                },
            },
            throttle: THROTTLE.get(self),
            crash_loop_count: CRASH_LOOP_COUNT.get(self),
            crash_loop_window: CRASH_LOOP_WINDOW.get(self),
            stable_after: STABLE_AFTER.get(self),
            max_restarts: MAX_RESTARTS.get(self),
            stdin_timeout: STDIN_TIMEOUT.get(self),
            stop_timeout: STOP_TIMEOUT.get(self),
            restart_mode: RESTART_MODE.get(self),
            drain_timeout: DRAIN_TIMEOUT.get(self),
            spare: SPARE.get(self),
            ..Policy::default()
        }
    }

    /// The policy of an MCP server, whose client waits at the other end.
    pub(super) fn mcp_policy(&self) -> Policy {
        Policy {
            first_at_once: true,
            // The end of its input is how an MCP server is told to go.
            stdin_timeout: self.unless_given(&STDIN_TIMEOUT, MCP_STDIN_TIMEOUT),
            // A server is known to be ready when it has shaken hands.
            restart_mode: self.unless_given(&RESTART_MODE, RestartMode::Swap),
            ..self.policy()
        }
    }

    fn unless_given<T: FromValue>(&self, key: &Setting<T>, otherwise: T) -> T {
        if self.is_default(key.field()) { otherwise } else { key.get(self) }
    }

    /// A program that speaks MCP, of which nothing more is known than the settings.
    pub(super) fn stdio(&self) -> StdioServer {
        let policy = self.mcp_policy();
        StdioServer {
            command: Vec::new(),
            cwd: None,
            env: Vec::new(),
            env_file: None,
            spare: policy.spare,
            policy,
            health: self.health(),
            watch: Vec::new(),
            watch_debounce: WATCH_DEBOUNCE.get(self),
        }
    }
}
