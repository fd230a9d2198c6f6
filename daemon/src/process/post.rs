//! Letters to the warden and the guardians, and their words: a task for each socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream as StdStream;

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
    orders: mpsc::Sender<Parcel>,
}

struct Parcel {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
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
        let socket = UnixStream::from_std(socket)?;
        let (orders, parcels) = mpsc::channel(orders_max);
        tasks.spawn(async move {
            converse(&socket, inbox, parcels, &words, word).await;
            // Nobody listens any more when we shut down.
            words.send(gone).await.ok();
        });
        while tasks.try_join_next().is_some() {}
        Ok(Self { pid: None, orders })
    }

    /// Sends without waiting. A correspondent whose queue is full hangs, and one that is gone has
    /// said so: both are dealt with elsewhere, by the stop ladder and the end of the socket.
    pub(super) fn send(&self, frame: &impl Frame, fds: Vec<OwnedFd>) {
        if let Some(pid) = self.pid {
            // A warden that somebody stopped would let a service wait for ever.
            kill(pid, Signal::SIGCONT).ok();
        }
        self.orders.try_send(Parcel { bytes: frame.to_bytes(), fds }).ok();
    }
}

/// Carries parcels out and words in, until either side has had enough.
async fn converse<F: Frame, W>(
    socket: &UnixStream,
    mut inbox: Inbox,
    mut parcels: mpsc::Receiver<Parcel>,
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
                if deliver(socket, &parcel).await.is_err() {
                    return;
                }
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

async fn deliver(socket: &UnixStream, parcel: &Parcel) -> io::Result<()> {
    let fds: Vec<RawFd> = parcel.fds.iter().map(AsRawFd::as_raw_fd).collect();
    let mut sent = 0;
    while sent < parcel.bytes.len() {
        let beside = if sent == 0 { &fds[..] } else { &[] };
        sent += socket
            .async_io(Interest::WRITABLE, || {
                wire::send(socket.as_fd(), &parcel.bytes[sent..], beside)
            })
            .await?;
    }
    Ok(())
}
