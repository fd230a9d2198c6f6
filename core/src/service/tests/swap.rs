//! Several instances of one service at a time: swaps, spares, and what a probe has spoiled.

use super::{Bench, close, exact, kill, not_found, restart, terminate};
use crate::limits::{PROBE_DEATHS_MAX, RETIRING_MAX};
use crate::policy::RestartMode;
use crate::service::*;

fn swaps() -> Policy {
    Policy { restart_mode: RestartMode::Swap, stdin_timeout: Duration::from_secs(1), ..exact() }
}

fn spares() -> Policy {
    Policy { spare: true, ..swaps() }
}

fn spawn(generation: u64) -> Effect {
    Effect::Spawn(Generation(generation))
}

fn open(generation: u64) -> Effect {
    Effect::Open(Generation(generation))
}

fn ready(generation: u64) -> Input {
    Input::Ready(Generation(generation))
}

fn drained(generation: u64) -> Input {
    Input::Drained(Generation(generation))
}

fn exited(generation: u64, exit: Exit) -> Input {
    Input::Exited(Generation(generation), exit)
}

fn replace(generation: u64) -> Input {
    Input::Replace(Generation(generation), "spoiled".to_owned())
}

fn handshake_failed(generation: u64) -> Input {
    Input::HandshakeFailed(Generation(generation), "silence".to_owned())
}

impl Bench {
    /// An instance serves, and nothing is told of it.
    fn serving(policy: Policy) -> Self {
        let mut bench = Self::running(policy);
        bench.does(ready(1));
        bench.told.clear();
        bench
    }

    /// It serves, and a candidate opens its session.
    fn swapping() -> Self {
        let mut bench = Self::serving(swaps());
        bench.does(restart("new code"));
        bench.born(2);
        bench.told.clear();
        bench
    }

    /// It serves, and a spare runs.
    fn with_spare() -> Self {
        let mut bench = Self::running(spares());
        assert_eq!(bench.does(ready(1)), [spawn(2)]);
        assert_eq!(bench.born(2), []);
        assert_eq!(bench.words().last(), Some(&"server_spare_started"));
        bench.told.clear();
        bench
    }

    fn born(&mut self, generation: u64) -> Vec<Effect> {
        let pid = 100 + generation as u32;
        self.does(Input::Spawned(Generation(generation), pid))
    }

    fn current(&self) -> Option<u64> {
        self.service.snapshot(self.now).generation
    }

    fn crashes(&self) -> u32 {
        self.service.crashes.counts.consecutive
    }

    fn all_gone(&mut self, generations: &[u64]) {
        for (index, generation) in generations.iter().enumerate() {
            assert_eq!(self.service.rest(), None, "{generation} is still there");
            let stopped = self.words().contains(&"server_stopped");
            assert!(!stopped, "said before the {index}th was gone");
            self.does(exited(*generation, Exit::Signal(15)));
        }
        assert_eq!(self.service.rest(), Some(&Rest::Stopped));
        let stopped = self.words().iter().filter(|word| **word == "server_stopped").count();
        assert_eq!(stopped, 1);
        assert_eq!(self.service.next_wakeup(), None);
    }
}

#[test]
fn a_swap_starts_the_new_one_first_and_stops_the_old_one_when_it_owes_nothing() {
    let mut bench = Bench::serving(swaps());
    let effects = bench.does(restart("new code"));
    let marked = Effect::MarkRestart { pid: Some(101), reason: "new code".to_owned() };
    assert_eq!(effects, [marked, spawn(2)]);
    assert_eq!(bench.born(2), [open(2)]);
    assert_eq!(bench.service.snapshot(bench.now).state, State::Restarting);
    assert_eq!(bench.current(), Some(1));
    assert_eq!(bench.does(ready(2)), []);
    assert_eq!(bench.current(), Some(2));
    assert_eq!(bench.service.snapshot(bench.now).state, State::Ready);
    assert_eq!(bench.does(drained(1)), [close(1)]);
    assert_eq!(bench.after(1000, Input::Wakeup), [terminate(1)]);
    assert_eq!(bench.does(exited(1, Exit::Signal(15))), []);
    let expected = [
        "server_restart_requested",
        "server_candidate_started",
        "server_exiting_for_restart",
        "server_started",
        "server_stop_escalated",
        "server_exited",
    ];
    assert_eq!(bench.words(), expected);
    assert!(matches!(bench.told.last(), Some(Event::Exited { ending: Ending::Replaced, .. })));
    assert_eq!((bench.crashes(), bench.current()), (0, Some(2)));
}

#[test]
fn the_old_one_has_its_time_to_finish_and_no_more() {
    let mut bench = Bench::swapping();
    bench.does(ready(2));
    assert_eq!(bench.wait_ms(), Some(10_000));
    assert_eq!(bench.after(9_999, Input::Wakeup), []);
    assert_eq!(bench.after(1, Input::Wakeup), [close(1)]);
    // However it ends, and by whatever code, it is no crash.
    assert_eq!(bench.does(exited(1, Exit::Code(42))), []);
    assert_eq!((bench.crashes(), bench.current()), (0, Some(2)));
    assert_eq!(bench.service.next_wakeup(), None);
}

#[test]
fn a_new_one_that_fails_never_takes_the_old_one_away() {
    let failures = [
        (exited(2, Exit::Code(1)), vec![]),
        (exited(2, Exit::Code(42)), vec![]),
        (exited(2, Exit::Signal(15)), vec![]),
        (handshake_failed(2), vec![close(2), kill(2)]),
        (Input::SpawnFailed(Generation(2), not_found()), vec![]),
    ];
    for (failure, expected) in failures {
        let mut bench = Bench::serving(swaps());
        bench.does(restart("broken code"));
        if !matches!(failure, Input::SpawnFailed(..)) {
            bench.born(2);
        }
        assert_eq!(bench.does(failure.clone()), expected, "{failure:?}");
        assert!(bench.words().contains(&"server_swap_failed"), "{failure:?}");
        assert_eq!((bench.crashes(), bench.current()), (0, Some(1)), "{failure:?}");
        assert_eq!(bench.service.snapshot(bench.now).state, State::Ready);
        // The next try works, once throttling allows.
        assert_eq!(bench.after(1000, restart("mended")).last(), Some(&spawn(3)));
        bench.born(3);
        bench.does(ready(3));
        assert_eq!(bench.current(), Some(3));
    }
}

#[test]
fn an_old_one_that_dies_in_a_swap_is_followed_by_the_new_one() {
    let mut bench = Bench::swapping();
    assert_eq!(bench.does(exited(1, Exit::Signal(9))), []);
    assert_eq!(bench.words(), ["server_exiting_for_restart", "server_exited", "server_started"]);
    assert_eq!((bench.crashes(), bench.current()), (0, Some(2)));
    assert_eq!(bench.service.snapshot(bench.now).state, State::Running);
    // From now on its failure is a failure.
    bench.does(exited(2, Exit::Code(1)));
    assert_eq!(bench.crashes(), 1);
    assert_eq!(bench.wait_ms(), Some(1000));

    // Also where its start is still to be reported.
    let mut bench = Bench::serving(swaps());
    bench.does(restart("x"));
    bench.does(exited(1, Exit::Code(1)));
    assert_eq!(bench.service.snapshot(bench.now).state, State::Starting);
    assert_eq!(bench.born(2), [open(2)]);
    assert_eq!(bench.words().last(), Some(&"server_started"));
}

#[test]
fn an_old_one_that_fails_in_a_swap_goes_and_the_new_one_stays() {
    let mut bench = Bench::swapping();
    assert_eq!(bench.does(handshake_failed(1)), [close(1), kill(1)]);
    assert_eq!(bench.current(), Some(2));
    bench.does(exited(1, Exit::Signal(9)));
    assert_eq!((bench.crashes(), bench.current()), (0, Some(2)));
}

#[test]
fn a_request_during_a_swap_wants_a_newer_one() {
    let mut bench = Bench::swapping();
    let effects = bench.after(300, restart("newer code"));
    assert!(matches!(effects[..], [Effect::MarkRestart { .. }, _]), "{effects:?}");
    assert_eq!(effects[1], close(2));
    // What was dropped comes too late.
    assert_eq!(bench.does(ready(2)), []);
    assert_eq!(bench.current(), Some(1));
    bench.does(exited(2, Exit::Code(0)));
    assert_eq!(bench.wait_ms(), Some(700));
    assert_eq!(bench.after(700, Input::Wakeup), [spawn(3)]);
    bench.born(3);
    bench.does(ready(3));
    assert_eq!(bench.current(), Some(3));
}

#[test]
fn only_so_many_leave_at_a_time() {
    let mut bench = Bench::serving(swaps());
    let mut current = 1;
    for _ in 0..RETIRING_MAX {
        bench.after(1000, restart("again"));
        current += 1;
        bench.born(current);
        assert_eq!(bench.does(ready(current)), []);
    }
    bench.after(1000, restart("again"));
    bench.born(current + 1);
    assert_eq!(bench.does(ready(current + 1)), [close(1), kill(1)]);
    // The next swap waits until it is gone.
    let effects = bench.after(1000, restart("once more"));
    assert!(matches!(effects[..], [Effect::MarkRestart { .. }]), "{effects:?}");
    assert_eq!(bench.does(exited(1, Exit::Signal(9))), [spawn(current + 2)]);
}

#[test]
fn a_stop_ends_all_of_them_at_once() {
    let mut bench = Bench::swapping();
    bench.does(ready(2));
    bench.after(1000, restart("and another"));
    bench.born(3);
    assert_eq!(bench.does(Input::Stop), [close(2), close(1), close(3)]);
    assert_eq!(bench.does(ready(3)), []);
    assert_eq!(bench.does(Input::HurryUp).len(), 3, "all are killed");
    bench.all_gone(&[3, 2, 1]);
    assert_eq!(bench.service.snapshot(bench.now).state, State::Stopped);
}

#[test]
fn a_shutdown_in_a_swap_fits_into_its_time() {
    let mut bench = Bench::swapping();
    bench.does(ready(2));
    let within = Some(Duration::from_secs(1));
    assert_eq!(bench.does(Input::Shutdown { within }), [close(2), close(1)]);
    assert_eq!(bench.after(400, Input::Wakeup), [terminate(1), terminate(2)]);
    assert_eq!(bench.after(400, Input::Wakeup), [kill(1), kill(2)]);
    bench.all_gone(&[2, 1]);
}

#[test]
fn a_spare_takes_over_without_a_wait_and_is_followed_by_another() {
    let mut bench = Bench::with_spare();
    assert_eq!(bench.does(exited(1, Exit::Signal(9))), [open(2)]);
    assert_eq!(bench.words(), ["server_crashed", "server_restarting", "server_started"]);
    assert_eq!((bench.crashes(), bench.current()), (1, Some(2)));
    // None before the new one serves.
    assert_eq!(bench.does(ready(2)), [spawn(3)]);
    assert_eq!(bench.born(3), []);
    assert_eq!(bench.service.snapshot(bench.now).spare_pid, Some(103));
    // So after a failed handshake.
    assert_eq!(bench.does(handshake_failed(2)), [close(2), kill(2)]);
    assert_eq!(bench.does(exited(2, Exit::Signal(9))), [open(3)]);
}

#[test]
fn in_a_crash_loop_and_after_giving_up_a_spare_changes_nothing() {
    let mut bench = Bench::with_spare();
    for (current, spare) in [(1, 2), (2, 3)] {
        assert_eq!(bench.does(exited(current, Exit::Code(1))), [open(spare)]);
        bench.does(ready(spare));
        bench.born(spare + 1);
    }
    assert_eq!(bench.does(exited(3, Exit::Code(1))), []);
    assert!(bench.words().contains(&"server_crash_loop"));
    assert_eq!(bench.wait_ms(), Some(4000));
    assert_eq!(bench.service.snapshot(bench.now).state.to_string(), "crash loop (next try in 4 s)");

    let mut bench = Bench::with_spare();
    bench.service.policy.max_restarts = 1;
    bench.does(exited(1, Exit::Code(1)));
    bench.does(ready(2));
    bench.born(3);
    assert_eq!(bench.does(exited(2, Exit::Code(1))), [close(3)]);
    assert_eq!(bench.words().last(), Some(&"server_gave_up"));
    assert_eq!(bench.service.rest(), None);
    bench.does(exited(3, Exit::Code(0)));
    assert!(bench.failed());
}

#[test]
fn a_spare_that_dies_is_replaced_more_and_more_slowly_and_fails_nobody() {
    let mut bench = Bench::with_spare();
    let mut waits = Vec::new();
    for spare in 2..9 {
        assert_eq!(bench.does(exited(spare, Exit::Code(1))), []);
        let wait = bench.wait_ms().unwrap();
        waits.push(wait / 1000);
        assert_eq!(bench.after(u64::try_from(wait).unwrap(), Input::Wakeup), [spawn(spare + 1)]);
        bench.born(spare + 1);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60]);
    assert_eq!((bench.crashes(), bench.current()), (0, Some(1)));
    let failure = not_found();
    bench.does(exited(9, Exit::Code(1)));
    bench.after(60_000, Input::Wakeup);
    bench.does(Input::SpawnFailed(Generation(10), failure));
    assert_eq!((bench.wait_ms(), bench.current()), (Some(60_000), Some(1)));
}

#[test]
fn new_code_is_never_an_old_spare() {
    // The process asks for its restart.
    let mut bench = Bench::with_spare();
    let effects = bench.does(exited(1, Exit::Code(42)));
    assert!(matches!(effects[0], Effect::MarkRestart { .. }));
    assert_eq!(effects[1..], [close(2), spawn(3)]);
    // Somebody else does; the spare goes when the new one is there.
    let mut bench = Bench::with_spare();
    assert_eq!(bench.does(restart("new code")).last(), Some(&spawn(3)));
    bench.born(3);
    assert_eq!(bench.does(ready(3)), [close(2), spawn(4)]);
    // The files have changed.
    let mut bench = Bench::with_spare();
    assert_eq!(bench.does(Input::RenewSpare), [close(2), spawn(3)]);
    bench.does(exited(2, Exit::Code(0)));
    assert_eq!((bench.crashes(), bench.current()), (0, Some(1)));
}

#[test]
fn a_stop_ends_the_spare_too() {
    let mut bench = Bench::with_spare();
    assert_eq!(bench.does(Input::Stop), [close(1), close(2)]);
    bench.all_gone(&[1, 2]);
}

#[test]
fn a_spoiled_instance_is_replaced_without_a_word_of_restart_or_crash() {
    let mut bench = Bench::serving(swaps());
    assert_eq!(bench.does(replace(1)), [close(1), spawn(2)]);
    assert_eq!(bench.born(2), [open(2)]);
    bench.does(exited(1, Exit::Code(0)));
    assert_eq!(bench.words(), ["server_replacing", "server_started", "server_exited"]);
    assert_eq!(bench.crashes(), 0);
    // Where two must not be, one after the other, and not throttled.
    let mut bench = Bench::serving(exact());
    assert_eq!(bench.does(replace(1)), [close(1), terminate(1)]);
    assert_eq!(bench.does(exited(1, Exit::Signal(15))), [spawn(2)]);
    bench.born(2);
    bench.does(replace(2));
    assert_eq!(bench.does(exited(2, Exit::Signal(15))), [spawn(3)]);
    // A spare is at hand.
    let mut bench = Bench::with_spare();
    assert_eq!(bench.does(replace(1)), [close(1), open(2)]);
    // A candidate is replaced by a candidate.
    let mut bench = Bench::swapping();
    assert_eq!(bench.does(replace(2)), [close(2), spawn(3)]);
    assert_eq!(bench.current(), Some(1));
}

#[test]
fn a_death_by_a_probe_is_no_crash_whenever_it_is_said_but_not_for_ever() {
    let died = |generation| Input::DiedOfProbe(Generation(generation));
    // Before the exit is told.
    let mut bench = Bench::running(exact());
    assert_eq!(bench.does(died(1)), []);
    assert_eq!(bench.does(exited(1, Exit::Code(1))), [spawn(2)]);
    // After.
    bench.born(2);
    assert_eq!(bench.does(exited(2, Exit::Code(1))), []);
    assert_eq!(bench.crashes(), 1);
    assert_eq!(bench.does(died(2)), [spawn(3)]);
    assert_eq!(bench.crashes(), 0);
    // Once more; then it counts.
    bench.born(3);
    bench.does(died(3));
    assert_eq!(bench.does(exited(3, Exit::Code(1))), [spawn(4)]);
    assert_eq!(bench.service.exits.probe_deaths, PROBE_DEATHS_MAX);
    bench.born(4);
    bench.does(died(4));
    assert_eq!(bench.does(exited(4, Exit::Code(1))), []);
    assert_eq!((bench.crashes(), bench.wait_ms()), (1, Some(1000)));
    // One that serves begins the count anew, and a clean exit is forgiven as well.
    bench.after(1000, Input::Wakeup);
    bench.born(5);
    bench.does(ready(5));
    bench.does(exited(5, Exit::Code(0)));
    assert!(bench.service.rest().is_some());
    assert_eq!(bench.does(died(5)), [spawn(6)]);
}

#[test]
fn a_snapshot_says_what_is_true() {
    let mut bench = Bench::new(exact());
    let state = |bench: &Bench| bench.service.snapshot(bench.now).state.to_string();
    assert_eq!(state(&bench), "stopped");
    bench.does(Input::Start);
    assert_eq!(state(&bench), "starting");
    bench.spawned();
    assert_eq!(state(&bench), "running");
    bench.does(ready(1));
    assert_eq!(state(&bench), "ready");
    bench.exit(Exit::Code(1));
    assert_eq!(state(&bench), "backing off (next try in 1 s)");
    bench.after(1000, Input::Wakeup);
    bench.spawned();
    bench.does(restart("x"));
    assert_eq!(state(&bench), "restarting");
    bench.does(Input::Stop);
    assert_eq!(state(&bench), "stopping");
    bench.after(250, Input::Wakeup);
    let expected = Snapshot {
        state: State::Stopping,
        pid: Some(102),
        generation: Some(2),
        uptime_ms: Some(250),
        restarts: 1,
        candidate_pid: None,
        spare_pid: None,
    };
    assert_eq!(bench.service.snapshot(bench.now), expected);
    assert_eq!(bench.service.exits().last_exit, Some(Exit::Code(1)));
    bench.exit(Exit::Code(0));
    assert_eq!(state(&bench), "stopped");
}
