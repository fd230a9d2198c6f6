//! Instances that a client's probe has spoiled or killed: replaced without a word of restart or
//! crash.

use super::Service;
use super::event::Event;
use super::exit::Ending;
use super::retiring::is_crowded;
use super::state::{Effect, Goal, Process, Rest, Want};
use super::stop::Haste;
use crate::id::Generation;
use crate::limits::PROBE_DEATHS_MAX;
use crate::policy::RestartMode;
use crate::time::Time;

impl Service {
    pub(super) fn replace(
        &mut self,
        now: Time,
        generation: Generation,
        reason: String,
        effects: &mut Vec<Effect>,
    ) {
        let Some(instance) = self.instance_mut(generation) else { return };
        let pid = instance.pid;
        effects.push(Effect::Tell(Event::Replacing { pid, reason }));
        if self.is_candidate(generation) {
            self.replace_candidate(now, effects);
        } else if self.is_spare(generation) {
            self.renew_spare(now, effects);
        } else if self.is_current(generation) {
            self.replace_current(now, effects);
        } else {
            self.drained(now, generation, effects);
        }
    }

    fn replace_current(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let instance = match &mut self.process {
            Process::Starting(instance) => instance.clone(),
            Process::Running { instance, restart_at } => {
                let instance = instance.clone();
                // It was to be replaced anyway.
                if let Some((_, reason)) = restart_at.take() {
                    self.exit_for_restart(now, instance, reason, effects);
                    return;
                }
                instance
            }
            _ => return,
        };
        let side_by_side =
            self.policy.restart_mode == RestartMode::Swap && !is_crowded(&self.leaving);
        if self.candidate.is_some() {
            self.tell_swap(instance.pid, effects);
            self.leave(now, instance, Ending::Replaced, Haste::InOrder, effects);
            self.take_over(now, effects);
        } else if self.has_spare() {
            self.leave(now, instance, Ending::Replaced, Haste::InOrder, effects);
            self.promote_spare(now, effects);
        } else if side_by_side {
            self.leave(now, instance, Ending::Replaced, Haste::InOrder, effects);
            self.spawn(now, effects);
        } else {
            self.begin_stop(now, instance, Goal::Quietly, effects);
        }
    }

    /// The end of the instance is no crash, be it still to come or just told.
    pub(super) fn died_of_probe(&mut self, now: Time, generation: Generation) {
        if self.is_current(generation) {
            if let Some(instance) = self.process.instance_mut() {
                instance.died_of_probe = true;
            }
            return;
        }
        let just_ended = self.last_ended.take_if(|last| *last == generation).is_some();
        if !just_ended || !self.forgives_probe() {
            return;
        }
        self.restarts.uncount();
        match &mut self.process {
            Process::Waiting { spawn_at, requested: false } => *spawn_at = now,
            Process::Down(Rest::Finished(_) | Rest::Failed(_))
            | Process::Closing { rest: Rest::Finished(_) | Rest::Failed(_), .. } => {
                self.want = Want::Up;
                self.process = Process::Waiting { spawn_at: now, requested: false };
            }
            // The next one is on its way.
            _ => {}
        }
    }

    /// Counts a death by a probe. A server that dies of all of them must not be started for ever.
    pub(super) fn forgives_probe(&mut self) -> bool {
        let forgives = self.probe_deaths < PROBE_DEATHS_MAX;
        self.probe_deaths = self.probe_deaths.saturating_add(u32::from(forgives));
        forgives
    }
}
