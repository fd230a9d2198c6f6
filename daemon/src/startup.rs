//! Owns what every face sets up before its loop: the runtime, the streams, the log files. Called by `keep`,
//! `up`, `mcp` and `gateway`. Never starts a service.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use afresh_core::audit::{EventType, Level, Record};
use afresh_core::limits::LOG_FILE_BYTES_MAX;
use serde_json::Value;

use crate::control::ListenError;
use crate::os::{self, Signals};
use crate::output::{Output, OutputThread, SanitizedStream, Sanitizer};
use crate::process::{MECHANISM, Processes, StartError, ignore_in_supervisor};
use crate::store::rotation::{OpenFileError, RotatingFile, Tee};
use crate::store::service_log::ServiceLogs;
use crate::store::trace::Trace;
use crate::supervise::Supervisor;
use crate::write_path::WritePath;

/// Why nothing could be supervised at all.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The event loop could not be made.
    #[error("cannot set up the event loop")]
    Runtime(#[source] io::Error),
    /// A file that was asked for could not be opened.
    #[error("cannot record what happens")]
    File(#[source] OpenFileError),
    /// Clients cannot be served over HTTP.
    #[error("cannot serve clients over HTTP")]
    Front(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The files of `--watch` cannot be watched.
    #[error("cannot watch files")]
    Watch(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The control API could not be served where it was asked for.
    #[error("cannot serve the control API")]
    Listen(#[source] ListenError),
    /// The streams could not be set up.
    #[error("cannot start the output threads")]
    Output(#[source] io::Error),
    /// The process layer could not be set up.
    #[error("cannot set up process supervision")]
    Processes(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The signals could not be caught.
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
}

impl From<StartError> for SetupError {
    fn from(error: StartError) -> Self {
        Self::Processes(Box::new(error))
    }
}

/// Runs a face in an event loop of its own.
pub(crate) fn block_on<T, E: From<SetupError>>(
    face: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(SetupError::Runtime)?;
    let result = runtime.block_on(face);
    // The stdin thread may sit in a read for ever, and is not waited for.
    runtime.shutdown_background();
    result
}

/// Takes over the signals.
pub(crate) fn signals() -> Result<Signals, SetupError> {
    let signals = Signals::listen().map_err(SetupError::Signals)?;
    ignore_in_supervisor().map_err(SetupError::Signals)?;
    Ok(signals)
}

/// One of our own streams, written by a thread of its own.
pub(crate) fn output(
    name: &str,
    stream: io::Result<impl Write + Send + 'static>,
    complain: impl Fn(&str) + Send + 'static,
) -> Result<(Output, OutputThread), SetupError> {
    let started = stream.and_then(|stream| Output::start(name, stream, complain));
    started.map_err(SetupError::Output)
}

/// Starts to keep the output of services on disk; failures go to our own log.
pub(crate) fn start_logs(supervise: &Supervisor) -> Result<Arc<ServiceLogs>, SetupError> {
    let stderr = supervise.recorder.stderr.clone();
    let logs = ServiceLogs::start(move |text| stderr.log(text)).map_err(SetupError::Output)?;
    Ok(Arc::new(logs))
}

/// That afresh has started in a folder, with what it does and fields of its own, for the trail.
pub(crate) fn started(
    logger: &str,
    version: &str,
    cwd: &Path,
    what: &str,
    own: Vec<(&'static str, Value)>,
) -> Record {
    let (pid, cwd) = (std::process::id(), cwd.display().to_string());
    let message = format!("afresh {version} started (pid {pid}, cwd {cwd}), {what}");
    let mut props = vec![("pid", pid.into()), ("version", version.into()), ("cwd", cwd.into())];
    props.extend(own);
    props.push(("mechanism", MECHANISM.into()));
    let (level, event_type) = (Level::Info, EventType::SupervisorStarted);
    Record { level, logger: logger.to_owned(), message, event_type, props }
}

/// That afresh ends with this code, for the trail.
pub(crate) fn stopped(
    logger: &str,
    message: &str,
    code: i32,
    own: Vec<(&'static str, Value)>,
) -> Record {
    let mut props = vec![("pid", std::process::id().into())];
    props.extend(own);
    props.push(("exit_code", code.into()));
    let (level, event_type) = (Level::Info, EventType::SupervisorStopped);
    Record { level, logger: logger.to_owned(), message: message.to_owned(), event_type, props }
}

/// What `afresh mcp` and `afresh gateway` begin with: both stand between pipes, and log to stderr and a
/// file.
pub(crate) struct StdioStartup {
    pub(crate) signals: Signals,
    pub(crate) processes: Processes,
    pub(crate) stderr: Output,
    pub(crate) stderr_thread: OutputThread,
    pub(crate) trace: Option<Trace>,
}

impl StdioStartup {
    /// With the files that the log and all traffic go to.
    pub(crate) fn new(
        log_file: Option<PathBuf>,
        trace: Option<PathBuf>,
    ) -> Result<Self, SetupError> {
        let log_file =
            log_file.map(|path| RotatingFile::open(&WritePath::named(path), LOG_FILE_BYTES_MAX));
        let log_file = log_file.transpose().map_err(SetupError::File)?;
        let signals = signals()?;
        os::keep_freed_memory();
        let processes = Processes::start()?;
        let stderr = os::stderr().map_err(SetupError::Output)?;
        // The file has the bytes.
        let stderr = SanitizedStream::new(stderr, Sanitizer::lines(true));
        let (stderr, stderr_thread) = Output::start("stderr", Tee::new(stderr, log_file), |_| {})
            .map_err(SetupError::Output)?;
        let complain = {
            let stderr = stderr.clone();
            move |text: &str| stderr.log(text)
        };
        let trace = trace.map(|path| Trace::open(&path, complain)).transpose();
        let trace = trace.map_err(SetupError::File)?;
        Ok(Self { signals, processes, stderr, stderr_thread, trace })
    }
}
