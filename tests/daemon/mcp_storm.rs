//! The storm: many calls at once through one `afresh mcp` whose server is killed, ended by SIGTERM and SIGINT from
//! outside, stopped, exits and is restarted all the time. Each call has a number, and whoever does it writes the number down: so it
//! can be seen afterwards that nothing was done twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use afresh_tests::connection::{Connection, MODERN_META};
use afresh_tests::process::{self, Process};
use afresh_tests::{TestEnv, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const SERVER: &str = env!("CARGO_BIN_EXE_mcp-rogue");

/// Always so many in flight.
const CALLERS: usize = 8;

const FLAGS: [&str; 14] = [
    "--delay",
    "0s",
    "--stable-after",
    "0s",
    "--throttle",
    "1ms",
    "--max-restarts",
    "0",
    "--crash-loop-count",
    "0",
    "--stop-timeout",
    "200ms",
    "--drain-timeout",
    "200ms",
];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

/// The seed: new in each run, unless it is given by `AFRESH_TEST_SEED`.
fn seed() -> u64 {
    let given = std::env::var("AFRESH_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| u64::from(std::process::id()))
}

#[test]
fn ten_thousand_calls_survive_five_hundred_deaths() {
    // W7 R7
    Storm::new(&[], false).rage(10_000, 500);
}

#[test]
fn a_storm_with_a_spare() {
    Storm::new(&["--spare"], false).rage(2_000, 100);
}

#[test]
fn a_storm_over_a_server_that_must_be_alone() {
    Storm::new(&["--restart-mode", "replace"], false).rage(2_000, 100);
}

#[test]
fn a_storm_of_the_modern_era_does_not_end_a_subscription() {
    Storm::new(&[], true).rage(2_000, 100);
}

struct Storm {
    seed: u64,
    env: TestEnv,
    random: Random,
    connection: Connection,
    modern: bool,
    /// What was asked, by the number of the request, and has no answer.
    open: BTreeMap<u64, Ask>,
    /// Numbers that came to a good end, and those of which nobody knows.
    succeeded: BTreeSet<u64>,
    unknown: BTreeSet<u64>,
    undone: BTreeSet<u64>,
    next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ask {
    Run,
    Exit,
    List,
    Restart,
}

impl Storm {
    #[expect(clippy::print_stdout, reason = "shown where the test fails")]
    fn new(more: &[&str], modern: bool) -> Self {
        let seed = seed();
        println!("AFRESH_TEST_SEED={seed}");
        let env = TestEnv::new();
        let flags = [&FLAGS[..], more].concat();
        let mut connection = Connection::start(&env, &flags, &[SERVER, "left-alone"]);
        if modern {
            let params =
                format!(r#"{{"_meta":{MODERN_META},"notifications":{{"toolsListChanged":true}}}}"#);
            let params: Value = serde_json::from_str(&params).expect("JSON");
            connection.send("\"listen\"", "subscriptions/listen", &params);
            let told = connection.hear();
            assert_eq!(told["method"], "notifications/subscriptions/acknowledged", "{told}");
        } else {
            connection.open();
        }
        Self {
            seed,
            env,
            random: Random(seed),
            connection,
            modern,
            open: BTreeMap::new(),
            succeeded: BTreeSet::new(),
            unknown: BTreeSet::new(),
            undone: BTreeSet::new(),
            next: 0,
        }
    }

    fn rage(mut self, calls: u64, deaths: u64) {
        let (blows, chaos) = chaos(self.connection.pid(), self.seed ^ 1);
        let every = calls / deaths;
        let (mut answered, mut struck) = (0, 0);
        let mut strike_at = self.random.below(every);
        while answered < calls {
            while self.open.len() < CALLERS && self.next < calls {
                let ask = match self.random.below(40) {
                    0 => Ask::List,
                    _ => Ask::Run,
                };
                self.ask(ask);
            }
            self.hear();
            answered += 1;
            if answered > strike_at && struck < deaths {
                struck += 1;
                strike_at = struck * every + self.random.below(every);
                match self.random.below(8) {
                    0 if self.next < calls => self.ask(Ask::Exit),
                    1 if self.next < calls => self.ask(Ask::Restart),
                    _ => blows.send(()).expect("it strikes until we are done"),
                }
            }
        }
        assert_eq!(struck, deaths);
        drop(blows);
        chaos.join().expect("it strikes to the end");
        self.end(calls, deaths);
    }

    fn ask(&mut self, ask: Ask) {
        let number = self.next;
        self.next += 1;
        let code = [42, 1, 0][self.random.below(3) as usize];
        let (method, name, arguments) = match ask {
            Ask::Run => ("tools/call", "run", json!({"number": number})),
            Ask::Exit => ("tools/call", "exit", json!({"number": number, "code": code})),
            Ask::Restart => ("tools/call", "restart_server", json!({"reason": "a storm"})),
            Ask::List => ("tools/list", "", json!({})),
        };
        let mut params = match ask {
            Ask::List => json!({}),
            _ => json!({"name": name, "arguments": arguments}),
        };
        if self.modern {
            params["_meta"] = serde_json::from_str(MODERN_META).expect("JSON");
        }
        self.open.insert(number, ask);
        self.connection.send(&number.to_string(), method, &params);
    }

    /// The next answer, which must be to something that is open.
    fn hear(&mut self) {
        let answer = loop {
            let message = self.connection.hear();
            if message.get("id").is_some() {
                break message;
            }
            let method = message["method"].as_str().unwrap_or_default();
            assert!(method.ends_with("list_changed"), "{message}");
        };
        let number = answer["id"].as_u64().unwrap_or_else(|| panic!("{answer}"));
        let Some(ask) = self.open.remove(&number) else {
            panic!("answered twice, or never asked: {answer}")
        };
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        match ask {
            Ask::List => {
                let listed = result["tools"][0]["name"] == "run";
                assert!(listed || answer["error"]["data"]["retryable"] == true, "{answer}");
            }
            Ask::Restart => assert!(text.contains("restarted"), "{answer}"),
            Ask::Run | Ask::Exit if text.contains("outcome is unknown") => {
                self.unknown.insert(number);
            }
            Ask::Run | Ask::Exit if text.contains("nothing was done") => {
                self.undone.insert(number);
            }
            Ask::Run if text == number.to_string() => {
                self.succeeded.insert(number);
            }
            Ask::Run | Ask::Exit => panic!("{answer}"),
        }
    }

    fn end(mut self, calls: u64, deaths: u64) {
        assert!(self.open.is_empty() && self.next == calls);
        let mut done: BTreeMap<u64, u32> = BTreeMap::new();
        let mut instances = BTreeSet::new();
        let text = fs::read_to_string(self.env.work().join("done")).expect("something was done");
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [number, pid] = words[..] else { panic!("{line}") };
            assert_eq!(line.len(), 31, "{line}");
            *done.entry(number.parse().expect("a number")).or_default() += 1;
            instances.insert(pid);
        }
        assert!(instances.len() as u64 > deaths / 4, "only {} instances", instances.len());
        let count = |number: &u64| done.get(number).copied().unwrap_or(0);
        let twice: Vec<&u64> =
            done.iter().filter(|(_, n)| **n > 1).map(|(number, _)| number).collect();
        assert!(twice.is_empty(), "done twice: {twice:?}");
        let none: Vec<&u64> = self.succeeded.iter().filter(|number| count(number) == 0).collect();
        assert!(none.is_empty(), "successes that are none: {none:?}");
        assert!(self.undone.iter().all(|number| count(number) == 0), "done after all");
        // Most calls are not touched by it.
        assert!(self.unknown.len() < calls as usize / 4, "{} unknown", self.unknown.len());
        self.assert_listens();
        assert_eq!(self.connection.try_hear(), None);
        let Self { connection, env, .. } = self;
        connection.hang_up(&env);
    }

    /// The connection works, and so does the subscription: at the latest when the last instance on its
    /// way out is gone, and the lists of the new one are compared.
    fn assert_listens(&mut self) {
        let (mut told, mut times) = (None, 0);
        wait_for("the subscription is heard of", || {
            told = self.poke(times);
            times += 1;
            told.is_some_and(|told| told > 0 || !self.modern)
        });
        assert_eq!(told, Some(u32::from(self.modern)));
    }

    /// Makes the server tell all who listen, and returns how often we are told; none where the last blow
    /// has hit it meanwhile.
    fn poke(&mut self, number: u32) -> Option<u32> {
        let mut params = json!({"name": "poke", "arguments": {}});
        if self.modern {
            params["_meta"] = serde_json::from_str(MODERN_META).expect("JSON");
        }
        let id = format!("poke {number}");
        self.connection.send(&format!("\"{id}\""), "tools/call", &params);
        let mut told = 0;
        loop {
            let message = self.connection.hear();
            if message["id"] == id {
                let text = message["result"]["content"][0]["text"].as_str().unwrap_or_default();
                assert!(text == "poked" || text.contains("outcome is unknown"), "{message}");
                return (text == "poked").then_some(told);
            }
            assert!(message.get("id").is_none(), "{message}");
            let of = &message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
            told += u32::from(*of == "listen");
        }
    }
}

/// Somebody who strikes when told to, a moment later, at whatever he finds.
fn chaos(afresh: i32, seed: u64) -> (SyncSender<()>, JoinHandle<()>) {
    let (blows, told): (SyncSender<()>, Receiver<()>) = sync_channel(1);
    let chaos = std::thread::spawn(move || {
        let mut random = Random(seed);
        while told.recv().is_ok() {
            std::thread::park_timeout(Duration::from_micros(random.below(4_000)));
            strike(afresh, &mut random);
        }
    });
    (blows, chaos)
}

fn strike(afresh: i32, random: &mut Random) {
    if random.below(6) == 0 {
        return kill(Pid::from_raw(afresh), Signal::SIGUSR1).expect("it runs");
    }
    // An instance that serves, comes, goes, or is kept as a spare.
    let mut found = Vec::new();
    wait_for("an instance", || {
        found = family(afresh);
        found.iter().any(|process| !process.is_ours())
    });
    let instances: Vec<&Process> = found.iter().filter(|process| !process.is_ours()).collect();
    let instance = instances[random.below(instances.len() as u64) as usize];
    match random.below(10) {
        0..=3 => instance.signal(Signal::SIGKILL),
        4 => instance.signal(Signal::SIGTERM),
        5 => instance.signal(Signal::SIGINT),
        6 | 7 => {
            instance.signal(Signal::SIGSTOP);
            std::thread::park_timeout(Duration::from_micros(random.below(4_000)));
            instance.signal(Signal::SIGKILL);
        }
        _ => {
            // Its guardian.
            if let Some(guardian) = found.iter().find(|p| p.pid == instance.parent && p.is_ours()) {
                guardian.signal(Signal::SIGKILL);
            }
        }
    }
}

/// All below afresh.
fn family(afresh: i32) -> Vec<Process> {
    let mut found = Vec::new();
    let mut next = vec![afresh];
    while let Some(pid) = next.pop() {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        for child in children.unwrap_or_default().split_whitespace() {
            let Ok(child) = child.parse() else { continue };
            next.push(child);
            found.extend(process::read(child));
        }
    }
    found
}
