//! `afresh up` beside other supervisors, with the same programs in the same run: how fast a service that
//! was killed runs again, what a hundred idle services cost, and how fast a burst of output gets to its log.
//!
//! `benches/peers/install` brings the others; those that are not there are skipped.

#![expect(clippy::disallowed_types, reason = "real processes run by the real clock")]

#[path = "peers/supervisors.rs"]
mod supervisors;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use afresh_core::log_line::LogHead;
use afresh_tests::measure::{Activity, Memory, Report, Samples, bench, millis};
use afresh_tests::{PATIENCE, TestEnv, process, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use self::supervisors::{Kind, Peer, Purpose, Service};

/// Turns in which each restarts its service, so that noise hits all alike…
const TURNS: usize = 20;
/// …this often…
const RESTARTS: usize = 10;
/// …but no longer than this.
const TURN: Duration = Duration::from_secs(1);

/// What a restart leaves to do is over after this, and burdens nobody else.
const SETTLE: Duration = Duration::from_millis(8);

const SERVICES: usize = 100;
const LOOK: Duration = Duration::from_millis(200);
const WATCHED: Duration = Duration::from_secs(20);
/// The kernel may run a sleeping thread once for its own ends: on to a CPU and off again.
const SWITCHES_MAX: f64 = 2.0;

const LINES: u32 = 100_000;
const BURSTS: usize = 9;
/// A log that has not grown for so long has lost the rest.
const STANDSTILL: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    bench("peers: afresh up beside other supervisors", |report| {
        let (installed, missing): (Vec<Kind>, Vec<Kind>) =
            Kind::ALL.into_iter().partition(|kind| kind.is_installed());
        restarts(report, &installed);
        idle(report, &installed);
        bursts(report, &installed);
        for kind in missing {
            report.note(&format!(
                "SKIPPED: {} is not installed; run benches/peers/install",
                kind.name()
            ));
        }
    })
}

/// Where a service says that it runs.
struct Ear {
    socket: UnixDatagram,
    pid: i32,
}

impl Ear {
    fn new(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).expect("the home is writable");
        socket.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
        Self { socket, pid: 0 }
    }

    /// Waits for the next instance.
    fn hear(&mut self) {
        let mut pid = [0; 4];
        self.socket.recv(&mut pid).expect("a new instance says that it runs");
        self.pid = i32::from_le_bytes(pid);
    }
}

fn restarts(report: &mut Report, kinds: &[Kind]) {
    report
        .note("SIGKILL of a service to the next instance running, as fast as each can be told to");
    let start = |kind: &Kind| {
        let env = TestEnv::new();
        let path = env.home().join("ear");
        let ear = Ear::new(&path);
        let words = ["announce", path.to_str().expect("text")];
        let services = [Service::new("one".to_owned(), &words)];
        (Peer::start(*kind, Purpose::Fast, env, &services), ear, Samples::default())
    };
    let mut peers: Vec<(Peer, Ear, Samples)> = kinds.iter().map(start).collect();
    peers.iter_mut().for_each(|(_, ear, _)| ear.hear());
    for _ in 0..TURNS {
        for (_, ear, samples) in &mut peers {
            let turn = Instant::now();
            for _ in 0..RESTARTS {
                std::thread::sleep(SETTLE);
                let begun = Instant::now();
                kill(Pid::from_raw(ear.pid), Signal::SIGKILL).expect("it lives");
                ear.hear();
                samples.push(begun.elapsed());
                if turn.elapsed() > TURN {
                    break;
                }
            }
        }
    }
    report.row("", &["median", "p90", "restarts"]);
    let mut ours = 0.0;
    for (peer, _, samples) in peers {
        let columns = [millis(samples.median()), millis(samples.quantile(0.9))];
        report.row(peer.kind.name(), &[&columns[0], &columns[1], &samples.count().to_string()]);
        let median = samples.median().as_secs_f64() * 1e3;
        report.figure("restart", peer.kind.name(), median, "ms");
        if peer.kind == Kind::Afresh {
            ours = samples.median().as_secs_f64() * 1e3;
        }
        peer.end();
    }
    report.target("afresh, median of a restart", ours, 2.0, " ms");
}

fn idle(report: &mut Report, kinds: &[Kind]) {
    report.note("");
    report.note("100 services that do nothing, for 20 s");
    let services: Vec<Service> =
        (0..SERVICES).map(|number| Service::new(format!("s{number}"), &["idle"])).collect();
    let start = |kind: &Kind| Peer::start(*kind, Purpose::Stock, TestEnv::new(), &services);
    let peers: Vec<Peer> = kinds.iter().map(start).collect();
    for peer in &peers {
        wait_for("all services run", || {
            // To look through all processes again and again would burden who starts them.
            std::thread::sleep(LOOK);
            peer.services().len() == SERVICES
        });
    }
    let own: Vec<Vec<i32>> = peers.iter().map(Peer::own).collect();
    let look =
        || own.iter().map(|pids| Activity::of(pids.iter().copied())).collect::<Vec<Activity>>();
    // What follows a start, such as bringing the trail to disk, is over then.
    std::thread::sleep(Duration::from_secs(3));
    let before = look();
    std::thread::sleep(WATCHED);
    let after = look();
    report.row("", &["daemon RSS", "whole PSS", "processes", "CPU", "switches"]);
    for (index, peer) in peers.iter().enumerate() {
        let pids = &own[index];
        let done = after[index].since(before[index]);
        let daemon = Memory::of(pids[0]).rss as f64 / 1024.0;
        let pss: u64 = pids.iter().map(|pid| Memory::of(*pid).pss).sum();
        let cpu = done.nanoseconds as f64 / WATCHED.as_nanos() as f64 * 100.0;
        let columns = [
            format!("{daemon:.1} MB"),
            format!("{:.1} MB", pss as f64 / 1024.0),
            pids.len().to_string(),
            format!("{cpu:.3} %"),
            done.switches.to_string(),
        ];
        report.row(peer.kind.name(), &columns.each_ref().map(String::as_str));
        report.figure("daemon RSS with 100 services", peer.kind.name(), daemon, "MB");
    }
    if let Some(ours) = peers.iter().position(|peer| peer.kind == Kind::Afresh) {
        judge(report, &own[ours], after[ours].since(before[ours]));
    }
    peers.into_iter().for_each(Peer::end);
}

fn judge(report: &mut Report, pids: &[i32], done: Activity) {
    let is_guardian =
        |pid: &&i32| process::read(**pid).is_some_and(|process| process.name == "afresh-guardian");
    let guardians: Vec<u64> =
        pids.iter().filter(is_guardian).map(|pid| Memory::of(*pid).pss).collect();
    assert_eq!(guardians.len(), SERVICES);
    let each = guardians.iter().sum::<u64>() as f64 / SERVICES as f64;
    let daemon = Memory::of(pids[0]).rss as f64 / 1024.0;
    report.target("afresh, RSS of the daemon", daemon, 8.0, " MB");
    report.target("afresh, PSS of a guardian", each, 150.0, " kB");
    report.target("afresh, clock ticks in 20 s", done.ticks as f64, 0.0, "");
    report.target("afresh, switches in 20 s", done.switches as f64, SWITCHES_MAX, "");
}

fn bursts(report: &mut Report, kinds: &[Kind]) {
    report.note("");
    report.note("A burst of 100,000 lines and the end, until the last of them is in the log");
    let start = |kind: &Kind| {
        let env = TestEnv::new();
        let path = env.home().join("ear");
        let ear = Ear::new(&path);
        let lines = LINES.to_string();
        let words = ["burst-when-told", path.to_str().expect("text"), &lines];
        let services = [Service::new("burst".to_owned(), &words)];
        (Peer::start(*kind, Purpose::Fast, env, &services), ear, Samples::default(), 0)
    };
    let mut peers: Vec<(Peer, Ear, Samples, usize)> = kinds.iter().map(start).collect();
    for _ in 0..BURSTS {
        for (peer, ear, samples, whole) in &mut peers {
            ear.hear();
            let log = peer.log("burst");
            let from = fs::metadata(&log).map_or(0, |data| data.len());
            let answer = peer.env.home().join(format!("ear.{}", ear.pid));
            let begun = Instant::now();
            ear.socket.send_to(&[1], answer).expect("it listens");
            if gets_last_line(&log, from) {
                samples.push(begun.elapsed());
                *whole += usize::from(is_whole(peer.kind, &log, from));
            }
        }
    }
    report.row("", &["median", "lines/s", "in order"]);
    let mut ours = (0.0, 0);
    for (peer, _, samples, whole) in peers {
        let in_order = format!("{whole} of {BURSTS}");
        if samples.count() == 0 {
            report.row(peer.kind.name(), &["–", "–", &in_order]);
            peer.end();
            continue;
        }
        let rate = f64::from(LINES) / samples.median().as_secs_f64();
        let columns = [millis(samples.median()), format!("{rate:.0}"), in_order];
        report.row(peer.kind.name(), &columns.each_ref().map(String::as_str));
        if peer.kind == Kind::Afresh {
            ours = (rate, whole);
        }
        peer.end();
    }
    report.target_least("afresh, lines per second", ours.0, 400_000.0, "");
    report.target_least("afresh, bursts complete and in order", ours.1 as f64, BURSTS as f64, "");
}

/// What was written to a file from there on, or its last kilobyte.
fn tail(log: &Path, from: u64, most: u64) -> Option<Vec<u8>> {
    let mut file = File::open(log).ok()?;
    let end = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(from.max(end.saturating_sub(most)))).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Waits for the last line of a burst; says whether it came before the log stood still.
fn gets_last_line(log: &Path, from: u64) -> bool {
    let length = || fs::metadata(log).map_or(0, |data| data.len());
    let (mut last, mut since) = (length(), Instant::now());
    while !has_last_line(log, from) {
        if since.elapsed() > STANDSTILL {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
        if length() != last {
            (last, since) = (length(), Instant::now());
        }
    }
    true
}

fn has_last_line(log: &Path, from: u64) -> bool {
    let last = format!("{} INFO request served in 12 ms\n", LINES - 1);
    let bytes = tail(log, from, 1024).unwrap_or_default();
    bytes.windows(last.len()).any(|window| window == last.as_bytes())
}

/// Whether every line is there, once, and in its place.
fn is_whole(kind: Kind, log: &Path, from: u64) -> bool {
    let bytes = tail(log, from, u64::MAX).unwrap_or_default();
    let text = |line: &'_ [u8]| -> Option<Vec<u8>> {
        match kind {
            Kind::Afresh => LogHead::parse(line).map(|(_, text)| text.to_vec()),
            _ => Some(line.to_vec()),
        }
    };
    let number = |line: &[u8]| -> Option<u32> {
        let line = text(line)?;
        let number = line.strip_suffix(b" INFO request served in 12 ms")?.to_vec();
        String::from_utf8(number).ok()?.parse().ok()
    };
    bytes.split(|byte| *byte == b'\n').filter_map(number).eq(0..LINES)
}
