//! Traps that other supervisors fell into, one test for each.

use std::fs;

use afresh_tests::{TestEnv, wait_for};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::Signal;

use crate::{AT_ONCE, HOSTILE, keep, stop};

#[test]
fn the_death_signal_hangs_on_a_thread_that_lasts() {
    // A parent-death signal fires when the *thread* that forked ends: guardians have just one.
    let env = TestEnv::new();
    let mut afresh = keep(&env, &[], &["idle"]);
    afresh.wait_stdout("ready", 1);
    for name in ["afresh-guardian", "afresh-warden"] {
        let process = env.alive().into_iter().find(|p| p.name == name).expect(name);
        let threads = fs::read_dir(format!("/proc/{}/task", process.pid)).expect("it lives");
        assert_eq!(threads.count(), 1, "{name}");
    }
    stop(&env, &mut afresh);
}

#[test]
fn a_grandchild_in_the_group_does_not_delay_the_exit() {
    // Waiting for the group under a subreaper takes as long as its last member.
    let env = TestEnv::new();
    let mut afresh = keep(&env, &AT_ONCE, &["leaves", "1", "plain"]);
    afresh.wait_stderr("started", 4);
    stop(&env, &mut afresh);
}

#[test]
fn a_grandchild_that_holds_stdout_does_not_delay_the_exit() {
    // Waiting for the end of the pipe waits for whoever holds it.
    let env = TestEnv::new();
    let mut afresh = keep(&env, &AT_ONCE, &["leaves", "1", "setsid", "double-fork"]);
    afresh.wait_stderr("started", 4);
    stop(&env, &mut afresh);
}

#[test]
fn zombies_do_not_count_as_alive() {
    let env = TestEnv::new();
    let mut afresh = keep(&env, &["--stop-timeout", "60s"], &["family", "zombie"]);
    afresh.wait_stdout("ready", 1);
    // Would take the whole minute if the zombie were waited for.
    afresh.signal(Signal::SIGTERM);
    assert_eq!(afresh.wait().code(), Some(0));
    assert!(!afresh.stderr().contains("SIGKILL"), "{}", afresh.stderr());
    env.assert_nothing_left();
}

#[test]
fn the_end_of_the_leader_is_not_the_end_of_the_group() {
    let env = TestEnv::new();
    let mut afresh = keep(&env, &["--stop-timeout", "200ms"], &["ignores-term-family"]);
    afresh.wait_stdout("ready", 1);
    afresh.signal(Signal::SIGTERM);
    assert_eq!(afresh.wait().code(), Some(0));
    // The leader went at SIGTERM; the child that ignores it got its time, and then SIGKILL.
    assert!(afresh.stderr().contains("sending SIGKILL to the whole tree"), "{}", afresh.stderr());
    assert!(env.alive().is_empty(), "{:?}", env.alive());
}

#[test]
fn a_service_inherits_nothing_from_us() {
    // SIGPIPE ignored, signals blocked, a raised limit, open descriptors: none of it is theirs.
    let env = TestEnv::new();
    let done = env.run(&["keep", "--", HOSTILE, "inheritance"]);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("there is a limit");
    let cwd = env.work();
    let expected =
        format!("files {soft} {hard}\ndescriptors 3\ngroup true\ncwd {}\n", cwd.display());
    assert_eq!(done.stdout, expected);

    // Not a program in Rust, whose runtime ignores SIGPIPE by itself.
    let done = env.run(&["keep", "--", "grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]);
    for line in done.stdout.lines() {
        let mask = line.split_whitespace().last().expect("a mask");
        let mask = u64::from_str_radix(mask, 16).expect("hex");
        // Above 31 are the signals that the C library keeps to itself, as our own parent left them.
        assert_eq!(mask & 0x7fff_ffff, 0, "{line}");
    }
    assert_eq!(done.stdout.lines().count(), 2);
    env.assert_nothing_left();
}

#[test]
fn nothing_is_reaped_late_and_no_zombie_stays() {
    let env = TestEnv::new();
    let mut afresh = keep(&env, &AT_ONCE, &["exit-at", "200", "1"]);
    afresh.wait_stdout("arrived", 1);
    for process in env.alive().into_iter().filter(|process| process.is_ours()) {
        wait_for("no zombies", || afresh_tests::process::zombies_of(process.pid) == 0);
    }
    stop(&env, &mut afresh);
}

#[test]
fn a_death_by_a_real_time_signal_is_a_death() {
    // The usual wrappers of waitpid know no such signals, and lose their victims.
    let env = TestEnv::new();
    let script = "setsid sleep 1000 & kill -34 $$";
    let flags = ["keep", "--max-restarts", "2", "--delay", "1ms", "--", "sh", "-c", script];
    let done = env.run(&flags);
    assert_eq!(done.code, Some(128 + 34), "{}", done.stderr);
    assert_eq!(done.stderr.matches("ended by signal 34").count(), 3, "{}", done.stderr);
    assert_eq!(done.stderr.matches("left a process behind").count(), 3, "{}", done.stderr);
    env.assert_nothing_left();
}

#[test]
fn a_guardian_that_its_service_stops_goes_on() {
    let env = TestEnv::new();
    let script = "kill -STOP $PPID; exit 3";
    let done = env.run(&["keep", "--policy", "never", "--", "sh", "-c", script]);
    assert_eq!(done.code, Some(3), "{}", done.stderr);
    env.assert_nothing_left();
}
