//! The definition of a service, and the streams and files around the loop. Made by the faces, read by the
//! loop.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use afresh_core::config::TrailSettings;
use afresh_core::definition::{Port, StopSignal};
use afresh_core::env_file;
use afresh_core::health::HealthCheck;
use afresh_core::id::Generation;
use afresh_core::limits::ENV_FILE_BYTES_MAX;
use afresh_core::policy::Policy;
use afresh_core::service::SpawnFailure;
use tokio::sync::mpsc;

use crate::error_chain::chain;
use crate::os::{PipeWriter, is_variable, open_to_read};
use crate::output::Output;
use crate::pipe::OutputForm;
use crate::process::Command;
use crate::store::service_log::ServiceLog;
use crate::store::trail::{self, Trail};
use crate::store::workspace::{TrailFiles, Workspace};
use crate::write_path::WritePath;

/// A service as it is defined.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definition {
    /// Its key, in the trail and in commands.
    pub(crate) name: String,
    /// Its name for users.
    pub(crate) title: String,
    /// Its own environment comes on top of the one that all services share.
    pub(crate) command: Command,
    /// The service's own variables.
    pub(crate) variables: Variables,
    pub(crate) policy: Policy,
    /// The signal that asks it to stop.
    pub(crate) stop_signal: StopSignal,
    /// It is restarted when its processes hold more memory than this together.
    pub(crate) memory_bytes_max: Option<u64>,
    /// The form of its output in ours.
    pub(crate) form: OutputForm,
    /// The check of its readiness and health.
    pub(crate) health: Option<HealthCheck>,
    /// Whether it is ready as soon as it runs; else a health check says so, or it is not known.
    pub(crate) ready_at_start: bool,
    /// The port that it needs for itself, checked before each start.
    pub(crate) port: Option<Port>,
    /// Its log on disk, where there is one.
    pub(crate) log: Option<ServiceLog>,
}

/// Variables of a service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables {
    /// The variables of all services; those of the others win.
    pub(crate) base: Arc<[(OsString, OsString)]>,
    /// A file of them, which is read at each start.
    pub(crate) file: Option<PathBuf>,
    /// These win over those of the file.
    pub(crate) given: Vec<(String, String)>,
}

impl Definition {
    /// An MCP server: its conversation says when it is ready, and whether it hangs.
    pub(crate) fn talker(
        name: &str,
        command: Command,
        variables: Variables,
        policy: Policy,
        memory_bytes_max: Option<u64>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            title: name.to_owned(),
            command,
            variables,
            policy,
            memory_bytes_max,
            form: OutputForm::Lines(format!("[{name}] ")),
            ..Self::default()
        }
    }

    /// The command of this instance, or the reason that there is none.
    pub(crate) fn command_of(&self, generation: Generation) -> Result<Command, SpawnFailure> {
        let mut command = self.command.clone();
        command.env.splice(0..0, self.variables.base.iter().cloned());
        let own = [
            ("AFRESH_SERVICE".to_owned(), self.name.clone()),
            ("AFRESH_GENERATION".to_owned(), generation.to_string()),
        ];
        let given = self.variables.given.iter().cloned();
        for (name, value) in self.variables.of_file()?.into_iter().chain(given).chain(own) {
            command.env.retain(|(other, _)| !is_variable(other, &name));
            command.env.push((name.into(), value.into()));
        }
        Ok(command)
    }
}

impl Variables {
    fn of_file(&self) -> Result<BTreeMap<String, String>, SpawnFailure> {
        let Some(path) = &self.file else { return Ok(BTreeMap::new()) };
        let failed = |why: String| SpawnFailure {
            message: format!("cannot read its variables from `{}`: {why}", path.display()),
            hint: Some("mend the file; it is read again at each start".to_owned()),
            permanent: false,
            code: 125,
        };
        let mut bytes = Vec::new();
        let limit = ENV_FILE_BYTES_MAX as u64 + 1;
        open_to_read(path)
            .and_then(|file| file.take(limit).read_to_end(&mut bytes))
            .map_err(|error| failed(error.to_string()))?;
        env_file::parse(&bytes).map_err(|error| failed(error.to_string()))
    }
}

/// The streams and files that the loop writes to.
pub(crate) struct Surroundings {
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
    pub(crate) trail: Trail,
    pub(crate) marker_file: WritePath,
    /// Which part of afresh speaks in the trail.
    pub(crate) logger: &'static str,
    /// The pipes of each new instance are a conversation's, and not simply passed on.
    pub(crate) has_talkers: bool,
    /// Gets the stdin of each new instance, and `None` when it is to be closed.
    pub(crate) stdin: Option<mpsc::Sender<Option<PipeWriter>>>,
    /// The stdin of instances stays open, for what is typed to them, where nothing is piped to it.
    pub(crate) holds_stdin: bool,
}

impl Surroundings {
    /// With the trail of a workspace, whose folder is made where it is not there.
    pub(crate) fn new(
        workspace: &mut Workspace,
        settings: &TrailSettings,
        stdout: Output,
        stderr: Output,
    ) -> Self {
        match workspace.prepare() {
            Ok(None) => {}
            Ok(Some(notice)) => stderr.log(&notice),
            Err(error) => stderr.log(&chain(&error)),
        }
        let files = TrailFiles::of(workspace, settings);
        let settings = trail::Settings {
            path: files.audit,
            file_bytes_max: settings.file_bytes_max,
            files_kept: settings.files_kept,
        };
        let trail = Trail::open(settings, {
            let stderr = stderr.clone();
            move |notice| stderr.log(&notice)
        });
        Self {
            stdout,
            stderr,
            trail,
            marker_file: files.marker,
            logger: "afresh",
            has_talkers: false,
            stdin: None,
            holds_stdin: false,
        }
    }
}
