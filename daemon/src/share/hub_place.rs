//! Owns where shims find the hub of their user and workspace: its socket and its lock, in afresh's private runtime folder.
//! Used by both. The lock says who is the hub: it is free as soon as the kernel has ended its holder.

use std::fs::TryLockError;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::SHARE_HUB_COMMAND;
use crate::control::RuntimeFolders;
use crate::os::{self, SOCKET_PATH_BYTES_MAX, SocketListener};
use crate::process::own_executable;
use crate::store::digest::sha256;

/// The socket, the lock and the log of a hub.
#[derive(Clone, Debug)]
pub struct HubPlace {
    socket: PathBuf,
}

impl HubPlace {
    /// That of a workspace; none where there is no folder for it.
    pub fn of(folders: &RuntimeFolders, workspace: &Path) -> Option<Self> {
        let digest = sha256(workspace.as_os_str().as_encoded_bytes());
        let folder = folders.private_folder()?;
        let socket = folder.join(format!("share-{}.hub", &digest[..16]));
        // With room for the number of the process in front of it, while it has no name yet.
        (socket.as_os_str().len() + 12 <= SOCKET_PATH_BYTES_MAX).then_some(Self { socket })
    }

    /// That of this socket, as the hub is told.
    pub fn at(socket: PathBuf) -> Self {
        Self { socket }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Where the hub writes its log.
    pub(super) fn log_file(&self) -> PathBuf {
        self.socket.with_extension("log")
    }

    /// Starts a hub where none holds the lock. It inherits the lock as its stdout: there is no moment in which a second hub
    /// could be started.
    pub(super) fn start_hub(&self) -> io::Result<Option<Child>> {
        let lock = os::open_to_append(&self.socket.with_extension("lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let mut command = Command::new(own_executable()?);
        os::set_own_name(&mut command);
        command.arg(SHARE_HUB_COMMAND).arg(&self.socket);
        command.stdin(Stdio::null()).stdout(lock).stderr(Stdio::null());
        command.spawn().map(Some)
    }

    /// Listens; a socket that a killed hub has left gives way. Only the holder of the lock comes here.
    pub(super) fn listen(&self) -> io::Result<SocketListener> {
        let unnamed = self.socket.with_extension(format!("{}", std::process::id()));
        SocketListener::bind(&self.socket, &unnamed)
    }

    /// Whether this process holds the lock, by its stdout.
    pub(super) fn is_held(&self) -> bool {
        let lock = self.socket.with_extension("lock");
        os::stdout().is_ok_and(|stdout| os::is_at_path(&stdout, &lock))
    }
}
