//! The pause that a client sees when its server is restarted or lost.
//!
//! The client calls all the time. In a swap, one instance serves until the next one is ready: what
//! counts is the longest wait for an answer, against the longest one in as much time without a swap.
//! After a crash it is the time from the kill to the first answer of another instance, which without a
//! spare cannot be less than the server's own start.

#![expect(clippy::disallowed_types, reason = "real processes run by the real clock")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use afresh_tests::TestEnv;
use afresh_tests::mcp::{Peer, Server, Way};
use afresh_tests::measure::{Report, Samples, bench, millis};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How often a server is lost, and how often one is swapped that starts at once.
const CRASHES: usize = 40;
const SWAPS: usize = 50;

/// The same for real servers, which start slowly.
const CRASHES_OF_REAL: usize = 15;
const SWAPS_OF_REAL: usize = 20;

/// A server that takes this long to start is worth a spare.
const SLOW_START: Duration = Duration::from_millis(500);
const CRASHES_OF_SLOW: usize = 12;

/// What a start or a restart leaves to do is over after this, and burdens nobody else.
const SETTLE: Duration = Duration::from_millis(20);

/// Between one answer and the next call.
const PACE: Duration = Duration::from_micros(300);

fn main() -> ExitCode {
    bench("mcp_restart: the pause of a client whose server is restarted or lost", run)
}

fn run(report: &mut Report) {
    report.row("", &["median", "p90", "slowest"]);
    let sdk = Server::sdk();
    if sdk.is_none() {
        report
            .note("SKIPPED  a real server on Node: run `tests/interop/install`, which fetches it");
    }
    swap(report, &Server::least(), SWAPS);
    if let Some(sdk) = &sdk {
        swap(report, sdk, SWAPS_OF_REAL);
    }
    crash_with_spare(report);
    crash(report, &Server::least(), CRASHES);
    if let Some(sdk) = &sdk {
        crash(report, sdk, CRASHES_OF_REAL);
    }
}

fn row(report: &Report, name: &str, samples: &Samples) {
    let [median, p90, slowest] = [0.5, 0.9, 1.0].map(|part| millis(samples.quantile(part)));
    report.row(name, &[&median, &p90, &slowest]);
}

/// A restart that was asked for, with the new instance ready before the old one goes.
fn swap(report: &mut Report, server: &Server, rounds: usize) {
    let env = TestEnv::new();
    let mut peer = Peer::connect(&env, Way::Afresh, server);
    let mut quiet = Samples::default();
    let mut swapped = Samples::default();
    for _ in 0..rounds {
        let before = peer.server_pid().expect("it serves");
        let start = Instant::now();
        kill(Pid::from_raw(peer.pid()), Signal::SIGUSR1).expect("it lives");
        let mut swapped_at = None;
        swapped.push(longest_wait(&mut peer, |pid| {
            // The old one has to go yet.
            let at = (pid != before).then(|| *swapped_at.get_or_insert_with(Instant::now));
            at.is_some_and(|at| at.elapsed() > SETTLE)
        }));
        let took = start.elapsed();
        let start = Instant::now();
        quiet.push(longest_wait(&mut peer, |_| start.elapsed() > took));
    }
    peer.end();
    env.assert_nothing_left();
    let name = server.name;
    row(report, &format!("{name}, no restart"), &quiet);
    row(report, &format!("{name}, swap"), &swapped);
    let pause = swapped.median_added_to(&quiet);
    report.target(
        &format!("{name}, the longest wait in a swap, more than without"),
        pause,
        5.0,
        " ms",
    );
}

/// Calls until it is told to stop, and returns the longest time that an answer took.
fn longest_wait(peer: &mut Peer, mut is_over: impl FnMut(i32) -> bool) -> Duration {
    let mut longest = Duration::ZERO;
    loop {
        let start = Instant::now();
        let pid = peer.server_pid().expect("no call is lost in a swap");
        longest = longest.max(start.elapsed());
        if is_over(pid) {
            return longest;
        }
        std::thread::sleep(PACE);
    }
}

fn crash_with_spare(report: &mut Report) {
    let env = TestEnv::new();
    let server = Server::slow(SLOW_START);
    let mut peer = Peer::connect_with(&env, Way::Afresh, &["--spare"], &server);
    let mut pauses = Samples::default();
    for _ in 0..CRASHES_OF_SLOW {
        // The next spare has to come up first.
        std::thread::sleep(SLOW_START + SLOW_START / 2);
        pauses.push(pause(&mut peer));
    }
    peer.end();
    env.assert_nothing_left();
    row(report, "start of 500 ms, SIGKILL, --spare", &pauses);
    let pause = pauses.median().as_secs_f64() * 1e3;
    report.target("the pause after a crash with a spare", pause, 20.0, " ms");
}

fn crash(report: &mut Report, server: &Server, rounds: usize) {
    let env = TestEnv::new();
    let mut peer = Peer::connect(&env, Way::Afresh, server);
    let mut own = Samples::default();
    let mut pauses = Samples::default();
    for _ in 0..rounds {
        std::thread::sleep(SETTLE);
        own.push(start(&env, server));
        std::thread::sleep(SETTLE);
        pauses.push(pause(&mut peer));
    }
    peer.end();
    env.assert_nothing_left();
    let name = server.name;
    row(report, &format!("{name}, its own start"), &own);
    row(report, &format!("{name}, SIGKILL"), &pauses);
    let added = pauses.median_added_to(&own);
    report.target(
        &format!("{name}, the pause after a crash, more than its start"),
        added,
        10.0,
        " ms",
    );
}

/// From its start to its first answer to a call.
fn start(env: &TestEnv, server: &Server) -> Duration {
    let start = Instant::now();
    let mut peer = Peer::connect(env, Way::Direct, server);
    peer.server_pid().expect("it serves");
    let took = start.elapsed();
    peer.end();
    took
}

/// The time from a kill until another instance answers.
fn pause(peer: &mut Peer) -> Duration {
    let before = peer.server_pid().expect("it serves");
    let start = Instant::now();
    kill(Pid::from_raw(before), Signal::SIGKILL).expect("it lives");
    // A call that is lost with the server is answered too, by us.
    while peer.server_pid().is_none_or(|now| now == before) {}
    start.elapsed()
}
