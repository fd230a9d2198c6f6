//! Writes the longer sentences of the log, with their fields for the trail.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Parts, StopReason};
use crate::audit::{EventType, Level};
use crate::service::exit::{Ending, Exit};
use crate::time::show_duration;

pub(super) fn exited(
    title: &str,
    pid: Option<u32>,
    exit: Exit,
    ending: &Ending,
    uptime: Duration,
) -> Parts {
    let failed = matches!(
        ending,
        Ending::Crash { .. }
            | Ending::Killed { .. }
            | Ending::HandshakeFailed(_)
            | Ending::HealthFailed(_)
    );
    let (level, event_type) = if failed {
        (Level::Warning, EventType::ServerCrashed)
    } else {
        (Level::Info, EventType::ServerExited)
    };
    let (code, signal) = match exit {
        Exit::Code(code) => (Some(code), None),
        Exit::Signal(signal) => (None, Some(signal)),
        Exit::Unknown => (None, None),
    };
    let who = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
    (
        level,
        event_type,
        format!("{title}{who} {exit} after {}: {ending}", show_duration(uptime)),
        vec![
            ("pid", json!(pid)),
            ("exit_code", json!(code)),
            ("signal", json!(signal)),
            ("ending", json!(ending.name())),
            ("uptime_ms", millis(uptime)),
        ],
    )
}

pub(super) fn restarting(
    title: &str,
    delay: Duration,
    after: &Ending,
    attempt: u32,
    max: u32,
) -> Parts {
    let when =
        if delay.is_zero() { "now".to_owned() } else { format!("in {}", show_duration(delay)) };
    let which = match max {
        0 => format!("restart {attempt}"),
        max => format!("restart {attempt} of {max}"),
    };
    let cause = match after {
        Ending::Clean => "unexpected exit".to_owned(),
        other => other.name().replace('_', " "),
    };
    (
        Level::Info,
        EventType::ServerRestarting,
        format!("Restarting {title} after {cause}, {when} ({which})"),
        vec![
            ("after", json!(after.name())),
            ("delay_ms", millis(delay)),
            ("attempt", json!(attempt)),
            ("attempts_max", json!(max)),
        ],
    )
}

pub(super) fn stopped(title: &str, reason: &StopReason) -> Parts {
    let (level, word, message) = match reason {
        StopReason::ByUser => {
            (Level::Info, "stopped_by_user", format!("{title} stopped by user, not restarting"))
        }
        StopReason::Retired => (
            Level::Info,
            "retired",
            format!("{title} stopped, the configuration does not have it any more"),
        ),
        StopReason::Dismissed => {
            (Level::Info, "dismissed", format!("{title} stopped, nobody needs it any more"))
        }
        StopReason::Shutdown => {
            (Level::Info, "shutdown", format!("{title} stopped, afresh is shutting down"))
        }
        StopReason::Policy(ending @ (Ending::Clean | Ending::StoppedByUser)) => {
            (Level::Info, ending.name(), format!("{title} has finished, not restarting"))
        }
        StopReason::Policy(ending) => (
            Level::Error,
            ending.name(),
            format!("{title} failed and is not restarted, as the policy says: {ending}"),
        ),
    };
    (level, EventType::ServerStopped, message, vec![("reason", json!(word))])
}

pub(super) fn millis(duration: Duration) -> Value {
    json!(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
