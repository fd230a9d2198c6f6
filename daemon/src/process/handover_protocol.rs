//! How a warden that outlives its supervisor is visited: by the next supervisor, by one of another
//! version that only wants to have it ended, and by whoever looks.
//!
//! The warden greets, the visitor says what it wants. This is all that two versions of afresh have to
//! agree on for ever: fields are added at the end only.

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
use super::wire::{Frame, Inbox, Reader, Writer, send_all};

/// The form of everything that supervisor, warden and guardians say to each other, and of the files
/// of output. Another number for each change of it.
pub(super) const PROTOCOL: u64 = 1;

/// How a greeting begins.
const MAGIC: u64 = u64::from_le_bytes(*b"afresh\0k");

/// The warden's first word.
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

/// What a visitor wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// To be the supervisor.
    Adopt { protocol: u64 },
    /// That all is ended, in this time.
    End { grace_ms: u64 },
}

impl Frame for Greeting {
    fn write(&self, out: &mut Writer) {
        out.u64(MAGIC);
        out.u64(self.protocol);
        out.bytes(self.version.as_bytes());
        out.u64(u64::from(self.warden));
        out.bool(self.busy);
        out.u64(self.instances);
        out.u64(self.alone_ms);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        if input.u64()? != MAGIC {
            return None;
        }
        let greeting = Self {
            protocol: input.u64()?,
            version: input.string()?,
            warden: input.u32()?,
            busy: input.bool()?,
            instances: input.u64()?,
            alone_ms: input.u64()?,
        };
        // Later versions may have more to say.
        input.skip_rest();
        Some(greeting)
    }
}

impl Frame for Wish {
    fn write(&self, out: &mut Writer) {
        let (kind, number) = match self {
            Self::Adopt { protocol } => (1, protocol),
            Self::End { grace_ms } => (2, grace_ms),
        };
        out.u8(kind);
        out.u64(*number);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        let (kind, number) = (input.u8()?, input.u64()?);
        input.skip_rest();
        match kind {
            1 => Some(Self::Adopt { protocol: number }),
            2 => Some(Self::End { grace_ms: number }),
            _ => None,
        }
    }
}

/// A warden that answers.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) greeting: Greeting,
    pub(super) socket: UnixStream,
    pub(super) inbox: Inbox,
}

impl Visit {
    /// Visits the warden that listens in this folder; none where nobody does.
    pub(super) fn pay(folder: &Path) -> io::Result<Option<Self>> {
        let socket = match connect(folder) {
            Ok(socket) => socket,
            Err(error) if is_nobody(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        if os::peer(socket.as_fd())?.0 != Uid::effective().as_raw() {
            let text = "somebody else listens there";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        socket.set_read_timeout(Some(ADOPTION_WAIT))?;
        socket.set_write_timeout(Some(ADOPTION_WAIT))?;
        let mut inbox = Inbox::default();
        loop {
            if let Some(greeting) = inbox.next()? {
                return Ok(Some(Self { greeting, socket, inbox }));
            }
            match inbox.receive(socket.as_fd()) {
                Ok(true) => {}
                // It ends, or has just ended.
                Ok(false) => return Ok(None),
                Err(error) if is_nobody(&error) => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Says what is wanted.
    pub(super) fn wish(&self, wish: Wish) -> io::Result<()> {
        send_all(self.socket.as_fd(), &wish.to_bytes())
    }

    /// The next frame; none at the end.
    pub(super) fn next<F: Frame>(&mut self) -> io::Result<Option<F>> {
        next_frame(&self.socket, &mut self.inbox)
    }
}

/// Waits for the next frame on a socket that blocks; none at its end.
pub(super) fn next_frame<F: Frame>(
    socket: &UnixStream,
    inbox: &mut Inbox,
) -> io::Result<Option<F>> {
    loop {
        if let Some(frame) = inbox.next()? {
            return Ok(Some(frame));
        }
        match inbox.receive(socket.as_fd()) {
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

fn is_nobody(error: &io::Error) -> bool {
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
        let mut inbox = Inbox::default();
        bytes.iter().for_each(|byte| inbox.push(*byte));
        inbox.next()
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
        let wish = Wish::End { grace_ms: 5 };
        assert_eq!(hex(&wish.to_bytes()), "09000000020500000000000000");
        assert_eq!(read::<Wish>(&wish.to_bytes()).unwrap(), Some(wish));
        let wish = Wish::Adopt { protocol: 1 };
        assert_eq!(hex(&wish.to_bytes()), "09000000010100000000000000");
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
