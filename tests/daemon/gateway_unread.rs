//! A gateway whose output nobody reads ends as soon as any other: whoever takes nothing is not waited for.

#![expect(clippy::disallowed_types, reason = "real processes run by the real clock")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use afresh_tests::{TestEnv, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::gateway::server;

/// All of it ends within one second, and nobody here waits for two.
const BOUND: Duration = Duration::from_secs(2);

/// A gateway whose client reads only what it wants to.
struct Unread {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Unread {
    fn start(env: &TestEnv) -> Self {
        env.write("afresh.toml", &server(env, "a", "", ""));
        let mut command = env.afresh(&["gateway"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let stdout = BufReader::with_capacity(1, child.stdout.take().expect("it is piped"));
        let mut gateway = Self { child, stdout };
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        gateway.send("initialize", &params);
        gateway.hear();
        gateway
    }

    fn send(&mut self, method: &str, params: &Value) {
        let line = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let stdin = self.child.stdin.as_mut().expect("it is piped");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("it is read");
    }

    /// Waits for an answer.
    fn hear(&mut self) {
        let mut line = String::new();
        while !line.contains("\"id\":1") {
            line.clear();
            assert_ne!(self.stdout.read_line(&mut line).expect("it is open"), 0, "no answer");
        }
    }

    /// Ends it, by the end of its input or by a signal.
    fn assert_ends(mut self, env: &TestEnv, by_signal: bool) {
        let began = Instant::now();
        match by_signal {
            true => kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM)
                .expect("it runs"),
            false => drop(self.child.stdin.take()),
        }
        let mut status = None;
        wait_for("it ends", || {
            status = self.child.try_wait().expect("our child");
            status.is_some()
        });
        let took = began.elapsed();
        assert!(took < BOUND, "by signal: {by_signal}: {took:?}");
        env.assert_nothing_left();
    }
}

#[test]
fn a_client_that_does_not_read_is_not_waited_for() {
    for by_signal in [true, false] {
        let env = TestEnv::new();
        let mut gateway = Unread::start(&env);
        // More than any pipe holds; when its beginning is there, the rest waits.
        let arguments = json!({"text": "x".repeat(4 << 20)});
        gateway.send("tools/call", &json!({"name": "a__echo", "arguments": arguments}));
        gateway.stdout.read_exact(&mut [0; 1]).expect("the beginning of an answer");
        gateway.assert_ends(&env, by_signal);
    }
}

#[test]
fn a_log_that_nobody_reads_is_not_waited_for() {
    for by_signal in [true, false] {
        let env = TestEnv::new();
        let mut gateway = Unread::start(&env);
        let arguments = json!({"text": "x".repeat(256 << 10)});
        gateway.send("tools/call", &json!({"name": "a__stderr", "arguments": arguments}));
        gateway.hear();
        gateway.assert_ends(&env, by_signal);
    }
}
