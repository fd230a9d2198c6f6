//! Owns the variables and the folder that the process was started with. Read once by `main`, passed down from there.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use afresh_core::config::{self, Config, ConfigError, ConfigSource, FileKind, Flag, ProjectFile};
use afresh_core::hook::HookDefinition;
use afresh_core::launchers::{LAUNCHER_VARIABLE, StartedBy};
use afresh_core::limits::CONFIG_FILE_BYTES_MAX;
use afresh_core::text::harmless;
use afresh_core::trust::{TrustRequest, untrusted_note};
use afresh_daemon::control::{ControlPort, RuntimeFolders};
use afresh_daemon::store::user_state::{UserState, UserStateError, user_state_folder};
use afresh_daemon::store::workspace::{PassedOver, Workspace};
use afresh_daemon::{HOME_VARIABLE, HookSetup, WritePath, is_variable, leads_out, without_notify};

use crate::error::{CommandError, CommandResult, Exit, OrExit as _};
use crate::output;
use crate::trust::Trust;

/// Folders and variables.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    pub(crate) cwd: PathBuf,
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// What started this process, as far as the variables say.
    pub(crate) started_by: StartedBy,
    /// All that the project's files ask for counts: `--trust`.
    pub(crate) trusts_project: bool,
}

impl Environment {
    pub(crate) fn read() -> CommandResult<Self> {
        match std::env::current_dir() {
            Ok(cwd) => {
                let mut variables: Vec<_> = std::env::vars_os().collect();
                let started_by = StartedBy::variables(|name| {
                    let found = variables.iter().find(|(key, _)| is_variable(key, name));
                    found.and_then(|(_, value)| value.to_str())
                });
                // It is about this process alone: servers that are shared have equal variables.
                variables.retain(|(key, _)| !is_variable(key, LAUNCHER_VARIABLE));
                Ok(Self { cwd, variables, started_by, trusts_project: false })
            }
            Err(error) => Err(CommandError::new(Exit::Unavailable, error)
                .hint("the current folder is gone: change to one that exists")),
        }
    }

    /// The same, for a command with or without `--trust`.
    pub(crate) fn with_trust(&self, trusts_project: bool) -> Self {
        Self { trusts_project, ..self.clone() }
    }

    /// The user's private folder.
    pub(crate) fn user_state(&self) -> Result<UserState, UserStateError> {
        let state = self.folder("XDG_STATE_HOME");
        UserState::find(self.folder(HOME_VARIABLE).as_deref(), state.as_deref())
    }

    /// The port of the control API, where there is to be one.
    pub(crate) fn control_port(
        &self,
        address: Option<SocketAddr>,
    ) -> Result<Option<ControlPort>, CommandError> {
        let port = address.map(|address| ControlPort::new(address, self.user_state()));
        port.transpose().or_exit(Exit::Unavailable)
    }

    /// What the user has accepted of a workspace's files.
    pub(crate) fn trust(&self, workspace: &Workspace) -> Trust {
        let read = self.user_state().and_then(|state| state.read());
        let root = workspace.root().unwrap_or(&self.cwd);
        Trust::new(read, root, &self.cwd, self.trusts_project)
    }

    /// The user's name, as far as the variables say.
    pub(crate) fn user_name(&self) -> String {
        let name = ["USER", "LOGNAME", "USERNAME"].iter().find_map(|name| self.variable(name));
        name.map_or_else(
            || "an unnamed user".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        )
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&OsString> {
        self.variables.iter().find(|(key, _)| is_variable(key, name)).map(|(_, value)| value)
    }

    /// Where state lives.
    pub(crate) fn workspace(&self) -> Workspace {
        let state = self.folder("XDG_STATE_HOME");
        Workspace::find(&self.cwd, self.folder(HOME_VARIABLE).as_deref(), state.as_deref())
    }

    /// Where state is written: with the user's where the project cannot be written.
    pub(crate) fn located_workspace(&self) -> Workspace {
        let mut workspace = self.workspace();
        workspace.locate();
        workspace
    }

    /// What hooks are told with, here.
    pub(crate) fn hook_setup(&self, definitions: Vec<HookDefinition>) -> HookSetup {
        let workspace = self.workspace();
        let root = workspace.root().map(Path::to_owned);
        let mut env = self.variables.clone();
        without_notify(&mut env);
        HookSetup {
            definitions,
            cwd: root.clone().unwrap_or_else(|| self.cwd.clone()),
            env,
            certificates: self.folder("SSL_CERT_FILE"),
            workspace: root,
            version: env!("CARGO_PKG_VERSION"),
        }
    }

    /// The folders for control sockets; `AFRESH_RUNTIME_DIR` names the only one.
    pub(crate) fn runtime_folders(&self) -> RuntimeFolders {
        match self.folder("AFRESH_RUNTIME_DIR") {
            Some(folder) => RuntimeFolders::only(folder),
            None => {
                let (home, state) = (self.folder(HOME_VARIABLE), self.folder("XDG_STATE_HOME"));
                let state = user_state_folder(home.as_deref(), state.as_deref());
                RuntimeFolders::new(self.folder("XDG_RUNTIME_DIR").as_deref(), state)
            }
        }
    }

    /// The configuration files that count here, weakest first; they need not exist.
    pub(crate) fn config_files(&self, workspace: &Workspace) -> Vec<(FileKind, PathBuf)> {
        let project = workspace.root().map(|root| (FileKind::Workspace, root.join("afresh.toml")));
        let folder = self
            .folder("XDG_CONFIG_HOME")
            .or_else(|| self.folder(HOME_VARIABLE).map(|home| home.join(".config")));
        let user = folder.map(|folder| (FileKind::User, folder.join("afresh/config.toml")));
        project.into_iter().chain(user).collect()
    }

    /// The file to write into, as people would write it here.
    pub(crate) fn main_config_file(&self, workspace: &Workspace) -> String {
        let first = self.config_files(workspace).into_iter().next();
        first.map_or_else(|| "afresh.toml".to_owned(), |(_, path)| self.shown(&path))
    }

    /// The configuration files that exist, weakest first.
    pub(crate) fn config_texts(&self, workspace: &Workspace) -> CommandResult<Vec<ConfigText>> {
        self.texts_of(self.config_files(workspace), workspace)
    }

    /// The configuration of the user's own file alone, where that of the project cannot be used.
    pub(crate) fn own_config(&self, workspace: &Workspace) -> CommandResult<Config> {
        let mut files = self.config_files(workspace);
        files.retain(|(kind, _)| *kind == FileKind::User);
        let texts = self.texts_of(files, workspace)?;
        let sources: Vec<ConfigSource<'_>> = texts.iter().map(ConfigText::source).collect();
        Ok(config::load(&sources, &self.config_variables(), &[])?)
    }

    fn texts_of(
        &self,
        files: Vec<(FileKind, PathBuf)>,
        workspace: &Workspace,
    ) -> CommandResult<Vec<ConfigText>> {
        let mut texts = Vec::new();
        for (kind, path) in files {
            let read = match read_config_of(kind, &path, workspace) {
                // Another user's home, as after `sudo -u`: not a reason to do nothing.
                Err(error) if kind == FileKind::User && error.exit == Exit::Unavailable => {
                    let text = format!("{error}\nhint: going on without it");
                    output::warn(&text.replacen("error:", "warning:", 1));
                    continue;
                }
                read => read?,
            };
            if let Some(bytes) = read {
                texts.push(ConfigText { kind, path: self.shown(&path), bytes });
            }
        }
        Ok(texts)
    }

    /// The configuration of all layers. Warnings are said, errors are all in the result.
    pub(crate) fn config(
        &self,
        workspace: &Workspace,
        flags: &[Flag<'_>],
    ) -> CommandResult<Config> {
        self.config_for(workspace, flags, &[])
    }

    /// The same for a command that uses those requests of the project that begin with one of these: which of them are
    /// not trusted is said too.
    pub(crate) fn config_for(
        &self,
        workspace: &Workspace,
        flags: &[Flag<'_>],
        beginnings: &[&str],
    ) -> CommandResult<Config> {
        self.warn_of_passed_over(workspace);
        let trust = self.trust(workspace);
        let config = self.trusted_config(workspace, flags, &trust)?;
        config.warnings.iter().for_each(|warning| output::warn(&warning.to_string()));
        let untrusted = config.untrusted_names(beginnings);
        let names = trust.say(beginnings, &untrusted);
        trust.record_flag(workspace, &config.trail, &names);
        if let Some(note) = untrusted_note(&untrusted) {
            output::warn(&format!("note: {note}"));
        }
        Ok(config)
    }

    /// Says that a configuration file is there which does not count, and why.
    pub(crate) fn warn_of_passed_over(&self, workspace: &Workspace) {
        let folder_of = |file: &Path| file.parent().unwrap_or(file).display().to_string();
        output::warn(&match workspace.passed_over(&self.cwd) {
            None => return,
            Some(PassedOver::OpenFolder(file)) => {
                let (file, folder) = (file.display(), folder_of(&file));
                format!(
                    "warning: `{file}` does not count: every user can create files in `{folder}`, so another one \
                     could have written it\nhint: move it to a folder of your own, or run `chmod o-w {folder}` if \
                     the folder is yours"
                )
            }
            Some(PassedOver::AnotherUsers(file)) => {
                let (file, folder) = (file.display(), folder_of(&file));
                format!(
                    "warning: `{file}` does not count: it belongs to another user\nhint: if you want what it says, \
                     run afresh in `{folder}` itself"
                )
            }
        });
    }

    /// The configuration of all layers, with its warnings unsaid.
    pub(crate) fn quiet_config(
        &self,
        workspace: &Workspace,
        flags: &[Flag<'_>],
    ) -> CommandResult<Config> {
        self.trusted_config(workspace, flags, &self.trust(workspace))
    }

    /// The same by what the user is known to trust.
    pub(crate) fn trusted_config(
        &self,
        workspace: &Workspace,
        flags: &[Flag<'_>],
        trust: &Trust,
    ) -> CommandResult<Config> {
        let texts = self.config_texts(workspace)?;
        let sources: Vec<ConfigSource<'_>> = texts.iter().map(ConfigText::source).collect();
        let accepts = |request: &TrustRequest| trust.accepts(request);
        let config = config::load_trusted(&sources, &self.config_variables(), flags, &accepts);
        Ok(config.and_then(|config| with_own_files(config, workspace))?)
    }

    /// The variables, as the configuration reads them.
    pub(crate) fn config_variables(&self) -> Vec<(String, String)> {
        let text = |value: &OsString| value.to_string_lossy().into_owned();
        self.variables.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    /// A path as people would write it here.
    pub(crate) fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.cwd).unwrap_or(path).display().to_string()
    }

    /// A variable that names a folder; the XDG rules say to ignore relative ones.
    pub(crate) fn folder(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }
}

/// A configuration file as it was read.
#[derive(Debug)]
pub(crate) struct ConfigText {
    pub(crate) kind: FileKind,
    /// As people would write it here.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

impl ConfigText {
    pub(crate) fn source(&self) -> ConfigSource<'_> {
        ConfigSource { kind: self.kind, path: &self.path, bytes: &self.bytes }
    }
}

/// The configuration, unless a link leads a file that the project names out of the project: one that was merely cloned
/// has afresh neither write nor read elsewhere.
pub(crate) fn with_own_files(
    config: Config,
    workspace: &Workspace,
) -> Result<Config, Vec<ConfigError>> {
    let Some(root) = workspace.root() else { return Ok(config) };
    let error = |file: &ProjectFile| match file.is_written {
        true => WritePath::beneath(root, &file.path).link().map(|link| file.leads_through(&link)),
        false => leads_out(root, &file.path).map(|target| file.leads_out(&target)),
    };
    let errors: Vec<ConfigError> = config.project_files().iter().filter_map(error).collect();
    if errors.is_empty() { Ok(config) } else { Err(errors) }
}

/// The same as [`read_config`]; a file of the project that leads out of it is refused.
fn read_config_of(
    kind: FileKind,
    path: &Path,
    workspace: &Workspace,
) -> CommandResult<Option<Vec<u8>>> {
    match workspace.root().filter(|_| kind == FileKind::Workspace) {
        Some(root) => read_project_config(root, path),
        None => read_config(path),
    }
}

/// Reads a configuration file of the project, which must not lead out of it.
pub(crate) fn read_project_config(root: &Path, path: &Path) -> CommandResult<Option<Vec<u8>>> {
    if let Some(target) = leads_out(root, path) {
        let text =
            format!("`{}` leads out of the project, to `{}`", path.display(), target.display());
        return Err(CommandError::new(Exit::Config, harmless(&text))
            .hint("put the file itself there; your own configuration may be a link"));
    }
    read_config(path)
}

/// The bytes of a configuration file, one more than allowed at most; `None` where there is none.
pub(crate) fn read_config(path: &Path) -> CommandResult<Option<Vec<u8>>> {
    read_bounded(path, CONFIG_FILE_BYTES_MAX).map_err(|error| read_error(path, &error))
}

/// The failure of a command that needs a file, where [`read_bounded`] failed.
pub(crate) fn read_error(path: &Path, error: &io::Error) -> CommandError {
    let path = path.display();
    match error.kind() {
        ErrorKind::Other => {
            CommandError::ready(Exit::Config, format!("error: `{path}` is not a file"))
        }
        kind => {
            let is_denied = kind == ErrorKind::PermissionDenied;
            let exit = if is_denied { Exit::Unavailable } else { Exit::Config };
            CommandError::ready(exit, format!("error: cannot read `{path}`: {error}"))
        }
    }
}

/// The bytes of a file, one more than allowed at most; `None` where there is none. What is not a file is
/// [`ErrorKind::Other`], which the system's own errors never are.
pub(crate) fn read_bounded(path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    // A FIFO would keep us waiting for a writer.
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(io::Error::other("it is not a file"));
    }
    match File::open(path) {
        Ok(file) => {
            let mut bytes = Vec::new();
            let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
            file.take(limit).read_to_end(&mut bytes)?;
            Ok(Some(bytes))
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
