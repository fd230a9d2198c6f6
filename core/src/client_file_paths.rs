//! Owns the table of files in which MCP clients keep their servers. Driven by `adopt`, by the import of the
//! gateway and by the agents. Never reads a file, and knows nothing of their content.

use std::path::{Path, PathBuf};

/// A file in which a client keeps its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientFile {
    /// The client that reads it.
    pub client: &'static str,
    /// The folder that its path begins in.
    pub base: Base,
    /// The path from there.
    pub path: &'static str,
    /// Its place among the files that `afresh gateway` looks for in a workspace; none where it does not.
    import_rank: Option<u8>,
}

/// The folder that a client's file is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Each folder of a project.
    Project,
    /// The user's folder.
    Home,
    /// The folder in which the system keeps settings of programs with windows.
    Settings,
    /// The folder that a variable names.
    Variable {
        /// The variable.
        name: &'static str,
        /// The folder in the user's, where the variable is not set.
        otherwise: &'static str,
    },
}

/// The syntax of a file, as strictly as its client reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSyntax {
    /// JSON, and nothing else.
    Json,
    /// JSON with comments and trailing commas.
    Jsonc,
    /// TOML.
    Toml,
}

/// Clients whose files are YAML, which is not changed here: people get a snippet.
pub const CONTINUE: &str = "Continue";
/// See [`CONTINUE`].
pub const GOOSE: &str = "Goose";

/// Claude Code.
pub const CLAUDE_CODE: &str = "Claude Code";
/// Codex.
pub const CODEX: &str = "Codex";
/// opencode.
pub const OPENCODE: &str = "opencode";
const VS_CODE: &str = "VS Code";
const CURSOR: &str = "Cursor";
const GEMINI: &str = "Gemini CLI";
const QWEN: &str = "Qwen Code";
const ZED: &str = "Zed";
const ROO: &str = "Roo Code";
const KIRO: &str = "Kiro";
const CLINE: &str = "Cline";

/// The folder in which programs of a terminal keep their settings.
const XDG: Base = variable("XDG_CONFIG_HOME", ".config");

/// All files, in the order in which they are shown: those of a project, then those of the user.
pub const CLIENT_FILES: [ClientFile; 37] = [
    project(VS_CODE, ".vscode/mcp.json", Some(2)),
    project(VS_CODE, ".vscode/settings.json", None),
    project(CLAUDE_CODE, ".mcp.json", Some(1)),
    project(CURSOR, ".cursor/mcp.json", Some(3)),
    project(CODEX, ".codex/config.toml", Some(5)),
    project(OPENCODE, "opencode.json", Some(4)),
    project(OPENCODE, "opencode.jsonc", None),
    project(OPENCODE, ".opencode/opencode.json", None),
    project(OPENCODE, ".opencode/opencode.jsonc", None),
    project(GEMINI, ".gemini/settings.json", None),
    project(QWEN, ".qwen/settings.json", None),
    project(ZED, ".zed/settings.json", None),
    project(ROO, ".roo/mcp.json", None),
    project(KIRO, ".kiro/settings/mcp.json", None),
    project(CONTINUE, ".continue/config.yaml", None),
    user(CLAUDE_CODE, variable("CLAUDE_CONFIG_DIR", ""), ".claude.json"),
    user("Claude Desktop", Base::Settings, "Claude/claude_desktop_config.json"),
    user(CURSOR, Base::Home, ".cursor/mcp.json"),
    user(VS_CODE, Base::Settings, "Code/User/mcp.json"),
    user(VS_CODE, Base::Settings, "Code/User/settings.json"),
    user("VS Code Insiders", Base::Settings, "Code - Insiders/User/mcp.json"),
    user(CODEX, variable("CODEX_HOME", ".codex"), "config.toml"),
    user(OPENCODE, XDG, "opencode/opencode.json"),
    user(OPENCODE, XDG, "opencode/opencode.jsonc"),
    user("Copilot", variable("COPILOT_HOME", ".copilot"), "mcp-config.json"),
    user(GEMINI, Base::Home, ".gemini/settings.json"),
    user(QWEN, Base::Home, ".qwen/settings.json"),
    user(ZED, XDG, "zed/settings.json"),
    user("Windsurf", Base::Home, ".codeium/windsurf/mcp_config.json"),
    user(CLINE, Base::Home, ".cline/data/settings/cline_mcp_settings.json"),
    user(
        CLINE,
        Base::Settings,
        "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
    ),
    user(
        ROO,
        Base::Settings,
        "Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
    ),
    user(KIRO, Base::Home, ".kiro/settings/mcp.json"),
    user("LM Studio", Base::Home, ".lmstudio/mcp.json"),
    user(CONTINUE, Base::Home, ".continue/config.yaml"),
    user(GOOSE, XDG, "goose/config.yaml"),
    user("Amazon Q", Base::Home, ".aws/amazonq/mcp.json"),
];

const fn project(client: &'static str, path: &'static str, import_rank: Option<u8>) -> ClientFile {
    ClientFile { client, base: Base::Project, path, import_rank }
}

const fn user(client: &'static str, base: Base, path: &'static str) -> ClientFile {
    ClientFile { client, base, path, import_rank: None }
}

const fn variable(name: &'static str, otherwise: &'static str) -> Base {
    Base::Variable { name, otherwise }
}

/// The user's folders.
#[derive(Clone, Copy)]
pub struct UserFolders<'a> {
    /// The user's folder.
    pub home: Option<&'a Path>,
    /// The folder of [`Base::Settings`].
    pub settings: Option<&'a Path>,
    /// The variables that are absolute paths.
    pub variable: &'a dyn Fn(&str) -> Option<PathBuf>,
}

impl Base {
    /// The folder; none for a project, which has several, and where it is not known.
    pub fn folder(self, user: &UserFolders<'_>) -> Option<PathBuf> {
        match self {
            Self::Project => None,
            Self::Home => user.home.map(Path::to_owned),
            Self::Settings => user.settings.map(Path::to_owned),
            Self::Variable { name, otherwise } => {
                (user.variable)(name).or_else(|| user.home.map(|home| home.join(otherwise)))
            }
        }
    }
}

/// The files of the user, each with its path.
pub fn user_files(folders: &UserFolders<'_>) -> Vec<(&'static ClientFile, PathBuf)> {
    let place =
        |file: &'static ClientFile| Some((file, file.base.folder(folders)?.join(file.path)));
    CLIENT_FILES.iter().filter_map(place).collect()
}

/// The files of the user that one client reads.
pub fn user_files_of(client: &str, folders: &UserFolders<'_>) -> Vec<PathBuf> {
    let files = user_files(folders).into_iter();
    files.filter(|(file, _)| file.client == client).map(|(_, path)| path).collect()
}

/// The files in each folder of a project.
pub fn project_files() -> impl Iterator<Item = &'static ClientFile> {
    CLIENT_FILES.iter().filter(|file| file.base == Base::Project)
}

/// The paths in each folder of a project that one client reads.
pub fn project_files_of(client: &str) -> impl Iterator<Item = &'static str> {
    project_files().filter(move |file| file.client == client).map(|file| file.path)
}

/// The paths that `afresh gateway` looks for in a workspace, in this order, where no file is named.
pub fn import_candidates() -> Vec<&'static str> {
    let mut all: Vec<&ClientFile> =
        CLIENT_FILES.iter().filter(|file| file.import_rank.is_some()).collect();
    all.sort_by_key(|file| file.import_rank);
    all.into_iter().map(|file| file.path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_looks_for_what_projects_share() {
        let wanted = [
            ".mcp.json",
            ".vscode/mcp.json",
            ".cursor/mcp.json",
            "opencode.json",
            ".codex/config.toml",
        ];
        assert_eq!(import_candidates(), wanted);
    }

    #[test]
    fn a_variable_moves_the_files_of_its_client_only() {
        let variable = |name: &str| (name == "CODEX_HOME").then(|| PathBuf::from("/codex"));
        let folders =
            UserFolders { home: Some(Path::new("/me")), settings: None, variable: &variable };
        assert_eq!(user_files_of(CODEX, &folders), [Path::new("/codex/config.toml")]);
        assert_eq!(user_files_of(CLAUDE_CODE, &folders), [Path::new("/me/.claude.json")]);
        assert_eq!(user_files_of("Claude Desktop", &folders), [] as [&Path; 0]);
        let nowhere = UserFolders { home: None, ..folders };
        assert_eq!(user_files(&nowhere).len(), 1);
    }
}
