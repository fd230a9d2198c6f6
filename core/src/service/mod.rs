//! The life of one service: what is wanted, what is true, and the next step between them.
//!
//! Owns no process and no timer; the daemon's loop drives it and performs its effects, in order.
//!
//! ```text
//!            Start                  Spawned
//!   Down ───────────▶ Starting ───────────────▶ Running
//!    ▲  ▲                ▲  │ Stop, Restart        │ Stop, Restart, unhealthy
//!    │  │ gave up        │  └────────┐   ┌─────────┘
//!    │  └────────┐       │           ▼   ▼
//!    │         Waiting ──┘         Stopping   close stdin → SIGTERM → SIGKILL → abandon
//!    │            ▲  spawn_at         │ Exited
//!    └────────────┴───────────────────┴── after_exit: policy, backoff, throttle
//! ```

mod after;
mod event;
mod exit;
mod look;
mod restart;
mod state;
mod stop;

use std::time::Duration;

pub use self::event::{Event, StopReason};
pub use self::exit::{Ending, Exit, SpawnFailure, signal_name};
pub use self::look::Phase;
use self::restart::Restarts;
pub use self::state::{Effect, Input, Rest};
use self::state::{Goal, Process, Want};
use crate::id::Generation;
use crate::policy::Policy;
use crate::time::Time;

/// The restart machine of one service.
#[derive(Debug)]
pub struct Service {
    policy: Policy,
    want: Want,
    process: Process,
    restarts: Restarts,
    generation: Generation,
    /// An instance has run at some time: a command that is missing now may be back soon.
    has_run: bool,
    last_exit: Option<Exit>,
}

impl Service {
    /// A service that is down. Equal seeds and equal inputs give equal histories.
    pub fn new(policy: Policy, seed: u64) -> Self {
        Self {
            policy,
            want: Want::Down,
            process: Process::Down(Rest::NotStarted),
            restarts: Restarts::new(seed),
            generation: Generation::default(),
            has_run: false,
            last_exit: None,
        }
    }

    /// Records one input, and returns what has to be done now.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Start => self.start(now),
            Input::Stop => self.stop(now, Want::Down, &mut effects),
            Input::Shutdown { within } => self.stop(now, Want::Shutdown { within }, &mut effects),
            Input::Restart { reason } => self.restart(now, reason, &mut effects),
            Input::HurryUp => self.hurry_up(now),
            Input::Spawned { generation, pid } if generation == self.generation => {
                self.spawned(pid, &mut effects);
            }
            Input::SpawnFailed { generation, failure } if generation == self.generation => {
                self.spawn_failed(now, failure, &mut effects);
            }
            Input::Exited { generation, exit } if generation == self.generation => {
                self.exited(now, exit, &mut effects);
            }
            Input::HandshakeFailed { generation, why } if generation == self.generation => {
                self.fail(now, Ending::HandshakeFailed(why), &mut effects);
            }
            Input::Unhealthy { generation, why } if generation == self.generation => {
                self.fail(now, Ending::HealthFailed(why), &mut effects);
            }
            // Wakeups only step; late word of an instance that is gone changes nothing.
            Input::Wakeup
            | Input::Spawned { .. }
            | Input::SpawnFailed { .. }
            | Input::Exited { .. }
            | Input::HandshakeFailed { .. }
            | Input::Unhealthy { .. } => {}
        }
        // Each step leads to a state that waits for something else, so this ends.
        while self.next_wakeup().is_some_and(|at| at <= now) {
            self.step(now, &mut effects);
        }
        effects
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        match &self.process {
            Process::Down(_) | Process::Starting { .. } => None,
            Process::Waiting { spawn_at, .. } => Some(*spawn_at),
            Process::Running { since, restart_at, .. } => {
                let stable_at = (self.restarts.consecutive > 0).then(|| self.stable_at(*since));
                let restart_at = restart_at.as_ref().map(|(at, _)| *at);
                [stable_at, restart_at].into_iter().flatten().min()
            }
            Process::Stopping { next_at, .. } => Some(*next_at),
        }
    }

    /// Why it rests, if nothing runs and nothing is planned.
    pub fn rest(&self) -> Option<&Rest> {
        match &self.process {
            Process::Down(rest) => Some(rest),
            _ => None,
        }
    }

    /// How the last instance ended.
    pub fn last_exit(&self) -> Option<Exit> {
        self.last_exit
    }

    /// The generation of the newest instance.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    fn start(&mut self, now: Time) {
        if matches!(self.want, Want::Shutdown { .. }) {
            return;
        }
        self.want = Want::Up;
        match &mut self.process {
            Process::Down(_) => {
                self.restarts.forget();
                self.process = Process::Waiting { spawn_at: now, requested: false };
            }
            Process::Waiting { spawn_at, .. } => *spawn_at = now,
            Process::Stopping { goal: goal @ Goal::Down, .. } => *goal = Goal::NewInstance,
            Process::Starting { .. } | Process::Running { .. } | Process::Stopping { .. } => {}
        }
    }

    fn stop(&mut self, now: Time, want: Want, effects: &mut Vec<Effect>) {
        if !matches!(self.want, Want::Shutdown { .. }) || matches!(want, Want::Shutdown { .. }) {
            self.want = want;
        }
        match &mut self.process {
            Process::Down(_) => {}
            Process::Waiting { .. } => self.rest_stopped(effects),
            Process::Starting { since } => {
                let since = *since;
                self.begin_stop(now, None, since, Goal::Down, effects);
            }
            Process::Running { pid, since, .. } => {
                let (pid, since) = (*pid, *since);
                self.begin_stop(now, Some(pid), since, Goal::Down, effects);
            }
            Process::Stopping { goal, .. } => {
                *goal = Goal::Down;
                self.shorten_stop(now);
            }
        }
    }

    fn restart(&mut self, now: Time, reason: String, effects: &mut Vec<Effect>) {
        if matches!(self.want, Want::Shutdown { .. }) {
            return;
        }
        self.want = Want::Up;
        effects.push(Effect::Tell(Event::RestartRequested {
            pid: self.pid(),
            reason: reason.clone(),
        }));
        effects.push(Effect::MarkRestart { pid: self.pid(), reason: reason.clone() });
        let at = self.restarts.requested_restart_at(now, &self.policy);
        match &mut self.process {
            Process::Down(_) => {
                self.restarts.forget();
                self.wait_for_requested(now, at, effects);
            }
            // A request never makes the next start later than it is planned.
            Process::Waiting { spawn_at, .. } => {
                let at = at.min(*spawn_at);
                self.wait_for_requested(now, at, effects);
            }
            Process::Starting { since } => {
                let since = *since;
                self.exit_for_restart(now, None, since, reason, effects);
            }
            Process::Running { pid, since, restart_at } => {
                if at > now {
                    let at = restart_at.as_ref().map_or(at, |(planned, _)| at.min(*planned));
                    *restart_at = Some((at, reason));
                    effects.push(Effect::Tell(Event::Throttled { delay: at.since(now) }));
                } else {
                    let (pid, since) = (*pid, *since);
                    self.exit_for_restart(now, Some(pid), since, reason, effects);
                }
            }
            // The instance that comes next is new enough for this request too.
            Process::Stopping { goal, .. } => *goal = Goal::NewInstance,
        }
    }

    fn spawned(&mut self, new_pid: u32, effects: &mut Vec<Effect>) {
        self.has_run = true;
        match &mut self.process {
            Process::Starting { since } => {
                let since = *since;
                self.process = Process::Running { pid: new_pid, since, restart_at: None };
            }
            // A stop overtook the start; its steps were sent after the spawn and reach the process.
            Process::Stopping { pid, .. } => *pid = Some(new_pid),
            Process::Down(_) | Process::Waiting { .. } | Process::Running { .. } => return,
        }
        effects.push(Effect::Tell(Event::Started {
            pid: new_pid,
            generation: self.generation,
            restarts: self.restarts.total,
        }));
    }

    /// The instance is unusable.
    fn fail(&mut self, now: Time, ending: Ending, effects: &mut Vec<Effect>) {
        match &mut self.process {
            Process::Starting { since } => {
                let since = *since;
                self.begin_stop(now, None, since, Goal::Failure(ending), effects);
            }
            Process::Running { pid, since, restart_at } => {
                let (pid, since) = (*pid, *since);
                match restart_at.take() {
                    // It was to be replaced anyway.
                    Some((_, reason)) => {
                        self.exit_for_restart(now, Some(pid), since, reason, effects);
                    }
                    None => self.begin_stop(now, Some(pid), since, Goal::Failure(ending), effects),
                }
            }
            Process::Down(_) | Process::Waiting { .. } | Process::Stopping { .. } => {}
        }
    }

    fn exit_for_restart(
        &mut self,
        now: Time,
        pid: Option<u32>,
        since: Time,
        reason: String,
        effects: &mut Vec<Effect>,
    ) {
        let exit_code = self.policy.restart_code;
        effects.push(Effect::Tell(Event::ExitingForRestart { pid, reason, exit_code }));
        self.begin_stop(now, pid, since, Goal::NewInstance, effects);
    }

    fn plan_requested(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let at = self.restarts.requested_restart_at(now, &self.policy);
        self.wait_for_requested(now, at, effects);
    }

    fn wait_for_requested(&mut self, now: Time, at: Time, effects: &mut Vec<Effect>) {
        if at > now {
            effects.push(Effect::Tell(Event::Throttled { delay: at.since(now) }));
        }
        self.process = Process::Waiting { spawn_at: at, requested: true };
    }

    /// Takes the steps whose time has come.
    fn step(&mut self, now: Time, effects: &mut Vec<Effect>) {
        match &mut self.process {
            Process::Waiting { spawn_at, requested } if *spawn_at <= now => {
                if *requested {
                    self.restarts.requested(now);
                }
                self.spawn(now, effects);
            }
            Process::Running { pid, since, restart_at } => {
                let (pid, since) = (*pid, *since);
                if let Some((_, reason)) = restart_at.take_if(|(at, _)| *at <= now) {
                    self.exit_for_restart(now, Some(pid), since, reason, effects);
                } else if self.restarts.consecutive > 0 && self.stable_at(since) <= now {
                    if self.restarts.looping {
                        let uptime = now.since(since);
                        effects.push(Effect::Tell(Event::Recovered { uptime }));
                    }
                    self.restarts.forget();
                }
            }
            Process::Stopping { next_at, .. } if *next_at <= now => self.escalate(now, effects),
            Process::Down(_)
            | Process::Starting { .. }
            | Process::Waiting { .. }
            | Process::Stopping { .. } => {}
        }
    }

    fn spawn(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.generation != Generation::default() {
            self.restarts.total += 1;
        }
        self.generation = self.generation.next();
        self.process = Process::Starting { since: now };
        effects.push(Effect::Spawn { generation: self.generation });
    }

    /// More than the stable time has to pass, so that one clock tick decides alike everywhere.
    fn stable_at(&self, since: Time) -> Time {
        since + self.policy.stable_after + Duration::from_millis(1)
    }
}

#[cfg(test)]
mod tests;
