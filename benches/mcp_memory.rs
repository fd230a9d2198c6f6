//! Memory of `afresh mcp` in front of one server, idle after some calls.

use std::process::ExitCode;

use afresh_core::limits::SETTLE_AFTER;
use afresh_tests::TestEnv;
use afresh_tests::mcp::{Peer, Server, Way};
use afresh_tests::measure::{Household, Memory, Report, bench};

fn main() -> ExitCode {
    bench("mcp_memory: afresh mcp, idle, in kB", run)
}

fn run(report: &mut Report) {
    let env = TestEnv::new();
    let mut peer = Peer::connect(&env, Way::Afresh, &Server::least());
    for _ in 0..1_000 {
        let line = peer.call_line("echo", r#"{"message":"x"}"#);
        peer.time(&line);
    }
    // What only the beginning needed is given back by then.
    std::thread::sleep(SETTLE_AFTER * 2);
    for _ in 0..1_000 {
        let line = peer.call_line("echo", r#"{"message":"x"}"#);
        peer.time(&line);
    }
    let household = Household::of(peer.pid()).expect("it serves");
    let own = Memory::of(household.supervisor);
    let whole: u64 = household.own().map(|pid| Memory::of(pid).pss).sum();
    report.row("", &["RSS", "PSS", "whole PSS"]);
    let columns = [own.rss, own.pss, whole].map(|kilobytes| kilobytes.to_string());
    report.row("afresh mcp", &columns.each_ref().map(String::as_str));
    report.target("RSS of afresh mcp", own.rss as f64 / 1024.0, 8.0, " MB");
    peer.end();
    env.assert_nothing_left();
}
