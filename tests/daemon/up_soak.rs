//! Thousands of restarts of many services leave nothing behind in the supervisor and its warden.

use std::collections::BTreeSet;

use afresh_tests::measure::{Household, Memory};
use afresh_tests::{TestEnv, process, wait_for};
use nix::sys::signal::Signal;

use crate::up::{define, send, service};
use crate::{is_long, stop};

const SERVICES: usize = 50;

/// What a process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    descriptors: usize,
    /// Anonymous memory, in kB.
    memory: u64,
}

fn held(pid: i32) -> Held {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives").count();
    Held { descriptors, memory: Memory::of(pid).anonymous }
}

#[test]
fn thousands_of_kills_leave_descriptors_and_memory_as_they_were() {
    // Each instance prints 10 kB and 256 KiB are remembered of each service: after 40 instances of each, none
    // of the lines is of the first, and what holds them does not grow any more either.
    let (kills_before, kills_in_all) = if is_long() { (30_000, 60_000) } else { (2_000, 4_000) };
    let env = TestEnv::new();
    let often = "max_restarts = 0\ncrash_loop_count = 0\nstable_after = \"0s\"\n";
    let named = |number| service(&format!("s{number}"), &["says-much"], often);
    let services: Vec<String> = (0..SERVICES).map(named).collect();
    define(&env, &services);
    let mut afresh = env.start(&["up"]);
    afresh.wait_stdout("ready", SERVICES);
    let mut killed = BTreeSet::new();
    let all = |killed: &BTreeSet<i32>| {
        let mut household = None;
        wait_for("all services run", || {
            household = Household::of(afresh.pid());
            let services = household.iter().flat_map(|household| &household.services);
            services.filter(|pid| !killed.contains(pid)).count() == SERVICES
        });
        household.expect("just seen")
    };
    let mut early = None;
    for kills in (0..=kills_in_all).step_by(SERVICES) {
        let household = all(&killed);
        if kills == kills_before {
            early = Some([held(household.supervisor), held(household.warden)]);
        }
        if kills == kills_in_all {
            break;
        }
        killed = household.services.iter().copied().collect();
        household.services.iter().for_each(|pid| send(*pid, Signal::SIGKILL));
    }
    wait_for("all starts are on record", || {
        env.events("server_started").len() == kills_in_all + SERVICES
    });
    let household = all(&killed);
    let early = early.expect("there were so many");
    // What ends a moment later, such as a connection of the last guardian, is waited for.
    wait_for(&format!("no more descriptors than {early:?}"), || {
        let late = [held(household.supervisor), held(household.warden)];
        early.iter().zip(late).all(|(early, late)| late.descriptors <= early.descriptors)
    });
    let late = [held(household.supervisor), held(household.warden)];
    for (early, late) in early.into_iter().zip(late) {
        assert!(late.memory <= early.memory + 1024, "{early:?}, then {late:?}");
    }
    for pid in household.own() {
        wait_for("no zombies", || process::zombies_of(pid) == 0);
    }
    stop(&env, &mut afresh);
}
