//! Answers of Linux's kernel: changed files, watched folders, limits, ports and their holders, unread bytes, processes
//! that are stopped, files beneath a folder.
//! `not_linux.rs` has the same functions for other systems. Never reads the content of a watched file.
//!
//! [`FolderAlarms`] is what the loop waits on; [`Folders`] says which folders are watched, and may be used on another
//! thread. Nothing is read while no loop waits: the kernel queues the events, and reports an overflow.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use afresh_core::limits::{FOLLOW_POLL_INTERVAL, WATCHERS_MIN, WATCHES_MIN, WIDE_PIPE_BYTES};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, OpenHow, ResolveFlag, fcntl, openat2};
use nix::libc::{IN_EXCL_UNLINK, IN_MASK_ADD};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use nix::sys::resource::Resource;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpSocket;

use super::system::limit;
use super::{
    FolderEvent, PipeWriter, PortHolder, ProcessLimit, Sink, WatchExtent, WatchLimits, WatchRefusal,
};

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
    let (files, watchers) =
        (inotify_limit("max_user_watches"), inotify_limit("max_user_instances"));
    Some(WatchLimits { files, watchers })
}

fn inotify_limit(name: &str) -> Option<u64> {
    fs::read_to_string(format!("/proc/sys/fs/inotify/{name}")).ok()?.trim().parse().ok()
}

/// The numbers of all processes that can be seen.
pub(crate) fn pids() -> impl Iterator<Item = u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The listener on a TCP port of this machine: its process and name, where they are visible.
pub(crate) fn listener_of(port: u16) -> Option<(u32, String)> {
    let pid = process_with_open(&listeners(|local| local.port() == port)?)?;
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
    pids().filter(|pid| *pid != std::process::id()).filter(has_it).collect()
}

/// Opens what is beneath a folder, without following a link; `None` where the kernel, or a filter in front of it, does
/// not let us do that at once.
pub(super) fn open_beneath(
    folder: BorrowedFd<'_>,
    rest: &Path,
    flags: OFlag,
) -> Option<io::Result<OwnedFd>> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    match openat2(folder, rest, OpenHow::new().flags(flags).resolve(resolve)) {
        Err(Errno::ENOSYS | Errno::EPERM | Errno::EAGAIN) => None,
        opened => Some(opened.map_err(io::Error::from)),
    }
}

/// Whether a process is stopped, by a signal or a debugger: it answers nothing until it is continued.
pub(crate) fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it can have any character in it.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('T' | 't'))
}

/// Processes of this user that were given this file as their stdout, also where it has no name any more: the number and
/// the name of each, and the name of its parent.
pub(crate) fn processes_with_stdout(file: &Path) -> Vec<(u32, String, String)> {
    let name_of = |pid: u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim_end().to_owned()
    };
    let parent_of = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let mut removed = file.as_os_str().to_owned();
    removed.push(" (deleted)");
    let has_it = |pid: &u32| {
        let stdout = fs::read_link(format!("/proc/{pid}/fd/1"));
        stdout.is_ok_and(|stdout| stdout == file || stdout.as_os_str() == removed)
    };
    let found = pids().filter(has_it);
    found.map(|pid| (pid, name_of(pid), parent_of(pid).map_or_else(String::new, name_of))).collect()
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

/// The path by which a pipe can be opened again. Not so one with a name: what is opened does not know that
/// its other end is closed already.
pub(super) fn pipe_path(stream: BorrowedFd<'_>) -> Option<PathBuf> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", stream.as_raw_fd()));
    let target = fs::read_link(&path).ok()?;
    target.to_str().is_some_and(|name| name.starts_with("pipe:[")).then_some(path)
}

/// Makes a pipe hold more at once; beyond what the kernel grants this user it stays as it is.
pub(super) fn widen(pipe: BorrowedFd<'_>) {
    fcntl(pipe, FcntlArg::F_SETPIPE_SZ(WIDE_PIPE_BYTES)).ok();
}

/// The reading end of a pipe, to ask how much is in it; it is never read from.
pub(crate) fn far_end(pipe: &PipeWriter) -> Option<File> {
    let path = format!("/proc/self/fd/{}", pipe.as_fd().as_raw_fd());
    File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path).ok()
}

struct InotifyQueue(Inotify);

impl AsRawFd for InotifyQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// An event of the kernel about a folder; [`Folders::hear`] decodes it.
pub(crate) struct FolderAlarm(InotifyEvent);

/// Waits for what happens in the folders.
pub(crate) struct FolderAlarms(AsyncFd<Arc<InotifyQueue>>);

impl FolderAlarms {
    /// The events since the last call. Cancel safe.
    pub(crate) async fn next(&self) -> io::Result<Vec<FolderAlarm>> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|queue| Ok(queue.get_ref().0.read_events()?)) {
                Ok(events) => return Ok(events?.into_iter().map(FolderAlarm).collect()),
                Err(_would_block) => {}
            }
        }
    }
}

/// The folders that are watched.
pub(crate) struct Folders {
    queue: Arc<InotifyQueue>,
    by_path: BTreeMap<PathBuf, WatchDescriptor>,
    /// One folder can have several paths, by links and mounts.
    by_number: BTreeMap<i32, BTreeSet<PathBuf>>,
}

/// Begins to watch, with no folder yet. Needs a runtime.
pub(crate) fn watch_folders() -> Result<(FolderAlarms, Folders), WatchRefusal> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(refusal)?;
    let queue = Arc::new(InotifyQueue(inotify));
    // SAFETY: the queue owns its descriptor, never gives it away, and lives as long as `alarms`.
    #[expect(unsafe_code, reason = "tokio cannot see that the descriptor stays the same")]
    let alarms = unsafe { AsyncFd::register_with_interest(queue.clone(), Interest::READABLE) };
    let alarms = alarms.map_err(|error| WatchRefusal::Failed(error.into()))?;
    let folders = Folders { queue, by_path: BTreeMap::new(), by_number: BTreeMap::new() };
    Ok((FolderAlarms(alarms), folders))
}

impl Folders {
    /// Whether a folder is one of them, or there are fewer than so many.
    pub(crate) fn has_room_for(&self, folder: &Path, folders_max: usize) -> bool {
        self.by_path.len() < folders_max || self.by_path.contains_key(folder)
    }

    /// Watches a folder. One that is watched already is watched for more.
    pub(crate) fn add(&mut self, folder: &Path, extent: WatchExtent) -> Result<(), WatchRefusal> {
        let itself = AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR
            | AddWatchFlags::from_bits_retain(IN_MASK_ADD | IN_EXCL_UNLINK);
        let flags = match extent {
            WatchExtent::Itself => itself,
            // Neither the rights nor the times of a file are asked for: only what is in it counts.
            WatchExtent::Entries => {
                itself
                    | AddWatchFlags::IN_CREATE
                    | AddWatchFlags::IN_DELETE
                    | AddWatchFlags::IN_MODIFY
                    | AddWatchFlags::IN_CLOSE_WRITE
                    | AddWatchFlags::IN_MOVED_FROM
                    | AddWatchFlags::IN_MOVED_TO
            }
        };
        let number = self.queue.0.add_watch(folder, flags).map_err(refusal)?;
        if let Some(old) = self.by_path.insert(folder.to_owned(), number)
            && old != number
        {
            self.leave(old, folder);
        }
        self.by_number.entry(number.as_raw()).or_default().insert(folder.to_owned());
        Ok(())
    }

    /// Watches only those of which this is true.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Path) -> bool) {
        let gone: Vec<PathBuf> = self.by_path.keys().filter(|path| !keep(path)).cloned().collect();
        for path in gone {
            if let Some(number) = self.by_path.remove(&path) {
                self.leave(number, &path);
            }
        }
    }

    /// Decodes an alarm.
    pub(crate) fn hear(&mut self, FolderAlarm(event): FolderAlarm) -> Vec<FolderEvent> {
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            return vec![FolderEvent::Lost];
        }
        let number = event.wd.as_raw();
        if event.mask.contains(AddWatchFlags::IN_IGNORED) {
            let paths = self.by_number.remove(&number).unwrap_or_default();
            for path in &paths {
                if self.by_path.get(path) == Some(&event.wd) {
                    self.by_path.remove(path);
                }
            }
            return paths.into_iter().map(FolderEvent::Folder).collect();
        }
        // Otherwise it is of one that we have left.
        let paths = self.by_number.get(&number).into_iter().flatten();
        let is_folder = event.mask.contains(AddWatchFlags::IN_ISDIR);
        let event = |folder: &PathBuf| match &event.name {
            Some(name) => {
                FolderEvent::Entry { folder: folder.clone(), name: name.clone(), is_folder }
            }
            None => FolderEvent::Folder(folder.clone()),
        };
        paths.map(event).collect()
    }

    fn leave(&mut self, number: WatchDescriptor, path: &Path) {
        let Some(paths) = self.by_number.get_mut(&number.as_raw()) else { return };
        paths.remove(path);
        if paths.is_empty() {
            self.by_number.remove(&number.as_raw());
            // It fails where the folder is gone, and the watch with it.
            self.queue.0.rm_watch(number).ok();
        }
    }
}

fn refusal(errno: Errno) -> WatchRefusal {
    // Four times what the kernel grants now.
    let raise = |name: &str, min: u64| {
        let number = inotify_limit(name).unwrap_or(0).saturating_mul(4).max(min);
        format!(
            "run `sudo sysctl fs.inotify.{name}={number}`, and put it into `/etc/sysctl.d/` to keep it"
        )
    };
    match errno {
        Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP => WatchRefusal::Gone,
        Errno::ENOSPC => WatchRefusal::Limit {
            what: "this user may watch no more folders",
            hint: raise("max_user_watches", WATCHES_MIN),
        },
        Errno::EMFILE => WatchRefusal::Limit {
            what: "this user may have no more watchers",
            hint: raise("max_user_instances", WATCHERS_MIN),
        },
        errno => WatchRefusal::Failed(errno.into()),
    }
}

/// Whether holders of ports are told by process.
#[cfg(test)]
pub(crate) const TELLS_HOLDERS: bool = true;

/// The process that listens where a service wants to; none where the port is free.
pub(crate) fn holder_of(wanted: SocketAddr) -> Option<PortHolder> {
    if can_bind(wanted) {
        return None;
    }
    // What cannot be had may be refused for another reason: only one that listens counts.
    let sockets = listeners(|local| hinders(local, wanted))?;
    let process = process_with_open(&sockets).and_then(|pid| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words = command.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        Some((pid, words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()))
    });
    Some(PortHolder { process })
}

/// The sockets that listen at such an address, by their names as open files; none where there is no such socket.
fn listeners(is_wanted: impl Fn(SocketAddr) -> bool) -> Option<Vec<String>> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let lines = tables.iter().flatten().flat_map(|table| table.lines().skip(1));
    let found = lines.filter_map(listener).filter(|(local, _)| is_wanted(*local));
    let sockets: Vec<_> = found.map(|(_, inode)| format!("socket:[{inode}]")).collect();
    (!sockets.is_empty()).then_some(sockets)
}

/// Whether the address can be had as a server would have it, which does not mind what is left of
/// earlier connections. Much faster than to read what all sockets do.
fn can_bind(wanted: SocketAddr) -> bool {
    let made = match wanted {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    made.and_then(|made| made.set_reuseaddr(true).and_then(|()| made.bind(wanted))).is_ok()
}

/// The address and the inode in a line of the kernel's table, if it is of one that listens.
fn listener(line: &str) -> Option<(SocketAddr, &str)> {
    const LISTENS: &str = "0A";
    let mut fields = line.split_whitespace();
    let (address, port) = fields.nth(1)?.split_once(':')?;
    if fields.nth(1)? != LISTENS {
        return None;
    }
    let inode = fields.nth(5)?;
    let words: Vec<[u8; 4]> = (0..address.len() / 8)
        .map(|at| u32::from_str_radix(&address[at * 8..at * 8 + 8], 16).map(u32::to_ne_bytes))
        .collect::<Result<_, _>>()
        .ok()?;
    let ip = match words[..] {
        [word] => IpAddr::V4(Ipv4Addr::from(word)),
        [..] => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?)),
    };
    Some((SocketAddr::new(ip.to_canonical(), u16::from_str_radix(port, 16).ok()?), inode))
}

/// Whether one that listens there keeps another from listening here.
fn hinders(local: SocketAddr, wanted: SocketAddr) -> bool {
    let is_any = |address: SocketAddr| address.ip().is_unspecified();
    let covers =
        |wide: SocketAddr, narrow: SocketAddr| is_any(wide) && (wide.is_ipv6() || narrow.is_ipv4());
    let is_same = local.ip() == wanted.ip() || covers(local, wanted) || covers(wanted, local);
    local.port() == wanted.port() && is_same
}

/// A process of ours that has one of these open; others do not show theirs.
fn process_with_open(files: &[String]) -> Option<u32> {
    pids().find(|pid| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
        links.any(|link| files.iter().any(|file| link.as_os_str() == file.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = "   0: 0100007F:1000 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0";
        assert_eq!(listener(line), Some(("127.0.0.1:4096".parse().unwrap(), "4711")));
        let line = "   1: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 12 1";
        assert_eq!(listener(line), Some(("[::1]:8080".parse().unwrap(), "12")));
        let time_wait = "   2: 0100007F:1000 0100007F:D431 06 0:0 03:00000F3C 0 0 0 0 3";
        for other in [time_wait, "", "x", "0: zz:zz", "0: 0100007F:1000 0:0 0A"] {
            assert_eq!(listener(other), None, "{other}");
        }
    }

    #[test]
    fn some_addresses_cover_others() {
        let cases = [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "10.0.0.1:80", false),
            ("0.0.0.0:80", "10.0.0.1:80", true),
            ("10.0.0.1:80", "0.0.0.0:80", true),
            ("[::]:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
        ];
        for (local, wanted, hinders_it) in cases {
            let found = hinders(local.parse().unwrap(), wanted.parse().unwrap());
            assert_eq!(found, hinders_it, "{local} {wanted}");
        }
    }
}
