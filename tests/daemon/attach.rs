//! Typing to services: over the control API, and with `afresh attach`.

use afresh_tests::api::{Answer, Api};
use afresh_tests::terminal::OnTerminal;
use afresh_tests::{Running, TestEnv, wait_for};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::{HOSTILE, stop};

/// One that says what it is told, one that never reads, and one that is down.
fn define(env: &TestEnv, more: &str) {
    let service = |name: &str, word: &str, more: &str| {
        format!("[service.{name}]\ncommand = [{HOSTILE:?}, {word:?}]\ndelay = \"0s\"\n{more}\n")
    };
    let services = [
        service("echo", "echo", ""),
        service("deaf", "idle", ""),
        service("down", "idle", "autostart = false"),
    ];
    env.write("afresh.toml", &format!("{}{more}", services.concat()));
}

/// Starts `afresh up`, and waits until both run.
fn up(env: &TestEnv) -> (Running, Api) {
    let started = env.events("server_started").len() + env.events("server_adopted").len();
    let afresh = env.start(&["up", "--listen", "0"]);
    let api = Api::of(env, &afresh);
    wait_for("both run", || {
        env.events("server_started").len() + env.events("server_adopted").len() >= started + 2
    });
    (afresh, api)
}

fn tell(api: &Api, name: &str, text: &str) -> Answer {
    api.ask(&format!("POST /v1/services/{name}/input"), text)
}

fn pid(api: &Api, name: &str) -> serde_json::Value {
    api.ask(&format!("GET /v1/services/{name}"), "").json()["pid"].clone()
}

/// Waits until a service has repeated this line.
#[track_caller]
fn wait_line(api: &Api, name: &str, text: &str) {
    wait_for(&format!("`{name}` says `{text}`"), || {
        let page = api.ask(&format!("GET /v1/services/{name}/logs?stream=stdout"), "").json();
        let mut texts = page["lines"].as_array().expect("lines").iter().map(|line| &line["text"]);
        texts.any(|line| line.as_str().is_some_and(|line| line.ends_with(&format!(": {text}"))))
    });
}

#[track_caller]
fn refused(answer: &Answer, status: u16, words: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    let what = answer.json()["error"]["what"].as_str().unwrap_or_default().to_owned();
    assert!(what.contains(words), "no `{words}`: {answer:?}");
}

#[test]
fn a_service_gets_what_is_written_to_it_across_restarts() {
    let env = TestEnv::new();
    define(&env, "");
    let (mut afresh, api) = up(&env);
    let told = tell(&api, "echo", "hello \u{1b}[1m there\n");
    let wanted = json!({"name": "echo", "pid": pid(&api, "echo"), "bytes": 17});
    assert_eq!((told.status, told.json()), (200, wanted));
    wait_line(&api, "echo", "hello \u{1b}[1m there");
    assert_eq!(env.run(&["restart", "echo"]).code, Some(0));
    assert_eq!(tell(&api, "echo", "once more\n").json()["pid"], pid(&api, "echo"));
    wait_line(&api, "echo", "once more");
    stop(&env, &mut afresh);
}

#[test]
fn what_cannot_be_written_is_refused_whole() {
    let env = TestEnv::new();
    define(&env, "");
    let (mut afresh, api) = up(&env);
    refused(&tell(&api, "nobody", "x"), 404, "no service `nobody`");
    refused(&tell(&api, "echo", ""), 400, "empty");
    refused(&tell(&api, "echo", &"x".repeat(4_097)), 413, "longer than 4096");
    refused(&tell(&api, "down", "x"), 409, "does not run");
    refused(&api.ask("GET /v1/services/echo/input", ""), 405, "this path is for POST");
    refused(&api.ask("POST /v1/services/echo/input?wait=true", "x"), 400, "wait");
    // One that does not read has a pipe that is full some time, and nobody waits for it.
    let text = "x".repeat(4_095) + "\n";
    let mut taken = 0;
    let full = loop {
        let answer = tell(&api, "deaf", &text);
        if answer.status != 200 {
            break answer;
        }
        taken += 1;
        assert!(taken < 1_000, "no pipe has so much room");
    };
    refused(&full, 409, "does not read its stdin");
    assert!(taken > 0);
    refused(&tell(&api, "deaf", &text), 409, "nothing was written");
    assert_eq!(tell(&api, "echo", "still here\n").status, 200);
    wait_line(&api, "echo", "still here");
    stop(&env, &mut afresh);
}

#[test]
fn the_stdin_of_others_is_theirs() {
    let env = TestEnv::new();
    let mut keep = env.start(&["keep", "--listen", "0", "--name", "web", "--", HOSTILE, "echo"]);
    let api = Api::of(&env, &keep);
    keep.wait_started(1);
    refused(&tell(&api, "web", "x"), 409, "fed from that of its `afresh keep`");
    let attach = env.run(&["attach", "web"]);
    assert_eq!(attach.code, Some(1), "{attach:?}");
    assert!(attach.stderr.contains("afresh logs -f web"), "{attach:?}");
    stop(&env, &mut keep);
    let server = env!("CARGO_BIN_EXE_mcp-server");
    let mut mcp = env.start(&["mcp", "--name", "tools", "--", server]);
    wait_for("its socket", || env.sockets().len() == 1);
    let api = Api::Socket(env.sockets().remove(0));
    refused(&tell(&api, "tools", "x"), 409, "belongs to its MCP client");
    mcp.close_stdin();
    mcp.wait();
    env.assert_nothing_left();
}

#[test]
fn stdin_outlives_a_supervisor_that_is_killed() {
    let env = TestEnv::new();
    define(&env, "[daemon]\non_supervisor_death = \"keep\"\n");
    let (mut afresh, api) = up(&env);
    let before = pid(&api, "echo");
    assert_eq!(tell(&api, "echo", "before\n").status, 200);
    wait_line(&api, "echo", "before");
    afresh.signal(Signal::SIGKILL);
    afresh.wait();
    let (mut afresh, api) = up(&env);
    assert_eq!(tell(&api, "echo", "after\n").json()["pid"], before);
    wait_line(&api, "echo", "after");
    stop(&env, &mut afresh);
}

#[test]
fn who_is_attached_sees_and_types_and_leaves() {
    let env = TestEnv::new();
    define(&env, "");
    let (mut afresh, api) = up(&env);
    assert_eq!(tell(&api, "echo", "from before\n").status, 200);
    wait_line(&api, "echo", "from before");
    let attach = |words: &[&str]| {
        let mut command = env.afresh(&[&["attach"], words].concat());
        command.env("TERM", "xterm");
        OnTerminal::start(command, 80, 24)
    };
    let mut terminal = attach(&["echo"]);
    terminal.wait_seen("Ctrl+D detaches");
    terminal.wait_seen("from before");
    terminal.press("typed\n");
    terminal.wait_seen("1: typed");
    assert_eq!(env.run(&["restart", "echo"]).code, Some(0));
    terminal.wait_seen("[afresh] echo started (pid ");
    terminal.press("again\n");
    terminal.wait_seen("2: again");
    let pid_before = pid(&api, "echo");
    terminal.press("\u{4}");
    assert_eq!(terminal.wait().code(), Some(0));
    terminal.wait_seen("detached from `echo`, which goes on");
    // Ctrl+C is the same.
    let mut terminal = attach(&["echo"]);
    terminal.wait_seen("Ctrl+D detaches");
    terminal.wait_seen("again");
    terminal.signal(Signal::SIGINT);
    assert_eq!(terminal.wait().code(), Some(0));
    terminal.wait_seen("detached from `echo`, which goes on");
    assert_eq!(pid(&api, "echo"), pid_before);
    // What cannot be typed is said, and those who are attached hear of the end.
    let mut idle = attach(&["down", "-n", "0"]);
    idle.wait_seen("Ctrl+D detaches");
    idle.press("x\n");
    idle.wait_seen("`down` does not run");
    stop(&env, &mut afresh);
    assert_eq!(idle.wait().code(), Some(0));
    idle.wait_seen("the afresh that keeps `down` has ended");
}

#[test]
fn a_script_can_type_too() {
    let env = TestEnv::new();
    define(&env, "");
    let (mut afresh, api) = up(&env);
    let mut attach = env.start(&["attach", "echo"]);
    attach.write("one\ntwo");
    attach.close_stdin();
    assert_eq!(attach.wait().code(), Some(0), "{}", attach.stderr());
    wait_line(&api, "echo", "one");
    assert_eq!(tell(&api, "echo", " and a half\n").status, 200);
    wait_line(&api, "echo", "two and a half");
    let mut attach = env.start(&["attach", "down"]);
    attach.write("one\n");
    assert_eq!(attach.wait().code(), Some(1), "{}", attach.stderr());
    assert!(attach.stderr().contains("`down` does not run"), "{}", attach.stderr());
    assert_eq!(env.run(&["attach", "nobody"]).code, Some(4));
    stop(&env, &mut afresh);
}
