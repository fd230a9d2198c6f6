//! Files, signals, sockets with a path, streams and limits on Linux and macOS. `windows.rs` has the same functions.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown,
};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use afresh_core::install::Manager;
use nix::libc::O_NONBLOCK;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::socket::Backlog;
use nix::sys::statvfs::statvfs;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{AccessFlags, Uid, access, setsid};
use tokio::net::unix::pipe;
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::launchers::{LauncherEnds, Launchers};
use super::{FileKind, ProcessLimit, SignalRequest};

/// The variable that names the user's folder.
pub const HOME_VARIABLE: &str = "HOME";

/// Whether `npx` is a script, which many clients cannot start by themselves.
pub const HAS_SCRIPT_RUNNERS: bool = false;

/// Whether a variable of the environment has this name.
pub fn is_variable(key: &OsStr, name: &str) -> bool {
    key == name
}

/// Our end of a pipe that an instance writes to.
pub(crate) type PipeReader = pipe::Receiver;

/// Our end of a pipe that an instance reads from.
pub(crate) type PipeWriter = pipe::Sender;

/// Leaves a pipe alone for a while. The kernel is not to tell us meanwhile what comes in: it would wake us up for
/// each piece of it.
pub(crate) async fn leave_alone(pipe: PipeReader, time: Duration) -> io::Result<PipeReader> {
    let quiet = pipe.into_nonblocking_fd()?;
    tokio::time::sleep(time).await;
    PipeReader::from_owned_fd_unchecked(quiet)
}

/// The signals of users and terminals.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
    user: Signal,
    launchers: LauncherEnds,
}

impl Signals {
    /// Under `nohup` the end of the terminal is nothing to us.
    pub(crate) fn listen() -> io::Result<Self> {
        let hears_hangup = !super::dispositions::ignores_hangup();
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: hears_hangup.then(|| signal(SignalKind::hangup())).transpose()?,
            user: signal(SignalKind::user_defined1())?,
            launchers: LauncherEnds::default(),
        })
    }

    /// The end of one of these asks us to stop, too.
    pub(crate) fn end_with(&mut self, launchers: Launchers) -> io::Result<()> {
        self.launchers = LauncherEnds::new(launchers)?;
        Ok(())
    }

    /// The next one. Cancel safe.
    pub(crate) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.interrupt.recv() => SignalRequest::Interrupt,
            _ = self.terminate.recv() => SignalRequest::Stop("SIGTERM"),
            () = heard(self.hangup.as_mut()) => SignalRequest::Stop("SIGHUP"),
            _ = self.user.recv() => SignalRequest::Restart("SIGUSR1"),
            () = self.launchers.next() => SignalRequest::Stop("the launcher's end"),
        }
    }
}

async fn heard(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Our stdout, without the buffer that the standard library puts in front of it.
pub(crate) fn stdout() -> io::Result<File> {
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

/// Our stderr.
pub(crate) fn stderr() -> io::Result<File> {
    Ok(io::stderr().as_fd().try_clone_to_owned()?.into())
}

/// Waits until there is something to read on our stdin, be it its end.
pub(crate) fn wait_for_stdin() {
    let stdin = io::stdin();
    // An error shows in the next read.
    poll(&mut [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE).ok();
}

/// Writes what fits now, and waits for nothing.
pub(crate) fn write_now(pipe: &PipeWriter, bytes: &[u8]) -> io::Result<usize> {
    // Pipes of instances do not block.
    Ok(nix::unistd::write(pipe, bytes)?)
}

/// Our stdout, to see whether its reader is gone.
pub(crate) struct Sink(OwnedFd);

impl Sink {
    /// None where it is closed.
    pub(crate) fn stdout() -> Option<Self> {
        io::stdout().as_fd().try_clone_to_owned().ok().map(Self)
    }

    /// Whether the reader is gone: the kernel says so without being asked for an event.
    pub(crate) fn is_closed(&self) -> bool {
        let mut polled = [PollFd::new(self.as_fd(), PollFlags::empty())];
        poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Sink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A file independent of its name: its device and number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId(u64, u64);

impl FileId {
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        Ok(Self::in_metadata(&file.metadata()?))
    }

    fn in_metadata(metadata: &Metadata) -> Self {
        Self(metadata.dev(), metadata.ino())
    }
}

/// Whether a path leads to a file.
pub(crate) fn is_at_path(file: &File, path: &Path) -> bool {
    let named = fs::metadata(path).map(|metadata| FileId::in_metadata(&metadata));
    FileId::of(file).is_ok_and(|id| named.is_ok_and(|named| id == named))
}

/// The kind of an open file.
pub(crate) fn file_kind(file: &File) -> io::Result<FileKind> {
    let kind = file.metadata()?.file_type();
    Ok(match () {
        () if kind.is_file() => FileKind::Regular,
        () if kind.is_fifo() => FileKind::Fifo,
        () if kind.is_char_device() => FileKind::CharacterDevice,
        () => FileKind::Other,
    })
}

/// Opens a file to read from it; a FIFO without a writer does not hang us.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)
}

/// Opens a file to append to and read from, which is made if need be, for this user alone; a FIFO
/// without a reader does not hang us.
pub(crate) fn open_to_append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600).custom_flags(O_NONBLOCK).open(path)
}

/// Makes a file that was not there, for this user alone.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Random bytes, for secrets.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Cuts a file that was opened to append.
pub(crate) fn cut(file: &File, len: u64) -> io::Result<()> {
    file.set_len(len)
}

/// Reads from a place in a file.
pub(crate) fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(bytes, offset)
}

/// Folders that are made by it are this user's alone.
pub(crate) fn make_private(builder: &mut DirBuilder) {
    builder.mode(0o700);
}

/// The number of our user, where the system has one.
pub(crate) fn own_uid() -> Option<u32> {
    Some(Uid::effective().as_raw())
}

/// Whether this user owns it.
pub(crate) fn is_ours(metadata: &Metadata) -> bool {
    metadata.uid() == Uid::effective().as_raw()
}

/// Whether this user owns it, or the administrator of the system.
pub(crate) fn is_ours_or_systems(metadata: &Metadata) -> bool {
    is_ours(metadata) || metadata.uid() == 0
}

/// The defect of a folder that should be this user's alone.
pub(crate) fn not_ours_alone(metadata: &Metadata) -> Option<&'static str> {
    if !is_ours(metadata) {
        return Some("belongs to another user");
    }
    (metadata.permissions().mode() & 0o077 != 0).then_some("is open to other users")
}

/// Whether other users can read a file.
pub fn is_readable_by_others(metadata: &Metadata) -> bool {
    metadata.permissions().mode() & 0o044 != 0
}

/// Gives a file the owner and the group of another one: root may edit what is a user's.
pub(crate) fn keep_owner(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) == (old.uid(), old.gid()) {
        return Ok(());
    }
    fchown(file, Some(old.uid()), Some(old.gid()))
}

/// The folder of the user's settings for graphical programs.
pub(crate) fn settings_folder(home: &Path, variable: &dyn Fn(&str) -> Option<PathBuf>) -> PathBuf {
    match cfg!(target_os = "macos") {
        true => home.join("Library/Application Support"),
        false => variable("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
    }
}

/// Whether every user can create files in a folder, but not remove those of others, as in `/tmp`.
pub(crate) fn is_open_to_all(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|metadata| metadata.permissions().mode() & 0o1002 == 0o1002)
}

/// Whether a file can be written, or files be made in a folder.
pub(crate) fn can_write(path: &Path) -> io::Result<()> {
    let enter = if path.is_dir() { AccessFlags::X_OK } else { AccessFlags::empty() };
    Ok(access(path, AccessFlags::W_OK | enter)?)
}

/// How many connections to a port may wait to be accepted.
pub(crate) fn set_backlog(listener: &TcpListener, waiting_max: i32) -> io::Result<()> {
    // More than the system allows is cut to that.
    let backlog = Backlog::new(waiting_max).unwrap_or(Backlog::MAXCONN);
    Ok(nix::sys::socket::listen(listener, backlog)?)
}

/// A folder for this user beside those of other users.
pub(crate) fn own_temporary_folder() -> PathBuf {
    std::env::temp_dir().join(format!("afresh-{}", Uid::effective()))
}

/// The program of this name in a folder, if it may be run.
pub fn program_in(folder: &Path, name: &str) -> Option<PathBuf> {
    let path = folder.join(name);
    (path.is_file() && access(&path, AccessFlags::X_OK).is_ok()).then_some(path)
}

/// The free bytes of a disk for this user.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let found = statvfs(path).ok()?;
    // Their width differs between systems.
    #[expect(clippy::useless_conversion, reason = "not useless on every system")]
    let (blocks, size): (u64, u64) =
        (found.blocks_available().into(), found.fragment_size().into());
    Some(blocks.saturating_mul(size))
}

/// The limit of open files; `None` where there is no such limit.
pub(crate) fn open_files_limit() -> Option<io::Result<ProcessLimit>> {
    Some(limit(Resource::RLIMIT_NOFILE))
}

/// Whether a file that was just opened is one of the last so many that this process may open. The kernel gives the lowest
/// number that is free, so all below it are in use.
pub(crate) fn is_kept_back(file: &impl AsFd, kept: u64) -> bool {
    let number = u64::try_from(file.as_fd().as_raw_fd()).unwrap_or(0);
    getrlimit(Resource::RLIMIT_NOFILE).is_ok_and(|(now, _)| number >= now.saturating_sub(kept))
}

/// The error of a file that is kept back.
pub(crate) fn too_many_files() -> io::Error {
    nix::errno::Errno::EMFILE.into()
}

pub(super) fn limit(resource: Resource) -> io::Result<ProcessLimit> {
    let (now, at_most) = getrlimit(resource)?;
    let finite = |limit: u64| Some(limit).filter(|limit| *limit != RLIM_INFINITY);
    Ok(ProcessLimit { now: finite(now), at_most: finite(at_most) })
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned()
}

/// The manager of programs that start with the machine, and the number of this user.
pub(crate) fn manager() -> Option<(Manager, u32)> {
    let user = Uid::effective().as_raw();
    let manager = if cfg!(target_os = "macos") { Manager::Launchd } else { Manager::Systemd };
    Some((manager, user))
}

/// The clock that systemd goes by.
pub(crate) fn monotonic_micros() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
    now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
}

/// The command that shows a notification on the desktop; none where there is no such command. Both texts
/// are arguments: no shell and no script reads them.
pub(crate) fn notification(title: &str, text: &str) -> Option<Vec<OsString>> {
    // The body may have markup there, of which this must be none.
    let body = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let words = match cfg!(target_os = "macos") {
        true => {
            let show = "display notification (item 2 of argv) with title (item 1 of argv)";
            vec!["osascript", "-e", "on run argv", "-e", show, "-e", "end run", title, text]
        }
        false => vec!["notify-send", "--app-name=afresh", "--", title, &body],
    };
    Some(words.into_iter().map(OsString::from).collect())
}

/// Starts `command` in a process group of its own: a signal to ours does not reach it.
pub fn detach(command: &mut Command) {
    command.process_group(0);
}

/// Puts this process into a session of its own.
pub fn leave_session() -> io::Result<()> {
    setsid()?;
    Ok(())
}

/// One end of a connection.
pub(crate) type SocketStream = UnixStream;

/// The longest path of a socket: 108 bytes on Linux and 104 on macOS, the last of them zero.
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// A socket that others connect to. Its file goes with it.
#[derive(Debug)]
pub(crate) struct SocketListener {
    listener: UnixListener,
    path: PathBuf,
}

impl SocketListener {
    /// Makes it, for this user alone. It has its name only when it listens: a client that cannot
    /// connect to a name may remove it.
    pub(crate) fn bind(path: &Path, unnamed: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(unnamed)?;
        let named = fs::set_permissions(unnamed, fs::Permissions::from_mode(0o600))
            .and_then(|()| fs::rename(unnamed, path));
        if let Err(error) = named {
            fs::remove_file(unnamed).ok();
            return Err(error);
        }
        Ok(Self { listener, path: path.to_owned() })
    }

    /// The next connection. Cancel safe.
    pub(crate) async fn accept(&self) -> io::Result<SocketStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

impl Drop for SocketListener {
    fn drop(&mut self) {
        // It may be removed already.
        fs::remove_file(&self.path).ok();
    }
}

/// Whether it is a socket.
pub(crate) fn is_socket(metadata: &Metadata) -> bool {
    metadata.file_type().is_socket()
}

/// Whether a process listens on the socket at a path. One that we may not connect to counts as one that does.
pub(crate) fn has_listener(path: &Path) -> bool {
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => true,
        Err(error) => error.kind() != io::ErrorKind::ConnectionRefused,
    }
}

/// Connects to the socket at a path.
pub(crate) async fn connect(path: &Path) -> io::Result<SocketStream> {
    UnixStream::connect(path).await
}

/// Whether the other end is a process of this user, as the kernel says.
pub(crate) fn is_own_peer(stream: &SocketStream) -> bool {
    peer_of(stream).is_some_and(|(uid, _)| uid == Uid::effective().as_raw())
}

/// The user and the process on the other end, as the kernel says.
pub(crate) fn peer_of(stream: &SocketStream) -> Option<(u32, Option<u32>)> {
    let peer = stream.peer_cred().ok()?;
    Some((peer.uid(), peer.pid().and_then(|pid| u32::try_from(pid).ok())))
}

/// The folders for sockets of this user, best first.
///
/// The temporary folder of macOS belongs to the user and is the same in every terminal. Elsewhere
/// `TMPDIR` may differ from one terminal to the next, so `/tmp` it is.
pub(crate) fn runtime_folders(xdg_runtime_dir: Option<&Path>) -> Vec<PathBuf> {
    let own = format!("afresh-{}", Uid::effective());
    let shared =
        if cfg!(target_os = "macos") { std::env::temp_dir() } else { PathBuf::from("/tmp") };
    let of_session = xdg_runtime_dir.map(|folder| folder.join("afresh"));
    of_session.into_iter().chain([shared.join(own)]).collect()
}

/// The socket on which systemd listens to the programs that it has started.
pub(crate) struct NotifySocket {
    socket: UnixDatagram,
    place: SocketAddr,
}

impl NotifySocket {
    /// A path, or an `@` and the name of an abstract socket.
    pub(crate) fn open(place: &OsStr) -> io::Result<Self> {
        let place = match place.as_bytes() {
            [b'@', name @ ..] if !name.is_empty() => abstract_address(name)?,
            [b'/', ..] => SocketAddr::from_pathname(place)?,
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, place })
    }

    /// Says it, or fails at once.
    pub(crate) fn send(&self, words: &[u8]) -> io::Result<()> {
        self.socket.send_to_addr(words, &self.place).map(drop)
    }
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_name: &[u8]) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}
