//! `afresh up` in a storm: services that are hard to end, and a supervisor that is killed at any moment
//! of their starts, stops and restarts, and of changes of the configuration.
//!
//! After each death of the supervisor the oracle says what has to be, from what the trail has: all
//! services that are defined run, once and in one piece, but for those that a person had stopped.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use afresh_tests::{Running, TestEnv, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::storm::{Random, spin};
use crate::up::{define, idle, send, service};
use crate::{is_long, stop};

/// Every shape of descendant that is hard to end, and what all of it counts together.
const STUBBORN: [&str; 5] = ["family", "plain", "ignores-term", "setsid", "double-fork"];
const STUBBORN_PROCESSES: usize = 5;

fn stubborn(name: &str, more: &str) -> String {
    service(name, &STUBBORN, more)
}

/// A process of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    pid: i32,
    /// Of which instance.
    generation: u64,
}

/// The living processes of all services, as the kernel shows them.
fn parts(env: &TestEnv) -> BTreeMap<String, Vec<Part>> {
    let mut found: BTreeMap<String, Vec<Part>> = BTreeMap::new();
    for process in env.alive().iter().filter(|process| !process.is_ours()) {
        let environ = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        let environ = String::from_utf8_lossy(&environ).into_owned();
        let value = |name: &str| {
            environ.split('\0').find_map(|variable| variable.strip_prefix(name)?.strip_prefix('='))
        };
        let generation = value("AFRESH_GENERATION").and_then(|number| number.parse().ok());
        if let Some((name, generation)) = value("AFRESH_SERVICE").zip(generation) {
            found.entry(name.to_owned()).or_default().push(Part { pid: process.pid, generation });
        }
    }
    found.values_mut().for_each(|parts| parts.sort());
    found
}

/// Those of one service.
fn parts_of(env: &TestEnv, name: &str) -> Vec<Part> {
    parts(env).remove(name).unwrap_or_default()
}

/// Waits until all of a service is there, and returns it.
#[track_caller]
fn whole(env: &TestEnv, name: &str, processes: usize) -> Vec<Part> {
    let mut found = Vec::new();
    wait_for(&format!("all {processes} processes of `{name}`"), || {
        found = parts_of(env, name);
        found.len() == processes
    });
    found
}

#[track_caller]
fn succeeds(env: &TestEnv, arguments: &[&str]) {
    let finished = env.run(arguments);
    assert_eq!(finished.code, Some(0), "{arguments:?}: {finished:?}");
}

#[test]
fn nothing_of_a_service_survives_its_stop() {
    let env = TestEnv::new();
    let quick = "stop_timeout = \"100ms\"";
    define(&env, &[stubborn("a", quick), stubborn("b", quick), service("c", &["hydra"], quick)]);
    let mut afresh = env.start(&["up"]);
    let first = whole(&env, "a", STUBBORN_PROCESSES);
    let other = whole(&env, "b", STUBBORN_PROCESSES);
    succeeds(&env, &["stop", "a"]);
    assert_eq!(parts_of(&env, "a"), [], "when the command returns, it is down");
    assert_eq!(parts_of(&env, "b"), other);
    succeeds(&env, &["start", "a"]);
    let second = whole(&env, "a", STUBBORN_PROCESSES);
    assert!(second.iter().all(|part| !first.contains(part) && part.generation == 2), "{second:?}");
    succeeds(&env, &["restart", "a"]);
    let third = whole(&env, "a", STUBBORN_PROCESSES);
    assert!(third.iter().all(|part| part.generation == 3), "{third:?}");
    succeeds(&env, &["stop", "c"]);
    assert_eq!(parts_of(&env, "c"), []);
    define(&env, &[stubborn("a", quick)]);
    succeeds(&env, &["reload"]);
    wait_for("what is not defined any more is gone", || parts_of(&env, "b").is_empty());
    assert_eq!(parts_of(&env, "a"), third);
    stop(&env, &mut afresh);
}

#[test]
fn nothing_of_a_service_survives_the_end_of_its_supervisor() {
    let env = TestEnv::new();
    let quick = "stop_timeout = \"100ms\"";
    define(&env, &[stubborn("a", quick), stubborn("b", quick), service("c", &["hydra"], quick)]);
    let ready = || {
        whole(&env, "a", STUBBORN_PROCESSES);
        whole(&env, "b", STUBBORN_PROCESSES);
    };
    succeeds(&env, &["up", "-d"]);
    ready();
    succeeds(&env, &["down"]);
    env.assert_nothing_left();

    let mut afresh = env.start(&["up"]);
    ready();
    afresh.signal(Signal::SIGKILL);
    afresh.wait();
    env.assert_nothing_left();

    // In the middle of a stop that takes its time.
    define(&env, &[stubborn("a", "stop_timeout = \"1h\""), stubborn("b", "")]);
    let mut afresh = env.start(&["up"]);
    ready();
    succeeds(&env, &["stop", "a", "--no-wait"]);
    wait_for("the stop has begun", || {
        env.run(&["status", "--json"]).stdout.contains("\"stopping\"")
    });
    afresh.signal(Signal::SIGKILL);
    afresh.wait();
    env.assert_nothing_left();
}

/// A person's word, on its way to the supervisor.
struct Said {
    service: String,
    verb: &'static str,
    stream: UnixStream,
}

impl Said {
    /// Whether it was acknowledged. Only asked when the supervisor is gone.
    fn is_acknowledged(&mut self) -> bool {
        let mut answer = Vec::new();
        // A connection that breaks has brought what it has brought.
        self.stream.read_to_end(&mut answer).ok();
        answer.starts_with(b"HTTP/1.1 2")
    }
}

/// Services under a supervisor that does not live long.
struct Storm {
    env: TestEnv,
    /// For whoever wants to see it again.
    seed: u64,
    random: Random,
    /// Changes the definition of `b`.
    variant: usize,
    /// Whether `extra` is defined.
    has_extra: bool,
    trail: Trail,
}

impl Storm {
    fn new(death: Death) -> Self {
        let given = std::env::var("AFRESH_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| u64::from(std::process::id()));
        let storm = Self {
            env: TestEnv::new(),
            seed,
            random: Random(seed),
            variant: 0,
            has_extra: false,
            trail: Trail { death, ..Trail::default() },
        };
        storm.define();
        storm
    }

    fn define(&self) {
        let often = "max_restarts = 0\ncrash_loop_count = 0\nthrottle = \"0s\"\n\
                     stop_timeout = \"50ms\"\n";
        let variant = format!("{often}env = {{ VARIANT = \"{}\" }}", self.variant);
        let needs = format!("{often}depends_on = [\"a\"]");
        let mut services = vec![
            idle("a", often),
            stubborn("b", &variant),
            idle("c", &needs),
            service("d", &["ignores-term"], often),
            idle("e", often),
        ];
        services.extend(self.has_extra.then(|| idle("extra", often)));
        let word = if self.trail.death == Death::Kills { "kill" } else { "keep" };
        services.push(format!("[daemon]\non_supervisor_death = \"{word}\"\n"));
        // At once: the supervisor may be reading it.
        let new = self.env.write("afresh.toml.new", &services.concat());
        fs::rename(new, self.env.work().join("afresh.toml")).expect("ours");
    }

    /// How many processes each service has that is defined now.
    fn defined(&self) -> BTreeMap<String, usize> {
        let mut all = BTreeMap::from(
            [("a", 1), ("b", STUBBORN_PROCESSES), ("c", 1), ("d", 1), ("e", 1)]
                .map(|(name, processes)| (name.to_owned(), processes)),
        );
        all.extend(self.has_extra.then(|| ("extra".to_owned(), 1)));
        all
    }

    /// Says something to the supervisor; none where it does not listen yet.
    fn say(&self, afresh: &Running, service: &str, verb: &'static str) -> Option<Said> {
        let path = match service {
            "" => format!("/v1/{verb}"),
            service => format!("/v1/services/{service}/{verb}"),
        };
        let mut stream = UnixStream::connect(socket(&self.env, afresh)?).ok()?;
        let body = "{\"reason\":\"storm\"}";
        let text = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(text.as_bytes()).ok()?;
        Some(Said { service: service.to_owned(), verb, stream })
    }

    /// Something happens, at random.
    fn act(&mut self, afresh: &Running) -> Option<Said> {
        match self.random.below(10) {
            0..2 => {
                let name = *self.random.pick(&["b", "d", "e"]);
                self.say(afresh, name, "stop")
            }
            2..4 => {
                let name = *self.random.pick(&["b", "d", "e"]);
                self.say(afresh, name, "start")
            }
            4..6 => {
                let name = *self.random.pick(&["a", "b", "c", "d"]);
                self.say(afresh, name, "restart")
            }
            6..8 => {
                match self.random.below(2) {
                    0 => self.variant += 1,
                    _ => self.has_extra = !self.has_extra,
                }
                self.define();
                self.say(afresh, "", "reload")
            }
            _ => {
                self.trail.read(&self.env);
                let running = self.trail.services.values().filter_map(|told| told.pid);
                let pids: Vec<i32> = running.filter_map(|pid| i32::try_from(pid).ok()).collect();
                // Only the first process of a service: nobody restarts a service that lost another one.
                let alive = self.env.alive();
                let alive: Vec<_> = alive.iter().filter(|one| pids.contains(&one.pid)).collect();
                if !alive.is_empty() {
                    self.random.pick(&alive).signal(Signal::SIGKILL);
                }
                None
            }
        }
    }

    /// One life of a supervisor. Most of them come to rest first.
    fn live(&mut self, round: usize) {
        let mut afresh = self.env.start(&["up"]);
        if self.random.below(4) > 0 {
            self.assert_as_it_has_to_be(&afresh, round);
        }
        let mut said = Vec::new();
        for _ in 0..self.random.below(4) {
            said.extend(self.act(&afresh));
            spin(Duration::from_micros(self.random.below(3_000) as u64));
        }
        spin(Duration::from_micros(self.random.below(20_000) as u64));
        afresh.signal(Signal::SIGKILL);
        afresh.wait();
        if self.trail.death == Death::Kills {
            self.env.assert_nothing_left();
        }
        self.trail.read(&self.env);
        let names: Vec<String> = said.iter().map(|said: &Said| said.service.clone()).collect();
        for mut said in said {
            let is_only_word = names.iter().filter(|name| **name == said.service).count() == 1;
            if !is_only_word || !said.is_acknowledged() {
                continue;
            }
            let is_down = self.trail.is_stopped(&said.service);
            match said.verb {
                "stop" => assert!(is_down, "round {round}: the stop of {} is lost", said.service),
                "start" | "restart" => {
                    assert!(
                        !is_down,
                        "round {round}: the {} of {} is lost",
                        said.verb, said.service
                    );
                }
                _ => {}
            }
        }
    }

    /// Whether requests of each kind were carried out, as many as so many rounds need.
    fn was_one(&self, rounds: usize) -> bool {
        let requests =
            ["server_stop_requested", "server_start_requested", "server_restart_requested"];
        requests.iter().all(|request| self.trail.count(request) * 100 > rounds)
            && self.trail.count("configuration_reloaded") * 20 > rounds
    }

    /// What the kernel, the supervisor and the trail say of each service is the same, and as it was
    /// before the last supervisor died.
    fn assert_as_it_has_to_be(&mut self, afresh: &Running, round: usize) {
        let defined = self.defined();
        let mut wanted = defined.clone();
        wanted.retain(|name, _| !self.trail.is_stopped(name));
        let counts = |found: &BTreeMap<String, Vec<Part>>| -> BTreeMap<String, usize> {
            found.iter().map(|(name, parts)| (name.clone(), parts.len())).collect()
        };
        let (mut found, mut states) = (BTreeMap::new(), Vec::new());
        let is_so = afresh_tests::reaches(|| {
            found = parts(&self.env);
            if counts(&found) != wanted {
                return false;
            }
            states = self.states(afresh).unwrap_or_default();
            let is_up = |status: &Value| status["state"] == "running" || status["state"] == "ready";
            let up = states.iter().filter(|status| is_up(status)).count();
            // The trail is written a moment later.
            self.trail.read(&self.env);
            let is_on_record = |status: &Value| {
                let told = status["name"].as_str().and_then(|name| self.trail.services.get(name));
                // What ends while there is no supervisor is seen by nobody.
                let is_unseen = self.trail.death == Death::Spares && status["pid"].is_null();
                is_unseen || told.and_then(|told| told.pid) == status["pid"].as_i64()
            };
            up == wanted.len() && states.len() == defined.len() && states.iter().all(is_on_record)
        });
        let trail = &self.trail.services;
        let context = || {
            let (log, seed) = (afresh.stderr(), self.seed);
            let records = fs::read_to_string(self.env.audit_file()).unwrap_or_default();
            let records: Vec<&str> = records.lines().rev().take(60).collect();
            format!(
                "AFRESH_TEST_SEED={seed}, round {round}, wanted: {wanted:?}, found: {found:?}\n{trail:?}\n{states:#?}\n{log}\n\
                 the last records, newest first: {records:#?}"
            )
        };
        assert!(is_so, "{}", context());
        for (name, parts) in &found {
            let status = states.iter().find(|status| status["name"] == **name).expect("it is told");
            let (pid, generation) = (status["pid"].as_i64(), status["generation"].as_u64());
            let is_one = parts.iter().all(|part| Some(part.generation) == generation);
            assert!(is_one, "two instances of {name}: {}", context());
            assert!(parts.iter().any(|part| Some(part.pid.into()) == pid), "{name}: {}", context());
            assert_eq!(trail[name].pid, pid, "{name}: {}", context());
            assert_eq!(Some(trail[name].generation), generation, "{name}: {}", context());
        }
    }

    /// All services, as the supervisor tells; none while it does not listen.
    fn states(&self, afresh: &Running) -> Option<Vec<Value>> {
        let mut stream = UnixStream::connect(socket(&self.env, afresh)?).ok()?;
        stream
            .write_all(b"GET /v1/services HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let body: Value = serde_json::from_str(body).ok()?;
        body["services"].as_array().cloned()
    }
}

/// Where a supervisor listens; dead ones may have left their sockets.
fn socket(env: &TestEnv, afresh: &Running) -> Option<PathBuf> {
    let prefix = format!("{}-", afresh.pid());
    let is_its = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
    };
    env.sockets().into_iter().find(is_its)
}

/// What the trail says of a service.
#[derive(Clone, Debug, Default)]
struct Told {
    /// Of the newest instance.
    generation: u64,
    /// Of the one that runs.
    pid: Option<i64>,
    /// Of the newest instance, whether it runs or not.
    newest: Option<i64>,
    /// Instances since then that never came to run.
    unseen: u64,
    /// A person wanted it to be down, by the last word.
    is_stopped: bool,
}

/// What becomes of services when their supervisor is killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Death {
    #[default]
    Kills,
    Spares,
}

/// The trail, read as somebody would who knows nothing else. Panics where it has a gap.
#[derive(Default)]
struct Trail {
    death: Death,
    /// Up to here it is read.
    end: u64,
    services: BTreeMap<String, Told>,
    /// How many records of each type there were.
    counts: BTreeMap<String, usize>,
}

impl Trail {
    /// Reads what is new.
    fn read(&mut self, env: &TestEnv) {
        let mut new = String::new();
        // The very first supervisor may have died before it wrote a word.
        let Ok(mut file) = File::open(env.audit_file()) else { return };
        file.seek(SeekFrom::Start(self.end)).expect("a file");
        file.read_to_string(&mut new).expect("text");
        // The last line may be torn, and is repaired by the next start.
        let whole = new.rfind('\n').map_or(0, |end| end + 1);
        self.end += whole as u64;
        for line in new[..whole].lines() {
            let record = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("not a record: {line}: {error}"));
            self.note(&record);
        }
    }

    fn note(&mut self, record: &Value) {
        let props = &record["props"];
        let event_type = props["event_type"].as_str().expect("a type");
        *self.counts.entry(event_type.to_owned()).or_default() += 1;
        match event_type {
            "trail_records_lost" => panic!("{record}"),
            "supervisor_started" if self.death == Death::Kills => {
                // Nothing outlives its supervisor, and what was not recorded has not been.
                self.services.values_mut().for_each(|told| (told.pid, told.unseen) = (None, 0));
            }
            _ => {}
        }
        let Some(service) = props["service"].as_str() else { return };
        let told = self.services.entry(service.to_owned()).or_default();
        match event_type {
            "server_started" => {
                let generation = props["generation"].as_u64().expect("a number");
                let next = told.generation + 1..=told.generation + 1 + told.unseen;
                assert!(next.contains(&generation), "after {told:?}: {record}");
                let is_gone = told.pid.is_none() || self.death == Death::Spares;
                assert!(is_gone, "{told:?} runs already: {record}");
                (told.generation, told.unseen) = (generation, 0);
                told.pid = props["pid"].as_i64();
                told.newest = told.pid;
            }
            "server_adopted" => {
                let (generation, pid) = (props["generation"].as_u64(), props["pid"].as_i64());
                // It may have been started in the last moment of its supervisor, after one that ended in
                // the same moment; or its end is told once more, for want of somebody who took note.
                let is_known = told.newest == pid && Some(told.generation) == generation;
                assert!(is_known || generation > Some(told.generation), "{told:?}: {record}");
                (told.generation, told.pid, told.newest) = (generation.unwrap_or(0), pid, pid);
            }
            "server_exited" | "server_crashed" | "server_spawn_failed" => {
                match props["pid"].as_i64() {
                    None => told.unseen += 1,
                    pid => {
                        let is_it = told.pid == pid;
                        assert!(is_it || self.death == Death::Spares, "{told:?} runs: {record}");
                        told.pid.take_if(|_| is_it);
                    }
                }
            }
            "server_stop_requested" => told.is_stopped = true,
            "server_start_requested" | "server_restart_requested" => told.is_stopped = false,
            _ => {}
        }
    }

    fn is_stopped(&self, service: &str) -> bool {
        self.services.get(service).is_some_and(|told| told.is_stopped)
    }

    fn count(&self, event_type: &str) -> usize {
        self.counts.get(event_type).copied().unwrap_or(0)
    }
}

#[test]
fn a_supervisor_that_is_killed_at_any_moment_loses_nothing_and_starts_nothing_twice() {
    rage(Death::Kills);
}

#[test]
fn one_whose_services_outlive_it_loses_nothing_and_starts_nothing_twice() {
    rage(Death::Spares);
}

fn rage(death: Death) {
    let mut storm = Storm::new(death);
    let rounds = if is_long() { 1_000 } else { 60 };
    let mut round = 0;
    // On a busy machine most supervisors die before a request is recorded: then there are more rounds.
    while round < rounds || (round < 5 * rounds && !storm.was_one(rounds)) {
        storm.live(round);
        round += 1;
    }
    let mut afresh = storm.env.start(&["up"]);
    storm.assert_as_it_has_to_be(&afresh, usize::MAX);
    stop(&storm.env, &mut afresh);
    storm.trail.read(&storm.env);
    assert!(storm.was_one(rounds), "there was a storm: {:?}", storm.trail.counts);
}

#[test]
fn who_was_stopped_by_a_signal_stays_down_too() {
    let env = TestEnv::new();
    define(&env, &[idle("a", ""), idle("b", "")]);
    let mut afresh = env.start(&["up"]);
    let pid = whole(&env, "a", 1)[0].pid;
    whole(&env, "b", 1);
    send(pid, Signal::SIGTERM);
    wait_for("the stop is on record", || env.events("server_stopped").len() == 1);
    afresh.signal(Signal::SIGKILL);
    afresh.wait();
    env.assert_nothing_left();
    let mut afresh = env.start(&["up"]);
    whole(&env, "b", 1);
    succeeds(&env, &["stop", "b"]);
    assert_eq!(parts(&env), BTreeMap::new());
    stop(&env, &mut afresh);
}
