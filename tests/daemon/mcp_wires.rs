//! The pipes of `afresh mcp`: of every kind, flooded, never read, closed early, and with lines that
//! are too long.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use afresh_tests::{TestEnv, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const SERVER: &str = env!("CARGO_BIN_EXE_mcp-server");

const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n"
);

fn mcp(env: &TestEnv, mode: &str) -> Command {
    let mut command = env.afresh(&["mcp", "--", SERVER, mode]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

fn call(id: u64, name: &str, arguments: &Value) -> String {
    let params = json!({"name": name, "arguments": arguments});
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
}

/// The next message that answers a request; what the server tells is passed over.
fn hear(reader: &mut impl BufRead) -> Value {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("text");
        let message: Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("not a message: {line:?}: {error}"));
        if message["id"] != Value::Null {
            return message;
        }
    }
}

fn text_of(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// Waits for the end of afresh, and sees that nothing is left.
#[track_caller]
fn ends(env: &TestEnv, child: &mut Child, code: Option<i32>) {
    let mut status = None;
    wait_for("afresh ends", || {
        status = child.try_wait().expect("our child");
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), code);
    env.assert_nothing_left();
}

/// What afresh has in memory besides its own code, in kB: how much of that is there says nothing.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).expect("a number")
}

/// How long it has been on a CPU, in clock ticks.
fn ticks(pid: u32) -> u64 {
    afresh_tests::measure::Activity::of([pid.cast_signed()].into_iter()).ticks
}

#[test]
fn a_client_can_be_connected_by_sockets() {
    // As Node connects what it starts.
    let env = TestEnv::new();
    let (mut to, stdin) = UnixStream::pair().expect("a pair");
    let (from, stdout) = UnixStream::pair().expect("a pair");
    let mut command = mcp(&env, "");
    command.stdin(OwnedFd::from(stdin)).stdout(OwnedFd::from(stdout));
    let mut child = command.spawn().expect("it starts");
    drop(command);
    let mut from = BufReader::new(from);
    to.write_all(INITIALIZE.as_bytes()).expect("afresh reads");
    assert_eq!(hear(&mut from)["id"], 1);
    let long = "y".repeat(3 * 1024 * 1024);
    for id in 2..5 {
        to.write_all(call(id, "echo", &json!({"text": long})).as_bytes()).expect("afresh reads");
        assert_eq!(text_of(&hear(&mut from)).len(), long.len());
    }
    drop(to);
    ends(&env, &mut child, Some(0));
}

#[test]
fn one_socket_can_be_both_and_the_flags_of_no_description_change() {
    let env = TestEnv::new();
    let (client, server) = UnixStream::pair().expect("a pair");
    let shared = OwnedFd::from(server);
    let mut command = mcp(&env, "");
    command.stdin(shared.try_clone().expect("a copy")).stdout(shared.try_clone().expect("a copy"));
    let mut child = command.spawn().expect("it starts");
    drop(command);
    let mut reader = BufReader::new(client.try_clone().expect("a copy"));
    let mut writer = client;
    writer.write_all(INITIALIZE.as_bytes()).expect("afresh reads");
    assert_eq!(hear(&mut reader)["id"], 1);
    let flags = nix::fcntl::fcntl(&shared, nix::fcntl::FcntlArg::F_GETFL).expect("it is open");
    assert_eq!(flags & nix::libc::O_NONBLOCK, 0);
    drop(shared);
    writer.shutdown(std::net::Shutdown::Write).expect("it is open");
    ends(&env, &mut child, Some(0));
}

#[test]
fn a_pipe_that_others_share_stays_as_it_was() {
    let env = TestEnv::new();
    let (stdin, mut to) = std::io::pipe().expect("a pipe");
    let (from, stdout) = std::io::pipe().expect("a pipe");
    let mut command = mcp(&env, "");
    command.stdin(stdin.try_clone().expect("a copy")).stdout(stdout.try_clone().expect("a copy"));
    let mut child = command.spawn().expect("it starts");
    drop(command);
    let mut from = BufReader::new(from);
    to.write_all(INITIALIZE.as_bytes()).expect("afresh reads");
    assert_eq!(hear(&mut from)["id"], 1);
    let flags = |fd: &dyn std::os::fd::AsFd| {
        nix::fcntl::fcntl(fd.as_fd(), nix::fcntl::FcntlArg::F_GETFL).expect("it is open")
    };
    assert_eq!((flags(&stdin) | flags(&stdout)) & nix::libc::O_NONBLOCK, 0);
    drop((to, stdout));
    ends(&env, &mut child, Some(0));
}

#[test]
fn a_client_can_be_a_file() {
    let env = TestEnv::new();
    let script = env.write("requests", &[INITIALIZE, &call(2, "pid", &json!({}))].concat());
    let answers = env.work().join("answers");
    let mut command = mcp(&env, "");
    command.stdin(File::open(script).expect("it is there"));
    command.stdout(File::create(&answers).expect("it is writable"));
    let mut child = command.spawn().expect("it starts");
    ends(&env, &mut child, Some(0));
    // The end of the file is the end of the client: what came in time is there, and whole.
    let text = fs::read_to_string(answers).expect("it is there");
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
}

#[test]
fn a_client_that_is_gone_at_once_leaves_nothing() {
    let env = TestEnv::new();
    for stdin in [Stdio::null(), Stdio::piped()] {
        let mut command = mcp(&env, "");
        let mut child = command.stdin(stdin).spawn().expect("it starts");
        drop((child.stdin.take(), child.stdout.take()));
        ends(&env, &mut child, Some(0));
    }
}

#[test]
fn a_client_that_reads_no_more_is_gone_though_nothing_is_said() {
    let env = TestEnv::new();
    let (from, stdout) = UnixStream::pair().expect("a pair");
    for by_socket in [false, true] {
        let mut command = mcp(&env, "");
        if by_socket {
            command.stdout(OwnedFd::from(stdout.try_clone().expect("a copy")));
        }
        let mut child = command.spawn().expect("it starts");
        drop(command);
        let stdin = child.stdin.as_mut().expect("it is piped");
        stdin.write_all(INITIALIZE.as_bytes()).expect("afresh reads");
        if by_socket {
            assert_eq!(hear(&mut BufReader::new(&from))["id"], 1);
            from.shutdown(std::net::Shutdown::Both).expect("it is open");
        } else {
            let stdout = child.stdout.take().expect("it is piped");
            assert_eq!(hear(&mut BufReader::new(stdout))["id"], 1);
        }
        // Its stdin stays open.
        ends(&env, &mut child, Some(0));
    }
}

#[test]
fn a_client_that_never_reads_costs_no_memory() {
    let env = TestEnv::new();
    let mut child = mcp(&env, "floods").spawn().expect("it starts");
    let stdin = child.stdin.as_mut().expect("it is piped");
    stdin.write_all(INITIALIZE.as_bytes()).expect("afresh reads");
    // At rest when all buffers are full: nobody runs any more.
    let mut before = u64::MAX;
    let mut same = 0;
    wait_for("all buffers are full", || {
        let now = ticks(child.id());
        same = if now == before { same + 1 } else { 0 };
        before = now;
        same > 100
    });
    let kilobytes = resident(child.id());
    assert!(kilobytes < 8 * 1024, "{kilobytes} kB");
    // Then it reads after all, and hears its answer behind the flood.
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    assert_eq!(hear(&mut stdout)["id"], 1);
    drop((child.stdin.take(), stdout));
    ends(&env, &mut child, Some(0));
}

#[test]
fn a_million_notifications_are_passed_on_in_little_memory() {
    let env = TestEnv::new();
    let mut child = mcp(&env, "").spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    stdin.write_all(INITIALIZE.as_bytes()).expect("afresh reads");
    assert_eq!(hear(&mut stdout)["id"], 1);
    let line = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n";
    let thousand = line.repeat(1_000);
    let mut most = 0;
    for _ in 0..1_000 {
        stdin.write_all(thousand.as_bytes()).expect("afresh reads");
        most = most.max(resident(child.id()));
    }
    stdin.write_all(call(2, "pid", &json!({})).as_bytes()).expect("afresh reads");
    assert_eq!(hear(&mut stdout)["id"], 2);
    assert!(most < 8 * 1024, "{most} kB");
    drop(stdin);
    ends(&env, &mut child, Some(0));
}

#[test]
fn a_line_that_is_too_long_is_answered_whoever_sends_it() {
    const BYTES: usize = 100 * 1024 * 1024;
    let env = TestEnv::new();
    let mut child = mcp(&env, "").spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    stdin.write_all(INITIALIZE.as_bytes()).expect("afresh reads");
    assert_eq!(hear(&mut stdout)["id"], 1);
    let limit = (64 * 1024 * 1024).to_string();
    // From the server.
    stdin.write_all(call(2, "big", &json!({"bytes": BYTES})).as_bytes()).expect("afresh reads");
    let answer = hear(&mut stdout);
    assert_eq!(answer["id"], 2);
    assert!(text_of(&answer).contains(&limit), "{answer}");
    // From the client, with the id at either end.
    let text = "y".repeat(BYTES);
    let params = format!(r#""params":{{"name":"echo","arguments":{{"text":"{text}"}}}}"#);
    let method = r#""method":"tools/call""#;
    for (id, line) in [
        (3, format!("{{\"jsonrpc\":\"2.0\",\"id\":3,{method},{params}}}\n")),
        (4, format!("{{{method},{params},\"jsonrpc\":\"2.0\",\"id\":4}}\n")),
    ] {
        stdin.write_all(line.as_bytes()).expect("afresh reads");
        let answer = hear(&mut stdout);
        assert_eq!(answer["id"], id);
        assert!(text_of(&answer).contains(&limit), "{answer}");
    }
    // And the connection works.
    stdin.write_all(call(5, "pid", &json!({})).as_bytes()).expect("afresh reads");
    assert!(text_of(&hear(&mut stdout)).parse::<i32>().is_ok());
    drop(stdin);
    ends(&env, &mut child, Some(0));
}

#[test]
fn what_a_server_said_before_its_end_is_heard_and_who_holds_its_pipe_is_not_waited_for() {
    let env = TestEnv::new();
    let mut child = mcp(&env, "").spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    stdin.write_all(INITIALIZE.as_bytes()).expect("afresh reads");
    assert_eq!(hear(&mut stdout)["id"], 1);
    // It answers at length, leaves a child that holds its stdout, and dies.
    let calls = [
        call(2, "big", &json!({"bytes": 2 * 1024 * 1024})),
        call(3, "leave-a-child-and-die", &json!({})),
    ];
    stdin.write_all(calls.concat().as_bytes()).expect("afresh reads");
    assert_eq!(text_of(&hear(&mut stdout)).len(), 2 * 1024 * 1024);
    let answer = hear(&mut stdout);
    assert_eq!(answer["id"], 3);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    stdin.write_all(call(4, "pid", &json!({})).as_bytes()).expect("afresh reads");
    assert_eq!(hear(&mut stdout)["id"], 4);
    drop(stdin);
    ends(&env, &mut child, Some(0));
}

#[test]
fn a_server_that_closes_its_stdout_and_lives_on_is_replaced() {
    let env = TestEnv::new();
    let mut child = mcp(&env, "").spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    stdin.write_all(INITIALIZE.as_bytes()).expect("afresh reads");
    assert_eq!(hear(&mut stdout)["id"], 1);
    let first = env.wait_for_pid("server_started", 1);
    stdin.write_all(call(2, "close-stdout", &json!({})).as_bytes()).expect("afresh reads");
    assert_eq!(hear(&mut stdout)["result"]["isError"], true);
    stdin.write_all(call(3, "pid", &json!({})).as_bytes()).expect("afresh reads");
    assert_ne!(text_of(&hear(&mut stdout)), first.to_string());
    wait_for("the first one is gone", || kill(Pid::from_raw(first), None::<Signal>).is_err());
    let mut rest = String::new();
    drop(stdin);
    stdout.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "");
    ends(&env, &mut child, Some(0));
}
