//! `afresh mcp` in front of a strict server that dies in every way.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use afresh_tests::{TestEnv, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const SERVER: &str = env!("CARGO_BIN_EXE_mcp-server");

/// A client with one connection.
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    next_id: u64,
}

impl Client {
    pub(crate) fn start(env: &TestEnv, flags: &[&str], mode: &str) -> Self {
        Self::start_with(env, flags, mode, Stdio::null())
    }

    /// With another stderr; nobody reads a pipe.
    fn start_with(env: &TestEnv, flags: &[&str], mode: &str, stderr: Stdio) -> Self {
        let arguments = [&["mcp"], flags, &["--", SERVER, mode]].concat();
        let mut command = env.afresh(&arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().expect("it starts");
        let stdin = child.stdin.take();
        drop(child.stderr.take());
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, stdin, stdout, next_id: 1 }
    }

    /// Connected and initialized.
    pub(crate) fn connect(env: &TestEnv, flags: &[&str], mode: &str) -> Self {
        let mut client = Self::start(env, flags, mode);
        client.initialize();
        client
    }

    /// Connected and initialized, with a stderr that nobody reads.
    pub(crate) fn connect_unread(env: &TestEnv, flags: &[&str]) -> Self {
        let mut client = Self::start_with(env, flags, "", Stdio::piped());
        client.initialize();
        client
    }

    fn initialize(&mut self) {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer = self.ask("initialize", &params);
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.send_text(&format!("{message}\n"));
    }

    /// Sends it in one write.
    pub(crate) fn send_text(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().expect("it is open");
        stdin.write_all(text.as_bytes()).and_then(|()| stdin.flush()).expect("afresh reads");
    }

    pub(crate) fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("text");
        serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("not a message: {line:?}: {error}"))
    }

    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let answer = self.hear();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub(crate) fn call(&mut self, name: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({"name": name, "arguments": arguments}))
    }

    /// Like `ask`, with what was told before the answer.
    pub(crate) fn ask_among(&mut self, method: &str, params: &Value) -> (Value, Vec<Value>) {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let mut told = Vec::new();
        loop {
            let message = self.hear();
            if message["id"] == id {
                return (message, told);
            }
            told.push(message);
        }
    }

    /// The answer of one of our tools, for programs.
    #[track_caller]
    pub(crate) fn call_ours(&mut self, name: &str, arguments: &Value) -> Value {
        let answer = self.call(name, arguments);
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        answer["result"]["structuredContent"].clone()
    }

    /// Sends a call without waiting for its answer.
    pub(crate) fn send_call(&mut self, id: u64, name: &str, arguments: &Value) {
        let params = json!({"name": name, "arguments": arguments});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }

    /// The names in a `tools/list`.
    pub(crate) fn tools(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", &json!({}));
        names(&answer)
    }

    /// Waits for the end of afresh, and returns its exit code.
    pub(crate) fn wait(mut self, env: &TestEnv) -> Option<i32> {
        let mut status = None;
        wait_for("afresh ends", || {
            status = self.child.try_wait().expect("our child");
            status.is_some()
        });
        env.assert_nothing_left();
        status.and_then(|status| status.code())
    }

    pub(crate) fn pid(&mut self) -> i32 {
        let answer = self.call("pid", &json!({}));
        let text = answer["result"]["content"][0]["text"].as_str();
        text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
    }

    /// The process of afresh.
    pub(crate) fn afresh(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Closes afresh's stdin, and does not wait for its end.
    pub(crate) fn close(&mut self) {
        drop(self.stdin.take());
    }

    /// Sends afresh the signal that asks for a restart.
    pub(crate) fn restart_server(&self) {
        kill(Pid::from_raw(self.afresh()), Signal::SIGUSR1).expect("it runs");
    }

    /// Ends afresh without a warning.
    pub(crate) fn kill_afresh(mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it runs");
    }

    /// Hangs up, and sees that all ends.
    pub(crate) fn hang_up(self, env: &TestEnv) {
        self.hang_up_alone();
        env.assert_nothing_left();
    }

    /// Hangs up, where others go on.
    pub(crate) fn hang_up_alone(mut self) {
        self.close();
        let mut code = None;
        wait_for("afresh ends", || {
            code = self.child.try_wait().expect("our child");
            code.is_some()
        });
        assert_eq!(code.and_then(|status| status.code()), Some(0));
    }
}

/// The names of the tools in an answer.
pub(crate) fn names(answer: &Value) -> Vec<String> {
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

/// What an answer says to a model.
#[track_caller]
pub(crate) fn text_of(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

pub(crate) const QUICK: [&str; 6] = ["--delay", "1ms", "--max-delay", "2ms", "--throttle", "1ms"];

#[test]
fn a_server_dies_in_every_way_and_the_client_keeps_its_connection() {
    // W1 W2 W6 R8 G1 G5
    let env = TestEnv::new();
    let flags = [&QUICK[..], &["--max-restarts", "0", "--crash-loop-count", "0"]].concat();
    let mut client = Client::connect(&env, &flags, "");
    for (tool, arguments) in [
        ("exit", json!({"code": 42})),
        ("exit", json!({"code": 1})),
        ("die", json!({})),
        ("die-in-mid-line", json!({})),
        ("close-stdout", json!({})),
    ] {
        let before = client.pid();
        let answer = client.call(tool, &arguments);
        assert_eq!(answer["result"]["isError"], true, "{tool}: {answer}");
        let text = answer["result"]["content"][0]["text"].as_str().expect("text");
        assert!(text.contains("outcome is unknown"), "{tool}: {text}");
        // The next call waits for the new instance, which has been told everything.
        assert_ne!(client.pid(), before, "{tool}");
    }
    let list = client.ask("tools/list", &json!({}));
    assert_eq!(list["result"]["tools"][0]["name"], "pid", "{list}");
    client.hang_up(&env);
}

#[test]
fn calls_from_many_are_answered_once_while_the_server_is_killed() {
    // W7 R7
    const CALLS: u64 = 2_000;
    let env = TestEnv::new();
    let flags = [&QUICK[..], &["--max-restarts", "0", "--crash-loop-count", "0"]].concat();
    let mut client = Client::connect(&env, &flags, "");
    let mut answers: BTreeMap<u64, u32> = BTreeMap::new();
    let (mut sent, mut kills) = (0, 0);
    while answers.len() < CALLS as usize {
        // Eight in flight, always.
        while sent < CALLS && sent - (answers.len() as u64) < 8 {
            let params = json!({"name": "echo", "arguments": {"text": sent.to_string()}});
            client.send(&json!({"jsonrpc": "2.0", "id": 1_000 + sent, "method": "tools/call", "params": params}));
            sent += 1;
        }
        let answer = client.hear();
        let id = answer["id"].as_u64().expect("a number") - 1_000;
        let result = &answer["result"];
        let own = result["content"][0]["text"].as_str() == Some(&id.to_string());
        assert!(own || result["isError"] == true, "{answer}");
        *answers.entry(id).or_default() += 1;
        if answers.len().is_multiple_of(40) {
            kills += 1;
            let newest =
                env.events("server_started").last().and_then(|r| r["props"]["pid"].as_i64());
            if let Some(pid) = newest {
                kill(Pid::from_raw(i32::try_from(pid).expect("a pid")), Signal::SIGKILL).ok();
            }
        }
    }
    assert!(answers.values().all(|count| *count == 1), "each once");
    assert!(kills >= 50);
    client.hang_up(&env);
}

#[test]
fn what_is_no_message_never_reaches_the_client() {
    // W3
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &[], "chatty");
    client.pid();
    // And what the server says twice, once.
    let answer = client.call("twice", &json!({}));
    assert_eq!(answer["result"]["content"][0]["text"], "once");
    client.pid();
    client.hang_up(&env);
}

#[test]
fn a_client_that_writes_nonsense_keeps_its_connection() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &[], "");
    let stdin = client.stdin.as_mut().expect("it is open");
    stdin.write_all(b"nonsense\n\xff\xfe\x00\n\n{\"half\":\n[]\n").expect("afresh reads");
    for n in 0..100_000 {
        writeln!(stdin, r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{"n":{n}}}}}"#)
            .expect("afresh reads");
    }
    client.pid();
    client.hang_up(&env);
}

#[test]
fn a_server_that_never_shakes_hands_is_given_up_and_the_client_is_told() {
    // G4
    let env = TestEnv::new();
    let flags = [&QUICK[..], &["--max-restarts", "2"]].concat();
    let mut client = Client::start(&env, &flags, "dies-in-handshake");
    let answer = client.ask("initialize", &json!({"protocolVersion": "2025-11-25"}));
    let message = answer["error"]["message"].as_str().expect("an error");
    assert!(message.contains("given up") && message.contains("code 3"), "{message}");
    // The connection stays, and every call gets the same clear word.
    let again = client.ask("initialize", &json!({"protocolVersion": "2025-11-25"}));
    assert!(again["error"]["message"].as_str().is_some(), "{again}");
    client.hang_up(&env);
}

#[test]
fn a_server_that_dies_of_a_probe_is_started_again_and_has_not_crashed() {
    for mode in ["dies-of-probe", "crashes-of-probe"] {
        let env = TestEnv::new();
        let mut client = Client::start(&env, &["--max-restarts", "1", "--delay", "1m"], mode);
        for _ in 0..3 {
            let answer = client.ask("server/discover", &json!({}));
            assert_eq!(answer["error"]["code"], -32601, "{mode}: {answer}");
        }
        let answer = client.ask("initialize", &json!({"protocolVersion": "2025-11-25"}));
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{mode}: {answer}");
        client.hang_up(&env);
    }
}

#[test]
fn a_client_that_hangs_up_ends_even_a_server_that_ignores_it() {
    // W9 G6
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &[], "ignores-everything");
    client.pid();
    client.hang_up(&env);
}

#[test]
fn large_messages_pass_both_ways() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &[], "");
    let answer = client.call("big", &json!({"bytes": 10 * 1024 * 1024}));
    let text = answer["result"]["content"][0]["text"].as_str().expect("text");
    assert_eq!(text.len(), 10 * 1024 * 1024);
    let long = "y".repeat(5 * 1024 * 1024);
    let answer = client.call("echo", &json!({"text": long}));
    assert_eq!(answer["result"]["content"][0]["text"].as_str().map(str::len), Some(long.len()));
    client.hang_up(&env);
}
