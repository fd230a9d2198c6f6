//! What is reported of an instance while it lives: that it runs, that it serves, that it is unusable.

use super::Service;
use super::event::Event;
use super::exit::Ending;
use super::state::{Effect, Goal, Instance, Process, Role};
use super::stop::{Haste, InstanceStop};
use crate::id::Generation;
use crate::time::Time;

impl Service {
    pub(super) fn spawned(&mut self, generation: Generation, pid: u32, effects: &mut Vec<Effect>) {
        let found = self.instance_mut(generation).filter(|instance| instance.pid.is_none());
        let Some(instance) = found else { return };
        instance.pid = Some(pid);
        let role = instance.role;
        self.has_run = true;
        let restarts = self.restarts.total;
        effects.push(Effect::Tell(match role {
            Role::Current => Event::Started { pid, generation, restarts },
            Role::Candidate => Event::CandidateStarted { pid, generation },
            Role::Spare => Event::SpareStarted { pid, generation },
        }));
        // A stop may have overtaken the start; its steps were sent after the spawn and reach the
        // process.
        let mut opens = self.is_candidate(generation);
        if let Process::Starting(instance) = &self.process
            && instance.generation == generation
        {
            self.process = Process::Running { instance: instance.clone(), restart_at: None };
            opens = true;
        }
        if opens {
            effects.push(Effect::Open { generation });
        }
    }

    pub(super) fn ready(&mut self, now: Time, generation: Generation, effects: &mut Vec<Effect>) {
        if self.is_candidate(generation) {
            self.candidate_ready(now, effects);
        } else if let Process::Running { instance, .. } = &mut self.process
            && instance.generation == generation
        {
            instance.ready = true;
            self.probe_deaths = 0;
        }
    }

    /// An instance is unusable.
    pub(super) fn fail(
        &mut self,
        now: Time,
        generation: Generation,
        ending: Ending,
        effects: &mut Vec<Effect>,
    ) {
        if self.is_candidate(generation) {
            self.candidate_unusable(now, &ending, effects);
            return;
        }
        if self.is_spare(generation) {
            self.spare_unusable(now, effects);
            return;
        }
        if !self.is_current(generation) {
            self.drained(now, generation, effects);
            return;
        }
        match &mut self.process {
            Process::Starting(instance) => {
                let instance = instance.clone();
                self.begin_stop(now, instance, Goal::Failure(ending), effects);
            }
            Process::Running { instance, restart_at } => {
                let instance = instance.clone();
                match restart_at.take() {
                    // It was to be replaced anyway.
                    Some((_, reason)) => self.exit_for_restart(now, instance, reason, effects),
                    None if self.candidate.is_some() => {
                        let pid = instance.pid;
                        self.tell_swap(pid, effects);
                        let haste = Haste::after(&ending);
                        self.leave(now, instance, ending, haste, effects);
                        self.take_over(now, effects);
                    }
                    None => self.begin_stop(now, instance, Goal::Failure(ending), effects),
                }
            }
            _ => {}
        }
    }

    pub(super) fn begin_stop(
        &mut self,
        now: Time,
        instance: Instance,
        goal: Goal,
        effects: &mut Vec<Effect>,
    ) {
        let haste = match &goal {
            Goal::Failure(ending) => Haste::after(ending),
            _ => Haste::InOrder,
        };
        let ladder = InstanceStop::begin(now, instance.generation, self.times(), haste, effects);
        self.process = Process::Stopping { instance, goal, ladder };
    }

    pub(super) fn is_current(&self, generation: Generation) -> bool {
        self.process.instance().is_some_and(|instance| instance.generation == generation)
    }

    /// Whichever instance has this generation.
    pub(super) fn instance_mut(&mut self, generation: Generation) -> Option<&mut Instance> {
        let candidate = self.candidate.as_mut().map(|candidate| &mut candidate.instance);
        let leaving = self.leaving.iter_mut().map(|leaver| &mut leaver.instance);
        (self.process.instance_mut().into_iter())
            .chain(candidate)
            .chain(self.spare.as_mut())
            .chain(leaving)
            .find(|instance| instance.generation == generation)
    }
}
