//! Tells when a process above us ends that could not tell us: npx, uvx or a launcher, by SIGKILL. Linux has a descriptor of
//! a process for it; elsewhere a kqueue is one. Which processes count is decided in core.

use std::io;
use std::os::fd::OwnedFd;
use std::task::Poll;

use afresh_core::launchers::{Ancestor, StartedBy};
use nix::errno::Errno;
use nix::unistd::{Pid, getppid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The processes whose end is ours.
pub(crate) struct Launchers {
    running: Vec<OwnedFd>,
    /// One had ended before it could be watched.
    has_ended: bool,
}

impl Launchers {
    /// Looks for them above this process. One that cannot be watched is not: our stdin may end all the same.
    pub(crate) fn find(started_by: StartedBy) -> Self {
        let mut found = Self { running: Vec::new(), has_ended: false };
        for pid in started_by.watched(ancestors()) {
            match process_end(Pid::from_raw(pid.cast_signed())) {
                Ok(end) => found.running.push(end),
                Err(error) => found.has_ended |= error.raw_os_error() == Some(Errno::ESRCH as i32),
            }
        }
        found
    }

    /// For a loop that polls: each can be read from when its process has ended. None where one has ended already.
    pub(super) fn into_descriptors(self) -> Option<Vec<OwnedFd>> {
        (!self.has_ended).then_some(self.running)
    }
}

/// The same, for a loop with a runtime.
#[derive(Default)]
pub(super) struct LauncherEnds {
    running: Vec<AsyncFd<OwnedFd>>,
    has_ended: bool,
}

impl LauncherEnds {
    pub(super) fn new(launchers: Launchers) -> io::Result<Self> {
        let watch = |end| {
            #[expect(
                unsafe_code,
                reason = "tokio asks for an open descriptor, which no safe type vouches for"
            )]
            // SAFETY: it is owned, and the same one until it is dropped.
            unsafe {
                AsyncFd::register_with_interest(end, Interest::READABLE)
            }
        };
        let running = launchers.running.into_iter().map(watch).collect::<Result<_, _>>()?;
        Ok(Self { running, has_ended: launchers.has_ended })
    }

    /// Returns when one of them has ended, and never again. Cancel safe.
    pub(super) async fn next(&mut self) {
        std::future::poll_fn(|context| {
            let is_over = self.running.iter().any(|end| end.poll_read_ready(context).is_ready());
            match is_over || self.has_ended {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        *self = Self::default();
    }
}

#[cfg(target_os = "linux")]
fn ancestors() -> impl Iterator<Item = Ancestor> {
    use std::fs;

    let parent_of = |pid: &u32| -> Option<u32> {
        // The name in front may have any character, blanks and brackets too.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let program_of = |pid: u32| {
        let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        Some(path.file_name()?.to_string_lossy().into_owned())
    };
    // Process 1 ends with the system or the container, and all in it.
    std::iter::successors(Some(getppid().as_raw().cast_unsigned()), parent_of)
        .take_while(|pid| *pid > 1)
        .map(move |pid| Ancestor { pid, program: program_of(pid) })
}

/// The parent alone, without its name: the system has both only for those who ask it in other ways.
#[cfg(not(target_os = "linux"))]
fn ancestors() -> impl Iterator<Item = Ancestor> {
    let pid = getppid().as_raw().cast_unsigned();
    (pid > 1).then_some(Ancestor { pid, program: None }).into_iter()
}

/// Can be read from when the process has ended. Needs Linux 5.3.
#[cfg(target_os = "linux")]
fn process_end(pid: Pid) -> io::Result<OwnedFd> {
    use std::os::fd::{FromRawFd, RawFd};

    use nix::libc;

    // SAFETY: the call takes two numbers and returns a new descriptor, or -1.
    #[expect(unsafe_code, reason = "neither std nor nix has this call")]
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    match RawFd::try_from(Errno::result(descriptor)?) {
        // SAFETY: it was just made, and is owned here.
        #[expect(unsafe_code, reason = "the call returns a number")]
        Ok(descriptor) => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        Err(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn process_end(pid: Pid) -> io::Result<OwnedFd> {
    use nix::sys::event::{EvFlags, EventFilter, FilterFlag, KEvent, Kqueue};

    let queue = Kqueue::new()?;
    let id = usize::try_from(pid.as_raw()).map_err(io::Error::other)?;
    let (filter, flags) = (EventFilter::EVFILT_PROC, EvFlags::EV_ADD | EvFlags::EV_ONESHOT);
    let end = KEvent::new(id, filter, flags, FilterFlag::NOTE_EXIT, 0, 0);
    queue.kevent(&[end], &mut [], None)?;
    Ok(queue.into())
}
