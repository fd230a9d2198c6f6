//! What sharing a server costs: the private memory of a shim, and what a call takes longer than through `afresh mcp`
//! alone, beside what a second bare byte pump takes longer than one.

use std::process::{Command, ExitCode};

use afresh_core::limits::SETTLE_AFTER;
use afresh_tests::mcp::{Peer, Server, Way};
use afresh_tests::measure::{Memory, Report, Samples, bench, micros};
use afresh_tests::{TestEnv, afresh_binary};

/// Turns of each side, and calls in a turn: noise hits all alike.
const TURNS: usize = 60;
const CALLS: usize = 50;

/// The first turns are for the engine of a server to warm up.
const FIRST_TURNS: usize = 10;

/// The clients of the server in the measurement of memory.
const CLIENTS: usize = 20;

const OPTIONS: [&str; 3] = ["--share", "--idle-timeout", "0s"];

fn main() -> ExitCode {
    bench("mcp_share: one server for several clients", run)
}

fn run(report: &mut Report) {
    latency(report, &Server::least());
    for server in Server::bare_node().into_iter().chain(Server::real(report)) {
        latency(report, &server);
    }
    memory(report);
}

fn latency(report: &mut Report, server: &Server) {
    let env = TestEnv::new();
    let pumps = {
        let pump = afresh_binary().with_file_name("mcp-pump");
        let mut command = Command::new(&pump);
        command.arg(&pump).args(server.words());
        let mut peer = Peer::spawn(&env, command);
        peer.initialize();
        peer
    };
    let mut sides = [
        ("a bare byte pump", Peer::connect(&env, Way::Pump, server)),
        ("two bare byte pumps", pumps),
        ("afresh mcp", Peer::connect(&env, Way::Afresh, server)),
        ("afresh mcp --share", Peer::connect_with(&env, Way::Afresh, &OPTIONS, server)),
    ]
    .map(|(name, peer)| (name, peer, Samples::default()));
    for turn in 0..FIRST_TURNS + TURNS {
        for (_, peer, samples) in &mut sides {
            for _ in 0..CALLS {
                let line = peer.call_line("echo", r#"{"message":"xxxxxxxxxxxxxxxxxxxx"}"#);
                let took = peer.time(&line);
                if turn >= FIRST_TURNS {
                    samples.push(took);
                }
            }
        }
    }
    report.row(server.name, &["median", "p99", "calls"]);
    for (name, _, samples) in &sides {
        let count = samples.count().to_string();
        let columns = [micros(samples.median()), micros(samples.quantile(0.99)), count];
        report.row(name, &columns.each_ref().map(String::as_str));
    }
    let [pump, pumps, alone, shared] =
        sides.each_ref().map(|(_, _, samples)| samples.median().as_secs_f64());
    let added = (shared - alone) / (pumps - pump);
    let what = format!("{}, added to the median, x a second pump's", server.name);
    report.target(&what, added, 1.5, "");
    for (_, peer, _) in sides {
        peer.end();
    }
    env.assert_nothing_left();
}

fn memory(report: &mut Report) {
    let env = TestEnv::new();
    let connect = || Peer::connect_with(&env, Way::Afresh, &OPTIONS, &Server::least());
    let mut peers: Vec<Peer> = (0..CLIENTS).map(|_| connect()).collect();
    for peer in &mut peers {
        for _ in 0..100 {
            let line = peer.call_line("echo", r#"{"message":"x"}"#);
            peer.time(&line);
        }
    }
    // What only the beginning needed is given back by then.
    std::thread::sleep(SETTLE_AFTER * 2);
    let private: Vec<u64> = peers.iter().map(|peer| Memory::of(peer.pid()).private).collect();
    let largest = private.iter().max().copied().unwrap_or(0);
    report.row("", &["clients", "largest", "all"]);
    let all: u64 = private.iter().sum();
    let columns = [CLIENTS as u64, largest, all].map(|figure| figure.to_string());
    report.row("private memory of shims, kB", &columns.each_ref().map(String::as_str));
    report.target("private memory of a shim", largest as f64 / 1024.0, 1.5, " MB");
    peers.into_iter().for_each(Peer::end);
    env.assert_nothing_left();
}
