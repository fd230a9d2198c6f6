//! Random histories: a virtual clock, and a world that crashes, hangs, refuses to start and loses
//! its patience, drives the restart machine through whole days in milliseconds.
//!
//! A failure prints its seed and the history. The seed goes to `core/tests/seeds.txt`, which is run
//! first, for ever.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use afresh_core::id::Generation;
use afresh_core::policy::{Backoff, Policy, Restart};
use afresh_core::service::{Effect, Event, Exit, Input, Service, SpawnFailure};
use afresh_core::time::Time;

const HISTORIES: u64 = 4_000;
const STEPS: usize = 250;

#[test]
fn random_histories_keep_every_promise() {
    let kept = include_str!("seeds.txt").lines().filter(|line| !line.starts_with('#'));
    let kept = kept.map(|line| line.trim().parse::<u64>().expect("a seed is a number"));
    for seed in kept.chain(1..=HISTORIES) {
        let mut world = World::new(seed);
        world.live();
        world.end();
    }
}

#[test]
fn equal_seeds_give_equal_histories() {
    for seed in [3, 99, 12_345] {
        let [first, second] = [(); 2].map(|()| {
            let mut world = World::new(seed);
            world.live();
            world.history
        });
        assert_eq!(first, second);
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What will happen, unless something else happens before.
struct Plan {
    at: Time,
    input: Input,
}

struct World {
    random: Random,
    policy: Policy,
    service: Service,
    now: Time,
    history: String,
    /// The process that the kernel has, if any.
    alive: Option<Generation>,
    /// Ignores SIGTERM.
    stubborn: bool,
    /// Ends only when its guardian is replaced.
    stuck: bool,
    plans: VecDeque<Plan>,
    shut: bool,
    user_wants_up: bool,
    asked_for_restart: bool,
    last_requested_spawn: Option<Time>,
    crashes_in_a_row: u32,
    expected_spawn: Option<Time>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let policy = random_policy(&mut random);
        Self {
            service: Service::new(policy.clone(), random.next()),
            history: format!("seed {seed}: {policy:?}\n"),
            random,
            policy,
            now: Time::ZERO,
            alive: None,
            stubborn: false,
            stuck: false,
            plans: VecDeque::new(),
            shut: false,
            user_wants_up: false,
            asked_for_restart: false,
            last_requested_spawn: None,
            crashes_in_a_row: 0,
            expected_spawn: None,
        }
    }

    fn live(&mut self) {
        for _ in 0..STEPS {
            let input = match self.random.below(12) {
                0 => Some(Input::Start),
                1 if self.random.one_in(3) => Some(Input::Stop),
                2 if self.random.one_in(2) => Some(Input::Restart { reason: "random".to_owned() }),
                3 if self.random.one_in(4) => Some(Input::HurryUp),
                4 if self.random.one_in(8) => {
                    let generation = self.service.generation();
                    Some(Input::HandshakeFailed { generation, why: "random".to_owned() })
                }
                5 if self.random.one_in(8) => {
                    let generation = Generation(self.random.below(5));
                    Some(Input::Exited { generation, exit: Exit::Code(42) })
                        .filter(|_| generation != self.service.generation())
                }
                6 if self.random.one_in(60) => {
                    self.shut = true;
                    let quick = self.random.one_in(2).then_some(Duration::from_secs(1));
                    Some(Input::Shutdown { within: quick })
                }
                _ => None,
            };
            match input {
                Some(input) => self.input(input),
                None => self.pass_time(),
            }
        }
    }

    /// However it went: unless shut down, a final start works; and a final stop ends all.
    fn end(&mut self) {
        self.stuck = false;
        self.input(Input::Start);
        if !self.shut {
            for _ in 0..10_000 {
                if self.alive.is_some() && self.service.next_wakeup().is_none_or(|at| at > self.now)
                {
                    break;
                }
                self.pass_time();
                if self.service.rest().is_some() {
                    self.input(Input::Start);
                }
            }
            self.check(self.alive.is_some(), "a final start works");
        }
        self.input(Input::Stop);
        for _ in 0..100 {
            if self.service.rest().is_some() {
                break;
            }
            self.pass_time();
        }
        self.check(self.service.rest().is_some(), "a final stop works");
        self.check(self.alive.is_none(), "nothing is left after a stop");
        self.check(self.service.next_wakeup().is_none(), "rest means rest");
    }

    /// Lets the next thing happen: a plan of the world, or the machine's wakeup.
    fn pass_time(&mut self) {
        let wakeup = self.service.next_wakeup();
        let planned = self.plans.front().map(|plan| plan.at);
        let Some(at) = [wakeup, planned].into_iter().flatten().min() else {
            self.now = self.now + Duration::from_millis(self.random.below(90_000));
            return;
        };
        self.now = self.now.max(at);
        if planned == Some(at) {
            let plan = self.plans.pop_front().expect("it was just seen");
            self.happen(plan.input);
        } else {
            self.input(Input::Wakeup);
        }
    }

    fn happen(&mut self, input: Input) {
        if let Input::Exited { generation, .. } = &input {
            if self.alive != Some(*generation) {
                return;
            }
            self.alive = None;
            self.plans.clear();
        }
        self.input(input);
    }

    fn input(&mut self, input: Input) {
        match &input {
            Input::Start => self.user_wants_up = true,
            Input::Stop | Input::Shutdown { .. } => {
                self.user_wants_up = false;
                self.asked_for_restart = false;
            }
            Input::Restart { .. } => self.user_wants_up = true,
            _ => {}
        }
        let is_start = input == Input::Start;
        writeln!(self.history, "{:?} {input:?}", self.now.since_start())
            .expect("a String takes all");
        let effects = self.service.handle(self.now, input);
        for effect in effects {
            writeln!(self.history, "    {effect:?}").expect("a String takes all");
            self.perform(effect, is_start);
        }
        if let Some(at) = self.service.next_wakeup() {
            self.check(at > self.now, "a wakeup lies ahead, or the loop would spin");
        }
    }

    fn perform(&mut self, effect: Effect, after_start: bool) {
        match effect {
            Effect::Spawn { generation } => self.spawn(generation, after_start),
            Effect::Terminate if !self.stubborn => self.exit_within(500, Exit::Signal(15)),
            Effect::Kill if !self.stuck => self.exit_within(50, Exit::Signal(9)),
            Effect::Abandon => self.exit_within(50, Exit::Unknown),
            Effect::Terminate | Effect::Kill | Effect::CloseStdin | Effect::MarkRestart { .. } => {}
            Effect::Tell(event) => self.told(event),
        }
    }

    fn spawn(&mut self, generation: Generation, after_start: bool) {
        self.check(self.alive.is_none(), "never two live processes");
        self.check(!self.shut, "nothing is spawned after a shutdown");
        self.check(self.user_wants_up, "nothing is spawned that the user stopped");
        let planned = self.expected_spawn.take();
        if let Some(at) = planned {
            let sooner = after_start || self.asked_for_restart;
            self.check(sooner || self.now >= at, "no start before the wait is over");
        }
        if self.asked_for_restart && !after_start {
            // One that was planned anyway is not held back by a request.
            let was_due = planned.is_some_and(|at| self.now >= at);
            if let Some(last) = self.last_requested_spawn
                && !was_due
            {
                self.check(self.now.since(last) >= self.policy.throttle, "requests are throttled");
            }
            self.last_requested_spawn = Some(self.now);
        }
        self.asked_for_restart = false;
        self.plans.clear();
        if self.random.one_in(15) {
            let failure = SpawnFailure {
                message: "random".to_owned(),
                hint: None,
                permanent: self.random.one_in(3),
                code: 127,
            };
            self.plan(5, Input::SpawnFailed { generation, failure });
            return;
        }
        self.alive = Some(generation);
        self.stubborn = self.random.one_in(4);
        self.stuck = self.random.one_in(10);
        self.plan(5, Input::Spawned { generation, pid: 1000 });
        if !self.random.one_in(4) {
            let life = [10, 1_000, 20_000, 100_000][self.random.below(4) as usize];
            let exit = match self.random.below(8) {
                0 => Exit::Code(0),
                1 => Exit::Code(42),
                2 => Exit::Signal(15),
                3 => Exit::Signal(9),
                4 => Exit::Unknown,
                _ => Exit::Code(1),
            };
            self.exit_within(life, exit);
        }
    }

    fn told(&mut self, event: Event) {
        match event {
            Event::Restarting { delay, attempt, .. } => {
                self.crashes_in_a_row = attempt;
                let cap = match self.policy.backoff {
                    Backoff::Exponential { cap, .. } => cap,
                    Backoff::Stepped => Duration::from_secs(10),
                };
                self.check(delay <= cap, "no wait is longer than the cap");
                let max = self.policy.max_restarts;
                self.check(max == 0 || attempt <= max, "no more restarts than allowed");
                self.expected_spawn = Some(self.now + delay);
            }
            Event::GaveUp { .. } => {
                let max = self.policy.max_restarts;
                self.check(max > 0 && self.crashes_in_a_row == max, "gives up at the limit");
            }
            Event::RestartRequested { .. } => self.asked_for_restart = true,
            Event::Exited { .. } => self.check(self.alive.is_none(), "an exit is a fact"),
            _ => {}
        }
    }

    fn exit_within(&mut self, millis: u64, exit: Exit) {
        if let Some(generation) = self.alive {
            self.plan(millis, Input::Exited { generation, exit });
        }
    }

    fn plan(&mut self, within_millis: u64, input: Input) {
        let at = self.now + Duration::from_millis(1 + self.random.below(within_millis));
        // One pipe brings all word of a process: what was sent first arrives first.
        let spawned_at = self
            .plans
            .iter()
            .find_map(|plan| matches!(plan.input, Input::Spawned { .. }).then_some(plan.at));
        let at = spawned_at.map_or(at, |spawned_at| at.max(spawned_at));
        let place = self.plans.iter().position(|plan| plan.at > at).unwrap_or(self.plans.len());
        self.plans.insert(place, Plan { at, input });
    }

    #[track_caller]
    fn check(&self, holds: bool, promise: &str) {
        assert!(holds, "broken: {promise}\n{}", self.history);
    }
}

fn random_policy(random: &mut Random) -> Policy {
    let pick = |random: &mut Random, choices: &[u64]| {
        Duration::from_millis(choices[random.below(choices.len() as u64) as usize])
    };
    let base = pick(random, &[0, 1, 1_000, 5_000]);
    Policy {
        restart: [Restart::Always, Restart::OnCrash, Restart::Never][random.below(3) as usize],
        restart_on_normal_exit: random.one_in(2),
        backoff: if random.one_in(3) {
            Backoff::Stepped
        } else {
            Backoff::Exponential {
                base,
                factor: [1.0, 1.5, 2.0, 10.0][random.below(4) as usize],
                cap: base + pick(random, &[0, 10_000, 60_000]),
                jitter_percent: [0, 10, 50][random.below(3) as usize],
            }
        },
        first_at_once: random.one_in(2),
        throttle: pick(random, &[0, 1_000]),
        crash_loop_count: random.below(5) as u32,
        max_restarts: random.below(7) as u32,
        stdin_timeout: pick(random, &[0, 1_000]),
        stop_timeout: pick(random, &[0, 5_000]),
        stable_after: pick(random, &[0, 60_000]),
        ..Policy::default()
    }
}
