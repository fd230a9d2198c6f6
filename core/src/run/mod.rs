//! A plan carried out by an agent: a session for each phase, ended before its context is full, and begun
//! again with a checkpoint.
//!
//! ```text
//!   Basing ─▶ Opening ─▶ Working ──done──▶ Closing ─▶ Committing ─▶ Gating ──green──▶ next phase
//!               ▲           │ threshold, stall, overflow             │ red
//!               │           ▼                                        ▼
//!               │      Interrupting ─▶ HandingOff ─▶ Closing   a remediation attempt
//!               │                                       │
//!               └── Resting, Limited ◀── Looking ◀── Committing
//! ```
//!
//! `context_meter.rs` says how full a context is, `checkpoint.rs` what the next session is told, `prompts.rs` has
//! our words to the agent, `final_message.rs` reads those with which it stops, `record.rs` what is written down, `machine.rs` decides. Nothing here owns a process,
//! a file or a clock.

mod checkpoint;
mod context_meter;
mod file_patterns;
mod final_message;
mod machine;
pub mod plan;
mod prompts;
mod record;
mod resume;
mod session_end_causes;
mod settings;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::checkpoint::Checkpoint;
pub use self::context_meter::{Level, Meter};
pub use self::file_patterns::{Exclude, expand_braces, named};
pub use self::machine::{GateState, Machine, View, Wait};
pub use self::record::{Finish, Kind, PhaseEnd, Record};
pub use self::resume::{ResumePhase, ResumeState};
pub use self::session_end_causes::Cause;
pub use self::settings::{Budget, Dirty, Settings};
use crate::agent::{AgentEvent, ContextUse, Instruction};
use crate::audit::redact::redact_text;
use crate::limits::{GATE_SHOWN_CELLS_MAX, GATE_SHOWN_LINES_MAX};
use crate::text::{cut_to_cells, harmless_but_colours};
use crate::time::{Stamp, Time};

/// A moment, by both clocks: limits end by that on the wall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Since the start.
    pub time: Time,
    /// On the wall.
    pub stamp: Stamp,
}

/// A session of the run, in order: each has a number that no other has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Attempt(pub u32);

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Go.
    Begin,
    /// Something was heard of a session.
    Heard(Attempt, AgentEvent),
    /// A session is at work, though there is nothing new to hear of it.
    Streaming(Attempt),
    /// The process of a session could not be started.
    NotStarted(Attempt, String),
    /// The process of a session and all that it started are gone; how it ended, in words.
    SessionEnded(Attempt, String),
    /// What is in the stash of git, the newest first; this comes before what git said.
    Stash(Vec<String>),
    /// What git said.
    Git(GitAnswer),
    /// A gate has ended.
    GateEnded(GateEnd),
    /// A user asks for something.
    User(UserRequest),
    /// The time of `next_wakeup` has come.
    Wakeup,
}

/// A request of a user to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserRequest {
    /// Stop working until it is resumed.
    Pause,
    /// Go on.
    Resume,
    /// Tell the agent this.
    Steer(String),
    /// End the session, and begin another one with a checkpoint.
    Restart,
    /// Leave this phase as it is, by its place in the plan, and go on with the next one.
    Skip(usize),
    /// End in order; the run can be resumed.
    Stop,
}

/// What has to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Start a session, which will get this prompt.
    Open {
        /// Which.
        attempt: Attempt,
        /// What it is told first.
        prompt: String,
    },
    /// Tell a session something.
    Tell(Attempt, Instruction),
    /// End the process of a session and all that it started; it may be gone already.
    End(Attempt),
    /// Ask git.
    Git(GitRequest),
    /// Run a gate.
    RunGate {
        /// Its place in the phase.
        gate: usize,
        /// What a shell is to run.
        command: String,
        /// How long it may take.
        time_max: Duration,
    },
    /// End the gate that runs: its result is not needed any more.
    EndGate,
    /// Write this down, before anything that comes after it is done.
    Record(Record),
    /// Tell people.
    Event(RunEvent),
    /// The run is over.
    Finish(Finish),
}

/// What git is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GitRequest {
    /// Where we stand, and whether there are changes.
    Base(GitPosition),
    /// Commit everything, where the run stands and nowhere else.
    Commit {
        /// The message.
        message: String,
        /// Where the run stands.
        position: GitPosition,
    },
    /// What has happened since a commit.
    Changes {
        /// That commit; none where there was none.
        since: Option<String>,
        /// Patterns of the files that may be touched.
        files: Vec<String>,
        /// Commits between which others touched what they liked: the one before and the last one.
        beside: Vec<(String, String)>,
    },
}

/// What git answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GitAnswer {
    /// Where we stand.
    Base {
        /// The branch and its commit; none in a repository without any.
        position: GitPosition,
        /// Files that are changed or new.
        dirty: Vec<String>,
    },
    /// Everything is committed; none where there was nothing.
    Committed(Option<String>),
    /// What has happened.
    Changes(PhaseChanges),
    /// There is no repository here, or no git.
    NoRepository(String),
    /// Commits would end up on the wrong branch, and why.
    Unready(String),
    /// It failed, and why.
    Failed(String),
}

/// Where a run stands in a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitPosition {
    /// The branch that it works on; none where that is not known.
    pub branch: Option<String>,
    /// The last commit that it relies on, which is in that branch.
    pub commit: Option<String>,
}

impl GitPosition {
    /// Whether a run has been at work, so that files may hold what only it has done.
    pub fn has_begun(&self) -> bool {
        *self != Self::default()
    }
}

/// What has happened in a repository since a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhaseChanges {
    /// Commits, newest first: hash and title.
    pub commits: Vec<String>,
    /// What `git diff --stat` says.
    pub stat: String,
    /// Files that were changed.
    pub modified: Vec<String>,
    /// Files that are new.
    pub new: Vec<String>,
    /// Files that were touched though they may not be.
    pub outside: Vec<String>,
    /// Why git cannot say any of it.
    pub unknown: Option<String>,
    /// Where that was.
    pub head: Option<String>,
}

/// How a gate ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateEnd {
    /// Its place in the phase.
    pub gate: usize,
    /// Whether it passed.
    pub passed: bool,
    /// How it ended, in words: `exit code 1`.
    pub ending: String,
    /// The end of what it printed.
    pub output: String,
    /// How long it took.
    pub took: Duration,
}

/// The end of what a gate printed, as people see it: a few harmless lines, redacted as in a log.
pub fn shown_output(output: &str) -> Vec<String> {
    let output = redact_text(output);
    // Of a line that was written over and over, the last is seen.
    let seen = |line: &str| line.trim_end().rsplit('\r').next().unwrap_or_default().to_owned();
    let lines = output.lines().rev().map(seen).filter(|line| !line.trim().is_empty());
    let cut =
        |line: String| cut_to_cells(&harmless_but_colours(&line, false), GATE_SHOWN_CELLS_MAX);
    let mut lines: Vec<String> = lines.take(GATE_SHOWN_LINES_MAX).map(cut).collect();
    lines.reverse();
    lines
}

/// What people are told.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEvent {
    /// A phase begins.
    PhaseBegins {
        /// Its name.
        phase: String,
        /// Its place.
        number: usize,
        /// How many there are.
        of: usize,
    },
    /// A session begins.
    AttemptBegins(Attempt, Kind),
    /// The agent is there.
    AgentReady {
        /// The model.
        model: Option<String>,
    },
    /// How full the context is, in percent where that is known.
    Context(ContextUse, Option<f64>),
    /// The agent said this.
    Text(String),
    /// It uses a tool.
    Tool {
        /// The tool.
        name: String,
        /// On what.
        detail: String,
    },
    /// Something has changed that only a screen shows.
    Moved,
    /// Something worth knowing; whether it is a reason to worry.
    Note(String, bool),
    /// A gate is run.
    GateBegins(String),
    /// A gate has ended.
    GateEnds(String, GateEnd),
    /// The run waits until then.
    Waits {
        /// Why.
        why: String,
        /// Until when.
        until: Stamp,
    },
    /// A phase is over.
    PhaseEnds {
        /// Its name.
        phase: String,
        /// How.
        end: PhaseEnd,
        /// More about it.
        detail: String,
    },
}
