//! The same functions as `linux.rs`, where the kernel is not asked: files are looked at again
//! every so often.

use std::io;
use std::path::Path;
use std::time::Duration;

use afresh_core::limits::FOLLOW_POLL_INTERVAL;

#[cfg(unix)]
use super::PipeWriter;
use super::{ProcessLimit, Sink, WatchLimits};

/// Waits for the next time to look.
pub(crate) struct FileWatch;

impl FileWatch {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn renew(&mut self, _folder: &Path) {}

    pub(crate) fn wait(&self, wait_max: Option<Duration>, _sink: Option<&Sink>) -> io::Result<()> {
        let pause = wait_max.unwrap_or(FOLLOW_POLL_INTERVAL);
        std::thread::sleep(pause.min(FOLLOW_POLL_INTERVAL));
        Ok(())
    }
}

/// The limit of processes is not looked at here.
pub(crate) fn processes_limit() -> Option<io::Result<ProcessLimit>> {
    None
}

/// Nothing is watched.
pub(crate) fn watch_limits() -> Option<WatchLimits> {
    None
}

/// Unread bytes in a pipe: not told by its writing end here.
#[cfg(unix)]
pub(crate) fn unread<P>(_pipe: &P) -> Option<usize> {
    None
}

/// The reading end of a pipe: of no use here.
#[cfg(unix)]
pub(crate) fn far_end(_pipe: &PipeWriter) -> Option<std::fs::File> {
    None
}

/// The system does not tell without special rights.
pub(crate) fn listener_of(_port: u16) -> Option<(u32, String)> {
    None
}

/// The environment of another process is not readable here.
pub(crate) fn processes_with(_name: &str, _value: &str) -> Vec<u32> {
    Vec::new()
}
