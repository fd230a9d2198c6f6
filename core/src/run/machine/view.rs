//! Owns the shape of a run's state as people see it. Filled by [`Machine::view`](super::Machine::view). Has no names
//! of phases and gates: those never change, and are in the plan.

use std::time::Duration;

use crate::agent::{ContextUse, Spent};
use crate::run::{Attempt, Kind, PhaseEnd};
use crate::time::Stamp;

/// The state of a run, for people.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// How each phase ended, in the order of the plan.
    pub ends: Vec<Option<PhaseEnd>>,
    /// The phase that is worked on.
    pub current: usize,
    /// Its gates.
    pub gates: Vec<GateState>,
    /// What is done now, in a word or a few.
    pub doing: &'static str,
    /// Whether a request for another session is granted.
    pub can_restart: bool,
    /// Whether a user wants nothing new to begin.
    pub paused: bool,
    /// The session.
    pub attempt: Attempt,
    /// What kind of session it is; none before the first.
    pub kind: Option<Kind>,
    /// The model, as far as the agent said.
    pub model: Option<String>,
    /// How full its context is.
    pub context: Option<ContextUse>,
    /// The same in percent.
    pub percent: Option<f64>,
    /// Percent at which the agent is asked to come to an end; none where it is not asked.
    pub soft: Option<f64>,
    /// Percent at which its session ends; none where that does not count.
    pub hard: Option<f64>,
    /// Uses of tools in this session.
    pub tool_calls: u32,
    /// The tool that is at work, and on what.
    pub tool: Option<(String, String)>,
    /// What was used in all.
    pub spent: Spent,
    /// Restarts of this phase…
    pub restarts: u32,
    /// …of so many.
    pub restarts_max: u32,
    /// Restarts of all phases.
    pub restarts_in_all: u32,
    /// Remediations of this phase…
    pub remediations: u32,
    /// …of so many.
    pub remediations_max: u32,
    /// How long was worked, at this moment.
    pub worked: Duration,
    /// Whether that grows now.
    pub counts: bool,
    /// The time on the wall to which all of this belongs.
    pub stamp: Stamp,
    /// What is waited for.
    pub wait: Option<Wait>,
}

/// A wait before the next session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// When it ends.
    pub until: Stamp,
    /// Why there is one.
    pub why: String,
    /// Whether the use of the model is limited until then.
    pub is_limit: bool,
}

/// How a gate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateState {
    /// It was not run yet.
    Waiting,
    /// It runs, since then.
    Running(Stamp),
    /// It passed, and took so long.
    Passed(Duration),
    /// It failed, and took so long.
    Failed(Duration),
}
