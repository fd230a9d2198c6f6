//! Owns the terms in which an agent's own MCP servers are described: its files, their entries, and the rules
//! of an agent for both. Driven by `adopt::agent_mcp_servers`. Never reads or changes a file.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::AgentServer;
use crate::client_file_paths::{FileSyntax, UserFolders};

/// The project that an agent works in, and the user that it works for.
pub struct ProjectContext<'a> {
    /// The folder that it works in.
    pub folder: &'a Path,
    /// The root of the repository that this is in.
    pub repository: Option<&'a Path>,
    /// The root of the repository by which the project is known: of a worktree of git, that which it belongs to.
    pub project: Option<&'a Path>,
    /// The user's folder.
    pub home: Option<&'a Path>,
    /// The variables that are absolute paths.
    pub variable: &'a dyn Fn(&str) -> Option<PathBuf>,
    /// Whether a variable is set at all.
    pub is_set: &'a dyn Fn(&str) -> bool,
}

impl ProjectContext<'_> {
    pub(super) fn user(&self) -> UserFolders<'_> {
        UserFolders { home: self.home, settings: None, variable: self.variable }
    }
}

impl fmt::Debug for ProjectContext<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { folder, repository, home, .. } = self;
        formatter.debug_tuple("ProjectContext").field(folder).field(repository).field(home).finish()
    }
}

/// The root of the repository that a worktree of git belongs to, by what stands in its file `.git`.
pub fn repository_of_worktree(git_file: &str) -> Option<&Path> {
    let folder = Path::new(git_file.strip_prefix("gitdir:")?.trim());
    let worktrees = folder.parent().filter(|above| above.ends_with(".git/worktrees"))?;
    worktrees.parent()?.parent()
}

/// The meaning of a file to its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// Servers that an administrator has decided on; then there are no others.
    Managed,
    /// No servers, but what is turned off.
    Settings,
    /// Servers of the user or the machine, and of the user for one project.
    User,
    /// Servers of a project.
    Project,
    /// Servers of a project, in a file that cannot turn off others.
    Additions,
}

impl Layer {
    /// Whether its files are a project's, and so can come with a clone.
    pub const fn is_of_project(self) -> bool {
        matches!(self, Self::Project | Self::Additions)
    }
}

/// A file that an agent would read, if it is there: its meaning to the agent, and its path.
pub type ConfigFile = (Layer, PathBuf);

/// A file that was read.
#[derive(Clone, Debug)]
pub struct ConfigText {
    /// Its meaning to the agent.
    pub layer: Layer,
    /// Its path, as people would write it.
    pub path: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// Reads the servers out of parsed files.
pub(crate) type ReadEntries =
    fn(&ProjectContext<'_>, Vec<(&ConfigText, Value)>) -> Result<Vec<ServerEntry>, String>;

/// The rules of one agent for its own servers.
#[derive(Debug)]
pub(crate) struct ServerRules {
    /// The files that it reads, the weakest first.
    pub(super) files: fn(&ProjectContext<'_>) -> Vec<ConfigFile>,
    pub(crate) syntax: FileSyntax,
    /// Flags of its command that change which servers there are.
    pub(crate) flags: &'static [&'static str],
    /// The servers that files say together, by name; or why that cannot be told.
    pub(crate) entries: ReadEntries,
    /// The command line of an entry that it would start by a command.
    pub(crate) words: fn(&Map<String, Value>) -> Option<Vec<String>>,
    /// The fields of an entry that must be said again beside a new command.
    pub(crate) rest: fn(Map<String, Value>) -> Map<String, Value>,
}

/// The rules of an agent that has no servers.
pub(super) const NO_SERVERS: ServerRules = ServerRules {
    files: |_| Vec::new(),
    syntax: FileSyntax::Json,
    flags: &[],
    entries: |_, _| Ok(Vec::new()),
    words: |_| None,
    rest: |_| Map::new(),
};

/// The entry of a server, as all files together have it.
pub(crate) struct ServerEntry {
    pub(crate) name: String,
    pub(crate) value: Map<String, Value>,
    /// The file that its command is from.
    pub(crate) from: String,
}

/// The entries below a key of all files: an object is merged, all else is replaced by the later file.
pub(super) fn merged(values: Vec<(&ConfigText, Value)>, key: &str) -> Vec<ServerEntry> {
    let mut all: Vec<ServerEntry> = Vec::new();
    for (text, mut value) in values {
        let Some(Value::Object(servers)) = value.get_mut(key).map(Value::take) else { continue };
        for (name, value) in servers {
            let Value::Object(value) = value else { continue };
            let at = all.iter().position(|entry| entry.name == name).unwrap_or_else(|| {
                all.push(ServerEntry { name, value: Map::new(), from: text.path.clone() });
                all.len() - 1
            });
            if value.contains_key("command") {
                all[at].from = text.path.clone();
            }
            merge(&mut all[at].value, value);
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// Lays one object over another, key by key.
pub(super) fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(into)), Value::Object(from)) => merge(into, from),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

/// The entry of a server that has its program apart from its arguments.
pub(super) fn split_entry(server: &AgentServer) -> Value {
    let mut entry = server.rest.clone();
    let program = server.command.first().map_or("", String::as_str);
    entry.insert("command".to_owned(), program.into());
    entry.insert("args".to_owned(), server.command.get(1..).unwrap_or_default().into());
    Value::Object(entry)
}

/// The words of a command with a list of arguments.
pub(super) fn split_words(entry: &Map<String, Value>) -> Option<Vec<String>> {
    let command = entry.get("command")?.as_str()?.to_owned();
    let arguments = entry.get("args").map_or(Some(Vec::new()), texts)?;
    Some([command].into_iter().chain(arguments).collect())
}

pub(super) fn texts(list: &Value) -> Option<Vec<String>> {
    list.as_array()?.iter().map(|word| word.as_str().map(str::to_owned)).collect()
}

/// Whether an entry is not turned off.
pub(super) fn is_enabled(entry: &Map<String, Value>) -> bool {
    entry.get("enabled") != Some(&Value::Bool(false))
}

/// The folders from a root down to this one.
pub(super) fn farthest_first<'a>(
    folder: &'a Path,
    root: &Path,
) -> impl DoubleEndedIterator<Item = &'a Path> {
    let inner: Vec<&Path> =
        folder.ancestors().take_while(|above| above.starts_with(root)).collect();
    inner.into_iter().rev()
}
