//! The operating systems, apart from processes: the same functions for each.
//!
//! `unix.rs` is for Linux and macOS, `windows.rs` for Windows. What only Linux's kernel tells is in `linux.rs`;
//! `not_linux.rs` does without. `streams.rs` has our own stdin and stdout on Unix, `polled_streams.rs` the streams of a shim, `folder.rs` files in an open folder, `sqlite_files.rs` those of SQLite,
//! `launchers.rs` the ends of npx and launchers, `dispositions.rs` the signals that we ignore, `job_control.rs` what shells do to jobs. Nothing outside of here and
//! `process/` names a system, and nothing in here decides.

#[cfg(unix)]
pub(crate) mod dispositions;
#[cfg(unix)]
mod folder;
#[cfg(unix)]
mod job_control;
#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod kernel;
#[cfg(not(target_os = "linux"))]
#[path = "not_linux.rs"]
mod kernel;
#[cfg(unix)]
mod launchers;
#[cfg(unix)]
mod polled_streams;
#[cfg(unix)]
mod sqlite_files;
#[cfg(unix)]
mod streams;
#[cfg(unix)]
#[path = "unix.rs"]
mod system;
#[cfg(windows)]
#[path = "windows.rs"]
mod system;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

#[cfg(unix)]
pub(crate) use self::folder::Folder;
#[cfg(unix)]
pub use self::job_control::*;
pub(crate) use self::kernel::*;
#[cfg(unix)]
pub(crate) use self::launchers::Launchers;
#[cfg(unix)]
pub(crate) use self::polled_streams::*;
#[cfg(unix)]
pub(crate) use self::sqlite_files::restrict_sqlite;
#[cfg(unix)]
pub(crate) use self::streams::*;
pub use self::system::*;

/// A signal to a supervisor, by its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalRequest {
    /// To stop in order, and end; with the name of what asked. Many send several at once: a shell
    /// and the kernel when a terminal closes, `timeout` to a process and its group.
    Stop(&'static str),
    /// The same, by a person at a keyboard: the second time means now.
    Interrupt,
    /// To replace the instances by new ones; with the name of what asked.
    #[cfg_attr(windows, expect(dead_code, reason = "nothing there asks for it"))]
    Restart(&'static str),
}

impl SignalRequest {
    /// The name of the signal.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stop(name) | Self::Restart(name) => name,
            Self::Interrupt => "SIGINT",
        }
    }
}

/// An event of job control or the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// We are to stop.
    Suspend,
    /// We were stopped, and go on.
    Continued,
    /// The terminal has another size.
    Resized,
}

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
pub enum Keys {
    /// The bytes of the terminal.
    Bytes(Vec<u8>),
    /// Something that the console itself has to be asked for.
    Console,
    /// Nothing, for as long as was waited.
    None,
    /// There is no terminal any more.
    Gone,
}

/// The processes that a suspension stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stopped {
    /// Only this process, as by a signal.
    We,
    /// All of the job that we belong to, as by a key.
    Everyone,
}

/// The listener on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortHolder {
    /// Its process and its command line, where the system tells us.
    pub(crate) process: Option<(u32, Vec<String>)>,
}

/// What can be done with a stream now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) can_read: bool,
    pub(crate) can_write: bool,
    /// The other end is closed.
    pub(crate) is_broken: bool,
}

/// What is waited for of a stream, besides that its other end is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl Interest {
    pub(crate) const fn is_none(self) -> bool {
        !self.reads && !self.writes
    }
}

/// What a wait has brought: that of each stream, in their order; nothing of one that was left out.
#[derive(Debug)]
pub(crate) struct PollResult<const COUNT: usize> {
    pub(crate) streams: [Ready; COUNT],
    /// One of the ends that were waited for has come.
    pub(crate) has_end: bool,
}

/// The kind of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Regular,
    CharacterDevice,
    Fifo,
    Other,
}

/// What happens to a link that has the name of the file itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastLink {
    Followed,
    Refused,
}

/// The owner of a folder, and whether others have rights to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FolderOwner {
    /// This user, alone.
    We,
    /// This user, on a file system that does not keep others out.
    #[cfg_attr(windows, expect(dead_code, reason = "rights come from the folder above"))]
    OpenToOthers,
    /// Another user.
    #[cfg_attr(windows, expect(dead_code, reason = "rights come from the folder above"))]
    Another,
}

/// A limit of this process; `None` is any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessLimit {
    /// The one that holds.
    pub(crate) now: Option<u64>,
    /// What it may be raised to.
    pub(crate) at_most: Option<u64>,
}

/// The kernel's limits of watches, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchLimits {
    pub(crate) files: Option<u64>,
    pub(crate) watchers: Option<u64>,
}

/// The events of a folder to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchExtent {
    /// Changes of its entries, and of the folder itself.
    Entries,
    /// That it is moved or removed.
    Itself,
}

/// A change in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "nothing is watched"))]
pub(crate) enum FolderEvent {
    /// To what has this name in it.
    Entry { folder: PathBuf, name: OsString, is_folder: bool },
    /// To the folder itself: it is gone, or somewhere else.
    Folder(PathBuf),
    /// Too much happened: events were lost.
    Lost,
}

/// The reason that a folder is not watched.
#[derive(Debug)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "nothing is watched"))]
pub(crate) enum WatchRefusal {
    /// It is not there, or is no folder.
    Gone,
    /// The system grants no more; with what to do about it.
    Limit { what: &'static str, hint: String },
    /// The system watches nothing for us.
    #[cfg_attr(target_os = "linux", expect(dead_code, reason = "Linux does"))]
    Unsupported,
    /// Something else.
    Failed(io::Error),
}
