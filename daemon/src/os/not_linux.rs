//! The same functions as `linux.rs`, where the kernel is not asked: files are polled, no folder is watched, and a
//! connection tells whether a port is taken.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use afresh_core::limits::FOLLOW_POLL_INTERVAL;

use super::{FolderEvent, PortHolder, ProcessLimit, Sink, WatchExtent, WatchLimits, WatchRefusal};

#[cfg(unix)]
use std::{os::fd::BorrowedFd, path::PathBuf};

#[cfg(unix)]
use super::PipeWriter;

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

/// A pipe cannot be opened again here.
#[cfg(unix)]
pub(super) fn pipe_path(_stream: BorrowedFd<'_>) -> Option<PathBuf> {
    None
}

/// Pipes widen by themselves here.
#[cfg(unix)]
pub(super) fn widen(_pipe: BorrowedFd<'_>) {}

/// A path is walked name by name here.
#[cfg(unix)]
pub(super) fn open_beneath(
    _folder: BorrowedFd<'_>,
    _rest: &Path,
    _flags: nix::fcntl::OFlag,
) -> Option<io::Result<std::os::fd::OwnedFd>> {
    None
}

/// Not told here: a process that is stopped is one that does not answer.
pub(crate) fn is_stopped(_pid: u32) -> bool {
    false
}

/// The open files of another process are not looked at here.
#[cfg(unix)]
pub(crate) fn processes_with_stdout(_file: &Path) -> Vec<(u32, String, String)> {
    Vec::new()
}

/// The system does not tell without special rights.
pub(crate) fn listener_of(_port: u16) -> Option<(u32, String)> {
    None
}

/// The environment of another process is not readable here.
pub(crate) fn processes_with(_name: &str, _value: &str) -> Vec<u32> {
    Vec::new()
}

/// There are none.
pub(crate) struct FolderAlarm(Infallible);

/// Waits for ever.
pub(crate) struct FolderAlarms(Infallible);

impl FolderAlarms {
    pub(crate) async fn next(&self) -> io::Result<Vec<FolderAlarm>> {
        match self.0 {}
    }
}

/// Cannot be made.
pub(crate) struct Folders(Infallible);

/// Nothing is watched here.
pub(crate) fn watch_folders() -> Result<(FolderAlarms, Folders), WatchRefusal> {
    Err(WatchRefusal::Unsupported)
}

impl Folders {
    pub(crate) fn has_room_for(&self, _folder: &Path, _folders_max: usize) -> bool {
        match self.0 {}
    }

    pub(crate) fn add(&mut self, _folder: &Path, _extent: WatchExtent) -> Result<(), WatchRefusal> {
        match self.0 {}
    }

    pub(crate) fn retain(&mut self, _keep: impl Fn(&Path) -> bool) {
        match self.0 {}
    }

    pub(crate) fn hear(&mut self, alarm: FolderAlarm) -> Vec<FolderEvent> {
        match alarm.0 {}
    }
}

/// Whether holders of ports are told by process.
#[cfg(test)]
pub(crate) const TELLS_HOLDERS: bool = false;

/// A connection on the same machine is there at once, or not at all.
const CONNECT_WAIT: Duration = Duration::from_millis(200);

/// The process that listens where a service wants to; none where the port is free.
pub(crate) fn holder_of(wanted: SocketAddr) -> Option<PortHolder> {
    // "Any address" cannot be connected to.
    let reached = match wanted.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let address = SocketAddr::new(reached, wanted.port());
    let is_taken = TcpStream::connect_timeout(&address, CONNECT_WAIT).is_ok();
    is_taken.then_some(PortHolder { process: None })
}
