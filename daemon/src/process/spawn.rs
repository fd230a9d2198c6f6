//! Starts a program without a copy of ourselves: until it runs its program, the child borrows our
//! memory and we stand still, as with `vfork`.
//!
//! The standard library starts processes this way too, but not those that have to set their own
//! death signal. It forks for them, and the copy of a guardian's page tables, made and thrown away,
//! is half of what a restart costs on top of the bare system calls.
//!
//! Everything that needs memory is made before the child exists; the child makes system calls only.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::libc::{self, CLONE_VFORK, CLONE_VM, SIGCHLD};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getpid, setpgid};

use super::frames::Launch;
use super::os::die_with;
use crate::os::dispositions;

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
    let argv = Strings::new(launch.argv.iter().map(|word| c_string(&[word])))?;
    // Where a variable is given twice, the last one counts; programs would take the first.
    let env: BTreeMap<&OsString, &OsString> = launch.env.iter().map(|(k, v)| (k, v)).collect();
    let env =
        Strings::new(env.iter().map(|(name, value)| c_string(&[name, OsStr::new("="), value])))?;
    let cwd = launch.cwd.as_ref();
    let cwd = cwd.map(|cwd| c_string(&[cwd.as_os_str()])).transpose()?;
    if launch.argv.is_empty() {
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
    let mut stack: Vec<u128> = Vec::with_capacity(STACK_BYTES / 16 + launch.argv.len());
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
    use crate::process::os;
    use crate::store::TempDir;

    /// The tests have many threads, and a setup wants one: each is had in a process of its own.
    fn born(launch: &Launch) -> (String, Result<i32, i32>) {
        let (mut output, theirs) = os::pipe().unwrap();
        let errors = os::pipe().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        #[expect(unsafe_code, reason = "forks")]
        // SAFETY: the child starts one program and exits; it takes no lock that others hold but
        // that of malloc, which libc makes usable after a fork.
        let fork = unsafe { nix::unistd::fork() }.unwrap();
        let nix::unistd::ForkResult::Parent { child } = fork else {
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
        std::fs::File::from(std::mem::replace(&mut output, errors.0))
            .read_to_string(&mut text)
            .unwrap();
        let mut errno = [0; 4];
        let failed = std::fs::File::from(output).read_exact(&mut errno).is_ok();
        let status = waitpid(child, None).unwrap();
        let WaitStatus::Exited(_, code) = status else {
            panic!("{status:?}");
        };
        let result = if failed { Err(i32::from_le_bytes(errno)) } else { Ok(code) };
        (text, result)
    }

    fn launch(argv: &[&str]) -> Launch {
        Launch {
            argv: argv.iter().map(Into::into).collect(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            ..Launch::default()
        }
    }

    #[test]
    fn a_program_is_found_in_its_own_path_and_gets_its_own_environment() {
        let mut wanted = launch(&["sh", "-c", "echo $# $1 $X $(pwd); exit 3", "a", "b c"]);
        for value in ["not this", "y"] {
            wanted.env.push(("X".into(), value.into()));
        }
        wanted.cwd = Some("/".into());
        assert_eq!(born(&wanted), ("1 b c y /\n".to_owned(), Ok(3)));
        wanted.env[0].1 = "/nowhere".into();
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
        std::fs::write(&file, "echo no first line\n").unwrap();
        let path = file.to_str().unwrap();
        assert_eq!(born(&launch(&[path])).1, Err(libc::EACCES));
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(born(&launch(&[path])).0, "no first line\n");
        assert_eq!(born(&launch(&["/nowhere/at/all"])).1, Err(libc::ENOENT));
        assert_eq!(born(&launch(&[])).1, Err(libc::ENOENT));
        assert_eq!(born(&launch(&["a\0b"])).1, Err(libc::EINVAL));
        let mut nowhere = launch(&["true"]);
        nowhere.cwd = Some("/nowhere".into());
        assert_eq!(born(&nowhere).1, Err(libc::ENOENT));
    }
}
