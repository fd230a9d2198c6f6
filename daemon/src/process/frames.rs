//! What supervisor, warden and guardians say to each other.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use afresh_core::definition::StopSignal;

pub(crate) use super::held_frames::{Gone, Held, Invitation, Kept};
use super::wire::{Frame, Reader, Writer};

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
    /// Nobody wants to hear that it closed its output before its end was told.
    pub(crate) holds_output: bool,
    /// It outlives its supervisor; our own ends of its pipes come as descriptors too.
    pub(crate) kept: Option<Kept>,
}

/// Said to a guardian.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Order {
    /// Start a process; stdin, stdout and stderr come as descriptors.
    Launch(Box<Launch>),
    /// This signal to the process and its group: it is to end.
    Terminate(StopSignal),
    /// SIGKILL to the whole tree.
    Kill,
    /// Whether the instance is the current one of its service, from now on.
    Current(bool),
    /// The stop of the instance begins: its stdin is not held any more.
    CloseStdin,
    /// The end of the instance was heard, and need not be remembered.
    Acknowledge,
    /// What was written down of the instance's output is passed on, and need not be kept.
    Taken,
    /// When this socket closes, it is meant: nothing outlives it.
    Forget,
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
        gone: Gone,
    },
    /// The first word to a new supervisor: what was kept for it. Its descriptors come beside it.
    Held(Box<Held>),
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WardenOrder {
    /// Outlive the supervisor: listen for the next one at the socket beside this, which has a path
    /// to be removed at the end. Output that nobody reads goes into files of this folder.
    Keep { socket: PathBuf, folder: PathBuf },
    /// When this socket closes, it is meant: outlive nobody.
    Leave,
    /// Make a guardian that listens on the descriptor beside this.
    Fork { guardian: u64 },
    /// End this guardian and all that it left; answer when all is gone.
    Bury { guardian: u64 },
}

/// Said by the warden.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WardenReport {
    ForkFailed {
        guardian: u64,
        errno: i32,
    },
    Buried {
        guardian: u64,
        survivors: Vec<Survivor>,
    },
    /// A guardian that is there; its socket comes as a descriptor.
    Guardian {
        guardian: u64,
    },
    /// Those were all. The lock and the listening socket come as descriptors.
    Given {
        next_guardian: u64,
    },
}

impl Frame for Order {
    fn write(&self, out: &mut Writer) {
        match self {
            Self::Launch(launch) => {
                out.u8(0);
                launch.write(out);
            }
            Self::Terminate(signal) => {
                out.u8(1);
                out.u8(index_of(*signal));
            }
            Self::Kill => out.u8(2),
            Self::Current(current) => {
                out.u8(3);
                out.bool(*current);
            }
            Self::CloseStdin => out.u8(4),
            Self::Acknowledge => out.u8(5),
            Self::Taken => out.u8(6),
            Self::Forget => out.u8(7),
        }
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(match input.u8()? {
            0 => Self::Launch(Box::new(Launch::read(input)?)),
            1 => Self::Terminate(*StopSignal::ALL.get(usize::from(input.u8()?))?),
            2 => Self::Kill,
            3 => Self::Current(input.bool()?),
            4 => Self::CloseStdin,
            5 => Self::Acknowledge,
            6 => Self::Taken,
            7 => Self::Forget,
            _ => return None,
        })
    }
}

fn index_of(signal: StopSignal) -> u8 {
    let index = StopSignal::ALL.iter().position(|other| *other == signal);
    index.and_then(|index| u8::try_from(index).ok()).unwrap_or_default()
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
        out.bool(self.holds_output);
        out.bool(self.kept.is_some());
        if let Some(kept) = &self.kept {
            kept.write(out);
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
            holds_output: input.bool()?,
            kept: match input.bool()? {
                false => None,
                true => Some(Kept::read(input)?),
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
            Self::Ended { generation, gone } => {
                out.u8(2);
                out.u64(*generation);
                gone.write(out);
            }
            Self::Held(held) => {
                out.u8(4);
                held.write(out);
            }
        }
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(match input.u8()? {
            0 => Self::Launched { generation: input.u64()?, pid: input.u32()? },
            1 => Self::LaunchFailed { generation: input.u64()?, errno: input.i32()? },
            2 => Self::Ended { generation: input.u64()?, gone: Gone::read(input)? },
            3 => Self::Hello { pid: input.u32()? },
            4 => Self::Held(Box::new(Held::read(input)?)),
            _ => return None,
        })
    }
}

impl Frame for WardenOrder {
    fn write(&self, out: &mut Writer) {
        match self {
            Self::Fork { guardian } => {
                out.u8(0);
                out.u64(*guardian);
            }
            Self::Bury { guardian } => {
                out.u8(1);
                out.u64(*guardian);
            }
            Self::Keep { socket, folder } => {
                out.u8(2);
                out.bytes(socket.as_os_str().as_bytes());
                out.bytes(folder.as_os_str().as_bytes());
            }
            Self::Leave => out.u8(3),
        }
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(match input.u8()? {
            0 => Self::Fork { guardian: input.u64()? },
            1 => Self::Bury { guardian: input.u64()? },
            2 => Self::Keep { socket: input.text()?.into(), folder: input.text()?.into() },
            3 => Self::Leave,
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
            Self::Guardian { guardian } => {
                out.u8(2);
                out.u64(*guardian);
            }
            Self::Given { next_guardian } => {
                out.u8(3);
                out.u64(*next_guardian);
            }
        }
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        Some(match input.u8()? {
            0 => Self::ForkFailed { guardian: input.u64()?, errno: input.i32()? },
            1 => Self::Buried { guardian: input.u64()?, survivors: read_survivors(input)? },
            2 => Self::Guardian { guardian: input.u64()? },
            3 => Self::Given { next_guardian: input.u64()? },
            _ => return None,
        })
    }
}

pub(super) fn write_survivors(survivors: &[Survivor], out: &mut Writer) {
    out.u64(survivors.len() as u64);
    for survivor in survivors {
        out.u64(u64::from(survivor.pid));
        out.bytes(survivor.name.as_bytes());
    }
}

pub(super) fn read_survivors(input: &mut Reader<'_>) -> Option<Vec<Survivor>> {
    input.many(|input| {
        let pid = input.u32()?;
        Some(Survivor { pid, name: String::from_utf8_lossy(input.bytes()?).into_owned() })
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::os::unix::ffi::OsStringExt;

    use super::super::wire::Inbox;
    use super::*;

    fn survives<F: Frame + PartialEq + Debug>(frame: &F) {
        let bytes = frame.to_bytes();
        let mut inbox = Inbox::default();
        for byte in &bytes[..bytes.len() - 1] {
            inbox.push(*byte);
            assert!(inbox.next::<F>().is_ok_and(|frame| frame.is_none()));
        }
        inbox.push(bytes[bytes.len() - 1]);
        assert_eq!(inbox.next::<F>().ok().flatten().as_ref(), Some(frame));
    }

    fn launch() -> Launch {
        Launch {
            generation: 7,
            argv: vec!["a".into(), OsString::from_vec(vec![0xff, 0xfe]), OsString::new()],
            env: vec![("K".into(), OsString::from_vec(vec![0x80]))],
            cwd: Some("/tmp".into()),
            open_files: Some((1024, 4096)),
            holds_output: true,
            kept: Some(kept()),
        }
    }

    fn kept() -> Kept {
        Kept { service: "web".to_owned(), current: true, stdin: false }
    }

    fn held(gone: Option<Gone>) -> Held {
        let beside = [false, true, true, false, true];
        Held { guardian: 3, kept: kept(), generation: 7, pid: 9, gone, beside, ..Held::default() }
    }

    #[test]
    fn every_frame_survives_the_wire_byte_by_byte() {
        survives(&Order::Launch(Box::new(launch())));
        survives(&Order::Launch(Box::default()));
        StopSignal::ALL.into_iter().for_each(|signal| survives(&Order::Terminate(signal)));
        survives(&Order::Kill);
        let survivors = vec![Survivor { pid: 9, name: "sudo".to_owned() }];
        survives(&Report::Hello { pid: 2 });
        survives(&Report::Launched { generation: 1, pid: 2 });
        survives(&Report::LaunchFailed { generation: 1, errno: 2 });
        for end in [End::Code(-1), End::Signal(9)] {
            let gone = Gone { end, leftovers: 3, survivors: survivors.clone() };
            survives(&Report::Ended { generation: 1, gone: gone.clone() });
            survives(&Report::Held(Box::new(held(Some(gone)))));
        }
        survives(&Report::Held(Box::new(held(None))));
        for order in [Order::Current(true), Order::CloseStdin, Order::Acknowledge] {
            survives(&order);
        }
        survives(&Order::Taken);
        survives(&Order::Forget);
        survives(&Invitation::Connect);
        survives(&Invitation::End { grace_ms: 5 });
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
}
