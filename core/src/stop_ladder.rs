//! Owns the order and the times of one stop: close stdin, SIGTERM, SIGKILL, replace the guardian.
//!
//! Driven by the machine or the loop that stops a process: it performs the step that
//! [`StopLadder::escalate`] returns. Never ends by itself: a kill is a request to the kernel, and only the
//! report of the exit is a fact.

use std::time::Duration;

use crate::limits::KILL_PATIENCE;
use crate::time::Time;

/// One step of a stop; later steps are harsher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopStep {
    /// The process is asked to end: its stdin is closed, or it is told in its own protocol.
    CloseStdin,
    /// SIGTERM to the process and its group.
    Terminate,
    /// SIGKILL to the whole tree.
    Kill,
    /// The guardian has not reported the end of a killed tree: it is replaced, and the rest is swept.
    Abandon,
}

/// The time between two steps. After a kill it is always [`KILL_PATIENCE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopTimes {
    /// From the closed stdin to SIGTERM.
    pub stdin: Duration,
    /// From SIGTERM to SIGKILL.
    pub term: Duration,
}

/// A stop under way.
#[derive(Clone, Debug, PartialEq)]
pub struct StopLadder {
    last: StopStep,
    since: Time,
    next_at: Time,
}

impl StopStep {
    /// What is done, for the log.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::CloseStdin => "closing its stdin",
            Self::Terminate => "sending SIGTERM",
            Self::Kill => "sending SIGKILL to the whole tree",
            Self::Abandon => "replacing its guardian",
        }
    }

    const fn next(self) -> Self {
        match self {
            Self::CloseStdin => Self::Terminate,
            Self::Terminate => Self::Kill,
            Self::Kill | Self::Abandon => Self::Abandon,
        }
    }
}

impl StopTimes {
    const fn after(self, step: StopStep) -> Duration {
        match step {
            StopStep::CloseStdin => self.stdin,
            StopStep::Terminate => self.term,
            StopStep::Kill | StopStep::Abandon => KILL_PATIENCE,
        }
    }

    /// No step waits longer than this.
    #[must_use]
    pub fn at_most(self, most: Duration) -> Self {
        Self { stdin: self.stdin.min(most), term: self.term.min(most) }
    }
}

impl StopLadder {
    /// A stop whose first step the caller takes now.
    pub fn begin(now: Time, first: StopStep, times: StopTimes) -> Self {
        Self { last: first, since: now, next_at: now + times.after(first) }
    }

    /// When the next step is due.
    pub const fn next_at(&self) -> Time {
        self.next_at
    }

    /// The last step that was taken.
    pub const fn last_step(&self) -> StopStep {
        self.last
    }

    /// The time since the last step.
    pub fn waited(&self, now: Time) -> Duration {
        now.since(self.since)
    }

    /// Takes the next step, due or not. After the last one it is taken again and again.
    pub fn escalate(&mut self, now: Time, times: StopTimes) -> StopStep {
        *self = Self::begin(now, self.last.next(), times);
        self.last
    }

    /// The time left must fit into shorter times, such as those of a shutdown.
    pub fn shorten(&mut self, now: Time, times: StopTimes) {
        self.next_at = self.next_at.min(now + times.after(self.last));
    }

    /// Makes the kill the next step, and due now. Changes nothing after a kill.
    pub fn hurry_up(&mut self, now: Time) {
        if self.last < StopStep::Kill {
            (self.last, self.next_at) = (StopStep::Terminate, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: StopTimes =
        StopTimes { stdin: Duration::from_secs(1), term: Duration::from_secs(5) };

    fn at(seconds: u64) -> Time {
        Time::after_start(Duration::from_secs(seconds))
    }

    #[test]
    fn each_step_waits_its_time_and_the_last_one_repeats() {
        let mut ladder = StopLadder::begin(at(0), StopStep::CloseStdin, TIMES);
        let mut history = Vec::new();
        for _ in 0..4 {
            let now = ladder.next_at();
            history.push((now.since_start().as_secs(), ladder.escalate(now, TIMES)));
        }
        assert_eq!(
            history,
            [
                (1, StopStep::Terminate),
                (6, StopStep::Kill),
                (8, StopStep::Abandon),
                (10, StopStep::Abandon)
            ]
        );
    }

    #[test]
    fn a_shutdown_shortens_the_wait_and_never_lengthens_it() {
        let mut ladder = StopLadder::begin(at(0), StopStep::Terminate, TIMES);
        ladder.shorten(at(1), TIMES);
        assert_eq!(ladder.next_at(), at(5));
        ladder.shorten(at(1), TIMES.at_most(Duration::from_secs(2)));
        assert_eq!(ladder.next_at(), at(3));
        assert_eq!(ladder.waited(at(3)), Duration::from_secs(3));
    }

    #[test]
    fn hurry_leads_to_the_kill_at_once_and_once() {
        let mut ladder = StopLadder::begin(at(0), StopStep::CloseStdin, TIMES);
        ladder.hurry_up(at(0));
        assert_eq!(ladder.next_at(), at(0));
        assert_eq!(ladder.escalate(at(0), TIMES), StopStep::Kill);
        ladder.hurry_up(at(0));
        assert_eq!((ladder.last_step(), ladder.next_at()), (StopStep::Kill, at(0) + KILL_PATIENCE));
    }
}
