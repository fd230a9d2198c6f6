//! A connection to `afresh mcp` that never waits for ever: all that comes is collected as it comes.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::{PATIENCE, TestEnv, wait_for};

/// What every client of the modern era says with each request.
pub const MODERN_META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

/// One client.
#[derive(Debug)]
pub struct Connection {
    child: Child,
    stdin: Option<ChildStdin>,
    heard: Option<Receiver<String>>,
    log: PathBuf,
}

impl Connection {
    /// Starts `afresh mcp FLAGS -- SERVER`; nothing is said yet.
    pub fn start(env: &TestEnv, flags: &[&str], server: &[&str]) -> Self {
        Self::start_as(env, &[&["mcp"], flags, &["--"], server].concat())
    }

    /// Starts `afresh` with these arguments; nothing is said yet.
    pub fn start_as(env: &TestEnv, arguments: &[&str]) -> Self {
        let (mut connection, stdout) = Self::start_deaf_as(env, arguments);
        let (sender, heard) = sync_channel(1_000_000);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        connection.heard = Some(heard);
        connection
    }

    /// The same, with an output that is not read.
    pub fn start_deaf(env: &TestEnv, flags: &[&str], server: &[&str]) -> (Self, ChildStdout) {
        Self::start_deaf_as(env, &[&["mcp"], flags, &["--"], server].concat())
    }

    /// The same with these arguments.
    pub fn start_deaf_as(env: &TestEnv, arguments: &[&str]) -> (Self, ChildStdout) {
        let mut command: Command = env.afresh(arguments);
        let log = env.work().join("log");
        let file = std::fs::File::create(&log).expect("the workspace is writable");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        let mut child = command.spawn().expect("it starts");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("it is piped");
        (Self { child, stdin, heard: None, log }, stdout)
    }

    /// The same as `start`, with a session of the legacy era.
    pub fn connect(env: &TestEnv, flags: &[&str], server: &[&str]) -> Self {
        let mut connection = Self::start(env, flags, server);
        connection.open();
        connection
    }

    /// Opens a session of the legacy era.
    pub fn open(&mut self) {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer = self.ask("\"open\"", "initialize", &params);
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        self.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    }

    /// The process of afresh.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// What afresh and the server have logged so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Writes bytes.
    #[track_caller]
    pub fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("it is open");
        stdin.write_all(bytes).and_then(|()| stdin.flush()).expect("afresh reads");
    }

    /// Its input, for who writes in a thread of his own.
    pub fn take_stdin(&mut self) -> ChildStdin {
        self.stdin.take().expect("it is open")
    }

    /// Sends a request; its id is raw JSON.
    #[track_caller]
    pub fn send(&mut self, id: &str, method: &str, params: &Value) {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n"
        );
        self.write(line.as_bytes());
    }

    /// The next message, whatever it is.
    #[track_caller]
    pub fn hear(&mut self) -> Value {
        let heard = self.heard.as_ref().expect("it is read");
        let line = heard.recv_timeout(PATIENCE);
        let line = line.unwrap_or_else(|error| panic!("nothing heard: {error}\n{}", self.log()));
        serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("not a message: {line:?}: {error}"))
    }

    /// Whether something was said that nobody has taken yet.
    pub fn try_hear(&mut self) -> Option<String> {
        self.heard.as_ref().and_then(|heard| heard.try_recv().ok())
    }

    /// The next answer, or anything else that has an id; what is only told is passed over.
    #[track_caller]
    pub fn hear_answer(&mut self) -> Value {
        loop {
            let message = self.hear();
            if message.get("id").is_some() {
                return message;
            }
        }
    }

    /// Asks, and returns the answer, which must be the next one. The id is raw JSON.
    #[track_caller]
    pub fn ask(&mut self, id: &str, method: &str, params: &Value) -> Value {
        self.send(id, method, params);
        let answer = self.hear_answer();
        let asked: Value = serde_json::from_str(id).expect("JSON");
        assert_eq!(answer["id"], asked, "{answer}");
        answer
    }

    /// Calls a tool, and returns the answer's text. The id is raw JSON.
    #[track_caller]
    pub fn call(&mut self, id: &str, name: &str, arguments: &Value) -> String {
        let answer = self.ask(id, "tools/call", &json!({"name": name, "arguments": arguments}));
        let text = answer["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Sees that the connection works, and that nothing else was said.
    #[track_caller]
    pub fn assert_works(&mut self) -> i32 {
        let text = self.call("\"works\"", "pid", &json!({}));
        text.parse().unwrap_or_else(|_| panic!("{text}"))
    }

    /// Sends afresh a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("it runs");
    }

    /// Hangs up, and sees that all ends.
    #[track_caller]
    pub fn hang_up(mut self, env: &TestEnv) {
        drop(self.stdin.take());
        self.assert_ends(env, Some(0));
    }

    /// Sees that all ends by itself.
    #[track_caller]
    pub fn assert_ends(&mut self, env: &TestEnv, code: Option<i32>) {
        let mut status = None;
        wait_for("afresh ends", || {
            status = self.child.try_wait().expect("our child");
            status.is_some()
        });
        assert_eq!(status.and_then(|status| status.code()), code, "{}", self.log());
        env.assert_nothing_left();
    }

    /// What afresh has in memory, in kB.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).expect("a number")
    }
}

/// Kills a server, and waits until it is gone: one that is being killed may still take what is written
/// to it, and nobody can tell then whether it has done it.
#[track_caller]
pub fn kill_server(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it runs");
    wait_for("it is gone", || crate::process::read(pid).is_none());
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
