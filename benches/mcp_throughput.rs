//! Many calls at once: how long some thousand calls take with 64 of them in flight.

#![expect(clippy::disallowed_types, reason = "real processes run by the real clock")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use afresh_tests::TestEnv;
use afresh_tests::mcp::{Peer, Server, Way};
use afresh_tests::measure::{Report, Samples, bench, millis};

const IN_FLIGHT: usize = 64;
const CALLS: usize = 10_000;
const ROUNDS: usize = 9;

fn main() -> ExitCode {
    bench("mcp_throughput: 64 calls in flight", run)
}

fn run(report: &mut Report) {
    report.row("", &["10,000 calls", "calls/s", "x direct"]);
    // Three processes that each want a core of their own; with fewer cores, the third one's share is
    // taken from the others. The pump takes its share too, and is all that can be compared with.
    measure(report, &Server::least());
    match Server::bare_node() {
        Some(node) => {
            measure(report, &node);
        }
        None => report.note("SKIPPED  a bare loop on Node: no node on PATH"),
    }
    for server in Server::real(report) {
        let ratio = measure(report, &server);
        report.target_least(
            &format!("{}, calls per second, x direct", server.name),
            ratio,
            0.9,
            "",
        );
    }
}

/// How many times as many calls are answered through afresh.
fn measure(report: &Report, server: &Server) -> f64 {
    let env = TestEnv::new();
    let ways = [Way::Direct, Way::Pump, Way::Afresh];
    let mut sides = ways.map(|way| (Peer::connect(&env, way, server), Samples::default()));
    for round in 0..=ROUNDS {
        for (peer, samples) in &mut sides {
            let took = flood(peer);
            // The first round is to warm up.
            if round > 0 {
                samples.push(took);
            }
        }
    }
    let direct = sides[0].1.median().as_secs_f64();
    let mut ratio = 0.0;
    for (way, (_, samples)) in ways.iter().zip(&sides) {
        let took = samples.median().as_secs_f64();
        ratio = direct / took;
        report.row(
            &format!("{}, {}", server.name, way.name()),
            &[
                &millis(samples.median()),
                &format!("{:.0}", CALLS as f64 / took),
                &format!("{ratio:.2}"),
            ],
        );
    }
    for (peer, _) in sides {
        peer.end();
    }
    env.assert_nothing_left();
    ratio
}

/// Sends as many again as were answered, in one write.
fn flood(peer: &mut Peer) -> Duration {
    let arguments = r#"{"message":"xxxxxxxxxxxxxxxxxxxx"}"#;
    let lines: Vec<Vec<u8>> = (0..CALLS).map(|_| peer.call_line("echo", arguments)).collect();
    let start = Instant::now();
    let (mut sent, mut answered) = (0, 0);
    while answered < CALLS {
        let more = (answered + IN_FLIGHT).min(CALLS);
        peer.send(&lines[sent..more].concat());
        sent = more;
        loop {
            peer.skip();
            answered += 1;
            if !peer.has_more() {
                break;
            }
        }
    }
    start.elapsed()
}
