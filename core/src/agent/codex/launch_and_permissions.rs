//! Builds what Codex gets to open a session: its sandbox for each permission mode, its settings and its servers. Keeps no
//! state.

use serde_json::{Map, Value, json};

use crate::agent::mcp_servers::split_entry;
use crate::agent::{Permission, Setup};

/// Opens a thread, which is what Codex calls a session.
///
/// Settings go here and not as `-c` on the command line: there every user could read the arguments of the
/// servers, and a name with a dot in it would be a path. They are laid over the user's own, key by key.
///
/// The folder is that of the process, and not said: where it is said, Codex notes down in the user's
/// settings that the project is trusted, and from then on starts what the project's own settings name.
pub(super) fn thread_start(setup: &Setup) -> Value {
    let mut config = Map::new();
    // With all settings of the user, it shall not come first. Codex takes at most nine tenths of
    // the window, so this moves its compaction away, and does not end it.
    config.insert("model_auto_compact_token_limit".to_owned(), json!(i64::MAX));
    // "All that it wants" needs the network: packages, remotes. Elsewhere the user's own setting holds.
    if setup.permission == Permission::Auto {
        config.insert("sandbox_workspace_write".to_owned(), json!({ "network_access": true }));
    }
    if !setup.servers.is_empty() {
        // Laid over the user's own entries: which tools may be used, time limits and all else stay as they are.
        let servers = setup.servers.iter().map(|given| (given.name.clone(), split_entry(given)));
        config.insert("mcp_servers".to_owned(), Value::Object(servers.collect()));
    }
    let sandbox = match setup.permission {
        Permission::Plan => "read-only",
        Permission::Edit | Permission::Auto => "workspace-write",
        Permission::Bypass => "danger-full-access",
    };
    let mut params = json!({ "approvalPolicy": "never", "sandbox": sandbox, "config": config });
    if let Some(model) = &setup.model {
        params["model"] = json!(model);
    }
    params
}
