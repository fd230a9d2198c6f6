//! Owns the keys of `[run]`.

use std::time::Duration;

use crate::agent::{AgentKind, Permission};
use crate::config::key::*;
use crate::config::value_syntax::Kind;
use crate::limits::{PLAN_DOLLARS_MAX, PLAN_TOKENS_MAX};
use crate::run::Dirty;

words! {
    Permission { "plan" => Plan, "edit" => Edit, "auto" => Auto, "bypass" => Bypass, }
    Dirty { "commit" => Commit, "refuse" => Refuse, }
}

keys! {
    RUN of "run";

    /// The agent; `auto` is the first of claude, codex and opencode that is installed.
    AGENT: Setting<String> = key("agent", Kind::Word(&AgentKind::CHOICES)).default("auto");
    /// The program of the agent, and arguments that come before ours; for the agent `command` the whole command,
    /// where `{prompt}` stands for the prompt. Empty is the agent's own name.
    AGENT_COMMAND: Setting<Option<String>> = key("agent_command", Kind::Line)
        .default("");
    /// The model; empty is the agent's usual one.
    MODEL: Setting<Option<String>> = key("model", Kind::Line).default("");
    /// What the agent may do; what it may not do is refused without a question.
    PERMISSION_MODE: Setting<Permission> = key("permission_mode", word::<Permission>())
        .default("edit");
    /// Percent of the context window at which a session is ended; 100 is never.
    CONTEXT_THRESHOLD: Setting<f64> = key("context_threshold", Kind::Float(1.0..=100.0))
        .default("80.0");
    /// Percent at which the agent is asked to come to an end by itself; at most `context_threshold`.
    SOFT_THRESHOLD: Setting<f64> = key("soft_threshold", Kind::Float(1.0..=100.0)).default("65.0");
    /// How many tokens fit into the context, for agents that do not say it, such as `command`; 0 is not known.
    CONTEXT_WINDOW: Setting<Option<u64>> =
        key("context_window", Kind::Integer(0..=PLAN_TOKENS_MAX as i64)).default("0");
    /// Uses of tools after which a session is ended; 0 is never.
    TOOL_CALL_THRESHOLD: Setting<u32> = key("tool_call_threshold", Kind::Integer(0..=1_000_000))
        .default("100");
    /// Restarts of one phase; with 0 no session is ended for its context.
    MAX_RESTARTS: Setting<u32> = key("max_restarts", Kind::Integer(0..=1_000_000)).default("3");
    /// Sessions that may mend what made a gate fail, for each phase.
    MAX_REMEDIATIONS: Setting<u32> = key("max_remediations", Kind::Integer(0..=1_000_000))
        .default("3");
    /// The time between one session and the next.
    RESTART_DELAY: Setting<Duration> = key("restart_delay", Kind::Duration).default("0s");
    /// How long an agent may take for its handoff.
    HANDOFF_TIMEOUT: Setting<Duration> = key("handoff_timeout", Kind::Interval).default("3m");
    /// How long nothing may be heard of an agent that works.
    SILENCE: Setting<Duration> = key("silence", Kind::Interval).default("15m");
    /// The first wait for a limit that does not say when it ends; each one after it is twice as long.
    LIMIT_WAIT: Setting<Duration> = key("limit_wait", Kind::Interval).default("1m");
    /// How long the model may be waited for in a row, where its use is limited or it cannot be reached; then the run
    /// stops, and can be resumed.
    MAX_WAIT: Setting<Duration> = key("max_wait", Kind::Duration).default("12h");
    /// How long a gate may take, where the plan does not say.
    GATE_TIMEOUT: Setting<Duration> = key("gate_timeout", Kind::Interval).default("15m");
    /// What a run may cost, in US dollars, as far as the agent says; 0 is any amount.
    MAX_COST: Setting<Option<f64>> = key("max_cost", Kind::Float(0.0..=PLAN_DOLLARS_MAX))
        .default("0.0");
    /// How many tokens a run may use, in and out; 0 is any number.
    MAX_TOKENS: Setting<Option<u64>> =
        key("max_tokens", Kind::Integer(0..=PLAN_TOKENS_MAX as i64)).default("0");
    /// How long a run may take, waits not counted; 0 is any time.
    MAX_TIME: Setting<Option<Duration>> = key("max_time", Kind::Duration).default("0s");
    /// Restarts of a run in all its phases; 0 is any number.
    MAX_TOTAL_RESTARTS: Setting<Option<u32>> =
        key("max_total_restarts", Kind::Integer(0..=1_000_000)).default("0");
    /// The branch to work on, which is made where there is none; empty is the one that is there.
    BRANCH: Setting<Option<String>> = key("branch", Kind::Line).default("");
    /// In front of the message of each commit.
    COMMIT_PREFIX: Setting<String> = key("commit_prefix", Kind::Line).default("afresh:");
    /// What becomes of changes that are not committed at the start: a commit of their own, or the run does not begin.
    DIRTY: Setting<Dirty> = key("dirty", word::<Dirty>()).default("commit");
    /// Patterns of files that are never committed, as lines of a `.gitignore`, beside those that git ignores.
    EXCLUDE: Setting<Vec<String>> = key("exclude", Kind::Patterns).default("");
    /// Whether to work without git, and so without commits.
    NO_GIT: Setting<bool> = key("no_git", Kind::Bool).default("false");
    /// Whether `afresh mcp` stands in front of the MCP servers that the agent starts.
    SUPERVISE_MCP: Setting<bool> = key("supervise_mcp", Kind::Bool).default("true");
}
