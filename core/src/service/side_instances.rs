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

use super::event::Event;
use super::exit::{Ending, Exit, SpawnFailure};
use super::retiring::Retiring;
use super::spare::SpareSlot;
use super::state::{InputContext, Instance};
use super::stop::Haste;
use crate::id::Generation;
use crate::policy::Policy;
use crate::time::Time;

/// The instances beside the current one.
#[derive(Debug, Default)]
pub(super) struct SideInstances {
    candidate: Option<Candidate>,
    spare: SpareSlot,
    retiring: Retiring,
}

/// The instance that becomes the current one when it is ready.
#[derive(Debug)]
struct Candidate {
    instance: Instance,
    /// Why the restart was requested.
    reason: String,
}

impl SideInstances {
    pub(super) fn begin_swap(&mut self, instance: Instance, reason: String) {
        self.candidate = Some(Candidate { instance, reason });
    }

    pub(super) const fn candidate(&self) -> Option<&Instance> {
        match &self.candidate {
            Some(candidate) => Some(&candidate.instance),
            None => None,
        }
    }

    pub(super) fn is_candidate(&self, generation: Generation) -> bool {
        self.candidate().is_some_and(|instance| instance.generation == generation)
    }

    pub(super) fn take_candidate(&mut self) -> Option<Instance> {
        self.candidate.take().map(|candidate| candidate.instance)
    }

    /// Announces that the current instance goes, as its candidate takes over.
    pub(super) fn announce_swap(&self, cx: &mut InputContext, pid: Option<u32>, exit_code: i32) {
        if let Some(Candidate { reason, .. }) = &self.candidate {
            cx.tell(Event::ExitingForRestart { pid, reason: reason.clone(), exit_code });
        }
    }

    /// Stops the candidate, which is not what is wanted now. Returns the reason of its restart.
    pub(super) fn drop_candidate(&mut self, cx: &mut InputContext) -> Option<String> {
        let Candidate { instance, reason } = self.candidate.take()?;
        self.stop(cx, instance, Ending::Replaced, Haste::InOrder);
        Some(reason)
    }

    pub(super) const fn spare(&self) -> Option<&Instance> {
        self.spare.instance()
    }

    /// Whether a spare could take over at once.
    pub(super) fn has_spare(&self) -> bool {
        self.spare().is_some_and(|spare| spare.pid.is_some())
    }

    pub(super) fn put_spare(&mut self, spare: Instance) {
        self.spare.put(spare);
    }

    pub(super) fn take_spare(&mut self) -> Option<Instance> {
        self.spare.take()
    }

    /// When a spare may start, where there is none and there is room for one.
    pub(super) fn spare_due(&self) -> Option<Time> {
        let is_alone = self.candidate.is_none() && !self.is_crowded();
        self.spare.due_at().filter(|_| is_alone)
    }

    /// Stops the spare, which is of older code. Another one follows when the current instance serves.
    pub(super) fn drop_spare(&mut self, cx: &mut InputContext) {
        if let Some(spare) = self.spare.renew(cx.now) {
            self.stop(cx, spare, Ending::Replaced, Haste::InOrder);
        }
    }

    /// A replaced instance may finish its requests until then.
    pub(super) fn drain(&mut self, cx: &mut InputContext, instance: Instance, until: Time) {
        self.retiring.drain(cx, instance, until);
    }

    /// Stops an instance; its end is told as `ending`.
    pub(super) fn stop(
        &mut self,
        cx: &mut InputContext,
        instance: Instance,
        ending: Ending,
        haste: Haste,
    ) {
        self.retiring.stop(cx, instance, ending, haste);
    }

    /// Stops all of them, in parallel.
    pub(super) fn stop_all(&mut self, cx: &mut InputContext) {
        self.retiring.stop_all(cx);
        for instance in self.take_candidate().into_iter().chain(self.spare.take()) {
            self.stop(cx, instance, Ending::Unused, Haste::InOrder);
        }
    }

    pub(super) fn hurry_up(&mut self, now: Time) {
        self.retiring.hurry_up(now);
    }

    /// The instance has no request left.
    pub(super) fn drained(&mut self, cx: &mut InputContext, generation: Generation) {
        self.retiring.drained(cx, generation);
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
            self.retiring.gone(cx, generation, Some(exit));
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
        } else if self.retiring.gone(cx, generation, None) {
            cx.tell(Event::SpawnFailed(failure));
        }
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
        self.retiring.next_at()
    }

    /// Takes a step that is due; says whether there was one.
    pub(super) fn step(&mut self, cx: &mut InputContext) -> bool {
        self.retiring.step(cx)
    }

    pub(super) fn instances_mut(&mut self) -> impl Iterator<Item = &mut Instance> {
        let candidate = self.candidate.as_mut().map(|candidate| &mut candidate.instance);
        let others = candidate.into_iter().chain(self.spare.instance_mut());
        others.chain(self.retiring.instances_mut())
    }

    pub(super) fn has_retiring(&self) -> bool {
        !self.retiring.is_empty()
    }

    /// Whether so many retire that nothing more is started beside the current instance.
    pub(super) fn is_crowded(&self) -> bool {
        self.retiring.is_crowded()
    }

    fn is_spare(&self, generation: Generation) -> bool {
        self.spare().is_some_and(|spare| spare.generation == generation)
    }

    fn take_candidate_if(&mut self, generation: Generation) -> Option<Instance> {
        let is_it = |candidate: &mut Candidate| candidate.instance.generation == generation;
        self.candidate.take_if(is_it).map(|candidate| candidate.instance)
    }
}
