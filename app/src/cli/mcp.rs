//! `afresh mcp`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use afresh_core::config::Origin;
use afresh_core::policy::Policy;
use afresh_daemon::{Command, Keep};
use clap::Args;

use crate::cli::keep::{PolicyFlags, name_of, parse_variable, variables};
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
    /// The name in the log and in the trail [default: that of the command]
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    name: Option<String>,

    /// Start it in this folder
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,

    /// Set a variable for it; may be given more than once
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_variable)]
    variables: Vec<(String, String)>,

    #[command(flatten)]
    policy: PolicyFlags,

    /// The server's command and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
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
        name: arguments.name.unwrap_or_else(|| name_of(&arguments.command[0])),
        command: Command {
            argv: arguments.command,
            cwd: Some(match arguments.cwd {
                Some(cwd) => environment.cwd.join(cwd),
                None => environment.cwd.clone(),
            }),
            env: variables(environment, false, arguments.variables),
        },
        policy,
        copies: 1,
        workspace,
        trail: config.trail.clone(),
        version: env!("CARGO_PKG_VERSION"),
        watcher: None,
        requests: None,
        stdin: false,
        quiet: false,
    };
    let code = afresh_daemon::mcp(keep)
        .map_err(|error| CommandError::new(Exit::Unavailable, error).hint("run `afresh doctor`"))?;
    Ok(if code == 0 { Exit::Success } else { Exit::Command(code) })
}
