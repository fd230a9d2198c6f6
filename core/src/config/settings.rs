//! Owns the values that layers give to settings, and makes the checked configuration of them: policy, trail, daemon and
//! run. Driven by `load`. Never reads a file.

use core::net::SocketAddr;
use std::path::PathBuf;
use std::ptr;

use super::key::{Field, FromValue, Lookup, Setting};
use super::keys::defaults::BackoffKind;
use super::keys::{daemon, defaults, run, trail};
use super::value_syntax::Value;
use super::{FileKind, shell_split};
use crate::agent::{AgentKind, Permission};
use crate::definition::{HealthSettings, OnSupervisorDeath};
use crate::gateway::backend::StdioServer;
use crate::gateway::inherited_env::InheritedEnv;
use crate::limits::MCP_STDIN_TIMEOUT;
use crate::policy::{Backoff, Policy, RestartMode};
use crate::report::{ConfigError, ErrorKind, Location, Origin};
use crate::run::{Budget, Exclude, Settings};
use crate::text::printable;

/// Where the audit trail is written, and how much of it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrailSettings {
    /// The trail; none is `.afresh/audit.jsonl` of the workspace.
    pub audit_file: Option<ConfiguredPath>,
    /// The marker; none is `.afresh/restart_marker.json` of the workspace.
    pub marker_file: Option<ConfiguredPath>,
    /// The trail is rotated at this size.
    pub file_bytes_max: u64,
    /// Rotated files that are kept.
    pub files_kept: u32,
}

/// A file that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredPath {
    /// Its path, from the workspace where it is relative.
    pub path: PathBuf,
    /// Whether the project's own file names it: then no link is followed on the way to it.
    pub is_project: bool,
}

/// How `afresh up` itself behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaemonSettings {
    /// What becomes of the services when it is killed.
    pub on_supervisor_death: OnSupervisorDeath,
    /// Where the control API also listens, beside its socket; only ever on this machine.
    pub listen: Option<SocketAddr>,
}

/// A value, and where it was given.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SourcedValue {
    pub(super) value: Value,
    pub(super) place: Location,
    /// Whose file gave it; none for variables, flags and defaults.
    pub(super) from: Option<FileKind>,
}

/// The settings that a layer gives; all others have their defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Values(Vec<(&'static Field, SourcedValue)>);

impl Lookup for Values {
    fn value(&self, field: &Field) -> Option<&Value> {
        self.find(field).map(|given| &given.value)
    }
}

impl Values {
    fn find(&self, field: &Field) -> Option<&SourcedValue> {
        self.0.iter().find(|(known, _)| ptr::eq(*known, field)).map(|(_, given)| given)
    }

    /// Whether no layer gives it.
    pub(super) fn is_default(&self, field: &Field) -> bool {
        self.find(field).is_none_or(|given| given.place.origin == Origin::Default)
    }

    /// The value in force, and where it comes from.
    pub(super) fn given(&self, field: &Field) -> SourcedValue {
        self.find(field).cloned().unwrap_or_else(|| SourcedValue {
            value: field.default().unwrap_or(Value::Text(String::new())),
            place: Location::BUILT_IN,
            from: None,
        })
    }

    /// The values that the project's file gives, where no stronger layer gives another one.
    pub(super) fn project_values(&self) -> impl Iterator<Item = (&'static Field, &SourcedValue)> {
        let is_project = |given: &SourcedValue| given.from == Some(FileKind::Workspace);
        self.0
            .iter()
            .filter(move |(_, given)| is_project(given))
            .map(|(field, given)| (*field, given))
    }

    /// Takes the value of a stronger layer.
    pub(super) fn put(&mut self, field: &'static Field, given: SourcedValue) {
        self.forget(field);
        self.0.push((field, given));
    }

    /// Goes back to the default.
    pub(super) fn forget(&mut self, field: &Field) {
        self.0.retain(|(known, _)| !ptr::eq(*known, field));
    }

    pub(super) fn daemon(&self) -> DaemonSettings {
        DaemonSettings {
            on_supervisor_death: daemon::ON_SUPERVISOR_DEATH.get(self),
            // Empty is nowhere.
            listen: daemon::LISTEN.get(self).parse().ok(),
        }
    }

    pub(super) fn trail(&self) -> TrailSettings {
        // Where a file is not named, the app finds its place.
        let path = |key: &Setting<PathBuf>| {
            let is_project = self.find(&key.field)?.from == Some(FileKind::Workspace);
            Some(ConfiguredPath { path: key.get(self), is_project })
        };
        TrailSettings {
            audit_file: path(&trail::AUDIT_FILE),
            marker_file: path(&trail::MARKER_FILE),
            file_bytes_max: trail::MAX_SIZE.get(self),
            files_kept: trail::KEEP.get(self),
        }
    }

    pub(super) fn health(&self) -> HealthSettings {
        HealthSettings {
            memory_bytes_max: defaults::MAX_RSS.get(self),
            wedge_timeout: defaults::WEDGE_TIMEOUT.get(self),
        }
    }

    /// The waits must grow, not shrink.
    pub(super) fn check_delays(&self) -> Result<(), Box<ConfigError>> {
        if defaults::MAX_DELAY.get(self) >= defaults::DELAY.get(self) {
            return Ok(());
        }
        let (delay, max) =
            (self.given(&defaults::DELAY.field), self.given(&defaults::MAX_DELAY.field));
        // Shown where a user wrote one of them: the other may be built in.
        let (at, other, name) = match max.place.origin {
            Origin::Default => (&delay, &max, "max_delay"),
            _ => (&max, &delay, "delay"),
        };
        let message =
            format!("`max_delay` ({}) is shorter than `delay` ({})", max.value, delay.value);
        let hint = format!("`{name}` comes from: {}", other.place.origin);
        Err(at.place.error(ErrorKind::Conflict, message, hint).into())
    }

    pub(super) fn policy(&self) -> Policy {
        Policy {
            restart: defaults::POLICY.get(self),
            restart_on_normal_exit: defaults::RESTART_ON_NORMAL_EXIT.get(self),
            restart_on_term: false,
            restart_code: defaults::RESTART_CODE.get(self),
            backoff: match defaults::BACKOFF.get(self) {
                BackoffKind::Stepped => Backoff::Stepped,
                BackoffKind::Exponential => Backoff::Exponential {
                    base: defaults::DELAY.get(self),
                    factor: defaults::FACTOR.get(self),
                    cap: defaults::MAX_DELAY.get(self),
                    jitter_percent: defaults::JITTER.get(self),
                },
            },
            throttle: defaults::THROTTLE.get(self),
            crash_loop_count: defaults::CRASH_LOOP_COUNT.get(self),
            crash_loop_window: defaults::CRASH_LOOP_WINDOW.get(self),
            stable_after: defaults::STABLE_AFTER.get(self),
            max_restarts: defaults::MAX_RESTARTS.get(self),
            stdin_timeout: defaults::STDIN_TIMEOUT.get(self),
            stop_timeout: defaults::STOP_TIMEOUT.get(self),
            restart_mode: defaults::RESTART_MODE.get(self),
            drain_timeout: defaults::DRAIN_TIMEOUT.get(self),
            spare: defaults::SPARE.get(self),
            first_at_once: false,
        }
    }

    /// The policy of an MCP server, whose client waits at the other end.
    pub(super) fn mcp_policy(&self) -> Policy {
        Policy {
            first_at_once: true,
            restart_on_term: true,
            // The end of its input is how an MCP server is told to go.
            stdin_timeout: self.unless_given(&defaults::STDIN_TIMEOUT, MCP_STDIN_TIMEOUT),
            // A server is known to be ready when it has shaken hands.
            restart_mode: self.unless_given(&defaults::RESTART_MODE, RestartMode::Swap),
            ..self.policy()
        }
    }

    fn unless_given<T: FromValue>(&self, key: &Setting<T>, otherwise: T) -> T {
        if self.is_default(&key.field) { otherwise } else { key.get(self) }
    }

    /// A program that speaks MCP, of which nothing more is known than the settings.
    pub(super) fn stdio(&self) -> StdioServer {
        let policy = self.mcp_policy();
        StdioServer {
            command: Vec::new(),
            cwd: None,
            env: Vec::new(),
            inherit_env: InheritedEnv::All,
            env_file: None,
            spare: policy.spare,
            policy,
            health: self.health(),
            watch: Vec::new(),
            watch_debounce: defaults::WATCH_DEBOUNCE.get(self),
            tell_restarts: defaults::TELL_RESTARTS.get(self),
        }
    }
}

impl Default for Policy {
    /// What holds where nothing is configured.
    fn default() -> Self {
        Values::default().policy()
    }
}

/// How `afresh run` carries out a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSettings {
    /// The agent; none is the first that is installed.
    pub agent: Option<AgentKind>,
    /// Its program and arguments that come before ours; empty is its own name.
    pub command: Vec<String>,
    /// The model; none is the agent's usual one.
    pub model: Option<String>,
    /// What the agent may do.
    pub permission: Permission,
    /// The branch to work on; none is the one that is there.
    pub branch: Option<String>,
    /// Patterns of files that are never committed.
    pub excludes: Vec<Exclude>,
    /// Whether `afresh mcp` stands in front of the agent's MCP servers.
    pub supervise_mcp: bool,
    /// All else.
    pub settings: Settings,
}

impl Values {
    pub(super) fn run(&self) -> RunSettings {
        let agent = run::AGENT.get(self);
        let command = run::AGENT_COMMAND.get(self).unwrap_or_default();
        // Patterns that are wrong are an error.
        let excludes =
            run::EXCLUDE.get(self).into_iter().filter_map(|text| Exclude::parse(&text).ok());
        RunSettings {
            agent: AgentKind::ALL.into_iter().find(|kind| kind.name() == agent),
            command: shell_split::split(&command).unwrap_or_default(),
            model: run::MODEL.get(self),
            permission: run::PERMISSION_MODE.get(self),
            branch: run::BRANCH.get(self),
            excludes: excludes.collect(),
            supervise_mcp: run::SUPERVISE_MCP.get(self),
            settings: Settings {
                context_threshold: run::CONTEXT_THRESHOLD.get(self),
                soft_threshold: run::SOFT_THRESHOLD.get(self),
                context_window: run::CONTEXT_WINDOW.get(self),
                tool_call_threshold: run::TOOL_CALL_THRESHOLD.get(self),
                max_restarts: run::MAX_RESTARTS.get(self),
                max_remediations: run::MAX_REMEDIATIONS.get(self),
                restart_delay: run::RESTART_DELAY.get(self),
                handoff_max: run::HANDOFF_TIMEOUT.get(self),
                silence_max: run::SILENCE.get(self),
                limit_wait: run::LIMIT_WAIT.get(self),
                wait_max: run::MAX_WAIT.get(self),
                gate_max: run::GATE_TIMEOUT.get(self),
                budget: Budget {
                    time: run::MAX_TIME.get(self),
                    dollars: run::MAX_COST.get(self),
                    tokens: run::MAX_TOKENS.get(self),
                    restarts: run::MAX_TOTAL_RESTARTS.get(self),
                },
                commit_prefix: run::COMMIT_PREFIX.get(self),
                dirty: run::DIRTY.get(self),
                without_git: run::NO_GIT.get(self),
            },
        }
    }

    /// Where a layer names another agent than the weaker ones, what those say about theirs does not count.
    pub(super) fn forget_other_agent(&mut self, weaker: &Self) {
        let agent = run::AGENT.get(weaker);
        if agent == run::AGENT.get(self) || agent == "auto" {
            return;
        }
        for field in [&run::AGENT_COMMAND.field, &run::MODEL.field, &run::CONTEXT_WINDOW.field] {
            if self.given(field) == weaker.given(field) {
                self.forget(field);
            }
        }
    }

    /// A quote that never ends would take the rest of the command with it.
    pub(super) fn check_agent_command(&self) -> Option<ConfigError> {
        if shell_split::split(&run::AGENT_COMMAND.get(self)?).is_some() {
            return None;
        }
        let message = "`agent_command` has a quote that never ends".to_owned();
        let hint = "end it, or put a backslash before it".to_owned();
        let place = self.given(&run::AGENT_COMMAND.field).place;
        Some(place.error(ErrorKind::BadValue, message, hint))
    }

    /// A pattern that matches nothing would let what it should keep into commits.
    pub(super) fn check_excludes(&self) -> Option<ConfigError> {
        let wrong = |pattern: &String| Some((pattern.clone(), Exclude::parse(pattern).err()?));
        let (pattern, wrong) = run::EXCLUDE.get(self).iter().find_map(wrong)?;
        let message = format!("the pattern `{}` of `exclude` {wrong}", printable(&pattern));
        let hint =
            "patterns are as in a `.gitignore`, without `!`: `*.key`, `/secrets/`, `conf/*.env`";
        let place = self.given(&run::EXCLUDE.field).place;
        Some(place.error(ErrorKind::BadValue, message, hint.to_owned()))
    }

    /// The soft threshold is never above the hard one. Where a user wrote it, a warning says so.
    pub(super) fn settle_thresholds(&mut self) -> Option<ConfigError> {
        if run::SOFT_THRESHOLD.get(self) <= run::CONTEXT_THRESHOLD.get(self) {
            return None;
        }
        let hard = self.given(&run::CONTEXT_THRESHOLD.field);
        let soft = self.given(&run::SOFT_THRESHOLD.field);
        if self.is_default(&run::SOFT_THRESHOLD.field) {
            self.put(&run::SOFT_THRESHOLD.field, SourcedValue { value: hard.value, ..soft });
            return None;
        }
        let message = format!(
            "`soft_threshold` ({}) is never reached: `context_threshold` ({}) ends the session before",
            soft.value, hard.value
        );
        let hint = format!("`context_threshold` comes from: {}", hard.place.origin);
        Some(soft.place.error(ErrorKind::Idle, message, hint))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Config, ConfigSource, FileKind, Flag, load};
    use crate::run::Dirty;

    fn with(project: &str, own: &str, env: &[(&str, &str)], flags: &[Flag<'_>]) -> Config {
        let texts = [project, own].map(|text| format!("[run]\n{text}"));
        let file = |kind, path, at: usize| ConfigSource { kind, path, bytes: texts[at].as_bytes() };
        let project = file(FileKind::Workspace, "afresh.toml", 0);
        let own = file(FileKind::User, "config.toml", 1);
        let env: Vec<_> =
            env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        load(&[project, own], &env, flags).unwrap()
    }

    fn flag<'a>(name: &'a str, setting: &'a str, value: &'a str) -> Flag<'a> {
        Flag { name, setting, value }
    }

    #[test]
    fn what_is_built_in_is_what_a_run_does_by_itself() {
        let run = load(&[], &[], &[]).unwrap().run;
        assert_eq!(run.settings, Settings::default());
        assert_eq!((run.agent, run.command, run.model), (None, Vec::new(), None));
        assert_eq!((run.permission, run.branch), (Permission::default(), None));
        assert!(run.excludes.is_empty() && run.supervise_mcp);
    }

    #[test]
    fn every_key_reaches_its_place_and_the_stronger_layer_wins() {
        // S8
        let project = "context_threshold = 70\nmax_restarts = 5\nsilence = \"1m\"\nexclude = [\"*.log\"]\n\
                       max_cost = 2.5\nmax_tokens = 1000\nmax_time = \"2h\"\nmax_total_restarts = 11\ndirty = \"refuse\"\n\
                       no_git = true\nsupervise_mcp = false\nbranch = \"work\"\nhandoff_timeout = \"5s\"\nlimit_wait = \"6s\"\nmax_wait = \"3h\"\n\
                       gate_timeout = \"7s\"\nrestart_delay = \"8s\"\ncommit_prefix = \"wip:\"\n\
                       context_window = 50000\ntool_call_threshold = 9\nmax_remediations = 10\npermission_mode = \"plan\"";
        let env = [("AFRESH_RUN_MAX_RESTARTS", "7"), ("AFRESH_RUN_EXCLUDE", "a/**, b")];
        let flags = [flag("--context-threshold", "run.context_threshold", "75.5")];
        let run = with(project, "max_restarts = 6\nsoft_threshold = 50", &env, &flags).run;
        let seconds = Duration::from_secs;
        let settings = Settings {
            context_threshold: 75.5,
            soft_threshold: 50.0,
            context_window: Some(50_000),
            tool_call_threshold: 9,
            max_restarts: 7,
            max_remediations: 10,
            restart_delay: seconds(8),
            handoff_max: seconds(5),
            silence_max: seconds(60),
            limit_wait: seconds(6),
            wait_max: seconds(3 * 3_600),
            gate_max: seconds(7),
            budget: Budget {
                time: Some(seconds(7_200)),
                dollars: Some(2.5),
                tokens: Some(1_000),
                restarts: Some(11),
            },
            commit_prefix: "wip:".to_owned(),
            dirty: Dirty::Refuse,
            without_git: true,
        };
        assert_eq!(run.settings, settings);
        let excludes = ["a/**", "b"].map(|pattern| Exclude::parse(pattern).unwrap());
        assert_eq!(run.excludes, excludes);
        assert!(!run.supervise_mcp);
        assert_eq!((run.permission, run.branch.as_deref()), (Permission::Plan, Some("work")));
    }

    #[test]
    fn a_command_has_words_as_in_a_shell_and_quotes_that_end() {
        let quoted = with("agent_command = 'sh -c \"echo hi > x\"'", "", &[], &[]).run;
        assert_eq!(quoted.command, ["sh", "-c", "echo hi > x"]);
        let secret = flag("--agent-command", "run.agent_command", "a --api-key hunter2hunter2");
        let shown = load(&[], &[], &[secret]).unwrap().shown().find(|it| it.key == "agent_command");
        assert_eq!(shown.unwrap().value.to_json(), "a --api-key [redacted]");
        let open = flag("--agent-command", "run.agent_command", "sh -c \"echo");
        let errors = load(&[], &[], &[open]).unwrap_err();
        let text = errors[0].to_string();
        assert!(
            text.contains("has a quote that never ends") && text.contains("--agent-command"),
            "{text}"
        );
    }

    #[test]
    fn the_command_and_the_model_of_another_agent_do_not_count() {
        let project = "agent = \"claude\"\nagent_command = \"npx  claude\"\nmodel = \"large\"";
        let run = |own: &str, env: &[(&str, &str)], flags: &[Flag<'_>]| {
            let run = with(project, own, env, flags).run;
            (run.agent, run.command.join(" "), run.model)
        };
        let large = Some("large".to_owned());
        let own = (Some(AgentKind::Claude), "npx claude".to_owned(), large);
        assert_eq!(run("", &[], &[]), own);
        assert_eq!(run("agent = \"claude\"", &[], &[flag("--agent", "run.agent", "claude")]), own);
        let codex = (Some(AgentKind::Codex), String::new(), None);
        assert_eq!(run("agent = \"codex\"", &[], &[]), codex);
        assert_eq!(run("", &[("AFRESH_RUN_AGENT", "codex")], &[]), codex);
        assert_eq!(
            run("", &[], &[flag("--agent", "run.agent", "auto")]),
            (None, String::new(), None)
        );
        let flags = [flag("--agent", "run.agent", "codex"), flag("--model", "run.model", "small")];
        let (_, command, model) = run("", &[], &flags);
        assert_eq!((command.as_str(), model.as_deref()), ("", Some("small")));
    }

    #[test]
    fn a_soft_threshold_above_the_hard_one_is_a_mistake_of_whoever_wrote_it() {
        let flags = [flag("--context-threshold", "run.context_threshold", "40")];
        let built_in = with("", "", &[], &flags);
        assert_eq!((built_in.run.settings.soft_threshold, built_in.warnings.len()), (40.0, 0));
        let written = with("soft_threshold = 60", "", &[], &flags);
        let [warning] = &written.warnings[..] else { panic!("{:?}", written.warnings) };
        assert_eq!(
            warning.to_string(),
            "\
    warning: `soft_threshold` (60.0) is never reached: `context_threshold` (40.0) ends the session before
 --> afresh.toml:2:18
  |
2 | soft_threshold = 60
  |                  ^^
hint: `context_threshold` comes from: flag --context-threshold"
        );
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_place() {
        for wrong in [
            "context_threshold = 0",
            "context_threshold = 101",
            "soft_threshold = \"80\"",
            "max_restarts = -1",
            "silence = \"0s\"",
            "max_cost = -1",
            "agent = \"cladue\"",
            "permission_mode = \"all\"",
            "exclude = \"*.log\"",
            "exclude = [\"\"]",
            "exclude = [1]",
            "exclude = [\"ok\", \"../x\"]",
            "exclude = [\"!x\"]",
            "exclude = [\"[\"]",
            "commit_prefix = \"a\\nb\"",
            "no_git = 1",
        ] {
            let text = format!("[run]\n{wrong}");
            let source = ConfigSource {
                kind: FileKind::Workspace,
                path: "afresh.toml",
                bytes: text.as_bytes(),
            };
            let errors = load(&[source], &[], &[]).unwrap_err();
            let report = errors[0].to_string();
            assert!(errors.len() == 1 && report.contains("afresh.toml:2:"), "{wrong}: {report}");
        }
    }
}
