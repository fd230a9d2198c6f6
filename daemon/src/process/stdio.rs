//! Owns the supervisor's ends of the pipes of an instance. Made for each start.

use std::io;
use std::os::fd::OwnedFd;

use tokio::net::unix::pipe;

use super::os;

/// Our ends of an instance's pipes.
#[derive(Debug)]
pub(crate) struct InstanceStdio {
    pub(crate) stdin: pipe::Sender,
    pub(crate) stdout: pipe::Receiver,
    pub(crate) stderr: pipe::Receiver,
}

/// Our ends, and theirs in the order stdin, stdout, stderr.
pub(super) fn pipes() -> io::Result<(InstanceStdio, Vec<OwnedFd>)> {
    let (their_stdin, our_stdin) = os::pipe()?;
    let (our_stdout, their_stdout) = os::pipe()?;
    let (our_stderr, their_stderr) = os::pipe()?;
    let ours = InstanceStdio {
        stdin: pipe::Sender::from_owned_fd(our_stdin)?,
        stdout: pipe::Receiver::from_owned_fd(our_stdout)?,
        stderr: pipe::Receiver::from_owned_fd(our_stderr)?,
    };
    Ok((ours, vec![their_stdin, their_stdout, their_stderr]))
}
