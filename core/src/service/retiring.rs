//! Owns the instances that are not needed any more: they drain, are stopped, and their end is told.
//!
//! Driven by [`SideInstances`](super::side_instances::SideInstances). None of their ends counts as a crash.

use super::event::Event;
use super::exit::{Ending, Exit};
use super::state::{InputContext, Instance};
use super::stop::{Haste, InstanceStop};
use crate::id::Generation;
use crate::limits::RETIRING_MAX;
use crate::time::Time;

/// All of them, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Retiring(Vec<RetiringInstance>);

#[derive(Debug)]
struct RetiringInstance {
    instance: Instance,
    /// What its end is told as.
    ending: Ending,
    state: RetiringState,
}

#[derive(Debug)]
enum RetiringState {
    /// It finishes its requests, until then at most.
    Draining {
        until: Time,
    },
    Stopping(InstanceStop),
}

impl RetiringInstance {
    const fn next_at(&self) -> Time {
        match &self.state {
            RetiringState::Draining { until } => *until,
            RetiringState::Stopping(stop) => stop.next_at(),
        }
    }

    /// Whether it still has time to end by itself.
    fn has_time(&self) -> bool {
        match &self.state {
            RetiringState::Draining { .. } => true,
            RetiringState::Stopping(stop) => !stop.is_killed(),
        }
    }

    fn stop(&mut self, cx: &mut InputContext, haste: Haste) {
        let stop = InstanceStop::begin(cx, self.instance.generation, haste);
        self.state = RetiringState::Stopping(stop);
    }

    fn hurry_up(&mut self, now: Time) {
        if let RetiringState::Stopping(stop) = &mut self.state {
            stop.hurry_up(now);
        }
    }
}

impl Retiring {
    /// A replaced instance, which may finish what it has begun until then.
    pub(super) fn drain(&mut self, cx: &mut InputContext, instance: Instance, until: Time) {
        let state = RetiringState::Draining { until };
        self.push(cx, RetiringInstance { instance, ending: Ending::Replaced, state });
    }

    /// An instance that is stopped now; its end is told as `ending`.
    pub(super) fn stop(
        &mut self,
        cx: &mut InputContext,
        instance: Instance,
        ending: Ending,
        haste: Haste,
    ) {
        let state = RetiringState::Stopping(InstanceStop::begin(cx, instance.generation, haste));
        self.push(cx, RetiringInstance { instance, ending, state });
    }

    fn push(&mut self, cx: &mut InputContext, retiring: RetiringInstance) {
        self.0.push(retiring);
        if self.is_crowded()
            && let Some(oldest) = self.0.iter_mut().find(|it| it.has_time())
        {
            match oldest.state {
                RetiringState::Draining { .. } => oldest.stop(cx, Haste::AtOnce),
                RetiringState::Stopping(_) => oldest.hurry_up(cx.now),
            }
        }
    }

    /// The instance has no request left: its stop begins.
    pub(super) fn drained(&mut self, cx: &mut InputContext, generation: Generation) {
        let found = self.0.iter_mut().find(|it| it.instance.generation == generation);
        if let Some(retiring) = found
            && matches!(retiring.state, RetiringState::Draining { .. })
        {
            retiring.stop(cx, Haste::InOrder);
        }
    }

    /// All are stopped, in parallel, within the times that hold now.
    pub(super) fn stop_all(&mut self, cx: &mut InputContext) {
        for retiring in &mut self.0 {
            match &mut retiring.state {
                RetiringState::Draining { .. } => retiring.stop(cx, Haste::InOrder),
                RetiringState::Stopping(stop) => stop.shorten(cx),
            }
        }
    }

    pub(super) fn hurry_up(&mut self, now: Time) {
        self.0.iter_mut().for_each(|retiring| retiring.hurry_up(now));
    }

    /// When a step is due.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.0.iter().map(RetiringInstance::next_at).min()
    }

    /// Takes a step that is due; says whether there was one.
    pub(super) fn step(&mut self, cx: &mut InputContext) -> bool {
        let due = self.0.iter_mut().find(|retiring| retiring.next_at() <= cx.now);
        let Some(retiring) = due else { return false };
        match &mut retiring.state {
            RetiringState::Draining { .. } => retiring.stop(cx, Haste::InOrder),
            RetiringState::Stopping(stop) => stop.escalate(cx, retiring.instance.pid),
        }
        true
    }

    /// The instance is gone, or was never spawned. Returns whether it was one of these.
    pub(super) fn gone(
        &mut self,
        cx: &mut InputContext,
        generation: Generation,
        exit: Option<Exit>,
    ) -> bool {
        let found = self.0.iter().position(|it| it.instance.generation == generation);
        let Some(index) = found else { return false };
        let RetiringInstance { instance: Instance { pid, since, .. }, ending, .. } =
            self.0.remove(index);
        if let Some(exit) = exit {
            let uptime = cx.now.since(since);
            cx.tell(Event::Exited { pid, exit, ending, uptime });
        }
        true
    }

    pub(super) fn instances_mut(&mut self) -> impl Iterator<Item = &mut Instance> {
        self.0.iter_mut().map(|retiring| &mut retiring.instance)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there are so many that nothing more is started beside the current instance.
    pub(super) fn is_crowded(&self) -> bool {
        self.0.len() > RETIRING_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::service::state::{Effect, Role};
    use crate::stop_ladder::StopTimes;

    fn context(seconds: u64) -> InputContext {
        let times = StopTimes { stdin: Duration::ZERO, term: Duration::from_secs(5) };
        InputContext::new(Time::after_start(Duration::from_secs(seconds)), times)
    }

    fn instance(generation: u64) -> Instance {
        Instance::new(Generation(generation), Time::ZERO, Role::Current)
    }

    #[test]
    fn one_that_drains_is_stopped_when_its_time_is_over() {
        let mut retiring = Retiring::default();
        let until = Time::after_start(Duration::from_secs(10));
        retiring.drain(&mut context(0), instance(1), until);
        assert!(!retiring.step(&mut context(9)));
        let mut cx = context(10);
        assert!(retiring.step(&mut cx));
        let generation = Generation(1);
        assert_eq!(
            cx.effects,
            [Effect::CloseStdin { generation }, Effect::Terminate { generation }]
        );
        assert!(retiring.gone(&mut cx, generation, Some(Exit::Signal(15))) && retiring.is_empty());
    }

    #[test]
    fn a_crowd_costs_the_oldest_its_time() {
        let mut retiring = Retiring::default();
        let until = Time::after_start(Duration::from_secs(10));
        for generation in 0..=RETIRING_MAX as u64 {
            assert!(!retiring.is_crowded());
            let mut cx = context(0);
            retiring.drain(&mut cx, instance(generation), until);
            let killed = cx.effects.contains(&Effect::Kill { generation: Generation(0) });
            assert_eq!(killed, retiring.is_crowded());
        }
        assert!(retiring.is_crowded());
    }
}
