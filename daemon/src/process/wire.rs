//! How supervisor, warden and guardians speak to each other: length-prefixed frames on a socket
//! pair, with file descriptors beside them. `frames.rs` has what they say.
//!
//! Both ends are the same binary, unless a supervisor takes over what another one left: then
//! `handover_protocol.rs` compares versions first. It is bytes, not JSON, because arguments and environment are
//! bytes.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;

use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, recvmsg, sendmsg};

/// Frames never need more: stdin, stdout and stderr, theirs and ours.
const FDS_PER_MESSAGE_MAX: usize = 6;

/// A frame that says it is longer than this is garbage: `execve` itself refuses more.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Something that can be put into a frame.
pub(crate) trait Frame: Sized {
    fn write(&self, out: &mut Writer);
    fn read(input: &mut Reader<'_>) -> Option<Self>;

    /// The whole frame, length first.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer(vec![0; 4]);
        self.write(&mut out);
        let length = u32::try_from(out.0.len() - 4).expect("a frame is far below 4 GiB");
        out.0[..4].copy_from_slice(&length.to_le_bytes());
        out.0
    }
}

/// Takes bytes and descriptors as they come, and gives whole frames.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    fds: VecDeque<OwnedFd>,
}

impl Inbox {
    /// Receives once. `Ok(false)` is the end of the stream.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let mut buffer = [0_u8; 8192];
        let mut space = cmsg_space!([RawFd; FDS_PER_MESSAGE_MAX]);
        let mut iov = [IoSliceMut::new(&mut buffer)];
        let message = recvmsg::<()>(
            socket.as_raw_fd(),
            &mut iov,
            Some(&mut space),
            super::os::RECEIVE_FLAGS,
        )?;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(fds) = control {
                // SAFETY: the kernel has just put these descriptors into our table for us alone.
                #[expect(unsafe_code, reason = "descriptors arrive as numbers")]
                self.fds.extend(fds.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
                self.fds.iter().for_each(super::os::close_on_exec);
            }
        }
        let received = message.bytes;
        self.bytes.extend_from_slice(&buffer[..received]);
        Ok(received > 0)
    }

    /// The next whole frame, if it is here.
    pub(crate) fn next<F: Frame>(&mut self) -> io::Result<Option<F>> {
        let garbage = || io::Error::new(io::ErrorKind::InvalidData, "not a frame");
        let Some(header) = self.bytes.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*header) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(garbage());
        }
        let Some(body) = self.bytes.get(4..4 + length) else {
            return Ok(None);
        };
        let mut reader = Reader(body);
        let frame = F::read(&mut reader).filter(|_| reader.0.is_empty()).ok_or_else(garbage)?;
        self.bytes.drain(..4 + length);
        if self.bytes.is_empty() {
            // A guardian lives for days: it gives back what one large frame took.
            self.bytes = Vec::new();
        }
        Ok(Some(frame))
    }

    #[cfg(test)]
    pub(super) fn push(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// The next descriptor that came beside the frames.
    pub(crate) fn next_fd(&mut self) -> Option<OwnedFd> {
        self.fds.pop_front()
    }
}

/// Sends as much as goes now; the descriptors go with the first byte.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[RawFd]) -> io::Result<usize> {
    let iov = [IoSlice::new(bytes)];
    let rights = [ControlMessage::ScmRights(fds)];
    let control: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
    Ok(sendmsg::<()>(socket.as_raw_fd(), &iov, control, super::os::SEND_FLAGS, None)?)
}

/// Sends all of it on a socket that blocks.
pub(crate) fn send_all(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    send_with(socket, bytes, &[])
}

/// Sends all of it on a socket that blocks, with descriptors beside it.
pub(crate) fn send_with(
    socket: BorrowedFd<'_>,
    mut bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut fds: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    while !bytes.is_empty() {
        match send(socket, bytes, &fds) {
            Ok(sent) => {
                bytes = &bytes[sent..];
                fds.clear();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn i32(&mut self, value: i32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    pub(super) fn bool(&mut self) -> Option<bool> {
        Some(self.u8()? != 0)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        Some(i32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        u32::try_from(self.u64()?).ok()
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u64()?).ok()?;
        self.take(length)
    }

    pub(super) fn text(&mut self) -> Option<OsString> {
        Some(OsString::from_vec(self.bytes()?.to_vec()))
    }

    pub(super) fn string(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    /// Takes what a later version may say on top.
    pub(super) const fn skip_rest(&mut self) {
        self.0 = &[];
    }

    pub(super) fn many<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = self.u64()?;
        // No capacity from a number that came over a wire.
        (0..count).map(|_| one(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::super::frames::Order;
    use super::*;

    #[test]
    fn garbage_is_an_error_and_never_a_panic_or_a_huge_allocation() {
        for garbage in [&[0xff; 64][..], &[5, 0, 0, 0, 0, 255, 255, 255, 255, 255]] {
            let mut inbox = Inbox { bytes: garbage.to_vec(), ..Inbox::default() };
            assert!(inbox.next::<Order>().is_err());
        }
    }

    #[test]
    fn descriptors_arrive_with_their_frame() {
        let (left, right) = UnixStream::pair().unwrap();
        let (read, write) = nix::unistd::pipe().unwrap();
        let bytes = Order::Launch(Box::default()).to_bytes();
        let sent = send(left.as_fd(), &bytes, &[read.as_raw_fd()]).unwrap();
        assert_eq!(sent, bytes.len());
        let mut inbox = Inbox::default();
        assert!(inbox.receive(right.as_fd()).unwrap());
        assert!(inbox.next::<Order>().unwrap().is_some());
        let arrived = inbox.next_fd().unwrap();
        nix::unistd::write(&write, b"x").unwrap();
        let mut byte = [0];
        nix::unistd::read(&arrived, &mut byte).unwrap();
        assert_eq!(&byte, b"x");
        drop(left);
        assert!(!inbox.receive(right.as_fd()).unwrap());
    }
}
