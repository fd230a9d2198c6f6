//! The files in which an agent looks for its servers, as the agents' own programs were seen to.

use std::fmt;
use std::path::{Path, PathBuf};

use super::super::AgentKind;

/// Where an agent works, and for whom.
pub struct Place<'a> {
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

impl fmt::Debug for Place<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { folder, repository, home, .. } = self;
        formatter.debug_tuple("Place").field(folder).field(repository).field(home).finish()
    }
}

/// The root of the repository that a worktree of git belongs to, by what stands in its file `.git`.
pub fn repository_of_worktree(git_file: &str) -> Option<&Path> {
    let folder = Path::new(git_file.strip_prefix("gitdir:")?.trim());
    let worktrees = folder.parent().filter(|above| above.ends_with(".git/worktrees"))?;
    worktrees.parent()?.parent()
}

/// What a file is to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// `~/.claude.json`: servers of the user, and of the user for one project.
    ClaudeOwn,
    /// `.mcp.json`.
    ClaudeProject,
    /// `settings.json`: no servers, but what is turned off.
    ClaudeSettings,
    /// Servers that an administrator has decided on; then there are no others.
    ClaudeManaged,
    /// `config.toml` of the user or the machine.
    Codex,
    /// `.codex/config.toml` of a project, which counts where the project is trusted.
    CodexProject,
    /// `opencode.json`, wherever it is.
    Opencode,
}

/// A file that an agent would read, if it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What it is to the agent.
    pub layer: Layer,
    /// Where it is.
    pub path: PathBuf,
}

/// The files that an agent would read, the weakest first.
pub fn sources(agent: AgentKind, place: &Place<'_>) -> Vec<Source> {
    let sources = match agent {
        AgentKind::Claude => claude(place),
        AgentKind::Codex => codex(place),
        AgentKind::Opencode => opencode(place),
        AgentKind::Command => Vec::new(),
    };
    let all: Vec<Source> =
        sources.into_iter().map(|(layer, path)| Source { layer, path }).collect();
    // In the user's own folder some are the same; then what comes last counts.
    let is_last = |(at, source): &(usize, &Source)| !all[at + 1..].contains(source);
    all.iter().enumerate().filter(is_last).map(|(_, source)| source.clone()).collect()
}

type Files = Vec<(Layer, PathBuf)>;

/// What Claude Code reads: servers from each folder above, settings only from the one that it works in.
fn claude(place: &Place<'_>) -> Files {
    let mut files = Vec::new();
    for folder in ["/etc/claude-code", "/Library/Application Support/ClaudeCode"].map(Path::new) {
        files.push((Layer::ClaudeManaged, folder.join("managed-mcp.json")));
        files.push((Layer::ClaudeSettings, folder.join("managed-settings.json")));
    }
    let moved = (place.variable)("CLAUDE_CONFIG_DIR");
    let settings = moved.clone().or_else(|| place.home.map(|home| home.join(".claude")));
    let own = moved.as_deref().or(place.home);
    files.extend(settings.map(|folder| (Layer::ClaudeSettings, folder.join("settings.json"))));
    files.extend(own.map(|folder| (Layer::ClaudeOwn, folder.join(".claude.json"))));
    for name in [".claude/settings.json", ".claude/settings.local.json"] {
        files.push((Layer::ClaudeSettings, place.folder.join(name)));
    }
    let above = farthest_first(place.folder, Path::new(""));
    files.extend(above.map(|folder| (Layer::ClaudeProject, folder.join(".mcp.json"))));
    files
}

/// What Codex reads: of a project, the folders from the repository's root down.
fn codex(place: &Place<'_>) -> Files {
    let mut files = vec![(Layer::Codex, PathBuf::from("/etc/codex/config.toml"))];
    let own = (place.variable)("CODEX_HOME");
    let own = own.or_else(|| place.home.map(|home| home.join(".codex")));
    files.extend(own.iter().map(|folder| (Layer::Codex, folder.join("config.toml"))));
    let root = place.repository.unwrap_or(place.folder);
    let folders = farthest_first(place.folder, root).map(|folder| folder.join(".codex"));
    let projects = folders.filter(|folder| Some(folder) != own.as_ref());
    files.extend(projects.map(|folder| (Layer::CodexProject, folder.join("config.toml"))));
    files
}

/// What opencode reads: the user's, the project's from the top down, then `.opencode` from the bottom up.
fn opencode(place: &Place<'_>) -> Files {
    const NAMES: [&str; 2] = ["opencode.json", "opencode.jsonc"];
    let both = |folder: PathBuf| NAMES.map(|name| folder.join(name));
    let mut files = Vec::new();
    let settings = (place.variable)("XDG_CONFIG_HOME");
    let settings = settings.or_else(|| place.home.map(|home| home.join(".config")));
    if let Some(own) = settings.map(|folder| folder.join("opencode")) {
        files.push(own.join("config.json"));
        files.extend(both(own));
    }
    files.extend((place.variable)("OPENCODE_CONFIG"));
    if !(place.is_set)("OPENCODE_DISABLE_PROJECT_CONFIG") {
        let root = place.repository.unwrap_or(Path::new(""));
        let folders: Vec<&Path> = farthest_first(place.folder, root).collect();
        files.extend(folders.iter().flat_map(|folder| both(folder.to_path_buf())));
        files.extend(folders.iter().rev().flat_map(|folder| both(folder.join(".opencode"))));
    }
    files.extend(place.home.into_iter().flat_map(|home| both(home.join(".opencode"))));
    files.extend((place.variable)("OPENCODE_CONFIG_DIR").into_iter().flat_map(both));
    files.into_iter().map(|path| (Layer::Opencode, path)).collect()
}

/// The folders from a root down to this one.
fn farthest_first<'a>(folder: &'a Path, root: &Path) -> impl Iterator<Item = &'a Path> {
    let inner: Vec<&Path> =
        folder.ancestors().take_while(|above| above.starts_with(root)).collect();
    inner.into_iter().rev()
}
