//! Builds the start of opencode's server: its arguments, and the settings laid over its configuration. Keeps no state.

use serde_json::{Map, Value, json};

use crate::agent::mcp_servers::merge;
use crate::agent::{AgentServer, Permission, Setup, Speaks, Start};
use crate::base64;

/// The variable with settings that come after all files.
pub(super) const SETTINGS: &str = "OPENCODE_CONFIG_CONTENT";

/// The name in the `authorization` header; a fixed one, so that a variable of the user does not change it.
const USER: &str = "afresh";

/// The start of the server of this session. A program that knows the secret can drive it.
pub(super) fn start(setup: &Setup, secret: &str) -> Start {
    let port = setup.port.to_string();
    let ours = ["serve", "--port", &port, "--hostname", "127.0.0.1"].map(str::to_owned);
    let env = [
        (SETTINGS, settings(setup).to_string()),
        ("OPENCODE_DISABLE_AUTOUPDATE", "1".to_owned()),
        ("OPENCODE_SERVER_USERNAME", USER.to_owned()),
        ("OPENCODE_SERVER_PASSWORD", secret.to_owned()),
    ];
    let authorization = format!("Basic {}", base64::encode(format!("{USER}:{secret}").as_bytes()));
    Start {
        argv: setup.program.iter().cloned().chain(ours).collect(),
        env: env.map(|(name, value)| (name.to_owned(), value)).into(),
        stdin: Vec::new(),
        speaks: Speaks::Http { port: setup.port, authorization: Some(authorization) },
        file: None,
    }
}

/// What a new session is made of. Its rules come after those of all configuration, and subagents get the ones that
/// deny.
pub(super) fn session(setup: &Setup) -> Value {
    let asking = ["question", "plan_enter", "plan_exit"].map(|name| (name, "deny"));
    let own: &[(&str, &str)] = match setup.permission {
        Permission::Auto => &[],
        Permission::Plan | Permission::Edit | Permission::Bypass => rules(setup.permission),
    };
    let all = own.iter().copied().chain(asking);
    let all =
        all.map(|(name, action)| json!({"permission": name, "pattern": "*", "action": action}));
    // With a title of ours no model is asked for one.
    json!({"title": format!("afresh {}", setup.id), "permission": all.collect::<Vec<_>>()})
}

/// A prompt, or a message during a turn.
pub(super) fn message(setup: &Setup, text: &str) -> Value {
    let mut body = json!({"parts": [{"type": "text", "text": text}]});
    if let Some((provider, model)) = setup.model.as_deref().and_then(|name| name.split_once('/')) {
        body["model"] = json!({"providerID": provider, "modelID": model});
    }
    body
}

/// Whether something that opencode asks for is allowed without a user to ask.
pub(super) fn allows(permission: Permission, asked: &str) -> bool {
    match permission {
        Permission::Plan | Permission::Edit => false,
        // It asks whether to go on after the same call three times. No user watches: no.
        Permission::Auto | Permission::Bypass => asked != "doom_loop",
    }
}

/// The user's configuration with ours laid over it key by key, as opencode itself does with its files.
fn settings(setup: &Setup) -> Value {
    let own = setup.settings.as_deref().and_then(|own| serde_json::from_str(own).ok());
    let mut all: Map<String, Value> = own.unwrap_or_default();
    merge(&mut all, config(setup));
    all.into()
}

fn config(setup: &Setup) -> Map<String, Value> {
    let permission: Map<String, Value> = rules(setup.permission)
        .iter()
        .map(|&(name, action)| (name.to_owned(), Value::from(action)))
        .collect();
    let mut config = Map::new();
    config.insert("autoupdate".to_owned(), false.into());
    // We say when a context is full. Its own compaction would lose progress that is not recorded.
    config.insert("compaction".to_owned(), json!({"auto": false}));
    config.insert("permission".to_owned(), permission.into());
    if !setup.servers.is_empty() {
        let servers = setup.servers.iter().map(|server| (server.name.clone(), local(server)));
        config.insert("mcp".to_owned(), Value::Object(servers.collect()));
    }
    if let Some(model) = &setup.model {
        config.insert("model".to_owned(), model.as_str().into());
    }
    config
}

/// Rules as opencode has them: the last that fits wins.
fn rules(permission: Permission) -> &'static [(&'static str, &'static str)] {
    match permission {
        Permission::Plan => &[("edit", "deny"), ("bash", "deny")],
        Permission::Edit => &[("edit", "allow")],
        Permission::Auto | Permission::Bypass => &[("*", "allow"), ("doom_loop", "ask")],
    }
}

/// The user's own entry is below this one: variables, time limits and all else stay as they are.
fn local(server: &AgentServer) -> Value {
    let mut entry = server.rest.clone();
    // It refuses an entry that does not say this again.
    entry.insert("type".to_owned(), json!("local"));
    entry.insert("command".to_owned(), json!(server.command));
    Value::Object(entry)
}
