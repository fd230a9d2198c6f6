//! Letters to the warden and the guardians, and their words: a task for each socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use afresh_core::limits::START_COURTESY;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::wire::{self, Frame, Inbox};

/// Somebody at the other end of a socket.
pub(super) struct Correspondent {
    /// Of the warden: it is woken for each order.
    pub(super) pid: Option<Pid>,
    socket: Arc<UnixStream>,
    orders: mpsc::Sender<Parcel>,
    /// Parcels that the task has not delivered yet: nothing goes before them.
    undelivered: Arc<AtomicUsize>,
}

struct Parcel {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
    /// How many of the bytes, and with the first of them the descriptors, are there already.
    sent: usize,
}

impl Parcel {
    /// Sends as much as goes now.
    fn send(&mut self, socket: &UnixStream) -> io::Result<()> {
        let fds: Vec<RawFd> = self.fds.iter().map(AsRawFd::as_raw_fd).collect();
        self.sent += wire::send(socket.as_fd(), &self.bytes[self.sent..], &fds)?;
        self.fds.clear();
        Ok(())
    }

    fn is_sent(&self) -> bool {
        self.sent == self.bytes.len()
    }
}

impl Correspondent {
    /// Gives a socket its task. What arrives, and has arrived in `inbox`, is put into `words`, and
    /// `gone` at the end.
    pub(super) fn open<F: Frame + Send + 'static, W: Send + 'static>(
        socket: StdStream,
        inbox: Inbox,
        orders_max: usize,
        tasks: &mut JoinSet<()>,
        words: mpsc::Sender<W>,
        word: impl Fn(F) -> W + Send + 'static,
        gone: W,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let socket = Arc::new(UnixStream::from_std(socket)?);
        let (orders, parcels) = mpsc::channel(orders_max);
        let undelivered = Arc::new(AtomicUsize::new(0));
        let (far, count) = (Arc::clone(&socket), Arc::clone(&undelivered));
        tasks.spawn(async move {
            converse(&far, inbox, parcels, &count, &words, word).await;
            // Nobody listens any more when we shut down.
            words.send(gone).await.ok();
        });
        while tasks.try_join_next().is_some() {}
        Ok(Self { pid: None, socket, orders, undelivered })
    }

    /// Sends without waiting. A correspondent whose queue is full hangs, and one that is gone has
    /// said so: both are dealt with elsewhere, by the stop ladder and the end of the socket.
    pub(super) fn send(&self, frame: &impl Frame, fds: Vec<OwnedFd>) {
        if let Some(pid) = self.pid {
            // A warden that somebody stopped would let a service wait for ever.
            kill(pid, Signal::SIGCONT).ok();
        }
        let mut parcel = Parcel { bytes: frame.to_bytes(), fds, sent: 0 };
        if self.undelivered.load(Ordering::Relaxed) == 0 {
            // Not by way of the task, whose turn comes after much else. It meets the same error.
            parcel.send(&self.socket).ok();
        }
        if !parcel.is_sent() && self.orders.try_send(parcel).is_ok() {
            self.undelivered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends, and lets whoever gets it go first, until it has answered or a moment is over: it often waits
    /// for just the core that we are on, from where it woke us.
    pub(super) fn send_first(&self, frame: &impl Frame, fds: Vec<OwnedFd>) {
        self.send(frame, fds);
        let moment = PollTimeout::try_from(START_COURTESY).unwrap_or(PollTimeout::ZERO);
        let mut answer = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        // However it ends, we go on; the answer is taken where all are.
        poll(&mut answer, moment).ok();
    }
}

/// Carries parcels out and words in, until either side has had enough.
async fn converse<F: Frame, W>(
    socket: &UnixStream,
    mut inbox: Inbox,
    mut parcels: mpsc::Receiver<Parcel>,
    undelivered: &AtomicUsize,
    words: &mpsc::Sender<W>,
    word: impl Fn(F) -> W,
) {
    loop {
        loop {
            match inbox.next() {
                Ok(Some(frame)) => {
                    if words.send(word(frame)).await.is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
        tokio::select! {
            parcel = parcels.recv() => {
                let Some(parcel) = parcel else { return };
                if deliver(socket, parcel).await.is_err() {
                    return;
                }
                undelivered.fetch_sub(1, Ordering::Relaxed);
            }
            ready = socket.readable() => {
                if ready.is_err() {
                    return;
                }
                match socket.try_io(Interest::READABLE, || inbox.receive(socket.as_fd())) {
                    Ok(true) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Ok(false) | Err(_) => return,
                }
            }
        }
    }
}

async fn deliver(socket: &UnixStream, mut parcel: Parcel) -> io::Result<()> {
    while !parcel.is_sent() {
        socket.async_io(Interest::WRITABLE, || parcel.send(socket)).await?;
    }
    Ok(())
}
