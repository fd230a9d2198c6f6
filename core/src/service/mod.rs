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
//!    ╰ Closing: down, but for instances that are still being stopped
//!   Down ──Adopted──▶ Running, Stopping or Closing: whatever the supervisor before had left
//! ```
//!
//! That is the *current* instance. Others may live beside it:
//!
//! ```text
//!   Restart, by a swap ──▶ candidate ──Ready──▶ current     fails: SwapFailed, the current one stays
//!   current ready, spare wanted ──▶ spare ──the current one crashed──▶ current
//!   replaced ──▶ leaving: draining ──Drained, drain_timeout──▶ stopping, by the same ladder ──▶ gone
//! ```

mod adopted;
mod after_exit;
mod event;
mod exit;
mod replace;
mod reports;
mod restart;
mod retiring;
mod snapshot;
mod spare;
mod state;
mod stop;
mod swap;
mod user_request;

use std::time::Duration;

pub use self::event::{Event, StopReason};
pub use self::exit::{Ending, Exit, SpawnFailure, signal_name};
use self::restart::Restarts;
use self::retiring::{Leaver, is_crowded};
pub use self::snapshot::{Snapshot, State};
pub use self::state::{AdoptedAs, Effect, Input, Rest};
use self::state::{Goal, Instance, Process, Role, Want};
use self::swap::Candidate;
pub use self::user_request::Wish;
use crate::id::Generation;
use crate::policy::{Policy, RestartMode};
use crate::time::Time;

/// The restart machine of one service.
#[derive(Debug)]
pub struct Service {
    policy: Policy,
    want: Want,
    process: Process,
    /// Only while the current instance is `Running`, with no other restart planned.
    candidate: Option<Candidate>,
    spare: Option<Instance>,
    /// No spare is started before this.
    spare_at: Time,
    /// Spares in a row that ended by themselves.
    spare_failures: u32,
    /// The oldest first.
    leaving: Vec<Leaver>,
    restarts: Restarts,
    generation: Generation,
    /// The instance after this one is the first; those after that one are restarts.
    begins_after: Generation,
    /// An instance has run at some time: a command that is missing now may be back soon.
    has_run: bool,
    last_exit: Option<Exit>,
    /// What the end of the last instance meant, of whichever kind it was.
    last_ending: Option<Ending>,
    /// The last instance that ended by itself, as the current one; none after a stop.
    last_ended: Option<Generation>,
    /// Instances in a row that died of a probe before one served.
    probe_deaths: u32,
}

impl Service {
    /// A service that is down. Equal seeds and equal inputs give equal histories.
    pub fn new(policy: Policy, seed: u64) -> Self {
        Self {
            policy,
            want: Want::Down,
            process: Process::Down(Rest::NotStarted),
            candidate: None,
            spare: None,
            spare_at: Time::ZERO,
            spare_failures: 0,
            leaving: Vec::new(),
            restarts: Restarts::new(seed),
            generation: Generation::default(),
            begins_after: Generation::default(),
            has_run: false,
            last_exit: None,
            last_ending: None,
            last_ended: None,
            probe_deaths: 0,
        }
    }

    /// Changes its rules; they hold from the next input on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Records one input, and returns what has to be done now. Late word of an instance that is
    /// gone changes nothing.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Effect> {
        let mut all = Vec::new();
        let effects = &mut all;
        match input {
            Input::Start => self.start(now),
            Input::Stop => self.stop(now, Want::Down, effects),
            Input::Retire => self.stop(now, Want::Gone, effects),
            Input::Shutdown { within } => self.stop(now, Want::shutdown(within), effects),
            Input::Dismiss { within } => self.stop(now, Want::dismissed(within), effects),
            Input::Restart { reason } => self.restart(now, reason, effects),
            Input::HurryUp => self.hurry_up(now),
            Input::Spawned { generation, pid } => self.spawned(generation, pid, effects),
            Input::SpawnFailed { generation, failure } => {
                self.spawn_failed(now, generation, failure, effects);
            }
            Input::Adopted { generation, pid, since, found } => {
                self.adopted(now, (generation, pid, since), found, effects);
            }
            Input::Ready { generation } => self.ready(now, generation, effects),
            Input::Drained { generation } => self.drained(now, generation, effects),
            Input::Exited { generation, exit } => self.exited(now, generation, exit, effects),
            Input::HandshakeFailed { generation, why } => {
                self.fail(now, generation, Ending::HandshakeFailed(why), effects);
            }
            Input::Unhealthy { generation, why } => {
                self.fail(now, generation, Ending::HealthFailed(why), effects);
            }
            Input::Replace { generation, reason } => {
                self.replace(now, generation, reason, effects);
            }
            Input::DiedOfProbe { generation } => self.died_of_probe(now, generation),
            Input::RenewSpare => self.renew_spare(now, effects),
            Input::Wakeup => {}
        }
        // Each step leads to a state that waits for something else, so this ends.
        while self.next_wakeup().is_some_and(|at| at <= now) {
            self.step(now, effects);
        }
        let mut endings = all.iter().rev().filter_map(|effect| match effect {
            Effect::Tell(Event::Exited { ending, .. }) => Some(ending),
            _ => None,
        });
        if let Some(ending) = endings.next() {
            self.last_ending = Some(ending.clone());
        }
        all
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let leaving = self.leaving.iter().map(Leaver::next_at);
        leaving.chain(self.current_wakeup()).chain(self.spare_due()).min()
    }

    fn current_wakeup(&self) -> Option<Time> {
        match &self.process {
            Process::Down(_) | Process::Closing { .. } | Process::Starting(_) => None,
            Process::Waiting { spawn_at, .. } => Some(*spawn_at),
            Process::Running { instance, restart_at } => {
                let on_probation = self.restarts.consecutive > 0 || self.restarts.unwell;
                let stable_at = on_probation.then(|| self.stable_at(instance.since));
                // A swap waits for a place; the end of one that leaves brings it.
                let swap = self.policy.restart_mode == RestartMode::Swap;
                let may_restart = !swap || !is_crowded(&self.leaving);
                let restart_at = restart_at.as_ref().map(|(at, _)| *at).filter(|_| may_restart);
                [stable_at, restart_at].into_iter().flatten().min()
            }
            Process::Stopping { ladder, .. } => Some(ladder.next_at()),
        }
    }

    /// Why it rests, if nothing runs and nothing is planned.
    pub fn rest(&self) -> Option<&Rest> {
        match &self.process {
            Process::Down(rest) => Some(rest),
            _ => None,
        }
    }

    /// Whether it is to be up, whatever it is now.
    pub fn is_wanted(&self) -> bool {
        self.want == Want::Up
    }

    /// How the last current instance ended.
    pub fn last_exit(&self) -> Option<Exit> {
        self.last_exit
    }

    /// What the end of the last instance meant, of whichever kind it was.
    pub fn last_ending(&self) -> Option<&Ending> {
        self.last_ending.as_ref()
    }

    /// The generation of the newest instance.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The current instance, be it on its way in or out.
    pub fn current(&self) -> Option<Generation> {
        self.process.instance().map(|instance| instance.generation)
    }

    /// Whether an instance has run at some time.
    pub fn has_run(&self) -> bool {
        self.has_run
    }

    fn start(&mut self, now: Time) {
        if matches!(self.want, Want::Shutdown { .. }) {
            return;
        }
        self.want = Want::Up;
        match &mut self.process {
            Process::Down(_) | Process::Closing { .. } => {
                self.restarts.forget();
                self.process = Process::Waiting { spawn_at: now, requested: false };
            }
            Process::Waiting { spawn_at, .. } => *spawn_at = now,
            Process::Stopping { goal: goal @ Goal::Down, .. } => *goal = Goal::NewInstance,
            Process::Starting(_) | Process::Running { .. } | Process::Stopping { .. } => {}
        }
    }

    fn stop(&mut self, now: Time, want: Want, effects: &mut Vec<Effect>) {
        if !matches!(self.want, Want::Shutdown { .. }) || matches!(want, Want::Shutdown { .. }) {
            self.want = want;
        }
        self.last_ended = None;
        let times = self.times();
        match &mut self.process {
            Process::Down(_) | Process::Closing { .. } | Process::Waiting { .. } => {}
            Process::Starting(instance) | Process::Running { instance, .. } => {
                let instance = instance.clone();
                self.begin_stop(now, instance, Goal::Down, effects);
            }
            Process::Stopping { goal, ladder, .. } => {
                *goal = Goal::Down;
                ladder.shorten(now, times);
            }
        }
        self.stop_others(now, effects);
        if matches!(self.process, Process::Waiting { .. }) {
            self.rest_stopped(now, effects);
        }
    }

    fn restart(&mut self, now: Time, reason: String, effects: &mut Vec<Effect>) {
        if matches!(self.want, Want::Shutdown { .. }) {
            return;
        }
        self.want = Want::Up;
        let pid = self.process.instance().and_then(|instance| instance.pid);
        effects.push(Effect::Tell(Event::RestartRequested { pid, reason: reason.clone() }));
        effects.push(Effect::MarkRestart { pid, reason: reason.clone() });
        let at = self.restarts.requested_restart_at(now, &self.policy);
        match &mut self.process {
            Process::Down(_) | Process::Closing { .. } => {
                self.restarts.forget();
                self.wait_for_requested(now, at, effects);
            }
            // A request never makes the next start later than it is planned.
            Process::Waiting { spawn_at, .. } => {
                let at = at.min(*spawn_at);
                self.wait_for_requested(now, at, effects);
            }
            Process::Starting(instance) => {
                let instance = instance.clone();
                self.exit_for_restart(now, instance, reason, effects);
            }
            // Carried out by the step that follows, or when its time has come.
            Process::Running { restart_at, .. } => {
                let at = restart_at.as_ref().map_or(at, |(planned, _)| at.min(*planned));
                *restart_at = Some((at, reason));
                if at > now {
                    effects.push(Effect::Tell(Event::Throttled { delay: at.since(now) }));
                }
                self.drop_candidate(now, effects);
            }
            // The instance that comes next is new enough for this request too.
            Process::Stopping { goal, .. } => *goal = Goal::NewInstance,
        }
    }

    fn exit_for_restart(
        &mut self,
        now: Time,
        instance: Instance,
        reason: String,
        effects: &mut Vec<Effect>,
    ) {
        let exit_code = self.policy.restart_code;
        let pid = instance.pid;
        effects.push(Effect::Tell(Event::ExitingForRestart { pid, reason, exit_code }));
        self.begin_stop(now, instance, Goal::NewInstance, effects);
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
        self.drop_spare(now, effects);
    }

    /// Takes one step whose time has come.
    fn step(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.step_leaving(now, effects) {
            return;
        }
        if self.current_wakeup().is_some_and(|at| at <= now) {
            self.step_current(now, effects);
        } else if self.spare_due().is_some_and(|at| at <= now) {
            self.spawn_spare(now, effects);
        }
    }

    fn step_current(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let times = self.times();
        match &mut self.process {
            Process::Waiting { requested, .. } => {
                if *requested {
                    self.restarts.requested(now);
                }
                self.spawn(now, effects);
            }
            Process::Running { instance, restart_at } => {
                let since = instance.since;
                let swap = self.policy.restart_mode == RestartMode::Swap;
                let may_restart = !swap || !is_crowded(&self.leaving);
                match restart_at.take_if(|(at, _)| *at <= now && may_restart) {
                    Some((_, reason)) if swap => self.begin_swap(now, reason, effects),
                    Some((_, reason)) => {
                        let instance = instance.clone();
                        self.exit_for_restart(now, instance, reason, effects);
                    }
                    None => self.count_as_well(now, since, effects),
                }
            }
            Process::Stopping { instance, ladder, .. } => {
                ladder.escalate(now, instance.pid, times, effects);
            }
            Process::Down(_) | Process::Closing { .. } | Process::Starting(_) => {}
        }
    }

    /// It has run long enough: the crashes are forgotten.
    fn count_as_well(&mut self, now: Time, since: Time, effects: &mut Vec<Effect>) {
        if std::mem::take(&mut self.restarts.unwell) {
            effects.push(Effect::Tell(Event::Recovered { uptime: now.since(since) }));
        }
        self.restarts.forget();
    }

    fn spawn(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.generation != self.begins_after {
            self.restarts.total += 1;
        }
        let instance = self.spawn_as(Role::Current, now, effects);
        self.process = Process::Starting(instance);
    }

    fn spawn_as(&mut self, role: Role, now: Time, effects: &mut Vec<Effect>) -> Instance {
        self.generation = self.generation.next();
        effects.push(Effect::Spawn { generation: self.generation });
        Instance::new(self.generation, now, role)
    }

    /// More than the stable time has to pass, so that one clock tick decides alike everywhere.
    fn stable_at(&self, since: Time) -> Time {
        since + self.policy.stable_after + Duration::from_millis(1)
    }
}

#[cfg(test)]
mod tests;
