//! What stands between a client and afresh is killed by SIGKILL while the client keeps our stdin open: the launcher of the
//! npm package, npx and its shell. Nothing is left.

use std::process::Command;

use afresh_tests::{Running, TestEnv, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const SERVER: &str = env!("CARGO_BIN_EXE_mcp-server");

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

/// Stays the parent of what it starts: another command follows.
const LAUNCHER: &str = r#"AFRESH_LAUNCHER_PID=$$ "$@"; :"#;

/// Each way to stand between a client and servers.
fn faces(env: &TestEnv) -> [Vec<&'static str>; 3] {
    env.write("afresh.toml", &format!("[server.a]\ncommand = [\"{SERVER}\"]\n"));
    [
        vec!["mcp", "--", SERVER],
        vec!["mcp", "--share", "--idle-timeout", "0s", "--", SERVER],
        vec!["gateway"],
    ]
}

/// Starts `sh -c SCRIPT sh afresh ARGUMENTS`, and waits until the server answers.
fn start(env: &TestEnv, shell: &str, script: &str, arguments: &[&str]) -> Running {
    let afresh = env.afresh(arguments);
    let mut command = Command::new(shell);
    env.furnish(&mut command);
    command.args(["-c", script, "sh"]).arg(afresh.get_program()).args(afresh.get_args());
    command.envs([("npm_lifecycle_event", "npx"), ("npm_lifecycle_script", "'afresh'")]);
    let mut running = Running::start(command);
    running.write(&format!("{INITIALIZE}\n"));
    running.wait_stdout("\"serverInfo\"", 1);
    running
}

#[track_caller]
fn assert_all_end(env: &TestEnv, killed: &mut Running) {
    killed.signal(Signal::SIGKILL);
    killed.wait();
    // Our end of its stdin is still open.
    wait_for("all of it is gone", || env.alive().is_empty());
    env.assert_nothing_left();
}

#[test]
fn a_launcher_that_is_killed_leaves_nothing() {
    let env = TestEnv::new();
    for face in faces(&env) {
        let mut launcher = start(&env, "sh", LAUNCHER, &face);
        assert_all_end(&env, &mut launcher);
    }
}

#[test]
fn npx_that_is_killed_leaves_nothing() {
    let env = TestEnv::new();
    let node = env.work().join("node");
    std::fs::copy("/bin/sh", &node).expect("there is a shell");
    let node = node.to_str().expect("it is text");
    let by_npx = r#""$@"; :"#;
    let by_shell = r#"sh -c '"$@"; :' sh "$@"; :"#;
    let by_launcher = format!("sh -c '{LAUNCHER}' sh \"$@\"; :");
    for script in [by_npx, by_shell, &by_launcher] {
        for face in faces(&env) {
            let mut npx = start(&env, node, script, &face);
            assert_all_end(&env, &mut npx);
        }
    }
}

#[test]
fn a_signal_to_the_binary_is_the_end_of_the_launcher_too() {
    let env = TestEnv::new();
    for face in faces(&env) {
        let mut launcher = start(&env, "sh", LAUNCHER, &face);
        let shell = launcher.pid();
        let is_child = |process: &afresh_tests::process::Process| process.parent == shell;
        let afresh = env.alive().into_iter().find(is_child).expect("it runs");
        kill(Pid::from_raw(afresh.pid), Signal::SIGTERM).expect("it is ours");
        launcher.wait();
        wait_for("all of it is gone", || env.alive().is_empty());
    }
}

#[test]
fn another_process_that_is_named_as_the_launcher_means_nothing() {
    let env = TestEnv::new();
    let mut other = Command::new("sh");
    env.furnish(&mut other);
    let mut other = Running::start({
        other.args(["-c", "read line"]);
        other
    });
    let script = format!("AFRESH_LAUNCHER_PID={} exec \"$@\"", other.pid());
    // It prints what servers inherit of it.
    let server = format!("echo \"launcher: ${{AFRESH_LAUNCHER_PID-none}}\" >&2; exec {SERVER}");
    let mut afresh = start(&env, "sh", &script, &["mcp", "--", "sh", "-c", &server]);
    afresh.wait_stderr("launcher: none", 1);
    other.close_stdin();
    other.wait();
    afresh.write("{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\n");
    afresh.wait_stdout("\"id\":2", 1);
    afresh.close_stdin();
    assert_eq!(afresh.wait().code(), Some(0), "{}", afresh.stderr());
    env.assert_nothing_left();
}
