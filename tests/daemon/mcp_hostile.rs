//! Clients of `afresh mcp` that do what they must not; `mcp_rogue.rs` has the servers. What comes of
//! each is a line in `docs/guide/misbehaviour.md`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};

use afresh_tests::connection::{Connection, kill_server};
use afresh_tests::{TestEnv, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const SERVER: &str = env!("CARGO_BIN_EXE_mcp-rogue");

pub(crate) const QUICK: [&str; 8] =
    ["--delay", "1ms", "--max-delay", "2ms", "--throttle", "1ms", "--stop-timeout", "200ms"];

/// A memory that afresh stays below whatever is done to it.
pub(crate) const LITTLE: u64 = 64 * 1024;

fn connect(env: &TestEnv) -> Connection {
    Connection::connect(env, &QUICK, &[SERVER])
}

fn call_line(id: &str, name: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"{name}\",\"arguments\":{{}}}}}}\n"
    )
}

#[test]
fn half_a_message_is_waited_for_and_at_the_end_it_is_nobodys() {
    let env = TestEnv::new();
    let mut connection = connect(&env);
    let line = call_line("1", "pid");
    let (half, rest) = line.split_at(30);
    connection.write(half.as_bytes());
    // Meanwhile the server comes anew.
    connection.signal(Signal::SIGUSR1);
    env.wait_for_pid("server_started", 2);
    connection.write(rest.as_bytes());
    assert_eq!(connection.hear_answer()["id"], 1);
    connection.write(half.as_bytes());
    connection.hang_up(&env);
}

#[test]
fn bytes_that_are_no_text_pass_as_they_are() {
    let env = TestEnv::new();
    let (mut connection, stdout) = Connection::start_deaf(&env, &QUICK, &[SERVER]);
    let odd = b"<\xff\xfe\xc3 \xed\xa0\x80>";
    let line = [
        br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"bytes","arguments":{"a":""#,
        &odd[..],
        b"\"}}}\n",
    ];
    connection.write(&line.concat());
    let mut stdout = BufReader::new(stdout);
    let mut heard = Vec::new();
    stdout.read_until(b'\n', &mut heard).expect("it is readable");
    let shown = String::from_utf8_lossy(&heard).into_owned();
    assert!(heard.windows(odd.len()).any(|part| part == odd), "{shown}");
    connection.hang_up(&env);
}

#[test]
fn an_id_that_is_in_use_is_not_answered_twice() {
    let env = TestEnv::new();
    let mut connection = connect(&env);
    connection.write(call_line("1", "hold").as_bytes());
    connection.write(call_line("1", "pid").as_bytes());
    let pid = connection.assert_works();
    kill_server(pid);
    let answer = connection.hear_answer();
    assert_eq!((&answer["id"], &answer["result"]["isError"]), (&json!(1), &json!(true)));
    wait_for("the log says it", || connection.log().contains("not a message"));
    // Then it is free again.
    assert!(connection.call("1", "pid", &json!({})).parse::<i32>().is_ok());
    assert_eq!(connection.try_hear(), None);
    connection.hang_up(&env);
}

#[test]
fn ids_of_every_kind_are_answered() {
    let env = TestEnv::new();
    let mut connection = connect(&env);
    let long = format!("\"{}\"", "x".repeat(100_000));
    let numbers =
        ["0", "-1", "1.0", "1e3", "-0", "1.5", "9007199254740993", "18446744073709551615"];
    let texts = ["\"\"", r#""\u0061\/\u00e9""#, r#""é😀""#, r#""\ud83d\ude00\n""#, long.as_str()];
    for id in numbers.into_iter().chain(texts) {
        connection.send(id, "tools/call", &json!({"name": "pid"}));
        let answer = connection.hear_answer();
        let same = match (serde_json::from_str(id).expect("JSON"), &answer["id"]) {
            (Value::Number(asked), Value::Number(told)) => asked.as_f64() == told.as_f64(),
            (asked, told) => asked == *told,
        };
        assert!(same && answer.get("result").is_some(), "{id}: {answer}");
    }
    for id in ["true", "{\"a\":1}", "[1]"] {
        let answer = connection.ask(id, "tools/call", &json!({"name": "pid"}));
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
    }
    // Without an id that counts, it is a notification, and gets no answer.
    connection.send("null", "tools/call", &json!({"name": "pid"}));
    connection.assert_works();
    connection.hang_up(&env);
}

#[test]
fn what_is_no_request_is_answered_where_it_has_an_id() {
    let env = TestEnv::new();
    let mut connection = connect(&env);
    for line in ["{\"id\":1}\n", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":5}\n"] {
        connection.write(line.as_bytes());
        let answer = connection.hear_answer();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32600)));
    }
    // Answers to what nobody asked, and cancels of what nobody knows, or what is ours.
    for line in [
        r#"{"jsonrpc":"2.0","id":5,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"s1:1","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"afresh:1:1","error":{"code":1,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"afresh:1:1"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
    ] {
        connection.write(format!("{line}\n").as_bytes());
    }
    connection.assert_works();
    connection.hang_up(&env);
}

#[test]
fn a_batch_is_taken_apart_and_brackets_are_only_brackets() {
    let env = TestEnv::new();
    let mut connection = connect(&env);
    let (one, two) = (call_line("1", "pid"), call_line("2", "pid"));
    connection.write(format!("[{},[{}],7,{}]\n", one.trim(), two.trim(), two.trim()).as_bytes());
    assert_eq!(connection.hear_answer()["id"], 1);
    assert_eq!(connection.hear_answer()["id"], 2);
    for open in ["[", "{\"a\":", "[{\"a\":["] {
        connection.write(format!("{}\n", open.repeat(100_000)).as_bytes());
    }
    let nest = format!("{}{}\n", "[".repeat(100_000), "]".repeat(100_000));
    connection.write(nest.as_bytes());
    // Also inside of a message that is one.
    for name in ["run", "restart_server", "server_logs"] {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"tools/call\",\"params\":{{\"name\":\"{name}\",\"arguments\":{}}}}}\n",
            nest.trim()
        );
        connection.write(line.as_bytes());
        if name != "run" {
            // Of our own tools; that of the server does not get through its parser.
            assert_eq!(connection.hear_answer()["id"], 3, "{name}");
        } else {
            connection.write(
                b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":3}}\n",
            );
            // One that was cancelled is forgotten with its instance.
            let pid = connection.assert_works();
            kill_server(pid);
            wait_for("the next", || env.events("server_started").len() > 1);
            connection.assert_works();
        }
    }
    connection.hang_up(&env);
}

#[test]
fn ends_of_lines_and_marks_of_other_systems_are_understood() {
    let env = TestEnv::new();
    let mut connection = connect(&env);
    let line = call_line("1", "pid");
    connection.write(b"\xef\xbb\xbf");
    connection.write(line.trim().as_bytes());
    connection.write(b"\r\n\r\n\n \t\r\n");
    assert_eq!(connection.hear_answer()["id"], 1);
    connection.write(b"\0\n\0{}\0\n");
    connection.assert_works();
    connection.hang_up(&env);
}

#[test]
fn the_handshake_may_come_late_or_twice() {
    let env = TestEnv::new();
    let mut connection = Connection::start(&env, &QUICK, &[SERVER]);
    // It is for the server to say whether it likes that.
    assert!(connection.call("0", "pid", &json!({})).parse::<i32>().is_ok());
    connection.open();
    connection.open();
    let pid = connection.assert_works();
    kill_server(pid);
    assert_ne!(connection.assert_works(), pid);
    connection.open();
    connection.assert_works();
    connection.hang_up(&env);
}

#[test]
fn a_hundred_thousand_calls_at_once_are_answered_once_each_in_bounded_memory() {
    const CALLS: usize = 100_000;
    let env = TestEnv::new();
    let mut connection = connect(&env);
    let pid = connection.assert_works();
    let mut stdin = connection.take_stdin();
    let writer = std::thread::spawn(move || {
        for id in 0..CALLS {
            stdin.write_all(call_line(&id.to_string(), "hold").as_bytes()).expect("afresh reads");
        }
        stdin
    });
    let mut answers: BTreeMap<u64, u32> = BTreeMap::new();
    let mut refused = 0;
    while answers.len() < CALLS {
        let answer = connection.hear_answer();
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        refused += usize::from(text.contains("too many"));
        *answers.entry(answer["id"].as_u64().expect("a number")).or_default() += 1;
        if refused == CALLS - 10_000 && answers.len() == refused {
            let resident = connection.resident();
            assert!(resident < LITTLE, "{resident} kB");
            kill_server(pid);
        }
    }
    assert!(answers.values().all(|count| *count == 1) && refused == CALLS - 10_000, "{refused}");
    let stdin = writer.join().expect("it writes all");
    drop(stdin);
    connection.assert_ends(&env, Some(0));
}

#[test]
fn a_server_that_does_not_read_holds_up_its_client_and_costs_no_memory() {
    let env = TestEnv::new();
    let mut connection = Connection::start(&env, &QUICK, &[SERVER, "reads-nothing"]);
    let mut stdin = connection.take_stdin();
    let written = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = written.clone();
    let name = "hold ".repeat(100);
    let writer = std::thread::spawn(move || {
        for id in 0..100_000 {
            if stdin.write_all(call_line(&id.to_string(), &name).as_bytes()).is_err() {
                return;
            }
            count.store(id, std::sync::atomic::Ordering::Relaxed);
        }
    });
    // At rest when nothing more is taken.
    let (mut before, mut same) = (0, 0);
    wait_for("all buffers are full", || {
        let now = written.load(std::sync::atomic::Ordering::Relaxed);
        same = if now == before && now > 0 { same + 1 } else { 0 };
        before = now;
        same > 100
    });
    let resident = connection.resident();
    assert!(resident < LITTLE && before < 99_999, "{resident} kB, {before}");
    connection.signal(Signal::SIGTERM);
    connection.assert_ends(&env, Some(0));
    writer.join().expect("it ends with the pipe");
}

#[test]
fn a_client_that_asks_us_and_never_reads_is_not_read_either() {
    let env = TestEnv::new();
    let (mut connection, _stdout) = Connection::start_deaf(&env, &QUICK, &[SERVER]);
    let mut stdin = connection.take_stdin();
    let writer = std::thread::spawn(move || {
        // The answers have the ids: long ones fill all buffers soon.
        let pad = "x".repeat(10_000);
        let hundred = (0..100).map(|id| call_line(&format!("\"{id}{pad}\""), "server_status"));
        let hundred = hundred.collect::<String>();
        while stdin.write_all(hundred.as_bytes()).is_ok() {}
    });
    let mut before = u64::MAX;
    let mut same = 0;
    wait_for("it is not read any more", || {
        let now = afresh_tests::measure::Activity::of([connection.pid()].into_iter()).ticks;
        same = if now == before { same + 1 } else { 0 };
        before = now;
        same > 100
    });
    let resident = connection.resident();
    assert!(resident < 3 * LITTLE, "{resident} kB");
    connection.signal(Signal::SIGTERM);
    connection.assert_ends(&env, Some(0));
    writer.join().expect("it ends with the pipe");
}
