//! One case for each rule; `core/tests/sim.rs` has the random histories.

mod adopted;
mod swap;

use super::*;
use crate::limits::SPAWN_RETRY_MIN;
use crate::policy::{Backoff, Restart};
use crate::stop_ladder::StopStep;

/// A machine with a clock; `tell` keeps what is told, `does` what has to be done.
pub(super) struct Bench {
    pub(super) service: Service,
    pub(super) now: Time,
    pub(super) told: Vec<Event>,
}

impl Bench {
    pub(super) fn new(policy: Policy) -> Self {
        Self { service: Service::new(policy, 1), now: Time::ZERO, told: Vec::new() }
    }

    /// Started, with a running instance.
    pub(super) fn running(policy: Policy) -> Self {
        let mut bench = Self::new(policy);
        assert_eq!(bench.does(Input::Start), [bench.spawn()]);
        bench.spawned();
        bench
    }

    pub(super) fn does(&mut self, input: Input) -> Vec<Effect> {
        let effects = self.service.handle(self.now, input);
        let (told, done): (Vec<_>, Vec<_>) =
            effects.into_iter().partition(|effect| matches!(effect, Effect::Tell(_)));
        self.told.extend(told.into_iter().map(|effect| match effect {
            Effect::Tell(event) => event,
            _ => unreachable!(),
        }));
        done
    }

    pub(super) fn after(&mut self, millis: u64, input: Input) -> Vec<Effect> {
        self.now = self.now + Duration::from_millis(millis);
        self.does(input)
    }

    pub(super) fn spawn(&self) -> Effect {
        Effect::Spawn(self.service.generation())
    }

    pub(super) fn spawned(&mut self) {
        let generation = self.service.generation();
        let effects = self.does(Input::Spawned(generation, 100 + generation.0 as u32));
        let stopped = matches!(self.service.process, Process::Stopping { .. });
        let expected = [Effect::Open(generation)];
        assert_eq!(effects, if stopped { &[][..] } else { &expected });
    }

    pub(super) fn exit(&mut self, exit: Exit) -> Vec<Effect> {
        let generation = self.service.generation();
        self.does(Input::Exited(generation, exit))
    }

    pub(super) fn wait_ms(&self) -> Option<u128> {
        self.service.next_wakeup().map(|at| at.since(self.now).as_millis())
    }

    pub(super) fn words(&self) -> Vec<&'static str> {
        self.told.iter().map(|event| event.record("T", "t", "l").event_type.name()).collect()
    }

    pub(super) fn failed(&self) -> bool {
        matches!(self.service.rest(), Some(Rest::Failed(_)))
    }
}

pub(super) fn close(generation: u64) -> Effect {
    Effect::Stop(StopStep::CloseStdin, Generation(generation))
}

pub(super) fn terminate(generation: u64) -> Effect {
    Effect::Stop(StopStep::Terminate, Generation(generation))
}

pub(super) fn kill(generation: u64) -> Effect {
    Effect::Stop(StopStep::Kill, Generation(generation))
}

fn abandon(generation: u64) -> Effect {
    Effect::Stop(StopStep::Abandon, Generation(generation))
}

pub(super) fn exact() -> Policy {
    Policy {
        backoff: Backoff::Exponential {
            base: Duration::from_secs(1),
            factor: 2.0,
            cap: Duration::from_secs(60),
            jitter_percent: 0,
        },
        ..Policy::default()
    }
}

const BY: Actor = Actor::Afresh("test");

pub(super) fn restart(reason: &str) -> Input {
    Input::Restart { reason: reason.to_owned(), by: BY }
}

pub(super) fn not_found() -> SpawnFailure {
    SpawnFailure { message: "no such command".to_owned(), hint: None, permanent: true, code: 127 }
}

#[test]
fn what_follows_each_exit_under_each_policy() {
    // W2 R3 O1 O2 O3 O4 O10
    use Restart::{Always, Never, OnCrash};
    const UP: &str = "restarts";
    const ASKED: &str = "restarts as asked";
    const DOWN: &str = "stays down";
    let exits = [
        (Exit::Code(0), [UP, DOWN, DOWN]),
        (Exit::Code(42), [ASKED, ASKED, ASKED]),
        (Exit::Code(1), [UP, UP, DOWN]),
        (Exit::Code(143), [UP, UP, DOWN]),
        (Exit::Signal(9), [UP, UP, DOWN]),
        (Exit::Signal(11), [UP, UP, DOWN]),
        (Exit::Signal(1), [UP, UP, DOWN]),
        (Exit::Unknown, [UP, UP, DOWN]),
        (Exit::Signal(15), [DOWN, DOWN, DOWN]),
        (Exit::Signal(2), [DOWN, DOWN, DOWN]),
    ];
    for (exit, expected) in exits {
        for (policy, expected) in [Always, OnCrash, Never].into_iter().zip(expected) {
            let mut bench = Bench::running(Policy { restart: policy, ..exact() });
            bench.exit(exit);
            let seen = match (bench.service.rest(), bench.words().contains(&"server_restarting")) {
                (Some(_), false) => DOWN,
                (None, true) => UP,
                (None, false) => ASKED,
                (Some(_), true) => "both",
            };
            assert_eq!(seen, expected, "{exit:?} {policy:?}");
        }
    }
}

#[test]
fn a_normal_exit_can_be_restarted_too() {
    // O2
    let mut bench = Bench::running(Policy { restart_on_normal_exit: true, ..exact() });
    assert_eq!(bench.exit(Exit::Code(0)), []);
    assert_eq!(bench.wait_ms(), Some(1000));
    let text = bench.told.last().unwrap().message("OpenCode");
    assert!(text.starts_with("Restarting OpenCode after unexpected exit"), "{text}");
}

#[test]
fn the_users_stop_is_said_and_kept() {
    // O3
    let mut bench = Bench::running(exact());
    bench.exit(Exit::Signal(15));
    assert_eq!(bench.service.rest(), Some(&Rest::Stopped));
    assert_eq!(
        bench.told.last().unwrap().message("OpenCode"),
        "OpenCode stopped by user, not restarting"
    );
    assert_eq!(bench.service.next_wakeup(), None);
}

#[test]
fn a_crash_waits_and_starts_again() {
    // O1 O9 G3
    let mut bench = Bench::running(exact());
    assert_eq!(bench.exit(Exit::Code(1)), []);
    assert_eq!(bench.wait_ms(), Some(1000));
    assert_eq!(bench.after(999, Input::Wakeup), []);
    let effects = bench.after(1, Input::Wakeup);
    assert_eq!(effects, [bench.spawn()]);
    bench.spawned();
    assert_eq!(
        bench.words(),
        ["server_started", "server_crashed", "server_restarting", "server_started"]
    );
}

#[test]
fn a_crash_loop_is_said_once_and_keeps_trying() {
    // O5 W12
    let mut bench = Bench::running(Policy { max_restarts: 0, ..exact() });
    let mut waits = Vec::new();
    for _ in 0..8 {
        bench.exit(Exit::Code(1));
        let wait = bench.wait_ms().unwrap();
        waits.push(wait / 1000);
        bench.after(u64::try_from(wait).unwrap(), Input::Wakeup);
        bench.spawned();
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    let loops: Vec<_> =
        bench.told.iter().filter(|e| matches!(e, Event::CrashLoop { .. })).collect();
    assert_eq!(loops.len(), 1);
    let text = loops[0].message("OpenCode");
    assert!(text.starts_with("OpenCode crash loop detected, backing off"), "{text}");
    // A stable run ends it, and says so, with a wakeup of its own.
    assert_eq!(bench.wait_ms(), Some(60_001));
    bench.after(60_001, Input::Wakeup);
    assert!(matches!(bench.told.last(), Some(Event::Recovered { .. })));
    assert_eq!(bench.service.next_wakeup(), None);
    bench.exit(Exit::Code(1));
    assert_eq!(bench.wait_ms(), Some(1000));
}

#[test]
fn it_gives_up_and_a_users_start_begins_afresh() {
    // O6 G3
    let mut bench = Bench::running(Policy { max_restarts: 2, ..exact() });
    for round in 0..3 {
        assert!(!bench.failed(), "round {round}");
        bench.exit(Exit::Signal(11));
        if let Some(wait) = bench.wait_ms() {
            bench.after(u64::try_from(wait).unwrap(), Input::Wakeup);
            bench.spawned();
        }
    }
    assert!(bench.failed());
    assert_eq!(bench.words().last(), Some(&"server_gave_up"));
    assert_eq!(bench.service.next_wakeup(), None);
    let effects = bench.does(Input::Start);
    assert_eq!(effects, [bench.spawn()]);
    bench.spawned();
    bench.exit(Exit::Code(1));
    assert_eq!(bench.wait_ms(), Some(1000));
}

#[test]
fn that_it_is_well_again_is_said_after_giving_up_too() {
    let mut bench = Bench::running(Policy { max_restarts: 1, ..exact() });
    bench.exit(Exit::Code(1));
    bench.after(1_000, Input::Wakeup);
    bench.spawned();
    bench.exit(Exit::Code(1));
    assert!(bench.failed());
    // The user's start forgets the crashes, but people were told that it is down.
    bench.does(Input::Start);
    bench.spawned();
    assert_eq!(bench.wait_ms(), Some(60_001));
    bench.after(60_001, Input::Wakeup);
    assert_eq!(bench.words().last(), Some(&"server_recovered"));
    assert_eq!(bench.service.next_wakeup(), None);
    // Once: another start has nothing to recover from.
    bench.does(Input::Stop);
    bench.exit(Exit::Signal(15));
    bench.does(Input::Start);
    bench.spawned();
    assert_eq!(bench.service.next_wakeup(), None);
}

#[test]
fn a_requested_restart_is_on_record_before_anything_stops() {
    // R2 R4 W4
    let mut bench = Bench::running(exact());
    bench.told.clear();
    let effects = bench.service.handle(bench.now, restart("code changes"));
    let expected = [
        Effect::Tell(Event::RestartRequested {
            pid: Some(101),
            reason: "code changes".to_owned(),
            by: BY,
        }),
        Effect::MarkRestart { pid: Some(101), reason: "code changes".to_owned() },
        Effect::Tell(Event::ExitingForRestart {
            pid: Some(101),
            reason: "code changes".to_owned(),
            exit_code: 42,
            by: BY,
        }),
        close(1),
        terminate(1),
    ];
    assert_eq!(effects, expected);
    for announcement in [&expected[0], &expected[2]] {
        assert!(matches!(announcement, Effect::Tell(event) if event.is_announcement()));
    }
    let effects = bench.exit(Exit::Signal(15));
    assert_eq!(effects, [bench.spawn()]);
    bench.spawned();
    assert_eq!(bench.words(), ["server_exited", "server_started"]);
}

#[test]
fn a_process_that_exits_with_42_is_started_again_by_the_same_rules() {
    // R3 R4 R8 W2 W4
    let mut bench = Bench::running(exact());
    bench.told.clear();
    let effects = bench.exit(Exit::Code(42));
    assert_eq!(
        effects,
        [
            Effect::MarkRestart {
                pid: Some(101),
                reason: "the process exited with code 42".to_owned()
            },
            bench.spawn()
        ]
    );
    assert_eq!(
        bench.words(),
        ["server_exited", "server_restart_requested", "server_exiting_for_restart"]
    );
    // And again at once: throttled, and it spends nothing of the crash budget.
    for _ in 0..20 {
        bench.spawned();
        bench.exit(Exit::Code(42));
        assert_eq!(bench.wait_ms(), Some(1000));
        bench.after(1000, Input::Wakeup);
    }
    assert!(bench.words().contains(&"server_restart_throttled"));
    assert!(!bench.failed());
}

#[test]
fn a_restart_that_is_throttled_leaves_the_instance_running_until_then() {
    // W4
    let mut bench = Bench::running(exact());
    bench.does(restart("one"));
    bench.exit(Exit::Code(0));
    bench.spawned();
    let effects = bench.after(400, restart("two"));
    assert!(matches!(effects[..], [Effect::MarkRestart { .. }]), "{effects:?}");
    assert_eq!(bench.wait_ms(), Some(600));
    assert_eq!(bench.after(600, Input::Wakeup), [close(2), terminate(2)]);
}

#[test]
fn a_throttled_restart_survives_the_death_of_the_instance() {
    // W4 R7
    let mut bench = Bench::running(Policy { restart: Restart::Never, ..exact() });
    bench.does(restart("one"));
    bench.exit(Exit::Code(0));
    bench.spawned();
    bench.does(restart("two"));
    assert_eq!(bench.exit(Exit::Code(7)), []);
    assert_eq!(bench.wait_ms(), Some(1000));
    let effects = bench.after(1000, Input::Wakeup);
    assert_eq!(effects, [bench.spawn()]);
}

#[test]
fn more_requests_never_make_the_next_start_later() {
    // W4
    let mut bench = Bench::running(exact());
    bench.does(restart("one"));
    bench.exit(Exit::Code(0));
    bench.spawned();
    bench.exit(Exit::Code(42));
    assert_eq!(bench.wait_ms(), Some(1000));
    for round in 1..=9 {
        bench.after(100, restart("more"));
        assert_eq!(bench.wait_ms(), Some(1000 - round * 100), "round {round}");
    }
    // The same for a wait after a crash.
    let mut bench = Bench::running(Policy { throttle: Duration::from_secs(30), ..exact() });
    bench.does(restart("one"));
    bench.exit(Exit::Code(0));
    bench.spawned();
    bench.exit(Exit::Code(3));
    bench.after(400, restart("two"));
    assert_eq!(bench.wait_ms(), Some(600));
}

#[test]
fn a_stop_climbs_the_ladder() {
    // W9 G6
    let policy = Policy { stdin_timeout: Duration::from_secs(1), ..exact() };
    let mut bench = Bench::running(policy);
    assert_eq!(bench.does(Input::Stop), [close(1)]);
    assert_eq!(bench.after(1000, Input::Wakeup), [terminate(1)]);
    assert_eq!(bench.after(4999, Input::Wakeup), []);
    assert_eq!(bench.after(1, Input::Wakeup), [kill(1)]);
    // A kill is a request: only its exit ends the stop.
    assert_eq!(bench.after(2000, Input::Wakeup), [abandon(1)]);
    assert_eq!(bench.after(2000, Input::Wakeup), [abandon(1)]);
    assert_eq!(bench.exit(Exit::Signal(9)), []);
    assert_eq!(bench.service.rest(), Some(&Rest::Stopped));
}

#[test]
fn a_shutdown_fits_into_its_time_in_every_state() {
    // G6 W9
    let policy = Policy { stdin_timeout: Duration::from_secs(1), ..exact() };
    let shutdown = Input::Shutdown { within: Some(Duration::from_secs(1)) };
    let killed_within_a_second = |bench: &mut Bench| {
        let mut waited = 0;
        while bench.service.rest().is_none() {
            let wait = u64::try_from(bench.wait_ms().unwrap()).unwrap();
            waited += wait;
            if bench.after(wait, Input::Wakeup).contains(&kill(1)) {
                bench.exit(Exit::Signal(9));
            }
        }
        assert!(waited < 1000, "{waited}");
        // Nothing comes up any more.
        assert_eq!(bench.does(Input::Start), []);
        assert_eq!(bench.does(restart("no")), []);
        assert_eq!(bench.service.next_wakeup(), None);
    };
    let mut running = Bench::running(policy.clone());
    running.does(shutdown.clone());
    killed_within_a_second(&mut running);

    let mut stopping = Bench::running(policy.clone());
    stopping.does(Input::Stop);
    stopping.after(1000, Input::Wakeup);
    stopping.does(shutdown.clone());
    killed_within_a_second(&mut stopping);

    let mut starting = Bench::new(policy.clone());
    starting.does(Input::Start);
    starting.does(shutdown.clone());
    killed_within_a_second(&mut starting);

    let mut waiting = Bench::running(policy);
    waiting.exit(Exit::Code(1));
    assert_eq!(waiting.does(shutdown), []);
    assert_eq!(waiting.service.rest(), Some(&Rest::Stopped));
}

#[test]
fn hurrying_up_kills_at_once() {
    // W9
    let mut bench = Bench::running(exact());
    assert_eq!(bench.does(Input::HurryUp), []);
    bench.does(Input::Stop);
    assert_eq!(bench.does(Input::HurryUp), [kill(1)]);
    assert_eq!(bench.does(Input::HurryUp), []);

    let mut bench = Bench::running(Policy { stdin_timeout: Duration::from_secs(1), ..exact() });
    assert_eq!(bench.does(Input::Stop), [close(1)]);
    assert_eq!(bench.does(Input::HurryUp), [kill(1)]);
}

#[test]
fn a_start_during_a_stop_is_not_lost() {
    let mut bench = Bench::running(exact());
    bench.does(Input::Stop);
    assert_eq!(bench.does(Input::Start), []);
    let effects = bench.exit(Exit::Signal(15));
    assert_eq!(effects, [bench.spawn()]);
}

#[test]
fn a_stop_during_a_restart_wins() {
    let mut bench = Bench::running(exact());
    bench.does(restart("x"));
    assert_eq!(bench.does(Input::Stop), []);
    assert_eq!(bench.exit(Exit::Code(0)), []);
    assert_eq!(bench.service.rest(), Some(&Rest::Stopped));
}

#[test]
fn a_restart_does_not_bring_back_a_service_that_is_not_defined_any_more() {
    let mut bench = Bench::running(exact());
    bench.does(Input::Retire);
    assert_eq!(bench.does(restart("x")), []);
    bench.exit(Exit::Signal(15));
    assert_eq!(bench.does(restart("x")), []);
    assert_eq!(bench.service.rest(), Some(&Rest::Stopped));
    // It is defined again.
    assert_ne!(bench.does(Input::Start), []);
}

#[test]
fn a_stop_during_a_backoff_ends_it() {
    let mut bench = Bench::running(exact());
    bench.exit(Exit::Code(1));
    assert_eq!(bench.does(Input::Stop), []);
    assert_eq!(bench.service.rest(), Some(&Rest::Stopped));
    assert_eq!(bench.after(5000, Input::Wakeup), []);
}

#[test]
fn a_stop_during_a_start_reaches_the_process() {
    let mut bench = Bench::new(exact());
    bench.does(Input::Start);
    assert_eq!(bench.does(Input::Stop), [close(1), terminate(1)]);
    bench.spawned();
    bench.exit(Exit::Signal(15));
    assert_eq!(bench.service.rest(), Some(&Rest::Stopped));
}

#[test]
fn restarts_during_a_restart_make_one_process() {
    let mut bench = Bench::running(exact());
    bench.does(restart("one"));
    for _ in 0..5 {
        let effects = bench.does(restart("more"));
        assert!(matches!(effects[..], [Effect::MarkRestart { .. }]), "{effects:?}");
    }
    let effects = bench.exit(Exit::Code(0));
    assert_eq!(effects, [bench.spawn()]);
    let requested = bench.words().iter().filter(|w| **w == "server_restart_requested").count();
    assert_eq!(requested, 6, "each request is on record");
}

#[test]
fn a_restart_during_a_backoff_starts_now() {
    let mut bench = Bench::running(exact());
    bench.exit(Exit::Code(1));
    let effects = bench.does(restart("now"));
    assert_eq!(effects.last(), Some(&bench.spawn()));
}

#[test]
fn a_command_that_never_ran_fails_at_once_but_one_that_ran_is_tried_again() {
    let mut bench = Bench::new(exact());
    bench.does(Input::Start);
    let generation = bench.service.generation();
    bench.does(Input::SpawnFailed(generation, not_found()));
    assert!(bench.failed());

    let mut bench = Bench::running(exact());
    bench.exit(Exit::Code(1));
    bench.after(1000, Input::Wakeup);
    let generation = bench.service.generation();
    bench.does(Input::SpawnFailed(generation, not_found()));
    assert_eq!(bench.wait_ms(), Some(2000));
}

#[test]
fn a_start_that_fails_is_never_tried_again_at_once() {
    let at_once = Backoff::Exponential {
        base: Duration::ZERO,
        factor: 2.0,
        cap: Duration::from_secs(60),
        jitter_percent: 0,
    };
    let policy = Policy { backoff: at_once, max_restarts: 0, crash_loop_count: 0, ..exact() };
    let mut bench = Bench::running(policy);
    bench.exit(Exit::Code(1));
    for _ in 0..10 {
        let generation = bench.service.generation();
        bench.does(Input::SpawnFailed(generation, not_found()));
        assert_eq!(bench.wait_ms(), Some(SPAWN_RETRY_MIN.as_millis()));
        bench.after(SPAWN_RETRY_MIN.as_millis() as u64, Input::Wakeup);
    }
}

#[test]
fn a_failed_handshake_is_killed_and_counts_as_a_crash() {
    // G4
    let mut bench = Bench::running(exact());
    let generation = bench.service.generation();
    let effects = bench.does(Input::HandshakeFailed(generation, "silence".to_owned()));
    assert_eq!(effects, [close(1), kill(1)]);
    bench.exit(Exit::Signal(9));
    assert_eq!(bench.wait_ms(), Some(1000));
    assert!(bench.words().contains(&"server_crashed"));
}

#[test]
fn failed_health_is_stopped_in_order_and_counts_as_a_crash() {
    // O8
    let mut bench = Bench::running(exact());
    let generation = bench.service.generation();
    let effects = bench.does(Input::Unhealthy(generation, "3 in a row".to_owned()));
    assert_eq!(effects, [close(1), terminate(1)]);
    bench.exit(Exit::Code(0));
    assert_eq!(bench.wait_ms(), Some(1000));
}

#[test]
fn late_word_of_an_old_generation_changes_nothing() {
    let mut bench = Bench::running(exact());
    let old = bench.service.generation();
    bench.exit(Exit::Code(1));
    bench.after(1000, Input::Wakeup);
    bench.spawned();
    let told = bench.told.len();
    let late = [
        Input::Exited(old, Exit::Code(42)),
        Input::Spawned(old, 1),
        Input::SpawnFailed(old, not_found()),
        Input::HandshakeFailed(old, String::new()),
        Input::Unhealthy(old, String::new()),
    ];
    for input in late {
        assert_eq!(bench.does(input), []);
    }
    assert_eq!(bench.told.len(), told);
    assert!(matches!(bench.service.process, Process::Running { .. }));
}

#[test]
fn one_that_is_not_needed_does_not_end_with_afresh() {
    for (input, reason) in [
        (Input::Dismiss { within: Duration::from_secs(1) }, Ending::Dismissed),
        (Input::Shutdown { within: None }, Ending::Shutdown),
    ] {
        let mut bench = Bench::running(exact());
        bench.does(input);
        bench.exit(Exit::Code(0));
        assert_eq!(bench.told.last(), Some(&Event::Stopped(reason)));
        assert_eq!(bench.does(Input::Start), []);
    }
}

#[test]
fn a_server_that_was_given_up_is_tried_once_at_a_time() {
    let mut bench = Bench::running(Policy { max_restarts: 2, ..exact() });
    for _ in 0..2 {
        bench.exit(Exit::Code(1));
        assert_eq!(bench.after(10_000, Input::Wakeup), [bench.spawn()]);
        bench.spawned();
    }
    bench.exit(Exit::Code(1));
    assert!(bench.failed());
    for _ in 0..3 {
        assert_eq!(bench.after(60_000, Input::TryOnce), [bench.spawn()]);
        bench.spawned();
        assert_eq!(bench.does(Input::TryOnce), [], "it runs");
        assert_eq!(bench.exit(Exit::Code(1)), []);
        assert!(bench.failed() && bench.wait_ms().is_none());
    }
    // One that stays is as good as any.
    assert_eq!(bench.does(Input::TryOnce), [bench.spawn()]);
    bench.spawned();
    bench.after(61_000, Input::Wakeup);
    bench.exit(Exit::Code(1));
    assert_eq!(bench.wait_ms(), Some(1_000));
    bench.does(Input::Stop);
    assert_eq!(bench.does(Input::TryOnce), [], "the user has stopped it");
}

#[test]
fn a_signal_from_outside_is_a_crash_of_a_server_with_clients() {
    let talker = || Policy { restart_on_term: true, first_at_once: true, ..exact() };
    for signal in [15, 2] {
        let mut bench = Bench::running(talker());
        assert_eq!(bench.exit(Exit::Signal(signal)), []);
        // Long enough for whoever ends afresh, too.
        assert_eq!(bench.wait_ms(), Some(100));
        assert_eq!(bench.after(100, Input::Wakeup), [bench.spawn()]);
        let mut bench = Bench::running(talker());
        bench.exit(Exit::Signal(signal));
        assert_eq!(bench.after(99, Input::Shutdown { within: None }), []);
        assert_eq!((bench.wait_ms(), bench.service.rest()), (None, Some(&Rest::Stopped)));
    }
    let mut bench = Bench::running(talker());
    bench.exit(Exit::Signal(9));
    assert_eq!(bench.spawn(), Effect::Spawn(Generation(2)), "at once");
}

#[test]
fn a_clean_exit_that_owes_answers_is_a_crash() {
    let first = Generation(1);
    let mut bench = Bench::running(exact());
    bench.exit(Exit::Code(0));
    assert_eq!(bench.service.rest(), Some(&Rest::Finished(Ending::Clean)));
    assert_eq!(bench.does(Input::Owing(Generation(7))), [], "another one");
    assert_eq!(bench.does(Input::Owing(first)), []);
    assert_eq!(bench.wait_ms(), Some(1_000));
    assert_eq!(bench.after(1_000, Input::Wakeup), [bench.spawn()]);
    // Where it ended otherwise, nothing changes.
    for policy in [Policy { restart: Restart::Never, ..exact() }, exact()] {
        let is_never = policy.restart == Restart::Never;
        let mut bench = Bench::running(policy);
        bench.exit(if is_never { Exit::Code(0) } else { Exit::Signal(15) });
        let rest = bench.service.rest().cloned();
        assert_eq!(bench.does(Input::Owing(first)), []);
        assert_eq!(bench.service.rest().cloned(), rest);
    }
}
