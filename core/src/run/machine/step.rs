//! Owns the names of the steps of a run, and what each means for people and for the working time. Driven by the
//! machine. Never goes from one step to another.

use super::Wait;
use super::session::Session;
use crate::run::{Cause, Kind, Now};
use crate::time::{Stamp, Time};

/// The step that the run is at.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Not begun.
    Idle,
    /// Git is asked where the phase begins.
    Basing,
    /// Changes of others than the run are committed.
    Tidying,
    /// A session starts, works or ends.
    InSession,
    /// Nothing new begins until the run is resumed.
    Held(HeldWork),
    /// The work of a session is committed.
    Committing { cause: Cause, until: Option<Stamp> },
    /// Git is asked what has changed in the phase.
    Looking { cause: Cause, until: Option<Stamp> },
    /// The next session waits a moment.
    Resting { kind: Kind, until: Time },
    /// The use of the model is limited.
    Limited { kind: Kind, until: Stamp },
    /// Gates are run.
    Gating,
    /// All gates were run, and their changes are committed.
    Sealing,
    /// The run is over.
    Over,
}

/// The work that begins when a held run is resumed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum HeldWork {
    Session(Kind),
    Gate,
}

/// Why a session ends.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EndReason {
    pub(super) cause: Cause,
    pub(super) detail: String,
    /// Until when the use of the model is limited.
    pub(super) until: Option<Stamp>,
    /// Whether the model could not be reached.
    pub(super) is_unreachable: bool,
}

impl EndReason {
    pub(super) fn new(cause: Cause, detail: impl Into<String>) -> Self {
        Self { cause, detail: detail.into(), until: None, is_unreachable: false }
    }
}

impl Step {
    /// Whether the time counts as working time.
    pub(super) fn counts_time(&self, session: Option<&Session>) -> bool {
        use Step::{Held, Idle, Limited, Over, Resting};
        !matches!(self, Idle | Held(_) | Resting { .. } | Limited { .. } | Over)
            && !session.is_some_and(Session::is_paused)
    }

    /// The kind of the session that is waited for.
    pub(super) const fn next_session(&self) -> Option<Kind> {
        match self {
            Self::Held(HeldWork::Session(kind))
            | Self::Limited { kind, .. }
            | Self::Resting { kind, .. } => Some(*kind),
            _ => None,
        }
    }

    /// What is done now, in a word or a few.
    pub(super) fn doing(&self, session: Option<&Session>, is_held: bool) -> &'static str {
        match self {
            _ if session.is_some() => session.map_or("", |session| session.doing(is_held)),
            Self::Over => "over",
            Self::Held(_) => "paused",
            // What has begun is brought to its end.
            _ if is_held => "pausing",
            Self::Idle | Self::Basing | Self::Tidying => "beginning",
            Self::Resting { .. } => "restarting",
            Self::Limited { .. } => "waiting for a limit to end",
            Self::Gating => "running gates",
            Self::InSession | Self::Committing { .. } | Self::Looking { .. } | Self::Sealing => {
                "committing"
            }
        }
    }

    /// The wait before the next session.
    pub(super) fn wait(&self, now: Now, why: &str) -> Option<Wait> {
        let (until, is_limit) = match self {
            Self::Limited { until, .. } => (*until, true),
            Self::Resting { until, .. } => (now.stamp.later_by(until.since(now.time)), false),
            _ => return None,
        };
        Some(Wait { until, why: why.to_owned(), is_limit })
    }
}
