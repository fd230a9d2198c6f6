//! Random histories: a virtual clock, and a world that crashes, hangs, refuses to start and loses
//! its patience, drives the restart machine through whole days in milliseconds.
//!
//! A failure prints its seed and the history. The seed goes to `core/tests/seeds.txt`, which is run
//! first, for ever.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::time::Duration;

use afresh_core::audit::{Actor, EventType};
use afresh_core::id::Generation;
use afresh_core::limits::{RETIRING_MAX, SPAWN_RETRY_MIN};
use afresh_core::policy::{Backoff, Policy, Restart, RestartMode};
use afresh_core::service::{
    AdoptedAs, Effect, Ending, Event, Exit, Input, Service, Snapshot, SpawnFailure, Want,
};
use afresh_core::stop_ladder::StopStep;
use afresh_core::time::Time;

/// `AFRESH_TEST_HISTORIES` asks for more.
const HISTORIES: u64 = 4_000;
const STEPS: usize = 250;

#[test]
fn random_histories_keep_every_promise() {
    let kept = include_str!("seeds.txt").lines().filter(|line| !line.starts_with('#'));
    let kept = kept.map(|line| line.trim().parse::<u64>().expect("a seed is a number"));
    let mut words = BTreeSet::new();
    #[expect(clippy::disallowed_methods, reason = "a test is told how long to run")]
    let asked = std::env::var("AFRESH_TEST_HISTORIES").ok().and_then(|count| count.parse().ok());
    for seed in kept.chain(1..=asked.unwrap_or(HISTORIES)) {
        let mut world = World::new(seed);
        world.live();
        world.end();
        words.append(&mut world.words);
    }
    // Those are told by the loop, before the machine hears of the wish.
    let wishes = ["server_start_requested", "server_stop_requested", "server_restart_verified"];
    let of_machine = |word: &&str| word.starts_with("server_") && !wishes.contains(word);
    let mut all = EventType::ALL.iter().map(|event| event.name()).filter(of_machine);
    assert!(all.all(|word| words.contains(word)), "not all has happened: {words:?}");
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

/// A process that the kernel has.
struct Living {
    /// Ignores SIGTERM.
    stubborn: bool,
    /// Ends only when its guardian is replaced.
    stuck: bool,
}

struct World {
    random: Random,
    policy: Policy,
    service: Service,
    now: Time,
    history: String,
    alive: BTreeMap<Generation, Living>,
    /// Those that were given the session, and those whose stop has begun.
    opened: BTreeSet<Generation>,
    closed: BTreeSet<Generation>,
    plans: VecDeque<Plan>,
    /// The newest instance that was ever asked for.
    newest: Generation,
    shut: bool,
    user_wants_up: bool,
    asked_for_restart: bool,
    last_requested_spawn: Option<Time>,
    crashes_in_a_row: u32,
    expected_spawn: Option<Time>,
    /// The types of all events.
    words: BTreeSet<&'static str>,
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
            alive: BTreeMap::new(),
            opened: BTreeSet::new(),
            closed: BTreeSet::new(),
            plans: VecDeque::new(),
            newest: Generation::default(),
            shut: false,
            user_wants_up: false,
            asked_for_restart: false,
            last_requested_spawn: None,
            crashes_in_a_row: 0,
            expected_spawn: None,
            words: BTreeSet::new(),
        }
    }

    fn live(&mut self) {
        for _ in 0..STEPS {
            if self.random.one_in(100) && !self.shut {
                self.supervisor_dies();
            }
            let why = || "random".to_owned();
            let input = match self.random.below(16) {
                0 => Some(Input::Start),
                1 if self.random.one_in(3) => Some(Input::Stop),
                2 if self.random.one_in(2) => {
                    Some(Input::Restart { reason: why(), by: Actor::Afresh("test") })
                }
                3 if self.random.one_in(4) => Some(Input::HurryUp),
                4 if self.random.one_in(8) => Some(Input::HandshakeFailed(self.any(), why())),
                5 if self.random.one_in(8) => {
                    let generation = Generation(self.random.below(5));
                    Some(Input::Exited(generation, Exit::Code(42)))
                        .filter(|_| !self.alive.contains_key(&generation))
                        .filter(|_| !self.is_planned(generation))
                }
                6 if self.random.one_in(60) => {
                    self.shut = true;
                    let quick = self.random.one_in(2).then_some(Duration::from_secs(1));
                    Some(Input::Shutdown { within: quick })
                }
                7 if self.random.one_in(6) => Some(Input::Ready(self.any())),
                8 if self.random.one_in(4) => Some(Input::Drained(self.any())),
                9 if self.random.one_in(8) => Some(Input::Replace(self.any(), why())),
                10 if self.random.one_in(8) => Some(Input::DiedOfProbe(self.any())),
                11 if self.random.one_in(8) => {
                    // Files change in bursts.
                    (0..self.random.below(12)).for_each(|_| self.input(Input::RenewSpare));
                    Some(Input::RenewSpare)
                }
                12 if self.random.one_in(12) => Some(Input::Unhealthy(self.any(), why())),
                _ => None,
            };
            match input {
                Some(input) => self.input(input),
                None => self.pass_time(),
            }
        }
    }

    /// The supervisor is killed, and the next one takes over what runs.
    fn supervisor_dies(&mut self) {
        writeln!(self.history, "{:?} another supervisor", self.now.since_start())
            .expect("a String takes all");
        let before = self.service.snapshot(self.now);
        let current = before.generation.map(Generation);
        self.service = Service::new(self.policy.clone(), self.random.next());
        self.service.resume(self.newest, Some(before.restarts));
        // Only the ends of processes are told to whoever comes.
        self.plans.retain(|plan| matches!(plan.input, Input::Exited(..)));
        let closed = std::mem::take(&mut self.closed);
        self.opened.clear();
        (self.asked_for_restart, self.user_wants_up) = (false, false);
        (self.last_requested_spawn, self.expected_spawn) = (None, None);
        self.crashes_in_a_row = 0;
        for generation in self.alive.keys().copied().collect::<Vec<_>>() {
            let found = match Some(generation) == current {
                true if closed.contains(&generation) => AdoptedAs::Stopping,
                true => AdoptedAs::Current,
                false => AdoptedAs::Beside,
            };
            self.user_wants_up |= found == AdoptedAs::Current;
            let since = self.now - Duration::from_millis(self.random.below(90_000));
            let pid = pid_of(generation);
            self.input(Input::Adopted { generation, pid, since, found });
        }
        let after = self.service.snapshot(self.now);
        let kept = current.filter(|current| self.alive.contains_key(current));
        self.check(after.generation.map(Generation) == kept, "the current one stays it");
        self.check(after.restarts == before.restarts, "restarts are counted on");
    }

    /// One of the newest instances, alive or not.
    fn any(&mut self) -> Generation {
        Generation(self.service.generation().0.saturating_sub(self.random.below(4)))
    }

    fn is_planned(&self, generation: Generation) -> bool {
        self.plans.iter().any(|plan| generation_of(&plan.input) == Some(generation))
    }

    fn serves(&self) -> bool {
        let current = self.service.snapshot(self.now).generation;
        current.is_some_and(|current| self.alive.contains_key(&Generation(current)))
    }

    /// However it went: unless shut down, a final start works; and a final stop ends all.
    fn end(&mut self) {
        self.alive.values_mut().for_each(|living| living.stuck = false);
        self.input(Input::Start);
        if !self.shut {
            for _ in 0..10_000 {
                if self.serves() && self.service.next_wakeup().is_none_or(|at| at > self.now) {
                    break;
                }
                self.pass_time();
                if self.service.rest().is_some() {
                    self.input(Input::Start);
                }
            }
            self.check(self.serves(), "a final start works");
        }
        self.input(Input::Stop);
        for _ in 0..1_000 {
            if self.service.rest().is_some() {
                break;
            }
            self.pass_time();
        }
        self.check(self.service.rest().is_some(), "a final stop works");
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
        if let Input::Exited(generation, _) = &input {
            if self.alive.remove(generation).is_none() {
                return;
            }
            self.plans.retain(|plan| generation_of(&plan.input) != Some(*generation));
        }
        self.input(input);
    }

    fn input(&mut self, input: Input) {
        match &input {
            Input::Restart { .. } if self.service.want() == Want::Gone => {}
            Input::Start | Input::Restart { .. } => self.user_wants_up = true,
            Input::Stop | Input::Retire | Input::Shutdown { .. } => {
                self.user_wants_up = false;
                self.asked_for_restart = false;
            }
            // The start that is planned may be the probe's, and come at once.
            Input::DiedOfProbe(_) => {
                self.expected_spawn = self.expected_spawn.map(|_| self.now);
            }
            _ => {}
        }
        writeln!(self.history, "{:?} {input:?}", self.now.since_start())
            .expect("a String takes all");
        let before = self.service.snapshot(self.now);
        let effects = self.service.handle(self.now, input.clone());
        for effect in effects {
            writeln!(self.history, "    {effect:?}").expect("a String takes all");
            self.check_told(&effect, &input, &before);
            self.perform(effect, input == Input::Start);
        }
        if let Some(at) = self.service.next_wakeup() {
            self.check(at > self.now, "a wakeup lies ahead, or the loop would spin");
        }
        if self.service.rest().is_some() {
            self.check(self.alive.is_empty(), "a service at rest has no process");
        }
    }

    /// What one instance does to the others.
    fn check_told(&self, effect: &Effect, input: &Input, before: &Snapshot) {
        let Effect::Tell(event) = effect else { return };
        let current = before.generation.map(Generation);
        match event {
            Event::Restarting { .. } | Event::GaveUp { .. } | Event::CrashLoop { .. } => {
                let of = generation_of(input);
                self.check(of == current, "only the current instance crashes");
            }
            Event::SwapFailed { .. } => {
                let after = self.service.snapshot(self.now);
                self.check(after.generation == before.generation, "the old one stays");
                self.check(after.candidate_pid.is_none(), "the new one does not");
            }
            Event::Stopped(_) => self.check(self.alive.is_empty(), "stopped is said at the end"),
            _ => {}
        }
    }

    fn perform(&mut self, effect: Effect, after_start: bool) {
        match effect {
            Effect::Spawn(generation) => self.spawn(generation, after_start),
            Effect::Open(generation) => self.open(generation),
            Effect::Stop(StopStep::CloseStdin, generation) => {
                let first = self.closed.insert(generation);
                self.check(first, "a stop begins once");
            }
            Effect::Stop(StopStep::Terminate, generation) => {
                self.exit_if(generation, 500, Exit::Signal(15), |living| !living.stubborn);
            }
            Effect::Stop(StopStep::Kill, generation) => {
                self.exit_if(generation, 50, Exit::Signal(9), |living| !living.stuck);
            }
            Effect::Stop(StopStep::Abandon, generation) => {
                self.exit_if(generation, 50, Exit::Unknown, |_| true);
            }
            Effect::MarkRestart { .. } => {}
            Effect::Tell(event) => self.told(event),
        }
    }

    /// A step of a stop.
    fn exit_if(
        &mut self,
        generation: Generation,
        within_millis: u64,
        exit: Exit,
        obeys: impl Fn(&Living) -> bool,
    ) {
        self.check(self.closed.contains(&generation), "only one that is being stopped");
        if self.alive.get(&generation).is_some_and(obeys) {
            self.plan(within_millis, Input::Exited(generation, exit));
        }
    }

    fn open(&mut self, generation: Generation) {
        self.check(self.alive.contains_key(&generation), "only the living get the session");
        let first = self.opened.insert(generation);
        self.check(first, "the session is given once");
        self.check(!self.closed.contains(&generation), "none that goes gets the session");
        if self.random.one_in(3) {
            let why = "silence".to_owned();
            self.plan(30_000, Input::HandshakeFailed(generation, why));
        } else {
            self.plan(2_000, Input::Ready(generation));
        }
    }

    fn spawn(&mut self, generation: Generation, after_start: bool) {
        self.check(generation > self.newest, "no generation comes twice");
        self.newest = generation;
        let alone = self.policy.restart_mode == RestartMode::Replace && !self.policy.spare;
        self.check(!alone || self.alive.is_empty(), "never two live processes, where none may be");
        // The current one, a candidate and a spare, each of which may begin to leave.
        self.check(self.alive.len() < RETIRING_MAX + 1 + 3, "never many live processes");
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
        if self.random.one_in(15) {
            let failure = SpawnFailure {
                message: "random".to_owned(),
                hint: None,
                permanent: self.random.one_in(3),
                code: 127,
            };
            self.plan(5, Input::SpawnFailed(generation, failure));
            return;
        }
        let living = Living { stubborn: self.random.one_in(4), stuck: self.random.one_in(10) };
        self.alive.insert(generation, living);
        self.plan(5, Input::Spawned(generation, pid_of(generation)));
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
            self.plan(life, Input::Exited(generation, exit));
        }
    }

    fn told(&mut self, event: Event) {
        self.words.insert(event.record("", "", "").event_type.name());
        match event {
            Event::Restarting { delay, attempt, after, .. } => {
                self.crashes_in_a_row = attempt;
                let is_unspawned = matches!(after, Ending::SpawnFailed(_));
                let least = if is_unspawned { SPAWN_RETRY_MIN } else { Duration::ZERO };
                // A spare takes over at once.
                let is_waited = delay >= least || self.policy.spare;
                self.check(is_waited, "a start that failed is not tried again at once");
                let cap = match self.policy.backoff {
                    Backoff::Exponential { cap, .. } => cap,
                    Backoff::Stepped => Duration::from_secs(10),
                };
                self.check(delay <= cap.max(least), "no wait is longer than the cap");
                let max = self.policy.max_restarts;
                self.check(max == 0 || attempt <= max, "no more restarts than allowed");
                self.expected_spawn = Some(self.now + delay);
            }
            Event::GaveUp { .. } => {
                let max = self.policy.max_restarts;
                self.check(max > 0 && self.crashes_in_a_row == max, "gives up at the limit");
            }
            Event::RestartRequested { .. } => self.asked_for_restart = true,
            Event::Exited { pid: Some(pid), .. } => {
                let alive = self.alive.keys().any(|generation| pid_of(*generation) == pid);
                self.check(!alive, "an exit is a fact");
            }
            _ => {}
        }
    }

    fn plan(&mut self, within_millis: u64, input: Input) {
        let at = self.now + Duration::from_millis(1 + self.random.below(within_millis));
        // One pipe brings all word of a process: what was sent first arrives first.
        let of = generation_of(&input);
        let is_birth = |plan: &&Plan| {
            matches!(plan.input, Input::Spawned(..)) && generation_of(&plan.input) == of
        };
        let spawned_at = self.plans.iter().find(is_birth).map(|plan| plan.at);
        let at = spawned_at.map_or(at, |spawned_at| at.max(spawned_at));
        let place = self.plans.iter().position(|plan| plan.at > at).unwrap_or(self.plans.len());
        self.plans.insert(place, Plan { at, input });
    }

    #[track_caller]
    fn check(&self, holds: bool, promise: &str) {
        assert!(holds, "broken: {promise}\n{}", self.history);
    }
}

const fn pid_of(generation: Generation) -> u32 {
    1_000 + generation.0 as u32
}

/// Which instance an input is about.
const fn generation_of(input: &Input) -> Option<Generation> {
    match input {
        Input::Spawned(generation, _)
        | Input::Adopted { generation, .. }
        | Input::SpawnFailed(generation, _)
        | Input::Ready(generation)
        | Input::Drained(generation)
        | Input::Exited(generation, _)
        | Input::HandshakeFailed(generation, _)
        | Input::Unhealthy(generation, _)
        | Input::Replace(generation, _)
        | Input::DiedOfProbe(generation) => Some(*generation),
        _ => None,
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
        restart_mode: [RestartMode::Replace, RestartMode::Swap][random.below(2) as usize],
        drain_timeout: pick(random, &[0, 10_000]),
        spare: random.one_in(2),
        ..Policy::default()
    }
}
