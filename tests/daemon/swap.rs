//! `afresh mcp` with more than one instance of a server: swaps and spares.

use std::fs;

use afresh_tests::{TestEnv, process, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::mcp::{Client, QUICK};

/// The types of what was told since the client asked for its first restart, in order.
fn story(env: &TestEnv) -> Vec<String> {
    let of = |record: &Value| record["props"]["event_type"].as_str().unwrap_or("").to_owned();
    let all = env.records().iter().map(of).collect::<Vec<_>>();
    let begin = all.iter().position(|word| word == "server_restart_requested");
    all[begin.expect("a restart was asked for")..].to_vec()
}

fn is_up(env: &TestEnv, pid: i32) -> bool {
    env.work().join(format!("up-{pid}")).exists()
}

fn end(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it runs");
}

#[test]
fn what_the_old_one_has_begun_it_ends_and_what_is_new_the_new_one_gets() {
    // W8 R4
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &QUICK, "");
    let old = client.pid();
    let params = json!({"name": "wait", "arguments": {"for": "go"}});
    client.send(&json!({"jsonrpc": "2.0", "id": 500, "method": "tools/call", "params": params}));
    client.restart_server();
    let new = env.wait_for_pid("server_started", 2);
    assert_ne!(new, old);
    assert_eq!(client.pid(), new);
    // The old one lives, and answers.
    env.write("go", "");
    let answer = client.hear();
    assert_eq!(answer["id"], 500, "{answer}");
    assert_eq!(answer["result"]["content"][0]["text"], old.to_string());
    wait_for("the old one goes", || !env.events("server_exited").is_empty());
    let exited = &env.events("server_exited")[0]["props"];
    // Its stdin was closed, and it went by itself.
    assert_eq!(exited["exit_code"], 0, "{exited}");
    assert_eq!((&exited["pid"], &exited["ending"]), (&json!(old), &json!("replaced")));
    let expected = [
        "server_restart_requested",
        "restart_marker_written",
        "server_candidate_started",
        "server_exiting_for_restart",
        "server_started",
        "server_exited",
    ];
    assert_eq!(story(&env), expected);
    client.hang_up(&env);
}

#[test]
fn swaps_under_load_make_no_error_at_all() {
    // W8
    const CALLS: u64 = 1_000;
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &QUICK, "");
    let (mut sent, mut answered, mut swaps) = (0, 0, 0);
    while answered < CALLS || swaps < 5 {
        while sent < answered + 8 {
            let params = json!({"name": "echo", "arguments": {"text": sent.to_string()}});
            client.send(&json!({"jsonrpc": "2.0", "id": 1_000 + sent, "method": "tools/call", "params": params}));
            sent += 1;
        }
        let answer = client.hear();
        let id = answer["id"].as_u64().expect("a number") - 1_000;
        assert_eq!(answer["result"]["content"][0]["text"], id.to_string(), "{answer}");
        answered += 1;
        let settled = env.events("server_exited").len() == swaps;
        if answered.is_multiple_of(50) && settled && swaps < 5 {
            swaps += 1;
            client.restart_server();
        }
    }
    for _ in answered..sent {
        client.hear();
    }
    wait_for("all swaps are done", || env.events("server_exited").len() == swaps);
    assert!(env.events("server_crashed").is_empty());
    client.hang_up(&env);
}

#[test]
fn broken_code_never_takes_a_working_server_away() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &QUICK, "");
    let old = client.pid();
    let broken = env.write("broken", "");
    for times in 1..=3 {
        client.restart_server();
        wait_for("the swap fails", || env.events("server_swap_failed").len() == times);
        assert_eq!(client.pid(), old);
    }
    assert!(env.events("server_crashed").is_empty());
    fs::remove_file(broken).expect("it is there");
    client.restart_server();
    let new = env.wait_for_pid("server_started", 2);
    assert_eq!(client.pid(), new);
    client.hang_up(&env);
}

#[test]
fn an_old_one_that_dies_in_a_swap_is_followed_by_the_new_one() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &QUICK, "");
    let old = client.pid();
    let hold = env.write("hold", "");
    client.restart_server();
    let new = env.wait_for_pid("server_candidate_started", 1);
    end(old);
    wait_for("its end is told", || !env.events("server_exited").is_empty());
    fs::remove_file(hold).expect("it is there");
    assert_eq!(client.pid(), new);
    assert_eq!(env.wait_for_pid("server_started", 2), new);
    let expected = [
        "server_restart_requested",
        "restart_marker_written",
        "server_candidate_started",
        "server_exiting_for_restart",
        "server_exited",
        "server_started",
    ];
    assert_eq!(story(&env), expected);
    client.hang_up(&env);
}

#[test]
fn a_newer_request_drops_a_candidate_that_is_not_ready() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &QUICK, "");
    let old = client.pid();
    let hold = env.write("hold", "");
    client.restart_server();
    let dropped = env.wait_for_pid("server_candidate_started", 1);
    client.restart_server();
    let new = env.wait_for_pid("server_candidate_started", 2);
    assert_eq!(client.pid(), old);
    fs::remove_file(hold).expect("it is there");
    assert_eq!(env.wait_for_pid("server_started", 2), new);
    assert_eq!(client.pid(), new);
    wait_for("both others go", || env.events("server_exited").len() == 2);
    assert!(!env.alive().iter().any(|process| process.pid == dropped || process.pid == old));
    client.hang_up(&env);
}

#[test]
fn a_spare_takes_over_while_a_new_one_would_take_long() {
    let env = TestEnv::new();
    let flags = [&QUICK[..], &["--spare"]].concat();
    let mut client = Client::connect(&env, &flags, "");
    let old = client.pid();
    let spare = env.wait_for_pid("server_spare_started", 1);
    wait_for("the spare is up", || is_up(&env, spare));
    // From now on nothing starts.
    let hold = env.write("hold", "");
    end(old);
    wait_for("its end is told", || env.events("server_crashed").len() == 1);
    assert_eq!(client.pid(), spare);
    // Another one stands by.
    let next = env.wait_for_pid("server_spare_started", 2);
    fs::remove_file(hold).expect("it is there");
    wait_for("the next spare is up", || is_up(&env, next));
    // A restart wants new code, and no spare.
    client.restart_server();
    let new = env.wait_for_pid("server_started", 3);
    assert!(new != next && client.pid() == new);
    client.hang_up(&env);
}

#[test]
fn a_client_that_hangs_up_in_a_swap_leaves_no_process() {
    let env = TestEnv::new();
    let flags = [&QUICK[..], &["--spare"]].concat();
    let mut client = Client::connect(&env, &flags, "ignores-everything");
    client.pid();
    env.wait_for_pid("server_spare_started", 1);
    env.write("hold", "");
    client.restart_server();
    env.wait_for_pid("server_candidate_started", 1);
    client.hang_up(&env);
    assert_eq!(env.events("server_stopped").len(), 1);
}

#[test]
fn sigkill_of_afresh_in_a_swap_leaves_no_process() {
    let env = TestEnv::new();
    let flags = [&QUICK[..], &["--spare"]].concat();
    let mut client = Client::connect(&env, &flags, "ignores-everything");
    client.pid();
    env.wait_for_pid("server_spare_started", 1);
    env.write("hold", "");
    client.restart_server();
    env.wait_for_pid("server_candidate_started", 1);
    client.kill_afresh();
    env.assert_nothing_left();
}

#[test]
fn each_instance_has_its_guardian_and_none_is_kept_for_nothing() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &QUICK, "");
    let old = client.pid();
    let hold = env.write("hold", "");
    client.restart_server();
    let candidate = env.wait_for_pid("server_candidate_started", 1);
    // A guardian that is killed takes its own instance with it, and no other.
    let parent = process::read(candidate).expect("it runs").parent;
    end(parent);
    wait_for("the swap fails", || env.events("server_swap_failed").len() == 1);
    assert_eq!(client.pid(), old);
    fs::remove_file(hold).expect("it is there");
    for swaps in 1..=6 {
        client.restart_server();
        let new = env.wait_for_pid("server_started", swaps + 1);
        assert_eq!(client.pid(), new);
    }
    let guardians = || env.alive().into_iter().filter(|it| it.name == "afresh-guardian").count();
    wait_for("one that guards and one that is idle", || guardians() <= 2);
    client.hang_up(&env);
}

#[test]
fn a_server_that_must_be_alone_is_replaced() {
    let env = TestEnv::new();
    let flags = [&QUICK[..], &["--restart-mode", "replace"]].concat();
    let mut client = Client::connect(&env, &flags, "");
    let old = client.pid();
    client.restart_server();
    let new = env.wait_for_pid("server_started", 2);
    assert!(new != old && client.pid() == new);
    let expected = [
        "server_restart_requested",
        "restart_marker_written",
        "server_exiting_for_restart",
        "server_exited",
        "server_started",
    ];
    assert_eq!(story(&env), expected);
    assert_eq!(env.events("server_exited")[0]["props"]["exit_code"], 0);
    client.hang_up(&env);
}
