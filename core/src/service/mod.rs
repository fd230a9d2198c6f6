//! Owns the life of one service: what is wanted, what is true, and the next step between them.
//!
//! Driven by the daemon's loop, which performs its effects in order. Never owns a process or a timer.
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
//!   Down ──Adopted──▶ Running, Stopping or Closing: what the supervisor before had left
//! ```
//!
//! That is the *current* instance. Others may live beside it, in `candidate_and_spare`: the candidate of a swap,
//! a spare, and instances that retire. `crash_backoff` counts crashes, `history` remembers earlier instances.

mod candidate_and_spare;
mod crash_backoff;
mod event;
mod exit;
mod history;
mod restart_decision;
mod snapshot;
mod state;

use std::time::Duration;

use self::candidate_and_spare::{Candidate, SideInstances};
use self::crash_backoff::CrashHistory;
pub use self::event::{Event, UserRequest};
pub use self::exit::{Ending, Exit, LastExit, SpawnFailure, signal_name};
pub use self::history::ExitHistory;
use self::history::Generations;
pub use self::snapshot::{Snapshot, State};
pub use self::state::{AdoptedAs, Effect, Input, Rest, Want};
use self::state::{Goal, Haste, InputContext, Instance, Process, Role};
use crate::audit::Actor;
use crate::id::Generation;
use crate::policy::{Policy, Restart};
use crate::stop_ladder::StopTimes;
use crate::time::Time;

/// The restart machine of one service.
#[derive(Debug)]
pub struct Service {
    policy: Policy,
    want: Want,
    /// The current instance. There is a candidate only while it is `Running`, with no other restart planned.
    process: Process,
    side: SideInstances,
    crashes: CrashHistory,
    generations: Generations,
    exits: ExitHistory,
    /// What or who requested the last restart.
    restart_by: Actor,
}

impl Service {
    /// A service that is down. Equal seeds and equal inputs give equal histories.
    pub fn new(policy: Policy, seed: u64) -> Self {
        Self {
            policy,
            want: Want::Down,
            process: Process::Down(Rest::NotStarted),
            side: SideInstances::default(),
            crashes: CrashHistory::new(seed),
            generations: Generations::default(),
            exits: ExitHistory::default(),
            restart_by: Actor::Afresh("policy"),
        }
    }

    /// Changes its rules; they hold from the next input on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Continues the counts of the supervisor before: the newest generation that it had, and its restarts;
    /// none where that one ended in order, so that they are counted anew.
    pub fn resume(&mut self, generation: Generation, restarts: Option<u64>) {
        self.generations.resume(generation, restarts.is_some());
        self.crashes.restarts = self.crashes.restarts.max(restarts.unwrap_or_default());
    }

    /// Records one input, and returns what has to be done now. Late reports of an instance that is gone
    /// change nothing.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Effect> {
        let mut context = InputContext { now, times: self.times(), effects: Vec::new() };
        let cx = &mut context;
        match input {
            Input::Start => self.start(now),
            // The crashes are remembered: the next one is one too many, unless there was a stable run.
            Input::TryOnce => {
                let is_over = matches!(self.rest(), Some(Rest::Failed(_) | Rest::Finished(_)));
                if is_over && !self.want.is_shutdown() {
                    self.want = Want::Up;
                    self.process = Process::waiting(now);
                }
            }
            Input::Stop => self.stop(cx, Want::Down),
            Input::Retire => self.stop(cx, Want::Gone),
            Input::Shutdown { within } => self.stop(cx, Want::Shutdown { within, is_alone: false }),
            Input::Dismiss { within } => {
                self.stop(cx, Want::Shutdown { within: Some(within), is_alone: true });
            }
            Input::Restart { reason, by } => self.restart(cx, reason, by),
            Input::HurryUp => {
                if let Process::Stopping { ladder, .. } = &mut self.process {
                    ladder.hurry_up(now);
                }
                self.side.hurry_up(now);
            }
            Input::Spawned(generation, pid) => self.spawned(cx, generation, pid),
            Input::SpawnFailed(generation, failure) => {
                self.spawn_failed(cx, generation, failure);
            }
            Input::Adopted { generation, pid, since, found } => {
                let instance = Instance::new(generation, since, Role::Current);
                self.adopted(cx, Instance { pid: Some(pid), ..instance }, found);
            }
            Input::Ready(generation) => self.ready(cx, generation),
            Input::Drained(generation) => self.side.drained(cx, generation),
            Input::Exited(generation, exit) => self.exited(cx, generation, exit),
            Input::HandshakeFailed(generation, why) => {
                self.fail(cx, generation, Ending::HandshakeFailed(why));
            }
            Input::Unhealthy(generation, why) => {
                self.fail(cx, generation, Ending::HealthFailed(why));
            }
            Input::Silent(generation, trouble) => {
                if let Process::Running { instance, .. } = &mut self.process
                    && instance.generation == generation
                {
                    instance.trouble = trouble;
                }
            }
            Input::Replace(generation, reason) => self.replace(cx, generation, reason),
            Input::Owing(generation) => {
                let is_finished = self.process.rests_as() == Some(&Rest::Finished(Ending::Clean));
                let is_it = is_finished && self.exits.last_ended == Some(generation);
                if is_it && !self.want.is_shutdown() && self.policy.restart != Restart::Never {
                    self.want = Want::Up;
                    self.after_failure(cx, self.exits.last_uptime, Ending::Crash);
                }
            }
            Input::DiedOfProbe(generation) => self.died_of_probe(now, generation),
            Input::RenewSpare => self.side.drop_spare(cx),
            Input::Wakeup => {}
        }
        // At rest, once all other instances are gone too.
        if let Process::Closing { rest, last_word } = &mut self.process
            && !self.side.has_retiring()
        {
            cx.effects.extend(last_word.take().map(Effect::Tell));
            self.process = Process::Down(rest.clone());
        }
        // Each step leads to a state that waits for something else, so this ends.
        while self.next_wakeup().is_some_and(|at| at <= now) {
            self.step(cx);
        }
        self.exits.note_events(&context.effects);
        context.effects
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        // A spare is started only beside an instance that serves and is to stay.
        let is_settled = matches!(
            &self.process,
            Process::Running { instance, restart_at: None } if instance.ready
        );
        let spare = self.side.spare_due().filter(|_| self.policy.spare && is_settled);
        self.side.next_at().into_iter().chain(self.current_wakeup()).chain(spare).min()
    }

    fn current_wakeup(&self) -> Option<Time> {
        match &self.process {
            Process::Down(_) | Process::Closing { .. } | Process::Starting(_) => None,
            Process::Waiting { spawn_at, .. } => Some(*spawn_at),
            Process::Running { instance, restart_at } => {
                // More than the stable time has to pass, so that one clock tick decides alike everywhere.
                let stable_at =
                    instance.since + self.policy.stable_after + Duration::from_millis(1);
                let stable_at = self.crashes.is_on_probation().then_some(stable_at);
                // A swap waits for a place; the end of one that retires brings it.
                let restart_at = restart_at.as_ref().map(|(at, _)| *at);
                let may_restart = !self.policy.swaps() || !self.side.is_crowded();
                let restart_at = restart_at.filter(|_| may_restart);
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

    /// How earlier instances ended.
    pub fn exits(&self) -> &ExitHistory {
        &self.exits
    }

    /// The generation of the newest instance.
    pub fn generation(&self) -> Generation {
        self.generations.newest
    }

    /// The current instance, be it on its way in or out.
    pub fn current(&self) -> Option<Generation> {
        self.process.instance().map(|instance| instance.generation)
    }

    /// Whether an instance has run at some time.
    pub fn has_run(&self) -> bool {
        self.generations.has_run
    }

    /// Whether this instance is being started to serve, and no newer one is wanted yet.
    pub fn awaits(&self, generation: Generation) -> bool {
        let is_starting = matches!(self.process, Process::Starting(_));
        (is_starting && self.process.is(generation)) || self.side.is_candidate(generation)
    }

    fn start(&mut self, now: Time) {
        if self.want.is_shutdown() {
            return;
        }
        self.want = Want::Up;
        match &mut self.process {
            Process::Down(_) | Process::Closing { .. } => {
                self.crashes.forget();
                self.process = Process::waiting(now);
            }
            Process::Waiting { spawn_at, .. } => *spawn_at = now,
            Process::Stopping { goal: goal @ Goal::Down, .. } => *goal = Goal::NewInstance,
            Process::Starting(_) | Process::Running { .. } | Process::Stopping { .. } => {}
        }
    }

    fn stop(&mut self, cx: &mut InputContext, want: Want) {
        if !self.want.is_shutdown() || want.is_shutdown() {
            self.want = want;
            cx.times = self.times();
        }
        self.exits.last_ended = None;
        match &mut self.process {
            Process::Down(_) | Process::Closing { .. } | Process::Waiting { .. } => {}
            Process::Starting(instance) | Process::Running { instance, .. } => {
                let instance = instance.clone();
                self.begin_stop(cx, instance, Goal::Down);
            }
            Process::Stopping { goal, ladder, .. } => {
                *goal = Goal::Down;
                ladder.shorten(cx.now, cx.times);
            }
        }
        self.side.stop_all(cx);
        if matches!(self.process, Process::Waiting { .. }) {
            self.rest_as(cx, Rest::Stopped);
        }
    }

    fn restart(&mut self, cx: &mut InputContext, reason: String, by: Actor) {
        if self.want.is_shutdown() || self.want == Want::Gone {
            return;
        }
        self.want = Want::Up;
        let pid = self.process.instance().and_then(|instance| instance.pid);
        self.restart_by = by.clone();
        cx.tell(Event::RestartRequested { pid, reason: reason.clone(), by });
        cx.push(Effect::MarkRestart { pid, reason: reason.clone() });
        match &mut self.process {
            Process::Down(_) | Process::Closing { .. } => {
                self.crashes.forget();
                self.wait_for_requested(cx, None);
            }
            Process::Waiting { spawn_at, .. } => {
                let planned = *spawn_at;
                self.wait_for_requested(cx, Some(planned));
            }
            Process::Starting(instance) => {
                let instance = instance.clone();
                self.exit_for_restart(cx, instance, reason);
            }
            // Carried out by the step that follows, or when its time has come.
            Process::Running { restart_at, .. } => {
                let at = self.crashes.requested_restart_at(cx.now, &self.policy);
                let at = restart_at.as_ref().map_or(at, |(planned, _)| at.min(*planned));
                *restart_at = Some((at, reason));
                if at > cx.now {
                    let by = self.restart_by.clone();
                    cx.tell(Event::Throttled { delay: at.since(cx.now), by });
                }
                self.side.drop_candidate(cx);
            }
            // The instance that comes next is new enough for this request too.
            Process::Stopping { goal, .. } => *goal = Goal::NewInstance,
        }
    }

    fn exit_for_restart(&mut self, cx: &mut InputContext, instance: Instance, reason: String) {
        let (pid, exit_code) = (instance.pid, self.policy.restart_code);
        let by = self.restart_by.clone();
        cx.tell(Event::ExitingForRestart { pid, reason, exit_code, by });
        self.begin_stop(cx, instance, Goal::NewInstance);
    }

    fn begin_stop(&mut self, cx: &mut InputContext, instance: Instance, goal: Goal) {
        let haste = match &goal {
            Goal::Failure(ending) => Haste::after(ending),
            _ => Haste::InOrder,
        };
        let ladder = cx.begin_stop(instance.generation, haste);
        self.process = Process::Stopping { instance, goal, ladder };
    }

    /// The policy's times of a stop, or what a shutdown leaves of them.
    fn times(&self) -> StopTimes {
        let Policy { stdin_timeout, stop_timeout, .. } = self.policy;
        let most = match self.want {
            Want::Shutdown { within: Some(within), .. } => within * 2 / 5,
            _ => Duration::MAX,
        };
        StopTimes { stdin: stdin_timeout, term: stop_timeout }.at_most(most)
    }

    /// Waits for a requested start; it never makes the next start later than it is planned.
    fn wait_for_requested(&mut self, cx: &mut InputContext, planned: Option<Time>) {
        let at = self.crashes.requested_restart_at(cx.now, &self.policy);
        let at = planned.map_or(at, |planned| at.min(planned));
        if at > cx.now {
            let by = self.restart_by.clone();
            cx.tell(Event::Throttled { delay: at.since(cx.now), by });
        }
        self.process = Process::Waiting { spawn_at: at, requested: true };
        self.side.drop_spare(cx);
    }

    /// Takes one step whose time has come.
    fn step(&mut self, cx: &mut InputContext) {
        if self.side.step(cx) {
            return;
        }
        if self.current_wakeup().is_none_or(|at| at > cx.now) {
            self.side.spare.instance = Some(self.spawn_as(Role::Spare, cx));
            return;
        }
        let swaps = self.policy.swaps();
        let may_restart = !swaps || !self.side.is_crowded();
        match &mut self.process {
            Process::Waiting { requested, .. } => {
                if *requested {
                    self.crashes.last_requested = Some(cx.now);
                }
                self.process = Process::Starting(self.spawn_as(Role::Current, cx));
            }
            Process::Running { instance, restart_at } => {
                let uptime = cx.now.since(instance.since);
                match restart_at.take_if(|(at, _)| *at <= cx.now && may_restart) {
                    Some((_, reason)) if swaps => {
                        self.crashes.last_requested = Some(cx.now);
                        let instance = self.spawn_as(Role::Candidate, cx);
                        self.side.candidate = Some(Candidate { instance, reason });
                    }
                    Some((_, reason)) => {
                        let instance = instance.clone();
                        self.exit_for_restart(cx, instance, reason);
                    }
                    // It has run long enough: the crashes are forgotten.
                    None => {
                        if self.crashes.end_probation() {
                            cx.tell(Event::Recovered { uptime });
                        }
                    }
                }
            }
            Process::Stopping { instance, ladder, .. } => cx.escalate(ladder, instance),
            Process::Down(_) | Process::Closing { .. } | Process::Starting(_) => {}
        }
    }

    fn spawn_as(&mut self, role: Role, cx: &mut InputContext) -> Instance {
        if role == Role::Current && self.generations.next_is_restart() {
            self.crashes.restarts += 1;
        }
        let generation = self.generations.next();
        cx.push(Effect::Spawn(generation));
        Instance::new(generation, cx.now, role)
    }

    fn instance_mut(&mut self, generation: Generation) -> Option<&mut Instance> {
        let current = self.process.instance_mut().into_iter();
        let mut all = current.chain(self.side.instances_mut());
        all.find(|instance| instance.generation == generation)
    }

    fn spawned(&mut self, cx: &mut InputContext, generation: Generation, pid: u32) {
        let found = self.instance_mut(generation).filter(|instance| instance.pid.is_none());
        let Some(instance) = found else { return };
        instance.pid = Some(pid);
        let role = instance.role;
        self.generations.has_run = true;
        let restarts = self.crashes.restarts;
        cx.tell(match role {
            Role::Current => Event::Started { pid, generation, restarts },
            Role::Candidate => Event::CandidateStarted { pid, generation },
            Role::Spare => Event::SpareStarted { pid, generation },
        });
        // A stop may have overtaken the start; its steps were sent after the spawn and reach the
        // process.
        let mut opens = self.side.is_candidate(generation);
        if let Process::Starting(instance) = &self.process
            && instance.generation == generation
        {
            self.process = Process::running(instance.clone());
            opens = true;
        }
        if opens {
            cx.push(Effect::Open(generation));
        }
    }

    /// An instance of an earlier supervisor runs, and is taken over without a start.
    fn adopted(&mut self, cx: &mut InputContext, instance: Instance, found: AdoptedAs) {
        let (generation, pid) = (instance.generation, instance.pid.unwrap_or_default());
        if self.instance_mut(generation).is_some() {
            return;
        }
        self.generations.adopt(generation);
        cx.tell(Event::Adopted { pid, generation, uptime: cx.now.since(instance.since) });
        let is_free = self.process.instance().is_none();
        match found {
            AdoptedAs::Current if is_free && !self.want.is_shutdown() => {
                self.want = Want::Up;
                self.process = Process::running(instance);
                cx.push(Effect::Open(generation));
            }
            // It had been told to go, or is told now.
            AdoptedAs::Current | AdoptedAs::Stopping if is_free => {
                let goal = if self.want == Want::Up { Goal::NewInstance } else { Goal::Down };
                self.begin_stop(cx, instance, goal);
            }
            AdoptedAs::Current | AdoptedAs::Stopping | AdoptedAs::Beside => {
                self.side.stop(cx, instance, Ending::Replaced, Haste::InOrder);
                if let Process::Down(rest) = &self.process {
                    let rest = rest.clone();
                    self.process = Process::Closing { rest, last_word: None };
                }
            }
        }
    }

    /// An instance serves. A candidate takes over, and the old instance may finish its requests.
    fn ready(&mut self, cx: &mut InputContext, generation: Generation) {
        if let Some(Candidate { instance: candidate, .. }) = &self.side.candidate
            && candidate.generation == generation
            && candidate.pid.is_some()
            && let Process::Running { instance: old, .. } = &self.process
        {
            let old = old.clone();
            self.side.announce_swap(cx, &self.restart_by, old.pid, self.policy.restart_code);
            self.take_over(cx);
            self.side.drain(cx, old, cx.now + self.policy.drain_timeout);
        }
        if let Process::Running { instance, .. } = &mut self.process
            && instance.generation == generation
        {
            instance.ready = true;
            self.exits.probe_deaths = 0;
        }
    }

    /// The candidate is the current instance from now on, whether or not it is ready.
    fn take_over(&mut self, cx: &mut InputContext) {
        let Some(Candidate { mut instance, .. }) = self.side.candidate.take() else { return };
        self.crashes.restarts += 1;
        instance.role = Role::Current;
        let (generation, restarts) = (instance.generation, self.crashes.restarts);
        self.process = match instance.pid {
            Some(pid) => {
                cx.tell(Event::Started { pid, generation, restarts });
                Process::running(instance)
            }
            None => Process::Starting(instance),
        };
        // It is of the older code.
        self.side.drop_spare(cx);
    }

    /// The spare is the current instance from now on, and is given the session.
    fn promote_spare(&mut self, cx: &mut InputContext) {
        let Some(spare) = self.side.spare.instance.take() else { return };
        self.crashes.restarts += 1;
        let (generation, restarts) = (spare.generation, self.crashes.restarts);
        if let Some(pid) = spare.pid {
            cx.tell(Event::Started { pid, generation, restarts });
        }
        cx.push(Effect::Open(generation));
        // To have been idle for an hour is no hour of service without a crash.
        self.process = Process::running(Instance { role: Role::Current, since: cx.now, ..spare });
    }

    /// An instance is unusable.
    fn fail(&mut self, cx: &mut InputContext, generation: Generation, ending: Ending) {
        if !self.process.is(generation) {
            return self.side.fail(cx, generation, &ending, &self.policy);
        }
        match &mut self.process {
            Process::Starting(instance) => {
                let instance = instance.clone();
                self.begin_stop(cx, instance, Goal::Failure(ending));
            }
            Process::Running { instance, restart_at } => {
                let instance = instance.clone();
                match restart_at.take() {
                    // It was to be replaced anyway.
                    Some((_, reason)) => self.exit_for_restart(cx, instance, reason),
                    None if self.side.candidate.is_some() => {
                        self.side.announce_swap(
                            cx,
                            &self.restart_by,
                            instance.pid,
                            self.policy.restart_code,
                        );
                        let haste = Haste::after(&ending);
                        self.side.stop(cx, instance, ending, haste);
                        self.take_over(cx);
                    }
                    None => self.begin_stop(cx, instance, Goal::Failure(ending)),
                }
            }
            _ => {}
        }
    }

    /// A client's probe has spoiled an instance: it is replaced, and no restart or crash is told.
    fn replace(&mut self, cx: &mut InputContext, generation: Generation, reason: String) {
        let Some(instance) = self.instance_mut(generation) else { return };
        cx.tell(Event::Replacing { pid: instance.pid, reason });
        if self.side.is_candidate(generation) {
            let reason = self.side.drop_candidate(cx);
            if let Process::Running { restart_at, .. } = &mut self.process {
                *restart_at = reason.map(|reason| (cx.now, reason));
            }
            return;
        }
        if !self.process.is(generation) {
            return self.side.replace(cx, generation);
        }
        let (instance, planned) = match &mut self.process {
            Process::Starting(instance) => (instance.clone(), None),
            Process::Running { instance, restart_at } => (instance.clone(), restart_at.take()),
            _ => return,
        };
        if let Some((_, reason)) = planned {
            // It was to be replaced anyway.
            return self.exit_for_restart(cx, instance, reason);
        }
        let has_candidate = self.side.candidate.is_some();
        let has_successor = has_candidate || self.side.has_spare();
        let may_spawn = self.policy.swaps() && !self.side.is_crowded();
        if !has_successor && !may_spawn {
            return self.begin_stop(cx, instance, Goal::Quietly);
        }
        self.side.announce_swap(cx, &self.restart_by, instance.pid, self.policy.restart_code);
        self.side.stop(cx, instance, Ending::Replaced, Haste::InOrder);
        if has_candidate {
            self.take_over(cx);
        } else if self.side.has_spare() {
            self.promote_spare(cx);
        } else {
            self.process = Process::Starting(self.spawn_as(Role::Current, cx));
        }
    }

    /// The end of the instance is no crash, be it still to come or just told.
    fn died_of_probe(&mut self, now: Time, generation: Generation) {
        if self.process.is(generation) {
            if let Some(instance) = self.process.instance_mut() {
                instance.died_of_probe = true;
            }
            return;
        }
        let just_ended = self.exits.last_ended.take_if(|last| *last == generation).is_some();
        if !just_ended || !self.exits.forgives_probe() {
            return;
        }
        self.crashes.uncount();
        match &mut self.process {
            Process::Waiting { spawn_at, requested: false } => *spawn_at = now,
            Process::Down(Rest::Finished(_) | Rest::Failed(_))
            | Process::Closing { rest: Rest::Finished(_) | Rest::Failed(_), .. } => {
                self.want = Want::Up;
                self.process = Process::waiting(now);
            }
            // The next one is on its way.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
