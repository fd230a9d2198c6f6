//! Owns the causes of the end of a session, as they stand in commits, records and logs: `CONTEXT_LIMIT_RESTART` and the
//! others. Later versions read them again: their names stay as they are.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Cause {
    /// The agent said that it is done.
    Done,
    /// Its context was full, or its tools were used often enough.
    ContextLimitRestart,
    /// It had put its context together by itself.
    CompactedRestart,
    /// It was silent for too long.
    Stalled,
    /// What it was asked did not fit.
    Overflow,
    /// The use of the model is limited.
    Limited,
    /// A user asked for a new session.
    RestartAsked,
    /// Its process ended, or could not start.
    Crashed,
    /// Its turn failed.
    Failed,
    /// The time of the phase was over.
    TimedOut,
    /// A budget is used up.
    OutOfBudget,
    /// A user asked to skip the phase.
    Skipped,
    /// A user asked to stop the run.
    Stopped,
    /// afresh itself ended without a word.
    Lost,
}

impl Cause {
    /// Whether the session ended before its task was complete, so that a restart follows.
    pub const fn is_restart(self) -> bool {
        matches!(
            self,
            Self::ContextLimitRestart
                | Self::CompactedRestart
                | Self::Stalled
                | Self::Overflow
                | Self::Crashed
                | Self::Failed
        )
    }
}

impl fmt::Display for Cause {
    /// As it is stored.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
