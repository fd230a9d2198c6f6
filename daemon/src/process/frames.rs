//! Owns the messages between supervisor, warden and guardians, and the bytes that stand for them. Sent and
//! received by `socket_task.rs`, `warden.rs` and `guardian.rs`. Every change of a message needs another
//! number of the protocol; see `handover_protocol.rs`.

use std::ffi::OsString;
use std::path::PathBuf;

use afresh_core::definition::StopSignal;

use super::wire::{Frame, FrameBody, enum_frame, struct_frame};

/// The order to start a program.
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
    /// The guardian holds the output open until the end of the instance is reported.
    pub(crate) holds_output: bool,
    /// Where it outlives its supervisor; the supervisor's ends of its pipes come as descriptors too.
    pub(crate) identity: Option<InstanceIdentity>,
}

/// Sent to a guardian.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GuardianOrder {
    /// Start a process; stdin, stdout and stderr come as descriptors.
    Launch(Box<Launch>),
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
        end: TreeEnd,
    },
    /// The first message to a new supervisor: what was retained for it. Its descriptors come beside it.
    Retained(Box<RetainedInstance>),
}

/// The end of the leader of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    Code(i32),
    Signal(i32),
}

/// A process that could not be killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Survivor {
    pub(crate) pid: u32,
    pub(crate) name: String,
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

/// The identity of an instance that outlives its supervisor, for the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InstanceIdentity {
    /// The name of its service.
    pub(crate) service: String,
    /// It is the current one of its service.
    pub(crate) current: bool,
    /// Its stdin is held open, too.
    pub(crate) stdin: bool,
}

/// An instance that has outlived its supervisor, or whose end no supervisor has been told.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RetainedInstance {
    /// The guardian's own process.
    pub(crate) guardian: u32,
    pub(crate) identity: InstanceIdentity,
    pub(crate) generation: u64,
    pub(crate) pid: u32,
    /// How long it has run, or ran.
    pub(crate) uptime_ms: u64,
    /// Its stop had begun.
    pub(crate) stopping: bool,
    pub(crate) end: Option<TreeEnd>,
    /// Which descriptors there are: stdin, stdout, stderr, the older and the newer file of output.
    pub(crate) descriptors: [bool; 5],
    /// Bytes of output that had no room.
    pub(crate) lost: u64,
}

/// The end of an instance and of its whole tree.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TreeEnd {
    pub(crate) leader: ProcessEnd,
    pub(crate) leftovers: u32,
    pub(crate) survivors: Vec<Survivor>,
}

/// Sent by the warden to a guardian that outlives its supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardianInvitation {
    /// There is a new supervisor; its socket comes as a descriptor.
    Connect,
    /// End the instance, in this time.
    End { grace_ms: u64 },
}

struct_frame!(Launch: generation, argv, env, cwd, open_files, holds_output, identity);
struct_frame!(Survivor: pid, name);
struct_frame!(InstanceIdentity: service, current, stdin);
struct_frame!(
    RetainedInstance: guardian, identity, generation, pid, uptime_ms, stopping, end, descriptors, lost
);
struct_frame!(TreeEnd: leader, leftovers, survivors);

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
    2 => Ended { generation: generation, end: end }
    3 => Hello { pid: pid }
    4 => Retained { 0: instance }
}

enum_frame! { ProcessEnd:
    0 => Code { 0: code }
    1 => Signal { 0: signal }
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
    1 => End { grace_ms: grace_ms }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::os::unix::ffi::OsStringExt;

    use super::*;
    use crate::process::wire::FrameReader;

    fn survives<F: Frame + PartialEq + Debug>(frame: &F) {
        let bytes = frame.to_bytes();
        let mut inbox = FrameReader::default();
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
            identity: Some(identity()),
        }
    }

    fn identity() -> InstanceIdentity {
        InstanceIdentity { service: "web".to_owned(), current: true, stdin: false }
    }

    fn retained(end: Option<TreeEnd>) -> GuardianReport {
        let descriptors = [false, true, true, false, true];
        let (guardian, generation, pid, identity) = (3, 7, 9, identity());
        let rest = RetainedInstance::default();
        GuardianReport::Retained(Box::new(RetainedInstance {
            guardian,
            generation,
            pid,
            identity,
            end,
            descriptors,
            ..rest
        }))
    }

    fn hex(frame: &impl Frame) -> String {
        frame.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A supervisor of the same protocol may be another build: the bytes stay as they are.
    #[test]
    fn the_bytes_of_a_frame_do_not_change() {
        let survivors = vec![Survivor { pid: 9, name: "sh".to_owned() }];
        let end = TreeEnd { leader: ProcessEnd::Signal(9), leftovers: 3, survivors };
        assert_eq!(
            hex(&GuardianReport::Ended { generation: 1, end }),
            "30000000020100000000000000\
             0109000000\
             0300000000000000\
             010000000000000009000000000000000200000000000000 7368"
                .replace(' ', "")
        );
        let (argv, cwd) = (vec!["a".into()], Some("/".into()));
        let launch = Launch { generation: 7, argv, cwd, ..Launch::default() };
        assert_eq!(
            hex(&GuardianOrder::Launch(Box::new(launch))),
            "2f000000000700000000000000\
             0100000000000000010000000000000061\
             0000000000000000\
             0101000000000000002f\
             000000"
        );
    }

    #[test]
    fn every_frame_survives_the_wire_byte_by_byte() {
        survives(&GuardianOrder::Launch(Box::new(launch())));
        survives(&GuardianOrder::Launch(Box::default()));
        StopSignal::ALL.into_iter().for_each(|signal| survives(&GuardianOrder::Terminate(signal)));
        survives(&GuardianOrder::Kill);
        let survivors = vec![Survivor { pid: 9, name: "sudo".to_owned() }];
        survives(&GuardianReport::Hello { pid: 2 });
        survives(&GuardianReport::Launched { generation: 1, pid: 2 });
        survives(&GuardianReport::LaunchFailed { generation: 1, errno: 2 });
        for end in [ProcessEnd::Code(-1), ProcessEnd::Signal(9)] {
            let end = TreeEnd { leader: end, leftovers: 3, survivors: survivors.clone() };
            survives(&GuardianReport::Ended { generation: 1, end: end.clone() });
            survives(&retained(Some(end)));
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
        survives(&GuardianInvitation::End { grace_ms: 5 });
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
