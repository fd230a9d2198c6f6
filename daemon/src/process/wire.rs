//! Owns the encoding between supervisor, warden and guardians: length-prefixed frames on a socket pair,
//! with file descriptors beside them. Used by `frames.rs`, which has the messages. Never blocks but in
//! [`send_all`] and [`send_with`].
//!
//! Both ends are the same binary, unless a supervisor takes over what another one left: then
//! `handover_protocol.rs` compares versions first. It is bytes, not JSON, because arguments and
//! environment are bytes.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use afresh_core::definition::StopSignal;
use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, recvmsg, sendmsg};

/// Frames never need more: stdin, stdout and stderr, theirs and ours.
const FDS_PER_MESSAGE_MAX: usize = 6;

/// A frame that says it is longer than this is garbage: `execve` itself refuses more.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A value that can be part of a frame, or all of it.
pub(crate) trait Frame: Sized {
    fn write(&self, out: &mut Vec<u8>);
    fn read(input: &mut FrameBody<'_>) -> Option<Self>;

    /// The whole frame, length first.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        self.write(&mut bytes);
        let length = u32::try_from(bytes.len() - 4).expect("a frame is far below 4 GiB");
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    }
}

/// Takes bytes and descriptors as they come, and gives whole frames.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    bytes: Vec<u8>,
    fds: VecDeque<OwnedFd>,
}

impl FrameReader {
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
        let mut body = FrameBody(body);
        let frame = F::read(&mut body).filter(|_| body.0.is_empty()).ok_or_else(garbage)?;
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

/// The rest of a frame that is being read.
pub(crate) struct FrameBody<'a>(&'a [u8]);

impl<'a> FrameBody<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Passes over the fields that a later version may have added.
    pub(super) const fn skip_rest(&mut self) {
        self.0 = &[];
    }
}

/// Numbers, in little endian.
macro_rules! number_frames {
    ($($number:ty),*) => {$(
        impl Frame for $number {
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn read(input: &mut FrameBody<'_>) -> Option<Self> {
                Some(Self::from_le_bytes(input.take(size_of::<Self>())?.try_into().ok()?))
            }
        }
    )*};
}

number_frames!(u8, u64, i32);

/// Values that are written as another type.
macro_rules! frames_as {
    ($($value:ty as $written:ty: |$out:ident| $to:expr, |$in:ident| $from:expr;)*) => {$(
        impl Frame for $value {
            fn write(&self, out: &mut Vec<u8>) {
                let $out = self;
                <$written as Frame>::write(&$to, out);
            }

            fn read(input: &mut FrameBody<'_>) -> Option<Self> {
                let $in = <$written as Frame>::read(input)?;
                $from
            }
        }
    )*};
}

frames_as! {
    u32 as u64: |it| u64::from(*it), |read| Self::try_from(read).ok();
    bool as u8: |it| u8::from(*it), |read| Some(read != 0);
    String as OsString: |it| OsString::from(it), |read| Some(read.to_string_lossy().into_owned());
    PathBuf as OsString: |it| it.clone().into_os_string(), |read| Some(read.into());
    StopSignal as u8: |it| index_of(*it), |read| Self::ALL.get(usize::from(read)).copied();
}

fn index_of(signal: StopSignal) -> u8 {
    let index = StopSignal::ALL.iter().position(|other| *other == signal);
    index.and_then(|index| u8::try_from(index).ok()).unwrap_or_default()
}

impl Frame for OsString {
    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u64).write(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn read(input: &mut FrameBody<'_>) -> Option<Self> {
        let length = usize::try_from(u64::read(input)?).ok()?;
        Some(Self::from_vec(input.take(length)?.to_vec()))
    }
}

impl<T: Frame> Frame for Option<T> {
    fn write(&self, out: &mut Vec<u8>) {
        self.is_some().write(out);
        self.iter().for_each(|value| value.write(out));
    }

    fn read(input: &mut FrameBody<'_>) -> Option<Self> {
        Some(if bool::read(input)? { Some(T::read(input)?) } else { None })
    }
}

impl<T: Frame> Frame for Vec<T> {
    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u64).write(out);
        self.iter().for_each(|value| value.write(out));
    }

    fn read(input: &mut FrameBody<'_>) -> Option<Self> {
        // No capacity from a number that came over a wire.
        (0..u64::read(input)?).map(|_| T::read(input)).collect()
    }
}

impl<A: Frame, B: Frame> Frame for (A, B) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(input: &mut FrameBody<'_>) -> Option<Self> {
        Some((A::read(input)?, B::read(input)?))
    }
}

impl<T: Frame, const N: usize> Frame for [T; N] {
    fn write(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|value| value.write(out));
    }

    fn read(input: &mut FrameBody<'_>) -> Option<Self> {
        let values: Option<Vec<T>> = (0..N).map(|_| T::read(input)).collect();
        values?.try_into().ok()
    }
}

impl<T: Frame> Frame for Box<T> {
    fn write(&self, out: &mut Vec<u8>) {
        T::write(self, out);
    }

    fn read(input: &mut FrameBody<'_>) -> Option<Self> {
        T::read(input).map(Self::new)
    }
}

/// The fields of a struct, in the order in which they are written.
macro_rules! struct_frame {
    ($name:ident: $($field:ident),*) => {
        impl Frame for $name {
            fn write(&self, out: &mut Vec<u8>) {
                $(self.$field.write(out);)*
            }

            fn read(input: &mut FrameBody<'_>) -> Option<Self> {
                Some(Self { $($field: Frame::read(input)?),* })
            }
        }
    };
}

/// The variants of an enum with the byte that stands for each, and their fields: numbers for those of a
/// tuple.
macro_rules! enum_frame {
    ($name:ident: $($tag:literal => $variant:ident { $($field:tt: $value:ident),* })*) => {
        impl Frame for $name {
            fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant { $($field: $value),* } => {
                        out.push($tag);
                        $($value.write(out);)*
                    })*
                }
            }

            fn read(input: &mut FrameBody<'_>) -> Option<Self> {
                match u8::read(input)? {
                    $($tag => Some(Self::$variant { $($field: Frame::read(input)?),* }),)*
                    _ => None,
                }
            }
        }
    };
}

pub(super) use {enum_frame, struct_frame};

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::process::frames::GuardianOrder;

    #[test]
    fn garbage_is_an_error_and_never_a_panic_or_a_huge_allocation() {
        for garbage in [&[0xff; 64][..], &[5, 0, 0, 0, 0, 255, 255, 255, 255, 255]] {
            let mut inbox = FrameReader { bytes: garbage.to_vec(), ..FrameReader::default() };
            assert!(inbox.next::<GuardianOrder>().is_err());
        }
    }

    #[test]
    fn descriptors_arrive_with_their_frame() {
        let (left, right) = UnixStream::pair().unwrap();
        let (read, write) = nix::unistd::pipe().unwrap();
        let bytes = GuardianOrder::Launch(Box::default()).to_bytes();
        let sent = send(left.as_fd(), &bytes, &[read.as_raw_fd()]).unwrap();
        assert_eq!(sent, bytes.len());
        let mut inbox = FrameReader::default();
        assert!(inbox.receive(right.as_fd()).unwrap());
        assert!(inbox.next::<GuardianOrder>().unwrap().is_some());
        let arrived = inbox.next_fd().unwrap();
        nix::unistd::write(&write, b"x").unwrap();
        let mut byte = [0];
        nix::unistd::read(&arrived, &mut byte).unwrap();
        assert_eq!(&byte, b"x");
        drop(left);
        assert!(!inbox.receive(right.as_fd()).unwrap());
    }
}
