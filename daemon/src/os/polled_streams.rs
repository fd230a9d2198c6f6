//! Streams of a process that waits for them with one `poll`, and has no runtime: a shim. Our own stdin and stdout keep their
//! flags, which are shared with the parent: a pipe is opened once more, a socket is told with each call not to block.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::future::poll_fn;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc::{O_NONBLOCK, PIPE_BUF};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, getsockopt, recv, send, socket,
    sockopt,
};
use nix::unistd::{Uid, read, write};
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;

use super::{Interest, Launchers, PollResult, Ready, pipe_path};

/// A stream that can be waited for, and never blocks.
pub(crate) struct PolledStream {
    descriptor: OwnedFd,
    kind: StreamKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamKind {
    Socket,
    /// Opened by us.
    Pipe,
    /// Anything else: it takes and gives what `poll` promises.
    Other,
}

impl PolledStream {
    /// Streams that can be read from when a launcher has ended; none where one has ended already.
    pub(crate) fn ends_of(launchers: Launchers) -> Option<Vec<Self>> {
        let stream = |descriptor| Self { descriptor, kind: StreamKind::Other };
        Some(launchers.into_descriptors()?.into_iter().map(stream).collect())
    }

    pub(crate) fn own_stdin() -> io::Result<Self> {
        Self::own(&io::stdin(), OpenOptions::new().read(true))
    }

    pub(crate) fn own_stdout() -> io::Result<Self> {
        Self::own(&io::stdout(), OpenOptions::new().write(true))
    }

    fn own(stream: &impl AsFd, options: &mut OpenOptions) -> io::Result<Self> {
        let stream = stream.as_fd();
        if getsockopt(&stream, sockopt::SockType).is_ok() {
            let descriptor = stream.try_clone_to_owned()?;
            return Ok(Self { descriptor, kind: StreamKind::Socket });
        }
        let opened =
            pipe_path(stream).and_then(|path| options.custom_flags(O_NONBLOCK).open(path).ok());
        Ok(match opened {
            Some(file) => Self { descriptor: file.into(), kind: StreamKind::Pipe },
            None => Self { descriptor: stream.try_clone_to_owned()?, kind: StreamKind::Other },
        })
    }

    /// Connects to a socket of this user, at once or not at all: a listener that was stopped keeps nobody waiting.
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let descriptor = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None)?;
        fcntl(&descriptor, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        let stream = std::os::unix::net::UnixStream::from(descriptor);
        stream.set_nonblocking(true)?;
        connect(stream.as_raw_fd(), &UnixAddr::new(path)?)?;
        let descriptor = OwnedFd::from(stream);
        match peer_uid(&descriptor)? == Uid::effective().as_raw() {
            true => Ok(Self { descriptor, kind: StreamKind::Socket }),
            false => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user listens there"))
            }
        }
    }

    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(match self.kind {
            StreamKind::Socket => {
                recv(self.descriptor.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)?
            }
            StreamKind::Pipe | StreamKind::Other => read(&self.descriptor, buffer)?,
        })
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(match self.kind {
            StreamKind::Socket => send(self.descriptor.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT)?,
            StreamKind::Pipe => write(&self.descriptor, bytes)?,
            StreamKind::Other => {
                let mut polled = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLOUT)];
                if poll(&mut polled, PollTimeout::ZERO)? == 0 {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                write(&self.descriptor, &bytes[..bytes.len().min(PIPE_BUF)])?
            }
        })
    }
}

#[cfg(target_os = "linux")]
fn peer_uid(socket: &OwnedFd) -> io::Result<u32> {
    Ok(getsockopt(socket, sockopt::PeerCredentials)?.uid())
}

#[cfg(not(target_os = "linux"))]
fn peer_uid(socket: &OwnedFd) -> io::Result<u32> {
    Ok(nix::unistd::getpeereid(socket)?.0.as_raw())
}

/// Waits until one of the streams can be read or written, as it is wanted of each, or the other end of one is closed, or one
/// of these ends has come, or this time is over; then nothing is returned. A stream of which nothing is wanted is left out by
/// the caller: its closed end would end each wait at once.
pub(crate) fn poll_streams<const COUNT: usize>(
    streams: [Option<(&PolledStream, Interest)>; COUNT],
    ends: &[PolledStream],
    wait: Option<Duration>,
) -> io::Result<Option<PollResult<COUNT>>> {
    let mut polled = Vec::with_capacity(COUNT + ends.len());
    for (stream, interest) in streams.iter().flatten() {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, interest.reads);
        flags.set(PollFlags::POLLOUT, interest.writes);
        polled.push(PollFd::new(stream.descriptor.as_fd(), flags));
    }
    let ends_at = polled.len();
    polled.extend(ends.iter().map(|end| PollFd::new(end.descriptor.as_fd(), PollFlags::POLLIN)));
    // A part of a millisecond is rounded up: the time is over then.
    let timeout = wait.map_or(PollTimeout::NONE, |wait| {
        let wait = wait.as_millis() + u128::from(wait.subsec_nanos() % 1_000_000 > 0);
        PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)
    });
    match poll(&mut polled, timeout) {
        Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(None),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    let ready = |polled: &PollFd<'_>| {
        let events = polled.revents().unwrap_or(PollFlags::empty());
        let broken = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
        Ready {
            can_read: events.intersects(PollFlags::POLLIN | PollFlags::POLLHUP),
            can_write: events.contains(PollFlags::POLLOUT),
            is_broken: events.intersects(broken),
        }
    };
    let has_end = polled[ends_at..].iter().any(|polled| ready(polled).can_read);
    let mut polled = polled.iter().map(ready);
    let streams = streams.map(|stream| stream.and_then(|_| polled.next()).unwrap_or_default());
    Ok(Some(PollResult { streams, has_end }))
}

/// Runs afresh with other arguments in place of this process; returns why that failed.
pub(crate) fn become_afresh(executable: &Path, arguments: &[OsString]) -> io::Error {
    Command::new(executable).arg0("afresh").args(arguments).exec()
}

/// Has a command that is this very program called by its name.
pub(crate) fn set_own_name(command: &mut Command) {
    command.arg0("afresh");
}

/// The reading end of a connection. It is waited for alone: a peer that reads does not wake us.
pub(crate) struct SocketReader(AsyncFd<std::os::unix::net::UnixStream>);

impl SocketReader {
    /// Reads what is there; 0 at the end. Asks to be woken where there is nothing.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(context))?;
            match guard.try_io(|stream| stream.get_ref().read(buffer)) {
                Ok(Ok(length)) => {
                    if length < buffer.len() {
                        // It is empty: the next bytes are told anew. That the other end is closed stays known.
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(length));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }

    /// Reads what is there, or waits for it; 0 at the end. Cancel safe.
    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_read(context, buffer)).await
    }
}

/// The writing end of a connection. The peer sees the end of the stream once this is dropped, whether its lines are still
/// read or not.
pub(crate) struct SocketWriter(std::os::unix::net::UnixStream);

impl Drop for SocketWriter {
    fn drop(&mut self) {
        // It fails where the peer has gone, which leaves nobody to see it.
        self.0.shutdown(std::net::Shutdown::Write).ok();
    }
}

impl SocketWriter {
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        (&self.0).write(bytes)
    }

    /// Waits until it takes more.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        let stream = register(self.0.try_clone()?, tokio::io::Interest::WRITABLE)?;
        stream.writable().await?.retain_ready();
        Ok(())
    }
}

/// Both ends of a connection.
pub(crate) fn halves(stream: UnixStream) -> io::Result<(SocketReader, SocketWriter)> {
    let stream = stream.into_std()?;
    let writer = SocketWriter(stream.try_clone()?);
    Ok((SocketReader(register(stream, tokio::io::Interest::READABLE)?), writer))
}

fn register(
    stream: std::os::unix::net::UnixStream,
    interest: tokio::io::Interest,
) -> io::Result<AsyncFd<std::os::unix::net::UnixStream>> {
    #[expect(
        unsafe_code,
        reason = "tokio asks for an open descriptor, which no safe type vouches for"
    )]
    // SAFETY: the stream owns its descriptor, and gives out the same one until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(stream, interest) }?)
}
