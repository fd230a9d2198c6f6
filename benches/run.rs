//! What `afresh run` costs while an agent says 2,000 things a second: processor time and memory of supervisor,
//! warden and guardian. What the agent itself takes is not counted.

#![expect(clippy::disallowed_types, reason = "real processes run by the real clock")]

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use afresh_tests::measure::{Activity, Household, Memory, Report, bench};
use afresh_tests::{Running, TestEnv, afresh_binary, wait_for};

const RATE: u64 = 2_000;

/// Long enough for what is done every few seconds to be seen.
const WATCHED: Duration = Duration::from_secs(20);

/// Before and after it, so that neither start nor end is watched.
const SPARE: Duration = Duration::from_secs(8);

const PLAN: &str = "# Talk\n\n## Phase: One\n\nTalk.\n\n- Gate: true\n";

fn main() -> ExitCode {
    bench("run: an agent that says 2,000 things a second, for 20 s", run)
}

fn run(report: &mut Report) {
    report.row("", &["CPU", "switches/s", "RSS", "PSS of all"]);
    // Calls of a model that say little and use a tool each, and those that say some sentences.
    for (pieces, name) in
        [(28, "37 lines a call, 54 calls/s"), (200, "209 lines a call, 10 calls/s")]
    {
        let seen = watch(pieces);
        let columns = [
            format!("{:.2} %", seen.cpu_percent),
            format!("{:.0}", seen.switches),
            format!("{:.1} MB", seen.rss),
            format!("{:.1} MB", seen.pss),
        ];
        report.row(name, &columns.each_ref().map(String::as_str));
        report.target_least(&format!("{name}: lines a second"), seen.rate, RATE as f64 * 0.98, "");
        report.target(&format!("{name}: CPU, of one core"), seen.cpu_percent, 1.0, " %");
        report.target(&format!("{name}: RSS of the supervisor"), seen.rss, 30.0, " MB");
    }
}

/// What was seen of supervisor, warden and guardian together; RSS is that of the supervisor at its highest.
struct Seen {
    rate: f64,
    cpu_percent: f64,
    switches: f64,
    rss: f64,
    pss: f64,
}

fn watch(pieces: usize) -> Seen {
    let env = TestEnv::new();
    env.write("PLAN.md", PLAN);
    let agent = afresh_binary().with_file_name("agent-stream");
    let seconds = (WATCHED + SPARE).as_secs();
    let agent = format!("{} {RATE} {seconds} {pieces}", agent.display());
    let flags = ["run", "--no-git", "--agent", "claude", "--tool-call-threshold", "0"];
    let mut command: Command = env.afresh(&flags);
    command.args(["--agent-command", &agent]);
    let mut afresh = Running::start(command);
    let log = env.work().join(".afresh/runs/1/session-1.jsonl");
    let said = || std::fs::read(&log).map_or(0, |log| log.iter().filter(|b| **b == b'\n').count());
    wait_for("the agent speaks", || said() > 100);
    let household = Household::of(afresh.pid()).expect("it runs");
    let (before, start) = (Activity::of(household.own()), Instant::now());
    let mut peak = 0;
    while start.elapsed() < WATCHED {
        std::thread::sleep(Duration::from_millis(500));
        peak = peak.max(Memory::of(household.supervisor).rss);
    }
    let (activity, took) =
        (Activity::of(household.own()).since(before), start.elapsed().as_secs_f64());
    let whole: u64 = household.own().map(|pid| Memory::of(pid).pss).sum();
    assert!(afresh.wait().success(), "{}", afresh.stderr());
    env.assert_nothing_left();
    let rate = std::fs::read_to_string(env.work().join("lines-per-second"));
    Seen {
        rate: rate.ok().and_then(|rate| rate.parse().ok()).expect("the agent tells"),
        cpu_percent: activity.nanoseconds as f64 / 1e9 / took * 100.0,
        switches: activity.switches as f64 / took,
        rss: peak as f64 / 1024.0,
        pss: whole as f64 / 1024.0,
    }
}
