//! The same functions as `linux.rs`, where the kernel is not asked: files are looked at again
//! every so often.

use std::io;
use std::path::Path;
use std::time::Duration;

use afresh_core::limits::FOLLOW_POLL_INTERVAL;

#[cfg(unix)]
use super::PipeWriter;
use super::{Limit, Sink, WatchLimits};

/// Waits for the next time to look.
pub(crate) struct Watch;

impl Watch {
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

/// Nobody hits a limit of processes first here.
pub(crate) fn processes_limit() -> Option<io::Result<Limit>> {
    None
}

/// Nothing is watched.
pub(crate) fn watch_limits() -> Option<WatchLimits> {
    None
}

/// Bytes in a pipe that nobody has read: not told by its writing end here.
#[cfg(unix)]
pub(crate) fn unread<P>(_pipe: &P) -> Option<usize> {
    None
}

/// The reading end of a pipe: of no use here.
#[cfg(unix)]
pub(crate) fn far_end(_pipe: &PipeWriter) -> Option<std::fs::File> {
    None
}

/// Nobody tells without rights of its own.
pub(crate) fn listener_of(_port: u16) -> Option<(u32, String)> {
    None
}

/// Nobody tells what another process was started with.
pub(crate) fn processes_with(_name: &str, _value: &str) -> Vec<u32> {
    Vec::new()
}
