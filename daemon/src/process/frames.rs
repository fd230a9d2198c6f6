//! What supervisor, warden and guardians say to each other.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

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
}
