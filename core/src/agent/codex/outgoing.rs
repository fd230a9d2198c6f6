//! Writes the lines for Codex: our requests, and the answers to its own. Keeps no state.

use serde_json::{Map, Value, json};

use crate::agent::servers::split_entry;
use crate::agent::{Permission, Setup};

/// Says who we are.
pub(super) fn initialize() -> Value {
    json!({
        "clientInfo": { "name": "afresh", "title": "afresh", "version": env!("CARGO_PKG_VERSION") },
        "capabilities": {
            "experimentalApi": false,
            "requestAttestation": false,
            // It is the whole diff again after each change, and it is not read here.
            "optOutNotificationMethods": ["turn/diff/updated"],
        },
    })
}

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

/// Begins a turn; where one runs, it hears this at its next step.
pub(super) fn turn_start(thread: &str, text: &str) -> Value {
    json!({ "threadId": thread, "input": input(text) })
}

/// Tells the turn that runs.
pub(super) fn turn_steer(thread: &str, turn: &str, text: &str) -> Value {
    json!({ "threadId": thread, "expectedTurnId": turn, "input": input(text) })
}

/// Ends the turn that runs.
pub(super) fn turn_interrupt(thread: &str, turn: &str) -> Value {
    json!({ "threadId": thread, "turnId": turn })
}

fn input(text: &str) -> Value {
    json!([{ "type": "text", "text": text }])
}

/// The answer to a request of Codex: a run has no user who could say yes, and Codex must not wait for one.
pub(super) fn refusal(id: &[u8], method: &str) -> Vec<u8> {
    // The id goes back as it came, be it a number or a text.
    let id = String::from_utf8_lossy(id);
    let result = match method {
        "item/commandExecution/requestApproval" | "item/fileChange/requestApproval" => {
            json!({ "decision": "decline" })
        }
        "execCommandApproval" | "applyPatchApproval" => {
            json!({ "decision": { "denied": { "rejection": NOBODY } } })
        }
        "item/tool/requestUserInput" => json!({ "answers": {} }),
        "mcpServer/elicitation/request" => {
            json!({ "action": "decline", "content": null, "_meta": null })
        }
        "item/permissions/requestApproval" => json!({ "permissions": {}, "scope": "turn" }),
        "item/tool/call" => json!({
            "contentItems": [{ "type": "inputText", "text": NOBODY }],
            "success": false,
        }),
        _ => {
            let error = json!({ "code": METHOD_NOT_FOUND, "message": NOBODY });
            return format!("{{\"id\":{id},\"error\":{error}}}\n").into_bytes();
        }
    };
    format!("{{\"id\":{id},\"result\":{result}}}\n").into_bytes()
}

const NOBODY: &str = "nobody is there to answer; go on without it";

const METHOD_NOT_FOUND: i32 = -32601;
