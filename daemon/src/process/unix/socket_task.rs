//! Owns the supervisor's sockets to the warden and the guardians: a task for each, and the one queue that
//! their messages arrive in. Driven by `Processes::next`. Never waits for a peer to read.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use afresh_core::limits::{
    GUARDIAN_MESSAGES_MAX, GUARDIAN_ORDERS_MAX, START_COURTESY, WARDEN_ORDERS_MAX,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::guardian_table::GuardianKey;
use super::messages::{Frame, FrameReader, FrameSocket, GuardianReport, WardenReport, send};

/// A message of a peer, or the end of its socket.
pub(super) enum PeerMessage {
    Guardian(GuardianKey, GuardianReport),
    GuardianGone(GuardianKey),
    /// The spooled output of a guardian's instance is passed on.
    SpoolRead(GuardianKey),
    Warden(WardenReport),
    WardenGone(Pid),
}

/// The tasks of all sockets, and the queue of their messages.
pub(super) struct SocketTasks {
    messages: mpsc::Receiver<PeerMessage>,
    sender: mpsc::Sender<PeerMessage>,
    tasks: JoinSet<()>,
}

impl SocketTasks {
    pub(super) fn new() -> Self {
        let (sender, messages) = mpsc::channel(GUARDIAN_MESSAGES_MAX);
        Self { messages, sender, tasks: JoinSet::new() }
    }

    /// Gives the socket of a guardian its task.
    pub(super) fn open_guardian(
        &mut self,
        key: GuardianKey,
        line: FrameSocket,
    ) -> io::Result<Peer> {
        let message = move |report| PeerMessage::Guardian(key, report);
        self.open(line, GUARDIAN_ORDERS_MAX, message, PeerMessage::GuardianGone(key))
    }

    /// Gives the socket of a warden its task.
    pub(super) fn open_warden(&mut self, pid: Pid, line: FrameSocket) -> io::Result<Peer> {
        let gone = PeerMessage::WardenGone(pid);
        let peer = self.open(line, WARDEN_ORDERS_MAX, PeerMessage::Warden, gone)?;
        Ok(Peer { wake: Some(pid), ..peer })
    }

    fn open<F: Frame + Send + 'static>(
        &mut self,
        FrameSocket { socket, reader }: FrameSocket,
        orders_max: usize,
        message: impl Fn(F) -> PeerMessage + Send + 'static,
        gone: PeerMessage,
    ) -> io::Result<Peer> {
        socket.set_nonblocking(true)?;
        let socket = Arc::new(UnixStream::from_std(socket)?);
        let (orders, outgoing) = mpsc::channel(orders_max);
        let unsent = Arc::new(AtomicUsize::new(0));
        let (far, count) = (Arc::clone(&socket), Arc::clone(&unsent));
        let messages = self.sender.clone();
        self.tasks.spawn(async move {
            // Any error is an end of the socket.
            exchange(&far, reader, outgoing, &count, &messages, message).await.ok();
            // The queue is closed when the supervisor shuts down.
            messages.send(gone).await.ok();
        });
        while self.tasks.try_join_next().is_some() {}
        Ok(Peer { wake: None, socket, orders, unsent })
    }

    /// Sends [`PeerMessage::SpoolRead`] when the spooled output is passed on.
    pub(super) fn watch_spool(&mut self, key: GuardianKey, is_read: oneshot::Receiver<()>) {
        let messages = self.sender.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                _ = is_read => drop(messages.send(PeerMessage::SpoolRead(key)).await),
                () = messages.closed() => {}
            }
        });
    }

    /// The next message. Cancel safe.
    pub(super) async fn next(&mut self) -> PeerMessage {
        self.messages.recv().await.expect("it holds a sender itself")
    }

    /// Ends all tasks, whose peers the caller has dropped; that closes the sockets.
    pub(super) async fn close(&mut self) {
        // Tasks with a last message must not wait for room in the queue.
        self.messages.close();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// A process at the other end of a socket.
pub(super) struct Peer {
    /// Woken for each order: the warden, which may have been stopped.
    wake: Option<Pid>,
    socket: Arc<UnixStream>,
    orders: mpsc::Sender<OutgoingFrame>,
    /// Frames that the task has not sent yet: nothing goes before them.
    unsent: Arc<AtomicUsize>,
}

struct OutgoingFrame {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
    /// The number of bytes that are sent; the descriptors go with the first of them.
    sent: usize,
}

impl OutgoingFrame {
    /// Sends as much as goes now.
    fn send(&mut self, socket: &UnixStream) -> io::Result<()> {
        let fds: Vec<RawFd> = self.fds.iter().map(AsRawFd::as_raw_fd).collect();
        self.sent += send(socket.as_fd(), &self.bytes[self.sent..], &fds)?;
        self.fds.clear();
        Ok(())
    }

    fn is_sent(&self) -> bool {
        self.sent == self.bytes.len()
    }
}

impl Peer {
    /// Sends without waiting. A peer whose queue is full hangs, and the socket of one that is gone is at
    /// its end: the stop ladder deals with the one, [`PeerMessage`] with the other.
    pub(super) fn send(&self, frame: &impl Frame, fds: Vec<OwnedFd>) {
        if let Some(pid) = self.wake {
            // A stopped warden would let a service wait for ever.
            kill(pid, Signal::SIGCONT).ok();
        }
        let mut frame = OutgoingFrame { bytes: frame.to_bytes(), fds, sent: 0 };
        if self.unsent.load(Ordering::Relaxed) == 0 {
            // Not by way of the task, whose turn comes after much else. It meets the same error.
            frame.send(&self.socket).ok();
        }
        if !frame.is_sent() && self.orders.try_send(frame).is_ok() {
            self.unsent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends, and lets the peer run first, until it has answered or [`START_COURTESY`] is over: it often
    /// waits for just the core that this thread is on.
    pub(super) fn send_first(&self, frame: &impl Frame, fds: Vec<OwnedFd>) {
        self.send(frame, fds);
        let moment = PollTimeout::try_from(START_COURTESY).unwrap_or(PollTimeout::ZERO);
        let mut answer = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        // The result does not matter: the answer is received by the task.
        poll(&mut answer, moment).ok();
    }
}

/// Sends what is queued and receives messages, until either side closes.
async fn exchange<F: Frame>(
    socket: &UnixStream,
    mut reader: FrameReader,
    mut outgoing: mpsc::Receiver<OutgoingFrame>,
    unsent: &AtomicUsize,
    messages: &mpsc::Sender<PeerMessage>,
    message: impl Fn(F) -> PeerMessage,
) -> io::Result<()> {
    loop {
        while let Some(frame) = reader.next()? {
            messages.send(message(frame)).await.map_err(|_closed| io::ErrorKind::BrokenPipe)?;
        }
        tokio::select! {
            frame = outgoing.recv() => {
                let Some(mut frame) = frame else { return Ok(()) };
                while !frame.is_sent() {
                    socket.async_io(Interest::WRITABLE, || frame.send(socket)).await?;
                }
                unsent.fetch_sub(1, Ordering::Relaxed);
            }
            ready = socket.readable() => {
                ready?;
                match socket.try_io(Interest::READABLE, || reader.receive(socket.as_fd())) {
                    Ok(true) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    ended => return ended.map(drop),
                }
            }
        }
    }
}
