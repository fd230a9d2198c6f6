//! Linux's part of the process layer: subreapers, death signals, signal descriptors, the list of children in `/proc`,
//! a cgroup for each guardian where the kernel and our rights allow one, and the start of a program. `macos.rs` has the
//! same functions. Never decides.
//!
//! `cgroup.kill` ends a guardian and its whole tree at one stroke, fork bombs included: on top of the subreapers, never
//! instead of them, as most places have no cgroup that we may write.
//!
//! A program is started without a copy of ourselves: until it runs its program, the child borrows our memory and we
//! stand still, as with `vfork`. The standard library starts processes this way too, but not those that have to set
//! their own death signal. It forks for them, and the copy of a guardian's page tables, made and thrown away, is half
//! of what a restart costs on top of the bare system calls. Everything that needs memory is made before the child
//! exists; the child makes system calls only.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc::{
    self, CLONE_VFORK, CLONE_VM, SIGCHLD, SYS_clone3, SYS_close_range, clone_args, syscall,
};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{MsgFlags, getsockopt};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, SysconfVar, fork, getpid, getppid, pipe2, setpgid, sysconf};

use super::guardian::GUARDIAN;
use super::messages::Launch;
use crate::os::{dispositions, pids};
use crate::process::TreeUsage;

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
pub(super) fn short_path(folder: &impl AsFd, name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_fd().as_raw_fd())))
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
                libc::close(number);
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
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
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
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => {
                let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
                found.extend(pids.map(Pid::from_raw));
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
    let row = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, _, parent) = parse_stat(&stat)?;
        Some((Pid::from_raw(pid.cast_signed()), Pid::from_raw(parent), parse_usage(&stat)?))
    };
    can_list().then(|| pids().filter_map(row).collect())
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
    let is_child = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| parse_stat(&stat).is_some_and(|(_, _, ppid)| ppid == parent.as_raw()))
    };
    pids().filter(is_child).map(|pid| Pid::from_raw(pid.cast_signed())).collect()
}

/// Name, state and parent; the name may hold blanks and brackets, so the last bracket ends it.
fn parse_stat(stat: &str) -> Option<(&str, char, i32)> {
    let (before, after) = stat.rsplit_once(')')?;
    let name = before.split_once('(')?.1;
    let mut fields = after.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((name, state, fields.next()?.parse().ok()?))
}

/// A cgroup (version 2) that we may use.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
    /// We made it, so we remove it.
    made: bool,
}

impl Cgroup {
    /// The cgroup that this process is in, if children can be made in it and killed.
    pub(crate) fn own() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        Self::find(&mounts, &own).filter(|cgroup| cgroup.path.join("cgroup.procs").exists())
    }

    /// The mount point is wherever it is: in the usual place, or beside version 1.
    fn find(mounts: &str, own: &str) -> Option<Self> {
        let is_v2 = |line: &&str| line.split(' ').nth(2) == Some("cgroup2");
        let mount = mounts.lines().find(is_v2)?.split(' ').nth(1)?;
        let inside = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
        Some(Self { path: Path::new(mount).join(inside), made: false })
    }

    /// Ends what supervisors that were killed together with all around them have left here.
    ///
    /// Only those of our own PID namespace: in another one their numbers mean other processes. And
    /// none of a supervisor that lives: its guardians may have lost their warden, not their work. Nor
    /// one with a guardian in it: its supervisor is another one by now, or it is about to go.
    pub(crate) fn clean(&self) {
        let Some(ours) = namespace() else { return };
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let parts: Vec<&str> = name.to_str().unwrap_or_default().split('-').collect();
            let ["afresh", namespace, supervisor, warden, _] = parts[..] else { continue };
            // A warden that outlives its supervisor is giving the services their grace.
            let lives = |pid: &str| Path::new("/proc").join(pid).exists();
            let is_left = namespace == ours && !lives(supervisor) && !lives(warden);
            if is_left && !has_guardian(&entry.path()) {
                let left = Self { path: entry.path(), made: true };
                left.kill();
            }
        }
    }

    /// A new cgroup inside this one; `None` where that is not allowed.
    pub(crate) fn child(&self, supervisor: u32, number: u64) -> Option<Self> {
        let warden = std::process::id();
        let name = format!("afresh-{}-{supervisor}-{warden}-{number}", namespace()?);
        let path = self.path.join(name);
        fs::create_dir(&path).ok()?;
        let child = Self { path, made: true };
        // Kernels before 5.14 have no `cgroup.kill`; without it there is no use for it.
        child.path.join("cgroup.kill").exists().then_some(child)
    }

    /// Kills everything inside.
    pub(crate) fn kill(&self) {
        // Where it fails, the sweep does the same more slowly.
        fs::write(self.path.join("cgroup.kill"), "1").ok();
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if self.made {
            // What was killed a moment ago may still be going. What cannot be killed keeps it, and
            // the next warden tries again.
            for _ in 0..20 {
                match remove_empty(&self.path) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    _ => return,
                }
            }
        }
    }
}

/// Whether a guardian is alive in a cgroup.
fn has_guardian(path: &Path) -> bool {
    let inside = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    let mut pids = inside.lines().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw);
    pids.any(|pid| name_if_alive(pid).is_some_and(|name| name.as_bytes() == GUARDIAN.to_bytes()))
}

/// Removes a cgroup and those inside it: a service may be an afresh itself.
fn remove_empty(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_empty(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}

/// The PID namespace that the numbers of processes belong to; `None` where `/proc` shows another.
fn namespace() -> Option<String> {
    let link = can_list().then(|| fs::read_link("/proc/self/ns/pid").ok())??;
    let text = link.to_str()?;
    Some(text.strip_prefix("pid:[")?.strip_suffix(']')?.to_owned())
}

/// What the child's few calls need, with room to spare; `execvp` puts a path together on it, and for
/// a script without a first line that names its shell, the arguments too.
const STACK_BYTES: usize = 64 * 1024;

#[expect(unsafe_code, reason = "a global of libc")]
unsafe extern "C" {
    /// Where `execvp` finds PATH and the environment of what it runs.
    static mut environ: *const *const c_char;
}

/// Starts the process as the leader of its own group. The caller has one thread, and no handler for
/// a signal.
pub(super) fn start(launch: &Launch, stdio: [OwnedFd; 3]) -> io::Result<Pid> {
    let argv = Strings::new(launch.command.argv.iter().map(|word| c_string(&[word])))?;
    // Where a variable is given twice, the last one counts; programs would take the first.
    let env: BTreeMap<&OsString, &OsString> =
        launch.command.env.iter().map(|(k, v)| (k, v)).collect();
    let env =
        Strings::new(env.iter().map(|(name, value)| c_string(&[name, OsStr::new("="), value])))?;
    let cwd = launch.command.cwd.as_ref();
    let cwd = cwd.map(|cwd| c_string(&[cwd.as_os_str()])).transpose()?;
    if launch.command.argv.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    let mut setup = ChildSetup {
        argv: &argv,
        env: &env,
        cwd: cwd.as_ref(),
        stdio: stdio.each_ref().map(AsRawFd::as_raw_fd),
        guardian: getpid(),
        open_files: launch.open_files,
        ignored: dispositions::ignored(),
        failure: None,
    };
    // Of 16 bytes each, as a stack is aligned; never touched by us, so it costs what the child uses.
    let mut stack: Vec<u128> = Vec::with_capacity(STACK_BYTES / 16 + launch.command.argv.len());
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    let flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
    #[expect(unsafe_code, reason = "a bare system call, and a global of libc")]
    // SAFETY: with CLONE_VFORK we stand still until the child has left our memory, so `setup` and
    // the stack outlive its use of them, and with one thread no other code sees `environ` change.
    let pid = unsafe {
        let before = environ;
        let pid = libc::clone(run_child, top.cast(), flags, (&raw mut setup).cast());
        environ = before;
        pid
    };
    let pid = Pid::from_raw(Errno::result(pid)?);
    match setup.failure {
        None => Ok(pid),
        Some(failure) => {
            // It never ran its program: its end is not reported.
            waitpid(pid, None).ok();
            Err(failure.into())
        }
    }
}

/// All that the child needs to know, in memory that is ours.
struct ChildSetup<'a> {
    argv: &'a Strings,
    env: &'a Strings,
    cwd: Option<&'a CString>,
    stdio: [RawFd; 3],
    guardian: Pid,
    open_files: Option<(u64, u64)>,
    ignored: &'static [i32],
    /// Written by the child where it could not become the program.
    failure: Option<Errno>,
}

extern "C" fn run_child(setup: *mut c_void) -> c_int {
    #[expect(unsafe_code, reason = "the argument of a C function is a bare pointer")]
    // SAFETY: `start` passes a `ChildSetup` and does not touch it before we are done.
    let setup = unsafe { &mut *setup.cast::<ChildSetup<'_>>() };
    let Err(failure) = setup.become_program();
    setup.failure = Some(failure);
    #[expect(unsafe_code, reason = "`exit` would run our own handlers")]
    // SAFETY: ends the calling process, and leaves the memory that it shares as it is.
    unsafe {
        libc::_exit(127)
    }
}

impl ChildSetup<'_> {
    /// Returns only when it fails.
    fn become_program(&self) -> Result<std::convert::Infallible, Errno> {
        for (target, source) in (0..).zip(self.stdio) {
            #[expect(unsafe_code, reason = "makes the three descriptors of a new process")]
            // SAFETY: replaces descriptors of the child, whose table is a copy of ours.
            Errno::result(unsafe { libc::dup2(source, target) })?;
        }
        if let Some(cwd) = self.cwd {
            nix::unistd::chdir(cwd.as_c_str())?;
        }
        setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
        die_with(self.guardian)
            .and_then(|()| dispositions::reset(self.ignored))
            .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
        if let Some((soft, hard)) = self.open_files {
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
        }
        let argv = self.argv.as_ptr();
        #[expect(unsafe_code, reason = "runs the program, looked for in its own PATH")]
        // SAFETY: both lists end with null, and hold strings that live until the program runs.
        unsafe {
            environ = self.env.as_ptr();
            libc::execvp(*argv, argv);
        }
        Err(Errno::last())
    }
}

/// Strings as C wants a list of them.
struct Strings {
    pointers: Vec<*const c_char>,
    _owned: Vec<CString>,
}

impl Strings {
    fn new(strings: impl Iterator<Item = io::Result<CString>>) -> io::Result<Self> {
        let owned: Vec<CString> = strings.collect::<io::Result<_>>()?;
        let end = std::iter::once(std::ptr::null());
        // Moving a `CString` does not move its bytes.
        let pointers = owned.iter().map(|string| string.as_ptr()).chain(end);
        Ok(Self { pointers: pointers.collect(), _owned: owned })
    }

    fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

fn c_string(parts: &[&OsStr]) -> io::Result<CString> {
    let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
    let bytes = parts.concat();
    CString::new(bytes).map_err(|_nul| Errno::EINVAL.into())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    use nix::sys::wait::WaitStatus;

    use super::*;
    use crate::process::Command;
    use crate::store::TempDir;

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

    #[test]
    fn the_mount_is_found_wherever_it_is() {
        let hybrid = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = Cgroup::find(hybrid, "1:cpu:/x\n0::/a/b\n").map(|cgroup| cgroup.path.clone());
        assert_eq!(found, Some(PathBuf::from("/sys/fs/cgroup/unified/a/b")));
        assert!(Cgroup::find("cgroup / cgroup rw 0 0", "0::/").is_none());
        assert!(Cgroup::find(hybrid, "1:cpu:/x\n").is_none());
    }

    /// The tests have many threads, and a setup wants one: each is had in a process of its own.
    fn born(launch: &Launch) -> (String, Result<i32, i32>) {
        let (mut output, theirs) = pipe().unwrap();
        let errors = pipe().unwrap();
        let null = fs::File::open("/dev/null").unwrap();
        #[expect(unsafe_code, reason = "forks")]
        // SAFETY: the child starts one program and exits; it takes no lock that others hold but
        // that of malloc, which libc makes usable after a fork.
        let fork = unsafe { fork() }.unwrap();
        let ForkResult::Parent { child } = fork else {
            let stdio = [null.into(), theirs.try_clone().unwrap(), theirs];
            let code = match start(launch, stdio) {
                Ok(pid) => match waitpid(pid, None) {
                    Ok(WaitStatus::Exited(_, code)) => code,
                    _ => 99,
                },
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(0).to_le_bytes();
                    nix::unistd::write(&errors.1, &errno).ok();
                    0
                }
            };
            #[expect(unsafe_code, reason = "ends a forked process")]
            // SAFETY: ends the process without running what belongs to the tests.
            unsafe {
                libc::_exit(code)
            }
        };
        drop((theirs, errors.1));
        let mut text = String::new();
        fs::File::from(std::mem::replace(&mut output, errors.0)).read_to_string(&mut text).unwrap();
        let mut errno = [0; 4];
        let failed = fs::File::from(output).read_exact(&mut errno).is_ok();
        let status = waitpid(child, None).unwrap();
        let WaitStatus::Exited(_, code) = status else {
            panic!("{status:?}");
        };
        let result = if failed { Err(i32::from_le_bytes(errno)) } else { Ok(code) };
        (text, result)
    }

    fn launch(argv: &[&str]) -> Launch {
        let argv = argv.iter().map(Into::into).collect();
        let env = vec![("PATH".into(), "/usr/bin:/bin".into())];
        Launch { command: Command { argv, env, cwd: None }, ..Launch::default() }
    }

    #[test]
    fn a_program_is_found_in_its_own_path_and_gets_its_own_environment() {
        let mut wanted = launch(&["sh", "-c", "echo $# $1 $X $(pwd); exit 3", "a", "b c"]);
        for value in ["not this", "y"] {
            wanted.command.env.push(("X".into(), value.into()));
        }
        wanted.command.cwd = Some("/".into());
        assert_eq!(born(&wanted), ("1 b c y /\n".to_owned(), Ok(3)));
        wanted.command.env[0].1 = "/nowhere".into();
        assert_eq!(born(&wanted).1, Err(libc::ENOENT));
    }

    #[test]
    fn it_leads_its_group_with_all_signals_at_their_default() {
        let script = "read -r line < /proc/self/stat; set -- $line; [ $1 = $5 ] && \
                      grep -E '^Sig(Blk|Ign)' /proc/self/status";
        let (text, result) = born(&launch(&["sh", "-c", script]));
        let standard = |line: &str| {
            let hex = line.split_whitespace().nth(1).unwrap();
            // Beyond 31 are the real-time signals; some belong to libc, which does not let them be set.
            u64::from_str_radix(hex, 16).unwrap() & 0x7fff_ffff
        };
        assert_eq!(text.lines().map(standard).collect::<Vec<_>>(), [0, 0]);
        assert_eq!(result, Ok(0));
    }

    #[test]
    fn what_cannot_run_says_why() {
        let dir = TempDir::new();
        let file = dir.join("script");
        fs::write(&file, "echo no first line\n").unwrap();
        let path = file.to_str().unwrap();
        assert_eq!(born(&launch(&[path])).1, Err(libc::EACCES));
        fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(born(&launch(&[path])).0, "no first line\n");
        assert_eq!(born(&launch(&["/nowhere/at/all"])).1, Err(libc::ENOENT));
        assert_eq!(born(&launch(&[])).1, Err(libc::ENOENT));
        assert_eq!(born(&launch(&["a\0b"])).1, Err(libc::EINVAL));
        let mut nowhere = launch(&["true"]);
        nowhere.command.cwd = Some("/nowhere".into());
        assert_eq!(born(&nowhere).1, Err(libc::ENOENT));
    }
}
