//! Owns the rules of opencode for its own MCP servers. Driven by `adopt::agent_mcp_servers`. Never reads a file.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::agent::mcp_servers::{
    ConfigFile, Layer, ProjectContext, ServerRules, farthest_first, is_enabled, merged, texts,
};
use crate::client_file_paths::{FileSyntax, OPENCODE, project_files_of, user_files_of};

pub(super) const RULES: ServerRules = ServerRules {
    files,
    syntax: FileSyntax::Jsonc,
    flags: &[],
    entries: |_, values| Ok(merged(values, "mcp")),
    words,
    rest: |_| Map::new(),
};

const FOLDER: &str = ".opencode/";

/// The user's files, the project's from the top down, then `.opencode` from the bottom up.
fn files(context: &ProjectContext<'_>) -> Vec<ConfigFile> {
    // Both names, in a folder of its own or beside the project's other files.
    let inside = |folder: &Path| -> Vec<PathBuf> {
        project_files_of(OPENCODE)
            .filter_map(|path| Some(folder.join(path.strip_prefix(FOLDER)?)))
            .collect()
    };
    let beside = |folder: &Path| -> Vec<PathBuf> {
        let paths = project_files_of(OPENCODE).filter(|path| !path.starts_with(FOLDER));
        paths.map(|path| folder.join(path)).collect()
    };
    let own = user_files_of(OPENCODE, &context.user());
    let older = own.first().map(|path| path.with_file_name("config.json"));
    let mut weaker: Vec<PathBuf> = older.into_iter().chain(own).collect();
    weaker.extend((context.variable)("OPENCODE_CONFIG"));
    let own = context.home.into_iter().flat_map(|home| inside(&home.join(FOLDER)));
    let named = (context.variable)("OPENCODE_CONFIG_DIR");
    let stronger: Vec<PathBuf> =
        own.chain(named.into_iter().flat_map(|folder| inside(&folder))).collect();
    let mut project: Vec<PathBuf> = Vec::new();
    if !(context.is_set)("OPENCODE_DISABLE_PROJECT_CONFIG") {
        let root = context.repository.unwrap_or(Path::new(""));
        let folders = || farthest_first(context.folder, root);
        project.extend(folders().flat_map(beside));
        project.extend(folders().rev().flat_map(|folder| inside(&folder.join(FOLDER))));
        project.retain(|path| !weaker.contains(path) && !stronger.contains(path));
    }
    let of = |layer, paths: Vec<PathBuf>| paths.into_iter().map(move |path| (layer, path));
    of(Layer::User, weaker)
        .chain(of(Layer::Project, project))
        .chain(of(Layer::User, stronger))
        .collect()
}

fn words(entry: &Map<String, Value>) -> Option<Vec<String>> {
    let is_local = entry.get("type").and_then(Value::as_str) == Some("local");
    let words = texts(entry.get("command")?).filter(|_| is_local && is_enabled(entry))?;
    // A path that is relative to the file would be relative to something else.
    (!words.iter().any(|word| word.contains("{file:"))).then_some(words)
}
