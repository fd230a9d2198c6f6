//! Memory of afresh with 1, 100 and 1,000 idle services, and of a shell that does no more than
//! start them.

use std::process::{Command, ExitCode, Stdio};

use afresh_core::limits::SETTLE_AFTER;
use afresh_tests::measure::{Household, Memory, Report, bench};
use afresh_tests::{Running, TestEnv, process, wait_for};

fn main() -> ExitCode {
    bench("memory: idle services, in kB", run)
}

fn run(report: &mut Report) {
    report.row("", &["superv. RSS", "superv. PSS", "warden PSS", "guardian PSS", "whole PSS"]);
    let mut at_hundred = None;
    for copies in [1, 100, 1_000] {
        let household = afresh(copies);
        let columns = [
            household.supervisor.rss,
            household.supervisor.pss,
            household.warden.pss,
            household.guardian_pss,
            household.whole_pss,
        ];
        print(report, &format!("afresh keep, {copies} services"), &columns);
        if copies == 100 {
            at_hundred = Some(household);
        }
    }
    let shell = shell(100);
    print(report, "sh, 100 services", &[shell.rss, shell.pss]);

    let at_hundred = at_hundred.expect("measured above");
    let rss = at_hundred.supervisor.rss as f64 / 1024.0;
    report.target("supervisor RSS with 100 services", rss, 8.0, " MB");
    let each = at_hundred.guardian_pss as f64;
    report.target("PSS of a guardian with 100 services", each, 150.0, " kB");
}

fn print(report: &Report, name: &str, columns: &[u64]) {
    let columns: Vec<String> = columns.iter().map(u64::to_string).collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    report.row(name, &columns);
}

struct Measured {
    supervisor: Memory,
    warden: Memory,
    /// The average.
    guardian_pss: u64,
    whole_pss: u64,
}

fn afresh(copies: usize) -> Measured {
    let env = TestEnv::new();
    let mut afresh = env.idle_services(copies);
    // What only the beginning needed is given back by then.
    std::thread::sleep(SETTLE_AFTER * 2);
    let household = Household::of(afresh.pid()).expect("all services run");
    let guardians = household.guardians.iter();
    let guardians: u64 = guardians.map(|pid| Memory::of(*pid).pss).sum();
    let measured = Measured {
        supervisor: Memory::of(household.supervisor),
        warden: Memory::of(household.warden),
        guardian_pss: guardians / copies as u64,
        whole_pss: household.own().map(|pid| Memory::of(pid).pss).sum(),
    };
    afresh.end();
    env.assert_nothing_left();
    measured
}

/// A shell that starts as many, and waits.
fn shell(copies: usize) -> Memory {
    let env = TestEnv::new();
    let mut command = Command::new("sh");
    let script = r#"for i in $(seq "$1"); do "$0" idle & done; wait"#;
    command.args(["-c", script, env!("CARGO_BIN_EXE_hostile"), &copies.to_string()]);
    env.furnish(&mut command);
    command.stdin(Stdio::null());
    let shell = Running::start(command);
    wait_for("all children of the shell run", || {
        let all = process::all();
        let is_child = |p: &&process::Process| p.parent == shell.pid() && p.name == "hostile";
        all.iter().filter(is_child).count() == copies
    });
    let memory = Memory::of(shell.pid());
    drop(shell);
    // A shell leaves its children behind.
    for process in env.alive() {
        process.signal(nix::sys::signal::Signal::SIGKILL);
    }
    env.assert_nothing_left();
    memory
}
