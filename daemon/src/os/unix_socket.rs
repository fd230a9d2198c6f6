//! Sockets with a path, for Linux and macOS.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

use nix::unistd::Uid;
use tokio::net::{UnixListener, UnixStream};

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

/// Connects to the socket at a path.
pub(crate) async fn connect(path: &Path) -> io::Result<SocketStream> {
    UnixStream::connect(path).await
}

/// Whether the other end is a process of this user, as the kernel says.
pub(crate) fn is_own_peer(stream: &SocketStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == Uid::effective().as_raw())
}

/// The folders for sockets of this user, best first.
///
/// The temporary folder of macOS belongs to the user and is the same in every terminal. Elsewhere
/// `TMPDIR` may differ from one terminal to the next, so `/tmp` it is.
pub(crate) fn runtime_folders(xdg_runtime_dir: Option<&Path>) -> Vec<PathBuf> {
    let own = format!("afresh-{}", Uid::effective());
    let shared =
        if cfg!(target_os = "macos") { std::env::temp_dir() } else { PathBuf::from("/tmp") };
    xdg_runtime_dir
        .map(|folder| folder.join("afresh"))
        .into_iter()
        .chain([shared.join(own)])
        .collect()
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
