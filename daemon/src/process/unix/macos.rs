//! The same functions as `linux.rs`, with the best that macOS and the BSDs allow.
//!
//! There is no subreaper and no parent-death signal: the lifeline socket and the process group
//! carry all of it, so a grandchild that left the group *and* lost its parent before the end is
//! not found. `afresh doctor` says so.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::event::{EvFlags, EventFilter, FilterFlag, KEvent, Kqueue};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::socket::sockopt::{LocalPeerCred, LocalPeerPid};
use nix::sys::socket::{MsgFlags, getsockopt};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};

use super::messages::Launch;
use crate::os::dispositions;
use crate::process::TreeUsage;

/// The flags to receive descriptors; there is no flag to close them on exec here.
pub(super) const RECEIVE_FLAGS: MsgFlags = MsgFlags::empty();

/// The flags to send frames. There is no flag against SIGPIPE; Rust's runtime ignores it, and so do
/// our forks.
pub(super) const SEND_FLAGS: MsgFlags = MsgFlags::empty();

/// The mechanism that keeps processes from outliving us, in words.
pub(crate) const MECHANISM: &str = "guardian: lifeline socket and process group; a detached grandchild can survive SIGKILL of afresh";

/// This binary.
pub(crate) fn own_executable() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// There are no cgroups.
pub(crate) fn own_cgroup() -> Option<(PathBuf, bool)> {
    None
}

/// A pipe that no child inherits by accident: reading end, writing end.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = nix::unistd::pipe()?;
    for end in [&read, &write] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    }
    Ok((read, write))
}

/// Received descriptors are not inherited by accident.
pub(super) fn close_on_exec(received: &OwnedFd) {
    fcntl(received, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok();
}

/// The user and the process at the other end of a socket, as the kernel says.
pub(super) fn peer(socket: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let user = getsockopt(&socket, LocalPeerCred)?.uid();
    Ok((user, getsockopt(&socket, LocalPeerPid)?.cast_unsigned()))
}

/// There is no shorter path to a file than its own.
pub(super) fn short_path(_folder: &impl AsFd, _name: &str) -> Option<PathBuf> {
    None
}

/// Closes every descriptor but stdin, stdout and stderr: others were inherited by accident.
pub(super) fn close_inherited() {
    for number in 3..1024 {
        // SAFETY: called first thing in the warden, which owns no descriptor above these yet.
        #[expect(unsafe_code, reason = "closes descriptors by number")]
        unsafe {
            nix::libc::close(number);
        }
    }
}

/// Nothing here adopts orphans.
pub(super) fn adopt_orphans() -> io::Result<()> {
    Ok(())
}

/// No signal comes with a parent's death; the guardian's own end covers the usual case.
pub(super) fn die_with(parent: Pid) -> io::Result<()> {
    if getppid() == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(nix::libc::ESRCH)) }
}

/// Nothing here tells of a parent's death.
pub(super) fn wake_when_parent_dies() {}

/// Starts the process as the leader of its own group.
pub(super) fn start(launch: &Launch, [stdin, stdout, stderr]: [OwnedFd; 3]) -> io::Result<Pid> {
    let Some((program, arguments)) = launch.command.argv.split_first() else {
        return Err(io::Error::from_raw_os_error(nix::libc::ENOENT));
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(launch.command.env.iter().map(|(k, v)| (k, v)));
    command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr));
    command.process_group(0);
    if let Some(cwd) = &launch.command.cwd {
        command.current_dir(cwd);
    }
    let guardian = getpid();
    let open_files = launch.open_files;
    let ignored = dispositions::ignored();
    let prepare = move || {
        die_with(guardian)?;
        dispositions::reset(ignored)?;
        if let Some((soft, hard)) = open_files {
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
        }
        Ok(())
    };
    #[expect(unsafe_code, reason = "the death signal can be set only by the child itself")]
    // SAFETY: runs between fork and exec of a single-threaded process, and only makes system calls.
    unsafe {
        command.pre_exec(prepare);
    }
    let child = command.spawn()?;
    Ok(Pid::from_raw(child.id().cast_signed()))
}

/// There are no cgroups.
pub(super) enum Cgroup {}

impl Cgroup {
    pub(super) fn own() -> Option<Self> {
        None
    }

    pub(super) fn clean(&self) {}

    pub(super) fn child(&self, _supervisor: u32, _number: u64) -> Option<Self> {
        None
    }

    pub(super) fn kill(&self) {}
}

/// Forks. `None` is the child.
pub(super) fn fork_into(_cgroup: Option<&Cgroup>) -> io::Result<Option<Pid>> {
    // SAFETY: the caller has one thread, so the child may go on as it likes.
    #[expect(unsafe_code, reason = "forks")]
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

/// Names of processes cannot be changed here.
pub(super) fn set_name(_name: &CStr) {}

/// Wakes a `poll` when a child changes its state.
pub(super) struct ChildWatch(Kqueue);

impl ChildWatch {
    pub(super) fn new() -> io::Result<Self> {
        let queue = Kqueue::new()?;
        let number = Signal::SIGCHLD as usize;
        let flags = EvFlags::EV_ADD | EvFlags::EV_CLEAR;
        let event =
            KEvent::new(number, EventFilter::EVFILT_SIGNAL, flags, FilterFlag::empty(), 0, 0);
        queue.kevent(&[event], &mut [], Some(nix::libc::timespec { tv_sec: 0, tv_nsec: 0 }))?;
        Ok(Self(queue))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Forgets the wakeups so far.
    pub(super) fn clear(&mut self) {
        let none = nix::libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events = [KEvent::new(
            0,
            EventFilter::EVFILT_SIGNAL,
            EvFlags::empty(),
            FilterFlag::empty(),
            0,
            0,
        )];
        while let Ok(1..) = self.0.kevent(&[], &mut events, Some(none)) {}
    }
}

/// The kernel lists processes itself.
pub(super) fn can_list() -> bool {
    true
}

/// The children of a process, as the kernel lists them; none where it is gone.
pub(super) fn children(pid: Pid) -> Vec<Pid> {
    let mut pids = vec![0_i32; 4096];
    let bytes = i32::try_from(pids.len() * size_of::<i32>()).expect("a small number");
    // SAFETY: the kernel writes at most `bytes` into the buffer that lives until after the call.
    #[expect(unsafe_code, reason = "libproc has no safe face")]
    let count =
        unsafe { nix::libc::proc_listchildpids(pid.as_raw(), pids.as_mut_ptr().cast(), bytes) };
    pids.truncate(usize::try_from(count).unwrap_or(0));
    pids.into_iter().filter(|pid| *pid > 0).map(Pid::from_raw).collect()
}

/// The name of a process, and whether it is more than a zombie.
pub(super) fn name_if_alive(pid: Pid) -> Option<String> {
    let mut path = vec![0_u8; 4096];
    let bytes = u32::try_from(path.len()).expect("a small number");
    // SAFETY: the kernel writes at most `bytes` into the buffer that lives until after the call.
    #[expect(unsafe_code, reason = "libproc has no safe face")]
    let length = unsafe { nix::libc::proc_pidpath(pid.as_raw(), path.as_mut_ptr().cast(), bytes) };
    // A zombie has no path any more.
    path.truncate(usize::try_from(length).ok().filter(|length| *length > 0)?);
    let path = String::from_utf8_lossy(&path).into_owned();
    Some(Path::new(&path).file_name()?.to_string_lossy().into_owned())
}

/// Every process that can be seen. Here each is asked for its children, which costs no walk.
pub(super) fn table() -> Option<Vec<(Pid, Pid, TreeUsage)>> {
    None
}

/// The usage of one process; none where it is gone, or is another user's.
#[expect(deprecated, reason = "a crate for one call is one too many")]
pub(super) fn usage(pid: Pid) -> Option<TreeUsage> {
    // SAFETY: all zero is a valid value of this plain struct.
    #[expect(unsafe_code, reason = "libc gives no other way to make one")]
    let mut found: nix::libc::proc_taskinfo = unsafe { std::mem::zeroed() };
    let bytes = i32::try_from(size_of_val(&found)).expect("a small number");
    let (kind, place) = (nix::libc::PROC_PIDTASKINFO, (&raw mut found).cast());
    // SAFETY: the kernel writes at most `bytes` into the struct that lives until after the call.
    #[expect(unsafe_code, reason = "libproc has no safe face")]
    let length = unsafe { nix::libc::proc_pidinfo(pid.as_raw(), kind, 0, place, bytes) };
    let mut scale = nix::libc::mach_timebase_info { numer: 0, denom: 0 };
    // SAFETY: the kernel writes two numbers, into a struct that outlives the call.
    #[expect(unsafe_code, reason = "the times are in units that only the kernel knows")]
    let failed = unsafe { nix::libc::mach_timebase_info(&raw mut scale) } != 0;
    if length != bytes || failed || scale.denom == 0 {
        return None;
    }
    let units = u128::from(found.pti_total_user) + u128::from(found.pti_total_system);
    let nanos = units * u128::from(scale.numer) / u128::from(scale.denom);
    let cpu_time = Duration::from_nanos(u64::try_from(nanos).ok()?);
    Some(TreeUsage { memory_bytes: found.pti_resident_size, cpu_time })
}
