//! What the tests share: a workspace of their own, the `afresh` binary, and waiting for a state.
//!
//! Every test ends by showing that no process of its own is alive: each process that a test starts
//! carries the test's mark in its environment, and inherits it to whatever it starts.

#![expect(clippy::disallowed_types, reason = "real processes run by the real clock")]

pub mod api;
pub mod connection;
pub mod grid;
pub mod http_client;
pub mod mcp;
pub mod measure;
pub mod process;
pub mod receiver;
pub mod terminal;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// No state that a test waits for takes longer, however loaded the machine is.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of its own, which is a workspace, and the mark of all processes started in it.
#[derive(Debug)]
pub struct TestEnv {
    root: PathBuf,
    mark: String,
    /// Whether control sockets are looked for in this test's own folder alone.
    has_own_sockets: bool,
    /// Whether commands accept what the workspace's files ask for, as they do in CI.
    has_trust: bool,
}

impl Default for TestEnv {
    fn default() -> Self {
        Self::new()
    }
}

impl TestEnv {
    /// A new, empty workspace.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // A killed run of the tests may have left folders and processes, and pids are used again.
        let (mark, root) = loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let mark = format!("{}-{count}", std::process::id());
            let root = std::env::temp_dir().join(format!("afresh-test-{mark}"));
            match fs::create_dir(&root) {
                Ok(()) => break (mark, root),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("cannot create `{}`: {error}", root.display()),
            }
        };
        for folder in ["work/.afresh", "home", "run", "tmp"] {
            fs::create_dir_all(root.join(folder)).expect("the temp folder is writable");
        }
        Self { root, mark, has_own_sockets: true, has_trust: true }
    }

    /// The same with the folders for control sockets that a user without `AFRESH_RUNTIME_DIR` has: one
    /// of them is shared with all afresh processes of this user.
    pub fn with_shared_sockets() -> Self {
        let mut env = Self::new();
        env.has_own_sockets = false;
        env
    }

    /// The same for a user who has not accepted anything that the files of the workspace ask for.
    pub fn without_trust() -> Self {
        let mut env = Self::new();
        env.has_trust = false;
        env
    }

    /// The workspace.
    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// The home directory of what runs here.
    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// The runtime folder of what runs here.
    pub fn runtime(&self) -> PathBuf {
        self.root.join("run")
    }

    /// The control sockets of what runs here.
    pub fn sockets(&self) -> Vec<PathBuf> {
        let found = fs::read_dir(self.runtime().join("afresh")).into_iter().flatten().flatten();
        let paths = found.map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|kind| kind == "sock")).collect()
    }

    /// The trail of the workspace.
    pub fn audit_file(&self) -> PathBuf {
        self.work().join(".afresh/audit.jsonl")
    }

    /// Writes a file of the workspace.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.work().join(name);
        fs::write(&path, text).expect("the workspace is writable");
        path
    }

    /// An `afresh` command with this environment, ready for arguments. Those that use what a project's files ask for
    /// accept it.
    pub fn afresh(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(afresh_binary());
        command.args(arguments.first());
        let asks = matches!(arguments.first(), Some(&("gateway" | "up" | "hooks")));
        command.args((asks && self.has_trust).then_some("--trust"));
        command.args(arguments.iter().skip(1));
        self.furnish(&mut command);
        command
    }

    /// Gives a command this workspace, home and mark, and the signals of a command in the foreground.
    pub fn furnish(&self, command: &mut Command) {
        default_signals();
        command.current_dir(self.work()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.home()).env("AFRESH_TEST_MARK", &self.mark);
        command.env("TMPDIR", self.root.join("tmp")).env("XDG_RUNTIME_DIR", self.runtime());
        if self.has_own_sockets {
            command.env("AFRESH_RUNTIME_DIR", self.runtime().join("afresh"));
        }
    }

    /// Runs `afresh` to its end.
    pub fn run(&self, arguments: &[&str]) -> Finished {
        let output = self.afresh(arguments).stdin(Stdio::null()).output().expect("afresh runs");
        Finished {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Starts `afresh` and goes on.
    pub fn start(&self, arguments: &[&str]) -> Running {
        Running::start(self.afresh(arguments))
    }

    /// The records of the trail, with all of its rotated files. Panics at a line that is no record.
    pub fn records(&self) -> Vec<serde_json::Value> {
        records_of(&self.audit_file())
    }

    /// The records of one type.
    pub fn events(&self, event_type: &str) -> Vec<serde_json::Value> {
        let mut records = self.records();
        records.retain(|record| record["props"]["event_type"] == event_type);
        records
    }

    /// Waits until there are so many records of one type, and returns the process id in the last.
    #[track_caller]
    pub fn wait_for_pid(&self, event_type: &str, records: usize) -> i32 {
        wait_for(event_type, || self.events(event_type).len() >= records);
        let pid = self.events(event_type)[records - 1]["props"]["pid"].as_i64();
        i32::try_from(pid.expect("a pid")).expect("a pid")
    }

    /// Processes started here that are alive, zombies not counted.
    pub fn alive(&self) -> Vec<process::Process> {
        process::marked(&self.mark)
    }

    /// Waits until no process of this test is alive.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        let gone = reaches(|| self.alive().is_empty());
        assert!(gone, "not within {PATIENCE:?}: nothing is left, but {:#?}", self.alive());
    }
}

impl Drop for TestEnv {
    fn drop(&mut self) {
        let left = self.alive();
        for process in &left {
            process.signal(nix::sys::signal::Signal::SIGKILL);
        }
        fs::remove_dir_all(&self.root).ok();
        if !std::thread::panicking() {
            assert!(left.is_empty(), "the test left processes behind: {left:?}");
        }
    }
}

/// Stops a process; it does nothing more when this returns.
#[track_caller]
pub fn stop_short(pid: i32) {
    let signal = nix::sys::signal::Signal::SIGSTOP;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).expect("it runs");
    wait_for("it stands still", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    });
}

/// The records of a trail, oldest first.
pub fn records_of(audit_file: &Path) -> Vec<serde_json::Value> {
    let name = audit_file.file_name().expect("a file").to_string_lossy().into_owned();
    let rotated = (1..).map(|n| audit_file.with_file_name(format!("{name}.{n}")));
    let mut files: Vec<PathBuf> = rotated.take_while(|path| path.exists()).collect();
    files.reverse();
    files.push(audit_file.to_owned());
    let text: String =
        files.iter().map(|file| fs::read_to_string(file).unwrap_or_default()).collect();
    // A line that crosses the end of a page can be seen while it is written, and is torn there by
    // SIGKILL; the next start repairs it. Anywhere else it is an error.
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let parse = |line: &str| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("not a record: {line}: {error}"))
    };
    text[..whole].lines().map(parse).collect()
}

/// What a command left.
#[derive(Debug)]
pub struct Finished {
    /// Its exit code; none where a signal ended it.
    pub code: Option<i32>,
    /// All of its output.
    pub stdout: String,
    /// All of its other output.
    pub stderr: String,
}

/// A command that runs; its output is collected as it comes.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
}

impl Running {
    /// Starts a command with all streams piped.
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let stdout = collect(child.stdout.take().expect("it is piped"));
        let stderr = collect(child.stderr.take().expect("it is piped"));
        Self { child, stdout, stderr }
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        // It may be gone already: then there is nothing to do.
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), signal).ok();
    }

    /// Writes to its stdin.
    pub fn write(&mut self, text: &str) {
        let stdin = self.child.stdin.as_mut().expect("stdin is open");
        stdin.write_all(text.as_bytes()).and_then(|()| stdin.flush()).expect("it reads");
    }

    /// Closes its stdin.
    pub fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    /// What it has printed so far.
    pub fn stdout(&self) -> String {
        self.stdout.lock().expect("no reader panics").clone()
    }

    /// What it has logged so far.
    pub fn stderr(&self) -> String {
        self.stderr.lock().expect("no reader panics").clone()
    }

    /// Waits until it has printed this so many times.
    #[track_caller]
    pub fn wait_stdout(&self, text: &str, times: usize) {
        wait_for(&format!("`{text}` on stdout, {times} times"), || {
            self.stdout().matches(text).count() >= times
        });
    }

    /// The same of something that takes long: it may take longer as long as more is logged meanwhile.
    #[track_caller]
    pub fn wait_stdout_at_work(&self, text: &str, times: usize) {
        let is_there = || self.stdout().matches(text).count() >= times;
        let mut logged = self.stderr().len();
        while !reaches(is_there) {
            let now = self.stderr().len();
            assert!(now > logged, "not within {PATIENCE:?}: `{text}` on stdout, {times} times");
            logged = now;
        }
    }

    /// Waits until it has logged this so many times.
    #[track_caller]
    pub fn wait_stderr(&self, text: &str, times: usize) {
        let found = reaches(|| self.stderr().matches(text).count() >= times);
        assert!(found, "waited for `{text}` on stderr, {times} times; it has:\n{}", self.stderr());
    }

    /// Waits until this many instances have been reported as started.
    #[track_caller]
    pub fn wait_started(&self, instances: usize) {
        self.wait_stderr("started (pid ", instances + 1);
    }

    /// How it ended, if it has.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is our child")
    }

    /// Waits for its end and for the end of its output. Returns all that it has printed.
    #[track_caller]
    pub fn wait_output(&mut self) -> String {
        self.wait();
        // Whoever collects has the other one.
        wait_for("all output is collected", || Arc::strong_count(&self.stdout) == 1);
        self.stdout()
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_for("the command ends", || {
            status = self.try_wait();
            status.is_some()
        });
        // The collectors hold the other ones up to the ends of the pipes, which a process that outlives the
        // command keeps open.
        let is_collected =
            || [&self.stdout, &self.stderr].iter().all(|text| Arc::strong_count(text) == 1);
        let deadline = Instant::now() + Duration::from_secs(2);
        while !is_collected() && Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        status.expect("just seen")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn collect(stream: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&text);
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        loop {
            let length = match reader.fill_buf() {
                Ok([]) | Err(_) => return,
                Ok(bytes) => {
                    let mut sink = sink.lock().expect("no reader panics");
                    sink.push_str(&String::from_utf8_lossy(bytes));
                    bytes.len()
                }
            };
            reader.consume(length);
        }
    });
    text
}

/// Waits for a state, with a deadline.
#[track_caller]
pub fn wait_for(what: &str, reached: impl FnMut() -> bool) {
    assert!(reaches(reached), "not within {PATIENCE:?}: {what}");
}

/// Whether a state is reached before the deadline, for those who say more about it when it is not.
pub fn reaches(mut reached: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        if Instant::now() > deadline {
            return false;
        }
        // Only paces the looking: what is waited for is the state.
        std::thread::park_timeout(Duration::from_millis(2));
    }
    true
}

/// A shell without job control starts `cargo test &` with SIGINT and SIGQUIT ignored, `nohup` starts it with SIGHUP
/// ignored, and commands inherit that. Tests that send them need the default, which commands have where this process has
/// a handler; the handler does nothing, so that this process still ignores them.
fn default_signals() {
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    extern "C" fn nothing(_: i32) {}
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        for number in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
            let handler = SigHandler::Handler(nothing);
            let ours = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
            // SAFETY: the handler runs no code, and the action before is put back as it was.
            #[expect(unsafe_code, reason = "nix cannot know what a handler does")]
            unsafe {
                let before = sigaction(number, &ours).expect("these signals can be handled");
                if !matches!(before.handler(), SigHandler::SigIgn) {
                    sigaction(number, &before).expect("these signals can be handled");
                }
            }
        }
    });
}

/// The `afresh` binary of this build.
pub fn afresh_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let test = std::env::current_exe().expect("a test has a path");
        let target = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/test");
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.args(["build", "--quiet", "--package", "afresh"]);
        build.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        // What cargo says to a test is of the test's package: build scripts that look at it would run anew.
        let is_of_package =
            |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(is_of_package) {
                build.env_remove(name);
            }
        }
        if target.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().is_ok_and(|status| status.success()), "afresh does not build");
        target.join("afresh")
    })
}
