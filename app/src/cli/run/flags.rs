//! The settings of `afresh run` as flags. Their values are read with those of the other layers.

use afresh_core::agent::AgentKind;
use afresh_core::config::{Config, Flag};
use afresh_daemon::store::workspace::Workspace;
use clap::Args;
use clap::builder::PossibleValue;
use serde::Serialize;
use serde_json::Value;

use crate::environment::Environment;
use crate::error::CommandError;

/// How a plan is carried out.
#[derive(Debug, Default, Args, Serialize)]
#[command(next_help_heading = "Settings")]
pub(super) struct RunFlags {
    /// The agent: claude, codex, opencode, command, or auto for the first of them that is installed
    /// [default: auto]
    #[arg(long, value_name = "AGENT", hide_possible_values = true, value_parser = AgentKind::CHOICES)]
    agent: Option<String>,
    /// The program of the agent, and arguments that come before ours; for `--agent command` the whole
    /// command, where `{prompt}` stands for the prompt
    #[arg(long, value_name = "COMMAND", allow_hyphen_values = true)]
    agent_command: Option<String>,
    /// The model, where it is not the agent's usual one
    #[arg(long, value_name = "MODEL", allow_hyphen_values = true)]
    model: Option<String>,
    /// What the agent may do; what it may not do is refused, since no user is present to ask [default: edit]
    #[arg(long, value_name = "MODE", value_parser = permissions())]
    permission_mode: Option<String>,
    /// Percent of the context window at which a session is ended; 100 is never [default: 80]
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    context_threshold: Option<String>,
    /// Percent at which the agent is asked to come to an end by itself [default: 65]
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    soft_threshold: Option<String>,
    /// How many tokens fit into the context, for agents that do not say it; 0 is not known [default: 0]
    #[arg(long, value_name = "TOKENS", allow_hyphen_values = true)]
    context_window: Option<String>,
    /// Uses of tools after which a session is ended; 0 is never [default: 100]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    tool_call_threshold: Option<String>,
    /// Restarts of one phase; with 0 no session is ended for its context [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    max_restarts: Option<String>,
    /// Sessions that may mend what made a gate fail, for each phase [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    max_remediations: Option<String>,
    /// The time between one session and the next [default: 0s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    restart_delay: Option<String>,
    /// How long an agent may take for its handoff [default: 3m]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    handoff_timeout: Option<String>,
    /// How long nothing may be heard of an agent that works [default: 15m]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    silence: Option<String>,
    /// The first wait for a limit that does not say when it ends; each one after it is twice as long
    /// [default: 1m]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    limit_wait: Option<String>,
    /// How long the model may be waited for in a row, where its use is limited or it cannot be reached; then
    /// the run stops, and can be resumed [default: 12h]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    max_wait: Option<String>,
    /// How long a gate may take, where the plan does not say [default: 15m]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    gate_timeout: Option<String>,
    /// What the run may cost, in US dollars, as far as the agent says; 0 is any amount [default: 0]
    #[arg(long, value_name = "DOLLARS", allow_hyphen_values = true)]
    max_cost: Option<String>,
    /// How many tokens the run may use, in and out; 0 is any number [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    max_tokens: Option<String>,
    /// How long the run may take, waits not counted; 0 is any time [default: 0s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    max_time: Option<String>,
    /// Restarts in all phases of the run; 0 is any number [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    max_total_restarts: Option<String>,
    /// Work on this branch, which is made where there is none
    #[arg(long, value_name = "BRANCH", allow_hyphen_values = true)]
    branch: Option<String>,
    /// In front of the message of each commit [default: afresh:]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    commit_prefix: Option<String>,
    /// Changes that are not committed at the start: commit them apart, or refuse to begin [default:
    /// commit]
    #[arg(long, value_name = "WHAT", hide_possible_values = true, value_parser = ["commit", "refuse"])]
    dirty: Option<String>,
    /// Never commit files that match, beside those that git ignores; a line as in a `.gitignore`, and can be
    /// given more than once
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    exclude: Vec<String>,
    /// Work without git, and so without commits
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    no_git: Option<String>,
    /// Put `afresh mcp` in front of the MCP servers that the agent starts; its files stay as they are
    /// [default: true]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    supervise_mcp: Option<String>,
    /// Leave the agent's MCP servers alone
    #[arg(long, conflicts_with = "supervise_mcp")]
    no_supervise_mcp: bool,
}

impl RunFlags {
    /// The configuration of all layers, these flags the strongest.
    pub(super) fn config(
        &self,
        environment: &Environment,
        workspace: &Workspace,
    ) -> Result<Config, CommandError> {
        let given = self.given();
        let flags: Vec<Flag<'_>> =
            given.iter().map(|(name, setting, value)| Flag { name, setting, value }).collect();
        environment.config_for(workspace, &flags, &["run."])
    }

    /// The flags that were given: their names, settings and values.
    pub(super) fn given(&self) -> Vec<(String, String, String)> {
        let Ok(Value::Object(mut flags)) = serde_json::to_value(self) else { return Vec::new() };
        if flags.shift_remove("no_supervise_mcp") == Some(Value::Bool(true)) {
            flags.insert("supervise_mcp".to_owned(), "false".into());
        }
        let given = flags.into_iter().filter_map(|(key, value)| {
            let value = match value {
                Value::String(value) => value,
                Value::Array(patterns) if !patterns.is_empty() => {
                    let patterns: Vec<&str> = patterns.iter().filter_map(Value::as_str).collect();
                    patterns.join(",")
                }
                _ => return None,
            };
            Some((format!("--{}", key.replace('_', "-")), format!("run.{key}"), value))
        });
        given.collect()
    }
}

/// Between commas nothing would be no pattern, and what was meant would be committed.
fn pattern(text: &str) -> Result<String, &'static str> {
    match text.trim().is_empty() {
        true => Err("the pattern is empty"),
        false => Ok(text.to_owned()),
    }
}

fn permissions() -> [PossibleValue; 4] {
    [
        PossibleValue::new("plan").help("It reads, and writes nothing"),
        PossibleValue::new("edit")
            .help("It edits files here, and runs what its own settings allow"),
        PossibleValue::new("auto")
            .help("It runs what it wants, within the agent's own sandbox where it has one"),
        PossibleValue::new("bypass").help("Everything"),
    ]
}
