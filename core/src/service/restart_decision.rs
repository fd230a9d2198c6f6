//! Owns the decision after the end of the current instance: rest, a wait, a new start, giving up.
//!
//! Driven by [`Service::handle`](super::Service::handle) with `Exited` and `SpawnFailed`. The ends of other
//! instances are passed to `candidate_and_spare.rs`.

use std::time::Duration;

use super::Service;
use super::crash_backoff::CrashVerdict;
use super::event::Event;
use super::exit::{Ending, Exit, SpawnFailure};
use super::state::{Effect, Goal, InputContext, Process, Rest, Want};
use crate::audit::Actor;
use crate::id::Generation;
use crate::limits::{SPAWN_RETRY_MIN, TERM_RESTART_WAIT};
use crate::policy::Restart;

impl Service {
    pub(super) fn exited(&mut self, cx: &mut InputContext, generation: Generation, exit: Exit) {
        let Some(instance) = self.process.instance().filter(|_| self.process.is(generation)) else {
            return self.side.exited(cx, generation, exit, &self.policy);
        };
        let (pid, uptime) = (instance.pid, cx.now.since(instance.since));
        let died_of_probe = instance.died_of_probe;
        let has_candidate = self.side.candidate.is_some();
        let goal = match &self.process {
            // A restart was requested and had to wait: the end is what it waited for.
            Process::Running { restart_at: Some((_, reason)), .. } => {
                let (reason, exit_code) = (reason.clone(), self.policy.restart_code);
                let by = self.restart_by.clone();
                cx.tell(Event::ExitingForRestart { pid, reason, exit_code, by });
                Some(Goal::NewInstance)
            }
            Process::Running { .. } if has_candidate => {
                self.side.announce_swap(cx, &self.restart_by, pid, self.policy.restart_code);
                Some(Goal::NewInstance)
            }
            Process::Stopping { goal, .. } => Some(goal.clone()),
            // Where it is still starting, its guardian was killed before it could report.
            _ => None,
        };
        (self.exits.last_exit, self.exits.last_uptime) = (Some(exit), uptime);
        let is_quiet_stop = goal == Some(Goal::Quietly);
        let ending = match goal {
            None if died_of_probe && self.exits.forgives_probe() => Ending::DiedOfProbe,
            None => exit.unrequested(&self.policy),
            Some(Goal::Failure(ending)) => ending,
            Some(Goal::NewInstance | Goal::Quietly) => Ending::Replaced,
            Some(Goal::Down) => self.want.ending(),
        };
        let quietly = is_quiet_stop || ending == Ending::DiedOfProbe;
        cx.tell(Event::Exited { pid, exit, ending: ending.clone(), uptime });
        match self.want {
            Want::Up if has_candidate => self.take_over(cx),
            Want::Up if quietly && self.side.has_spare() => self.promote_spare(cx),
            Want::Up if quietly => self.process = Process::waiting(cx.now),
            Want::Up => {
                self.exits.last_ended = Some(generation);
                self.after_exit(cx, pid, uptime, ending);
            }
            Want::Down | Want::Gone | Want::Shutdown { .. } => self.rest_as(cx, Rest::Stopped),
        }
    }

    pub(super) fn spawn_failed(
        &mut self,
        cx: &mut InputContext,
        generation: Generation,
        failure: SpawnFailure,
    ) {
        if !self.process.is(generation) {
            return self.side.spawn_failed(cx, generation, failure, &self.policy);
        }
        cx.tell(Event::SpawnFailed(failure.clone()));
        let replaces = matches!(self.process, Process::Stopping { goal: Goal::NewInstance, .. });
        let hopeless = failure.permanent && !self.generations.has_run;
        let ending = Ending::SpawnFailed(failure);
        match self.want {
            Want::Up if replaces => self.wait_for_requested(cx, None),
            Want::Up if hopeless => {
                self.crashes.counts.unwell = true;
                self.rest_as(cx, Rest::Failed(ending));
            }
            Want::Up => self.after_failure(cx, Duration::ZERO, ending),
            Want::Down | Want::Gone | Want::Shutdown { .. } => self.rest_as(cx, Rest::Stopped),
        }
    }

    fn after_exit(
        &mut self,
        cx: &mut InputContext,
        pid: Option<u32>,
        uptime: Duration,
        ending: Ending,
    ) {
        match (&ending, self.policy.restart) {
            (Ending::Replaced, _) => self.wait_for_requested(cx, None),
            (Ending::RestartRequested, _) => {
                let exit_code = self.policy.restart_code;
                let reason = format!("the process exited with code {exit_code}");
                let by = Actor::Afresh("restart code");
                self.restart_by = by.clone();
                cx.tell(Event::RestartRequested { pid, reason: reason.clone(), by: by.clone() });
                cx.push(Effect::MarkRestart { pid, reason: reason.clone() });
                cx.tell(Event::ExitingForRestart { pid, reason, exit_code, by });
                self.wait_for_requested(cx, None);
            }
            (Ending::StoppedByUser, _) => {
                self.want = Want::Down;
                self.rest_as(cx, Rest::Stopped);
            }
            (Ending::Clean, Restart::OnCrash) if !self.policy.restart_on_normal_exit => {
                self.rest_as(cx, Rest::Finished(ending));
            }
            (Ending::Clean, Restart::Never) => self.rest_as(cx, Rest::Finished(ending)),
            _ => self.after_failure(cx, uptime, ending),
        }
    }

    /// An end that counts as a crash: wait and try again, or give up.
    pub(super) fn after_failure(
        &mut self,
        cx: &mut InputContext,
        uptime: Duration,
        ending: Ending,
    ) {
        if self.policy.restart == Restart::Never {
            return self.rest_as(cx, Rest::Finished(ending));
        }
        match self.crashes.crashed(cx.now, uptime, &self.policy) {
            CrashVerdict::Retry { delay, loop_begins } => {
                let is_unspawned = matches!(ending, Ending::SpawnFailed(_));
                let delay = if is_unspawned { delay.max(SPAWN_RETRY_MIN) } else { delay };
                // Whoever ends all of a client's processes reaches afresh a moment later.
                let is_term =
                    ending == Ending::Killed && self.exits.last_exit.is_some_and(Exit::is_term);
                let delay = if is_term { delay.max(TERM_RESTART_WAIT) } else { delay };
                if loop_begins {
                    cx.tell(Event::CrashLoop {
                        crashes: self.policy.crash_loop_count,
                        window: self.policy.crash_loop_window,
                        delay,
                    });
                }
                // In a crash loop a spare would only be the next victim.
                let takes_over = self.side.has_spare() && !self.crashes.counts.looping;
                let delay = if takes_over { Duration::ZERO } else { delay };
                cx.tell(Event::Restarting {
                    delay,
                    after: ending,
                    attempt: self.crashes.counts.consecutive,
                    attempts_max: self.policy.max_restarts,
                });
                match takes_over {
                    true => self.promote_spare(cx),
                    false => self.process = Process::waiting(cx.now + delay),
                }
            }
            CrashVerdict::GiveUp => {
                let restarts = self.policy.max_restarts;
                cx.tell(Event::GaveUp { restarts, last: ending.clone() });
                self.want = Want::Down;
                self.rest_as(cx, Rest::Failed(ending));
            }
        }
    }

    /// At rest, once all other instances are gone too.
    pub(super) fn rest_as(&mut self, cx: &mut InputContext, rest: Rest) {
        self.side.stop_all(cx);
        let told = match &rest {
            Rest::Finished(ending) => {
                self.want = Want::Down;
                Some(ending.clone())
            }
            Rest::NotStarted | Rest::Stopped => Some(self.want.ending()),
            Rest::Failed(_) => None,
        };
        self.process = Process::Closing { rest, last_word: told.map(Event::Stopped) };
    }
}
