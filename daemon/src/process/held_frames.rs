//! What is said of an instance that outlives its supervisor.

use super::frames::{End, Survivor, read_survivors, write_survivors};
use super::wire::{Frame, Reader, Writer};

/// What the next supervisor has to know of an instance that outlives this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The name of its service.
    pub(crate) service: String,
    /// It is the current one of its service.
    pub(crate) current: bool,
    /// Its stdin is held open, too.
    pub(crate) stdin: bool,
}

/// An instance that has outlived its supervisor, or whose end nobody has heard.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Held {
    /// The guardian's own process.
    pub(crate) guardian: u32,
    pub(crate) kept: Kept,
    pub(crate) generation: u64,
    pub(crate) pid: u32,
    /// How long it has run, or ran.
    pub(crate) uptime_ms: u64,
    /// Its stop had begun.
    pub(crate) stopping: bool,
    pub(crate) gone: Option<Gone>,
    /// Which descriptors there are: stdin, stdout, stderr, the older and the newer file of output.
    pub(crate) beside: [bool; 5],
    /// Bytes of output that had no room.
    pub(crate) lost: u64,
}

/// How an instance ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gone {
    pub(crate) end: End,
    pub(crate) leftovers: u32,
    pub(crate) survivors: Vec<Survivor>,
}

/// Said by the warden to a guardian of one that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invitation {
    /// There is a new supervisor; its socket comes as a descriptor.
    Connect,
    /// End what you guard, in this time.
    End { grace_ms: u64 },
}

impl Frame for Kept {
    fn write(&self, out: &mut Writer) {
        out.bytes(self.service.as_bytes());
        out.bool(self.current);
        out.bool(self.stdin);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(Self { service: input.string()?, current: input.bool()?, stdin: input.bool()? })
    }
}

impl Frame for Held {
    fn write(&self, out: &mut Writer) {
        out.u64(u64::from(self.guardian));
        self.kept.write(out);
        out.u64(self.generation);
        out.u64(u64::from(self.pid));
        out.u64(self.uptime_ms);
        out.bool(self.stopping);
        out.bool(self.gone.is_some());
        if let Some(gone) = &self.gone {
            gone.write(out);
        }
        self.beside.iter().for_each(|there| out.bool(*there));
        out.u64(self.lost);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            guardian: input.u32()?,
            kept: Kept::read(input)?,
            generation: input.u64()?,
            pid: input.u32()?,
            uptime_ms: input.u64()?,
            stopping: input.bool()?,
            gone: match input.bool()? {
                false => None,
                true => Some(Gone::read(input)?),
            },
            beside: [input.bool()?, input.bool()?, input.bool()?, input.bool()?, input.bool()?],
            lost: input.u64()?,
        })
    }
}

impl Frame for Gone {
    fn write(&self, out: &mut Writer) {
        let (kind, number) = match self.end {
            End::Code(code) => (0, code),
            End::Signal(signal) => (1, signal),
        };
        out.u8(kind);
        out.i32(number);
        out.u64(u64::from(self.leftovers));
        write_survivors(&self.survivors, out);
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            end: match input.u8()? {
                0 => End::Code(input.i32()?),
                1 => End::Signal(input.i32()?),
                _ => return None,
            },
            leftovers: input.u32()?,
            survivors: read_survivors(input)?,
        })
    }
}

impl Frame for Invitation {
    fn write(&self, out: &mut Writer) {
        match self {
            Self::Connect => out.u8(0),
            Self::End { grace_ms } => {
                out.u8(1);
                out.u64(*grace_ms);
            }
        }
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(match input.u8()? {
            0 => Self::Connect,
            1 => Self::End { grace_ms: input.u64()? },
            _ => return None,
        })
    }
}
