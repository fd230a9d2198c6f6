//! What the loop is given: services, and what is around them.

use std::path::PathBuf;

use afresh_core::id::Generation;
use afresh_core::policy::Policy;
use tokio::sync::{mpsc, watch};

use crate::os::{PipeReader, PipeWriter};
use crate::output::Output;
use crate::pipe::Form;
use crate::process::Command;
use crate::store::service_log::ServiceLog;
use crate::store::trail::Trail;

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
    /// Where its output is kept on disk, and what we say about it; none where it is not.
    pub(crate) log: Option<ServiceLog>,
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
