//! Servers of `afresh mcp` that do what they must not; `mcp_hostile.rs` has the clients. What comes of
//! each is a line in `docs/guide/misbehaviour.md`.

use std::io::{BufRead, BufReader};

use afresh_tests::connection::{Connection, kill_server};
use afresh_tests::{TestEnv, process, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::mcp_hostile::{LITTLE, QUICK};

const SERVER: &str = env!("CARGO_BIN_EXE_mcp-rogue");

#[test]
fn answers_that_nobody_asked_for_reach_nobody() {
    let env = TestEnv::new();
    let mut connection = Connection::connect(&env, &QUICK, &[SERVER, "speaks-first"]);
    assert_eq!(connection.call("1", "misanswer", &json!({})), "once");
    connection.signal(Signal::SIGUSR1);
    wait_for("it is swapped", || env.events("server_started").len() > 1);
    assert_eq!(connection.call("2", "misanswer", &json!({})), "once");
    connection.assert_works();
    assert_eq!(connection.try_hear(), None);
    connection.hang_up(&env);
}

#[test]
fn one_that_closes_its_stdin_and_lives_on_is_replaced() {
    let env = TestEnv::new();
    let mut connection = Connection::connect(&env, &QUICK, &[SERVER]);
    let pid = connection.assert_works();
    assert_eq!(connection.call("1", "close-stdin", &json!({})), "closed");
    // It never got this: so it can be given to the next one.
    assert_ne!(connection.assert_works(), pid);
    wait_for("it is gone", || process::read(pid).is_none());
    wait_for("it is said", || connection.log().contains("closed its stdin"));
    connection.hang_up(&env);
}

#[test]
fn one_that_ignores_sigterm_is_killed_when_its_time_is_over() {
    let env = TestEnv::new();
    let mut connection = Connection::connect(&env, &QUICK, &[SERVER, "ignores-sigterm"]);
    let pid = connection.assert_works();
    connection.signal(Signal::SIGUSR1);
    wait_for("it is gone", || process::read(pid).is_none());
    assert_ne!(connection.assert_works(), pid);
    connection.hang_up(&env);
}

#[test]
fn one_that_was_given_up_is_brought_back_by_a_call() {
    // G4
    let env = TestEnv::new();
    let flags = [&QUICK[..], &["--max-restarts", "2"]].concat();
    let mut connection = Connection::start(&env, &flags, &[SERVER, "fails-at-first"]);
    let params = json!({"protocolVersion": "2025-11-25"});
    let answer = connection.ask("1", "initialize", &params);
    let message = answer["error"]["message"].as_str().expect("an error");
    assert!(message.contains("given up") && message.contains("no such table"), "{message}");
    env.write("healed", "");
    let mut answer = Value::Null;
    wait_for("it is back", || {
        answer = connection.ask("2", "initialize", &params);
        answer.get("result").is_some()
    });
    connection.assert_works();
    connection.hang_up(&env);
}

#[test]
fn one_that_never_shakes_hands_holds_up_nobody_who_wants_to_go() {
    for mode in ["never-shakes-hands", "reads-nothing"] {
        let env = TestEnv::new();
        let mut connection = Connection::start(&env, &QUICK, &[SERVER, mode]);
        connection.send("1", "initialize", &json!({"protocolVersion": "2025-11-25"}));
        let pid = env.wait_for_pid("server_started", 1);
        // Its successor is asked again.
        kill_server(pid);
        wait_for("the next one is there", || env.events("server_started").len() > 1);
        assert_eq!(connection.try_hear(), None);
        connection.hang_up(&env);
    }
}

#[test]
fn one_that_pings_and_pings_and_does_not_read_costs_no_memory() {
    let env = TestEnv::new();
    let mut connection = Connection::start(&env, &QUICK, &[SERVER, "pings-without-reading"]);
    connection.send("1", "initialize", &json!({"protocolVersion": "2025-11-25"}));
    // These go to the client, up to a bound.
    for _ in 0..1_000 {
        assert_eq!(connection.hear()["method"], "ping");
    }
    wait_for("more are logged", || connection.log().contains("not a message"));
    let resident = connection.resident();
    assert!(resident < LITTLE, "{resident} kB");
    connection.signal(Signal::SIGTERM);
    connection.assert_ends(&env, Some(0));
}

#[test]
fn a_grandchild_that_holds_its_stdout_ends_with_it() {
    let env = TestEnv::new();
    let mut connection = Connection::connect(&env, &QUICK, &[SERVER]);
    let answer = connection.call("1", "leave-a-grandchild", &json!({}));
    assert!(answer.contains("outcome is unknown"), "{answer}");
    connection.assert_works();
    wait_for("no sleep is left", || env.alive().iter().all(|process| process.name != "sleep"));
    connection.hang_up(&env);
}

#[test]
fn a_flood_goes_through_at_the_clients_pace() {
    const BYTES: usize = 50_000_000;
    let env = TestEnv::new();
    let (mut connection, stdout) = Connection::start_deaf(&env, &QUICK, &[SERVER]);
    connection.send("1", "tools/call", &json!({"name": "flood", "arguments": {"bytes": BYTES}}));
    let mut stdout = BufReader::with_capacity(4_096, stdout);
    let mut most = 0;
    let mut read = 0;
    let mut line = Vec::new();
    while !line.ends_with(b"}}\n") || line.len() > 1_000 {
        line.clear();
        let length = stdout.read_until(b'\n', &mut line).expect("it is readable");
        assert!(length > 0, "an answer, and not the end");
        read += length;
        most = most.max(connection.resident());
    }
    assert!(most < LITTLE && read > BYTES - 20_000, "{most} kB, {read} bytes");
    connection.hang_up(&env);
}

#[test]
fn its_questions_are_taken_back_when_it_is_gone() {
    let env = TestEnv::new();
    let mut connection = Connection::connect(&env, &QUICK, &[SERVER]);
    let pid = connection.assert_works();
    connection.send("1", "tools/call", &json!({"name": "ask", "arguments": {}}));
    let question = connection.hear();
    assert_eq!(question["method"], "roots/list", "{question}");
    assert_eq!(connection.hear()["id"], 1);
    kill_server(pid);
    let told = connection.hear();
    assert_eq!(told["method"], "notifications/cancelled", "{told}");
    assert_eq!(told["params"]["requestId"], question["id"], "{told}");
    // An answer that comes late reaches nobody.
    let late = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}});
    connection.write(format!("{late}\n").as_bytes());
    connection.assert_works();
    assert!(!connection.log().contains("answered"), "{}", connection.log());
    connection.hang_up(&env);
}

#[test]
fn one_whose_tools_change_all_the_time_is_asked_once_at_a_time() {
    let env = TestEnv::new();
    let mut connection = Connection::connect(&env, &QUICK, &[SERVER, "changes-all-the-time"]);
    let answer = connection.ask("1", "tools/list", &json!({}));
    assert_eq!(answer["result"]["tools"][0]["name"], "pid", "{answer}");
    let pid = connection.assert_works();
    kill_server(pid);
    // While its lists are compared, it can be called.
    assert_ne!(connection.assert_works(), pid);
    // In the end the client is told once, and looks for itself.
    let told = connection.hear();
    assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
    connection.assert_works();
    let resident = connection.resident();
    assert!(resident < LITTLE, "{resident} kB");
    connection.hang_up(&env);
}

#[test]
fn when_it_is_ended_from_outside_or_with_0_who_waits_is_answered() {
    // O3
    for by_itself in [false, true] {
        let env = TestEnv::new();
        let mut connection = Connection::connect(&env, &QUICK, &[SERVER]);
        let pid = connection.assert_works();
        connection.send("1", "tools/call", &json!({"name": "hold"}));
        connection.assert_works();
        if by_itself {
            let exit = json!({"name": "exit", "arguments": {"code": 0}});
            connection.send("2", "tools/call", &exit);
        } else {
            kill(Pid::from_raw(pid), Signal::SIGTERM).expect("it runs");
        }
        for id in 1..=1 + u32::from(by_itself) {
            let answer = connection.hear_answer();
            assert_eq!((&answer["id"], &answer["result"]["isError"]), (&json!(id), &json!(true)));
        }
        assert_ne!(connection.assert_works(), pid);
        connection.hang_up(&env);
    }
}
