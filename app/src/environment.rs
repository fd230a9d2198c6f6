//! Owns the variables and the folder that the process was started with. Read once by `main`, passed down from there.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use afresh_core::config::{self, Config, ConfigSource, FileKind, Flag};
use afresh_core::hook::HookDefinition;
use afresh_core::limits::CONFIG_FILE_BYTES_MAX;
use afresh_core::report::ConfigError;
use afresh_daemon::control::RuntimeFolders;
use afresh_daemon::store::workspace::Workspace;
use afresh_daemon::{HOME_VARIABLE, HookSetup, is_variable, without_notify};

use crate::error::{CommandError, Exit, Text};
use crate::output;

/// Folders and variables.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    pub(crate) cwd: PathBuf,
    pub(crate) variables: Vec<(OsString, OsString)>,
}

impl Environment {
    pub(crate) fn read() -> Result<Self, CommandError> {
        let cwd = std::env::current_dir().map_err(|error| {
            CommandError::new(Exit::Unavailable, error)
                .hint("the current folder is gone: change to one that exists")
        })?;
        Ok(Self { cwd, variables: std::env::vars_os().collect() })
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&OsString> {
        self.variables.iter().find(|(key, _)| is_variable(key, name)).map(|(_, value)| value)
    }

    /// Where state lives.
    pub(crate) fn workspace(&self) -> Workspace {
        let state = self.folder("XDG_STATE_HOME");
        Workspace::find(&self.cwd, self.folder(HOME_VARIABLE).as_deref(), state.as_deref())
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
            None => RuntimeFolders::new(self.folder("XDG_RUNTIME_DIR").as_deref()),
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

    /// The configuration files that exist, weakest first.
    pub(crate) fn config_texts(
        &self,
        workspace: &Workspace,
    ) -> Result<Vec<ConfigText>, CommandError> {
        let mut texts = Vec::new();
        for (kind, path) in self.config_files(workspace) {
            let read = match read_config(&path) {
                // Another user's home, as after `sudo -u`: not a reason to do nothing.
                Err(error) if kind == FileKind::User && error.is_refused() => {
                    output::warn(
                        &format!("{error}\nhint: going on without it")
                            .replacen("error:", "warning:", 1),
                    );
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
    ) -> Result<Config, CommandError> {
        self.warn_of_passed_over(workspace);
        let config = self.quiet_config(workspace, flags)?;
        for warning in &config.warnings {
            output::warn(&warning.to_string());
        }
        Ok(config)
    }

    /// Says that a configuration file is there which does not count, and why.
    pub(crate) fn warn_of_passed_over(&self, workspace: &Workspace) {
        let Some(file) = workspace.passed_over(&self.cwd) else { return };
        let folder = file.parent().unwrap_or(&file).display().to_string();
        output::warn(&format!(
            "warning: `{}` does not count: every user can create files in `{folder}`, so another one could \
             have written it\nhint: move it to a folder of your own, or run `chmod o-w {folder}` if the \
             folder is yours",
            file.display()
        ));
    }

    /// The configuration of all layers, with its warnings unsaid.
    pub(crate) fn quiet_config(
        &self,
        workspace: &Workspace,
        flags: &[Flag<'_>],
    ) -> Result<Config, CommandError> {
        let texts = self.config_texts(workspace)?;
        let sources: Vec<ConfigSource<'_>> = texts.iter().map(ConfigText::source).collect();
        config::load(&sources, &self.config_variables(), flags)
            .map_err(|errors| config_error(&errors))
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

/// All errors of a configuration as one.
pub(crate) fn config_error(errors: &[ConfigError]) -> CommandError {
    let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
    CommandError { exit: Exit::Config, text: Text::Ready(all.join("\n\n")), hints: Vec::new() }
}

/// The bytes of a configuration file, one more than allowed at most; `None` where there is none.
pub(crate) fn read_config(path: &Path) -> Result<Option<Vec<u8>>, CommandError> {
    read_bounded(path, CONFIG_FILE_BYTES_MAX).map_err(|error| error.of(path))
}

/// Why a file that is there could not be read.
#[derive(Debug)]
pub(crate) enum ReadFileError {
    NotAFile,
    Refused(std::io::Error),
}

impl ReadFileError {
    /// The failure of a command that needs the file.
    pub(crate) fn of(&self, path: &Path) -> CommandError {
        let path = path.display();
        let (exit, text) = match self {
            Self::NotAFile => (Exit::Config, format!("error: `{path}` is not a file")),
            Self::Refused(error) => {
                let is_denied = error.kind() == std::io::ErrorKind::PermissionDenied;
                let exit = if is_denied { Exit::Unavailable } else { Exit::Config };
                (exit, format!("error: cannot read `{path}`: {error}"))
            }
        };
        CommandError { exit, text: Text::Ready(text), hints: Vec::new() }
    }
}

impl fmt::Display for ReadFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAFile => f.write_str("it is not a file"),
            Self::Refused(error) => write!(f, "{error}"),
        }
    }
}

/// The bytes of a file, one more than allowed at most; `None` where there is none.
pub(crate) fn read_bounded(
    path: &Path,
    bytes_max: usize,
) -> Result<Option<Vec<u8>>, ReadFileError> {
    // A FIFO would keep us waiting for a writer.
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(ReadFileError::NotAFile);
    }
    match File::open(path) {
        Ok(file) => {
            let mut bytes = Vec::new();
            let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
            file.take(limit).read_to_end(&mut bytes).map_err(ReadFileError::Refused)?;
            Ok(Some(bytes))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Ok(None),
        Err(error) => Err(ReadFileError::Refused(error)),
    }
}
