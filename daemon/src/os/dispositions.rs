//! Owns which signals this process ignores, and resets them in its children. Called before a loop
//! begins and between fork and exec. Never installs a handler.

use std::io;
use std::sync::OnceLock;

use nix::libc;
use nix::sys::signal::{SigSet, Signal};

/// Signals that would end or stop a supervisor for no reason of its own.
///
/// A file that grew to its limit is an error of writing, handled as a full disk; a job in the
/// background that reads the terminal gets an error instead of being stopped.
pub(crate) fn ignore_in_supervisor() -> io::Result<()> {
    ignore(&[Signal::SIGXFSZ, Signal::SIGTTIN, Signal::SIGTTOU])
}

/// Whether we were started under `nohup`.
pub(crate) fn ignores_hangup() -> bool {
    is_ignored(libc::SIGHUP)
}

fn is_ignored(number: i32) -> bool {
    // SAFETY: all zero is a valid value of this plain struct, and nothing is set.
    #[expect(unsafe_code, reason = "nix cannot ask without setting")]
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(number, std::ptr::null(), &raw mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
}

pub(crate) fn ignore(signals: &[Signal]) -> io::Result<()> {
    signals.iter().try_for_each(|number| set(*number as i32, libc::SIG_IGN))
}

/// The signals that we ignore, and that every program we start would ignore too. Asked for once: a
/// guardian ignores no others later.
pub(crate) fn ignored() -> &'static [i32] {
    static IGNORED: OnceLock<Vec<i32>> = OnceLock::new();
    IGNORED.get_or_init(|| (1..=SIGNALS_MAX).filter(|number| is_ignored(*number)).collect())
}

/// Gives these signals their default back and blocks none: what we ignore or block, our children must
/// not. What we handle has its default again in every program.
pub(crate) fn reset(ignored: &[i32]) -> io::Result<()> {
    for number in ignored {
        // Some belong to libc: then there is nothing to do.
        set(*number, libc::SIG_DFL).ok();
    }
    Ok(SigSet::empty().thread_set_mask()?)
}

/// Real-time signals included; a system that has fewer refuses the others.
const SIGNALS_MAX: i32 = 64;

fn set(number: i32, disposition: libc::sighandler_t) -> io::Result<()> {
    debug_assert!(matches!(disposition, libc::SIG_IGN | libc::SIG_DFL));
    // SAFETY: sets a default or ignores a signal; no handler is installed.
    #[expect(unsafe_code, reason = "nix knows no real-time signals")]
    let before = unsafe { libc::signal(number, disposition) };
    if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}
