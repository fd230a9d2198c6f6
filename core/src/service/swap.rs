//! A swap: the new instance is started first, and the old one goes when the new one is ready.

use super::Service;
use super::event::Event;
use super::exit::{Ending, Exit};
use super::state::{Effect, Instance, Process, Role};
use super::stop::Haste;
use crate::id::Generation;
use crate::time::Time;

/// The instance that is to become the current one.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) instance: Instance,
    /// Why the restart was asked for.
    reason: String,
}

impl Service {
    /// Whether this instance is being started to serve, and no newer one is wanted yet.
    pub fn awaits(&self, generation: Generation) -> bool {
        let starting = match &self.process {
            Process::Starting(instance) => Some(instance.generation),
            _ => None,
        };
        starting == Some(generation) || self.is_candidate(generation)
    }

    pub(super) fn is_candidate(&self, generation: Generation) -> bool {
        self.candidate.as_ref().is_some_and(|it| it.instance.generation == generation)
    }

    pub(super) fn begin_swap(&mut self, now: Time, reason: String, effects: &mut Vec<Effect>) {
        self.restarts.requested(now);
        let instance = self.spawn_as(Role::Candidate, now, effects);
        self.candidate = Some(Candidate { instance, reason });
    }

    /// The candidate is older than what is wanted now.
    pub(super) fn drop_candidate(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if let Some(candidate) = self.candidate.take() {
            self.leave(now, candidate.instance, Ending::Replaced, Haste::InOrder, effects);
        }
    }

    /// The switch. The old instance may finish what it has begun.
    pub(super) fn candidate_ready(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let opened = self.candidate.as_ref().is_some_and(|it| it.instance.pid.is_some());
        let Process::Running { instance: old, .. } = &self.process else { return };
        if !opened {
            return;
        }
        let old = old.clone();
        self.tell_swap(old.pid, effects);
        self.take_over(now, effects);
        self.retire(now, old, effects);
        if let Process::Running { instance, .. } = &mut self.process {
            instance.ready = true;
        }
        self.probe_deaths = 0;
    }

    /// The current instance goes, and its candidate comes.
    pub(super) fn tell_swap(&self, pid: Option<u32>, effects: &mut Vec<Effect>) {
        if let Some(Candidate { reason, .. }) = &self.candidate {
            let (reason, exit_code) = (reason.clone(), self.policy.restart_code);
            effects.push(Effect::Tell(Event::ExitingForRestart { pid, reason, exit_code }));
        }
    }

    /// The candidate is the current instance from now on, whether or not it is ready.
    pub(super) fn take_over(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let Some(Candidate { mut instance, .. }) = self.candidate.take() else { return };
        self.restarts.total += 1;
        instance.role = Role::Current;
        let (generation, restarts) = (instance.generation, self.restarts.total);
        self.process = match instance.pid {
            Some(pid) => {
                effects.push(Effect::Tell(Event::Started { pid, generation, restarts }));
                Process::Running { instance, restart_at: None }
            }
            None => Process::Starting(instance),
        };
        // It is of the older code.
        self.drop_spare(now, effects);
    }

    /// The candidate is gone before it was ready: nothing changes.
    pub(super) fn candidate_exited(&mut self, now: Time, exit: Exit, effects: &mut Vec<Effect>) {
        let Some(Candidate { instance, .. }) = self.candidate.take() else { return };
        let (pid, uptime) = (instance.pid, now.since(instance.since));
        let ending = Ending::Unused;
        effects.push(Effect::Tell(Event::Exited { pid, exit, ending, uptime }));
        effects.push(Effect::Tell(Event::SwapFailed { pid, why: format!("it {exit}") }));
    }

    pub(super) fn candidate_not_spawned(&mut self, why: String, effects: &mut Vec<Effect>) {
        self.candidate = None;
        effects.push(Effect::Tell(Event::SwapFailed { pid: None, why }));
    }

    /// The candidate runs, but cannot be used.
    pub(super) fn candidate_unusable(
        &mut self,
        now: Time,
        ending: &Ending,
        effects: &mut Vec<Effect>,
    ) {
        let Some(Candidate { instance, .. }) = self.candidate.take() else { return };
        let why = ending.to_string();
        effects.push(Effect::Tell(Event::SwapFailed { pid: instance.pid, why }));
        self.leave(now, instance, Ending::Unused, Haste::AtOnce, effects);
    }

    /// Another candidate takes the place of one that is spoiled.
    pub(super) fn replace_candidate(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let Some(Candidate { instance, reason }) = self.candidate.take() else { return };
        if let Process::Running { restart_at, .. } = &mut self.process {
            *restart_at = Some((now, reason));
        }
        self.leave(now, instance, Ending::Replaced, Haste::InOrder, effects);
    }
}

#[cfg(test)]
mod tests;
