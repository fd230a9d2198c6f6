//! What afresh does while nothing happens: nothing, with 100 services too.

use std::process::ExitCode;
use std::time::Duration;

use afresh_tests::TestEnv;
use afresh_tests::measure::{Activity, Household, Report, bench};

const SERVICES: usize = 100;

/// Long enough for a poll of every ten seconds to be seen.
const WATCHED: Duration = Duration::from_secs(20);

/// The kernel may run a sleeping thread once for its own ends, such as to freeze it or to deal with
/// its memory. One timer of ours, even one of every ten seconds in one of the processes, is more: each
/// wakeup is a switch on to a CPU and off again, and counts when it sleeps again.
const SWITCHES_MAX: f64 = 2.0;

fn main() -> ExitCode {
    bench("idle: 20 s with 100 services at rest", run)
}

fn run(report: &mut Report) {
    let env = TestEnv::new();
    let mut afresh = env.idle_services(SERVICES);
    let household = Household::of(afresh.pid()).expect("all services run");
    let look = || {
        [
            Activity::of([household.supervisor].into_iter()),
            Activity::of([household.warden].into_iter()),
            Activity::of(household.guardians.iter().copied()),
            Activity::of(household.own()),
        ]
    };
    let before = look();
    assert!(
        before.iter().all(|activity| activity.switches > 0),
        "the kernel counts what they did to start"
    );
    std::thread::sleep(WATCHED);
    let after = look();
    afresh.end();
    env.assert_nothing_left();

    report.row("", &["switches", "CPU ticks", "CPU us"]);
    let names = ["supervisor", "warden", "100 guardians", "together"];
    let mut together = Activity::default();
    for ((name, before), after) in names.into_iter().zip(before).zip(after) {
        together = after.since(before);
        let columns = [together.switches, together.ticks, together.nanoseconds / 1000];
        let columns = columns.map(|number| number.to_string());
        report.row(name, &columns.each_ref().map(String::as_str));
    }
    let switches = together.switches as f64;
    report.target("context switches in 20 s", switches, SWITCHES_MAX, "");
    report.target("clock ticks in 20 s", together.ticks as f64, 0.0, "");
}
