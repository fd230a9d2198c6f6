//! A result of 10 MiB, directly and through `afresh mcp`.

use std::process::ExitCode;

use afresh_tests::TestEnv;
use afresh_tests::mcp::{Peer, Server, Way};
use afresh_tests::measure::{Report, Samples, bench, millis};

const BYTES: usize = 10 * 1024 * 1024;
const ROUNDS: usize = 30;

fn main() -> ExitCode {
    bench("mcp_large: a result of 10 MiB", run)
}

fn run(report: &mut Report) {
    report.row("", &["median", "p90", "x direct"]);
    // It does nothing but write: what is seen is the time of the pipes alone.
    measure(report, &Server::least());
    match Server::bare_node() {
        Some(node) => {
            measure(report, &node);
        }
        None => report.note("SKIPPED  a bare loop on Node: no node on PATH"),
    }
    // server-everything has no large result, and takes no message of 10 MiB that it could give back.
    let Some(sdk) = Server::sdk() else {
        return report
            .note("SKIPPED  a real server on Node: run `tests/interop/install`, which fetches it");
    };
    let ratio = measure(report, &sdk);
    report.target(&format!("{}, a result of 10 MiB, x direct", sdk.name), ratio, 1.2, "");
}

/// How many times longer it takes through afresh.
fn measure(report: &Report, server: &Server) -> f64 {
    let env = TestEnv::new();
    let ways = [Way::Direct, Way::Pump, Way::Afresh];
    let mut sides = ways.map(|way| (Peer::connect(&env, way, server), Samples::default()));
    for round in 0..=ROUNDS {
        for (peer, samples) in &mut sides {
            let line = peer.call_line("big", &format!(r#"{{"bytes":{BYTES}}}"#));
            let took = peer.time(&line);
            // The first round is to warm up.
            if round > 0 {
                samples.push(took);
            }
        }
    }
    let direct = sides[0].1.median().as_secs_f64();
    let mut ratio = 0.0;
    for (way, (_, samples)) in ways.iter().zip(&sides) {
        ratio = samples.median().as_secs_f64() / direct;
        report.row(
            &format!("{}, {}", server.name, way.name()),
            &[&millis(samples.median()), &millis(samples.quantile(0.9)), &format!("{ratio:.2}")],
        );
    }
    for (peer, _) in sides {
        peer.end();
    }
    env.assert_nothing_left();
    ratio
}
