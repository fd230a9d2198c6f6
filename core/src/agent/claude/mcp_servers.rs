//! Owns the rules of Claude Code for its own MCP servers: of several with one name the nearest counts, and some
//! are turned off. Driven by `adopt::agent_mcp_servers`. Never reads a file.

use std::path::Path;

use serde_json::{Map, Value};

use crate::agent::mcp_servers::{
    ConfigFile, ConfigText, Layer, ProjectContext, ServerEntry, ServerRules, farthest_first,
    split_words,
};
use crate::client_file_paths::{CLAUDE_CODE, FileSyntax, project_files_of, user_files_of};
use crate::text::harmless;

pub(super) const RULES: ServerRules = ServerRules {
    files,
    syntax: FileSyntax::Json,
    flags: &["--mcp-config", "--strict-mcp-config", "--setting-sources", "--bare", "--safe-mode"],
    entries,
    words,
    rest,
};

/// Servers are read from each folder above, settings only from the one that it works in.
fn files(context: &ProjectContext<'_>) -> Vec<ConfigFile> {
    let mut files = Vec::new();
    for folder in ["/etc/claude-code", "/Library/Application Support/ClaudeCode"].map(Path::new) {
        files.push((Layer::Managed, folder.join("managed-mcp.json")));
        files.push((Layer::Settings, folder.join("managed-settings.json")));
    }
    let moved = (context.variable)("CLAUDE_CONFIG_DIR");
    let settings = moved.or_else(|| context.home.map(|home| home.join(".claude")));
    files.extend(settings.map(|folder| (Layer::Settings, folder.join("settings.json"))));
    let own = user_files_of(CLAUDE_CODE, &context.user());
    files.extend(own.into_iter().map(|path| (Layer::User, path)));
    for name in [".claude/settings.json", ".claude/settings.local.json"] {
        files.push((Layer::Settings, context.folder.join(name)));
    }
    for folder in farthest_first(context.folder, Path::new("")) {
        let paths = project_files_of(CLAUDE_CODE).map(|path| folder.join(path));
        files.extend(paths.map(|path| (Layer::Additions, path)));
    }
    files
}

fn words(entry: &Map<String, Value>) -> Option<Vec<String>> {
    let is_stdio = entry.get("type").is_none_or(|kind| kind == "stdio");
    split_words(entry).filter(|_| is_stdio)
}

/// Claude Code takes one entry or the other, and lays none over the other.
fn rest(mut entry: Map<String, Value>) -> Map<String, Value> {
    entry.remove("command");
    entry.remove("args");
    entry
}

fn entries(
    context: &ProjectContext<'_>,
    values: Vec<(&ConfigText, Value)>,
) -> Result<Vec<ServerEntry>, String> {
    let (mut off, mut off_of_project) = (Vec::new(), Vec::new());
    let (mut user, mut project, mut local) = (Vec::new(), Vec::new(), Vec::new());
    for (text, value) in &values {
        match text.layer {
            Layer::Managed => {
                return Err(format!("`{}` says which there are", harmless(&text.path)));
            }
            Layer::Settings => {
                // Such a rule can be about a command, and would not see the one behind afresh.
                for rule in ["allowedMcpServers", "deniedMcpServers"] {
                    if value.get(rule).is_some() {
                        return Err(format!("`{}` has `{rule}`", harmless(&text.path)));
                    }
                }
                off_of_project.extend(names(value, "disabledMcpjsonServers"));
            }
            Layer::User => {
                user.extend(below(text, value));
                // A project is known by its repository, or else by its folder.
                let folder = context.project.unwrap_or(context.folder);
                let own = folder.to_str().and_then(|path| value.get("projects")?.get(path));
                if let Some(own) = own {
                    local.extend(below(text, own));
                    off.extend(names(own, "disabledMcpServers"));
                    off_of_project.extend(names(own, "disabledMcpjsonServers"));
                }
            }
            Layer::Additions => project.extend(below(text, value)),
            Layer::Project => {}
        }
    }
    project.retain(|entry| !off_of_project.contains(&entry.name));
    let mut all: Vec<ServerEntry> = Vec::new();
    for entry in user.into_iter().chain(project).chain(local) {
        all.retain(|weaker| weaker.name != entry.name);
        all.push(entry);
    }
    all.retain(|entry| !off.contains(&entry.name));
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

/// The servers of an object.
fn below(text: &ConfigText, value: &Value) -> Vec<ServerEntry> {
    let servers = value.get("mcpServers").and_then(Value::as_object);
    let entry = |(name, value): (&String, &Value)| {
        let value = value.as_object()?.clone();
        Some(ServerEntry { name: name.clone(), value, from: text.path.clone() })
    };
    servers.into_iter().flatten().filter_map(entry).collect()
}

fn names(value: &Value, key: &str) -> Vec<String> {
    let list = value.get(key).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}
