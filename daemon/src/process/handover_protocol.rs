//! Owns the first exchange with a warden that outlives its supervisor: the warden greets, the visitor sends
//! one request. Visitors are the next supervisor, one of another version that has the services ended, and
//! commands that look. Never reads the messages that follow; `frames.rs` has those.
//!
//! This is all that two versions of afresh have to agree on for ever: fields are added at the end only.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use afresh_core::limits::ADOPTION_WAIT;
use nix::unistd::Uid;

use super::handover_folder::SOCKET;
use super::os;
use super::wire::{Frame, FrameBody, FrameReader, send_all};

/// The form of everything that supervisor, warden and guardians say to each other, and of the files
/// of output. Another number for each change of it.
pub(super) const PROTOCOL: u64 = 1;

/// The beginning of a greeting.
const MAGIC: u64 = u64::from_le_bytes(*b"afresh\0k");

/// The warden's first message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Greeting {
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
    pub(crate) alone_ms: u64,
}

/// The request of a visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VisitorRequest {
    /// To be the supervisor.
    Adopt { protocol: u64 },
    /// That all is ended, in this time.
    End { grace_ms: u64 },
}

impl Frame for Greeting {
    fn write(&self, out: &mut Vec<u8>) {
        MAGIC.write(out);
        self.protocol.write(out);
        self.version.write(out);
        self.warden.write(out);
        self.busy.write(out);
        self.instances.write(out);
        self.alone_ms.write(out);
    }

    fn read(input: &mut FrameBody<'_>) -> Option<Self> {
        u64::read(input).filter(|magic| *magic == MAGIC)?;
        let greeting = Self {
            protocol: Frame::read(input)?,
            version: Frame::read(input)?,
            warden: Frame::read(input)?,
            busy: Frame::read(input)?,
            instances: Frame::read(input)?,
            alone_ms: Frame::read(input)?,
        };
        // Later versions may add fields.
        input.skip_rest();
        Some(greeting)
    }
}

impl Frame for VisitorRequest {
    fn write(&self, out: &mut Vec<u8>) {
        let (kind, number) = match self {
            Self::Adopt { protocol } => (1_u8, protocol),
            Self::End { grace_ms } => (2, grace_ms),
        };
        kind.write(out);
        number.write(out);
    }

    fn read(input: &mut FrameBody<'_>) -> Option<Self> {
        let (kind, number) = <(u8, u64)>::read(input)?;
        input.skip_rest();
        match kind {
            1 => Some(Self::Adopt { protocol: number }),
            2 => Some(Self::End { grace_ms: number }),
            _ => None,
        }
    }
}

/// A connection to a warden that has greeted.
#[derive(Debug)]
pub(super) struct WardenConnection {
    pub(super) greeting: Greeting,
    pub(super) socket: UnixStream,
    pub(super) reader: FrameReader,
}

impl WardenConnection {
    /// Connects to the warden that listens in this folder; none where there is none.
    pub(super) fn open(folder: &Path) -> io::Result<Option<Self>> {
        let socket = match connect(folder) {
            Ok(socket) => socket,
            Err(error) if is_unreachable(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        if os::peer(socket.as_fd())?.0 != Uid::effective().as_raw() {
            let text = "somebody else listens there";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        socket.set_read_timeout(Some(ADOPTION_WAIT))?;
        socket.set_write_timeout(Some(ADOPTION_WAIT))?;
        let mut reader = FrameReader::default();
        match next_frame(&socket, &mut reader) {
            Ok(Some(greeting)) => Ok(Some(Self { greeting, socket, reader })),
            // It ends, or has just ended.
            Ok(None) => Ok(None),
            Err(error) if is_unreachable(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends the request.
    pub(super) fn request(&self, request: VisitorRequest) -> io::Result<()> {
        send_all(self.socket.as_fd(), &request.to_bytes())
    }

    /// The next frame; none at the end.
    pub(super) fn next<F: Frame>(&mut self) -> io::Result<Option<F>> {
        next_frame(&self.socket, &mut self.reader)
    }
}

/// Waits for the next frame on a socket that blocks; none at its end.
pub(super) fn next_frame<F: Frame>(
    socket: &UnixStream,
    reader: &mut FrameReader,
) -> io::Result<Option<F>> {
    loop {
        if let Some(frame) = reader.next()? {
            return Ok(Some(frame));
        }
        match reader.receive(socket.as_fd()) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

fn connect(folder: &Path) -> io::Result<UnixStream> {
    let open = File::open(folder)?;
    let path = os::short_path(&open, SOCKET).unwrap_or_else(|| folder.join(SOCKET));
    UnixStream::connect(path)
}

fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
    matches!(error.kind(), NotFound | ConnectionRefused | ConnectionReset | BrokenPipe)
}

/// A duration in milliseconds, as frames have it.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<F: Frame>(bytes: &[u8]) -> io::Result<Option<F>> {
        let mut reader = FrameReader::default();
        bytes.iter().for_each(|byte| reader.push(*byte));
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
            alone_ms: 3,
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
        let request = VisitorRequest::End { grace_ms: 5 };
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
