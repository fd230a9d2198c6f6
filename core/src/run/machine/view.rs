//! What a screen shows of a run.

use super::*;
use crate::agent::Context;
use crate::service::State;

/// The state of a run, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The phases, and how each ended.
    pub phases: Vec<(String, Option<PhaseEnd>)>,
    /// The phase that is worked on.
    pub current: usize,
    /// What is done now, in a word.
    pub doing: &'static str,
    /// The session.
    pub attempt: Attempt,
    /// How full its context is.
    pub context: Option<Context>,
    /// The same in percent.
    pub percent: Option<f64>,
    /// Uses of tools in this session.
    pub tool_calls: u32,
    /// What was used in all.
    pub spent: Spent,
    /// Restarts of this phase.
    pub restarts: u32,
    /// When a limit ends.
    pub until: Option<Stamp>,
}

impl Machine {
    /// The last session.
    pub const fn attempt(&self) -> Attempt {
        self.last_attempt
    }

    /// The title of the plan.
    pub fn title(&self) -> &str {
        &self.plan.title
    }

    /// Restarts of all phases.
    pub const fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Whether somebody who wants another session gets it.
    pub const fn can_restart(&self) -> bool {
        matches!(self.step, Step::Working | Step::Limited { .. } | Step::Resting { .. })
    }

    /// The state, as that of a service.
    pub fn state(&self) -> State {
        match &self.step {
            _ if self.wish == Some(Wish::Stop) => State::Stopping,
            Step::Idle | Step::Basing | Step::Tidying | Step::Opening { .. } => State::Starting,
            Step::Paused | Step::Limited { .. } => State::Waiting,
            Step::Resting { .. } => State::Restarting,
            Step::Over => State::Finished,
            _ => State::Running,
        }
    }

    /// The state, for people.
    pub fn view(&self) -> View {
        let doing = match &self.step {
            Step::Idle | Step::Basing | Step::Tidying => "beginning",
            Step::Opening { .. } => "starting the agent",
            Step::Working => "working",
            Step::Pausing => "pausing",
            Step::Paused => "paused",
            Step::Interrupting { .. } => "interrupting",
            Step::HandingOff { .. } => "handing off",
            Step::Closing { .. } => "ending the session",
            Step::Committing { .. } | Step::Looking { .. } | Step::Sealing { .. } => "committing",
            Step::Resting { .. } => "restarting",
            Step::Limited { .. } => "waiting for a limit to end",
            Step::Gating { .. } => "running gates",
            Step::Over => "over",
        };
        let session = self.session.as_ref();
        let running = session.map_or_else(Spent::default, |session| session.spent);
        let names = self.plan.phases.iter().map(|phase| phase.name.clone());
        View {
            phases: names.zip(self.ends.iter().copied()).collect(),
            current: self.phase.index,
            doing,
            attempt: self.last_attempt,
            context: session.and_then(|session| session.meter.context()),
            percent: session.and_then(|session| session.meter.percent()),
            tool_calls: session.map_or(0, |session| session.meter.tool_calls()),
            spent: plus(self.spent, running),
            restarts: self.phase.restarts,
            until: match &self.step {
                Step::Limited { until, .. } => Some(*until),
                _ => None,
            },
        }
    }
}
