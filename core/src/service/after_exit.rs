//! What follows the end of an instance: rest, a wait, a new start, giving up.

use std::time::Duration;

use super::Service;
use super::event::{Event, StopReason};
use super::exit::{Ending, Exit, SpawnFailure};
use super::restart::Verdict;
use super::state::{Effect, Goal, Process, Rest, Want};
use crate::id::Generation;
use crate::policy::Restart;
use crate::time::Time;

impl Service {
    pub(super) fn exited(
        &mut self,
        now: Time,
        generation: Generation,
        exit: Exit,
        effects: &mut Vec<Effect>,
    ) {
        if self.is_current(generation) {
            self.current_exited(now, generation, exit, effects);
        } else if self.is_candidate(generation) {
            self.candidate_exited(now, exit, effects);
        } else if self.is_spare(generation) {
            self.spare_exited(now, exit, effects);
        } else {
            self.leaver_gone(now, generation, Some(exit), effects);
        }
    }

    fn current_exited(
        &mut self,
        now: Time,
        generation: Generation,
        exit: Exit,
        effects: &mut Vec<Effect>,
    ) {
        let Some(instance) = self.process.instance() else { return };
        let (pid, uptime) = (instance.pid, now.since(instance.since));
        let died_of_probe = instance.died_of_probe;
        let goal = match &self.process {
            // A restart was asked for and had to wait: the end is what it waited for.
            Process::Running { restart_at: Some((_, reason)), .. } => {
                let (reason, exit_code) = (reason.clone(), self.policy.restart_code);
                effects.push(Effect::Tell(Event::ExitingForRestart { pid, reason, exit_code }));
                Some(Goal::NewInstance)
            }
            Process::Running { .. } if self.candidate.is_some() => {
                self.tell_swap(pid, effects);
                Some(Goal::NewInstance)
            }
            Process::Stopping { goal, .. } => Some(goal.clone()),
            // Where it is still starting, its guardian was killed before it could report.
            _ => None,
        };
        self.last_exit = Some(exit);
        let ending = match goal {
            None if died_of_probe && self.forgives_probe() => Ending::DiedOfProbe,
            None => exit.unasked(&self.policy),
            Some(Goal::Failure(ending)) => ending,
            Some(Goal::NewInstance | Goal::Quietly) => Ending::Replaced,
            Some(Goal::Down) => match self.want {
                Want::Up | Want::Down => Ending::StoppedByUser,
                Want::Gone => Ending::Retired,
                Want::Shutdown { is_alone: true, .. } => Ending::Dismissed,
                Want::Shutdown { .. } => Ending::Shutdown,
            },
        };
        let quietly = matches!(self.process, Process::Stopping { goal: Goal::Quietly, .. })
            || ending == Ending::DiedOfProbe;
        effects.push(Effect::Tell(Event::Exited { pid, exit, ending: ending.clone(), uptime }));
        match self.want {
            Want::Up if self.candidate.is_some() => self.take_over(now, effects),
            Want::Up if quietly && self.has_spare() => self.promote_spare(now, effects),
            Want::Up if quietly => {
                self.process = Process::Waiting { spawn_at: now, requested: false };
            }
            Want::Up => {
                self.last_ended = Some(generation);
                self.after_exit(now, pid, uptime, ending, effects);
            }
            Want::Down | Want::Gone | Want::Shutdown { .. } => self.rest_stopped(now, effects),
        }
    }

    pub(super) fn spawn_failed(
        &mut self,
        now: Time,
        generation: Generation,
        failure: SpawnFailure,
        effects: &mut Vec<Effect>,
    ) {
        if self.is_candidate(generation) {
            self.candidate_not_spawned(failure.message, effects);
            return;
        }
        let is_spare = self.is_spare(generation);
        let is_leaving = self.leaving.iter().any(|it| it.instance.generation == generation);
        if is_spare || is_leaving || self.is_current(generation) {
            effects.push(Effect::Tell(Event::SpawnFailed(failure.clone())));
        }
        if is_spare {
            self.spare = None;
            self.plan_spare(now);
        }
        if is_spare || self.leaver_gone(now, generation, None, effects) {
            return;
        }
        if self.is_current(generation) {
            self.current_not_spawned(now, failure, effects);
        }
    }

    fn current_not_spawned(&mut self, now: Time, failure: SpawnFailure, effects: &mut Vec<Effect>) {
        let goal = match &self.process {
            Process::Stopping { goal, .. } => goal.clone(),
            _ => Goal::Failure(Ending::SpawnFailed(failure.clone())),
        };
        let hopeless = failure.permanent && !self.has_run && goal != Goal::NewInstance;
        let ending = Ending::SpawnFailed(failure);
        match (self.want, goal) {
            (Want::Up, Goal::NewInstance) => self.plan_requested(now, effects),
            (Want::Up, _) if hopeless => {
                self.restarts.unwell = true;
                self.rest_as(now, Rest::Failed(ending), None, effects);
            }
            (Want::Up, _) => self.after_failure(now, Duration::ZERO, ending, effects),
            (Want::Down | Want::Gone | Want::Shutdown { .. }, _) => self.rest_stopped(now, effects),
        }
    }

    pub(super) fn after_exit(
        &mut self,
        now: Time,
        pid: Option<u32>,
        uptime: Duration,
        ending: Ending,
        effects: &mut Vec<Effect>,
    ) {
        match (&ending, self.policy.restart) {
            (Ending::Replaced, _) => self.plan_requested(now, effects),
            (Ending::RestartRequested, _) => {
                let exit_code = self.policy.restart_code;
                let reason = format!("the process exited with code {exit_code}");
                effects.extend([
                    Effect::Tell(Event::RestartRequested { pid, reason: reason.clone() }),
                    Effect::MarkRestart { pid, reason: reason.clone() },
                    Effect::Tell(Event::ExitingForRestart { pid, reason, exit_code }),
                ]);
                self.plan_requested(now, effects);
            }
            (Ending::StoppedByUser, _) => {
                self.want = Want::Down;
                self.rest_stopped(now, effects);
            }
            (Ending::Clean, Restart::OnCrash) if !self.policy.restart_on_normal_exit => {
                self.rest_finished(now, ending, effects);
            }
            (Ending::Clean, Restart::Never) => self.rest_finished(now, ending, effects),
            _ => self.after_failure(now, uptime, ending, effects),
        }
    }

    /// An end that counts as a crash: wait and try again, or give up.
    pub(super) fn after_failure(
        &mut self,
        now: Time,
        uptime: Duration,
        ending: Ending,
        effects: &mut Vec<Effect>,
    ) {
        if self.policy.restart == Restart::Never {
            self.rest_finished(now, ending, effects);
            return;
        }
        match self.restarts.crashed(now, uptime, &self.policy) {
            Verdict::Retry { delay, loop_begins } => {
                if loop_begins {
                    effects.push(Effect::Tell(Event::CrashLoop {
                        crashes: self.policy.crash_loop_count,
                        window: self.policy.crash_loop_window,
                        delay,
                    }));
                }
                // In a crash loop a spare would only be the next victim.
                let takes_over = self.has_spare() && !self.restarts.looping;
                let delay = if takes_over { Duration::ZERO } else { delay };
                effects.push(Effect::Tell(Event::Restarting {
                    delay,
                    after: ending,
                    attempt: self.restarts.consecutive,
                    attempts_max: self.policy.max_restarts,
                }));
                match takes_over {
                    true => self.promote_spare(now, effects),
                    false => {
                        let spawn_at = now + delay;
                        self.process = Process::Waiting { spawn_at, requested: false };
                    }
                }
            }
            Verdict::GiveUp => {
                effects.push(Effect::Tell(Event::GaveUp {
                    restarts: self.policy.max_restarts,
                    last: ending.clone(),
                }));
                self.want = Want::Down;
                self.rest_as(now, Rest::Failed(ending), None, effects);
            }
        }
    }

    pub(super) fn rest_stopped(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let reason = match self.want {
            Want::Shutdown { is_alone: true, .. } => StopReason::Dismissed,
            Want::Shutdown { .. } => StopReason::Shutdown,
            Want::Gone => StopReason::Retired,
            Want::Up | Want::Down => StopReason::ByUser,
        };
        self.rest_as(now, Rest::Stopped, Some(Event::Stopped(reason)), effects);
    }

    fn rest_finished(&mut self, now: Time, ending: Ending, effects: &mut Vec<Effect>) {
        self.want = Want::Down;
        let last_word = Event::Stopped(StopReason::Policy(ending.clone()));
        self.rest_as(now, Rest::Finished(ending), Some(last_word), effects);
    }

    /// At rest, once all other instances are gone too.
    fn rest_as(
        &mut self,
        now: Time,
        rest: Rest,
        last_word: Option<Event>,
        effects: &mut Vec<Effect>,
    ) {
        self.stop_others(now, effects);
        if self.leaving.is_empty() {
            effects.extend(last_word.map(Effect::Tell));
            self.process = Process::Down(rest);
        } else {
            self.process = Process::Closing { rest, last_word };
        }
    }
}
