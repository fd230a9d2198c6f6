//! What can be seen of a service from outside. Changes nothing.

use super::Service;
use super::state::{Process, Want};
use crate::time::Time;

/// What is true of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing runs, and nothing is planned; `rest` says why.
    Down,
    /// The next start is planned.
    Waiting {
        /// For this moment.
        until: Time,
    },
    /// The process is being made.
    Starting,
    /// The process runs.
    Running {
        /// Since its start was ordered.
        since: Time,
    },
    /// The process is being ended.
    Stopping,
}

impl Service {
    /// What is true of its process.
    pub fn phase(&self) -> Phase {
        match &self.process {
            Process::Down(_) => Phase::Down,
            Process::Waiting { spawn_at, .. } => Phase::Waiting { until: *spawn_at },
            Process::Starting { .. } => Phase::Starting,
            Process::Running { since, .. } => Phase::Running { since: *since },
            Process::Stopping { .. } => Phase::Stopping,
        }
    }

    /// The process that runs, as far as it is known.
    pub fn pid(&self) -> Option<u32> {
        match self.process {
            Process::Running { pid, .. } => Some(pid),
            Process::Stopping { pid, .. } => pid,
            Process::Down(_) | Process::Waiting { .. } | Process::Starting { .. } => None,
        }
    }

    /// Restarts of every kind so far.
    pub fn restarts_total(&self) -> u64 {
        self.restarts.total
    }

    /// Whether afresh ends, and no start will be heard any more.
    pub fn is_shutting_down(&self) -> bool {
        matches!(self.want, Want::Shutdown { .. })
    }
}
