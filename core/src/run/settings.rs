//! Owns the settings and limits of a run.

use std::time::Duration;

use super::plan::Plan;
use crate::agent::AgentKind;

/// How a run is to go.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Percent of the context window at which a session is ended; 100 is never.
    pub context_threshold: f64,
    /// Percent at which the agent is asked to come to an end by itself.
    pub soft_threshold: f64,
    /// How many tokens fit into the context, for agents that do not say it.
    pub context_window: Option<u64>,
    /// Uses of tools after which a session is ended; 0 is never.
    pub tool_call_threshold: u32,
    /// Restarts of one phase; 0 is none.
    pub max_restarts: u32,
    /// Attempts to mend what made a gate fail.
    pub max_remediations: u32,
    /// The time between a session and the next one.
    pub restart_delay: Duration,
    /// How long the handoff may take.
    pub handoff_max: Duration,
    /// How long an agent may be silent.
    pub silence_max: Duration,
    /// How long a limit is waited for the first time, where its end is not said.
    pub limit_wait: Duration,
    /// How long the model may be waited for in a row; then the run stops.
    pub wait_max: Duration,
    /// How long a gate may take, where the plan does not say.
    pub gate_max: Duration,
    /// What the run may use in all.
    pub budget: Budget,
    /// In front of the message of each commit.
    pub commit_prefix: String,
    /// What becomes of changes that are there before the run begins.
    pub dirty: Dirty,
    /// Whether it works without git, also where there is a repository.
    pub without_git: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            context_threshold: 80.0,
            soft_threshold: 65.0,
            context_window: None,
            tool_call_threshold: 100,
            max_restarts: 3,
            max_remediations: 3,
            restart_delay: Duration::ZERO,
            handoff_max: Duration::from_secs(180),
            silence_max: Duration::from_secs(15 * 60),
            limit_wait: Duration::from_secs(60),
            wait_max: Duration::from_secs(12 * 60 * 60),
            gate_max: Duration::from_secs(15 * 60),
            budget: Budget::default(),
            commit_prefix: "afresh:".to_owned(),
            dirty: Dirty::default(),
            without_git: false,
        }
    }
}

/// What may be used; nothing is without bound only where none is given.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budget {
    /// How long it may take, waits for limits not counted.
    pub time: Option<Duration>,
    /// What it may cost, in US dollars.
    pub dollars: Option<f64>,
    /// How many tokens, in and out.
    pub tokens: Option<u64>,
    /// How many restarts in all.
    pub restarts: Option<u32>,
}

impl Settings {
    /// A warning where a plan or these settings limit what an agent costs that never says it.
    pub fn unkept(&self, plan: &Plan, agent: AgentKind) -> Option<String> {
        let run = self.budget.dollars.map(|_| "--max-cost".to_owned());
        let phases = plan.phases.iter().filter(|phase| phase.dollars_max.is_some());
        let phases: Vec<String> = phases.map(|phase| format!("`{}`", phase.name)).collect();
        let phases = (!phases.is_empty()).then(|| format!("`Cost limit` of {}", phases.join(", ")));
        let limits: Vec<String> = run.into_iter().chain(phases).collect();
        (!limits.is_empty() && !agent.profile().tells_cost).then(|| {
            format!(
                "{} does not tell what it costs: {} cannot be kept; use --max-tokens or `Token limit`",
                agent.name(),
                limits.join(" and ")
            )
        })
    }
}

/// What becomes of changes that are there before the run begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dirty {
    /// They get a commit of their own.
    #[default]
    Commit,
    /// The run does not begin.
    Refuse,
}
