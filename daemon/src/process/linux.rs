//! Linux's part of the process layer: subreapers, death signals, signal descriptors, the list of children
//! in `/proc`, and cgroups. `macos.rs` has the same functions.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::libc::{SYS_clone3, SYS_close_range, clone_args, syscall};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{MsgFlags, getsockopt};
use nix::unistd::{ForkResult, Pid, SysconfVar, fork, getpid, getppid, pipe2, sysconf};

pub(super) use super::cgroup::Cgroup;
pub(super) use super::spawn::start;
use super::usage::TreeUsage;

/// From `linux/sched.h`; libc's constant of this name is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The flags to receive descriptors: never inherited by children.
pub(super) const RECEIVE_FLAGS: MsgFlags = MsgFlags::MSG_CMSG_CLOEXEC;

/// The flags to send frames: a reader that is gone is an error, not a signal.
pub(super) const SEND_FLAGS: MsgFlags = MsgFlags::MSG_NOSIGNAL;

/// The mechanism that keeps processes from outliving us, in words.
pub(crate) const MECHANISM: &str = "guardian: child subreaper, lifeline socket, parent-death signal; nothing outlives a SIGKILL of its supervisor";

/// This binary, also after it was replaced or removed on disk.
pub(crate) fn own_executable() -> io::Result<PathBuf> {
    let path = PathBuf::from("/proc/self/exe");
    if path.exists() { Ok(path) } else { std::env::current_exe() }
}

/// Our cgroup, and whether each service can have one of its own in it.
pub(crate) fn own_cgroup() -> Option<(PathBuf, bool)> {
    let own = Cgroup::own()?;
    // Made and removed again: only that shows whether it can be.
    Some((own.path().to_owned(), own.child(std::process::id(), u64::MAX).is_some()))
}

/// A pipe that no child inherits by accident: reading end, writing end.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe2(OFlag::O_CLOEXEC)?)
}

/// Nothing to do: [`RECEIVE_FLAGS`] say so already.
pub(super) fn close_on_exec(_received: &OwnedFd) {}

/// The user and the process at the other end of a socket, as the kernel says.
pub(super) fn peer(socket: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let peer = getsockopt(&socket, PeerCredentials)?;
    Ok((peer.uid(), peer.pid().cast_unsigned()))
}

/// A path to a file in a folder that is short enough for a socket, however long the folder's is.
pub(super) fn short_path(folder: &fs::File, name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd())))
}

/// Closes every descriptor but stdin, stdout and stderr: others were inherited by accident.
pub(super) fn close_inherited() {
    // SAFETY: called first thing in the warden, which owns no descriptor above these yet.
    #[expect(unsafe_code, reason = "closes descriptors by number")]
    let failed = unsafe { syscall(SYS_close_range, 3, u32::MAX, 0) } != 0;
    if failed {
        // Kernels before 5.9: one by one, as far as there are any.
        let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        for number in numbers.filter(|number| *number > 2).collect::<Vec<_>>() {
            // SAFETY: as above; the folder's own descriptor is closed by now.
            #[expect(unsafe_code, reason = "closes descriptors by number")]
            unsafe {
                nix::libc::close(number);
            }
        }
    }
}

/// Orphans among our descendants become our children.
pub(super) fn adopt_orphans() -> io::Result<()> {
    Ok(prctl::set_child_subreaper(true)?)
}

/// The calling process, just forked, is killed when `parent` dies.
///
/// The signal goes by the parent's thread; the warden and the guardians have only one, and it lasts.
pub(super) fn die_with(parent: Pid) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if getppid() != parent {
        // It died before the signal was set up.
        return Err(io::Error::from_raw_os_error(nix::libc::ESRCH));
    }
    Ok(())
}

/// Continues the calling process, if it is stopped, when its parent dies: a stopped guardian guards
/// nothing.
pub(super) fn wake_when_parent_dies() {
    // Without it, only a supervisor that dies while its warden is stopped leaves something.
    prctl::set_pdeathsig(Signal::SIGCONT).ok();
}

/// Forks, with the child born in `cgroup`. `None` is the child.
///
/// Moving a process into a cgroup later can take ten milliseconds; being born there costs nothing.
pub(super) fn fork_into(cgroup: Option<&Cgroup>) -> io::Result<Option<Pid>> {
    if let Some(folder) = cgroup.and_then(|cgroup| fs::File::open(cgroup.path()).ok()) {
        // SAFETY: all zero is a valid value of this plain struct.
        #[expect(unsafe_code, reason = "libc gives no other way to make one")]
        let mut arguments: clone_args = unsafe { std::mem::zeroed() };
        arguments.flags = CLONE_INTO_CGROUP;
        arguments.exit_signal = (Signal::SIGCHLD as i32).cast_unsigned().into();
        arguments.cgroup = folder.as_raw_fd().cast_unsigned().into();
        // SAFETY: without CLONE_VM this is a fork; the caller has one thread and holds no lock.
        #[expect(unsafe_code, reason = "a fork into a cgroup is a bare system call")]
        let pid = unsafe { syscall(SYS_clone3, &raw mut arguments, size_of::<clone_args>()) };
        match pid {
            0 => return Ok(None),
            1.. => return Ok(i32::try_from(pid).ok().map(Pid::from_raw)),
            // Old kernels and some sandboxes refuse clone3: a plain fork does.
            _ => {}
        }
    }
    // SAFETY: the caller has one thread, so the child may go on as it likes.
    #[expect(unsafe_code, reason = "forks")]
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

/// The name in `ps` and `top`.
pub(super) fn set_name(name: &std::ffi::CStr) {
    // Only for the eye: a kernel that refuses loses nothing.
    prctl::set_name(name).ok();
}

/// Wakes a `poll` when a child changes its state.
pub(super) struct ChildWatch(SignalFd);

impl ChildWatch {
    pub(super) fn new() -> io::Result<Self> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        mask.thread_block()?;
        Ok(Self(SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Forgets the wakeups so far.
    pub(super) fn clear(&mut self) {
        while let Ok(Some(_)) = self.0.read_signal() {}
    }
}

/// Whether `/proc` shows the processes by the numbers that we know them by: not in a PID namespace
/// that has no `/proc` of its own.
pub(super) fn can_list() -> bool {
    let shown = fs::read_link("/proc/self").ok();
    shown.is_some_and(|link| link.to_str() == Some(&getpid().to_string()))
}

/// The children of a process, as the kernel lists them; none where it is gone.
pub(super) fn children(pid: Pid) -> Vec<Pid> {
    if !can_list() {
        return Vec::new();
    }
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => {
                found.extend(
                    list.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw),
                );
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && kernel_hides_children() => {
                return children_by_scan(pid);
            }
            Err(_) => {}
        }
    }
    found
}

/// The name of a process, and whether it is more than a zombie.
pub(super) fn name_if_alive(pid: Pid) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, state, _) = parse_stat(&stat)?;
    (!matches!(state, 'Z' | 'X')).then(|| name.to_owned())
}

/// The usage of one process; none where it is gone.
///
/// Memory is what is resident. Pages that processes share are counted for each of them: to find out
/// their parts, the kernel would walk through all of their memory.
pub(super) fn usage(pid: Pid) -> Option<TreeUsage> {
    if !can_list() {
        return None;
    }
    parse_usage(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Every process that can be seen: itself, its parent, and what it uses. One walk, however many are looked
/// for; none where it would show others.
pub(super) fn table() -> Option<Vec<(Pid, Pid, TreeUsage)>> {
    let all = can_list().then(|| fs::read_dir("/proc")).and_then(Result::ok)?;
    let row = |name: &str| {
        let pid = name.parse::<i32>().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, _, parent) = parse_stat(&stat)?;
        Some((Pid::from_raw(pid), Pid::from_raw(parent), parse_usage(&stat)?))
    };
    Some(all.flatten().filter_map(|entry| row(entry.file_name().to_str()?)).collect())
}

fn parse_usage(stat: &str) -> Option<TreeUsage> {
    let (_, after) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after.split_whitespace().collect();
    // Counted from the state, which is the third field of proc_pid_stat(5): utime, stime, and the
    // same of the children that were waited for; then the resident pages.
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = [11, 12, 13, 14]
        .into_iter()
        .try_fold(0_u64, |sum, index| Some(sum.saturating_add(number(index)?)))?;
    let per_second = sysconf_or(SysconfVar::CLK_TCK, 100);
    let cpu_time = Duration::from_millis(ticks.saturating_mul(1_000) / per_second);
    let memory_bytes = number(21)?.saturating_mul(sysconf_or(SysconfVar::PAGE_SIZE, 4_096));
    Some(TreeUsage { memory_bytes, cpu_time })
}

fn sysconf_or(variable: SysconfVar, usual: u64) -> u64 {
    let found = sysconf(variable).ok().flatten().and_then(|value| u64::try_from(value).ok());
    found.filter(|value| *value > 0).unwrap_or(usual)
}

/// Whether the kernel was built without `/proc/PID/task/TID/children`.
fn kernel_hides_children() -> bool {
    let me = getpid();
    !fs::exists(format!("/proc/{me}/task/{me}/children")).unwrap_or(true)
}

fn children_by_scan(parent: Pid) -> Vec<Pid> {
    let Ok(all) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| parse_stat(&stat).is_some_and(|(_, _, ppid)| ppid == parent.as_raw()))
    })
    .map(Pid::from_raw)
    .collect()
}

/// Name, state and parent; the name may hold blanks and brackets, so the last bracket ends it.
fn parse_stat(stat: &str) -> Option<(&str, char, i32)> {
    let (before, after) = stat.rsplit_once(')')?;
    let name = before.split_once('(')?.1;
    let mut fields = after.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((name, state, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_confuse() {
        assert_eq!(parse_stat("7 (a) b) R 3 x"), Some(("a) b", 'R', 3)));
        assert_eq!(parse_stat("7 (a"), None);
    }

    #[test]
    fn usage_is_read_from_the_right_fields() {
        let stat = "7 (a) b) R 3 4 5 6 7 8 9 10 11 12 100 50 30 20 17 18 19 20 21 22 23 24";
        let found = parse_usage(stat).unwrap();
        let page = sysconf_or(SysconfVar::PAGE_SIZE, 0);
        let ticks = sysconf_or(SysconfVar::CLK_TCK, 0);
        assert_eq!(found.memory_bytes, 23 * page);
        assert_eq!(found.cpu_time, Duration::from_millis(200 * 1_000 / ticks));
        for bad in ["", "7 (a) R", &stat.replace(" 23", " -1"), &stat.replace("100", "x")] {
            assert!(parse_usage(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn both_ways_to_list_children_agree() {
        let mut child =
            std::process::Command::new("sleep").arg("60").spawn().expect("every system has sleep");
        let pid = Pid::from_raw(child.id().cast_signed());
        assert!(children(getpid()).contains(&pid));
        assert!(children_by_scan(getpid()).contains(&pid));
        assert!(name_if_alive(pid).is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children(getpid()).contains(&pid));
        assert_eq!(name_if_alive(pid), None);
    }
}
