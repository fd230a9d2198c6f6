//! A system without job control: nobody is ever taken from the terminal.

use std::io::{self, IsTerminal};

use super::{Job, Stopped};

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

/// Nobody could let us go on.
pub fn suspend(_stopped: Stopped) -> io::Result<()> {
    Ok(())
}

/// Whether there is a terminal.
pub fn is_in_front() -> bool {
    io::stdin().is_terminal()
}
