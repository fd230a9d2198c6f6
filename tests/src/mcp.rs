//! A client of an MCP server for the benches: it writes prepared lines and looks only for their ends.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::measure::Report;
use crate::{TestEnv, afresh_binary};

/// How a client reaches a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As its parent.
    Direct,
    /// Through two threads that copy bytes.
    Pump,
    /// Through `afresh mcp`, without waits between restarts.
    Afresh,
}

impl Way {
    /// Its name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Pump => "a bare byte pump",
            Self::Afresh => "afresh mcp",
        }
    }
}

/// A server to measure with. Its tool `echo` gives back what it is told as `message`.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its name in a table.
    pub name: &'static str,
    command: Vec<OsString>,
}

impl Server {
    /// The least server, written in Rust: it finds the id and answers.
    pub fn least() -> Self {
        let command = vec![afresh_binary().with_file_name("mcp-echo").into()];
        Self { name: "the least server", command }
    }

    /// The least server, which takes a while to start.
    pub fn slow(start: Duration) -> Self {
        let mut server = Self::least();
        server.command.extend(["--start".into(), start.as_millis().to_string().into()]);
        Self { name: "a slow server", ..server }
    }

    /// A loop on Node that reads lines and answers; `None` where there is no node.
    pub fn bare_node() -> Option<Self> {
        let folders = std::env::var_os("PATH")?;
        let node = std::env::split_paths(&folders).map(|folder| folder.join("node"));
        let node = node.into_iter().find(|path| path.is_file())?;
        let command = vec![node.into(), fixture("mcp_server.mjs").into()];
        Some(Self { name: "a bare loop on Node", command })
    }

    /// The npm package server-everything as it is: the reference server on Node. `None` where the
    /// packages of the interop suite are not installed. It tells no process id.
    pub fn everything() -> Option<Self> {
        let script = "npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js";
        let script = interop(script)?;
        let command = vec![interop("bin/node")?.into(), script.into(), "stdio".into()];
        Some(Self { name: "server-everything", command })
    }

    /// A server on the official TypeScript SDK; `None` where it is not installed.
    pub fn sdk() -> Option<Self> {
        interop("npm/node_modules/@modelcontextprotocol/server")?;
        let command = vec![interop("bin/node")?.into(), fixture("mcp_sdk_server.mjs").into()];
        Some(Self { name: "TypeScript SDK", command })
    }

    /// Its program and arguments.
    pub fn words(&self) -> Vec<&str> {
        self.command.iter().map(|word| word.to_str().expect("text")).collect()
    }

    /// Real servers on Node, as far as they are installed. Says so where they are not.
    pub fn real(report: &Report) -> Vec<Self> {
        let servers: Vec<Self> = [Self::everything(), Self::sdk()].into_iter().flatten().collect();
        if servers.is_empty() {
            report.note(
                "SKIPPED  real servers on Node: run `tests/interop/install`, which fetches them",
            );
        }
        servers
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/fixtures").join(name)
}

/// Something that `tests/interop/install` installs.
fn interop(path: &str) -> Option<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/interop");
    let cache = std::env::var_os("INTEROP_CACHE").map_or(default, PathBuf::from);
    let path = std::path::absolute(cache.join(path)).ok()?;
    path.exists().then_some(path)
}

/// One connection.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
    next_id: u64,
}

impl Peer {
    /// Starts a server, and what is between; nothing is said yet.
    pub fn start(env: &TestEnv, way: Way, server: &Server) -> Self {
        Self::start_with(env, way, &[], server)
    }

    /// The same, with more options for `afresh mcp`.
    pub fn start_with(env: &TestEnv, way: Way, options: &[&str], server: &Server) -> Self {
        let server = &server.command;
        let mut command = match way {
            Way::Direct => Command::new(&server[0]),
            Way::Pump => Command::new(afresh_binary().with_file_name("mcp-pump")),
            Way::Afresh => Command::new(afresh_binary()),
        };
        match way {
            Way::Direct => command.args(&server[1..]),
            Way::Pump => command.args(server),
            Way::Afresh => command.args(AFRESH_WORDS).args(options).arg("--").args(server),
        };
        Self::spawn(env, command)
    }

    /// Starts anything that speaks MCP on its stdin and stdout; nothing is said yet.
    pub fn spawn(env: &TestEnv, mut command: Command) -> Self {
        env.furnish(&mut command);
        command.envs(std::env::var_os("INTEROP_CACHE").map(|cache| ("INTEROP_CACHE", cache)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("it is piped");
        let stdout = BufReader::with_capacity(256 * 1024, stdout);
        Self { child, stdin, stdout, line: Vec::new(), next_id: 1 }
    }

    /// Starts a server and opens the session.
    pub fn connect(env: &TestEnv, way: Way, server: &Server) -> Self {
        Self::connect_with(env, way, &[], server)
    }

    /// The same, with more options for `afresh mcp`.
    pub fn connect_with(env: &TestEnv, way: Way, options: &[&str], server: &Server) -> Self {
        let mut peer = Self::start_with(env, way, options, server);
        peer.initialize();
        peer
    }

    /// Opens the session.
    pub fn initialize(&mut self) {
        let params = r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}"#;
        let line = self.request("initialize", params);
        self.send(&line);
        let answer = self.hear();
        assert!(answer.contains("protocolVersion"), "{answer}");
        self.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    }

    /// The process that was started.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// A call of a tool as a line.
    pub fn call_line(&mut self, name: &str, arguments: &str) -> Vec<u8> {
        self.request("tools/call", &format!(r#"{{"name":"{name}","arguments":{arguments}}}"#))
    }

    /// A request as a line.
    pub fn request(&mut self, method: &str, params: &str) -> Vec<u8> {
        let id = self.next_id;
        self.next_id += 1;
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n")
            .into_bytes()
    }

    /// Writes lines.
    pub fn send(&mut self, lines: &[u8]) {
        self.stdin.as_mut().expect("it is open").write_all(lines).expect("it reads");
    }

    /// Waits for an answer. What a server tells by itself does not count.
    pub fn skip(&mut self) {
        loop {
            self.line.clear();
            let length = self.stdout.read_until(b'\n', &mut self.line).expect("it is readable");
            assert!(length > 0, "an answer, and not the end");
            // Some write the method first, and none writes a long one.
            let beginning = &self.line[..length.min(128)];
            if !beginning.windows(15).any(|word| word == b"\"notifications/") {
                return;
            }
        }
    }

    /// Waits for an answer.
    pub fn hear(&mut self) -> String {
        self.skip();
        String::from_utf8_lossy(&self.line).into_owned()
    }

    /// Whether a part of another line is there already.
    pub fn has_more(&self) -> bool {
        !self.stdout.buffer().is_empty()
    }

    /// Sends a line, and returns how long the answer took.
    pub fn time(&mut self, line: &[u8]) -> Duration {
        let start = Instant::now();
        self.send(line);
        self.skip();
        start.elapsed()
    }

    /// The process id that the server tells; `None` where it was just lost.
    pub fn server_pid(&mut self) -> Option<i32> {
        let line = self.call_line("pid", "{}");
        self.send(&line);
        let answer: serde_json::Value = serde_json::from_str(&self.hear()).expect("JSON");
        answer["result"]["content"][0]["text"].as_str()?.parse().ok()
    }

    /// Hangs up, and waits for the end.
    pub fn end(mut self) {
        drop(self.stdin.take());
        self.child.wait().expect("it is our child");
    }
}

const AFRESH_WORDS: [&str; 9] = [
    "mcp",
    "--delay",
    "0s",
    "--stable-after",
    "0s",
    "--max-restarts",
    "0",
    "--crash-loop-count",
    "0",
];

impl Drop for Peer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
