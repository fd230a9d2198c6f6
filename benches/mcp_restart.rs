//! The pause that a client sees when its server is killed, against the server's own start.
//!
//! The client calls all the time; the pause is the longest wait between the kill and the first answer
//! of the next instance. A server that is started anew cannot be faster than its own start.

#![expect(clippy::disallowed_types, reason = "real processes run by the real clock")]

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use afresh_tests::TestEnv;
use afresh_tests::mcp::{Peer, Way, echo_server, node_server};
use afresh_tests::measure::{Report, Samples, bench, millis};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const ROUNDS: usize = 40;

/// What a start or a restart leaves to do is over after this, and burdens nobody else.
const SETTLE: Duration = Duration::from_millis(20);

fn main() -> ExitCode {
    bench("mcp_restart: the pause of a client whose server is killed", run)
}

/// How a server is lost, and what may be added to its own start.
struct Mode {
    name: &'static str,
    lose: fn(&mut Peer),
    added_max: Duration,
}

const MODES: [Mode; 1] =
    [Mode { name: "SIGKILL", lose: kill_server, added_max: Duration::from_millis(10) }];

fn run(report: &mut Report) {
    report.row("", &["median", "p90", "added"]);
    measure(report, "the least server", &echo_server(), ROUNDS);
    match node_server() {
        Some(node) => measure(report, "Node", &node, ROUNDS / 2),
        None => report.note("no node on PATH: a server in JavaScript is not measured"),
    }
}

fn measure(report: &mut Report, name: &str, server: &[OsString], rounds: usize) {
    let env = TestEnv::new();
    let mut peers = MODES.map(|_| Peer::connect(&env, Way::Afresh, server));
    let mut own = Samples::default();
    let mut pauses = MODES.map(|_| Samples::default());
    for _ in 0..rounds {
        std::thread::sleep(SETTLE);
        own.push(start(&env, server));
        for ((mode, peer), pauses) in MODES.iter().zip(&mut peers).zip(&mut pauses) {
            std::thread::sleep(SETTLE);
            pauses.push(pause(peer, mode.lose));
        }
    }
    let own_median = own.median();
    report.row(
        &format!("{name}, its own start"),
        &[&millis(own_median), &millis(own.quantile(0.9)), ""],
    );
    for (mode, pauses) in MODES.iter().zip(&pauses) {
        let added = (pauses.median().as_secs_f64() - own_median.as_secs_f64()) * 1e3;
        report.row(
            &format!("{name}, {}", mode.name),
            &[&millis(pauses.median()), &millis(pauses.quantile(0.9)), &format!("{added:.2} ms")],
        );
        let most = mode.added_max.as_secs_f64() * 1e3;
        report.target(&format!("added to the start of {name}, {}", mode.name), added, most, " ms");
    }
    for peer in peers {
        peer.end();
    }
    env.assert_nothing_left();
}

/// From its start to its first answer.
fn start(env: &TestEnv, server: &[OsString]) -> Duration {
    let start = Instant::now();
    let mut peer = Peer::start(env, Way::Direct, server);
    peer.initialize();
    let took = start.elapsed();
    peer.end();
    took
}

/// The time until another instance answers.
fn pause(peer: &mut Peer, lose: fn(&mut Peer)) -> Duration {
    let before = peer.server_pid().expect("it serves");
    let start = Instant::now();
    lose(peer);
    // A call that is lost with the server is answered too, by us.
    while peer.server_pid().is_none_or(|now| now == before) {}
    start.elapsed()
}

fn kill_server(peer: &mut Peer) {
    let pid = peer.server_pid().expect("it serves");
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it lives");
}
