//! Owns the messages of the commits that a run makes. Used by `phase_flow.rs`. Never commits anything.

use crate::run::{Cause, Kind};

/// Of uncommitted changes when a phase began.
pub(super) fn before_phase(phase: &str) -> String {
    format!("what was there before `{phase}`")
}

/// Of the work of a session, by why it ended.
pub(super) fn of_session(phase: &str, cause: Cause, kind: Option<Kind>) -> String {
    match (cause, kind) {
        (Cause::Done, Some(Kind::Remediation(number))) => {
            format!("{phase}, remediation {number}")
        }
        (Cause::Done, _) => phase.to_owned(),
        (cause, _) => format!("{phase}, unfinished ({cause})"),
    }
}

/// Of what gates have changed.
pub(super) fn of_gates(phase: &str, is_done: bool) -> String {
    match is_done {
        true => format!("{phase}, done"),
        false => format!("{phase}, changed by gates"),
    }
}

/// The whole message.
pub(super) fn with_prefix(prefix: &str, message: &str) -> String {
    format!("{prefix} {message}").trim_start().to_owned()
}
