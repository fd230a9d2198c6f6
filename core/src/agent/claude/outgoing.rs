//! Writes the lines on the stdin of Claude Code. Keeps no state.

use serde_json::{Value, json};

use crate::agent::Effect;
use crate::agent::stream::write;

/// A message of the user.
pub(super) fn user(text: &str, id: &str) -> Effect {
    write(&json!({
        "type": "user",
        "message": {"role": "user", "content": text},
        "parent_tool_use_id": null,
        "uuid": id,
    }))
}

/// A request of ours.
pub(super) fn request(id: &str, subtype: &str, key: &str, value: &Value) -> Effect {
    let request = json!({"subtype": subtype, key: value});
    write(&json!({"type": "control_request", "request_id": id, "request": request}))
}

/// The answer to a request of its own.
pub(super) fn refuse(id: &str, subtype: &str) -> Effect {
    let response = match subtype {
        "can_use_tool" => json!({
            "subtype": "success",
            "request_id": id,
            "response": {"behavior": "deny", "message": NOT_ALLOWED},
        }),
        _ => json!({"subtype": "error", "request_id": id, "error": NOBODY}),
    };
    write(&json!({"type": "control_response", "response": response}))
}

const NOT_ALLOWED: &str = "This is not allowed in this run, and no user is present to ask: find another way, or go on without it.";
const NOBODY: &str = "no user is present to answer this in an unattended run";
