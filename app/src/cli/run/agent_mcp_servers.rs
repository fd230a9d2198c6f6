//! The agent's own MCP servers, which stand behind `afresh mcp` while a run lasts.

use std::path::{Path, PathBuf};

use afresh_core::adopt::agent_mcp_servers::{AgentServers, ServerQuery, SupervisedServer, find};
use afresh_core::agent::mcp_servers::{ConfigText, Layer, ProjectContext, repository_of_worktree};
use afresh_core::agent::{AgentKind, AgentServer};
use afresh_core::client_import::{accepts_command, request_name, requests};
use afresh_core::text::harmless;
use afresh_core::trust::{TrustRequest, untrusted_note};
use afresh_daemon::HOME_VARIABLE;
use afresh_daemon::store::client_files::{ClientFile, ReadClientFileError, own_path};
use afresh_daemon::store::git_folder::git_link;

use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::output;

/// Where they are looked for.
pub(super) struct OwnServers {
    kind: AgentKind,
    program: Vec<String>,
    wanted: bool,
    environment: Environment,
    repository: Option<PathBuf>,
    project: Option<PathBuf>,
    home: Option<PathBuf>,
    afresh: String,
}

impl OwnServers {
    pub(super) fn new(
        kind: AgentKind,
        program: &[String],
        wanted: bool,
        environment: &Environment,
    ) -> Result<Self, CommandError> {
        let path = environment.variable("PATH").map(std::ffi::OsString::as_os_str);
        let afresh = own_path(path).map_err(|error| CommandError::new(Exit::Unavailable, error))?;
        let repository = repository(&environment.cwd);
        Ok(Self {
            kind,
            program: program.to_vec(),
            wanted,
            environment: environment.clone(),
            project: repository.as_deref().map(project),
            repository,
            home: environment.folder(HOME_VARIABLE),
            afresh: afresh.to_string_lossy().into_owned(),
        })
    }

    /// Reads the agent's files as they are now.
    pub(super) fn find(&self) -> AgentServers {
        if !self.wanted {
            return AgentServers::default();
        }
        let context = ProjectContext {
            folder: &self.environment.cwd,
            repository: self.repository.as_deref(),
            project: self.project.as_deref(),
            home: self.home.as_deref(),
            variable: &|name| self.environment.folder(name),
            is_set: &|name| self.environment.variable(name).is_some_and(|value| !value.is_empty()),
        };
        let mut texts = Vec::new();
        for (layer, path) in self.kind.config_files(&context) {
            let shown = self.environment.shown(&path);
            let file = ClientFile::named(path);
            let file = match self.repository.as_deref().filter(|_| layer.is_of_project()) {
                Some(repository) => file.within(repository),
                None => file,
            };
            match file.read() {
                Ok(text) => texts.push(ConfigText { layer, path: shown, bytes: text.bytes }),
                Err(ReadClientFileError::Missing { .. }) => {}
                // What cannot be read can have turned a server off.
                Err(_) if layer != Layer::Additions => {
                    let note = Some(format!("`{}` cannot be read", harmless(&shown)));
                    return AgentServers { note, ..AgentServers::default() };
                }
                Err(_) => {}
            }
        }
        let (agent, program) = (self.kind, self.program.as_slice());
        let query = ServerQuery { agent, program, context: &context, afresh: &self.afresh };
        let mut found = find(&query, &texts);
        self.leave_untrusted(&mut found, &texts);
        found
    }

    /// Leaves servers of the project that are not accepted to the agent: to hand them over would be to accept them in
    /// the user's place.
    fn leave_untrusted(&self, found: &mut AgentServers, texts: &[ConfigText]) {
        let workspace = self.environment.workspace();
        let root = workspace.root().unwrap_or(&self.environment.cwd).display().to_string();
        let trust = self.environment.trust(&workspace);
        let is_asked_for = |server: &SupervisedServer| {
            texts.iter().find(|text| text.layer.is_of_project() && text.path == server.from)
        };
        let AgentServers { servers, untrusted, .. } = found;
        servers.retain(|server| {
            let Some(text) = is_asked_for(server) else { return true };
            let AgentServer { name, command, .. } = &server.server;
            let requests = requests(&text.path, &text.bytes, &root);
            // The words of the file stand behind those of afresh.
            let own = command.iter().position(|word| word == "--").map_or(0, |at| at + 1);
            let accepts = |request: &TrustRequest| trust.accepts(request);
            let is_accepted = accepts_command(&requests, name, &command[own..], &accepts);
            if !is_accepted {
                untrusted.push(request_name(name));
            }
            is_accepted
        });
    }
}

fn repository(folder: &Path) -> Option<PathBuf> {
    folder.ancestors().find(|above| above.join(".git").exists()).map(Path::to_owned)
}

/// The repository that this is a worktree of, or itself.
fn project(repository: &Path) -> PathBuf {
    let text = git_link(&repository.join(".git")).unwrap_or_default();
    repository_of_worktree(&text).unwrap_or(repository).to_owned()
}

/// Says what is wrong with the files; the run goes on.
pub(super) fn warn(found: &AgentServers) {
    for mistake in &found.mistakes {
        output::warn(&mistake.to_string().replacen("error:", "warning:", 1));
    }
    if let Some(note) = &found.note {
        output::warn(&format!("warning: the agent's MCP servers are not supervised: {note}"));
    }
    if let Some(note) = untrusted_note(&found.untrusted) {
        output::warn(&format!("note: {note}; until then the agent alone decides about them"));
    }
}

/// Says which servers there are.
pub(super) fn tell(found: &AgentServers) {
    let names: Vec<String> = found.servers.iter().map(|it| harmless(&it.server.name)).collect();
    let (servers, are) = match names.len() {
        0 => return,
        1 => ("server", "is"),
        _ => ("servers", "are"),
    };
    let (count, names) = (names.len(), names.join(", "));
    output::remark(&format!("{count} MCP {servers} of the agent {are} supervised: {names}"));
}
