//! Windows: the same functions as `unix.rs` and `job_control.rs`. It compiles, and has not been run yet. There are no
//! sockets with a path yet: named pipes will take their place. There is no job control.

#![expect(unsafe_code, reason = "std does not give all of it")]

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, IsTerminal};
use std::net::TcpListener;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::os::windows::io::{AsHandle, AsRawHandle, FromRawHandle};
use std::os::windows::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;
use std::task::{Context, Poll};
use std::time::Duration;

use afresh_core::install::Manager;
use afresh_core::launchers::StartedBy;
use tokio::net::windows::named_pipe::NamedPipeServer;
use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown,
};
use windows_sys::Win32::Foundation::{INVALID_HANDLE_VALUE, WAIT_OBJECT_0};
use windows_sys::Win32::Security::Cryptography::{
    BCRYPT_USE_SYSTEM_PREFERRED_RNG, BCryptGenRandom,
};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_ADD_FILE, FILE_FLAG_BACKUP_SEMANTICS, FILE_SHARE_DELETE,
    FILE_SHARE_READ, FILE_SHARE_WRITE, FILE_TYPE_CHAR, FILE_TYPE_DISK, FILE_TYPE_PIPE,
    FILE_WRITE_DATA, GetDiskFreeSpaceExW, GetFileInformationByHandle, GetFileType, ReOpenFile,
};
use windows_sys::Win32::System::Console::{GetStdHandle, STD_INPUT_HANDLE};
use windows_sys::Win32::System::Threading::{
    CREATE_NEW_PROCESS_GROUP, INFINITE, WaitForSingleObject,
};

use super::{
    FileKind, FolderOwner, Interest, Job, Keys, LastLink, PollResult, ProcessLimit, SignalRequest,
    Stopped,
};
use crate::stream::{Completion, Pipe, StreamReader, StreamWriter};

/// The variable that names the user's folder.
pub const HOME_VARIABLE: &str = "USERPROFILE";

/// Whether `npx` is a script, which many clients cannot start by themselves.
pub const HAS_SCRIPT_RUNNERS: bool = true;

/// Whether a variable of the environment has this name: `PATH` is usually called `Path` here.
pub fn is_variable(key: &OsStr, name: &str) -> bool {
    key.eq_ignore_ascii_case(name)
}

/// Our end of a pipe that an instance writes to.
pub(crate) type PipeReader = NamedPipeServer;

/// Our end of a pipe that an instance reads from.
pub(crate) type PipeWriter = NamedPipeServer;

/// Leaves a pipe alone for a while. The system wakes only readers here.
pub(crate) async fn leave_alone(pipe: PipeReader, time: Duration) -> io::Result<PipeReader> {
    tokio::time::sleep(time).await;
    Ok(pipe)
}

/// The signals of the console and the system.
pub(crate) struct Signals {
    interrupt: CtrlC,
    interrupt_hard: CtrlBreak,
    close: CtrlClose,
    shutdown: CtrlShutdown,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: ctrl_c()?,
            interrupt_hard: ctrl_break()?,
            close: ctrl_close()?,
            shutdown: ctrl_shutdown()?,
        })
    }

    /// Nothing to do: the launcher of the npm package has us in its job object, as Node has all that it starts.
    pub(crate) fn end_with(&mut self, _launchers: Launchers) -> io::Result<()> {
        Ok(())
    }

    /// The next wish. Cancel safe.
    pub(crate) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.interrupt.recv() => SignalRequest::Interrupt,
            _ = self.interrupt_hard.recv() => SignalRequest::Stop("the console"),
            _ = self.close.recv() => SignalRequest::Stop("the console"),
            _ = self.shutdown.recv() => SignalRequest::Stop("the console"),
        }
    }
}

/// See [`Signals::end_with`].
pub(crate) struct Launchers;

impl Launchers {
    pub(crate) fn find(_started_by: StartedBy) -> Self {
        Self
    }
}

/// Our stdout, without the buffer that the standard library puts in front of it.
pub(crate) fn stdout() -> io::Result<File> {
    Ok(io::stdout().as_handle().try_clone_to_owned()?.into())
}

/// Our stderr.
pub(crate) fn stderr() -> io::Result<File> {
    Ok(io::stderr().as_handle().try_clone_to_owned()?.into())
}

/// Only a thread can wait for our stdin here.
pub(crate) fn own_stdin() -> Option<StreamReader> {
    None
}

/// Only a thread can wait for our stdout here.
pub(crate) fn own_stdout() -> Option<(StreamWriter, Completion)> {
    None
}

impl Pipe for NamedPipeServer {}

/// The allocator of the system decides here.
pub(crate) fn keep_freed_memory() {}

/// Reads block here: there is nothing to wait for.
pub(crate) fn wait_for_stdin() {}

/// Writes what fits now, and waits for nothing.
pub(crate) fn write_now(pipe: &PipeWriter, bytes: &[u8]) -> io::Result<usize> {
    pipe.try_write(bytes)
}

/// Our stdout. Only a write shows that the reader of a pipe is gone.
pub(crate) struct Sink;

impl Sink {
    pub(crate) fn stdout() -> Option<Self> {
        Some(Self)
    }

    pub(crate) fn is_closed(&self) -> bool {
        false
    }
}

/// A file independent of its name: its volume and number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId(u32, u64);

impl FileId {
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let mut found = BY_HANDLE_FILE_INFORMATION::default();
        // SAFETY: the handle is open as long as `file` is there; only `found` is written.
        if unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut found) } == 0 {
            return Err(io::Error::last_os_error());
        }
        let (high, low) = (u64::from(found.nFileIndexHigh), u64::from(found.nFileIndexLow));
        Ok(Self(found.dwVolumeSerialNumber, high << 32 | low))
    }
}

/// Whether a path leads to a file.
pub(crate) fn is_at_path(file: &File, path: &Path) -> bool {
    let named = File::open(path).and_then(|named| FileId::of(&named));
    FileId::of(file).is_ok_and(|id| named.is_ok_and(|named| id == named))
}

/// The kind of an open file.
pub(crate) fn file_kind(file: &File) -> io::Result<FileKind> {
    // SAFETY: the handle is open as long as `file` is there.
    Ok(match unsafe { GetFileType(file.as_raw_handle()) } {
        FILE_TYPE_DISK => FileKind::Regular,
        FILE_TYPE_CHAR => FileKind::CharacterDevice,
        FILE_TYPE_PIPE => FileKind::Fifo,
        _ => FileKind::Other,
    })
}

/// Opens a file to read from it.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Opens a file to append to and read from, which is made if need be.
pub(crate) fn open_to_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).open(path)
}

/// Makes a file that was not there. The user's folders are the user's alone here.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// A folder, by its path.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Links on the way to it are followed.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if fs::metadata(path)?.is_dir() {
            return Ok(Self(path.to_owned()));
        }
        Err(io::ErrorKind::NotADirectory.into())
    }

    /// A folder beneath this one. A link or junction on the way, or a way out of it, is an error.
    pub(crate) fn enter(&self, rest: &Path) -> io::Result<Self> {
        let mut path = self.0.clone();
        for part in rest.components() {
            match part {
                Component::Normal(name) => path.push(name),
                Component::CurDir => continue,
                _ => return Err(io::ErrorKind::InvalidInput.into()),
            }
            if !fs::symlink_metadata(&path)?.is_dir() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
        }
        Ok(Self(path))
    }

    /// Makes a folder in this one. One that is there is left as it is.
    pub(crate) fn make(&self, name: &OsStr) -> io::Result<()> {
        match fs::create_dir(self.0.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// Opens a file to append to and read from, which is made if need be.
    pub(crate) fn open_to_append(&self, name: &OsStr, link: LastLink) -> io::Result<File> {
        let path = self.0.join(name);
        if link == LastLink::Refused && path.is_symlink() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        open_to_append(&path)
    }

    /// Makes a file that was not there. The user's folders are the user's alone here.
    pub(crate) fn create_private(&self, name: &OsStr) -> io::Result<File> {
        create_private(&self.0.join(name))
    }

    /// Makes a file that was not there.
    pub(crate) fn create(&self, name: &OsStr) -> io::Result<File> {
        File::create_new(self.0.join(name))
    }

    /// Gives an entry of this folder another name in it; what had that name is replaced.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    /// Removes a file. Of a link, the link itself.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    /// Whether anything has this name here, be it a link to nothing.
    pub(crate) fn has(&self, name: &OsStr) -> bool {
        fs::symlink_metadata(self.0.join(name)).is_ok()
    }

    /// The file system keeps a journal of its names by itself.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// See [`make_private`].
    pub(crate) fn claim(&self) -> io::Result<FolderOwner> {
        Ok(FolderOwner::We)
    }
}

/// Nothing is restricted: to make a link takes rights here that a clone does not have.
#[expect(clippy::unnecessary_wraps, reason = "it can fail elsewhere")]
pub(crate) fn restrict_sqlite() -> io::Result<()> {
    Ok(())
}

/// Random bytes, for secrets.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let count = u32::try_from(N).map_err(io::Error::other)?;
    let (none, best) = (null_mut(), BCRYPT_USE_SYSTEM_PREFERRED_RNG);
    // SAFETY: exactly `count` bytes are written, into an array of that length that outlives the call.
    let status = unsafe { BCryptGenRandom(none, bytes.as_mut_ptr(), count, best) };
    match status {
        0 => Ok(bytes),
        status => Err(io::Error::other(format!("no random bytes: status {status}"))),
    }
}

/// Cuts a file that was opened to append, and so has not the right to it.
pub(crate) fn cut(file: &File, len: u64) -> io::Result<()> {
    let share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    // SAFETY: the handle is open as long as `file` is there.
    let handle = unsafe { ReOpenFile(file.as_raw_handle(), FILE_WRITE_DATA, share, 0) };
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle was just made, and is owned here.
    unsafe { File::from_raw_handle(handle) }.set_len(len)
}

/// Reads from a place in a file.
pub(crate) fn read_exact_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.seek_read(bytes, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => {
                bytes = &mut bytes[length..];
                offset += length as u64;
            }
        }
    }
    Ok(())
}

/// Rights come from the folder above: those of the user's own folders are the user's alone.
pub(crate) fn make_private(_builder: &mut DirBuilder) {}

/// See [`make_private`].
pub(crate) fn is_ours(_metadata: &Metadata) -> bool {
    true
}

/// The system decides.
pub(crate) fn set_backlog(_listener: &TcpListener, _waiting_max: i32) -> io::Result<()> {
    Ok(())
}

/// See [`make_private`].
pub(crate) fn is_ours_or_systems(_metadata: &Metadata) -> bool {
    true
}

/// See [`make_private`].
pub(crate) fn not_ours_alone(_metadata: &Metadata) -> Option<&'static str> {
    None
}

/// See [`make_private`].
pub fn is_readable_by_others(_metadata: &Metadata) -> bool {
    false
}

/// Each user has a temporary folder here: none is shared by all.
pub(crate) fn is_open_to_all(_folder: &Path) -> bool {
    false
}

/// Whether a file can be written, or files be made in a folder.
pub(crate) fn can_write(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    if path.is_dir() {
        options.access_mode(FILE_ADD_FILE).custom_flags(FILE_FLAG_BACKUP_SEMANTICS);
    } else {
        options.append(true);
    }
    options.open(path).map(drop)
}

/// A file is its folder's: there is nothing to give it.
pub(crate) fn keep_owner(_file: &File, _old: &Metadata) -> io::Result<()> {
    Ok(())
}

/// The folder of the user's settings for graphical programs.
pub(crate) fn settings_folder(home: &Path, variable: &dyn Fn(&str) -> Option<PathBuf>) -> PathBuf {
    variable("APPDATA").unwrap_or_else(|| home.join("AppData/Roaming"))
}

/// A folder in the user's temporary one.
pub(crate) fn own_temporary_folder() -> PathBuf {
    std::env::temp_dir().join("afresh")
}

/// The program of this name in a folder.
pub fn program_in(folder: &Path, name: &str) -> Option<PathBuf> {
    let files = ["exe", "cmd", "bat"].map(|kind| folder.join(format!("{name}.{kind}")));
    files.into_iter().find(|path| path.is_file())
}

/// The free bytes of a disk for this user.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let path: Vec<u16> = path.as_os_str().encode_wide().chain([0]).collect();
    let mut free = 0;
    // SAFETY: the path ends with a zero; only `free` is written.
    let found =
        unsafe { GetDiskFreeSpaceExW(path.as_ptr(), &raw mut free, null_mut(), null_mut()) };
    (found != 0).then_some(free)
}

/// There is no such limit.
pub(crate) fn open_files_limit() -> Option<io::Result<ProcessLimit>> {
    None
}

/// There is no such limit.
pub(crate) fn is_kept_back<T>(_: &T, _: u64) -> bool {
    false
}

/// The error of a file that is kept back.
pub(crate) fn too_many_files() -> io::Error {
    io::ErrorKind::QuotaExceeded.into()
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

/// The manager of programs that start with the machine: none is supported yet.
pub(crate) fn manager() -> Option<(Manager, u32)> {
    None
}

/// The clock that systemd goes by, which is not here.
pub(crate) fn monotonic_micros() -> u64 {
    0
}

/// The command that shows a notification on the desktop: there is none here yet.
pub(crate) fn notification(_title: &str, _text: &str) -> Option<Vec<OsString>> {
    None
}

/// Starts `command` in a process group of its own: what is sent to ours does not reach it.
pub fn detach(command: &mut Command) {
    command.creation_flags(CREATE_NEW_PROCESS_GROUP);
}

/// There are no sessions to leave.
pub fn leave_session() -> io::Result<()> {
    Ok(())
}

/// Shims need sockets with a path, of which there are none yet: servers run unshared.
pub(crate) struct PolledStream;

impl PolledStream {
    pub(crate) fn ends_of(_launchers: Launchers) -> Option<Vec<Self>> {
        Some(Vec::new())
    }

    pub(crate) fn own_stdin() -> io::Result<Self> {
        Err(unsupported())
    }

    pub(crate) fn own_stdout() -> io::Result<Self> {
        Err(unsupported())
    }

    pub(crate) fn connect(_path: &Path) -> io::Result<Self> {
        Err(unsupported())
    }

    pub(crate) fn read(&self, _buffer: &mut [u8]) -> io::Result<usize> {
        Err(unsupported())
    }

    pub(crate) fn write(&self, _bytes: &[u8]) -> io::Result<usize> {
        Err(unsupported())
    }
}

pub(crate) fn poll_streams<const COUNT: usize>(
    _streams: [Option<(&PolledStream, Interest)>; COUNT],
    _ends: &[PolledStream],
    _wait: Option<Duration>,
) -> io::Result<Option<PollResult<COUNT>>> {
    Err(unsupported())
}

pub(crate) fn become_afresh(_executable: &Path, _arguments: &[OsString]) -> io::Error {
    unsupported()
}

/// A process is called after its program here.
pub(crate) fn set_own_name(_command: &mut Command) {}

/// The reading end of a connection.
pub(crate) struct SocketReader;

impl SocketReader {
    pub(crate) fn poll_read(
        &mut self,
        _context: &mut Context<'_>,
        _buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(unsupported()))
    }

    pub(crate) async fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
        Err(unsupported())
    }
}

/// The writing end of a connection.
pub(crate) struct SocketWriter;

impl SocketWriter {
    pub(crate) fn try_write(&self, _bytes: &[u8]) -> io::Result<usize> {
        Err(unsupported())
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        Err(unsupported())
    }
}

pub(crate) fn halves(_stream: SocketStream) -> io::Result<(SocketReader, SocketWriter)> {
    Err(unsupported())
}

/// The system takes back what is not used.
pub(crate) fn settle_memory() {}

/// One end of a connection.
pub(crate) type SocketStream = tokio::io::DuplexStream;

/// The longest path of a socket.
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A socket that others connect to.
#[derive(Debug)]
pub(crate) struct SocketListener;

impl SocketListener {
    pub(crate) fn bind(_path: &Path, _unnamed: &Path) -> io::Result<Self> {
        Err(unsupported())
    }

    pub(crate) async fn accept(&self) -> io::Result<SocketStream> {
        std::future::pending().await
    }
}

pub(crate) fn is_socket(_metadata: &Metadata) -> bool {
    false
}

pub(crate) fn has_listener(_path: &Path) -> bool {
    false
}

pub(crate) async fn connect(_path: &Path) -> io::Result<SocketStream> {
    Err(unsupported())
}

pub(crate) fn is_own_peer(_stream: &SocketStream) -> bool {
    false
}

/// Users have no number here.
pub(crate) fn own_uid() -> Option<u32> {
    None
}

pub(crate) fn peer_of(_stream: &SocketStream) -> Option<(u32, Option<u32>)> {
    None
}

pub(crate) fn runtime_folders(_xdg_runtime_dir: Option<&Path>) -> Vec<PathBuf> {
    Vec::new()
}

/// The socket of systemd, of which there is none here.
pub(crate) struct NotifySocket;

impl NotifySocket {
    pub(crate) fn open(_place: &OsStr) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn send(&self, _words: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "control sockets are not there on Windows yet")
}

/// Hears nothing.
pub(crate) struct Jobs;

impl Jobs {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) async fn next(&mut self) -> Job {
        std::future::pending().await
    }
}

/// No shell could continue us.
pub fn suspend(_stopped: Stopped) -> io::Result<()> {
    Ok(())
}

/// Whether there is a terminal.
pub fn is_in_front() -> bool {
    io::stdin().is_terminal()
}

/// Waits until something happened on the console, however long that takes: nothing there is undecided.
pub fn next_keys(_wait_max: Option<Duration>) -> Keys {
    // SAFETY: the handle is that of our stdin, and stays open.
    #[expect(unsafe_code, reason = "the standard library cannot wait without reading")]
    let waited = unsafe { WaitForSingleObject(GetStdHandle(STD_INPUT_HANDLE), INFINITE) };
    if waited == WAIT_OBJECT_0 { Keys::Console } else { Keys::Gone }
}
