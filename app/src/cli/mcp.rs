//! `afresh mcp`.

use std::time::Duration;

use afresh_core::config::Origin;
use afresh_core::policy::Policy;
use afresh_daemon::Keep;
use clap::Args;

use crate::cli::keep::{CommandFlags, PolicyFlags};
use crate::environment::Environment;
use crate::error::{CommandError, Exit};

/// Stand in front of an MCP server: it may crash and be restarted, the client never notices
#[derive(Debug, Args)]
#[command(
    long_about = "Stands in front of an MCP server on stdio, so that it may crash, exit with code \
                  42 or be killed while the client keeps its connection.\n\nA new instance is told \
                  what the old one knew: the handshake, the log level, the subscriptions. Requests \
                  that arrive meanwhile wait for it. What was in flight is sent again where that is \
                  safe; a tool call gets an answer that says that its outcome is unknown. No \
                  request is lost, none is answered twice. Lines of the server's stdout that are no \
                  messages go to stderr.\n\nWhen the client closes the connection, the server and \
                  all that it has started end within a second.",
    after_help = "Examples:\n  \
                  afresh mcp -- python -m my_server\n  \
                  afresh mcp --max-restarts 0 -- npx -y @modelcontextprotocol/server-everything\n\n\
                  In mcp.json: \"command\": \"afresh\", \"args\": [\"mcp\", \"--\", \"python\", \"-m\", \"my_server\"]"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    command: CommandFlags,

    #[command(flatten)]
    policy: PolicyFlags,
}

pub(crate) fn run(arguments: Arguments, environment: &Environment) -> Result<Exit, CommandError> {
    let workspace = environment.workspace();
    let config = environment.config(&workspace, &arguments.policy.flags())?;
    let by_default =
        |key: &str| config.shown().any(|shown| shown.key == key && shown.origin == Origin::Default);
    let policy = Policy {
        // A client waits at the other end.
        first_at_once: true,
        // The end of its input is how an MCP server is told to go.
        stdin_timeout: match by_default("stdin_timeout") {
            true => Duration::from_secs(1),
            false => config.policy.stdin_timeout,
        },
        ..config.policy.clone()
    };
    let keep = Keep {
        name: arguments.command.name(),
        command: arguments.command.command(environment, false),
        policy,
        copies: 1,
        workspace,
        trail: config.trail.clone(),
        version: env!("CARGO_PKG_VERSION"),
        watcher: None,
        requests: None,
        control: Some(environment.runtime_folders()),
        stdin: false,
        quiet: false,
    };
    let code = afresh_daemon::mcp(keep)
        .map_err(|error| CommandError::new(Exit::Unavailable, error).hint("run `afresh doctor`"))?;
    Ok(if code == 0 { Exit::Success } else { Exit::Command(code) })
}
