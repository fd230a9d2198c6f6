//! Which signals we ignore, and how our children get rid of that.

use std::io;

use nix::sys::signal::{SigHandler, SigSet, Signal, signal};

/// Signals that would end or stop a supervisor for no reason of its own.
///
/// A file that grew to its limit is an error of writing, handled as a full disk; a job in the
/// background that reads the terminal gets an error instead of being stopped.
pub(crate) fn ignore_in_supervisor() -> io::Result<()> {
    ignore(&[Signal::SIGXFSZ, Signal::SIGTTIN, Signal::SIGTTOU])
}

pub(super) fn ignore(signals: &[Signal]) -> io::Result<()> {
    signals.iter().try_for_each(|number| set(*number, SigHandler::SigIgn))
}

/// Gives every signal its default back and blocks none: what we ignore or block, our children
/// must not.
pub(super) fn reset() -> io::Result<()> {
    for number in Signal::iterator() {
        if !matches!(number, Signal::SIGKILL | Signal::SIGSTOP) {
            set(number, SigHandler::SigDfl)?;
        }
    }
    Ok(SigSet::empty().thread_set_mask()?)
}

fn set(number: Signal, disposition: SigHandler) -> io::Result<()> {
    debug_assert!(matches!(disposition, SigHandler::SigIgn | SigHandler::SigDfl));
    // SAFETY: sets a default or ignores a signal; no handler is installed.
    #[expect(unsafe_code, reason = "`signal` can install handlers")]
    unsafe { signal(number, disposition) }?;
    Ok(())
}
