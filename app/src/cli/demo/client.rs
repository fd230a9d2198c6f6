//! The demo's client: ten calls a second over one connection, each of them accounted for.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use afresh_daemon::monotonic;
use serde_json::{Value, json};

use super::{DemoScreen, PATIENCE};
use crate::error::{CommandError, Exit};

/// The time between two calls.
const INTERVAL: Duration = Duration::from_millis(100);

/// What became of the calls.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) calls: u64,
    pub(super) answered: u64,
    pub(super) twice: u64,
    /// Answered by afresh, because the server died of them or with them.
    pub(super) unknown: u64,
    pub(super) longest: Duration,
    /// Every process that has answered.
    pub(super) pids: BTreeSet<u32>,
}

impl Tally {
    pub(super) fn lost(&self) -> u64 {
        self.calls - self.answered
    }
}

/// A client with one connection.
pub(super) struct Caller {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<Value>,
    screen: DemoScreen,
    /// Calls without an answer, and when they were made.
    open: BTreeMap<u64, Duration>,
    next_id: u64,
    next_call_at: Duration,
    tally: Tally,
    /// The longest call since the last `take_pause`.
    pause: Duration,
    last_pid: u32,
}

impl Caller {
    pub(super) fn connect(
        folder: &Path,
        code: &Path,
        screen: DemoScreen,
    ) -> Result<Self, CommandError> {
        let failed = |error: std::io::Error| CommandError::new(Exit::Unavailable, error);
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(&program)
            .args(["mcp", "--name", "demo", "--spare", "--"])
            .arg(&program)
            .arg("__demo-server")
            .arg(code)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (sender, answers) = sync_channel(64);
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let message = serde_json::from_str(&line).unwrap_or(Value::Null);
                    if sender.send(message).is_err() {
                        return;
                    }
                }
            });
        }
        if let Some(stderr) = child.stderr.take() {
            let screen = screen.clone();
            std::thread::spawn(move || narrate(BufReader::new(stderr), &screen));
        }
        let mut caller = Self {
            stdin: child.stdin.take(),
            child,
            answers,
            screen,
            open: BTreeMap::new(),
            next_id: 1,
            next_call_at: monotonic(),
            tally: Tally::default(),
            pause: Duration::ZERO,
            last_pid: 0,
        };
        let info = json!({"name": "afresh-demo", "version": env!("CARGO_PKG_VERSION")});
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
        caller.ask("initialize", &params)?;
        caller.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        caller.ask("tools/list", &json!({}))?;
        Ok(caller)
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The longest that a call took since this was last asked.
    pub(super) fn take_pause(&mut self) -> Duration {
        std::mem::take(&mut self.pause)
    }

    /// Goes on calling for a while, and until all is answered.
    pub(super) fn watch(&mut self, long: Duration) -> Result<(), CommandError> {
        let until = monotonic() + long;
        while monotonic() < until {
            self.step()?;
        }
        let until = monotonic() + PATIENCE;
        while !self.open.is_empty() && monotonic() < until {
            self.hear(Duration::from_millis(10))?;
        }
        Ok(())
    }

    /// Calls a tool and waits for its answer, while the other calls go on.
    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value, CommandError> {
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// The process that answers now.
    pub(super) fn server_pid(&mut self) -> Result<u32, CommandError> {
        self.call("hello", &json!({}))?;
        Ok(self.last_pid)
    }

    pub(super) fn hang_up(&mut self) -> Result<(), CommandError> {
        drop(self.stdin.take());
        let until = monotonic() + PATIENCE;
        while monotonic() < until {
            if let Ok(Some(_)) = self.child.try_wait() {
                return Ok(());
            }
            self.answers.recv_timeout(Duration::from_millis(10)).ok();
        }
        Err(CommandError::new(Exit::Failed, "afresh did not end when its client hung up"))
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value, CommandError> {
        let id = self.send_request(method, params)?;
        let until = monotonic() + PATIENCE;
        while monotonic() < until {
            if let Some(answer) = self.step()?
                && answer["id"] == id
            {
                return Ok(answer);
            }
        }
        let text = format!("`{method}` was not answered within {} s", PATIENCE.as_secs());
        Err(CommandError::new(Exit::Failed, text).hint("run `afresh doctor`"))
    }

    /// Calls when it is time, and takes an answer if there is one.
    fn step(&mut self) -> Result<Option<Value>, CommandError> {
        let now = monotonic();
        if now >= self.next_call_at {
            self.next_call_at = now + INTERVAL;
            if self.tally.calls > 0 {
                self.send_request("tools/call", &json!({"name": "hello", "arguments": {}}))?;
            }
        }
        self.hear(self.next_call_at.saturating_sub(monotonic()).min(INTERVAL))
    }

    fn hear(&mut self, wait: Duration) -> Result<Option<Value>, CommandError> {
        let answer = match self.answers.recv_timeout(wait) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(CommandError::new(Exit::Failed, "the connection was lost"));
            }
        };
        let Some(id) = answer["id"].as_u64() else { return Ok(None) };
        let Some(sent) = self.open.remove(&id) else {
            self.tally.twice += 1;
            return Ok(None);
        };
        self.tally.answered += 1;
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        if text.contains("outcome is unknown") {
            self.tally.unknown += 1;
        }
        let says_pid = text.split_once(' ').and_then(|(_, pid)| pid.parse::<u32>().ok());
        if let Some(pid) = says_pid {
            let took = monotonic().saturating_sub(sent);
            self.pause = self.pause.max(took);
            self.tally.longest = self.tally.longest.max(took);
            self.tally.pids.insert(pid);
            self.last_pid = pid;
            self.screen.dot();
        }
        Ok(Some(answer))
    }

    fn send_request(&mut self, method: &str, params: &Value) -> Result<u64, CommandError> {
        let id = self.next_id;
        self.next_id += 1;
        self.tally.calls += 1;
        self.open.insert(id, monotonic());
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        Ok(id)
    }

    fn send(&mut self, message: &Value) -> Result<(), CommandError> {
        let Some(stdin) = &mut self.stdin else { return Ok(()) };
        writeln!(stdin, "{message}")
            .and_then(|()| stdin.flush())
            .map_err(|error| CommandError::new(Exit::Failed, error))
    }
}

/// Shows what afresh says, without the time: the dots are the clock.
fn narrate(stderr: impl BufRead, screen: &DemoScreen) {
    for line in stderr.lines().map_while(Result::ok) {
        let text = line.split_once("[SUPERVISOR] ").map_or(line.as_str(), |(_, text)| text);
        screen.line(&screen.paint.dim(text));
    }
}
