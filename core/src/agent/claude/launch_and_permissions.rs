//! Builds the start of Claude Code: its command line, its variables, its servers, and its word for each permission mode.
//! Keeps no state.

use serde_json::{Map, json};

use crate::agent::mcp_servers::split_entry;
use crate::agent::{Permission, Setup, Speaks, Start};

/// How its process is started.
pub(super) fn start(setup: &Setup) -> Start {
    let mut argv = setup.program.clone();
    argv.extend(OURS.map(str::to_owned));
    argv.extend(["--session-id".to_owned(), setup.id.clone()]);
    if let Some(model) = &setup.model {
        argv.extend(["--model".to_owned(), model.clone()]);
    }
    // In a file, as every user can read a command line, and servers have secrets in their variables. Beside its own
    // servers and those of its plugins, and in front of those of the same name.
    let file = (!setup.servers.is_empty()).then(|| {
        let servers = setup.servers.iter().map(|server| (server.name.clone(), split_entry(server)));
        json!({"mcpServers": servers.collect::<Map<_, _>>()}).to_string().into_bytes()
    });
    if file.is_some() {
        argv.extend(["--mcp-config".to_owned(), setup.file.clone()]);
    }
    // After the servers, as that flag takes all values up to the next one.
    argv.extend(["--permission-mode".to_owned(), mode(setup.permission).to_owned()]);
    let env = VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Start { argv, env, stdin: Vec::new(), speaks: Speaks::Lines, file }
}

/// A session without a screen that speaks in lines, both ways, and says what its model says as it does.
const OURS: [&str; 7] = [
    "-p",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--include-partial-messages",
];

const VARIABLES: [(&str, &str); 4] = [
    // It says when it is idle: nothing else tells for sure that a turn is over.
    ("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1"),
    // When its context is full is for the run to see: it must not come before with a summary.
    ("DISABLE_AUTO_COMPACT", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
];

/// Its word for what it may do.
///
/// Not every model and account has `auto`: there it falls back to asking for everything, which in a run is
/// refusing everything, and is then set to [`Permission::Edit`].
pub(super) const fn mode(permission: Permission) -> &'static str {
    match permission {
        Permission::Plan => "plan",
        Permission::Edit => "acceptEdits",
        Permission::Auto => "auto",
        Permission::Bypass => "bypassPermissions",
    }
}
