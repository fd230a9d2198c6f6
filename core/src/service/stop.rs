//! Owns the stop of one instance: the shared ladder, with its steps as effects of this instance.
//!
//! Driven by [`Service`](super::Service) for the current instance and by `retiring.rs` for the others. Never
//! decides that a stop is over: only `Exited` does.

use super::event::Event;
use super::exit::Ending;
use super::state::{Effect, InputContext};
use crate::id::Generation;
use crate::stop_ladder::{StopLadder, StopStep};
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
    /// A process that cannot even open its session gets no time to end by itself.
    pub(super) const fn after(failure: &Ending) -> Self {
        match failure {
            Ending::HandshakeFailed(_) => Self::AtOnce,
            _ => Self::InOrder,
        }
    }
}

impl InstanceStop {
    pub(super) fn begin(cx: &mut InputContext, generation: Generation, haste: Haste) -> Self {
        let first = match haste {
            Haste::AtOnce => StopStep::Kill,
            Haste::InOrder if cx.times.stdin.is_zero() => StopStep::Terminate,
            Haste::InOrder => StopStep::CloseStdin,
        };
        cx.push(Effect::CloseStdin { generation });
        if first != StopStep::CloseStdin {
            cx.push(effect_of(first, generation));
        }
        Self { generation, ladder: StopLadder::begin(cx.now, first, cx.times) }
    }

    /// When the next step is due.
    pub(super) const fn next_at(&self) -> Time {
        self.ladder.next_at()
    }

    pub(super) fn is_killed(&self) -> bool {
        self.ladder.last_step() >= StopStep::Kill
    }

    /// A stop that is under way has to fit into the time that a shutdown leaves.
    pub(super) fn shorten(&mut self, cx: &InputContext) {
        self.ladder.shorten(cx.now, cx.times);
    }

    /// The next step is the kill, and it is due.
    pub(super) fn hurry_up(&mut self, now: Time) {
        self.ladder.hurry_up(now);
    }

    /// Takes the next step.
    pub(super) fn escalate(&mut self, cx: &mut InputContext, pid: Option<u32>) {
        let waited = self.ladder.waited(cx.now);
        let step = self.ladder.escalate(cx.now, cx.times);
        cx.tell(Event::Escalating { pid, waited, step: step.describe() });
        cx.push(effect_of(step, self.generation));
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
