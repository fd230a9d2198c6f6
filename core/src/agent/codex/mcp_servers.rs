//! Owns the rules of Codex for its own MCP servers: a project's file counts where the user trusts the project.
//! Driven by `adopt::agent_mcp_servers`. Never reads a file.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::agent::mcp_servers::{
    ConfigFile, ConfigText, Layer, ProjectContext, ServerEntry, ServerRules, farthest_first,
    is_enabled, merged, split_words,
};
use crate::client_file_paths::{CODEX, FileSyntax, project_files_of, user_files_of};
use crate::text::harmless;

pub(super) const RULES: ServerRules = ServerRules {
    files,
    syntax: FileSyntax::Toml,
    flags: &["-c", "--config", "-p", "--profile"],
    entries,
    words,
    rest: |_| Map::new(),
};

/// Of a project, the folders from the repository's root down are read.
fn files(context: &ProjectContext<'_>) -> Vec<ConfigFile> {
    let mut files = vec![(Layer::User, PathBuf::from("/etc/codex/config.toml"))];
    let own = user_files_of(CODEX, &context.user());
    files.extend(own.iter().map(|path| (Layer::User, path.clone())));
    for folder in farthest_first(context.folder, context.repository.unwrap_or(context.folder)) {
        let paths = project_files_of(CODEX).map(|path| folder.join(path));
        let others = paths.filter(|path| !own.contains(path));
        files.extend(others.map(|path| (Layer::Project, path)));
    }
    files
}

fn entries(
    context: &ProjectContext<'_>,
    mut values: Vec<(&ConfigText, Value)>,
) -> Result<Vec<ServerEntry>, String> {
    let mut trusted = false;
    for (text, value) in values.iter().filter(|(text, _)| text.layer == Layer::User) {
        if value.get("project_root_markers").is_some() {
            // Only Codex knows then which files are the project's.
            return Err(format!("`{}` has `project_root_markers`", harmless(&text.path)));
        }
        let level = |folder: &Path| {
            let project = value.get("projects")?.get(folder.to_str()?)?;
            project.get("trust_level").and_then(Value::as_str)
        };
        let folders = [Some(context.folder), context.repository, context.project];
        let level = folders.into_iter().flatten().find_map(level);
        trusted = level.map_or(trusted, |level| level == "trusted");
    }
    values.retain(|(text, _)| trusted || text.layer == Layer::User);
    Ok(merged(values, "mcp_servers"))
}

fn words(entry: &Map<String, Value>) -> Option<Vec<String>> {
    let is_here = entry.get("environment_id").is_none_or(|id| id == "local");
    let is_stdio = entry.get("url").is_none();
    split_words(entry).filter(|_| is_enabled(entry) && is_here && is_stdio)
}
