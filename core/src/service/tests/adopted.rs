//! Instances that another supervisor has started.

use std::time::Duration;

use super::{Bench, close, terminate};
use crate::id::Generation;
use crate::policy::Policy;
use crate::service::{AdoptedAs, Effect, Exit, Input, State};
use crate::time::Time;

/// A supervisor that has been there for an hour.
fn bench() -> Bench {
    let mut bench = Bench::new(Policy::default());
    bench.now = Time::after_start(Duration::from_secs(3_600));
    bench
}

fn adopted(bench: &Bench, generation: u64, seconds: u64, found: AdoptedAs) -> Input {
    let since = bench.now - Duration::from_secs(seconds);
    Input::Adopted { generation: Generation(generation), pid: 77, since, found }
}

#[test]
fn an_adopted_instance_is_the_current_one_with_its_uptime_and_nothing_is_spawned() {
    let mut bench = bench();
    bench.service.resume(Generation(4), Some(9));
    let input = adopted(&bench, 5, 120, AdoptedAs::Current);
    assert_eq!(bench.does(input.clone()), [Effect::Open(Generation(5))]);
    assert_eq!(bench.does(Input::Start), []);
    assert_eq!(bench.does(input), [], "once is enough");
    assert_eq!(bench.words(), ["server_adopted"]);
    let snapshot = bench.service.snapshot(bench.now);
    assert_eq!(snapshot.state, State::Running);
    assert_eq!((snapshot.pid, snapshot.generation), (Some(77), Some(5)));
    assert_eq!((snapshot.uptime_ms, snapshot.restarts), (Some(120_000), 9));
}

#[test]
fn the_end_of_an_adopted_instance_follows_the_policy() {
    let mut bench = bench();
    let input = adopted(&bench, 5, 2, AdoptedAs::Current);
    bench.does(input);
    assert_eq!(bench.exit(Exit::Code(7)), []);
    assert_eq!(bench.words(), ["server_adopted", "server_crashed", "server_restarting"]);
    let wakeup = bench.service.next_wakeup();
    bench.now = wakeup.expect("a restart is planned");
    assert_eq!(bench.does(Input::Wakeup), [Effect::Spawn(Generation(6))]);
    assert_eq!(bench.service.snapshot(bench.now).restarts, 1);
}

#[test]
fn a_stop_that_was_under_way_is_begun_anew_and_a_start_waits_for_its_end() {
    let mut bench = bench();
    let input = adopted(&bench, 5, 2, AdoptedAs::Stopping);
    assert_eq!(bench.does(input), [close(5), terminate(5)]);
    assert_eq!(bench.does(Input::Start), []);
    let exited = bench.exit(Exit::Signal(15));
    assert_eq!(exited, [Effect::Spawn(Generation(6))]);
}

#[test]
fn one_beside_the_current_is_stopped_and_no_rest_comes_before_its_end() {
    let mut bench = bench();
    let input = adopted(&bench, 5, 2, AdoptedAs::Beside);
    assert_eq!(bench.does(input), [close(5), terminate(5)]);
    assert!(bench.service.rest().is_none());
    let current = adopted(&bench, 4, 9, AdoptedAs::Current);
    assert_eq!(bench.does(current), [Effect::Open(Generation(4))]);
    bench.exit(Exit::Signal(15));
    let snapshot = bench.service.snapshot(bench.now);
    assert_eq!((snapshot.state, snapshot.generation), (State::Running, Some(4)));
    assert_eq!(bench.does(Input::Stop), [close(4), terminate(4)]);
}

#[test]
fn nothing_is_taken_over_to_stay_in_a_shutdown() {
    let mut bench = bench();
    bench.does(Input::Shutdown { within: None });
    let input = adopted(&bench, 5, 2, AdoptedAs::Current);
    assert_eq!(bench.does(input), [close(5), terminate(5)]);
    bench.exit(Exit::Signal(15));
    assert!(bench.service.rest().is_some());
}
