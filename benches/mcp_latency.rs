//! One call after another: how much a call takes directly, through a bare byte pump and through
//! `afresh mcp`.

use std::ffi::OsString;
use std::process::ExitCode;

use afresh_tests::TestEnv;
use afresh_tests::mcp::{Peer, Way, echo_server, node_server};
use afresh_tests::measure::{Report, Samples, bench, micros};

/// Turns of each side, and calls in a turn: noise hits all alike.
const TURNS: usize = 60;
const CALLS: usize = 50;

fn main() -> ExitCode {
    bench("mcp_latency: one call after another", run)
}

fn run(report: &mut Report) {
    for (name, bytes) in [("120 B", 20), ("64 KiB", 64 * 1024)] {
        measure(report, name, &echo_server(), bytes);
    }
    match node_server() {
        Some(node) => measure(report, "120 B, Node", &node, 20),
        None => report.note("no node on PATH: a server in JavaScript is not measured"),
    }
}

fn measure(report: &mut Report, name: &str, server: &[OsString], bytes: usize) {
    let env = TestEnv::new();
    let arguments = format!(r#"{{"text":"{}"}}"#, "x".repeat(bytes));
    let ways = [Way::Direct, Way::Pump, Way::Afresh];
    let mut sides = ways.map(|way| (Peer::connect(&env, way, server), Samples::default()));
    for turn in 0..=TURNS {
        for (peer, samples) in &mut sides {
            for _ in 0..CALLS {
                let line = peer.call_line("echo", &arguments);
                let took = peer.time(&line);
                // The first turn is to warm up.
                if turn > 0 {
                    samples.push(took);
                }
            }
        }
    }
    let [direct, pump, afresh] =
        sides.each_ref().map(|(_, samples)| samples.median().as_secs_f64());
    report.row(name, &["median", "p99", "x direct", "calls"]);
    for (way, (_, samples)) in ways.iter().zip(&sides) {
        let columns = [
            micros(samples.median()),
            micros(samples.quantile(0.99)),
            format!("{:.2}", samples.median().as_secs_f64() / direct),
            samples.count().to_string(),
        ];
        report.row(way.name(), &columns.each_ref().map(String::as_str));
    }
    // Another process has to be woken on both ways: nothing in between is faster than the pump.
    let ratio = (afresh - direct) / (pump - direct);
    report.target(&format!("what is added at {name}, x the byte pump's"), ratio, 2.5, "");
    for (peer, _) in sides {
        peer.end();
    }
    env.assert_nothing_left();
}
