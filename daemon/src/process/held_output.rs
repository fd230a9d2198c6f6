//! What a guardian holds for the next supervisor: the pipes of its instance, what it prints while
//! nobody listens, and its end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use afresh_core::control::Stream;
use afresh_core::limits::PIPE_CHUNK_BYTES;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tokio::time::Instant;

use super::frames::{Gone, Held, Kept};
use super::output_spool::Spill;

/// One instance that may outlive its supervisor.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) kept: Kept,
    generation: u64,
    pid: u32,
    started: Instant,
    /// How it ended, and how long it had run; until somebody has heard it.
    gone: Option<(Gone, Duration)>,
    /// Its stop has begun.
    pub(super) stopping: bool,
    stdin: Option<OwnedFd>,
    /// Stdout and stderr, until their end.
    outputs: [Option<OwnedFd>; 2],
    spill: Spill,
}

impl Holding {
    pub(super) fn new(
        kept: Kept,
        (generation, pid): (u64, u32),
        stdin: Option<OwnedFd>,
        outputs: [OwnedFd; 2],
        folder: &Path,
    ) -> Self {
        Self {
            kept,
            generation,
            pid,
            started: Instant::now(),
            gone: None,
            stopping: false,
            stdin,
            outputs: outputs.map(Some),
            spill: Spill::new(folder),
        }
    }

    pub(super) fn close_stdin(&mut self) {
        self.stopping = true;
        self.stdin = None;
    }

    /// It is gone, and so is its whole tree.
    pub(super) fn ended(&mut self, gone: Gone) {
        self.gone = Some((gone, self.started.elapsed()));
    }

    /// Whether it is gone, and nobody may have heard of it.
    pub(super) fn has_ended(&self) -> bool {
        self.gone.is_some()
    }

    /// The pipes that nobody else reads now.
    pub(super) fn outputs(&self) -> [Option<BorrowedFd<'_>>; 2] {
        self.outputs.each_ref().map(|output| output.as_ref().map(AsFd::as_fd))
    }

    /// Takes what is in a pipe, so that no service waits for a reader.
    pub(super) fn drain(&mut self, index: usize) {
        let Some(output) = &self.outputs[index] else { return };
        let stream = if index == 0 { Stream::Stdout } else { Stream::Stderr };
        // The supervisor has set it already, as the pipe is the same.
        fcntl(output, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).ok();
        let mut buffer = [0; PIPE_CHUNK_BYTES];
        match nix::unistd::read(output, &mut buffer).map_err(io::Error::from) {
            Ok(0) => self.outputs[index] = None,
            Ok(length) => self.spill.write(stream, &buffer[..length]),
            Err(error) if is_passing(&error) => {}
            Err(_) => self.outputs[index] = None,
        }
    }

    /// All that was written down is passed on.
    pub(super) fn taken(&mut self) {
        self.spill.clear();
    }

    /// What the next supervisor is told, and the descriptors that go with it.
    pub(super) fn offer(&self) -> (Held, Vec<BorrowedFd<'_>>) {
        let [stdout, stderr] = self.outputs();
        let [older, newer] = self.spill.files();
        let stdin = self.stdin.as_ref().map(AsFd::as_fd);
        let descriptors = [stdin, stdout, stderr, older, newer];
        let (gone, uptime) = match &self.gone {
            Some((gone, uptime)) => (Some(gone.clone()), *uptime),
            None => (None, self.started.elapsed()),
        };
        let held = Held {
            guardian: std::process::id(),
            kept: self.kept.clone(),
            generation: self.generation,
            pid: self.pid,
            uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
            stopping: self.stopping,
            gone,
            beside: descriptors.map(|descriptor| descriptor.is_some()),
            lost: self.spill.lost,
        };
        (held, descriptors.into_iter().flatten().collect())
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
