//! Owns the supervisor's connection to its warden: starts the process, and knows when it was lost. Driven by
//! `Processes`. Never waits for the warden.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command as StdCommand, Stdio as Null};

use afresh_core::limits::WARDEN_LIFE_MIN;
use nix::unistd::Pid;
use tokio::time::Instant;

use super::frames::WardenOrder;
use super::handover_out::Handover;
use super::socket_task::{Peer, SocketTasks};
use super::wire::FrameReader;

/// The connection to the warden; there is none after it was killed.
pub(super) struct WardenLink {
    exe: PathBuf,
    warden: Option<Warden>,
}

struct Warden {
    pid: Pid,
    peer: Peer,
    since: Instant,
    /// Another supervisor started it: it is no child of this process.
    is_foreign: bool,
}

/// A warden that was killed.
pub(super) struct LostWarden {
    /// Its process, where it is a child of this one and has to be reaped.
    pub(super) child: Option<Pid>,
    /// It lived so shortly that the next one waits until it is needed.
    pub(super) was_short_lived: bool,
}

impl WardenLink {
    pub(super) const fn new(exe: PathBuf) -> Self {
        Self { exe, warden: None }
    }

    pub(super) fn exe(&self) -> &Path {
        &self.exe
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        self.warden.as_ref().map(|warden| warden.pid)
    }

    pub(super) const fn is_connected(&self) -> bool {
        self.warden.is_some()
    }

    /// Starts a warden, and tells it to outlive this process where services do.
    pub(super) fn start(
        &mut self,
        sockets: &mut SocketTasks,
        handover: Option<&Handover>,
    ) -> io::Result<()> {
        let (ours, theirs) = StdStream::pair()?;
        let mut command = StdCommand::new(&self.exe);
        command.arg0("afresh").arg(super::WARDEN_COMMAND).env_clear().current_dir("/");
        // Its end of our stderr would keep the reader of ours waiting.
        command.stdin(OwnedFd::from(theirs)).stdout(Null::null()).stderr(Null::null());
        if let Some(handover) = handover {
            // Inherited at once: there is no moment in which the lock is free.
            command.stdout(handover.lock()?);
        }
        let child = command.spawn()?;
        let pid = Pid::from_raw(child.id().cast_signed());
        let peer = sockets.open_warden(pid, ours, FrameReader::default())?;
        if let Some((order, listener)) = handover.map(Handover::keep_order).transpose()?.flatten() {
            peer.send(&order, vec![listener]);
        }
        self.warden = Some(Warden { pid, peer, since: Instant::now(), is_foreign: false });
        Ok(())
    }

    /// Takes over the warden of another supervisor.
    pub(super) fn adopt(&mut self, pid: Pid, peer: Peer) {
        self.warden = Some(Warden { pid, peer, since: Instant::now(), is_foreign: true });
    }

    /// Sends an order, where there is a warden.
    pub(super) fn send(&self, order: &WardenOrder, fds: Vec<OwnedFd>) {
        if let Some(warden) = &self.warden {
            warden.peer.send(order, fds);
        }
    }

    /// The socket of this warden is at its end. None where it is not the current one.
    pub(super) fn lose(&mut self, pid: Pid) -> Option<LostWarden> {
        let lost = self.warden.take_if(|warden| warden.pid == pid)?;
        Some(LostWarden {
            child: (!lost.is_foreign).then_some(pid),
            was_short_lived: lost.since.elapsed() < WARDEN_LIFE_MIN && !lost.is_foreign,
        })
    }

    /// Closes the connection. Returns the process.
    pub(super) fn close(&mut self) -> Option<Pid> {
        self.warden.take().map(|warden| warden.pid)
    }
}
