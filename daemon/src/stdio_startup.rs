//! What `afresh mcp` and `afresh gateway` begin with: both stand between pipes, and log to stderr and a file.

use std::path::PathBuf;

use afresh_core::limits::LOG_FILE_BYTES_MAX;

use crate::keep::KeepError;
use crate::os::{self, Signals};
use crate::output::{Output, OutputThread};
use crate::process::{Processes, ignore_in_supervisor};
use crate::store::rotating::{RotatingFile, Tee};
use crate::store::trace::Trace;

/// What is there before the first server.
pub(crate) struct Beginning {
    pub(crate) signals: Signals,
    pub(crate) processes: Processes,
    pub(crate) stderr: Output,
    pub(crate) stderr_thread: OutputThread,
    pub(crate) trace: Option<Trace>,
}

impl Beginning {
    /// With the files that the log and all traffic go to.
    pub(crate) fn new(
        log_file: Option<PathBuf>,
        trace: Option<PathBuf>,
    ) -> Result<Self, KeepError> {
        let log_file = log_file.map(|path| RotatingFile::open(&path, LOG_FILE_BYTES_MAX));
        let log_file = log_file.transpose().map_err(KeepError::File)?;
        let signals = Signals::listen().map_err(KeepError::Signals)?;
        ignore_in_supervisor().map_err(KeepError::Signals)?;
        os::keep_freed_memory();
        let processes = Processes::start()?;
        let stderr = os::stderr().map_err(KeepError::Output)?;
        let (stderr, stderr_thread) = Output::start("stderr", Tee::new(stderr, log_file), |_| {})
            .map_err(KeepError::Output)?;
        let complain = {
            let stderr = stderr.clone();
            move |text: &str| stderr.log(text)
        };
        let trace = trace.map(|path| Trace::open(&path, complain)).transpose();
        let trace = trace.map_err(KeepError::File)?;
        Ok(Self { signals, processes, stderr, stderr_thread, trace })
    }
}
