//! From the SIGKILL of a child to the next one running, against a bare loop of spawn and wait.
//!
//! "Running" is the same moment for all: a datagram that the child sends as the first thing it does.

#![expect(clippy::disallowed_types, reason = "real processes run by the real clock")]

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use afresh_tests::measure::{Report, Samples, bench};
use afresh_tests::{PATIENCE, TestEnv};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Enough for a steady median on a machine with neighbours.
const ROUNDS: usize = 400;

/// Restarts of one side in a row; then it is the next one's turn, so that noise hits all alike.
const BLOCK: usize = 10;

/// What a restart leaves to do (log, trail, reaping) is over after this, and burdens nobody else.
const SETTLE: Duration = Duration::from_millis(8);

/// On a quiet machine the p90 of the bare loop is 1.2 times its median. Beyond this, what is measured
/// are the neighbours, and it is measured again: judged by the floor alone, never by the result.
const SPREAD_MAX: f64 = 1.6;

/// After so many the last one counts, as it is.
const TRIES: usize = 3;

/// What a neighbour gets to finish.
const PAUSE: Duration = Duration::from_secs(15);

fn main() -> ExitCode {
    bench("restart: SIGKILL of the child to the new child running", run)
}

fn run(report: &mut Report) {
    let env = TestEnv::new();
    let quiet_env = TestEnv::new();
    let floor_child = Child::new(&env, "floor");
    let floor = Floor::start(&env, &floor_child);
    let kept_child = Child::new(&env, "kept");
    let mut kept = Kept::start(&env, &kept_child, None);
    let quiet_child = Child::new(&quiet_env, "quiet");
    let mut quiet = Kept::start(&quiet_env, &quiet_child, Some("/dev/null"));

    let mut sides = [
        Side::new("bare loop of spawn and wait", floor_child),
        Side::new("afresh keep", kept_child),
        Side::new("afresh keep, trail to /dev/null", quiet_child),
    ];
    for side in &mut sides {
        side.child.wait();
    }
    for tries_left in (0..TRIES).rev() {
        measure(&mut sides);
        show(report, &sides);
        let floor = &sides[0].samples;
        let spread = floor.quantile(0.9).as_secs_f64() / floor.median().as_secs_f64();
        if spread <= SPREAD_MAX {
            break;
        }
        report.note(&format!(
            "the machine is busy: the p90 of the bare loop is {spread:.1} x its median"
        ));
        if tries_left > 0 {
            std::thread::sleep(PAUSE);
        }
    }
    drop(floor);
    kept.end();
    quiet.end();
    env.assert_nothing_left();
    quiet_env.assert_nothing_left();
    let ratio = sides[1].against(&sides[0]);
    report.target("restart, x the bare loop", ratio, 1.5, "");
}

fn measure(sides: &mut [Side]) {
    for side in &mut *sides {
        side.samples = Samples::default();
    }
    for _ in 0..ROUNDS / BLOCK {
        for side in &mut *sides {
            for _ in 0..BLOCK {
                std::thread::sleep(SETTLE);
                side.samples.push(side.child.restart());
            }
        }
    }
}

fn show(report: &Report, sides: &[Side]) {
    report.row("", &["median", "p90", "x floor", "restarts"]);
    for side in sides {
        let columns = [
            millis(side.samples.median()),
            millis(side.samples.quantile(0.9)),
            format!("{:.2}", side.against(&sides[0])),
            side.samples.count().to_string(),
        ];
        report.row(side.name, &columns.each_ref().map(String::as_str));
    }
}

/// One of those that are compared.
struct Side {
    name: &'static str,
    child: Child,
    samples: Samples,
}

impl Side {
    fn new(name: &'static str, child: Child) -> Self {
        Self { name, child, samples: Samples::default() }
    }

    /// How many times the median of the other.
    fn against(&self, floor: &Self) -> f64 {
        self.samples.median().as_secs_f64() / floor.samples.median().as_secs_f64()
    }
}

fn millis(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1000.0)
}

/// A child that says when it runs.
struct Child {
    path: PathBuf,
    socket: UnixDatagram,
    pid: i32,
}

impl Child {
    fn new(env: &TestEnv, name: &str) -> Self {
        let path = env.home().join(name);
        let socket = UnixDatagram::bind(&path).expect("the home is writable");
        socket.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
        Self { path, socket, pid: 0 }
    }

    fn command(&self) -> [&Path; 3] {
        [program(), Path::new("announce"), &self.path]
    }

    fn wait(&mut self) {
        let mut pid = [0; 4];
        self.socket.recv(&mut pid).expect("a new child says that it runs");
        self.pid = i32::from_le_bytes(pid);
    }

    fn restart(&mut self) -> Duration {
        let before = self.pid;
        let start = Instant::now();
        kill(Pid::from_raw(before), Signal::SIGKILL).expect("the child lives");
        self.wait();
        let took = start.elapsed();
        assert_ne!(self.pid, before);
        took
    }
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_hostile"))
}

/// The least that restarts a child: no supervisor that uses the same calls can be faster.
struct Floor {
    over: Arc<AtomicBool>,
    pid: Arc<AtomicI32>,
    thread: Option<JoinHandle<()>>,
}

impl Floor {
    fn start(env: &TestEnv, child: &Child) -> Self {
        let [program, mode, path] = child.command();
        let mut command = Command::new(program);
        command.args([mode, path]);
        env.furnish(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let over = Arc::new(AtomicBool::new(false));
        let pid = Arc::new(AtomicI32::new(0));
        let (is_over, current) = (Arc::clone(&over), Arc::clone(&pid));
        let thread = std::thread::spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                let mut child = command.spawn().expect("the child starts");
                current.store(child.id().cast_signed(), Ordering::SeqCst);
                child.wait().expect("it is our child");
            }
        });
        Self { over, pid, thread: Some(thread) }
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let Some(thread) = self.thread.take() else {
            return;
        };
        // The loop may just have begun one more.
        while !thread.is_finished() {
            let pid = self.pid.load(Ordering::SeqCst);
            // Zero would be our own group.
            if pid > 0 {
                kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        thread.join().ok();
    }
}

/// The same under afresh.
struct Kept(std::process::Child);

impl Kept {
    fn start(env: &TestEnv, child: &Child, audit_file: Option<&str>) -> Self {
        let arguments = [
            "keep",
            "--delay",
            "0s",
            "--stable-after",
            "0s",
            "--max-restarts",
            "0",
            "--crash-loop-count",
            "0",
            "--",
        ];
        let mut command = env.afresh(&arguments);
        command.args(child.command());
        if let Some(file) = audit_file {
            command.env("AFRESH_TRAIL_AUDIT_FILE", file);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("afresh starts"))
    }

    fn end(&mut self) {
        kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM).ok();
        self.0.wait().ok();
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Its guardians end the rest.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
