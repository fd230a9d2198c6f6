//! `afresh mcp`.

use std::path::PathBuf;
use std::time::Duration;

use afresh_core::config::Flag;
use afresh_core::duration::parse_duration;
use afresh_core::mcp::{AddedTools, ToolNames, WhichTools};
use afresh_core::share::SessionRequest;
use afresh_daemon::{HookSetup, Keep, Mcp, ShimSetup};
use clap::{Args, ValueEnum};

use crate::cli::keep::{CommandFlags, PolicyFlags};
use crate::cli::share;
use crate::environment::Environment;
use crate::error::{CommandResult, Exit};

/// Stands in front of an MCP server on stdio, so that it may crash, be restarted by its agent or be swapped
/// for new code while the client keeps its connection.
///
/// A new instance is told what the old one knew: the handshake, the log level, the subscriptions. Requests
/// that arrive meanwhile wait for it. What was in flight is sent again where that is safe; a tool call gets
/// an answer that says that its outcome is unknown. No request is lost, none is answered twice.
///
/// Four tools stand beside the server's own: restart_server, verify_server_restarted, server_status and
/// server_logs. With `--name NAME` they are listed as NAME_restart_server and so on: then a client can have
/// several servers with them. A restart that is asked for starts the new instance first; code that does not start never
/// takes a working server away.
///
/// When the client closes the connection, the server and all that it has started end within a second.
#[derive(Debug, Args)]
#[command(
    about = "Stand in front of an MCP server: it may crash and be restarted, the client never notices",
    after_help = "Examples:\n  \
                  afresh mcp -- python -m my_server\n  \
                  afresh mcp --watch src --spare -- npx -y @modelcontextprotocol/server-everything\n\n\
                  In mcp.json: \"command\": \"afresh\", \"args\": [\"mcp\", \"--\", \"python\", \"-m\", \"my_server\"]"
)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    command: CommandFlags,

    /// Which tools of afresh stand beside the server's, so that an agent can restart and look at its server
    #[arg(long, value_name = "WHICH", default_value = "all")]
    tools: OwnTools,

    /// What the names of these tools begin with in the list: the name that `--name` gives, or nothing. With
    /// a name the bare names can still be called
    #[arg(long, value_name = "WHAT", default_value = "name")]
    tool_prefix: ToolPrefix,

    /// Restart the server when something changes in this file or folder; may be given more than once.
    /// What `.gitignore` names does not count, nor does a file that is saved as it was
    #[arg(long, value_name = "PATH")]
    watch: Vec<PathBuf>,

    /// Share the server with other clients of this folder that start it with `--share` and the same command, folder,
    /// environment and flags. It starts with the first of them, and ends a while after the last
    #[arg(long, conflicts_with_all = ["trace", "log_file"])]
    share: bool,

    /// With `--share`: a variable that belongs to a terminal or a session, and keeps clients apart all the same; may be
    /// given more than once
    #[arg(long, value_name = "NAME")]
    share_env: Vec<String>,

    /// With `--share`: how long the server runs on after its last client [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    idle_timeout: Option<Duration>,

    /// Record all traffic in this file, as JSON lines with times, secrets left out where known
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Write the log to this file too
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,

    #[command(flatten)]
    policy: PolicyFlags,

    #[command(flatten)]
    swap: SwapFlags,
}

/// Which tools of afresh are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OwnTools {
    /// restart_server, verify_server_restarted, server_status and server_logs
    All,
    /// restart_server
    Restart,
    /// None
    None,
}

impl OwnTools {
    const ALL: [Self; 3] = [Self::All, Self::Restart, Self::None];

    /// As on the command line.
    const fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Restart => "restart",
            Self::None => "none",
        }
    }

    const fn which(self) -> WhichTools {
        match self {
            Self::All => WhichTools::All,
            Self::Restart => WhichTools::Restart,
            Self::None => WhichTools::None,
        }
    }
}

/// The tools that a shim asks for.
pub(super) fn tools_of(session: &SessionRequest) -> AddedTools {
    let tools = OwnTools::ALL.into_iter().find(|tools| tools.word() == session.tools);
    let names = session.tool_prefix.clone().map_or(ToolNames::Bare, ToolNames::Prefixed);
    AddedTools { which: tools.unwrap_or(OwnTools::All).which(), names }
}

/// What stands in front of the names of these tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ToolPrefix {
    /// `NAME_restart_server` with `--name NAME`, so that tools of several servers differ
    Name,
    /// `restart_server`
    None,
}

/// What follows a clean exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CleanExit {
    /// afresh exits too
    Exit,
    /// A new instance is started
    Restart,
}

/// Whether results say that the server was restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    /// The first result after a crash, or after a restart that failed, says so
    On,
    /// Results are as the server sends them
    Off,
}

/// How a restart looks to the client, as flags. Their values are read with those of the other
/// layers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Restarts")]
struct SwapFlags {
    /// How a requested restart is done: swap (start the new instance first, stop the old one when
    /// the new one is ready) or replace [default: swap]
    #[arg(long, value_name = "MODE", allow_hyphen_values = true)]
    restart_mode: Option<String>,
    /// In a swap, how long the old instance may take to finish what it has begun [default: 10s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    drain_timeout: Option<String>,
    /// After the server has exited with code 0: exit with it, or restart it [default: exit]
    #[arg(long, value_name = "WHAT", conflicts_with = "restart_on_normal_exit")]
    on_clean_exit: Option<CleanExit>,
    /// Restart the server when its processes use more memory than this together, such as 512MiB
    /// [default: any amount]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    max_rss: Option<String>,
    /// A server that leaves a call unanswered and is silent for this long is asked whether it lives; if
    /// it neither answers nor works, it is restarted; 0 never asks [default: 5m]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    wedge_timeout: Option<String>,
    /// Whether the first result of a tool after a crash says that the server was restarted and that what it kept in
    /// memory is lost [default: on]
    #[arg(long, value_name = "WHETHER")]
    tell_restarts: Option<Switch>,
    /// How long watched files must be quiet before a change counts [default: 200ms]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    watch_debounce: Option<String>,
    /// Keep an idle instance that takes over at once after a crash
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    spare: Option<String>,
}

impl SwapFlags {
    /// The flags that were given, as a layer of the configuration.
    fn flags(&self) -> impl Iterator<Item = Flag<'_>> {
        let clean_exit = self.on_clean_exit.map(|what| match what {
            CleanExit::Exit => "false",
            CleanExit::Restart => "true",
        });
        let tell_restarts = self.tell_restarts.map(|whether| match whether {
            Switch::On => "true",
            Switch::Off => "false",
        });
        [
            ("--tell-restarts", "defaults.tell_restarts", tell_restarts),
            ("--on-clean-exit", "defaults.restart_on_normal_exit", clean_exit),
            ("--restart-mode", "defaults.restart_mode", self.restart_mode.as_deref()),
            ("--drain-timeout", "defaults.drain_timeout", self.drain_timeout.as_deref()),
            ("--max-rss", "defaults.max_rss", self.max_rss.as_deref()),
            ("--wedge-timeout", "defaults.wedge_timeout", self.wedge_timeout.as_deref()),
            ("--watch-debounce", "defaults.watch_debounce", self.watch_debounce.as_deref()),
            ("--spare", "defaults.spare", self.spare.as_deref()),
        ]
        .into_iter()
        .filter_map(|(name, setting, value)| value.map(|value| Flag { name, setting, value }))
    }
}

impl McpArgs {
    /// The shim in front of a shared server; none where the server cannot be shared here, which is said.
    fn shim(&self, environment: &Environment) -> Option<ShimSetup> {
        let AddedTools { names, .. } = self.added_tools();
        let flags = self.policy.flags().into_iter().chain(self.swap.flags());
        let flag =
            |flag: Flag<'_>| (flag.name.to_owned(), flag.setting.to_owned(), flag.value.to_owned());
        share::setup(
            environment,
            &self.command,
            SessionRequest {
                share_env: self.share_env.clone(),
                flags: flags.map(flag).collect(),
                tools: self.tools.word().to_owned(),
                tool_prefix: match names {
                    ToolNames::Prefixed(prefix) => Some(prefix),
                    ToolNames::Bare | ToolNames::Reserved => None,
                },
                watch: self.watch.iter().map(|path| path.display().to_string()).collect(),
                idle_timeout_ms: self
                    .idle_timeout
                    .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
                ..SessionRequest::default()
            },
        )
    }

    /// The tools of afresh beside the server's.
    fn added_tools(&self) -> AddedTools {
        let which = self.tools.which();
        let names = match (self.tool_prefix, &self.command.name) {
            (ToolPrefix::Name, Some(name)) => ToolNames::Prefixed(name.clone()),
            (ToolPrefix::Name, None) | (ToolPrefix::None, _) => ToolNames::Bare,
        };
        AddedTools { which, names }
    }
}

pub(crate) fn run(arguments: McpArgs, environment: &Environment) -> CommandResult {
    if arguments.share
        && let Some(setup) = arguments.shim(environment)
    {
        return share::run(setup);
    }
    let tools = arguments.added_tools();
    let workspace = environment.workspace();
    let flags: Vec<Flag<'_>> =
        arguments.policy.flags().into_iter().chain(arguments.swap.flags()).collect();
    let config = environment.config(&workspace, &flags)?;
    let keep = Keep {
        name: arguments.command.name(),
        command: arguments.command.command(environment, false),
        policy: config.mcp_policy(),
        copies: 1,
        workspace,
        trail: config.trail.clone(),
        version: env!("CARGO_PKG_VERSION"),
        control: Some(environment.runtime_folders()),
        listen: None,
        stdin: false,
        health: None,
        port: None,
        log: None,
        hooks: HookSetup::default(),
    };
    let place = |path: PathBuf| environment.cwd.join(path);
    let mcp = Mcp {
        keep,
        tools,
        tell_restarts: config.tell_restarts,
        trace: arguments.trace.map(place),
        log_file: arguments.log_file.map(place),
        watched: arguments.watch,
        watch_debounce: config.watch_debounce,
        health: config.health,
        started_by: environment.started_by,
    };
    Ok(Exit::Command(afresh_daemon::mcp(mcp)?))
}

#[cfg(test)]
mod tests {
    use afresh_core::adopt::{MCP_FLAGS_ALONE, MCP_FLAGS_SEVERAL};
    use clap::{ArgAction, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        mcp: McpArgs,
    }

    #[test]
    fn a_command_needs_no_dashes_in_front_of_it() {
        let read = |line: &str| Line::try_parse_from(line.split(' ')).map(|line| line.mcp.command);
        for line in ["mcp --name a -- node x --name b", "mcp --name a node x --name b"] {
            let command = read(line).expect(line);
            assert_eq!(
                (command.name.as_deref(), &command.command[..]),
                (Some("a"), &["node", "x", "--name", "b"].map(Into::into)[..])
            );
        }
        for line in ["mcp", "mcp --", "mcp --wach src node", "mcp --name"] {
            assert!(read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn adopt_knows_which_flags_stand_alone() {
        let command = <Line as clap::CommandFactory>::command();
        let is_alone = |argument: &&clap::Arg| {
            matches!(argument.get_action(), ArgAction::SetTrue) || argument.is_require_equals_set()
        };
        let mut alone: Vec<String> = command
            .get_arguments()
            .filter(is_alone)
            .filter_map(|argument| argument.get_long().map(|name| format!("--{name}")))
            .collect();
        alone.sort();
        assert_eq!(alone, MCP_FLAGS_ALONE);
    }

    #[test]
    fn adopt_knows_which_flags_may_be_given_several_times() {
        let command = <Line as clap::CommandFactory>::command();
        let is_several = |argument: &&clap::Arg| matches!(argument.get_action(), ArgAction::Append);
        let mut several: Vec<String> = command
            .get_arguments()
            .filter(is_several)
            .filter_map(|argument| argument.get_long().map(|name| format!("--{name}")))
            .collect();
        several.sort();
        assert_eq!(several, MCP_FLAGS_SEVERAL);
    }
}
