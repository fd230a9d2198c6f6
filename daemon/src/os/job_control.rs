//! Job control and the terminal: Ctrl+Z, `fg`, `bg`, another size, its end. Driven by the screens. Never
//! reads more than was typed.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::time::Duration;

use afresh_core::limits::KEY_BYTES_MAX;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, raise, sigaction};
use nix::unistd::{Pid, getpgrp, read, tcgetpgrp};
use tokio::signal::unix::{self, SignalKind, signal};

use super::{Job, Keys, Stopped};

/// Hears when we are to stop, when we go on, and when the terminal has another size.
pub(crate) struct Jobs {
    suspend: unix::Signal,
    continued: unix::Signal,
    resized: unix::Signal,
}

impl Jobs {
    pub(crate) fn listen() -> io::Result<Self> {
        let heard = |number: Signal| signal(SignalKind::from_raw(number as i32));
        Ok(Self {
            suspend: heard(Signal::SIGTSTP)?,
            continued: heard(Signal::SIGCONT)?,
            resized: heard(Signal::SIGWINCH)?,
        })
    }

    /// The next word. Cancel safe.
    pub(crate) async fn next(&mut self) -> Job {
        tokio::select! {
            _ = self.suspend.recv() => Job::Suspend,
            _ = self.continued.recv() => Job::Continued,
            _ = self.resized.recv() => Job::Resized,
        }
    }
}

/// Stops this process as the kernel would on Ctrl+Z, until a shell continues it. Where no shell could, nothing
/// is stopped.
pub fn suspend(stopped: Stopped) -> io::Result<()> {
    let plain = |handler| SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
    let ours = set(&plain(SigHandler::SigIgn))?;
    if stopped == Stopped::Everyone {
        // A parent that waits for us in the same job stops too; we are not meant yet.
        kill(Pid::from_raw(0), Signal::SIGTSTP).ok();
    }
    set(&plain(SigHandler::SigDfl))?;
    // To this thread, so that all of us have stopped before it returns.
    let raised = raise(Signal::SIGTSTP);
    set(&ours)?;
    Ok(raised?)
}

fn set(action: &SigAction) -> io::Result<SigAction> {
    // SAFETY: it was in place before, or has a handler that is no code of ours.
    #[expect(unsafe_code, reason = "nix cannot know which handler it is")]
    Ok(unsafe { sigaction(Signal::SIGTSTP, action) }?)
}

/// Whether the terminal that is our stdin is ours: in the background, a process that changes its modes is stopped.
pub fn is_in_front() -> bool {
    let stdin = io::stdin();
    // A terminal without jobs is always ours.
    stdin.is_terminal() && tcgetpgrp(&stdin).map_or(true, |front| front == getpgrp())
}

/// Waits for what is typed on the terminal that is our stdin, and takes it. One that is gone can be read from for
/// ever, and has nothing.
pub fn next_keys(wait_max: Option<Duration>) -> Keys {
    let stdin = io::stdin();
    let timeout = wait_max
        .map_or(PollTimeout::NONE, |wait| PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX));
    let mut polled = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let mut bytes = vec![0; KEY_BYTES_MAX];
    loop {
        match poll(&mut polled, timeout) {
            Err(Errno::EINTR) => continue,
            Ok(0) => return Keys::None,
            Ok(_) if polled[0].revents() == Some(PollFlags::POLLIN) => {}
            Ok(_) | Err(_) => return Keys::Gone,
        }
        match read(&stdin, &mut bytes) {
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Ok(0) | Err(_) => return Keys::Gone,
            Ok(count) => {
                bytes.truncate(count);
                return Keys::Bytes(bytes);
            }
        }
    }
}
