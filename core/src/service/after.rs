//! What follows the end of an instance: rest, a wait, a new start, giving up.

use std::time::Duration;

use super::Service;
use super::event::{Event, StopReason};
use super::exit::{Ending, Exit, SpawnFailure};
use super::restart::Verdict;
use super::state::{Effect, Goal, Process, Rest, Want};
use crate::policy::Restart;
use crate::time::Time;

impl Service {
    pub(super) fn exited(&mut self, now: Time, exit: Exit, effects: &mut Vec<Effect>) {
        let (pid, since, goal) = match &self.process {
            // A restart was asked for and had to wait: the end is what it waited for.
            Process::Running { pid, since, restart_at: Some((_, reason)) } => {
                effects.push(Effect::Tell(Event::ExitingForRestart {
                    pid: Some(*pid),
                    reason: reason.clone(),
                    exit_code: self.policy.restart_code,
                }));
                (Some(*pid), *since, Some(Goal::NewInstance))
            }
            Process::Running { pid, since, restart_at: None } => (Some(*pid), *since, None),
            Process::Stopping { pid, since, goal, .. } => (*pid, *since, Some(goal.clone())),
            // Its guardian was killed before it could report the start.
            Process::Starting { since } => (None, *since, None),
            Process::Down(_) | Process::Waiting { .. } => return,
        };
        self.last_exit = Some(exit);
        let uptime = now.since(since);
        let ending = match &goal {
            None => exit.unasked(&self.policy),
            Some(Goal::Failure(ending)) => ending.clone(),
            Some(Goal::NewInstance) => Ending::Replaced,
            Some(Goal::Down) => Ending::StoppedByUser,
        };
        effects.push(Effect::Tell(Event::Exited { pid, exit, ending: ending.clone(), uptime }));
        match self.want {
            Want::Up => self.after_exit(now, pid, uptime, ending, effects),
            Want::Down | Want::Shutdown { .. } => self.rest_stopped(effects),
        }
    }

    pub(super) fn spawn_failed(
        &mut self,
        now: Time,
        failure: SpawnFailure,
        effects: &mut Vec<Effect>,
    ) {
        effects.push(Effect::Tell(Event::SpawnFailed(failure.clone())));
        let goal = match &self.process {
            Process::Starting { .. } => Goal::Failure(Ending::SpawnFailed(failure.clone())),
            Process::Stopping { goal, .. } => goal.clone(),
            Process::Down(_) | Process::Waiting { .. } | Process::Running { .. } => return,
        };
        let hopeless = failure.permanent && !self.has_run && goal != Goal::NewInstance;
        let ending = Ending::SpawnFailed(failure);
        match (self.want, goal) {
            (Want::Up, Goal::NewInstance) => self.plan_requested(now, effects),
            (Want::Up, _) if hopeless => self.process = Process::Down(Rest::Failed(ending)),
            (Want::Up, _) => self.after_failure(now, Duration::ZERO, ending, effects),
            (Want::Down | Want::Shutdown { .. }, _) => self.rest_stopped(effects),
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
                self.rest_stopped(effects);
            }
            (Ending::Clean, Restart::OnCrash) if !self.policy.restart_on_normal_exit => {
                self.rest_finished(ending, effects);
            }
            (Ending::Clean, Restart::Never) => self.rest_finished(ending, effects),
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
            self.rest_finished(ending, effects);
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
                effects.push(Effect::Tell(Event::Restarting {
                    delay,
                    after: ending,
                    attempt: self.restarts.consecutive,
                    attempts_max: self.policy.max_restarts,
                }));
                self.process = Process::Waiting { spawn_at: now + delay, requested: false };
            }
            Verdict::GiveUp => {
                effects.push(Effect::Tell(Event::GaveUp {
                    restarts: self.policy.max_restarts,
                    last: ending.clone(),
                }));
                self.want = Want::Down;
                self.process = Process::Down(Rest::Failed(ending));
            }
        }
    }

    pub(super) fn rest_stopped(&mut self, effects: &mut Vec<Effect>) {
        let reason = match self.want {
            Want::Shutdown { .. } => StopReason::Shutdown,
            Want::Up | Want::Down => StopReason::ByUser,
        };
        effects.push(Effect::Tell(Event::Stopped(reason)));
        self.process = Process::Down(Rest::Stopped);
    }

    pub(super) fn rest_finished(&mut self, ending: Ending, effects: &mut Vec<Effect>) {
        self.want = Want::Down;
        effects.push(Effect::Tell(Event::Stopped(StopReason::Policy(ending.clone()))));
        self.process = Process::Down(Rest::Finished(ending));
    }
}
