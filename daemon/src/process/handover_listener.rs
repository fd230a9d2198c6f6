//! Owns the socket on which a warden waits for the next supervisor: greets visitors, and connects the next
//! supervisor with the guardians. Driven by the warden's loop. Serves one visitor at a time, and none that
//! sends no request.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use afresh_core::limits::{ADOPTION_WAIT, ORPHANED_GRACE, VISITOR_WAIT};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Uid;
use tokio::time::Instant;

use super::frames::{GuardianInvitation, WardenReport};
use super::handover_protocol::{Greeting, PROTOCOL, VisitorRequest, millis};
use super::os;
use super::warden::{FrameSocket, Warden};
use super::wire::{Frame, FrameReader, send_all, send_with};

/// The listening socket of a warden that outlives its supervisor.
pub(super) struct HandoverListener {
    listener: UnixListener,
    socket: PathBuf,
    /// The folder for the spooled output of guardians.
    pub(super) folder: PathBuf,
    visitor: Option<Visitor>,
    alone_since: Instant,
}

struct Visitor {
    line: FrameSocket,
    pid: u32,
    until: Instant,
}

impl HandoverListener {
    pub(super) fn new(listener: OwnedFd, socket: PathBuf, folder: PathBuf) -> Self {
        let listener = UnixListener::from(listener);
        Self { listener, socket, folder, visitor: None, alone_since: Instant::now() }
    }

    /// The descriptors to wait for: the listener, or the present visitor.
    pub(super) fn sources(&self) -> [Option<BorrowedFd<'_>>; 2] {
        match &self.visitor {
            None => [Some(self.listener.as_fd()), None],
            Some(visitor) => [None, Some(visitor.line.socket.as_fd())],
        }
    }

    /// The deadline of the present visitor.
    pub(super) fn visit_ends_at(&self) -> Option<Instant> {
        self.visitor.as_ref().map(|visitor| visitor.until)
    }

    /// Accepts no more visitors. The lock is still held, so the path is ours.
    pub(super) fn close(&self) {
        fs::remove_file(&self.socket).ok();
    }

    fn greet(&mut self, mut greeting: Greeting) -> io::Result<()> {
        let (socket, _) = self.listener.accept()?;
        socket.set_nonblocking(false)?;
        // A visitor that does not read must not block the warden.
        socket.set_write_timeout(Some(ADOPTION_WAIT))?;
        let (user, pid) = os::peer(socket.as_fd())?;
        if user != Uid::effective().as_raw() {
            return Ok(());
        }
        if !greeting.busy {
            greeting.alone_ms = millis(self.alone_since.elapsed());
        }
        send_all(socket.as_fd(), &greeting.to_bytes())?;
        if !greeting.busy {
            let line = FrameSocket { socket: socket.into(), reader: FrameReader::default() };
            self.visitor = Some(Visitor { line, pid, until: Instant::now() + VISITOR_WAIT });
        }
        Ok(())
    }
}

impl Warden {
    /// The supervisor is gone.
    pub(super) fn begin_alone(&mut self) {
        if let Some(handover) = &mut self.handover {
            handover.alone_since = Instant::now();
        }
    }

    /// Accepts a visitor, and handles the request of the present one.
    pub(super) fn receive_visitors(&mut self, arrived: bool, sent: bool) {
        let greeting = self.greeting();
        let Some(handover) = &mut self.handover else { return };
        if arrived {
            // An error only concerns the visitor.
            handover.greet(greeting).ok();
        }
        if sent && let Some(mut visitor) = handover.visitor.take() {
            let reader = &mut visitor.line.reader;
            let stays = reader.receive(visitor.line.socket.as_fd()).unwrap_or(false);
            match reader.next() {
                Ok(None) if stays => handover.visitor = Some(visitor),
                Ok(Some(VisitorRequest::Adopt { protocol: PROTOCOL })) => self.admit(visitor),
                Ok(Some(VisitorRequest::End { grace_ms })) => {
                    self.end(Duration::from_millis(grace_ms))
                }
                // It has left, or its request is of another protocol.
                Ok(_) | Err(_) => {}
            }
        }
        if let Some(handover) = &mut self.handover {
            handover.visitor.take_if(|visitor| visitor.until <= Instant::now());
        }
    }

    fn greeting(&self) -> Greeting {
        let living = self.guardians.values().filter(|child| !child.gone);
        Greeting {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            warden: std::process::id(),
            busy: self.supervisor.is_some() || self.leave_by.is_some(),
            instances: living.count() as u64,
            alone_ms: 0,
        }
    }

    /// The visitor is the supervisor from now on.
    fn admit(&mut self, visitor: Visitor) {
        self.supervisor_pid = visitor.pid;
        let to = visitor.line.socket.as_fd();
        for (number, child) in self.guardians.iter().filter(|(_, child)| !child.gone) {
            let Some(channel) = &child.channel else { continue };
            // One that was stopped would let the new supervisor wait.
            kill(child.pid, Signal::SIGCONT).ok();
            let Ok((theirs, ours)) = UnixStream::pair() else { continue };
            let connect = GuardianInvitation::Connect.to_bytes();
            // A guardian that does not receive it is buried by the supervisor, which gets no report from it.
            send_with(channel.as_fd(), &connect, &[theirs.as_fd()]).ok();
            let report = WardenReport::Guardian { guardian: *number }.to_bytes();
            send_with(to, &report, &[ours.as_fd()]).ok();
        }
        let given = WardenReport::Given { next_guardian: self.next_guardian }.to_bytes();
        if let Some(handover) = &self.handover {
            // Our stdout is the lock.
            let stdout = io::stdout();
            send_with(to, &given, &[stdout.as_fd(), handover.listener.as_fd()]).ok();
        }
        // A supervisor reads.
        let socket = visitor.line.socket.try_clone().map(UnixStream::from);
        socket.and_then(|socket| socket.set_write_timeout(None)).ok();
        self.supervisor = Some(visitor.line);
    }

    /// Ends all that is kept.
    fn end(&mut self, grace: Duration) {
        let end = GuardianInvitation::End { grace_ms: millis(grace) }.to_bytes();
        for channel in self.guardians.values().filter_map(|child| child.channel.as_ref()) {
            send_all(channel.as_fd(), &end).ok();
        }
        self.leave_by = Some(Instant::now() + grace + ORPHANED_GRACE + ORPHANED_GRACE);
    }
}
