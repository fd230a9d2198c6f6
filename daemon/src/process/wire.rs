//! What supervisor, warden and guardians say to each other: length-prefixed frames on a socket
//! pair, with file descriptors beside them.
//!
//! Both ends are the same binary, so the form needs no version. It is bytes, not JSON, because
//! arguments and environment are bytes.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Frames never need more: stdin, stdout and stderr.
const FDS_PER_MESSAGE_MAX: usize = 3;

/// A frame that says it is longer than this is garbage: `execve` itself refuses more.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What is to be run, and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Launch {
    /// The instance that it will be.
    pub(crate) generation: u64,
    /// The program and its arguments.
    pub(crate) argv: Vec<OsString>,
    /// The whole environment.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// The folder it starts in.
    pub(crate) cwd: Option<PathBuf>,
    /// The limit of open files that it must have: ours is raised.
    pub(crate) open_files: Option<(u64, u64)>,
}

/// Said to a guardian.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Order {
    /// Start a process; stdin, stdout and stderr come as descriptors.
    Launch(Box<Launch>),
    /// SIGTERM to the process and its group.
    Terminate,
    /// SIGKILL to the whole tree.
    Kill,
}

/// Said by a guardian.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Report {
    /// The first word: the guardian's own process.
    Hello {
        pid: u32,
    },
    Launched {
        generation: u64,
        pid: u32,
    },
    LaunchFailed {
        generation: u64,
        errno: i32,
    },
    /// The process and its whole tree are gone.
    Ended {
        generation: u64,
        end: End,
        leftovers: u32,
        survivors: Vec<Survivor>,
    },
}

/// How the leader of the tree ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Code(i32),
    Signal(i32),
}

/// A process that could not be killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Survivor {
    pub(crate) pid: u32,
    pub(crate) name: String,
}

/// Said to the warden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WardenOrder {
    /// Make a guardian that listens on the descriptor beside this.
    Fork { guardian: u64 },
    /// End this guardian and all that it left; answer when all is gone.
    Bury { guardian: u64 },
}

/// Said by the warden.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WardenReport {
    ForkFailed { guardian: u64, errno: i32 },
    Buried { guardian: u64, survivors: Vec<Survivor> },
}

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
    let flags = MsgFlags::MSG_NOSIGNAL;
    Ok(sendmsg::<()>(socket.as_raw_fd(), &iov, control, flags, None)?)
}

/// Sends all of it on a socket that blocks.
pub(crate) fn send_all(socket: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match send(socket, bytes, &[]) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(crate) struct Writer(Vec<u8>);

impl Writer {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn i32(&mut self, value: i32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
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

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn i32(&mut self) -> Option<i32> {
        Some(i32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        u32::try_from(self.u64()?).ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u64()?).ok()?;
        self.take(length)
    }

    fn text(&mut self) -> Option<OsString> {
        Some(OsString::from_vec(self.bytes()?.to_vec()))
    }

    fn many<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u64()?;
        // No capacity from a number that came over a wire.
        (0..count).map(|_| one(self)).collect()
    }
}

impl Frame for Order {
    fn write(&self, out: &mut Writer) {
        match self {
            Self::Launch(launch) => {
                out.u8(0);
                launch.write(out);
            }
            Self::Terminate => out.u8(1),
            Self::Kill => out.u8(2),
        }
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(match input.u8()? {
            0 => Self::Launch(Box::new(Launch::read(input)?)),
            1 => Self::Terminate,
            2 => Self::Kill,
            _ => return None,
        })
    }
}

impl Frame for Launch {
    fn write(&self, out: &mut Writer) {
        out.u64(self.generation);
        out.u64(self.argv.len() as u64);
        for argument in &self.argv {
            out.bytes(argument.as_bytes());
        }
        out.u64(self.env.len() as u64);
        for (name, value) in &self.env {
            out.bytes(name.as_bytes());
            out.bytes(value.as_bytes());
        }
        out.u8(u8::from(self.cwd.is_some()));
        if let Some(cwd) = &self.cwd {
            out.bytes(cwd.as_os_str().as_bytes());
        }
        out.u8(u8::from(self.open_files.is_some()));
        if let Some((soft, hard)) = self.open_files {
            out.u64(soft);
            out.u64(hard);
        }
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            generation: input.u64()?,
            argv: input.many(Reader::text)?,
            env: input.many(|input| Some((input.text()?, input.text()?)))?,
            cwd: match input.u8()? {
                0 => None,
                _ => Some(PathBuf::from(input.text()?)),
            },
            open_files: match input.u8()? {
                0 => None,
                _ => Some((input.u64()?, input.u64()?)),
            },
        })
    }
}

impl Frame for Report {
    fn write(&self, out: &mut Writer) {
        match self {
            Self::Hello { pid } => {
                out.u8(3);
                out.u64(u64::from(*pid));
            }
            Self::Launched { generation, pid } => {
                out.u8(0);
                out.u64(*generation);
                out.u64(u64::from(*pid));
            }
            Self::LaunchFailed { generation, errno } => {
                out.u8(1);
                out.u64(*generation);
                out.i32(*errno);
            }
            Self::Ended { generation, end, leftovers, survivors } => {
                out.u8(2);
                out.u64(*generation);
                let (kind, number) = match end {
                    End::Code(code) => (0, *code),
                    End::Signal(signal) => (1, *signal),
                };
                out.u8(kind);
                out.i32(number);
                out.u64(u64::from(*leftovers));
                write_survivors(survivors, out);
            }
        }
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(match input.u8()? {
            0 => Self::Launched { generation: input.u64()?, pid: input.u32()? },
            1 => Self::LaunchFailed { generation: input.u64()?, errno: input.i32()? },
            2 => Self::Ended {
                generation: input.u64()?,
                end: match input.u8()? {
                    0 => End::Code(input.i32()?),
                    1 => End::Signal(input.i32()?),
                    _ => return None,
                },
                leftovers: input.u32()?,
                survivors: read_survivors(input)?,
            },
            3 => Self::Hello { pid: input.u32()? },
            _ => return None,
        })
    }
}

impl Frame for WardenOrder {
    fn write(&self, out: &mut Writer) {
        let (kind, guardian) = match self {
            Self::Fork { guardian } => (0, guardian),
            Self::Bury { guardian } => (1, guardian),
        };
        out.u8(kind);
        out.u64(*guardian);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(match input.u8()? {
            0 => Self::Fork { guardian: input.u64()? },
            1 => Self::Bury { guardian: input.u64()? },
            _ => return None,
        })
    }
}

impl Frame for WardenReport {
    fn write(&self, out: &mut Writer) {
        match self {
            Self::ForkFailed { guardian, errno } => {
                out.u8(0);
                out.u64(*guardian);
                out.i32(*errno);
            }
            Self::Buried { guardian, survivors } => {
                out.u8(1);
                out.u64(*guardian);
                write_survivors(survivors, out);
            }
        }
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(match input.u8()? {
            0 => Self::ForkFailed { guardian: input.u64()?, errno: input.i32()? },
            1 => Self::Buried { guardian: input.u64()?, survivors: read_survivors(input)? },
            _ => return None,
        })
    }
}

fn write_survivors(survivors: &[Survivor], out: &mut Writer) {
    out.u64(survivors.len() as u64);
    for survivor in survivors {
        out.u64(u64::from(survivor.pid));
        out.bytes(survivor.name.as_bytes());
    }
}

fn read_survivors(input: &mut Reader<'_>) -> Option<Vec<Survivor>> {
    input.many(|input| {
        let pid = input.u32()?;
        Some(Survivor { pid, name: String::from_utf8_lossy(input.bytes()?).into_owned() })
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn survives<F: Frame + PartialEq + Debug>(frame: &F) {
        let bytes = frame.to_bytes();
        let mut inbox = Inbox::default();
        for byte in &bytes[..bytes.len() - 1] {
            inbox.bytes.push(*byte);
            assert!(inbox.next::<F>().is_ok_and(|frame| frame.is_none()));
        }
        inbox.bytes.push(bytes[bytes.len() - 1]);
        assert_eq!(inbox.next::<F>().ok().flatten().as_ref(), Some(frame));
    }

    fn launch() -> Launch {
        Launch {
            generation: 7,
            argv: vec!["a".into(), OsString::from_vec(vec![0xff, 0xfe]), OsString::new()],
            env: vec![("K".into(), OsString::from_vec(vec![0x80]))],
            cwd: Some("/tmp".into()),
            open_files: Some((1024, 4096)),
        }
    }

    #[test]
    fn every_frame_survives_the_wire_byte_by_byte() {
        survives(&Order::Launch(Box::new(launch())));
        survives(&Order::Launch(Box::default()));
        survives(&Order::Terminate);
        survives(&Order::Kill);
        let survivors = vec![Survivor { pid: 9, name: "sudo".to_owned() }];
        survives(&Report::Hello { pid: 2 });
        survives(&Report::Launched { generation: 1, pid: 2 });
        survives(&Report::LaunchFailed { generation: 1, errno: 2 });
        for end in [End::Code(-1), End::Signal(9)] {
            let survivors = survivors.clone();
            survives(&Report::Ended { generation: 1, end, leftovers: 3, survivors });
        }
        survives(&WardenOrder::Fork { guardian: 1 });
        survives(&WardenOrder::Bury { guardian: 1 });
        survives(&WardenReport::ForkFailed { guardian: 1, errno: 11 });
        survives(&WardenReport::Buried { guardian: 1, survivors });
    }

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
        let bytes = Order::Launch(Box::new(launch())).to_bytes();
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
