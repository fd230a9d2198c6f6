//! A result of 10 MiB, directly and through `afresh mcp`.

use std::ffi::OsString;
use std::process::ExitCode;

use afresh_tests::TestEnv;
use afresh_tests::mcp::{Peer, Way, echo_server, node_server};
use afresh_tests::measure::{Report, Samples, bench, millis};

const BYTES: usize = 10 * 1024 * 1024;
const ROUNDS: usize = 30;

fn main() -> ExitCode {
    bench("mcp_large: a result of 10 MiB", run)
}

fn run(report: &mut Report) {
    report.row("", &["median", "p90", "x direct"]);
    // It does nothing but write: what is seen is the time of the pipes alone.
    let bare = measure(report, "the least server", &echo_server());
    report.note(&format!("a server that does nothing but write: {bare:.2} x direct"));
    let Some(node) = node_server() else {
        return report.note("no node on PATH: a server in JavaScript is not measured");
    };
    let ratio = measure(report, "Node", &node);
    report.target("a result of 10 MiB of a Node server, x direct", ratio, 1.2, "");
}

/// How many times longer it takes through afresh.
fn measure(report: &Report, name: &str, server: &[OsString]) -> f64 {
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
            &format!("{name}, {}", way.name()),
            &[&millis(samples.median()), &millis(samples.quantile(0.9)), &format!("{ratio:.2}")],
        );
    }
    for (peer, _) in sides {
        peer.end();
    }
    env.assert_nothing_left();
    ratio
}
