//! The same functions as `job.rs`, for a system without job control.

use std::io::{self, IsTerminal};
use std::time::Duration;

use windows_sys::Win32::Foundation::WAIT_OBJECT_0;
use windows_sys::Win32::System::Console::{GetStdHandle, STD_INPUT_HANDLE};
use windows_sys::Win32::System::Threading::{INFINITE, WaitForSingleObject};

use super::{Job, Keys, Stopped};

/// Hears nothing.
pub(crate) struct Jobs;

impl Jobs {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) async fn next(&mut self) -> Job {
        std::future::pending().await
    }
}

/// No shell could continue us.
pub fn suspend(_stopped: Stopped) -> io::Result<()> {
    Ok(())
}

/// Whether there is a terminal.
pub fn is_in_front() -> bool {
    io::stdin().is_terminal()
}

/// Waits until something happened on the console, however long that takes: nothing there is undecided.
pub fn next_keys(_wait_max: Option<Duration>) -> Keys {
    // SAFETY: the handle is that of our stdin, and stays open.
    #[expect(unsafe_code, reason = "the standard library cannot wait without reading")]
    let waited = unsafe { WaitForSingleObject(GetStdHandle(STD_INPUT_HANDLE), INFINITE) };
    if waited == WAIT_OBJECT_0 { Keys::Console } else { Keys::Gone }
}
