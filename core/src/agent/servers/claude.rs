//! What Claude Code would start: of several servers with one name the nearest counts, and some are turned off.

use serde_json::Value;

use super::config_files::{Layer, Place};
use super::{Entry, Text};
use crate::text::harmless;

pub(super) fn entries(
    place: &Place<'_>,
    values: Vec<(&Text, Value)>,
) -> Result<Vec<Entry>, String> {
    let (mut off, mut off_of_project) = (Vec::new(), Vec::new());
    let (mut user, mut project, mut local) = (Vec::new(), Vec::new(), Vec::new());
    for (text, value) in &values {
        match text.layer {
            Layer::ClaudeManaged => {
                return Err(format!("`{}` says which there are", harmless(&text.path)));
            }
            Layer::ClaudeSettings => {
                // Such a rule can be about a command, and would not see the one behind afresh.
                for rule in ["allowedMcpServers", "deniedMcpServers"] {
                    if value.get(rule).is_some() {
                        return Err(format!("`{}` has `{rule}`", harmless(&text.path)));
                    }
                }
                off_of_project.extend(names(value, "disabledMcpjsonServers"));
            }
            Layer::ClaudeOwn => {
                user.extend(below(text, value));
                // A project is known by its repository, or else by its folder.
                let folder = place.project.unwrap_or(place.folder);
                let own = folder.to_str().and_then(|path| value.get("projects")?.get(path));
                if let Some(own) = own {
                    local.extend(below(text, own));
                    off.extend(names(own, "disabledMcpServers"));
                    off_of_project.extend(names(own, "disabledMcpjsonServers"));
                }
            }
            Layer::ClaudeProject => project.extend(below(text, value)),
            Layer::Codex | Layer::CodexProject | Layer::Opencode => {}
        }
    }
    project.retain(|entry| !off_of_project.contains(&entry.name));
    let mut all: Vec<Entry> = Vec::new();
    for entry in user.into_iter().chain(project).chain(local) {
        all.retain(|weaker| weaker.name != entry.name);
        all.push(entry);
    }
    all.retain(|entry| !off.contains(&entry.name));
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

/// The servers of an object.
fn below(text: &Text, value: &Value) -> Vec<Entry> {
    let servers = value.get("mcpServers").and_then(Value::as_object);
    let entry = |(name, value): (&String, &Value)| {
        let value = value.as_object()?.clone();
        Some(Entry { name: name.clone(), value, from: text.path.clone() })
    };
    servers.into_iter().flatten().filter_map(entry).collect()
}

fn names(value: &Value, key: &str) -> Vec<String> {
    let list = value.get(key).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}
