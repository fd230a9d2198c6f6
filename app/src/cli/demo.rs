//! `afresh demo`: a client that never stops calling, and a server that crashes, gets new code, gets
//! broken code and is killed. The times are the client's own. Client and server are both here.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use afresh_core::duration::show_duration;
use afresh_daemon::{kill_process, monotonic, process_is_alive};
use clap::Args;
use serde_json::{Value, json};

use crate::error::{CommandError, CommandResult, Exit, OrExit};
use crate::line_wrap::wrap;
use crate::output::{self, Paint};

/// Watch an MCP server crash, change its code and be killed while its client goes on calling.
///
/// Starts a server that is built in behind `afresh mcp`, and a client that calls it ten times a
/// second over one connection. Then the server crashes, is restarted with new code by its agent, is
/// given code that does not start, and is killed with SIGKILL. At the end all calls are counted.
/// Takes some seconds, needs nothing and leaves nothing behind.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Show the log lines of `afresh mcp` too
    #[arg(long, conflicts_with = "json")]
    log: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Nothing in the demo takes longer, even on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long the client is watched after each act.
const WATCHED: Duration = Duration::from_millis(1_200);

/// The time between two calls.
const INTERVAL: Duration = Duration::from_millis(100);

/// What is done to the server.
#[derive(Clone, Copy, Debug)]
struct Act {
    /// Its name in the JSON.
    name: &'static str,
    /// What happens.
    title: &'static str,
    /// The line above the answer that is shown; nothing where none is.
    answer_to: &'static str,
}

const ACTS: [Act; 4] = [
    Act {
        name: "crash",
        title: "The server crashes in the middle of a call.",
        answer_to: "The call that crashed it is answered:",
    },
    Act {
        name: "restart",
        title: "The agent has changed the code and calls `restart_server`.",
        answer_to: "The agent gets this answer:",
    },
    Act {
        name: "broken",
        title: "The agent has broken the code and calls `restart_server`.",
        answer_to: "The agent gets this answer:",
    },
    Act { name: "kill", title: "The server is killed with SIGKILL.", answer_to: "" },
];

/// Terminals of this width break no line.
const COLUMNS: usize = 80;

/// Lines of one answer that are shown.
const ANSWER_LINES_MAX: usize = 8;

pub(crate) fn run(arguments: &DemoArgs) -> CommandResult {
    let paint = Paint::stdout();
    let (shown, log) = (!arguments.json, arguments.log);
    let screen = DemoScreen { shown, log, paint, in_dots: Arc::default() };
    screen.act("One MCP client, one connection, ten calls a second. Each dot is an answer.");
    let folder = Folder::make()?;
    let mut caller = Caller::connect(&folder.0, screen.clone())?;
    caller.watch()?;
    let mut outcomes = Vec::new();
    for (number, act) in (1..).zip(ACTS) {
        screen.act(&format!("{number} of {}  {}", ACTS.len(), act.title));
        caller.pause = Duration::ZERO;
        let pid_before = caller.last_pid;
        let answer = caller.play(act.name)?;
        caller.watch()?;
        screen.verdict(&caller, pid_before);
        if !act.answer_to.is_empty() {
            screen.answer(act.answer_to, &answer);
        }
        outcomes.push((act.name, caller.pause));
    }
    caller.hang_up()?;
    let left = caller.tally.pids.iter().filter(|pid| process_is_alive(**pid)).count();
    summarise(&screen, &outcomes, &caller.tally, left)
}

fn summarise(
    screen: &DemoScreen,
    outcomes: &[(&str, Duration)],
    tally: &Tally,
    left: usize,
) -> CommandResult {
    let Tally { calls, answered, twice, unknown, longest, .. } = tally;
    let lost = calls - answered;
    let all_well = lost == 0 && *twice == 0 && left == 0;
    if !screen.shown {
        let millis = |time: &Duration| time.as_secs_f64() * 1e3;
        let act = |(act, pause): &(&str, Duration)| json!({"act": act, "pause_ms": millis(pause)});
        output::print_json(&json!({
            "calls": calls,
            "answered": answered,
            "lost": lost,
            "answered_twice": twice,
            "unknown_outcome": unknown,
            "longest_pause_ms": millis(longest),
            "acts": outcomes.iter().map(act).collect::<Vec<_>>(),
            "left_behind": left,
        }))?;
    } else {
        let longest = show_duration(*longest);
        let verdict = format!(
            "{calls} requests: {lost} lost, {twice} answered twice, the longest took {longest}"
        );
        let verdict =
            if all_well { screen.paint.green(&verdict) } else { screen.paint.red(&verdict) };
        let unknown = match unknown {
            0 => String::new(),
            count => format!("  {count} met the crash; each got an error that says so\n"),
        };
        let left = match left {
            0 => "  no process left behind\n".to_owned(),
            left => format!("  {left} PROCESSES LEFT BEHIND\n"),
        };
        screen.act("The client hangs up.");
        output::print(&format!(
            "  {verdict}\n{unknown}{left}\n\
             Next: `afresh adopt` puts afresh in front of the servers of your clients.\n",
        ))?;
    }
    Ok(if all_well { Exit::Success } else { Exit::Failed })
}

/// Where lines go: those of the story, those of afresh, and the dots between them.
#[derive(Clone)]
struct DemoScreen {
    shown: bool,
    /// What afresh logs is shown.
    log: bool,
    paint: Paint,
    /// Dots stand in the line that was begun last.
    in_dots: Arc<Mutex<bool>>,
}

impl DemoScreen {
    fn act(&self, said: &str) {
        self.print(&format!("\n{}\n", self.paint.bold(&format!("▶ {said}"))), false);
    }

    fn line(&self, text: &str) {
        self.print(&format!("  {text}\n"), false);
    }

    /// What became of the calls during an act, and of the server.
    fn verdict(&self, caller: &Caller, pid_before: u32) {
        let (pid, pause) = (caller.last_pid, show_duration(caller.pause));
        let process = match pid == pid_before {
            true => format!("pid {pid} still serves"),
            false => format!("pid {pid_before} → {pid}"),
        };
        self.line(&match caller.open.len() {
            0 => self.paint.green(&format!("✓ no call lost, the longest took {pause}; {process}")),
            open => self.paint.red(&format!("✗ {open} without an answer; {process}")),
        });
    }

    /// The text of an answer, below a line that says whose it is.
    fn answer(&self, title: &str, text: &str) {
        self.line(title);
        let lines = text.lines().take(ANSWER_LINES_MAX);
        for line in lines.flat_map(|line| wrap(line, COLUMNS - 4)) {
            self.line(&format!("  {}", self.paint.dim(&line)));
        }
    }

    fn print(&self, text: &str, is_dot: bool) {
        if !self.shown {
            return;
        }
        let mut in_dots = self.in_dots.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match (*in_dots, is_dot) {
            (true, false) => "\n",
            (false, true) => "  ",
            _ => "",
        };
        *in_dots = is_dot;
        // The demo goes on without its audience, and ends like any other.
        output::print(&format!("{before}{text}")).ok();
    }
}

/// A temporary workspace that goes with us.
struct Folder(PathBuf);

impl Folder {
    fn make() -> CommandResult<Self> {
        let path = std::env::temp_dir().join(format!("afresh-demo-{}", std::process::id()));
        std::fs::create_dir_all(path.join(".afresh")).map_err(|error| {
            let text = format!("cannot make the folder `{}`: {error}", path.display());
            CommandError::new(Exit::Unavailable, text).hint("set TMPDIR to a folder of yours")
        })?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// What became of the calls.
#[derive(Debug, Default)]
struct Tally {
    calls: u64,
    answered: u64,
    twice: u64,
    /// Answered by afresh, because the server died of them or with them.
    unknown: u64,
    longest: Duration,
    /// Every process that has answered.
    pids: BTreeSet<u32>,
}

/// A client with one connection, and the server's code.
struct Caller {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<Value>,
    screen: DemoScreen,
    code: PathBuf,
    /// Calls without an answer, and when they were made.
    open: BTreeMap<u64, Duration>,
    next_call_at: Duration,
    tally: Tally,
    /// The longest call of this act.
    pause: Duration,
    last_pid: u32,
}

impl Caller {
    fn connect(folder: &Path, screen: DemoScreen) -> CommandResult<Self> {
        let program = std::env::current_exe().or_exit(Exit::Unavailable)?;
        let code = folder.join("server-code");
        let mut child = Command::new(&program)
            .args(["mcp", "--name", "demo", "--spare", "--"])
            .arg(&program)
            .arg("__demo-server")
            .arg(&code)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .or_exit(Exit::Unavailable)?;
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
            // Read to its end in any case, so that afresh never waits for a reader. Shown without the time: the
            // dots are the clock.
            std::thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    let (_, text) = line.split_once("[SUPERVISOR] ").unwrap_or(("", &line));
                    if screen.log {
                        screen.line(&screen.paint.dim(text));
                    }
                }
            });
        }
        let mut caller = Self {
            stdin: child.stdin.take(),
            child,
            answers,
            screen,
            code,
            open: BTreeMap::new(),
            next_call_at: monotonic(),
            tally: Tally::default(),
            pause: Duration::ZERO,
            last_pid: 0,
        };
        let info = json!({"name": "afresh-demo", "version": env!("CARGO_PKG_VERSION")});
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
        caller.ask("initialize", params)?;
        caller.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        caller.ask("tools/list", json!({}))?;
        Ok(caller)
    }

    /// Does one thing to the server. Returns the text of its answer, where it has one.
    fn play(&mut self, act: &str) -> CommandResult<String> {
        match act {
            "crash" => {
                let answer = self.call("crash", json!({}))?;
                Ok(text_of(&answer).to_owned())
            }
            "restart" => self.restart("v2", false),
            "broken" => self.restart("broken", true),
            _ => self.kill(),
        }
    }

    fn restart(&mut self, code: &str, must_fail: bool) -> CommandResult<String> {
        std::fs::write(&self.code, code).or_exit(Exit::Failed)?;
        let answer = self.call("restart_server", json!({"reason": "new code"}))?;
        let text = text_of(&answer);
        match answer["result"]["isError"] == must_fail {
            true => Ok(text.to_owned()),
            false => Err(failed(format!("restart_server answered {text}"))),
        }
    }

    fn kill(&mut self) -> CommandResult<String> {
        // What does not start stays with the one who wrote it.
        std::fs::write(&self.code, "v2").or_exit(Exit::Failed)?;
        let pid = self.server_pid()?;
        kill_process(pid).or_exit(Exit::Failed)?;
        // The first call may have been on its way when it happened.
        let until = monotonic() + PATIENCE;
        while monotonic() < until {
            let next = self.server_pid()?;
            if next != pid {
                return Ok(String::new());
            }
        }
        Err(failed("no other instance answers"))
    }

    /// Goes on calling for a while, and until all is answered.
    fn watch(&mut self) -> CommandResult<()> {
        let until = monotonic() + WATCHED;
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
    fn call(&mut self, tool: &str, arguments: Value) -> CommandResult<Value> {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// The process that answers now.
    fn server_pid(&mut self) -> CommandResult<u32> {
        self.call("hello", json!({}))?;
        Ok(self.last_pid)
    }

    fn hang_up(&mut self) -> CommandResult<()> {
        drop(self.stdin.take());
        let until = monotonic() + PATIENCE;
        while monotonic() < until {
            if let Ok(Some(_)) = self.child.try_wait() {
                return Ok(());
            }
            self.answers.recv_timeout(Duration::from_millis(10)).ok();
        }
        Err(failed("afresh did not end when its client hung up"))
    }

    fn ask(&mut self, method: &str, params: Value) -> CommandResult<Value> {
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
        Err(failed(text).hint("run `afresh doctor`"))
    }

    /// Calls when it is time, and takes an answer if there is one.
    fn step(&mut self) -> CommandResult<Option<Value>> {
        let now = monotonic();
        if now >= self.next_call_at {
            self.next_call_at = now + INTERVAL;
            if self.tally.calls > 0 {
                self.send_request("tools/call", json!({"name": "hello", "arguments": {}}))?;
            }
        }
        self.hear(self.next_call_at.saturating_sub(monotonic()).min(INTERVAL))
    }

    fn hear(&mut self, wait: Duration) -> CommandResult<Option<Value>> {
        let answer = match self.answers.recv_timeout(wait) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => return Err(failed("the connection was lost")),
        };
        let Some(id) = answer["id"].as_u64() else { return Ok(None) };
        let Some(sent) = self.open.remove(&id) else {
            self.tally.twice += 1;
            return Ok(None);
        };
        self.tally.answered += 1;
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        let is_unknown = text.contains("outcome is unknown");
        self.tally.unknown += u64::from(is_unknown);
        let says_pid = text.split_once(' ').and_then(|(_, pid)| pid.parse().ok());
        // Calls that met the crash count as long as they took, though their answer is an error.
        if says_pid.is_some() || is_unknown {
            let took = monotonic().saturating_sub(sent);
            self.pause = self.pause.max(took);
            self.tally.longest = self.tally.longest.max(took);
        }
        if let Some(pid) = says_pid {
            self.tally.pids.insert(pid);
            self.last_pid = pid;
            self.screen.print("·", true);
        }
        Ok(Some(answer))
    }

    fn send_request(&mut self, method: &str, params: Value) -> CommandResult<u64> {
        self.tally.calls += 1;
        let id = self.tally.calls;
        self.open.insert(id, monotonic());
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        Ok(id)
    }

    fn send(&mut self, message: &Value) -> CommandResult<()> {
        let Some(stdin) = &mut self.stdin else { return Ok(()) };
        writeln!(stdin, "{message}").and_then(|()| stdin.flush()).or_exit(Exit::Failed)
    }
}

fn failed(text: impl Into<String>) -> CommandError {
    CommandError::new(Exit::Failed, text.into())
}

fn text_of(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or("nothing")
}

/// What the server is started with.
#[derive(Debug, Args)]
pub(crate) struct DemoServerArgs {
    /// The file with its code: `v1`, `v2` or anything else
    code: PathBuf,
}

/// Speaks MCP on stdin and stdout until the client is gone. Its behaviour is in a file, so that it can be given
/// new code, and code that does not start.
pub(crate) fn serve(arguments: &DemoServerArgs) -> CommandResult {
    let code = std::fs::read_to_string(&arguments.code).unwrap_or_else(|_| "v1".to_owned());
    let names: &[&str] = match code.as_str() {
        "v1" => &["hello", "crash"],
        "v2" => &["hello", "goodbye", "crash"],
        other => {
            let text = format!("the server's code, line 1: expected `v1` or `v2`, found `{other}`");
            return Err(failed(text));
        }
    };
    let mut stdout = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line.or_exit(Exit::Failed)?) else {
            continue;
        };
        let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) else {
            continue;
        };
        let tool = message["params"]["name"].as_str().unwrap_or_default();
        let result = match (method, tool) {
            ("initialize", _) => json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "afresh-demo", "version": code},
            }),
            ("tools/list", _) => {
                let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
                json!({"tools": names.iter().map(tool).collect::<Vec<_>>()})
            }
            ("tools/call", "crash") => return Ok(Exit::Failed),
            ("tools/call", _) => {
                let text = format!("{code} {}", std::process::id());
                json!({"content": [{"type": "text", "text": text}], "isError": false})
            }
            _ => json!({}),
        };
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
        writeln!(stdout, "{answer}").and_then(|()| stdout.flush()).or_exit(Exit::Failed)?;
    }
    Ok(Exit::Success)
}
