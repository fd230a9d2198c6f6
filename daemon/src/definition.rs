//! What the loop is given: services, and what is around them.

use std::path::PathBuf;

use afresh_core::config::TrailSettings;
use afresh_core::id::Generation;
use afresh_core::policy::Policy;
use tokio::sync::{mpsc, watch};

use crate::os::{PipeReader, PipeWriter};
use crate::output::Output;
use crate::pipe::Form;
use crate::process::Command;
use crate::store::chain;
use crate::store::trail::{self, Trail};
use crate::store::workspace::{TrailFiles, Workspace};

/// A service as it is defined.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    /// Its key, in the trail and in commands.
    pub(crate) name: String,
    /// How people call it.
    pub(crate) title: String,
    pub(crate) command: Command,
    pub(crate) policy: Policy,
    /// How its output appears in ours.
    pub(crate) form: Form,
}

impl Definition {
    /// What is run as this instance.
    pub(crate) fn command_of(&self, generation: Generation) -> Command {
        let mut command = self.command.clone();
        for (name, value) in
            [("AFRESH_SERVICE", self.name.clone()), ("AFRESH_GENERATION", generation.to_string())]
        {
            command.env.push((name.into(), value.into()));
        }
        command
    }
}

/// A new instance that speaks a protocol.
pub(crate) struct Talker {
    pub(crate) generation: Generation,
    pub(crate) stdin: PipeWriter,
    pub(crate) stdout: PipeReader,
    /// Turns true when the instance is gone.
    pub(crate) gone: watch::Receiver<bool>,
}

/// The streams and files that the loop writes to.
pub(crate) struct Surroundings {
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
    pub(crate) trail: Trail,
    pub(crate) marker_file: PathBuf,
    /// Which part of afresh speaks in the trail.
    pub(crate) logger: &'static str,
    /// Gets the pipes of each new instance, where they are not simply passed on: a conversation's.
    pub(crate) talkers: Option<mpsc::Sender<Talker>>,
    /// Gets the stdin of each new instance, and `None` when it is to be closed.
    pub(crate) stdin: Option<mpsc::Sender<Option<PipeWriter>>>,
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
            Ok(Some(notice)) => stderr.log(&notice.text),
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
            move |notice| stderr.log(&notice.text)
        });
        Self {
            stdout,
            stderr,
            trail,
            marker_file: files.marker,
            logger: "afresh",
            talkers: None,
            stdin: None,
        }
    }
}
