//! Owns what a guardian retains for the next supervisor: the pipes of its instance, the output that it prints
//! meanwhile, and its end. Driven by `guardian.rs`. Never blocks on a pipe.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use afresh_core::control::LogStream;
use afresh_core::limits::PIPE_CHUNK_BYTES;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tokio::time::Instant;

use super::frames::{InstanceIdentity, RetainedInstance, TreeEnd};
use super::handover_protocol::millis;
use super::output_spool::OutputSpool;

/// One instance that may outlive its supervisor.
#[derive(Debug)]
pub(super) struct Retention {
    pub(super) identity: InstanceIdentity,
    generation: u64,
    pid: u32,
    started: Instant,
    /// Its end and its uptime, until a supervisor has acknowledged them.
    end: Option<(TreeEnd, Duration)>,
    /// Its stop has begun.
    pub(super) stopping: bool,
    stdin: Option<OwnedFd>,
    /// Stdout and stderr, until their end.
    outputs: [Option<OwnedFd>; 2],
    spool: OutputSpool,
}

impl Retention {
    pub(super) fn new(
        identity: InstanceIdentity,
        (generation, pid): (u64, u32),
        stdin: Option<OwnedFd>,
        outputs: [OwnedFd; 2],
        folder: &Path,
    ) -> Self {
        Self {
            identity,
            generation,
            pid,
            started: Instant::now(),
            end: None,
            stopping: false,
            stdin,
            outputs: outputs.map(Some),
            spool: OutputSpool::new(folder),
        }
    }

    pub(super) fn close_stdin(&mut self) {
        self.stopping = true;
        self.stdin = None;
    }

    /// It is gone, and so is its whole tree.
    pub(super) fn ended(&mut self, end: TreeEnd) {
        self.end = Some((end, self.started.elapsed()));
    }

    /// Whether it is gone, and no supervisor has acknowledged that.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// The pipes to read from while there is no supervisor.
    pub(super) fn outputs(&self) -> [Option<BorrowedFd<'_>>; 2] {
        self.outputs.each_ref().map(|output| output.as_ref().map(AsFd::as_fd))
    }

    /// Takes what is in a pipe, so that no service waits for a reader.
    pub(super) fn drain(&mut self, index: usize) {
        let Some(output) = &self.outputs[index] else { return };
        let stream = if index == 0 { LogStream::Stdout } else { LogStream::Stderr };
        // The supervisor has set it already, as the pipe is the same.
        fcntl(output, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).ok();
        let mut buffer = [0; PIPE_CHUNK_BYTES];
        match nix::unistd::read(output, &mut buffer).map_err(io::Error::from) {
            Ok(0) => self.outputs[index] = None,
            Ok(length) => self.spool.write(stream, &buffer[..length]),
            Err(error) if is_passing(&error) => {}
            Err(_) => self.outputs[index] = None,
        }
    }

    /// The spooled output is passed on.
    pub(super) fn discard_spool(&mut self) {
        self.spool.clear();
    }

    /// The report for the next supervisor, and the descriptors that go with it.
    pub(super) fn offer(&self) -> (RetainedInstance, Vec<BorrowedFd<'_>>) {
        let [stdout, stderr] = self.outputs();
        let [older, newer] = self.spool.files();
        let stdin = self.stdin.as_ref().map(AsFd::as_fd);
        let descriptors = [stdin, stdout, stderr, older, newer];
        let (end, uptime) = match &self.end {
            Some((end, uptime)) => (Some(end.clone()), *uptime),
            None => (None, self.started.elapsed()),
        };
        let retained = RetainedInstance {
            guardian: std::process::id(),
            identity: self.identity.clone(),
            generation: self.generation,
            pid: self.pid,
            uptime_ms: millis(uptime),
            stopping: self.stopping,
            end,
            descriptors: descriptors.map(|descriptor| descriptor.is_some()),
            lost: self.spool.lost,
        };
        (retained, descriptors.into_iter().flatten().collect())
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
