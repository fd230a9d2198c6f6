//! The storm: 20 servers behind one `afresh gateway --http`, 50 clients that call them as fast as they can,
//! and somebody who kills one server after the other. Each call has a number, and whoever does it writes the
//! number down: so it can be seen afterwards that nothing was done twice.
//!
//! `AFRESH_TEST_LONG=1` makes 100,000 calls of it.

#![expect(clippy::disallowed_types, reason = "real processes run by the real clock")]

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use afresh_tests::http_client::{HttpClient, Reply};
use afresh_tests::process::{self, Process};
use afresh_tests::{TestEnv, wait_for};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::gateway::{AT_ONCE, ROGUE};
use crate::gateway_http::start;
use crate::{is_long, stop};

const SERVERS: u64 = 20;
const CLIENTS: u64 = 50;

/// What came of the calls of one client.
#[derive(Default)]
struct Tally {
    succeeded: Vec<u64>,
    unknown: Vec<u64>,
    undone: Vec<u64>,
    /// In microseconds, of servers that are never killed.
    times: Vec<u64>,
}

#[test]
fn each_call_of_many_is_answered_once_while_servers_are_killed() {
    // G5 G7 R7
    let (calls, pause) = match is_long() {
        true => (100_000, Duration::from_millis(200)),
        false => (5_000, Duration::from_millis(50)),
    };
    let calm = storm(calls / 5, None);
    let raged = storm(calls, Some(pause));
    report("calm", &calm);
    report("storm", &raged);
}

/// What came of it: calls, kills, calls of unknown outcome, and times.
struct Outcome {
    calls: u64,
    kills: u64,
    instances: usize,
    unknown: usize,
    undone: usize,
    took: Duration,
    times: Vec<u64>,
}

#[expect(clippy::print_stdout, reason = "figures for who asks for them")]
fn report(name: &str, outcome: &Outcome) {
    let Outcome { calls, kills, instances, unknown, undone, took, times } = outcome;
    let at = |part: usize| times[(times.len() - 1) * part / 1_000];
    println!(
        "{name}: {calls} calls in {took:.1?}, {kills} kills, {instances} instances, {unknown} of unknown \
         outcome, {undone} not done; servers that were left alone: p50 {} us, p99 {} us, p99.9 {} us",
        at(500),
        at(990),
        at(999)
    );
}

/// Half of the servers are killed, one after the other with a pause between; none without a pause.
fn storm(calls: u64, pause: Option<Duration>) -> Outcome {
    let env = TestEnv::new();
    let more = format!("in_flight_max = 1000\n{AT_ONCE}");
    let entry = |n| {
        let mode = if n % 2 == 0 { "killed" } else { "left-alone" };
        format!("[server.s{n}]\ncommand = [{ROGUE:?}, {mode:?}]\n{more}")
    };
    let entries: Vec<String> = (0..SERVERS).map(entry).collect();
    let (mut gateway, port) = start(&env, &entries);
    let next = Arc::new(AtomicU64::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let callers: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let next = Arc::clone(&next);
            thread::spawn(move || call_until(port, &next, calls))
        })
        .collect();
    let chaos = pause.map(|pause| {
        let (afresh, is_over) = (gateway.pid(), Arc::clone(&is_over));
        thread::spawn(move || kill_until(afresh, pause, &is_over))
    });
    let mut all = Tally::default();
    for caller in callers {
        let tally = caller.join().expect("each call is answered");
        all.succeeded.extend(tally.succeeded);
        all.unknown.extend(tally.unknown);
        all.undone.extend(tally.undone);
        all.times.extend(tally.times);
    }
    let took = began.elapsed();
    is_over.store(true, Ordering::Relaxed);
    let kills = chaos.map_or(0, |chaos| chaos.join().expect("it strikes to the end"));
    assert_eq!((all.succeeded.len() + all.unknown.len() + all.undone.len()) as u64, calls);
    let instances = assert_done(&env, &all);
    assert!(pause.is_none() || kills > 10, "{kills} kills");
    assert!(pause.is_some() || all.unknown.is_empty() && all.undone.is_empty());
    // All of it works as before.
    let mut client = HttpClient::connect(port);
    for n in 0..SERVERS {
        let number = calls + n;
        let name = format!("s{n}__run");
        let mut is_up = false;
        wait_for("the last blow is over", || {
            is_up =
                client.call("1", &name, &json!({"number": number})).text() == number.to_string();
            is_up
        });
    }
    stop(&env, &mut gateway);
    all.times.sort_unstable();
    let (unknown, undone) = (all.unknown.len(), all.undone.len());
    Outcome { calls, kills, instances, unknown, undone, took, times: all.times }
}

/// Calls one server after the other until all numbers are taken.
fn call_until(port: u16, next: &AtomicU64, calls: u64) -> Tally {
    let mut client = HttpClient::connect(port);
    let mut tally = Tally::default();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= calls {
            return tally;
        }
        let server = number.wrapping_mul(7) % SERVERS;
        let began = Instant::now();
        // All clients use the same ids.
        let reply = client.call(
            &(number % 3).to_string(),
            &format!("s{server}__run"),
            &json!({"number": number}),
        );
        let took = began.elapsed();
        assert_eq!(reply.answer()["id"], number % 3, "{reply:?}");
        assert_eq!(reply.messages.len(), 1, "{reply:?}");
        match outcome(&reply) {
            text if text == number.to_string() => tally.succeeded.push(number),
            text if text.contains("outcome is unknown") => tally.unknown.push(number),
            text if text.contains("nothing was done") => tally.undone.push(number),
            _ => panic!("{reply:?}"),
        }
        if server % 2 == 1 {
            assert_eq!(tally.succeeded.last(), Some(&number), "{reply:?}");
            tally.times.push(u64::try_from(took.as_micros()).expect("it is short"));
        }
    }
}

fn outcome(reply: &Reply) -> String {
    let answer = reply.answer();
    let text = answer["result"]["content"][0]["text"].as_str();
    text.or(answer["error"]["message"].as_str()).unwrap_or_default().to_owned()
}

/// Kills one server after the other, those that may be. Returns how many.
fn kill_until(afresh: i32, pause: Duration, is_over: &AtomicBool) -> u64 {
    let mut kills = 0;
    while !is_over.load(Ordering::Relaxed) {
        thread::park_timeout(pause);
        let may_be = |process: &Process| process.command.ends_with("killed");
        let victims: Vec<Process> = below(afresh).into_iter().filter(may_be).collect();
        if let Some(victim) =
            victims.get(usize::try_from(kills).expect("few") * 7 % victims.len().max(1))
        {
            let signals = [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT];
            victim.signal(signals[usize::try_from(kills).expect("few") % signals.len()]);
            kills += 1;
        }
    }
    kills
}

/// All processes below one.
fn below(pid: i32) -> Vec<Process> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let pids = children.split_whitespace().filter_map(|child| child.parse().ok());
    pids.flat_map(|child| process::read(child).into_iter().chain(below(child))).collect()
}

/// What was done was done once, and as it was said. Returns how many instances there were.
fn assert_done(env: &TestEnv, all: &Tally) -> usize {
    let text = fs::read_to_string(env.work().join("done")).expect("something was done");
    let mut done: BTreeMap<u64, u32> = BTreeMap::new();
    let mut instances = std::collections::BTreeSet::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [number, pid] = words[..] else { panic!("{line}") };
        *done.entry(number.parse().expect("a number")).or_default() += 1;
        instances.insert(pid.to_owned());
    }
    let twice: Vec<&u64> = done.iter().filter(|(_, n)| **n > 1).map(|(number, _)| number).collect();
    assert!(twice.is_empty(), "done twice: {twice:?}");
    let undone: Vec<&u64> =
        all.succeeded.iter().filter(|number| !done.contains_key(number)).collect();
    assert!(undone.is_empty(), "successes that are none: {undone:?}");
    let done_after_all: Vec<&u64> =
        all.undone.iter().filter(|number| done.contains_key(number)).collect();
    assert!(done_after_all.is_empty(), "done after all: {done_after_all:?}");
    instances.len()
}
