//! Sockets with a path, for Windows: there are none yet. Named pipes will take their place.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

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

pub(crate) async fn connect(_path: &Path) -> io::Result<SocketStream> {
    Err(unsupported())
}

pub(crate) fn is_own_peer(_stream: &SocketStream) -> bool {
    false
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
