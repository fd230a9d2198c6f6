//! Owns all instances beside the current one: the candidate of a swap, the spare, and those that retire.
//!
//! Driven by [`Service`](super::Service), which alone makes one of them the current instance. Never touches
//! the current instance, and none of the ends here counts as a crash.
//!
//! ```text
//!   candidate ──taken by a swap──▶ current     fails: SwapFailed, the current one stays
//!   spare ──taken after a crash──▶ current
//!   replaced, unusable, unused ──▶ retiring: draining ──▶ stopping ──▶ gone
//! ```

use std::time::Duration;

use super::event::Event;
use super::exit::{Ending, Exit, SpawnFailure};
use super::state::{Haste, InputContext, Instance};
use crate::audit::Actor;
use crate::id::Generation;
use crate::limits::RETIRING_MAX;
use crate::policy::{Backoff, Policy};
use crate::stop_ladder::{StopLadder, StopStep};
use crate::time::Time;

/// The instances beside the current one.
#[derive(Debug, Default)]
pub(super) struct SideInstances {
    pub(super) candidate: Option<Candidate>,
    pub(super) spare: SpareSlot,
    /// Those that are not needed any more, the oldest first.
    retiring: Vec<RetiringInstance>,
}

/// The instance that becomes the current one when it is ready.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) instance: Instance,
    /// Why the restart was requested.
    pub(super) reason: String,
}

/// The place for one spare: an idle instance that takes over when the current one crashes.
#[derive(Debug, Default)]
pub(super) struct SpareSlot {
    pub(super) instance: Option<Instance>,
    /// No spare is started before this.
    start_at: Time,
    /// Spares in a row that ended by themselves.
    failures: u32,
}

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
    DrainingUntil(Time),
    Stopping(StopLadder),
}

impl SpareSlot {
    /// Takes the spare out as it has failed after its uptime; the next one waits longer, unless this one has run
    /// long enough.
    fn fail(
        &mut self,
        now: Time,
        backoff: &Backoff,
        is_stable: impl FnOnce(Duration) -> bool,
    ) -> Option<Instance> {
        let spare = self.instance.take()?;
        if is_stable(now.since(spare.since)) {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        self.start_at = now + backoff.spare_delay(self.failures);
        Some(spare)
    }
}

impl RetiringInstance {
    const fn next_at(&self) -> Time {
        match &self.state {
            RetiringState::DrainingUntil(until) => *until,
            RetiringState::Stopping(ladder) => ladder.next_at(),
        }
    }

    fn stop(&mut self, cx: &mut InputContext, haste: Haste) {
        self.state = RetiringState::Stopping(cx.begin_stop(self.instance.generation, haste));
    }
}

impl SideInstances {
    pub(super) fn is_candidate(&self, generation: Generation) -> bool {
        self.candidate.as_ref().is_some_and(|it| it.instance.generation == generation)
    }

    fn take_candidate_if(&mut self, generation: Generation) -> Option<Instance> {
        let is_it = |candidate: &mut Candidate| candidate.instance.generation == generation;
        self.candidate.take_if(is_it).map(|candidate| candidate.instance)
    }

    /// Announces that the current instance goes, as its candidate takes over.
    pub(super) fn announce_swap(
        &self,
        cx: &mut InputContext,
        by: &Actor,
        pid: Option<u32>,
        exit_code: i32,
    ) {
        if let Some(Candidate { reason, .. }) = &self.candidate {
            let (reason, by) = (reason.clone(), by.clone());
            cx.tell(Event::ExitingForRestart { pid, reason, exit_code, by });
        }
    }

    /// Stops the candidate, which is not what is wanted now. Returns the reason of its restart.
    pub(super) fn drop_candidate(&mut self, cx: &mut InputContext) -> Option<String> {
        let Candidate { instance, reason } = self.candidate.take()?;
        self.stop(cx, instance, Ending::Replaced, Haste::InOrder);
        Some(reason)
    }

    fn is_spare(&self, generation: Generation) -> bool {
        self.spare.instance.as_ref().is_some_and(|spare| spare.generation == generation)
    }

    /// Whether a spare could take over at once.
    pub(super) fn has_spare(&self) -> bool {
        self.spare.instance.as_ref().is_some_and(|spare| spare.pid.is_some())
    }

    /// When a spare may start, where there is none and there is room for one.
    pub(super) fn spare_due(&self) -> Option<Time> {
        let is_alone = self.candidate.is_none() && !self.is_crowded();
        (self.spare.instance.is_none() && is_alone).then_some(self.spare.start_at)
    }

    /// Stops the spare, which is of older code. Another one follows when the current instance serves.
    pub(super) fn drop_spare(&mut self, cx: &mut InputContext) {
        let spare = std::mem::take(&mut self.spare).instance;
        self.spare.start_at = cx.now;
        if let Some(spare) = spare {
            self.stop(cx, spare, Ending::Replaced, Haste::InOrder);
        }
    }

    /// A replaced instance may finish its requests until then.
    pub(super) fn drain(&mut self, cx: &mut InputContext, instance: Instance, until: Time) {
        let state = RetiringState::DrainingUntil(until);
        self.retire(cx, RetiringInstance { instance, ending: Ending::Replaced, state });
    }

    /// Stops an instance; its end is told as `ending`.
    pub(super) fn stop(
        &mut self,
        cx: &mut InputContext,
        instance: Instance,
        ending: Ending,
        haste: Haste,
    ) {
        let state = RetiringState::Stopping(cx.begin_stop(instance.generation, haste));
        self.retire(cx, RetiringInstance { instance, ending, state });
    }

    fn retire(&mut self, cx: &mut InputContext, retiring: RetiringInstance) {
        self.retiring.push(retiring);
        // The oldest that still has time to end by itself.
        let has_time = |it: &&mut RetiringInstance| match &it.state {
            RetiringState::DrainingUntil(_) => true,
            RetiringState::Stopping(ladder) => ladder.last_step() < StopStep::Kill,
        };
        if self.is_crowded()
            && let Some(oldest) = self.retiring.iter_mut().find(has_time)
        {
            match &mut oldest.state {
                RetiringState::DrainingUntil(_) => oldest.stop(cx, Haste::AtOnce),
                RetiringState::Stopping(ladder) => ladder.hurry_up(cx.now),
            }
        }
    }

    /// Stops all of them, in parallel, within the times that hold now.
    pub(super) fn stop_all(&mut self, cx: &mut InputContext) {
        for retiring in &mut self.retiring {
            match &mut retiring.state {
                RetiringState::DrainingUntil(_) => retiring.stop(cx, Haste::InOrder),
                RetiringState::Stopping(ladder) => ladder.shorten(cx.now, cx.times),
            }
        }
        let candidate = self.candidate.take().map(|candidate| candidate.instance);
        for instance in candidate.into_iter().chain(self.spare.instance.take()) {
            self.stop(cx, instance, Ending::Unused, Haste::InOrder);
        }
    }

    pub(super) fn hurry_up(&mut self, now: Time) {
        for retiring in &mut self.retiring {
            if let RetiringState::Stopping(ladder) = &mut retiring.state {
                ladder.hurry_up(now);
            }
        }
    }

    /// The instance has no request left: its stop begins.
    pub(super) fn drained(&mut self, cx: &mut InputContext, generation: Generation) {
        let found = self.retiring.iter_mut().find(|it| it.instance.generation == generation);
        if let Some(retiring) = found
            && matches!(retiring.state, RetiringState::DrainingUntil(_))
        {
            retiring.stop(cx, Haste::InOrder);
        }
    }

    pub(super) fn exited(
        &mut self,
        cx: &mut InputContext,
        generation: Generation,
        exit: Exit,
        policy: &Policy,
    ) {
        let tell = |cx: &mut InputContext, Instance { pid, since, .. }: Instance| {
            let (ending, uptime) = (Ending::Unused, cx.now.since(since));
            cx.tell(Event::Exited { pid, exit, ending, uptime });
            pid
        };
        if let Some(candidate) = self.take_candidate_if(generation) {
            let pid = tell(cx, candidate);
            cx.tell(Event::SwapFailed { pid, why: format!("it {exit}") });
        } else if self.is_spare(generation) {
            let is_stable = |uptime| uptime > policy.stable_after;
            if let Some(spare) = self.spare.fail(cx.now, &policy.backoff, is_stable) {
                tell(cx, spare);
            }
        } else {
            self.gone(cx, generation, Some(exit));
        }
    }

    pub(super) fn spawn_failed(
        &mut self,
        cx: &mut InputContext,
        generation: Generation,
        failure: SpawnFailure,
        policy: &Policy,
    ) {
        if self.take_candidate_if(generation).is_some() {
            cx.tell(Event::SwapFailed { pid: None, why: failure.message });
        } else if self.is_spare(generation) {
            self.spare.fail(cx.now, &policy.backoff, |_| false);
            cx.tell(Event::SpawnFailed(failure));
        } else if self.gone(cx, generation, None) {
            cx.tell(Event::SpawnFailed(failure));
        }
    }

    /// The instance is gone, or was never spawned. Returns whether it was one of those that retire.
    fn gone(&mut self, cx: &mut InputContext, generation: Generation, exit: Option<Exit>) -> bool {
        let found = self.retiring.iter().position(|it| it.instance.generation == generation);
        let Some(index) = found else { return false };
        let RetiringInstance { instance: Instance { pid, since, .. }, ending, .. } =
            self.retiring.remove(index);
        if let Some(exit) = exit {
            let uptime = cx.now.since(since);
            cx.tell(Event::Exited { pid, exit, ending, uptime });
        }
        true
    }

    /// The instance runs, but is unusable.
    pub(super) fn fail(
        &mut self,
        cx: &mut InputContext,
        generation: Generation,
        ending: &Ending,
        policy: &Policy,
    ) {
        if let Some(candidate) = self.take_candidate_if(generation) {
            cx.tell(Event::SwapFailed { pid: candidate.pid, why: ending.to_string() });
            self.stop(cx, candidate, Ending::Unused, Haste::AtOnce);
        } else if self.is_spare(generation) {
            if let Some(spare) = self.spare.fail(cx.now, &policy.backoff, |_| false) {
                self.stop(cx, spare, Ending::Unused, Haste::AtOnce);
            }
        } else {
            self.drained(cx, generation);
        }
    }

    /// The instance is spoiled, and no candidate.
    pub(super) fn replace(&mut self, cx: &mut InputContext, generation: Generation) {
        if self.is_spare(generation) {
            self.drop_spare(cx);
        } else {
            self.drained(cx, generation);
        }
    }

    /// When a step of a stop is due.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.retiring.iter().map(RetiringInstance::next_at).min()
    }

    /// Takes a step that is due; says whether there was one.
    pub(super) fn step(&mut self, cx: &mut InputContext) -> bool {
        let due = self.retiring.iter_mut().find(|retiring| retiring.next_at() <= cx.now);
        let Some(retiring) = due else { return false };
        match &mut retiring.state {
            RetiringState::DrainingUntil(_) => retiring.stop(cx, Haste::InOrder),
            RetiringState::Stopping(ladder) => cx.escalate(ladder, &retiring.instance),
        }
        true
    }

    pub(super) fn instances_mut(&mut self) -> impl Iterator<Item = &mut Instance> {
        let candidate = self.candidate.as_mut().map(|candidate| &mut candidate.instance);
        let others = candidate.into_iter().chain(self.spare.instance.as_mut());
        others.chain(self.retiring.iter_mut().map(|retiring| &mut retiring.instance))
    }

    pub(super) fn has_retiring(&self) -> bool {
        !self.retiring.is_empty()
    }

    /// Whether so many retire that nothing more is started beside the current instance.
    pub(super) fn is_crowded(&self) -> bool {
        self.retiring.len() > RETIRING_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::state::{Effect, Role};
    use crate::stop_ladder::StopTimes;

    fn context(seconds: u64) -> InputContext {
        let times = StopTimes { stdin: Duration::ZERO, term: Duration::from_secs(5) };
        let now = Time::after_start(Duration::from_secs(seconds));
        InputContext { now, times, effects: Vec::new() }
    }

    fn instance(generation: u64) -> Instance {
        Instance::new(Generation(generation), Time::ZERO, Role::Current)
    }

    #[test]
    fn one_that_drains_is_stopped_when_its_time_is_over() {
        let mut side = SideInstances::default();
        let until = Time::after_start(Duration::from_secs(10));
        side.drain(&mut context(0), instance(1), until);
        assert!(!side.step(&mut context(9)));
        let mut cx = context(10);
        assert!(side.step(&mut cx));
        let generation = Generation(1);
        assert_eq!(
            cx.effects,
            [StopStep::CloseStdin, StopStep::Terminate].map(|step| Effect::Stop(step, generation))
        );
        assert!(side.gone(&mut cx, generation, Some(Exit::Signal(15))) && !side.has_retiring());
    }

    #[test]
    fn a_crowd_costs_the_oldest_its_time() {
        let mut side = SideInstances::default();
        let until = Time::after_start(Duration::from_secs(10));
        for generation in 0..=RETIRING_MAX as u64 {
            assert!(!side.is_crowded());
            let mut cx = context(0);
            side.drain(&mut cx, instance(generation), until);
            let killed = cx.effects.contains(&Effect::Stop(StopStep::Kill, Generation(0)));
            assert_eq!(killed, side.is_crowded());
        }
        assert!(side.is_crowded());
    }

    #[test]
    fn each_failure_in_a_row_makes_the_next_spare_wait_longer() {
        let backoff = Policy::default().backoff;
        let mut side = SideInstances::default();
        assert_eq!(side.spare_due(), Some(Time::ZERO));
        let mut waits = Vec::new();
        let now = Time::after_start(Duration::from_secs(100));
        for is_stable in [false, false, false, true] {
            side.spare.instance = Some(instance(1));
            assert_eq!(side.spare_due(), None);
            side.spare.fail(now, &backoff, |_| is_stable);
            waits.push(side.spare_due().unwrap().since(now).as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 1]);
        side.drop_spare(&mut context(100));
        assert_eq!(side.spare_due(), Some(now));
    }
}
