//! How long anything outlives a SIGKILL of afresh, whatever a service's children have done to get
//! away.

#![expect(clippy::disallowed_types, reason = "real processes run by the real clock")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use afresh_tests::measure::{Report, Samples, bench};
use afresh_tests::{TestEnv, wait_for};
use nix::sys::signal::Signal;

const ROUNDS: usize = 20;

fn main() -> ExitCode {
    bench("orphans: from SIGKILL of afresh to the last of its descendants gone", run)
}

fn run(report: &mut Report) {
    report.row("children", &["median", "slowest"]);
    let mut slowest = Duration::ZERO;
    let all: [&[&str]; 5] = [
        &["plain"],
        &["ignores-term"],
        &["setsid"],
        &["double-fork"],
        &["plain", "ignores-term", "setsid", "double-fork", "zombie"],
    ];
    for shapes in all {
        let mut samples = Samples::default();
        for _ in 0..ROUNDS {
            samples.push(outlived(shapes));
        }
        let longest = samples.quantile(1.0);
        slowest = slowest.max(longest);
        let shown = [samples.median(), longest].map(|time| format!("{} ms", time.as_millis()));
        report.row(&shapes.join(", "), &shown.each_ref().map(String::as_str));
    }
    report.target("the slowest of all", slowest.as_secs_f64() * 1000.0, 1000.0, " ms");
}

/// The time from the SIGKILL to the last process gone.
fn outlived(shapes: &[&str]) -> Duration {
    let env = TestEnv::new();
    let hostile = env!("CARGO_BIN_EXE_hostile");
    let mut afresh = env.start(&[&["keep", "--", hostile, "family"], shapes].concat());
    afresh.wait_stdout("ready", 1);
    let begun = Instant::now();
    afresh.signal(Signal::SIGKILL);
    wait_for("all are gone", || env.alive().is_empty());
    let taken = begun.elapsed();
    afresh.wait();
    taken
}
