//! Writes the lines for Codex: our requests, and the answers to its own. Keeps no state.

use serde_json::{Value, json};

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

const NOBODY: &str = "no user is present to answer; go on without it";

const METHOD_NOT_FOUND: i32 = -32601;
