//! The ladder of a stop: close stdin, SIGTERM, SIGKILL, and a new guardian at the last.

use std::time::Duration;

use super::Service;
use super::event::Event;
use super::exit::Ending;
use super::state::{Effect, Process, Want};
use crate::id::Generation;
use crate::policy::Policy;
use crate::stop_ladder::{StopLadder, StopStep, StopTimes};
use crate::time::Time;

/// The stop of one instance.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InstanceStop {
    generation: Generation,
    ladder: StopLadder,
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

impl InstanceStop {
    pub(super) fn begin(
        now: Time,
        generation: Generation,
        times: StopTimes,
        haste: Haste,
        effects: &mut Vec<Effect>,
    ) -> Self {
        let first = match haste {
            Haste::AtOnce => StopStep::Kill,
            Haste::InOrder if times.stdin.is_zero() => StopStep::Terminate,
            Haste::InOrder => StopStep::CloseStdin,
        };
        effects.push(Effect::CloseStdin { generation });
        if first != StopStep::CloseStdin {
            effects.push(effect_of(first, generation));
        }
        Self { generation, ladder: StopLadder::begin(now, first, times) }
    }

    /// When the next step is due.
    pub(super) const fn next_at(&self) -> Time {
        self.ladder.next_at()
    }

    pub(super) fn is_killed(&self) -> bool {
        self.ladder.last_step() >= StopStep::Kill
    }

    /// A stop that is under way has to fit into the time that a shutdown leaves.
    pub(super) fn shorten(&mut self, now: Time, times: StopTimes) {
        self.ladder.shorten(now, times);
    }

    /// The next step is the kill, and it is due.
    pub(super) fn hurry_up(&mut self, now: Time) {
        self.ladder.hurry_up(now);
    }

    /// Takes the next step.
    pub(super) fn escalate(
        &mut self,
        now: Time,
        pid: Option<u32>,
        times: StopTimes,
        effects: &mut Vec<Effect>,
    ) {
        let waited = self.ladder.waited(now);
        let step = self.ladder.escalate(now, times);
        effects.push(Effect::Tell(Event::Escalating { pid, waited, step: step.describe() }));
        effects.push(effect_of(step, self.generation));
    }
}

const fn effect_of(step: StopStep, generation: Generation) -> Effect {
    match step {
        StopStep::CloseStdin => Effect::CloseStdin { generation },
        StopStep::Terminate => Effect::Terminate { generation },
        StopStep::Kill => Effect::Kill { generation },
        StopStep::Abandon => Effect::Abandon { generation },
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
    pub(super) fn times(&self) -> StopTimes {
        let Policy { stdin_timeout, stop_timeout, .. } = &self.policy;
        let most = match self.want {
            Want::Shutdown { within: Some(within), .. } => within * 2 / 5,
            _ => Duration::MAX,
        };
        StopTimes { stdin: *stdin_timeout, term: *stop_timeout }.at_most(most)
    }
}
