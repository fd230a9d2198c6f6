//! The ladder of a stop: close stdin, SIGTERM, SIGKILL, and a new guardian at the last.

use std::time::Duration;

use super::Service;
use super::event::Event;
use super::exit::Ending;
use super::state::{Effect, Process, Want};
use crate::id::Generation;
use crate::limits::KILL_PATIENCE;
use crate::policy::Policy;
use crate::time::Time;

/// The stop of one instance, whichever it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ladder {
    generation: Generation,
    step: Step,
    step_since: Time,
    next_at: Time,
}

/// The last step that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    ClosedStdin,
    Terminated,
    Killed,
}

/// How long a step waits for the next one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    stdin: Duration,
    stop: Duration,
}

/// How much time an instance gets to end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haste {
    /// What the policy says.
    InOrder,
    /// None.
    AtOnce,
}

impl Haste {
    /// A process that cannot even open its session gets no time to think about it.
    pub(super) const fn after(failure: &Ending) -> Self {
        match failure {
            Ending::HandshakeFailed(_) => Self::AtOnce,
            _ => Self::InOrder,
        }
    }
}

impl Ladder {
    pub(super) fn begin(
        now: Time,
        generation: Generation,
        times: Times,
        haste: Haste,
        effects: &mut Vec<Effect>,
    ) -> Self {
        effects.push(Effect::CloseStdin { generation });
        let (step, patience) = match haste {
            Haste::AtOnce => {
                effects.push(Effect::Kill { generation });
                (Step::Killed, KILL_PATIENCE)
            }
            Haste::InOrder if times.stdin.is_zero() => {
                effects.push(Effect::Terminate { generation });
                (Step::Terminated, times.stop)
            }
            Haste::InOrder => (Step::ClosedStdin, times.stdin),
        };
        Self { generation, step, step_since: now, next_at: now + patience }
    }

    /// When the next step is due.
    pub(super) const fn next_at(&self) -> Time {
        self.next_at
    }

    pub(super) fn is_killed(&self) -> bool {
        self.step == Step::Killed
    }

    /// A stop that is under way has to fit into the time that a shutdown leaves.
    pub(super) fn shorten(&mut self, now: Time, times: Times) {
        let at_most = match self.step {
            Step::ClosedStdin => times.stdin,
            Step::Terminated => times.stop,
            Step::Killed => KILL_PATIENCE,
        };
        self.next_at = self.next_at.min(now + at_most);
    }

    /// The next step is the kill, and it is due.
    pub(super) fn hurry_up(&mut self, now: Time) {
        if !self.is_killed() {
            self.step = Step::Terminated;
            self.next_at = now;
        }
    }

    /// Takes the next step.
    pub(super) fn escalate(
        &mut self,
        now: Time,
        pid: Option<u32>,
        times: Times,
        effects: &mut Vec<Effect>,
    ) {
        let generation = self.generation;
        let waited = now.since(self.step_since);
        let (next_step, patience, effect, words) = match self.step {
            Step::ClosedStdin => {
                (Step::Terminated, times.stop, Effect::Terminate { generation }, "sending SIGTERM")
            }
            Step::Terminated => (
                Step::Killed,
                KILL_PATIENCE,
                Effect::Kill { generation },
                "sending SIGKILL to the whole tree",
            ),
            // Only `Exited` ends a stop: a kill is a request to the kernel, not a fact.
            Step::Killed => (
                Step::Killed,
                KILL_PATIENCE,
                Effect::Abandon { generation },
                "replacing its guardian",
            ),
        };
        effects.push(Effect::Tell(Event::Escalating { pid, waited, step: words }));
        effects.push(effect);
        (self.step, self.step_since, self.next_at) = (next_step, now, now + patience);
    }
}

impl Service {
    /// Whoever waits for a stop has lost patience.
    pub(super) fn hurry_up(&mut self, now: Time) {
        if let Process::Stopping { ladder, .. } = &mut self.process {
            ladder.hurry_up(now);
        }
        for leaver in &mut self.leaving {
            leaver.hurry_up(now);
        }
    }

    /// The policy's times, or what a shutdown leaves of them.
    pub(super) fn times(&self) -> Times {
        let Policy { stdin_timeout, stop_timeout, .. } = &self.policy;
        let most = match self.want {
            Want::Shutdown { within: Some(within), .. } => within * 2 / 5,
            _ => Duration::MAX,
        };
        Times { stdin: (*stdin_timeout).min(most), stop: (*stop_timeout).min(most) }
    }
}
