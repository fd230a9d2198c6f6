//! Puts the file of a [`Installation`] in its place, takes it away, and runs the commands of its manager.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use afresh_core::audit::redact::excerpt;
use afresh_core::install::{InstallStep, Manager};
use afresh_core::limits::{HOOK_COMMAND_BYTES_MAX, INSTALL_COMMAND_WAIT, INSTALL_FILE_BYTES_MAX};
use afresh_core::service::Exit;

use crate::error_chain::chain;
use crate::os;
use crate::process::{Command, Processes};
use crate::run_briefly::{Brief, BriefEnding, run_briefly};
use crate::store::atomic_replace::{Rights, replace_file};
use crate::write_path::WritePath;

/// The manager of programs that start with this machine, and its folder.
#[derive(Clone, Debug)]
pub struct Home {
    /// The manager.
    pub manager: Manager,
    /// The folder of the user's files for it.
    pub folder: PathBuf,
    /// The number of the user.
    pub user: u32,
}

/// Why a file was not put in its place, or taken away.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} `{path}`")]
pub struct InstallFileError {
    what: &'static str,
    path: PathBuf,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl InstallFileError {
    fn new(
        what: &'static str,
        path: &Path,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { what, path: path.to_owned(), source: source.into() }
    }
}

impl Home {
    /// None where there is no manager that afresh knows. `variable` gives those variables that are
    /// absolute paths; `home` is the user's folder.
    pub fn find(home: Option<&Path>, variable: &dyn Fn(&str) -> Option<PathBuf>) -> Option<Self> {
        let (manager, user) = os::manager()?;
        let folder = match manager {
            Manager::Systemd => {
                let config = variable("XDG_CONFIG_HOME").or_else(|| Some(home?.join(".config")))?;
                config.join("systemd/user")
            }
            Manager::Launchd => home?.join("Library/LaunchAgents"),
        };
        Some(Self { manager, folder, user })
    }
}

/// The content of a file; none where there is none. Of a large one only the beginning, which is not ours.
pub fn read_installed(path: &Path) -> Result<Option<Vec<u8>>, InstallFileError> {
    let mut bytes = Vec::new();
    let read = os::open_to_read(path)
        .and_then(|file| file.take(INSTALL_FILE_BYTES_MAX).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(InstallFileError::new("read", path, error)),
    }
}

/// Writes the file, and the folder above it where that is missing.
pub fn write_installed(path: &Path, text: &str) -> Result<(), InstallFileError> {
    replace_file(&WritePath::named(path), text.as_bytes(), Rights::Usual)
        .map_err(|error| InstallFileError::new("write", path, error))
}

/// Removes the file.
pub fn remove_installed(path: &Path) -> Result<(), InstallFileError> {
    fs::remove_file(path).map_err(|error| InstallFileError::new("remove", path, error))
}

/// Runs the commands one after the other, and says what failed; after one that must not fail, the others
/// are left out.
pub fn run_steps(
    steps: &[InstallStep],
    env: &[(OsString, OsString)],
    mut said: impl FnMut(&InstallStep, Result<(), String>),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return steps.iter().for_each(|step| said(step, Err(error.to_string()))),
    };
    runtime.block_on(async {
        let mut processes = match Processes::start() {
            Ok(processes) => processes,
            Err(error) => return steps.iter().for_each(|step| said(step, Err(chain(&error)))),
        };
        for step in steps {
            let outcome = run_step(&mut processes, step, env).await;
            let ends = step.must && outcome.is_err();
            said(step, outcome);
            if ends {
                break;
            }
        }
        processes.shutdown().await;
    });
}

async fn run_step(
    processes: &mut Processes,
    step: &InstallStep,
    env: &[(OsString, OsString)],
) -> Result<(), String> {
    let argv = step.command.iter().map(OsString::from).collect();
    let brief = Brief {
        command: Command { argv, cwd: Some("/".into()), env: env.to_vec() },
        stdin: Vec::new(),
        time_max: INSTALL_COMMAND_WAIT,
        output_bytes_max: HOOK_COMMAND_BYTES_MAX,
    };
    let Some(outcome) = run_briefly(processes, vec![brief]).await.pop() else {
        return Err("it was not run".to_owned());
    };
    match (outcome.ending, excerpt(&outcome.stderr)) {
        (BriefEnding::Exited(Exit::Code(0)), _) => Ok(()),
        (BriefEnding::Exited(exit), said) if said.is_empty() => Err(format!("it {exit}")),
        (BriefEnding::Exited(exit), said) => Err(format!("it {exit}: {said}")),
        (BriefEnding::SpawnFailed(failure), _) => Err(failure.message),
        (BriefEnding::TimedOut, _) => Err("it has not ended in time".to_owned()),
        (BriefEnding::TooMuchOutput, _) => Err("it prints too much".to_owned()),
    }
}
