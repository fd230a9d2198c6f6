//! What a screen shows of a run. Names that never change are the plan's: here are only states.

use super::*;
use crate::agent::Context;
use crate::service::State;

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
    /// Whether somebody wants nothing new to begin.
    pub paused: bool,
    /// The session.
    pub attempt: Attempt,
    /// What kind of session it is; none before the first.
    pub kind: Option<Kind>,
    /// The model, as far as the agent said.
    pub model: Option<String>,
    /// How full its context is.
    pub context: Option<Context>,
    /// The same in percent.
    pub percent: Option<f64>,
    /// Percent at which the agent is asked to come to an end; none where nobody asks.
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

impl Machine {
    /// The last session.
    pub const fn attempt(&self) -> Attempt {
        self.last_attempt
    }

    /// The title of the plan.
    pub fn title(&self) -> &str {
        &self.plan.title
    }

    /// The name of the phase that is worked on.
    pub fn phase_name(&self) -> &str {
        self.plan.phases.get(self.phase.index).map_or("", |phase| &phase.name)
    }

    /// Restarts of all phases.
    pub const fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Whether somebody who wants another session gets it.
    pub const fn can_restart(&self) -> bool {
        matches!(
            self.step,
            Step::Working
                | Step::Pausing
                | Step::Paused
                | Step::Held(Next::Session(_))
                | Step::Limited { .. }
                | Step::Resting { .. }
        )
    }

    /// The state, as that of a service.
    pub fn state(&self) -> State {
        match &self.step {
            _ if self.wish == Some(Wish::Stop) => State::Stopping,
            Step::Idle | Step::Basing | Step::Tidying | Step::Opening { .. } => State::Starting,
            Step::Paused | Step::Held(_) | Step::Limited { .. } => State::Waiting,
            Step::Resting { .. } => State::Restarting,
            Step::Over => State::Finished,
            _ => State::Running,
        }
    }

    /// The state, for people.
    pub fn view(&self) -> View {
        let session = self.session.as_ref();
        let running = session.map_or_else(Spent::default, |session| session.spent);
        let settings = &self.settings;
        let hard = settings.context_threshold;
        let looks = settings.max_restarts > 0 && hard < 100.0;
        let gates = self.plan.phases.get(self.phase.index).map_or(0, |phase| phase.gates.len());
        let mut gates = vec![GateState::Waiting; gates];
        gates.iter_mut().zip(&self.phase.gates).for_each(|(gate, state)| *gate = *state);
        let tool = session.and_then(|session| session.tools.back());
        View {
            ends: self.ends.clone(),
            current: self.phase.index,
            gates,
            doing: self.doing(),
            paused: self.hold,
            attempt: self.last_attempt,
            kind: session.and(self.phase.kind),
            model: self.model.clone(),
            context: session.and_then(|session| session.meter.context()),
            percent: session.and_then(|session| session.meter.percent()),
            soft: looks.then(|| settings.soft_threshold.min(hard)),
            hard: looks.then_some(hard),
            tool_calls: session.map_or(0, |session| session.meter.tool_calls()),
            tool: tool.map(|tool| (tool.name.clone(), tool.detail.clone())),
            spent: self.spent.plus(running),
            restarts: self.phase.restarts,
            restarts_max: settings.max_restarts,
            remediations: self.phase.remediations,
            remediations_max: settings.max_remediations,
            worked: self.worked,
            counts: self.counts_time(),
            stamp: self.stamp,
            wait: self.wait(),
        }
    }

    fn wait(&self) -> Option<Wait> {
        let why = || self.phase.why.clone();
        match &self.step {
            Step::Limited { until, .. } => Some(Wait { until: *until, why: why(), is_limit: true }),
            Step::Resting { until, .. } => {
                let now =
                    self.stamp.unix_nanos().try_into().map_or(Duration::MAX, Duration::from_nanos);
                let until = now.saturating_add(until.since(self.last));
                let until = Stamp::since_unix_epoch(until);
                Some(Wait { until, why: why(), is_limit: false })
            }
            _ => None,
        }
    }

    fn doing(&self) -> &'static str {
        match &self.step {
            Step::Over => "over",
            Step::Paused | Step::Held(_) => "paused",
            Step::Pausing => "pausing",
            // What has begun is brought to its end.
            _ if self.hold => "pausing",
            Step::Idle | Step::Basing | Step::Tidying => "beginning",
            Step::Opening { .. } => "starting the agent",
            Step::Working => "working",
            Step::Interrupting { .. } => "interrupting",
            Step::HandingOff { .. } => "handing off",
            Step::Closing { .. } => "ending the session",
            Step::Committing { .. } | Step::Looking { .. } | Step::Sealing { .. } => "committing",
            Step::Resting { .. } => "restarting",
            Step::Limited { .. } => "waiting for a limit to end",
            Step::Gating { .. } => "running gates",
        }
    }

    /// Tells people that something else is done now, where that is so.
    pub(super) fn tell_doing(&mut self) {
        let doing = self.doing();
        if std::mem::replace(&mut self.told_doing, doing) != doing {
            self.say(Say::Moved);
        }
    }

    /// Notes that a gate runs; the first one makes those of an earlier time forgotten.
    pub(super) fn gate_begins(&mut self, gate: usize) {
        if gate == 0 {
            self.phase.gates.clear();
        }
        self.phase.gates.resize(self.this_phase().gates.len(), GateState::Waiting);
        self.phase.gates[gate] = GateState::Running(self.stamp);
    }

    /// Notes how a gate ended.
    pub(super) fn gate_took(&mut self, gate: usize, passed: bool, took: Duration) {
        let state = if passed { GateState::Passed(took) } else { GateState::Failed(took) };
        if let Some(gate) = self.phase.gates.get_mut(gate) {
            *gate = state;
        }
    }
}
