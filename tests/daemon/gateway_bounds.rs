//! Bounds of `afresh gateway` in total: what one client or one token does costs others nothing, and afresh no memory
//! beyond a budget.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use afresh_tests::connection::{Connection, kill_server};
use afresh_tests::http_client::{HttpClient, port_of};
use afresh_tests::process::peak_resident;
use afresh_tests::{PATIENCE, Running, TestEnv, afresh_binary, wait_for};
use serde_json::{Value, json};

use crate::gateway::{AT_ONCE, ROGUE, connect, pid, server};
use crate::gateway_http::start;
use crate::stop;

/// No attack of a client makes afresh larger than this, in kB.
const RESIDENT_MAX: u64 = 128 * 1024;

const FIRST: &str = "first-0123456789abcdef";
const OTHER: &str = "other-0123456789abcdef";

/// Two tokens, and other keys of `[gateway]`.
fn tokens(keys: &str) -> String {
    format!(
        "[gateway]\n{keys}\n[gateway.token.first]\ntoken = \"{FIRST}\"\n\
         [gateway.token.other]\ntoken = \"{OTHER}\"\n"
    )
}

/// A client with a session of this token.
#[track_caller]
fn open(port: u16, token: &str) -> HttpClient {
    let mut client = HttpClient::new(port);
    client.token = Some(token.to_owned());
    client.open();
    client
}

/// A server whose list of tools is almost as long as a page may be.
fn long_list(env: &TestEnv, name: &str) -> String {
    let entry = server(env, name, "", "");
    let tools: String = (0..240).map(|n| format!("t{n} {}\n", "x".repeat(4_000))).collect();
    env.write(&format!("{name}/tools"), &format!("pid Tells\necho Says\nbig Says\n{tools}"));
    entry
}

/// A batch of requests for the list of tools.
fn lists(count: usize) -> String {
    let list = |id: usize| json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"});
    Value::from((0..count).map(list).collect::<Vec<_>>()).to_string()
}

/// How many of these are lists, and how many errors that say that answers are not read.
#[track_caller]
fn lists_and_errors<'a>(answers: impl IntoIterator<Item = &'a Value>) -> (usize, usize) {
    let (mut whole, mut busy) = (0, 0);
    for answer in answers {
        match answer["error"]["message"].as_str() {
            Some(message) => {
                assert!(message.starts_with("server busy: answers not read"), "{answer}");
                assert_eq!(answer["error"]["data"]["reason"], "server_busy", "{answer}");
                busy += 1;
            }
            None => {
                assert!(answer["result"]["tools"].is_array(), "{answer}");
                whole += 1;
            }
        }
    }
    (whole, busy)
}

#[track_caller]
fn assert_small(pid: i32) {
    let peak = peak_resident(pid);
    assert!(peak < RESIDENT_MAX, "it took {peak} kB");
}

#[test]
fn a_batch_of_long_lists_is_answered_within_a_budget() {
    let env = TestEnv::new();
    let (mut gateway, port) = start(&env, &[long_list(&env, "a"), tokens("")]);
    let mut client = open(port, FIRST);
    for count in [200, 1_000] {
        let reply = client.post(&lists(count));
        let (whole, busy) = lists_and_errors(&reply.messages);
        assert_eq!(whole + busy, count, "each is answered once");
        assert!(whole > 0 && busy > 0, "{whole} lists, {busy} errors");
    }
    assert_small(gateway.pid());
    let list = client.ask("1", "tools/list", &json!({}));
    assert_eq!(lists_and_errors(&list.messages), (1, 0), "later there is room again");
    stop(&env, &mut gateway);
}

#[test]
fn a_batch_on_stdio_is_answered_within_a_budget() {
    let env = TestEnv::new();
    let mut client = connect(&env, &[long_list(&env, "a")]);
    client.write(format!("{}\n", lists(200)).as_bytes());
    let answers: Vec<Value> = (0..200).map(|_| client.hear_answer()).collect();
    let (whole, busy) = lists_and_errors(&answers);
    assert!(whole > 0 && busy > 0, "{whole} lists, {busy} errors");
    client.write(format!("{}\n", lists(1_001)).as_bytes());
    let refused = client.hear();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(-32600)));
    assert_small(client.pid());
    pid(&mut client, "a");
    client.hang_up(&env);
}

#[test]
fn answers_that_one_token_does_not_read_are_bounded_and_another_token_is_served() {
    let env = TestEnv::new();
    let (mut gateway, port) = start(&env, &[long_list(&env, "a"), tokens("")]);
    let mut other = open(port, OTHER);
    // Each is longer than what both kernels hold of it.
    let bytes = 8 << 20;
    let mut unread: Vec<HttpClient> = (0..24).map(|_| open(port, FIRST)).collect();
    for client in &mut unread {
        let params = json!({"name": "a__big", "arguments": {"bytes": bytes}});
        let line = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        client.send("POST", "", &line.to_string());
    }
    // The server answers in this order.
    assert_eq!(other.call("2", "a__echo", &json!({"text": "after"})).text(), "after");
    let list = other.ask("3", "tools/list", &json!({}));
    assert_eq!(lists_and_errors(&list.messages), (1, 0));
    assert_small(gateway.pid());
    let errors: Vec<String> =
        unread.iter_mut().filter_map(|client| client.hear_short(4_096)).collect();
    assert!((1..24).contains(&errors.len()), "{} of 24 are errors", errors.len());
    for error in errors {
        assert!(error.contains("server busy: answers not read"), "{error}");
    }
    // Where answers are not there any more, there is room again.
    drop(unread);
    let mut again = open(port, FIRST);
    wait_for("it is answered", || {
        let reply = again.call("4", "a__big", &json!({"bytes": bytes}));
        reply.answer()["result"]["content"][0]["text"].as_str().map(str::len) == Some(bytes)
    });
    stop(&env, &mut gateway);
}

#[test]
fn sessions_of_one_token_leave_room_for_others_and_the_oldest_idle_one_makes_room() {
    let env = TestEnv::new();
    let (mut gateway, port) = start(&env, &[server(&env, "a", "", ""), tokens("clients_max = 12")]);
    let mut other = open(port, OTHER);
    let mut first: Vec<HttpClient> = (0..30).map(|_| open(port, FIRST)).collect();
    assert_eq!(first[0].ask("1", "tools/list", &json!({})).status, 404, "it made room");
    assert_eq!(first[29].call("2", "a__echo", &json!({"text": "new"})).text(), "new");
    // Sessions of the other token stay, and new ones find room.
    assert_eq!(other.call("3", "a__echo", &json!({"text": "old"})).text(), "old");
    let mut later = open(port, OTHER);
    assert_eq!(later.call("4", "a__echo", &json!({"text": "later"})).text(), "later");
    // One that listens is not idle, and one that waits for an answer neither.
    let mut told = first[29].listen();
    let many: Vec<HttpClient> = (0..30).map(|_| open(port, FIRST)).collect();
    assert_eq!(first[29].call("5", "a__echo", &json!({"text": "still"})).text(), "still");
    assert_eq!(first[29].delete(), 204);
    assert_eq!(told.next(), None);
    drop(many);
    stop(&env, &mut gateway);
}

#[test]
fn deep_arguments_are_refused_and_reach_no_server() {
    let env = TestEnv::new();
    let entries = [server(&env, "a", "", AT_ONCE), tokens("")];
    let call = |depth: usize| {
        let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let arguments = format!(r#"{{"text":"fine","more":{nested}}}"#);
        format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"a__echo","arguments":{arguments}}}}}"#
        )
    };
    let assert_refused = |answer: &Value| {
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-32600)));
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.contains("127 brackets in one another"), "{message}");
    };
    {
        let (mut gateway, port) = start(&env, &entries);
        let (mut client, mut other) = (open(port, FIRST), open(port, OTHER));
        let before = crate::gateway_http::pid(&mut other, "a");
        for depth in [150, 5_000] {
            assert_refused(client.post(&call(depth)).answer());
            let batch = client.post(&format!("[{}]", call(depth)));
            assert_refused(batch.answer());
        }
        assert_eq!(client.post(&call(100)).text(), "fine");
        assert_eq!(crate::gateway_http::pid(&mut other, "a"), before, "it lives");
        stop(&env, &mut gateway);
    }
    let mut client = connect(&env, &entries);
    let before = pid(&mut client, "a");
    client.write(format!("{}\n", call(5_000)).as_bytes());
    assert_refused(&client.hear_answer());
    assert_eq!(pid(&mut client, "a"), before);
    client.hang_up(&env);
}

#[test]
fn clients_over_http_get_and_send_nothing_but_valid_json() {
    let env = TestEnv::new();
    std::fs::create_dir_all(env.work().join("r")).expect("the workspace is writable");
    let rogue = format!("[server.r]\ncommand = [{ROGUE:?}, \"invalid\"]\ncwd = \"r\"\n");
    let (mut gateway, port) = start(&env, &[rogue, server(&env, "a", "", ""), tokens("")]);
    let mut client = open(port, FIRST);
    // Bytes that are no JSON are never part of an answer, alone or in a stream.
    for tool in ["r__invalid", "r__tell-invalid"] {
        let params = json!({"name": tool, "arguments": {}});
        let line = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        client.send("POST", "", &line.to_string());
        let body = client.hear_raw();
        for part in body.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line)) {
            if part.starts_with('{') {
                serde_json::from_str::<Value>(part)
                    .unwrap_or_else(|error| panic!("{part}: {error}"));
            }
        }
        match tool {
            "r__invalid" => {
                let answer: Value = serde_json::from_str(&body).expect("JSON");
                assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32603)));
                let message = answer["error"]["message"].as_str().expect("a message");
                assert!(message.contains("not valid JSON"), "{message}");
            }
            _ => assert!(body.contains("told"), "the valid answer comes: {body}"),
        }
    }
    // Nor is what a client sends passed on where it is none.
    for text in ["01", "\"\\q\"", "tru", "\"\t\""] {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"a__echo","arguments":{{"text":{text}}}}}}}"#
        );
        let reply = client.post(&line);
        assert_eq!((reply.status, &reply.answer()["error"]["code"]), (400, &json!(-32700)));
    }
    assert_eq!(client.call("2", "a__echo", &json!({"text": "fine"})).text(), "fine");
    stop(&env, &mut gateway);
}

/// Starts a gateway that may have so many open files.
fn start_with_descriptors(env: &TestEnv, entries: &[String], count: usize) -> (Running, u16) {
    env.write("afresh.toml", &entries.concat());
    let mut command = std::process::Command::new("sh");
    let script = format!("ulimit -n {count} && exec \"$@\"");
    command.args(["-c", &script, "sh"]).arg(afresh_binary());
    command.args(["gateway", "--trust", "--http", "127.0.0.1:0"]);
    env.furnish(&mut command);
    let gateway = Running::start(command);
    let port = port_of(&gateway);
    (gateway, port)
}

#[test]
fn connections_without_a_request_leave_descriptors_for_others_control_and_trail() {
    let env = TestEnv::new();
    let entries = [server(&env, "a", "", AT_ONCE), tokens("")];
    let (mut gateway, port) = start_with_descriptors(&env, &entries, 160);
    let mut client = open(port, FIRST);
    let before = crate::gateway_http::pid(&mut client, "a");
    let connection = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stream.write_all(b"POST /mcp HTTP/1.1\r\nhost: 127.").ok();
        stream
    };
    // One with a whole request is none that makes room.
    let mut listening = client.listen();
    let mut half: Vec<TcpStream> = (0..400).map(|_| connection()).collect();
    let mut later = open(port, OTHER);
    assert_eq!(later.call("1", "a__echo", &json!({"text": "served"})).text(), "served");
    // The oldest were closed.
    half[0].set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut rest = Vec::new();
    assert!(!matches!(half[0].read_to_end(&mut rest), Ok(1..)), "{rest:?}");
    let status = env.run(&["status"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(status.stdout.contains(&before.to_string()), "{status:?}");
    // A server that dies is started again, which is on record.
    kill_server(before);
    wait_for("the crash is on record", || !env.events("server_crashed").is_empty());
    assert_ne!(crate::gateway_http::pid(&mut later, "a"), before);
    let restarted = env.run(&["restart", "a"]);
    assert_eq!(restarted.code, Some(0), "{restarted:?}");
    wait_for("the restart is on record", || !env.events("server_restart_requested").is_empty());
    drop(half);
    assert_eq!(client.delete(), 204);
    listening.by_ref().for_each(drop);
    stop(&env, &mut gateway);
}

#[test]
fn a_server_that_cannot_be_started_does_not_starve_the_others() {
    let env = TestEnv::new();
    let variables = env.write("variables", "A=b\n");
    let more = format!("{AT_ONCE}env_file = \"variables\"\n");
    let entries = [server(&env, "bad", "", &more), server(&env, "good", "", "")];
    let mut client = connect(&env, &entries);
    let running = pid(&mut client, "bad");
    // It has run: that it cannot be started now may pass. No process is made to find that out.
    std::fs::remove_file(&variables).expect("it is there");
    kill_server(running);
    wait_for("it cannot be started", || env.events("server_spawn_failed").len() >= 3);
    let before = env.events("server_spawn_failed").len();
    for n in 0..50 {
        assert_eq!(client.call(&n.to_string(), "good__echo", &json!({"text": "x"})), "x");
    }
    let failed = env.events("server_spawn_failed").len() - before;
    assert!(failed <= 50, "{failed} starts failed during 50 calls");
    env.write("variables", "A=b\n");
    assert_ne!(pid(&mut client, "bad"), running);
    client.hang_up(&env);
}

#[test]
fn a_client_on_stdio_that_does_not_read_costs_little_memory() {
    let env = TestEnv::new();
    env.write("afresh.toml", &long_list(&env, "a"));
    let (mut client, stdout) = Connection::start_deaf_as(&env, &["gateway"]);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    client.send("1", "initialize", &params);
    let mut stdin = client.take_stdin();
    let line = format!("{}\n", lists(20));
    let written = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&written);
    // It is not read to its end: at some point afresh takes no more.
    let writer = std::thread::spawn(move || {
        while stdin.write_all(line.as_bytes()).is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut last = (0, 0);
    wait_for("it takes no more", || {
        // Only paces the looking.
        std::thread::park_timeout(std::time::Duration::from_millis(500));
        let now = (written.load(Ordering::Relaxed), client.resident());
        std::mem::replace(&mut last, now) == now && now.0 > 100
    });
    assert_small(client.pid());
    drop(stdout);
    client.assert_ends(&env, Some(0));
    writer.join().expect("it has ended");
}
