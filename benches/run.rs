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
    let env = TestEnv::new();
    env.write("PLAN.md", PLAN);
    let agent = afresh_binary().with_file_name("agent-stream");
    let seconds = (WATCHED + SPARE).as_secs();
    let agent = format!("{} {RATE} {seconds}", agent.display());
    let flags = ["run", "--no-git", "--agent", "claude", "--tool-call-threshold", "0"];
    let mut command: Command = env.afresh(&flags);
    command.args(["--agent-command", &agent]);
    let mut afresh = Running::start(command);
    let log = env.work().join(".afresh/runs/1/session-1.jsonl");
    let said = || std::fs::read(&log).map_or(0, |log| log.iter().filter(|b| **b == b'\n').count());
    wait_for("the agent speaks", || said() > 1_000);
    let household = Household::of(afresh.pid()).expect("it runs");
    let look = || {
        [
            Activity::of([household.supervisor].into_iter()),
            Activity::of([household.warden].into_iter()),
            Activity::of(household.guardians.iter().copied()),
            Activity::of(household.own()),
        ]
    };
    let (before, start) = (look(), Instant::now());
    let mut peak = 0;
    while start.elapsed() < WATCHED {
        std::thread::sleep(Duration::from_millis(500));
        peak = peak.max(Memory::of(household.supervisor).rss);
    }
    let (after, took) = (look(), start.elapsed().as_secs_f64());
    let whole: u64 = household.own().map(|pid| Memory::of(pid).pss).sum();
    assert!(afresh.wait().success(), "{}", afresh.stderr());
    env.assert_nothing_left();
    let rate = std::fs::read_to_string(env.work().join("lines-per-second"));
    let rate: f64 = rate.ok().and_then(|rate| rate.parse().ok()).expect("the agent tells");

    report.row("", &["CPU", "switches/s"]);
    let names = ["supervisor", "warden", "guardian", "together"];
    let mut percent = 0.0;
    for ((name, before), after) in names.into_iter().zip(before).zip(after) {
        let activity = after.since(before);
        percent = activity.nanoseconds as f64 / 1e9 / took * 100.0;
        let columns =
            [format!("{percent:.2} %"), format!("{:.0}", activity.switches as f64 / took)];
        report.row(name, &columns.each_ref().map(String::as_str));
    }
    report.note(&format!("{rate:.0} things a second; PSS of all: {:.1} MB", whole as f64 / 1024.0));
    report.target_least("things a second", rate, RATE as f64 * 0.98, "");
    report.target("CPU, of one core", percent, 1.0, " %");
    report.target("RSS of the supervisor", peak as f64 / 1024.0, 30.0, " MB");
}
