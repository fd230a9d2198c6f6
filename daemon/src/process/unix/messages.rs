//! Owns the messages between supervisor, warden and guardians, and the bytes that stand for them: length-prefixed
//! frames on a socket pair, with file descriptors beside them. Sent and received by `socket_task.rs`, `warden.rs` and
//! `guardian.rs`. Never blocks but in [`FrameSocket`].
//!
//! Both ends are the same binary, unless a supervisor takes over what another one left: then `handover.rs` compares
//! versions first, and every change of a message needs another number of [`PROTOCOL`]. Only [`Greeting`] and
//! [`VisitorRequest`] are understood by all versions for ever: fields are added at their end only. It is bytes, not
//! JSON, because arguments and environment are bytes.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use afresh_core::definition::StopSignal;
use afresh_core::id::Generation;
use afresh_core::service::Exit;
use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, recvmsg, sendmsg};

use super::os;
use crate::process::{Command, InstanceIdentity, Remains, RetainedInstance};

/// Frames never need more: stdin, stdout and stderr, theirs and ours.
const FDS_PER_MESSAGE_MAX: usize = 6;

/// A frame that says it is longer than this is garbage: `execve` itself refuses more.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The form of everything that supervisor, warden and guardians say to each other, and of the files
/// of output. Another number for each change of it.
pub(super) const PROTOCOL: u64 = 1;

/// A value that can be part of a frame, or all of it.
pub(crate) trait Frame: Sized {
    fn write(&self, out: &mut Vec<u8>);
    fn read(input: &mut &[u8]) -> Option<Self>;

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
    pub(super) bytes: Vec<u8>,
    fds: VecDeque<OwnedFd>,
}

impl FrameReader {
    /// Receives once. `Ok(false)` is the end of the stream.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let mut buffer = [0_u8; 8192];
        let mut space = cmsg_space!([RawFd; FDS_PER_MESSAGE_MAX]);
        let mut iov = [IoSliceMut::new(&mut buffer)];
        let number = socket.as_raw_fd();
        let message = recvmsg::<()>(number, &mut iov, Some(&mut space), os::RECEIVE_FLAGS)?;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(fds) = control {
                // SAFETY: the kernel has just put these descriptors into our table for us alone.
                #[expect(unsafe_code, reason = "descriptors arrive as numbers")]
                self.fds.extend(fds.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
                self.fds.iter().for_each(os::close_on_exec);
            }
        }
        let received = message.bytes;
        self.bytes.extend_from_slice(&buffer[..received]);
        Ok(received > 0)
    }

    /// The next whole frame, if it is here.
    pub(crate) fn next<F: Frame>(&mut self) -> io::Result<Option<F>> {
        let garbage = || io::Error::new(io::ErrorKind::InvalidData, "not a frame");
        let Some(header) = self.bytes.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*header) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(garbage());
        }
        let Some(body) = self.bytes.get(4..4 + length) else { return Ok(None) };
        let mut rest = body;
        let frame = F::read(&mut rest).filter(|_| rest.is_empty()).ok_or_else(garbage)?;
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
    Ok(sendmsg::<()>(socket.as_raw_fd(), &iov, control, os::SEND_FLAGS, None)?)
}

/// A socket that blocks, and what has arrived on it.
#[derive(Debug)]
pub(super) struct FrameSocket {
    pub(super) socket: UnixStream,
    pub(super) reader: FrameReader,
}

impl From<UnixStream> for FrameSocket {
    fn from(socket: UnixStream) -> Self {
        Self { socket, reader: FrameReader::default() }
    }
}

impl FrameSocket {
    /// Receives once; false at the end. One that was killed with frames unread leaves a reset, not an end.
    pub(super) fn receive(&mut self) -> bool {
        self.reader.receive(self.socket.as_fd()).unwrap_or(false)
    }

    /// Waits for the next frame; none at the end.
    pub(super) fn next<F: Frame>(&mut self) -> io::Result<Option<F>> {
        loop {
            if let Some(frame) = self.reader.next()? {
                return Ok(Some(frame));
            }
            match self.reader.receive(self.socket.as_fd()) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends all of it, with descriptors beside it.
    pub(super) fn send(&self, frame: &impl Frame, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let (frame, mut sent) = (frame.to_bytes(), 0);
        let mut fds: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        while sent < frame.len() {
            match send(self.socket.as_fd(), &frame[sent..], &fds) {
                Ok(length) => {
                    sent += length;
                    fds.clear();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Numbers, in little endian.
macro_rules! number_frames {
    ($($number:ty),*) => {$(
        impl Frame for $number {
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn read(input: &mut &[u8]) -> Option<Self> {
                Some(Self::from_le_bytes(input.split_off(..size_of::<Self>())?.try_into().ok()?))
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

            fn read(input: &mut &[u8]) -> Option<Self> {
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
    StopSignal as u8: |it| *it as u8, |read| Self::ALL.get(usize::from(read)).copied();
    Generation as u64: |it| it.0, |read| Some(Self(read));
    Duration as u64: |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX), |read| Some(Self::from_millis(read));
    Magic as u64: |_it| MAGIC, |read| (read == MAGIC).then_some(Self);
}

impl Frame for OsString {
    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u64).write(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn read(input: &mut &[u8]) -> Option<Self> {
        let length = usize::try_from(u64::read(input)?).ok()?;
        Some(Self::from_vec(input.split_off(..length)?.to_vec()))
    }
}

impl<T: Frame> Frame for Option<T> {
    fn write(&self, out: &mut Vec<u8>) {
        self.is_some().write(out);
        self.iter().for_each(|value| value.write(out));
    }

    fn read(input: &mut &[u8]) -> Option<Self> {
        Some(if bool::read(input)? { Some(T::read(input)?) } else { None })
    }
}

impl<T: Frame> Frame for Vec<T> {
    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u64).write(out);
        self.iter().for_each(|value| value.write(out));
    }

    fn read(input: &mut &[u8]) -> Option<Self> {
        // No capacity from a number that came over a wire.
        (0..u64::read(input)?).map(|_| T::read(input)).collect()
    }
}

impl<A: Frame, B: Frame> Frame for (A, B) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(input: &mut &[u8]) -> Option<Self> {
        Some((A::read(input)?, B::read(input)?))
    }
}

impl<T: Frame, const N: usize> Frame for [T; N] {
    fn write(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|value| value.write(out));
    }

    fn read(input: &mut &[u8]) -> Option<Self> {
        let values: Option<Vec<T>> = (0..N).map(|_| T::read(input)).collect();
        values?.try_into().ok()
    }
}

/// The fields of a struct, in the order in which they are written. `later` passes over the fields that a later
/// version may have added.
macro_rules! struct_frame {
    ($name:ident: $($field:ident),* $(; later $later:tt)?) => {
        impl Frame for $name {
            fn write(&self, out: &mut Vec<u8>) {
                $(self.$field.write(out);)*
            }

            fn read(input: &mut &[u8]) -> Option<Self> {
                let read = Self { $($field: Frame::read(input)?),* };
                $(*input = &$later;)?
                Some(read)
            }
        }
    };
}

/// The variants of an enum with the byte that stands for each, and their fields: numbers for those of a
/// tuple. `later` is as above.
macro_rules! enum_frame {
    ($name:ident $(; later $later:tt)?: $($tag:literal => $variant:ident { $($field:tt: $value:ident),* })*) => {
        impl Frame for $name {
            fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant { $($field: $value),* } => {
                        out.push($tag);
                        $($value.write(out);)*
                    })*
                }
            }

            fn read(input: &mut &[u8]) -> Option<Self> {
                let read = match u8::read(input)? {
                    $($tag => Self::$variant { $($field: Frame::read(input)?),* },)*
                    _ => return None,
                };
                $(*input = &$later;)?
                Some(read)
            }
        }
    };
}

/// The order to start a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Launch {
    /// The instance that it will be.
    pub(crate) generation: Generation,
    pub(crate) command: Command,
    /// The limit of open files that it must have: ours is raised.
    pub(crate) open_files: Option<(u64, u64)>,
    /// The guardian holds the output open until the end of the instance is reported.
    pub(crate) holds_output: bool,
    /// Where it outlives its supervisor; the supervisor's ends of its pipes come as descriptors too.
    pub(crate) identity: Option<InstanceIdentity>,
}

/// Sent to a guardian.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GuardianOrder {
    /// Start a process; stdin, stdout and stderr come as descriptors.
    Launch(Launch),
    /// This signal to the process and its group: it is to end.
    Terminate(StopSignal),
    /// SIGKILL to the whole tree.
    Kill,
    /// Whether the instance is the current one of its service, from now on.
    SetCurrent(bool),
    /// The stop of the instance begins: its stdin is not held any more.
    CloseStdin,
    /// The supervisor has dealt with the end of the instance: it need not be remembered.
    Acknowledge,
    /// The spooled output of the instance is passed on, and need not be kept.
    DiscardSpool,
    /// The supervisor ends in order: when this socket closes, nothing outlives it.
    Release,
}

/// Sent by a guardian.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GuardianReport {
    /// The first message: the guardian's own process.
    Hello { pid: u32 },
    /// The process runs.
    Launched { generation: Generation, pid: u32 },
    /// It could not be started.
    LaunchFailed { generation: Generation, errno: i32 },
    /// The process and its whole tree are gone.
    Ended { generation: Generation, exit: Exit, remains: Remains },
    /// The first message to a new supervisor: what was retained for it. Its descriptors come beside it.
    Retained(RetainedInstance),
}

/// Sent to the warden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WardenOrder {
    /// Outlive the supervisor: listen for the next one at the socket beside this, which has a path
    /// to be removed at the end. Output without a reader goes into files of this folder.
    Keep { socket: PathBuf, folder: PathBuf },
    /// The supervisor ends in order: when this socket closes, the warden ends too.
    Leave,
    /// Make a guardian that listens on the descriptor beside this.
    Fork { guardian: u64 },
    /// End this guardian and all that it left; answer when all is gone.
    Bury { guardian: u64 },
}

/// Sent by the warden.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WardenReport {
    /// The guardian could not be made.
    ForkFailed { guardian: u64, errno: i32 },
    /// The guardian and all that it left are gone, but for these.
    Buried { guardian: u64, survivors: Vec<(u32, String)> },
    /// A guardian that is there; its socket comes as a descriptor.
    Guardian { guardian: u64 },
    /// Those were all. The lock and the listening socket come as descriptors.
    Given { next_guardian: u64 },
}

/// Sent by the warden to a guardian that outlives its supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardianInvitation {
    /// There is a new supervisor; its socket comes as a descriptor.
    Connect,
    /// End the instance, in this time.
    End { grace: Duration },
}

/// The warden's first message to a visitor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(super) magic: Magic,
    /// See [`PROTOCOL`].
    pub(crate) protocol: u64,
    /// The version of afresh that it is of.
    pub(crate) version: String,
    /// Its process.
    pub(crate) warden: u32,
    /// There is a supervisor.
    pub(crate) busy: bool,
    /// How many instances it keeps.
    pub(crate) instances: u64,
    /// For how long there has been no supervisor.
    pub(crate) alone: Duration,
}

/// The beginning of a greeting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Magic;

const MAGIC: u64 = u64::from_le_bytes(*b"afresh\0k");

/// The request of a visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VisitorRequest {
    /// To be the supervisor.
    Adopt { protocol: u64 },
    /// That all is ended, in this time.
    End { grace: Duration },
}

struct_frame!(Launch: generation, command, open_files, holds_output, identity);
struct_frame!(Command: argv, env, cwd);
struct_frame!(Remains: leftovers, survivors);
struct_frame!(InstanceIdentity: service, current, stdin);
struct_frame!(
    RetainedInstance: guardian, identity, generation, pid, uptime, stopping, end, descriptors, lost
);
struct_frame!(Greeting: magic, protocol, version, warden, busy, instances, alone; later []);

enum_frame! { GuardianOrder:
    0 => Launch { 0: launch }
    1 => Terminate { 0: signal }
    2 => Kill {}
    3 => SetCurrent { 0: current }
    4 => CloseStdin {}
    5 => Acknowledge {}
    6 => DiscardSpool {}
    7 => Release {}
}

enum_frame! { GuardianReport:
    0 => Launched { generation: generation, pid: pid }
    1 => LaunchFailed { generation: generation, errno: errno }
    2 => Ended { generation: generation, exit: exit, remains: remains }
    3 => Hello { pid: pid }
    4 => Retained { 0: instance }
}

enum_frame! { Exit:
    0 => Code { 0: code }
    1 => Signal { 0: signal }
    2 => Unknown {}
}

enum_frame! { WardenOrder:
    0 => Fork { guardian: guardian }
    1 => Bury { guardian: guardian }
    2 => Keep { socket: socket, folder: folder }
    3 => Leave {}
}

enum_frame! { WardenReport:
    0 => ForkFailed { guardian: guardian, errno: errno }
    1 => Buried { guardian: guardian, survivors: survivors }
    2 => Guardian { guardian: guardian }
    3 => Given { next_guardian: next_guardian }
}

enum_frame! { GuardianInvitation:
    0 => Connect {}
    1 => End { grace: grace }
}

enum_frame! { VisitorRequest; later []:
    1 => Adopt { protocol: protocol }
    2 => End { grace: grace }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::os::fd::AsFd;
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::net::UnixStream;

    use super::*;

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
        let bytes = GuardianOrder::Launch(Launch::default()).to_bytes();
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

    fn survives<F: Frame + PartialEq + Debug>(frame: &F) {
        let bytes = frame.to_bytes();
        let mut inbox = FrameReader::default();
        for byte in &bytes[..bytes.len() - 1] {
            inbox.bytes.push(*byte);
            assert!(inbox.next::<F>().is_ok_and(|frame| frame.is_none()));
        }
        inbox.bytes.push(bytes[bytes.len() - 1]);
        assert_eq!(inbox.next::<F>().ok().flatten().as_ref(), Some(frame));
    }

    fn launch() -> Launch {
        Launch {
            generation: Generation(7),
            command: Command {
                argv: vec!["a".into(), OsString::from_vec(vec![0xff, 0xfe]), OsString::new()],
                env: vec![("K".into(), OsString::from_vec(vec![0x80]))],
                cwd: Some("/tmp".into()),
            },
            open_files: Some((1024, 4096)),
            holds_output: true,
            identity: Some(identity()),
        }
    }

    fn identity() -> InstanceIdentity {
        InstanceIdentity { service: "web".to_owned(), current: true, stdin: false }
    }

    fn retained(end: Option<(Exit, Remains)>) -> GuardianReport {
        let descriptors = [false, true, true, false, true];
        let (guardian, generation, pid, identity) = (3, Generation(7), 9, identity());
        let rest = RetainedInstance::default();
        GuardianReport::Retained(RetainedInstance {
            guardian,
            generation,
            pid,
            identity,
            end,
            descriptors,
            ..rest
        })
    }

    fn hex(frame: &impl Frame) -> String {
        frame.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A supervisor of the same protocol may be another build: the bytes stay as they are.
    #[test]
    fn the_bytes_of_a_frame_do_not_change() {
        let remains = Remains { leftovers: 3, survivors: vec![(9, "sh".to_owned())] };
        let (generation, exit) = (Generation(1), Exit::Signal(9));
        assert_eq!(
            hex(&GuardianReport::Ended { generation, exit, remains }),
            "30000000020100000000000000\
             0109000000\
             0300000000000000\
             010000000000000009000000000000000200000000000000 7368"
                .replace(' ', "")
        );
        let (argv, cwd) = (vec!["a".into()], Some("/".into()));
        let command = Command { argv, cwd, env: Vec::new() };
        let launch = Launch { generation: Generation(7), command, ..Launch::default() };
        assert_eq!(
            hex(&GuardianOrder::Launch(launch)),
            "2f000000000700000000000000\
             0100000000000000010000000000000061\
             0000000000000000\
             0101000000000000002f\
             000000"
        );
    }

    #[test]
    fn every_frame_survives_the_wire_byte_by_byte() {
        survives(&GuardianOrder::Launch(launch()));
        survives(&GuardianOrder::Launch(Launch::default()));
        StopSignal::ALL.into_iter().for_each(|signal| survives(&GuardianOrder::Terminate(signal)));
        survives(&GuardianOrder::Kill);
        let survivors = vec![(9, "sudo".to_owned())];
        survives(&GuardianReport::Hello { pid: 2 });
        survives(&GuardianReport::Launched { generation: Generation(1), pid: 2 });
        survives(&GuardianReport::LaunchFailed { generation: Generation(1), errno: 2 });
        for exit in [Exit::Code(-1), Exit::Signal(9)] {
            let remains = Remains { leftovers: 3, survivors: survivors.clone() };
            survives(&retained(Some((exit, remains.clone()))));
            survives(&GuardianReport::Ended { generation: Generation(1), exit, remains });
        }
        survives(&retained(None));
        for order in
            [GuardianOrder::SetCurrent(true), GuardianOrder::CloseStdin, GuardianOrder::Acknowledge]
        {
            survives(&order);
        }
        survives(&GuardianOrder::DiscardSpool);
        survives(&GuardianOrder::Release);
        survives(&GuardianInvitation::Connect);
        survives(&GuardianInvitation::End { grace: Duration::from_millis(5) });
        let (socket, folder) = ("/s".into(), "/f".into());
        survives(&WardenOrder::Keep { socket, folder });
        survives(&WardenOrder::Leave);
        survives(&WardenReport::Guardian { guardian: 4 });
        survives(&WardenReport::Given { next_guardian: 5 });
        survives(&WardenOrder::Fork { guardian: 1 });
        survives(&WardenOrder::Bury { guardian: 1 });
        survives(&WardenReport::ForkFailed { guardian: 1, errno: 11 });
        survives(&WardenReport::Buried { guardian: 1, survivors });
    }

    fn read<F: Frame>(bytes: &[u8]) -> io::Result<Option<F>> {
        let mut reader = FrameReader::default();
        reader.bytes.extend_from_slice(bytes);
        reader.next()
    }

    /// What this version sends, byte by byte: every later one has to understand it.
    #[test]
    fn what_versions_agree_on_does_not_change() {
        let greeting = Greeting {
            protocol: 1,
            version: "0.1.0".to_owned(),
            warden: 7,
            busy: true,
            instances: 2,
            alone: Duration::from_millis(3),
            ..Greeting::default()
        };
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let bytes = greeting.to_bytes();
        assert_eq!(
            hex(&bytes),
            "36000000\
             616672657368006b\
             0100000000000000\
             0500000000000000302e312e30\
             0700000000000000\
             01\
             0200000000000000\
             0300000000000000"
        );
        assert_eq!(read::<Greeting>(&bytes).unwrap(), Some(greeting));
        let request = VisitorRequest::End { grace: Duration::from_millis(5) };
        assert_eq!(hex(&request.to_bytes()), "09000000020500000000000000");
        assert_eq!(read::<VisitorRequest>(&request.to_bytes()).unwrap(), Some(request));
        let request = VisitorRequest::Adopt { protocol: 1 };
        assert_eq!(hex(&request.to_bytes()), "09000000010100000000000000");
    }

    #[test]
    fn a_greeting_that_says_more_is_understood_and_garbage_is_not() {
        let mut bytes = Greeting::default().to_bytes();
        bytes.extend([1, 2, 3]);
        bytes[0] += 3;
        assert_eq!(read::<Greeting>(&bytes).unwrap(), Some(Greeting::default()));
        bytes[5] ^= 1;
        assert!(read::<Greeting>(&bytes).is_err());
    }
}
