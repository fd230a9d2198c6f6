//! From the start to the answer to `initialize`, directly and through `afresh mcp`.

#![expect(clippy::disallowed_types, reason = "real processes run by the real clock")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use afresh_tests::TestEnv;
use afresh_tests::mcp::{Peer, Server, Way};
use afresh_tests::measure::{Report, Samples, bench, millis};

const ROUNDS: usize = 40;

fn main() -> ExitCode {
    bench("mcp_start: start to the answer to initialize", run)
}

fn run(report: &mut Report) {
    report.row("", &["median", "p90"]);
    measure(report, &Server::least(), ROUNDS);
    for server in Server::real(report) {
        measure(report, &server, ROUNDS / 2);
    }
}

fn measure(report: &mut Report, server: &Server, rounds: usize) {
    let env = TestEnv::new();
    let mut sides = [Way::Direct, Way::Afresh].map(|way| (way, Samples::default()));
    for _ in 0..rounds {
        for (way, samples) in &mut sides {
            samples.push(start(&env, *way, server));
        }
    }
    for (way, samples) in &sides {
        report.row(
            &format!("{}, {}", server.name, way.name()),
            &[&millis(samples.median()), &millis(samples.quantile(0.9))],
        );
    }
    let [(_, direct), (_, afresh)] = &sides;
    let added = afresh.median_added_to(direct);
    report.target(&format!("{}, what a start takes more", server.name), added, 10.0, " ms");
    env.assert_nothing_left();
}

fn start(env: &TestEnv, way: Way, server: &Server) -> Duration {
    let start = Instant::now();
    let mut peer = Peer::start(env, way, server);
    peer.initialize();
    let took = start.elapsed();
    peer.end();
    took
}
