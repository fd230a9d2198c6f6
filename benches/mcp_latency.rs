//! One call after another: how much a call takes directly, through a bare byte pump and through
//! `afresh mcp`.

use std::process::ExitCode;

use afresh_tests::TestEnv;
use afresh_tests::mcp::{Peer, Server, Way};
use afresh_tests::measure::{Report, Samples, bench, micros};

/// Turns of each side, and calls in a turn: noise hits all alike.
const TURNS: usize = 60;
const CALLS: usize = 50;

/// The first turns are for the engine of a server to warm up.
const FIRST_TURNS: usize = 10;

fn main() -> ExitCode {
    bench("mcp_latency: one call after another", run)
}

fn run(report: &mut Report) {
    for (size, bytes) in [("120 B", 20), ("64 KiB", 64 * 1024)] {
        let ratios = measure(report, size, &Server::least(), bytes);
        judge_by_pump(report, &format!("the least server, {size}"), &ratios);
    }
    match Server::bare_node() {
        Some(node) => {
            let ratios = measure(report, "120 B", &node, 20);
            judge_by_pump(report, node.name, &ratios);
        }
        None => report.note("SKIPPED  a bare loop on Node: no node on PATH"),
    }
    for server in Server::real(report) {
        let ratios = measure(report, "120 B", &server, 20);
        let what = format!("{}, median, x direct (the pump's: {:.2})", server.name, ratios.pump);
        report.target(&what, ratios.afresh, 1.10, "");
    }
}

/// Medians, in those of direct calls.
struct Ratios {
    pump: f64,
    afresh: f64,
}

/// Another process has to be woken on both ways: nothing in between is faster than the pump. Where a
/// server does nothing itself, that is all there is to compare with.
fn judge_by_pump(report: &mut Report, name: &str, ratios: &Ratios) {
    let added = (ratios.afresh - 1.0) / (ratios.pump - 1.0);
    report.target(&format!("{name}, added to the median, x the pump's"), added, 2.5, "");
}

fn measure(report: &Report, size: &str, server: &Server, bytes: usize) -> Ratios {
    let env = TestEnv::new();
    let arguments = format!(r#"{{"message":"{}"}}"#, "x".repeat(bytes));
    let ways = [Way::Direct, Way::Pump, Way::Afresh];
    let mut sides = ways.map(|way| (Peer::connect(&env, way, server), Samples::default()));
    for turn in 0..FIRST_TURNS + TURNS {
        for (peer, samples) in &mut sides {
            for _ in 0..CALLS {
                let line = peer.call_line("echo", &arguments);
                let took = peer.time(&line);
                if turn >= FIRST_TURNS {
                    samples.push(took);
                }
            }
        }
    }
    let [direct, pump, afresh] =
        sides.each_ref().map(|(_, samples)| samples.median().as_secs_f64());
    report.row(&format!("{}, {size}", server.name), &["median", "p99", "x direct", "calls"]);
    for (way, (_, samples)) in ways.iter().zip(&sides) {
        let columns = [
            micros(samples.median()),
            micros(samples.quantile(0.99)),
            format!("{:.2}", samples.median().as_secs_f64() / direct),
            samples.count().to_string(),
        ];
        report.row(way.name(), &columns.each_ref().map(String::as_str));
    }
    for (peer, _) in sides {
        peer.end();
    }
    env.assert_nothing_left();
    Ratios { pump: pump / direct, afresh: afresh / direct }
}
