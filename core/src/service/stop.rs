//! The ladder of a stop: close stdin, SIGTERM, SIGKILL, and a new guardian at the last.

use std::time::Duration;

use super::Service;
use super::event::Event;
use super::exit::Ending;
use super::state::{Effect, Goal, Process, Step, Want};
use crate::limits::KILL_PATIENCE;
use crate::time::Time;

impl Service {
    pub(super) fn begin_stop(
        &mut self,
        now: Time,
        pid: Option<u32>,
        since: Time,
        goal: Goal,
        effects: &mut Vec<Effect>,
    ) {
        effects.push(Effect::CloseStdin);
        // A process that cannot even open its session gets no time to think about it.
        let kill_now = matches!(goal, Goal::Failure(Ending::HandshakeFailed(_)));
        let (step, next_at) = if kill_now {
            effects.push(Effect::Kill);
            (Step::Killed, now + KILL_PATIENCE)
        } else if self.stdin_timeout().is_zero() {
            effects.push(Effect::Terminate);
            (Step::Terminated, now + self.stop_timeout())
        } else {
            (Step::ClosedStdin, now + self.stdin_timeout())
        };
        self.process = Process::Stopping { pid, since, goal, step, step_since: now, next_at };
    }

    /// A stop that is under way has to fit into the time that a shutdown leaves.
    pub(super) fn shorten_stop(&mut self, now: Time) {
        let (stdin_timeout, stop_timeout) = (self.stdin_timeout(), self.stop_timeout());
        if let Process::Stopping { step, next_at, .. } = &mut self.process {
            let at_most = match step {
                Step::ClosedStdin => stdin_timeout,
                Step::Terminated => stop_timeout,
                Step::Killed => KILL_PATIENCE,
            };
            *next_at = (*next_at).min(now + at_most);
        }
    }

    pub(super) fn hurry_up(&mut self, now: Time) {
        if let Process::Stopping {
            step: step @ (Step::ClosedStdin | Step::Terminated),
            next_at,
            ..
        } = &mut self.process
        {
            *step = Step::Terminated;
            *next_at = now;
        }
    }

    pub(super) fn escalate(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let stop_timeout = self.stop_timeout();
        let Process::Stopping { pid, step, step_since, next_at, .. } = &mut self.process else {
            return;
        };
        let waited = now.since(*step_since);
        let (next_step, patience, effect, words) = match *step {
            Step::ClosedStdin => {
                (Step::Terminated, stop_timeout, Effect::Terminate, "sending SIGTERM")
            }
            Step::Terminated => {
                (Step::Killed, KILL_PATIENCE, Effect::Kill, "sending SIGKILL to the whole tree")
            }
            // Only `Exited` ends a stop: a kill is a request to the kernel, not a fact.
            Step::Killed => {
                (Step::Killed, KILL_PATIENCE, Effect::Abandon, "replacing its guardian")
            }
        };
        effects.push(Effect::Tell(Event::Escalating { pid: *pid, waited, step: words }));
        effects.push(effect);
        (*step, *step_since, *next_at) = (next_step, now, now + patience);
    }

    pub(super) fn stdin_timeout(&self) -> Duration {
        match self.want {
            Want::Shutdown { within: Some(within) } => {
                self.policy.stdin_timeout.min(within * 2 / 5)
            }
            _ => self.policy.stdin_timeout,
        }
    }

    pub(super) fn stop_timeout(&self) -> Duration {
        match self.want {
            Want::Shutdown { within: Some(within) } => self.policy.stop_timeout.min(within * 2 / 5),
            _ => self.policy.stop_timeout,
        }
    }
}
