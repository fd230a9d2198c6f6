//! `afresh gateway` beside other gateways, with the same client and the same server in the same run: how long
//! a call takes, how many there can be in a second, and what a gateway needs for itself. Then `afresh gateway`
//! alone: a thousand clients that do nothing, and a call with one server and with a hundred.
//!
//! `benches/gateway/install` brings the others; those that are not there are skipped.

#![expect(clippy::disallowed_types, reason = "real processes run by the real clock")]

#[path = "gateway/client.rs"]
mod client;
#[path = "gateway/gateways.rs"]
mod gateways;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use afresh_tests::mcp::Server;
use afresh_tests::measure::{Activity, Memory, Report, Samples, bench, micros};
use afresh_tests::wait_for;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use self::client::{Client, Form, Session};
use self::gateways::{Gateway, Kind};

/// Turns of each, and calls in a turn: noise hits all alike.
const TURNS: usize = 40;
const CALLS: usize = 50;
/// The first turns are for engines to warm up.
const FIRST_TURNS: usize = 5;

const IN_FLIGHT: usize = 16;
const FLOOD_TURNS: usize = 5;
const FLOOD: usize = 400;

const CLIENTS: usize = 1_000;
const LISTENERS: usize = 100;
/// Moments that were waited for come for nothing in the ten seconds after the last request…
const REST: Duration = Duration::from_secs(12);
/// …and if it is not at rest then, it is looked at again soon: connections without a request are closed after a
/// minute, and all of it must be over before that.
const REST_MORE: Duration = Duration::from_secs(3);
const WATCHED: Duration = Duration::from_secs(20);
/// The kernel may run a sleeping thread once for its own ends: on to a CPU and off again.
const SWITCHES_MAX: f64 = 2.0;

const SERVERS: [usize; 3] = [1, 10, 100];

fn main() -> ExitCode {
    bench("gateway: afresh gateway beside other gateways", |report| {
        let (installed, missing): (Vec<Kind>, Vec<Kind>) =
            Kind::ALL.into_iter().partition(|kind| kind.is_installed());
        if is_wanted("others") {
            compare(report, &installed, &Server::least(), TURNS, true);
            match Server::everything() {
                Some(server) => compare(report, &installed, &server, TURNS / 2, false),
                None => report.note("SKIPPED  server-everything: run `tests/interop/install`"),
            }
        }
        if is_wanted("idle") {
            idle_clients(report);
        }
        if is_wanted("servers") {
            stay_on_one_core();
            many_servers(report, Kind::AfreshStdio);
            many_servers(report, Kind::AfreshHttp);
        }
        for kind in missing {
            let name = kind.name();
            report.note(&format!("SKIPPED  {name}: run `benches/gateway/install`"));
        }
    })
}

/// Whether a part of it is to run: those that are named behind `--`, or all.
fn is_wanted(part: &str) -> bool {
    let named = || std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    named().next().is_none() || named().any(|word| word == part)
}

/// With all of it on one core nothing happens beside anything else: how long a call takes is what it costs, in the
/// client, the gateway, the server and the kernel, and does not hang on which core each of them was put on.
fn stay_on_one_core() {
    let mut cores = CpuSet::new();
    cores.set(0).expect("there is a core");
    sched_setaffinity(Pid::from_raw(0), &cores).expect("it can be chosen");
}

/// What one of them shows.
struct Side {
    gateway: Gateway,
    calls: Samples,
    floods: Samples,
    memory: Memory,
}

fn compare(report: &mut Report, kinds: &[Kind], server: &Server, turns: usize, with_memory: bool) {
    report.note(&format!("One call after another, and 16 in flight; {}", server.name));
    let start = |kind: &Kind| Side {
        gateway: Gateway::start(*kind, server, 1, IN_FLIGHT),
        calls: Samples::default(),
        floods: Samples::default(),
        memory: Memory::default(),
    };
    let mut sides: Vec<Side> = kinds.iter().map(start).collect();
    for turn in 0..turns + FIRST_TURNS {
        for side in &mut sides {
            side.gateway.client.refresh();
            for _ in 0..CALLS {
                let took = call(&mut side.gateway.client, 0);
                if turn >= FIRST_TURNS {
                    side.calls.push(took);
                }
            }
        }
    }
    for _ in 0..FLOOD_TURNS {
        for side in &mut sides {
            side.floods.push(flood(&mut side.gateway.client));
        }
    }
    report.row("", &["median", "p99", "calls/s", "RSS", "PSS of all"]);
    for side in &mut sides {
        side.memory = side.gateway.memory();
        let rate = FLOOD as f64 / side.floods.median().as_secs_f64();
        let megabytes = |kilobytes: u64| match with_memory && side.gateway.kind != Kind::Direct {
            true => format!("{:.1} MB", kilobytes as f64 / 1024.0),
            false => String::new(),
        };
        let columns = [
            micros(side.calls.median()),
            micros(side.calls.quantile(0.99)),
            format!("{rate:.0}"),
            megabytes(side.memory.rss),
            megabytes(side.memory.pss),
        ];
        report.row(side.gateway.kind.name(), &columns.each_ref().map(String::as_str));
    }
    judge(report, &sides, with_memory);
    sides.into_iter().for_each(|side| side.gateway.end());
    report.note("");
}

/// What is below the least of the others is below each of them.
fn judge(report: &mut Report, sides: &[Side], with_memory: bool) {
    type Measure = fn(&Side) -> f64;
    let speeds: [(&str, Measure); 2] = [
        ("median", |side| side.calls.median().as_secs_f64()),
        ("p99", |side| side.calls.quantile(0.99).as_secs_f64()),
    ];
    let sizes: [(&str, Measure); 2] =
        [("RSS", |side| side.memory.rss as f64), ("PSS", |side| side.memory.pss as f64)];
    for ours in sides {
        let kind = ours.gateway.kind;
        let is_other = |side: &&Side| side.gateway.kind.measured_by() == Some(kind);
        for (what, of) in speeds.iter().chain(sizes.iter().filter(|_| with_memory)) {
            let others = sides.iter().filter(is_other);
            let Some(least) = others.min_by(|one, other| of(one).total_cmp(&of(other))) else {
                continue;
            };
            let what = format!("{}, {what}, x {}", kind.name(), least.gateway.kind.name());
            report.target(&what, of(ours) / of(least), 1.0, "");
        }
    }
}

fn call(client: &mut Client, server: usize) -> Duration {
    let begun = Instant::now();
    client.send(0, server);
    client.hear(0);
    begun.elapsed()
}

/// Calls with so many on their way all the time.
fn flood(client: &mut Client) -> Duration {
    client.refresh();
    let begun = Instant::now();
    (0..IN_FLIGHT).for_each(|connection| client.send(connection, 0));
    for count in 0..FLOOD {
        let connection = count % IN_FLIGHT;
        client.hear(connection);
        if count + IN_FLIGHT < FLOOD {
            client.send(connection, 0);
        }
    }
    begun.elapsed()
}

fn idle_clients(report: &mut Report) {
    report
        .note("1,000 clients over HTTP that do nothing, 100 of them with an open stream, for 20 s");
    let gateway = Gateway::start(Kind::AfreshHttp, &Server::least(), 1, 1);
    let before = Memory::of(gateway.pid());
    let mut sessions: Vec<Session> =
        (1..CLIENTS).map(|_| Session::open(gateway.port, Form::Mcp("/mcp"), 1)).collect();
    sessions.iter_mut().take(LISTENERS).for_each(Session::listen);
    let own = gateway.own();
    let look = || Activity::of(own.iter().copied());
    std::thread::sleep(REST);
    let mut last = look().switches;
    wait_for("the gateway is at rest", || {
        std::thread::sleep(REST_MORE);
        let now = look().switches;
        std::mem::replace(&mut last, now) == now
    });
    let begun = look();
    std::thread::sleep(WATCHED);
    let done = look().since(begun);
    let after = Memory::of(gateway.pid());
    report.row("", &["RSS before", "RSS", "a client", "CPU ticks", "switches"]);
    let megabytes = |kilobytes: u64| format!("{:.1} MB", kilobytes as f64 / 1024.0);
    let each = after.rss.saturating_sub(before.rss) as f64 / CLIENTS as f64;
    let columns = [
        megabytes(before.rss),
        megabytes(after.rss),
        format!("{each:.1} kB"),
        done.ticks.to_string(),
        done.switches.to_string(),
    ];
    report.row(gateway.kind.name(), &columns.each_ref().map(String::as_str));
    report.target("RSS with 1,000 clients", after.rss as f64 / 1024.0, 100.0, " MB");
    report.target("clock ticks in 20 s", done.ticks as f64, 0.0, "");
    report.target("switches in 20 s", done.switches as f64, SWITCHES_MAX, "");
    drop(sessions);
    gateway.end();
    report.note("");
}

/// Calls with so many servers, to one of them or to each in turn.
struct Load {
    gateway: Gateway,
    servers: usize,
    spread: bool,
    calls: Samples,
    cpu: Samples,
    next: usize,
}

impl Load {
    fn start(kind: Kind, servers: usize, spread: bool) -> Self {
        let gateway = Gateway::start(kind, &Server::least(), servers, 1);
        assert_eq!(gateway.client.servers(), servers);
        let (calls, cpu) = (Samples::default(), Samples::default());
        Self { gateway, servers, spread, calls, cpu, next: 0 }
    }

    fn is_direct(&self) -> bool {
        self.gateway.kind == Kind::Direct
    }

    fn turn(&mut self, counts: bool) {
        let pid = self.gateway.pid();
        let before = Activity::of([pid].into_iter());
        let mut calls = Vec::with_capacity(CALLS);
        self.gateway.client.refresh();
        for _ in 0..CALLS {
            let server = if self.spread { self.next % self.servers } else { 0 };
            self.next += 1;
            calls.push(call(&mut self.gateway.client, server));
        }
        let done = Activity::of([pid].into_iter()).since(before);
        if counts {
            calls.into_iter().for_each(|took| self.calls.push(took));
            self.cpu.push(Duration::from_nanos(done.nanoseconds / CALLS as u64));
        }
    }

    fn name(&self) -> String {
        let name = match (self.servers, self.spread) {
            (1, _) => "1 server".to_owned(),
            (servers, false) => format!("{servers} servers, one of them called"),
            (servers, true) => format!("{servers} servers, each in turn"),
        };
        if self.is_direct() { format!("no gateway, {name}") } else { name }
    }
}

fn many_servers(report: &mut Report, kind: Kind) {
    report.note(&format!("The cost of a call with more servers; {}", kind.name()));
    let mut loads: Vec<Load> = Vec::new();
    for servers in SERVERS {
        loads.push(Load::start(kind, servers, false));
        if servers > 1 {
            loads.push(Load::start(kind, servers, true));
        }
    }
    // To wake a hundred processes in turn has its price without anything between, too.
    for servers in [1, 100] {
        loads.push(Load::start(Kind::Direct, servers, true));
    }
    for turn in 0..TURNS + FIRST_TURNS {
        loads.iter_mut().for_each(|load| load.turn(turn >= FIRST_TURNS));
    }
    report.row("", &["median", "x", "CPU a call", "x"]);
    let seconds = |samples: &Samples| samples.median().as_secs_f64();
    let first_of = |load: &Load| {
        let is_it = |other: &&Load| other.servers == 1 && other.is_direct() == load.is_direct();
        loads.iter().find(is_it).expect("there is one of each")
    };
    for load in &loads {
        let first = first_of(load);
        let columns = [
            micros(load.calls.median()),
            format!("{:.2}", seconds(&load.calls) / seconds(&first.calls)),
            micros(load.cpu.median()),
            format!("{:.2}", seconds(&load.cpu) / seconds(&first.cpu)),
        ];
        report.row(&load.name(), &columns.each_ref().map(String::as_str));
    }
    let direct: Vec<&Load> = loads.iter().filter(|load| load.is_direct()).collect();
    for load in loads.iter().filter(|load| load.servers == 100 && !load.is_direct()) {
        let name = format!("{}, {}", kind.name(), load.name());
        let first = first_of(load);
        let (calls, one) = (seconds(&load.calls), seconds(&first.calls));
        if load.spread {
            let added = calls - seconds(&direct[1].calls);
            let added = added / (one - seconds(&direct[0].calls));
            report.target(&format!("{name}, added to direct, x 1 server"), added, 1.3, "");
        } else {
            report.target(&format!("{name}, median, x 1 server"), calls / one, 1.3, "");
            let cpu = seconds(&load.cpu) / seconds(&first.cpu);
            report.target(&format!("{name}, CPU, x 1 server"), cpu, 1.3, "");
        }
    }
    loads.into_iter().for_each(|load| load.gateway.end());
    report.note("");
}
