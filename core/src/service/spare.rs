//! The spare: an instance that has been given nothing, and takes over when the current one crashes.

use super::Service;
use super::event::Event;
use super::exit::{Ending, Exit};
use super::retiring::is_crowded;
use super::state::{Effect, Instance, Process, Role};
use super::stop::Haste;
use crate::id::Generation;
use crate::time::Time;

impl Service {
    pub(super) fn is_spare(&self, generation: Generation) -> bool {
        self.spare.as_ref().is_some_and(|spare| spare.generation == generation)
    }

    /// When a spare is to be started: only beside an instance that serves and is to stay.
    pub(super) fn spare_due(&self) -> Option<Time> {
        let settled = matches!(
            &self.process,
            Process::Running { instance, restart_at: None } if instance.ready
        );
        let alone = self.candidate.is_none() && self.spare.is_none() && !is_crowded(&self.leaving);
        (self.policy.spare && settled && alone).then_some(self.spare_at)
    }

    pub(super) fn spawn_spare(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.spare = Some(self.spawn_as(Role::Spare, now, effects));
    }

    /// Whether a spare could take over at once.
    pub(super) fn has_spare(&self) -> bool {
        self.spare.as_ref().is_some_and(|spare| spare.pid.is_some())
    }

    /// The spare is the current instance from now on, and is given the session.
    pub(super) fn promote_spare(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let Some(spare) = self.spare.take() else { return };
        let Instance { generation, pid, .. } = spare;
        self.restarts.total += 1;
        let restarts = self.restarts.total;
        let tell = |pid| Effect::Tell(Event::Started { pid, generation, restarts });
        effects.extend(pid.map(tell));
        effects.push(Effect::Open { generation });
        // To have been idle for an hour is no hour of service without a crash.
        let instance = Instance { role: Role::Current, since: now, ..spare };
        self.process = Process::Running { instance, restart_at: None };
    }

    /// The spare is of an older code than what is wanted now. Another one follows when the current
    /// instance serves.
    pub(super) fn drop_spare(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.spare_at = now;
        self.spare_failures = 0;
        if let Some(spare) = self.spare.take() {
            self.leave(now, spare, Ending::Replaced, Haste::InOrder, effects);
        }
    }

    pub(super) fn renew_spare(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.drop_spare(now, effects);
    }

    pub(super) fn spare_exited(&mut self, now: Time, exit: Exit, effects: &mut Vec<Effect>) {
        let Some(spare) = self.spare.take() else { return };
        let (pid, uptime) = (spare.pid, now.since(spare.since));
        let ending = Ending::Unused;
        effects.push(Effect::Tell(Event::Exited { pid, exit, ending, uptime }));
        if uptime > self.policy.stable_after {
            self.spare_failures = 0;
        }
        self.plan_spare(now);
    }

    /// The spare runs, but cannot be used.
    pub(super) fn spare_unusable(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if let Some(spare) = self.spare.take() {
            self.leave(now, spare, Ending::Unused, Haste::AtOnce, effects);
            self.plan_spare(now);
        }
    }

    /// A spare has failed; the next one waits longer.
    pub(super) fn plan_spare(&mut self, now: Time) {
        self.spare_failures = self.spare_failures.saturating_add(1);
        self.spare_at = now + self.policy.backoff.spare_delay(self.spare_failures);
    }
}
