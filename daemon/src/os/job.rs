//! What a shell with job control does to who is on its terminal: Ctrl+Z, `fg`, `bg`.

use std::io::{self, IsTerminal};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, raise, sigaction};
use nix::unistd::{Pid, getpgrp, tcgetpgrp};
use tokio::signal::unix::{self, SignalKind, signal};

use super::{Job, Stopped};

/// Hears when we are to stop, and when we go on.
pub(crate) struct Jobs {
    suspend: unix::Signal,
    continued: unix::Signal,
}

impl Jobs {
    pub(crate) fn listen() -> io::Result<Self> {
        let heard = |number: Signal| signal(SignalKind::from_raw(number as i32));
        Ok(Self { suspend: heard(Signal::SIGTSTP)?, continued: heard(Signal::SIGCONT)? })
    }

    /// The next word. Cancel safe.
    pub(crate) async fn next(&mut self) -> Job {
        tokio::select! {
            _ = self.suspend.recv() => Job::Suspend,
            _ = self.continued.recv() => Job::Continued,
        }
    }
}

/// Stops this process as the kernel would on Ctrl+Z, until somebody lets it go on. Where nobody could, nothing
/// is stopped.
pub fn suspend(stopped: Stopped) -> io::Result<()> {
    let ours = set(SigHandler::SigIgn)?;
    if stopped == Stopped::Everyone {
        // Whoever started us and waits for us in the same job stops too; we are not meant yet.
        kill(Pid::from_raw(0), Signal::SIGTSTP).ok();
    }
    set(SigHandler::SigDfl)?;
    // To this thread, so that all of us have stopped before it returns.
    let raised = raise(Signal::SIGTSTP);
    restore(&ours)?;
    Ok(raised?)
}

fn set(handler: SigHandler) -> io::Result<SigAction> {
    let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: neither of the two handlers that come here is code of ours.
    #[expect(unsafe_code, reason = "nix cannot know which handler it is")]
    Ok(unsafe { sigaction(Signal::SIGTSTP, &action) }?)
}

fn restore(action: &SigAction) -> io::Result<()> {
    // SAFETY: it was in place before.
    #[expect(unsafe_code, reason = "nix cannot know which handler it is")]
    unsafe { sigaction(Signal::SIGTSTP, action) }?;
    Ok(())
}

/// Whether the terminal that is our stdin is ours: in the background, whoever changes its modes is stopped.
pub fn is_in_front() -> bool {
    let stdin = io::stdin();
    // Where it is no terminal that has jobs, nobody takes it from us.
    stdin.is_terminal() && tcgetpgrp(&stdin).map_or(true, |front| front == getpgrp())
}
