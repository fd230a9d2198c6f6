//! Our own stdin and stdout without a thread, where the system lets us wait for them.
//!
//! The open file behind them is shared with the parent process, and so are its flags: none is ever
//! changed. A pipe is opened once more, for ourselves; a socket is told with each call not to block.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use afresh_core::limits::TALK_CHUNK_BYTES;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, SockType, getsockopt, recv, send, sockopt};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::unix::pipe::OpenOptions;

use super::{PipeReader, PipeWriter, far_end, pipe_path, unread, widen};
use crate::stream::{Completion, Pipe, StreamReader, StreamWriter};

/// Our stdin; `None` where only a thread can wait for it.
pub(crate) fn own_stdin() -> Option<StreamReader> {
    let stdin = io::stdin();
    if is_stream(stdin.as_fd()) {
        return Some(Box::new(Socket::new(stdin.as_fd(), Interest::READABLE).ok()?));
    }
    Some(Box::new(OpenOptions::new().open_receiver(pipe_path(stdin.as_fd())?).ok()?))
}

/// Our stdout, and the moment when its reader is gone; `None` where only a thread can wait
/// for it.
pub(crate) fn own_stdout() -> Option<(StreamWriter, Completion)> {
    let stdout = io::stdout();
    let writer: StreamWriter = match is_stream(stdout.as_fd()) {
        true => Box::new(Socket::new(stdout.as_fd(), Interest::WRITABLE).ok()?),
        false => Box::new(OpenOptions::new().open_sender(pipe_path(stdout.as_fd())?).ok()?),
    };
    Some((writer, closed(stdout.as_fd())?))
}

/// Completes when the other end is closed: the kernel says so without being asked for an event.
fn closed(stream: BorrowedFd<'_>) -> Option<Completion> {
    let interest = Interest::READABLE.add(Interest::ERROR);
    let stream = watch(stream, interest).ok()?;
    Some(Box::pin(async move {
        while let Ok(mut ready) = stream.ready(interest).await {
            let mut polled = [PollFd::new(stream.as_fd(), PollFlags::empty())];
            if poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0) {
                return;
            }
            ready.clear_ready();
        }
        // Nothing can be seen: the next write will fail.
        std::future::pending().await
    }))
}

fn watch(stream: BorrowedFd<'_>, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    let stream = stream.try_clone_to_owned()?;
    // SAFETY: an owned descriptor is open, and the same, until it is dropped.
    #[expect(unsafe_code, reason = "others could have a descriptor that changes")]
    Ok(unsafe { AsyncFd::register_with_interest(stream, interest) }?)
}

fn is_stream(stream: BorrowedFd<'_>) -> bool {
    // An error is anything that is no socket.
    getsockopt(&stream, sockopt::SockType).is_ok_and(|kind| kind == SockType::Stream)
}

impl Pipe for Socket {}

impl Pipe for PipeReader {
    fn widen(&self) {
        widen(self.as_fd());
    }
}

impl Pipe for PipeWriter {
    fn widen(&self) {
        widen(self.as_fd());
    }

    fn unread(&self) -> Option<usize> {
        unread(self)
    }

    fn far_end(&self) -> Option<Box<dyn Pipe + Send>> {
        Some(Box::new(FarEnd(far_end(self)?)))
    }

    fn closed(&self) -> Option<Completion> {
        closed(self.as_fd())
    }
}

/// The reading end of a pipe that was closed on our side.
struct FarEnd(std::fs::File);

impl Pipe for FarEnd {
    fn unread(&self) -> Option<usize> {
        unread(&self.0)
    }
}

/// A socket that others may use too.
struct Socket {
    socket: AsyncFd<OwnedFd>,
    /// What was just received; empty where it is only written to.
    buffer: Vec<u8>,
}

impl Socket {
    fn new(socket: BorrowedFd<'_>, interest: Interest) -> io::Result<Self> {
        let length = if interest.is_readable() { TALK_CHUNK_BYTES } else { 0 };
        Ok(Self { socket: watch(socket, interest)?, buffer: vec![0; length] })
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { socket, buffer } = &mut *self;
        let room = buffer.len().min(into.remaining());
        loop {
            let mut ready = ready!(socket.poll_read_ready(context))?;
            let number = socket.as_raw_fd();
            match ready.try_io(|_| Ok(recv(number, &mut buffer[..room], MsgFlags::MSG_DONTWAIT)?)) {
                Ok(Ok(length)) => {
                    // Less than there is room for is all there was.
                    if 0 < length && length < room {
                        ready.clear_ready();
                    }
                    into.put_slice(&buffer[..length]);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.socket.poll_write_ready(context))?;
            let number = self.socket.as_raw_fd();
            // Rust's runtime ignores SIGPIPE: a reader who is gone is an error.
            match ready.try_io(|_| Ok(send(number, bytes, MsgFlags::MSG_DONTWAIT)?)) {
                Ok(sent) => return Poll::Ready(sent),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // It is shared: it ends with its last holder.
        Poll::Ready(Ok(()))
    }
}

/// Keeps what is freed for the next message, up to a bound in `limits.rs`. A message of some hundred
/// kilobytes would else be returned to the kernel and asked for again, page by page, each time.
pub(crate) fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for option in [nix::libc::M_TRIM_THRESHOLD, nix::libc::M_MMAP_THRESHOLD] {
        // SAFETY: sets a number in the allocator, under its own lock.
        #[expect(unsafe_code, reason = "the allocator has no other interface")]
        // Refused, it is only slower.
        let _set = unsafe { nix::libc::mallopt(option, afresh_core::limits::FREED_BYTES_KEPT) };
    }
}

/// Gives back what only the beginning needed: freed memory, and the pages of our own code that were
/// used once. The kernel brings those back from its cache when they are needed again.
pub(crate) fn settle_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: gives free pages of the allocator back, under its own lock.
    #[expect(unsafe_code, reason = "the allocator has no other interface")]
    let _given = unsafe { nix::libc::malloc_trim(0) };
    #[cfg(target_os = "linux")]
    for (start, length) in own_code() {
        // SAFETY: the range is mapped from our own executable, private, and cannot be written: no page
        // of it differs from the file. Code that runs there waits for the page to come back.
        #[expect(unsafe_code, reason = "the kernel takes an address")]
        let _dropped = unsafe {
            nix::libc::madvise(start as *mut nix::libc::c_void, length, nix::libc::MADV_DONTNEED)
        };
    }
}

/// The mappings of our own code: executable, and not writable.
#[cfg(target_os = "linux")]
fn own_code() -> Vec<(usize, usize)> {
    let (Ok(maps), Ok(own)) =
        (std::fs::read_to_string("/proc/self/maps"), std::fs::read_link("/proc/self/exe"))
    else {
        return Vec::new();
    };
    let own = own.to_string_lossy();
    let range = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (range, rights) = (words.next()?, words.next()?);
        let (start, end) = range.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        let is_code = rights == "r-xp" && line.ends_with(&*own);
        is_code.then_some((address(start)?, address(end)?.checked_sub(address(start)?)?))
    };
    maps.lines().filter_map(range).collect()
}
