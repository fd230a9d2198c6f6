//! `afresh gateway --http` under clients that ask for more than they read, open session after session, and connect
//! without a request: the memory that it takes, and how long the calls of another token wait meanwhile. Everything stays
//! on this machine, and each number is bounded.

#![expect(clippy::disallowed_types, reason = "real processes run by the real clock")]

use std::io::Write;
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use afresh_tests::http_client::{HttpClient, port_of};
use afresh_tests::measure::{Report, Samples, bench, millis};
use afresh_tests::process::peak_resident;
use afresh_tests::{Running, TestEnv};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const FIRST: &str = "first-0123456789abcdef";
const OTHER: &str = "other-0123456789abcdef";

/// What it may take in memory under any of them.
const RESIDENT_MAX_MB: f64 = 128.0;

const SESSIONS: usize = 1_000;
const HALF_OPEN: usize = 6_000;
const CALLS: usize = 300;
const BATCHES: usize = 3_000;

fn main() -> ExitCode {
    bench("gateway_attacks: memory of the gateway, and the calls of another token", run)
}

fn run(report: &mut Report) {
    report.row("", &["answers", "errors", "peak RSS"]);
    for count in [200, 1_000] {
        let attacked = Attacked::start();
        let reply = attacked.open(FIRST).post(&lists(count));
        attacked.tell(report, &format!("a batch of {count} lists"), &reply.messages);
    }
    let attacked = Attacked::start();
    let mut unread: Vec<HttpClient> = (0..400).map(|_| attacked.open(FIRST)).collect();
    for (number, client) in unread.iter_mut().enumerate() {
        client.send("POST", "", &if number % 10 > 0 { lists(4) } else { big(4 << 20) });
    }
    attacked.open(OTHER).call("1", "a__echo", &json!({"text": "after"}));
    attacked.tell(report, "400 requests, no answer read", &[]);

    let attacked = Attacked::start();
    let clients: Vec<HttpClient> = (0..60).map(|_| attacked.open(FIRST)).collect();
    let calls = echoes(8, 99_000);
    let unread: Vec<TcpStream> = (0..BATCHES)
        .map(|number| attacked.post_unread(clients[number % 60].session.as_deref(), &calls))
        .collect();
    attacked.open(OTHER).call("1", "a__echo", &json!({"text": "after"}));
    attacked.tell(report, "3,000 batches of long calls, no answer read", &[]);
    drop((unread, clients));

    let attacked = Attacked::start();
    let heads: Vec<TcpStream> = (0..HALF_OPEN).map(|_| attacked.long_head()).collect();
    attacked.open(OTHER).call("1", "a__echo", &json!({"text": "after"}));
    attacked.tell(report, "6,000 connections with a long head without end", &[]);
    drop(heads);

    let attacked = Attacked::start();
    let mut other = attacked.open(OTHER);
    report.row("", &["median", "p99", "longest"]);
    attacked.time(report, "a call before", &mut other);
    let sessions: Vec<HttpClient> = (0..SESSIONS).map(|_| attacked.open(FIRST)).collect();
    // Each has its own connection, which is idle.
    let half: Vec<TcpStream> = (0..HALF_OPEN).map(|_| attacked.half_open()).collect();
    let kept = attacked.time(report, "a call on an open connection", &mut other);
    let mut samples = Samples::default();
    for number in 0..CALLS {
        let begun = Instant::now();
        let mut client = HttpClient::new(attacked.port);
        (client.token, client.session) = (Some(OTHER.to_owned()), other.session.clone());
        client.call(&format!("{number}"), "a__echo", &json!({"text": "x"}));
        samples.push(begun.elapsed());
    }
    let new = tell_times(report, "a call on a new connection", &samples);
    report.target("the longest call of another token", kept.max(new), 100.0, " ms");
    attacked.tell(report, "sessions and half-open connections", &[]);
    drop((sessions, half));
}

/// A gateway that is attacked, in front of one server with a long list.
struct Attacked {
    env: TestEnv,
    gateway: Running,
    port: u16,
}

impl Attacked {
    fn start() -> Self {
        // Both ends of all connections but ours are another process's.
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("there is a limit");
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("it may be raised");
        let env = TestEnv::new();
        std::fs::create_dir_all(env.work().join("a")).expect("the workspace is writable");
        let tools: String = (0..240).map(|n| format!("t{n} {}\n", "x".repeat(4_000))).collect();
        env.write("a/tools", &format!("echo Says\nbig Says\n{tools}"));
        let server = env!("CARGO_BIN_EXE_mcp-server");
        env.write(
            "afresh.toml",
            &format!(
                "[server.a]\ncommand = [{server:?}]\ncwd = \"a\"\n[gateway.token.first]\n\
                 token = \"{FIRST}\"\n[gateway.token.other]\ntoken = \"{OTHER}\"\n"
            ),
        );
        let gateway = env.start(&["gateway", "--http", "127.0.0.1:0"]);
        let port = port_of(&gateway);
        let attacked = Self { env, gateway, port };
        attacked.open(OTHER).ask("1", "tools/list", &json!({}));
        attacked
    }

    fn open(&self, token: &str) -> HttpClient {
        let mut client = HttpClient::new(self.port);
        client.token = Some(token.to_owned());
        client.open();
        client
    }

    fn half_open(&self) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.write_all(b"POST /mcp HTTP/1.1\r\nhost: ").ok();
        stream
    }

    /// Sends a body, or as much of it as is taken, and reads nothing.
    fn post_unread(&self, session: Option<&str>, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_write_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        let text = format!(
            "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nauthorization: Bearer {FIRST}\r\n\
             mcp-session-id: {}\r\naccept: application/json, text/event-stream\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.port,
            session.unwrap_or_default(),
            body.len()
        );
        stream.write_all(text.as_bytes()).ok();
        stream
    }

    fn long_head(&self) -> TcpStream {
        let mut stream = self.half_open();
        let head = format!("x\r\nx-long: {}\r\n", "a".repeat(7_000));
        stream.write_all(head.as_bytes()).ok();
        stream
    }

    /// Times calls one after the other; returns the longest in milliseconds.
    fn time(&self, report: &Report, name: &str, client: &mut HttpClient) -> f64 {
        let mut samples = Samples::default();
        for number in 0..CALLS {
            let begun = Instant::now();
            client.call(&format!("{number}"), "a__echo", &json!({"text": "x"}));
            samples.push(begun.elapsed());
        }
        tell_times(report, name, &samples)
    }

    /// Prints what came of an attack, and ends it.
    fn tell(mut self, report: &mut Report, name: &str, answers: &[Value]) {
        let peak = peak_resident(self.gateway.pid()) as f64 / 1024.0;
        let errors = answers.iter().filter(|answer| answer["error"].is_object()).count();
        let whole = (answers.len() - errors).to_string();
        report.row(name, &[&whole, &errors.to_string(), &format!("{peak:.1} MB")]);
        report.target(&format!("peak RSS: {name}"), peak, RESIDENT_MAX_MB, " MB");
        self.gateway.signal(Signal::SIGTERM);
        self.gateway.wait();
        self.env.assert_nothing_left();
    }
}

/// Prints a row; returns the longest in milliseconds.
fn tell_times(report: &Report, name: &str, samples: &Samples) -> f64 {
    let [median, most, longest] = [0.5, 0.99, 1.0].map(|part| samples.quantile(part));
    report.row(name, &[&millis(median), &millis(most), &millis(longest)]);
    longest.as_secs_f64() * 1e3
}

/// A batch of requests for the list of tools.
fn lists(count: usize) -> String {
    let list = |id: usize| json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"});
    Value::from((0..count).map(list).collect::<Vec<_>>()).to_string()
}

/// A batch of calls whose answers are as long as their arguments.
fn echoes(count: usize, bytes: usize) -> String {
    let text = "a".repeat(bytes);
    let params = json!({"name": "a__echo", "arguments": {"text": text}});
    let call =
        |id: usize| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    Value::from((0..count).map(call).collect::<Vec<_>>()).to_string()
}

/// A call with an answer of so many bytes.
fn big(bytes: usize) -> String {
    let params = json!({"name": "a__big", "arguments": {"bytes": bytes}});
    json!({"jsonrpc": "2.0", "id": "big", "method": "tools/call", "params": params}).to_string()
}
