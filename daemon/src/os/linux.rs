//! Answers of Linux's kernel: changed files, limits, listeners, unread bytes. `polling.rs` has the same
//! functions for other systems.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use afresh_core::limits::FOLLOW_POLL_INTERVAL;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use nix::sys::resource::Resource;

use super::system::limit;
use super::{PipeWriter, ProcessLimit, Sink, WatchLimits};

/// Lets the kernel say that something changed in a folder.
pub(crate) struct FileWatch {
    /// None when the user has used up what the kernel grants.
    inotify: Option<Inotify>,
    watched: Vec<WatchDescriptor>,
}

impl FileWatch {
    pub(crate) fn new() -> Self {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok();
        Self { inotify, watched: Vec::new() }
    }

    /// Watches a folder and the nearest one above it that exists: a folder that is removed while
    /// a file in it is open does not say so itself.
    pub(crate) fn renew(&mut self, folder: &Path) {
        let Some(inotify) = &self.inotify else {
            return;
        };
        let moves = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF;
        let itself = inotify.add_watch(folder, moves | AddWatchFlags::IN_MODIFY).ok();
        let above =
            folder.ancestors().skip(1).find_map(|above| inotify.add_watch(above, moves).ok());
        // Watching the same folder again gives the same descriptor.
        let watched: Vec<WatchDescriptor> = itself.into_iter().chain(above).collect();
        for old in self.watched.iter().filter(|old| !watched.contains(old)) {
            // It fails where the folder is gone, and the watch with it.
            inotify.rm_watch(*old).ok();
        }
        self.watched = watched;
    }

    /// Waits for a change, or for the end of the sink.
    pub(crate) fn wait(&self, wait_max: Option<Duration>, sink: Option<&Sink>) -> io::Result<()> {
        let Some(inotify) = self.inotify.as_ref().filter(|_| !self.watched.is_empty()) else {
            let pause = wait_max.unwrap_or(FOLLOW_POLL_INTERVAL);
            std::thread::sleep(pause.min(FOLLOW_POLL_INTERVAL));
            return Ok(());
        };
        let timeout = wait_max.map_or(PollTimeout::NONE, |wait| {
            // Rounded up, so that the last millisecond is not spent in circles.
            let wait = wait + Duration::from_millis(1);
            PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)
        });
        let mut polled = vec![PollFd::new(inotify.as_fd(), PollFlags::POLLIN)];
        polled.extend(sink.map(|sink| PollFd::new(sink.as_fd(), PollFlags::empty())));
        match poll(&mut polled, timeout).map(|_| inotify.read_events()) {
            Ok(Ok(_) | Err(Errno::EAGAIN | Errno::EINTR)) | Err(Errno::EINTR) => Ok(()),
            Ok(Err(errno)) | Err(errno) => Err(errno.into()),
        }
    }
}

/// The limit of processes of this user; `None` where there is no such limit.
pub(crate) fn processes_limit() -> Option<io::Result<ProcessLimit>> {
    Some(limit(Resource::RLIMIT_NPROC))
}

/// The limits of watches; `None` where the kernel watches nothing for us.
pub(crate) fn watch_limits() -> Option<WatchLimits> {
    let read = |name: &str| -> Option<u64> {
        fs::read_to_string(format!("/proc/sys/fs/inotify/{name}")).ok()?.trim().parse().ok()
    };
    Some(WatchLimits { files: read("max_user_watches"), watchers: read("max_user_instances") })
}

/// The listener on a TCP port of this machine: its process and name, where they are visible.
pub(crate) fn listener_of(port: u16) -> Option<(u32, String)> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).ok());
    let inodes: Vec<String> = tables
        .iter()
        .flatten()
        .flat_map(|table| table.lines().skip(1))
        .filter_map(|line| listening_inode(line, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let has_it = |pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut links = open.filter_map(|entry| fs::read_link(entry.path()).ok());
        links.any(|link| inodes.iter().any(|inode| link.as_os_str() == inode.as_str()))
    };
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let pid = pids.find(has_it).filter(|_| !inodes.is_empty())?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some((pid, name.trim_end().to_owned()))
}

/// Processes with this variable in the environment that they were started with. Only those of this user can be
/// looked at.
pub(crate) fn processes_with(name: &str, value: &str) -> Vec<u32> {
    let wanted = format!("{name}={value}");
    let has_it = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != std::process::id()).filter(has_it).collect()
}

/// The socket of a line of `/proc/net/tcp`, where it listens on this port; see proc_net(5).
fn listening_inode(line: &str, port: u16) -> Option<&str> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, its_port) = fields.get(1)?.rsplit_once(':')?;
    let listens = fields.get(3) == Some(&"0A");
    (listens && u16::from_str_radix(its_port, 16) == Ok(port)).then(|| fields.get(9).copied())?
}

/// Unread bytes in a pipe.
pub(crate) fn unread(pipe: &impl AsFd) -> Option<usize> {
    let mut bytes: nix::libc::c_int = 0;
    // SAFETY: the descriptor is open, and the kernel writes one integer.
    #[expect(unsafe_code, reason = "there is no other way to ask")]
    let asked =
        unsafe { nix::libc::ioctl(pipe.as_fd().as_raw_fd(), nix::libc::FIONREAD, &raw mut bytes) };
    (asked == 0).then(|| usize::try_from(bytes).ok()).flatten()
}

/// The reading end of a pipe, to ask how much is in it; it is never read from.
pub(crate) fn far_end(pipe: &PipeWriter) -> Option<File> {
    let path = format!("/proc/self/fd/{}", pipe.as_fd().as_raw_fd());
    File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path).ok()
}
