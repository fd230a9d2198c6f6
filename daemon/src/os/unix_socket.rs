//! Sockets with a path, for Linux and macOS.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
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
    /// Makes it, for this user alone. It has its name only when it listens: whoever cannot connect to
    /// a name may remove it.
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
        // Somebody may have removed it already.
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

/// Where sockets of this user may be, best first.
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
