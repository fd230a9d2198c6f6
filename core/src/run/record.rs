//! Owns the records of a run, as they are stored. Later versions read them again: their names stay as they are.

use serde::{Deserialize, Serialize};

use super::{Attempt, Cause};
use crate::agent::Spent;

/// Which kind of attempt a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The first of its phase.
    First,
    /// It goes on where a session had to end; the number of the restart.
    Restart(u32),
    /// It mends what made a gate fail; its number.
    Remediation(u32),
    /// It goes on after afresh itself had ended, or after a wait.
    Resumed,
}

/// What is written down of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A phase began.
    PhaseBegan {
        /// Its name.
        phase: String,
        /// Where the repository stood.
        base: Option<String>,
        /// What was in the stash of git, the newest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stashes: Vec<String>,
    },
    /// A session is about to be started.
    AttemptBegan {
        /// Which.
        attempt: Attempt,
        /// Of which phase.
        phase: String,
        /// Of which kind.
        kind: Kind,
    },
    /// The agent's own name of the session, and its model.
    SessionNamed {
        /// Which.
        attempt: Attempt,
        /// As the agent calls it.
        session: Option<String>,
        /// The model.
        model: Option<String>,
    },
    /// How full the context is.
    Sampled {
        /// In which session.
        attempt: Attempt,
        /// Tokens in it.
        used: u64,
        /// How many fit.
        window: Option<u64>,
        /// Whether that is counted.
        exact: bool,
    },
    /// What a session has used in all.
    Spent {
        /// Which.
        attempt: Attempt,
        /// What it has used.
        #[serde(flatten)]
        spent: Spent,
    },
    /// The agent said something.
    Progress {
        /// In which session.
        attempt: Attempt,
        /// What.
        text: String,
    },
    /// A session ended.
    AttemptEnded {
        /// Which.
        attempt: Attempt,
        /// Why.
        cause: Cause,
        /// The handoff that it wrote.
        handoff: Option<String>,
        /// More about it.
        detail: String,
    },
    /// Where the run stands in the repository, where that has changed otherwise than by its own commits.
    Stood {
        /// The branch.
        branch: Option<String>,
        /// Its last commit.
        commit: Option<String>,
    },
    /// All that a session did is in this commit or before it.
    Seen {
        /// The commit.
        commit: String,
    },
    /// Between these commits it was not the agent who worked, but a person or a gate.
    Beside {
        /// The commit before.
        from: String,
        /// The last one.
        to: String,
    },
    /// Something was committed.
    Committed {
        /// The commit.
        commit: String,
        /// Its message.
        message: String,
    },
    /// A gate was run.
    GateEnded {
        /// Of which phase.
        phase: String,
        /// The gate.
        gate: String,
        /// Whether it passed.
        passed: bool,
        /// How it ended.
        ending: String,
        /// The end of what it printed.
        output: String,
        /// How long it took.
        took_ms: u64,
    },
    /// How long was worked so far, waits not counted.
    Worked {
        /// On the run, in all.
        run_ms: u64,
        /// On the phase that is worked on.
        phase_ms: u64,
    },
    /// The run waits for a limit to end.
    Waiting {
        /// Why.
        why: String,
        /// Until when.
        until: String,
    },
    /// A phase is over.
    PhaseEnded {
        /// Its name.
        phase: String,
        /// How.
        end: PhaseEnd,
        /// More about it.
        detail: String,
    },
    /// The run is over.
    RunEnded {
        /// How.
        finish: Finish,
    },
}

/// How a phase is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseEnd {
    /// All gates are green.
    Done,
    /// It was skipped.
    Skipped,
    /// It failed.
    Failed,
}

/// How a run is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "finish", rename_all = "snake_case")]
pub enum Finish {
    /// All phases are done.
    Done,
    /// All phases are over, but a user has skipped some; those can be taken up again.
    Skipped {
        /// How many are what.
        why: String,
    },
    /// A phase failed.
    Failed {
        /// Why.
        why: String,
    },
    /// It was stopped, or a budget is used up; it can be resumed.
    Stopped {
        /// Why.
        why: String,
    },
    /// It could not begin.
    Refused {
        /// Why.
        why: String,
        /// What to do.
        hint: String,
    },
}
