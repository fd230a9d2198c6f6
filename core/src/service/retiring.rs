//! Instances that are not needed any more: they drain, are stopped, and their end is told.
//! None of their ends counts as a crash.

use super::Service;
use super::event::Event;
use super::exit::{Ending, Exit};
use super::state::{Effect, Instance, Process};
use super::stop::{Haste, InstanceStop};
use crate::id::Generation;
use crate::limits::RETIRING_MAX;
use crate::stop_ladder::StopTimes;
use crate::time::Time;

/// An instance that goes.
#[derive(Debug)]
pub(super) struct Leaver {
    pub(super) instance: Instance,
    /// What its end is told as.
    ending: Ending,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// It answers what it has been asked, until then at most.
    Draining {
        until: Time,
    },
    Stopping(InstanceStop),
}

impl Leaver {
    /// When the next step is due.
    pub(super) const fn next_at(&self) -> Time {
        match &self.stage {
            Stage::Draining { until } => *until,
            Stage::Stopping(ladder) => ladder.next_at(),
        }
    }

    pub(super) fn hurry_up(&mut self, now: Time) {
        if let Stage::Stopping(ladder) = &mut self.stage {
            ladder.hurry_up(now);
        }
    }

    /// Whether it still has time to end by itself.
    fn has_time(&self) -> bool {
        match &self.stage {
            Stage::Draining { .. } => true,
            Stage::Stopping(ladder) => !ladder.is_killed(),
        }
    }

    fn stop(&mut self, now: Time, times: StopTimes, haste: Haste, effects: &mut Vec<Effect>) {
        let generation = self.instance.generation;
        self.stage = Stage::Stopping(InstanceStop::begin(now, generation, times, haste, effects));
    }

    fn step(&mut self, now: Time, times: StopTimes, effects: &mut Vec<Effect>) {
        match &mut self.stage {
            Stage::Draining { .. } => self.stop(now, times, Haste::InOrder, effects),
            Stage::Stopping(ladder) => ladder.escalate(now, self.instance.pid, times, effects),
        }
    }
}

impl Service {
    /// The instance was replaced, and may finish what it has begun.
    pub(super) fn retire(&mut self, now: Time, instance: Instance, effects: &mut Vec<Effect>) {
        let until = now + self.policy.drain_timeout;
        let stage = Stage::Draining { until };
        self.push_leaver(now, Leaver { instance, ending: Ending::Replaced, stage }, effects);
    }

    /// The instance is stopped, beside whatever else happens.
    pub(super) fn leave(
        &mut self,
        now: Time,
        instance: Instance,
        ending: Ending,
        haste: Haste,
        effects: &mut Vec<Effect>,
    ) {
        let ladder = InstanceStop::begin(now, instance.generation, self.times(), haste, effects);
        let stage = Stage::Stopping(ladder);
        self.push_leaver(now, Leaver { instance, ending, stage }, effects);
    }

    fn push_leaver(&mut self, now: Time, leaver: Leaver, effects: &mut Vec<Effect>) {
        self.leaving.push(leaver);
        if !is_crowded(&self.leaving) {
            return;
        }
        let times = self.times();
        if let Some(oldest) = self.leaving.iter_mut().find(|leaver| leaver.has_time()) {
            match oldest.stage {
                Stage::Draining { .. } => oldest.stop(now, times, Haste::AtOnce, effects),
                Stage::Stopping(_) => oldest.hurry_up(now),
            }
        }
    }

    /// It owes nothing any more: its stop begins.
    pub(super) fn drained(&mut self, now: Time, generation: Generation, effects: &mut Vec<Effect>) {
        let times = self.times();
        let found = self.leaving.iter_mut().find(|it| it.instance.generation == generation);
        if let Some(leaver) = found
            && matches!(leaver.stage, Stage::Draining { .. })
        {
            leaver.stop(now, times, Haste::InOrder, effects);
        }
    }

    /// All but the current instance are stopped, in parallel.
    pub(super) fn stop_others(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let times = self.times();
        for leaver in &mut self.leaving {
            match &mut leaver.stage {
                Stage::Draining { .. } => leaver.stop(now, times, Haste::InOrder, effects),
                Stage::Stopping(ladder) => ladder.shorten(now, times),
            }
        }
        let candidate = self.candidate.take().map(|candidate| candidate.instance);
        for instance in candidate.into_iter().chain(self.spare.take()) {
            self.leave(now, instance, Ending::Unused, Haste::InOrder, effects);
        }
    }

    /// Takes a step of one that leaves, if any is due.
    pub(super) fn step_leaving(&mut self, now: Time, effects: &mut Vec<Effect>) -> bool {
        let times = self.times();
        match self.leaving.iter_mut().find(|leaver| leaver.next_at() <= now) {
            Some(leaver) => {
                leaver.step(now, times, effects);
                true
            }
            None => false,
        }
    }

    /// One that leaves is gone, or never came. Returns whether it was one of them.
    pub(super) fn leaver_gone(
        &mut self,
        now: Time,
        generation: Generation,
        exit: Option<Exit>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let found = self.leaving.iter().position(|it| it.instance.generation == generation);
        let Some(index) = found else { return false };
        let Leaver { instance: Instance { pid, since, .. }, ending, .. } =
            self.leaving.remove(index);
        if let Some(exit) = exit {
            let uptime = now.since(since);
            effects.push(Effect::Tell(Event::Exited { pid, exit, ending, uptime }));
        }
        if self.leaving.is_empty()
            && let Process::Closing { rest, last_word } = &self.process
        {
            effects.extend(last_word.clone().map(Effect::Tell));
            self.process = Process::Down(rest.clone());
        }
        true
    }
}

/// Whether so many leave that nothing more is started beside the current instance.
pub(super) const fn is_crowded(leaving: &[Leaver]) -> bool {
    leaving.len() > RETIRING_MAX
}
