//! Storms: signals at random to everything, and deaths at the worst moment.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use afresh_tests::process::Process;
use afresh_tests::{Running, TestEnv, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{AT_ONCE, keep};

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

const FAMILY: [&str; 4] = ["family", "plain", "setsid", "double-fork"];

fn storm_flags() -> Vec<&'static str> {
    [&AT_ONCE[..], &["--copies", "6", "--throttle", "0s", "--stop-timeout", "100ms"]].concat()
}

#[test]
fn two_thousand_random_signals_leave_no_orphan_no_zombie_and_no_torn_line() {
    // W12
    let env = TestEnv::new();
    let mut random = Random(u64::from(std::process::id()));
    let mut afresh = keep(&env, &storm_flags(), &FAMILY);
    let (mut sent, mut supervisors) = (0, 1);
    while sent < 2_000 {
        let all = env.alive();
        if !all.iter().any(|process| process.pid == afresh.pid()) {
            afresh.wait();
            env.assert_nothing_left();
            afresh = keep(&env, &storm_flags(), &FAMILY);
            supervisors += 1;
            afresh.wait_stdout("ready", 1);
            continue;
        }
        let services: Vec<_> = all.into_iter().filter(|process| !process.is_ours()).collect();
        // Several at once, so that deaths meet deaths.
        for _ in 0..=random.below(4) {
            sent += 1;
            match random.below(20) {
                0 => afresh.signal(*random.pick(&FATAL)),
                1 => afresh.signal(Signal::SIGUSR1),
                _ if services.is_empty() => {}
                _ => random.pick(&services).signal(*random.pick(&ROUGH)),
            }
        }
    }
    let instances = end(&env, afresh, Gaps::None);
    assert!(instances > 100, "there was a storm: {instances} instances");
    assert!(supervisors > 3, "the supervisor died too: {supervisors}");
}

#[test]
fn a_storm_over_guardians_and_wardens_leaves_nothing_stuck() {
    let env = TestEnv::new();
    let mut random = Random(u64::from(std::process::id()));
    let mut afresh = keep(&env, &storm_flags(), &FAMILY);
    afresh.wait_stdout("ready", 1);
    let mut bursts = 0;
    while bursts < 300 {
        let mut all = env.alive();
        all.retain(|process| process.pid != afresh.pid());
        if all.is_empty() {
            // For a moment there is nobody but the supervisor.
            assert_eq!(afresh.try_wait(), None, "{}", afresh.stderr());
            continue;
        }
        bursts += 1;
        for _ in 0..=random.below(4) {
            random.pick(&all).signal(*random.pick(&ROUGH));
        }
    }
    for process in env.alive() {
        process.signal(Signal::SIGCONT);
    }
    // Whatever happened: all six come up once more.
    let ready = afresh.stdout().matches("ready").count();
    afresh.signal(Signal::SIGUSR1);
    afresh.wait_stdout("ready", ready + 6);
    assert!(end(&env, afresh, Gaps::OfLostGuardians) > 12);
}

const FATAL: [Signal; 4] = [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// None of these is a user's stop.
const ROUGH: [Signal; 6] = [
    Signal::SIGKILL,
    Signal::SIGKILL,
    Signal::SIGSEGV,
    Signal::SIGHUP,
    Signal::SIGSTOP,
    Signal::SIGCONT,
];

/// Which records may be missing.
#[derive(Clone, Copy, PartialEq)]
enum Gaps {
    None,
    /// An instance that was lost with its guardian before it was reported was never recorded.
    OfLostGuardians,
}

/// Ends the storm. Returns how many instances there were.
fn end(env: &TestEnv, mut afresh: Running, gaps: Gaps) -> usize {
    for process in env.alive().into_iter().filter(Process::is_ours) {
        process.signal(Signal::SIGCONT);
        assert_eq!(zombies_that_stay(process.pid), 0, "{process:?}");
    }
    // It may have been killed by the last of the signals.
    afresh.signal(Signal::SIGTERM);
    afresh.wait();
    env.assert_nothing_left();
    assert_no_record_is_missing(&env.records(), gaps)
}

/// Zombies that are still there after a while: one that is being reaped right now is none.
fn zombies_that_stay(parent: i32) -> usize {
    let mut zombies = 0;
    wait_for("the zombies are reaped", || {
        zombies = afresh_tests::process::zombies_of(parent);
        zombies == 0
    });
    zombies
}

/// Within one life of the supervisor, each service's instances are numbered 1, 2, 3…, and the trail
/// itself knows of no loss. Returns how many instances there were.
fn assert_no_record_is_missing(records: &[Value], gaps: Gaps) -> usize {
    let mut generations: BTreeMap<String, u64> = BTreeMap::new();
    let mut started = 0;
    for record in records {
        let props = &record["props"];
        match props["event_type"].as_str().expect("a type") {
            "trail_records_lost" => panic!("{record}"),
            "supervisor_started" => generations.clear(),
            // One that is killed before it has become its program never started: that is on record too.
            "server_exited" | "server_crashed" | "server_spawn_failed"
                if props["pid"].is_null() =>
            {
                let service = props["service"].as_str().expect("a service").to_owned();
                *generations.entry(service).or_default() += 1;
            }
            "server_started" => {
                let service = props["service"].as_str().expect("a service").to_owned();
                let last = generations.entry(service).or_default();
                let generation = props["generation"].as_u64().expect("a number");
                let follows = generation == *last + 1;
                let later = generation > *last && gaps == Gaps::OfLostGuardians;
                assert!(follows || later, "after {last}: {record}");
                *last = generation;
                started += 1;
            }
            _ => {}
        }
    }
    started
}

#[test]
fn whatever_was_acknowledged_is_on_disk_though_afresh_is_killed_at_any_moment() {
    // R2 R4 R5
    let env = TestEnv::new();
    let mut random = Random(u64::from(std::process::id()));
    let mut acknowledged_in_all = 0;
    for round in 0..200 {
        let mut afresh = keep(&env, &["--throttle", "0s"], &["restarts"]);
        let wanted = random.below(4);
        afresh.wait_stderr("Server restart requested", wanted);
        spin(Duration::from_micros(random.below(3_000) as u64));
        afresh.signal(Signal::SIGKILL);
        afresh.wait();
        env.assert_nothing_left();
        acknowledged_in_all += assert_on_disk(&env, &afresh, round);
        fs::remove_file(env.audit_file()).ok();
        fs::remove_file(env.work().join(".afresh/restart_marker.json")).ok();
    }
    assert!(acknowledged_in_all > 100, "{acknowledged_in_all}");
}

/// What the log says, the files have. Returns how many restarts were acknowledged.
fn assert_on_disk(env: &TestEnv, afresh: &Running, round: usize) -> usize {
    // The log is read by a thread: wait until it has come to the end.
    let mut log = String::new();
    wait_for("the log is read to its end", || {
        let now = afresh.stderr();
        std::mem::replace(&mut log, now) == afresh.stderr()
    });
    let requested = log.matches("Server restart requested").count();
    let on_disk = env.events("server_restart_requested").len();
    assert!(on_disk >= requested, "round {round}: {on_disk} of {requested}\n{log}");
    let marked = env.events("restart_marker_written");
    assert!(marked.len() >= requested, "round {round}: {} of {requested}\n{log}", marked.len());
    if requested > 0 {
        let path = env.work().join(".afresh/restart_marker.json");
        let text = fs::read_to_string(path).expect("the marker is there");
        let marker: Value = serde_json::from_str(&text).expect("the marker is whole");
        let seconds = |value: &Value| value["timestamp"].as_f64().expect("seconds");
        let acknowledged = &marked[requested - 1]["props"]["content"];
        assert!(seconds(&marker) >= seconds(acknowledged), "round {round}: {marker}");
    }
    requested
}

/// A random moment, not a wait for anything.
pub(crate) fn spin(duration: Duration) {
    let until = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map(Duration::from);
    let until = until.expect("there is a clock") + duration;
    while nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .map(Duration::from)
        .is_ok_and(|now| now < until)
    {
        std::hint::spin_loop();
    }
}
