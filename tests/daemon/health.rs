//! Health checks against a real service: when it is ready, when it is only busy, and when it is dead.

use std::net::TcpListener;
use std::path::PathBuf;

use afresh_tests::{Running, TestEnv, stop_short, wait_for};
use nix::sys::signal::Signal;

use crate::{HOSTILE, stop};

/// A server that is as well as a file says.
const SERVER: &str = env!("CARGO_BIN_EXE_http-server");

/// Flags for checks without waits, unless a test has others.
const QUICK: [&str; 10] = [
    "--name",
    "web",
    "--health-interval",
    "30ms",
    "--health-timeout",
    "400ms",
    "--stop-timeout",
    "100ms",
    "--delay",
    "10ms",
];

/// Flags for services that fail only by what they say, until the test lets them recover, however busy the machine is.
const PATIENT: [&str; 4] = ["--health-failures", "1000", "--health-timeout", "30s"];

/// A server under `afresh keep`, and the file that says how it is.
struct Web {
    env: TestEnv,
    afresh: Running,
    file: PathBuf,
}

impl Web {
    /// Starts it in this mode. `{port}` in the flags is its port.
    fn start(mode: &str, flags: &[&str]) -> Self {
        let env = TestEnv::new();
        let file = env.write("mode", mode);
        let port = free_port().to_string();
        let flags: Vec<String> = flags.iter().map(|flag| flag.replace("{port}", &port)).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let command = ["--", SERVER, &port, "mode"];
        let quick = QUICK.chunks(2).filter(|pair| !flags.contains(&pair[0])).flatten().copied();
        let quick: Vec<&str> = quick.collect();
        let afresh = env.start(&[&["keep"], &quick[..], &flags, &command].concat());
        afresh.wait_stdout("up ", 1);
        Self { env, afresh, file }
    }

    /// With a check of its JSON.
    fn checked(mode: &str) -> Self {
        let url = "http://localhost:{port}/global/health";
        Self::start(mode, &["--health-http", url, "--health-json", "healthy=true"])
    }

    fn turn(&self, mode: &str) {
        // At once, so that nobody reads half of it.
        let new = self.env.write("mode.new", mode);
        std::fs::rename(new, &self.file).expect("ours");
    }

    fn status(&self) -> serde_json::Value {
        let done = self.env.run(&["status", "web", "--json"]);
        serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"))
    }

    #[track_caller]
    fn wait_state(&self, state: &str) -> serde_json::Value {
        let mut last = serde_json::Value::Null;
        wait_for(state, || {
            let status = self.status();
            last = status.get(0).unwrap_or(&status).clone();
            last["state"] == state
        });
        last
    }

    /// Waits for so many records, and returns the last of them.
    #[track_caller]
    fn wait_event(&self, event_type: &str, count: usize) -> serde_json::Value {
        wait_for(event_type, || self.env.events(event_type).len() >= count);
        self.env.events(event_type)[count - 1]["props"].clone()
    }

    fn starts(&self) -> usize {
        self.env.events("server_started").len()
    }

    #[track_caller]
    fn stop(mut self) {
        stop(&self.env, &mut self.afresh);
    }
}

/// A port that is free now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is one");
    listener.local_addr().expect("it has one").port()
}

#[test]
fn it_is_ready_with_the_first_good_answer_and_not_before() {
    // O8 O9
    let web = Web::checked("closed");
    let status = web.wait_state("starting");
    assert_eq!(status["health"]["state"], "starting");
    // A page for every path, as single-page applications have it.
    web.turn("html");
    web.afresh.wait_stdout("html: GET /global/health HTTP/1.1", 3);
    let status = web.wait_state("starting");
    let why = status["health"]["last_error"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("not with JSON"), "{why}");
    web.turn("healthy");
    let status = web.wait_state("ready");
    assert_eq!(status["health"]["state"], "healthy");
    assert!(status["health"]["latency_ms"].is_u64() && status["health"]["checked_at"].is_string());
    web.wait_event("health_ready", 1);
    assert_eq!(web.env.events("health_ready").len(), 1);
    assert_eq!(web.env.events("health_check_failed").len(), 0, "before it is ready, nothing fails");
    assert_eq!(web.starts(), 1);
    web.stop();
}

#[test]
fn enough_failures_in_a_row_count_as_a_crash() {
    // O8 O9
    let web = Web::checked("healthy");
    web.wait_event("health_ready", 1);
    web.turn("unhealthy");
    let crash = web.wait_event("server_crashed", 1);
    assert_eq!(crash["ending"], "health_failed");
    let failed = web.env.events("health_check_failed");
    assert_eq!(failed.len(), 3, "{failed:?}");
    assert_eq!(failed[2]["props"]["error"], "`healthy` is false, not true");
    assert_eq!(web.env.events("health_degraded").len(), 1);
    web.turn("healthy");
    web.wait_event("health_ready", 2);
    assert!(web.starts() >= 2);
    web.wait_state("ready");
    web.stop();
}

#[test]
fn a_service_that_is_stopped_is_found() {
    let web = Web::checked("healthy");
    web.wait_event("health_ready", 1);
    let pid = web.env.wait_for_pid("server_started", 1);
    stop_short(pid);
    let crash = web.wait_event("server_crashed", 1);
    assert_eq!(crash["ending"], "health_failed");
    // Its socket takes connections, but nobody answers.
    let failed = web.env.events("health_check_failed");
    assert_eq!(failed.len(), 3, "{failed:?}");
    assert_eq!(failed[0]["props"]["error"], "no answer within 400 ms");
    web.wait_event("health_ready", 2);
    web.stop();
}

#[test]
fn a_service_that_is_busy_is_degraded_and_lives() {
    let web = Web::checked("healthy");
    web.wait_event("health_ready", 1);
    web.turn("busy");
    web.wait_state("degraded");
    web.wait_event("health_check_failed", 4);
    web.turn("healthy");
    web.wait_event("health_recovered", 1);
    web.wait_state("ready");
    assert_eq!(web.starts(), 1);
    // But not for ever.
    web.turn("busy");
    let crash = web.wait_event("server_crashed", 1);
    assert_eq!(crash["ending"], "health_failed");
    web.turn("healthy");
    web.wait_event("health_ready", 2);
    web.stop();
}

#[test]
fn a_service_that_says_that_it_is_busy_is_given_time() {
    let web = Web::checked("healthy");
    web.wait_event("health_ready", 1);
    web.turn("busy-said");
    let failed = web.wait_event("health_check_failed", 4);
    assert_eq!(failed["error"], "it answered with status 503");
    web.wait_event("server_crashed", 1);
    web.turn("healthy");
    web.wait_event("health_ready", 2);
    assert_eq!(web.env.events("health_check_failed").len(), 6);
    web.stop();
}

#[test]
fn a_slow_start_is_not_killed_and_one_without_end_is() {
    let web = Web::checked("silent");
    web.afresh.wait_stdout("silent: GET", 1);
    // Longer than it would take to be killed, had it been ready before.
    let status = || web.status().to_string();
    wait_for("an answer that did not come", || status().contains("no answer within"));
    web.afresh.wait_stdout("silent: GET", 1);
    web.turn("healthy");
    web.wait_event("health_ready", 1);
    assert_eq!(web.starts(), 1);
    web.stop();

    let url = "http://localhost:{port}/";
    let web = Web::start("closed", &["--health-http", url, "--ready-timeout", "200ms"]);
    web.wait_event("server_crashed", 1);
    web.afresh.wait_stderr(
        "health check failed: not ready within 200 ms, the last check: no process listens",
        1,
    );
    web.turn("healthy");
    web.wait_event("health_ready", 1);
    web.stop();
}

#[test]
fn answers_that_are_none_are_failures_that_are_explained() {
    let web = Web::checked("closed");
    for (mode, why) in [
        ("garbage", "not HTTP"),
        ("cut", "broke the connection off"),
        ("huge", "longer than 1048576 bytes"),
        ("redirect", "status 302"),
        ("nothing-known", "status 500"),
    ] {
        web.turn(mode);
        let status = || web.status().to_string();
        wait_for(mode, || status().contains(why));
    }
    assert_eq!((web.starts(), web.env.events("health_ready").len()), (1, 0));
    web.stop();
}

#[test]
fn mcp_servers_of_every_era_are_asked() {
    for (mode, question) in
        [("mcp-plain", "ping"), ("mcp-stream", "ping"), ("mcp-modern", "server/discover")]
    {
        let check = ["--health-mcp", "http://127.0.0.1:{port}/mcp"];
        let web = Web::start(mode, &[&check[..], &PATIENT].concat());
        web.wait_event("health_ready", 1);
        web.afresh.wait_stdout(&format!("{mode} {question}"), 4);
        let asked = web.afresh.stdout();
        assert_eq!(asked.matches(&format!("{mode} initialize")).count(), 1, "{asked}");
        // It has forgotten its session, or is another server: it is asked anew.
        if mode == "mcp-plain" {
            web.turn("unhealthy");
            web.wait_event("health_check_failed", 1);
            web.turn(mode);
            web.wait_event("health_recovered", 1);
        }
        assert_eq!(web.starts(), 1);
        web.stop();
    }
}

#[test]
fn a_connection_or_a_command_can_be_the_check() {
    let web = Web::start("healthy", &["--health-tcp", "localhost:{port}"]);
    web.wait_event("health_ready", 1);
    web.stop();
    let check = ["--health-exec", "test -e sign"];
    let web = Web::start("closed", &[&check[..], &PATIENT].concat());
    wait_for("the check has failed", || web.status().to_string().contains("exited with code 1"));
    web.env.write("sign", "");
    web.wait_event("health_ready", 1);
    std::fs::remove_file(web.env.work().join("sign")).expect("ours");
    web.wait_event("health_check_failed", 1);
    web.env.write("sign", "");
    web.wait_event("health_recovered", 1);
    web.stop();
}

#[test]
fn a_check_that_hangs_leaves_no_process() {
    let check = format!("{HOSTILE} ignores-term-family");
    let web = Web::start("closed", &["--health-exec", &check]);
    let checks = || {
        let alive = web.env.alive();
        alive.iter().filter(|process| process.command.starts_with(HOSTILE)).count()
    };
    for _ in 0..2 {
        wait_for("a check runs", || checks() > 0);
        wait_for("it is gone with its family", || checks() == 0);
    }
    let status = web.status().to_string();
    assert!(status.contains("and was killed"), "{status}");
    wait_for("a check runs", || checks() > 0);
    web.stop();
}

#[test]
fn a_port_that_is_taken_is_said_before_the_start() {
    let env = TestEnv::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let port = listener.local_addr().expect("it has one").port().to_string();
    env.write("mode", "healthy");
    let flags = ["--port", &port, "--health-http", &format!("http://localhost:{port}/")];
    let command = ["--max-delay", "20ms", "--crash-loop-count", "0", "--max-restarts", "0", "--"];
    let command = [&command[..], &[SERVER, &port, "mode"]].concat();
    let mut afresh = env.start(&[&["keep"], &QUICK[..], &flags, &command].concat());
    let own = std::process::id();
    afresh.wait_stderr(&format!("port {port} on localhost is taken by pid {own} ("), 2);
    assert!(afresh.stderr().contains("stop it, or set another port"), "{}", afresh.stderr());
    assert_eq!(env.events("server_started").len(), 0);
    drop(listener);
    wait_for("it starts", || env.events("health_ready").len() == 1);
    // Its own connections and its own predecessor do not stand in its way.
    afresh.signal(Signal::SIGUSR1);
    wait_for("it starts again", || env.events("health_ready").len() == 2);
    stop(&env, &mut afresh);
}
