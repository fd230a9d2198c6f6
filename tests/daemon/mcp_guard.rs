//! What restarts the server of `afresh mcp` without anybody asking, and what is recorded of it: watched
//! files, memory, servers that hang, traces and log files.

use std::fs;
use std::path::Path;

use afresh_tests::{TestEnv, stop_short, wait_for};
use serde_json::{Value, json};

use crate::mcp::{Client, QUICK, text_of};

/// The reasons of all restarts that were asked for.
fn reasons(env: &TestEnv) -> Vec<String> {
    let requested = env.events("server_restart_requested");
    let reason = |record: &Value| record["props"]["reason"].as_str().expect("text").to_owned();
    requested.iter().map(reason).collect()
}

/// A workspace with a folder of code that is watched.
fn project(files: &[(&str, &str)]) -> TestEnv {
    let env = TestEnv::new();
    fs::create_dir_all(env.work().join("src")).expect("the workspace is writable");
    for (name, text) in files {
        env.write(&format!("src/{name}"), text);
    }
    env
}

const WATCHING: [&str; 4] = ["--watch", "src", "--watch-debounce", "50ms"];

#[test]
fn a_change_of_watched_code_brings_a_new_instance_and_nothing_else_does() {
    // R8
    let env = project(&[("a.py", "1"), ("b.py", "1"), ("same.py", "1"), (".gitignore", "*.log\n")]);
    let mut client = Client::connect(&env, &[&QUICK[..], &WATCHING].concat(), "");
    let old = client.pid();
    env.write("src/a.py", "2");
    let new = env.wait_for_pid("server_started", 2);
    assert!(new != old && client.pid() == new);
    assert_eq!(reasons(&env), ["src/a.py changed"]);
    // By a swap: the old one was there until the new one was.
    assert_eq!(env.events("server_candidate_started").len(), 1);
    // Now it is known what the files are like. Saved as it was, touched, ignored: no change of any.
    env.write("src/same.py", "1");
    let touched = fs::File::options().append(true).open(env.work().join("src/b.py"));
    touched.and_then(|file| file.set_modified(std::time::SystemTime::now())).expect("it is ours");
    env.write("src/x.log", "noise");
    // A file that is new, and one that goes.
    env.write("src/c.py", "1");
    assert_eq!(env.wait_for_pid("server_started", 3), client.pid());
    fs::remove_file(env.work().join("src/b.py")).expect("it is there");
    assert_eq!(env.wait_for_pid("server_started", 4), client.pid());
    assert_eq!(reasons(&env)[1..], ["src/c.py changed", "src/b.py changed"]);
    client.hang_up(&env);
}

#[test]
fn broken_code_that_is_saved_changes_nothing_until_it_is_mended() {
    let env = project(&[("a.py", "1")]);
    let mut client = Client::connect(&env, &[&QUICK[..], &WATCHING].concat(), "");
    let old = client.pid();
    let broken = env.write("broken", "");
    for times in 1..=2 {
        env.write("src/a.py", &format!("broken {times}"));
        wait_for("the swap fails", || env.events("server_swap_failed").len() == times);
        assert_eq!(client.pid(), old);
    }
    fs::remove_file(broken).expect("it is there");
    env.write("src/a.py", "mended");
    let new = env.wait_for_pid("server_started", 2);
    assert_eq!(client.pid(), new);
    client.hang_up(&env);
}

#[test]
fn a_burst_of_changes_is_one_restart_or_two() {
    let env = project(&[]);
    let flags = [&QUICK[..], &["--watch", "src", "--watch-debounce", "300ms"]].concat();
    let mut client = Client::connect(&env, &flags, "");
    client.pid();
    for number in 0..200 {
        env.write(&format!("src/{number}.py"), "1");
    }
    env.wait_for_pid("server_started", 2);
    // All of it has been seen when a later change is.
    env.write("src/last.py", "1");
    wait_for("the last one", || reasons(&env).iter().any(|reason| reason.contains("last.py")));
    let reasons = reasons(&env);
    assert!(reasons.len() <= 3, "{reasons:?}");
    assert!(reasons[0].contains("more changed"), "{reasons:?}");
    client.hang_up(&env);
}

#[test]
fn what_is_watched_may_come_later() {
    let env = TestEnv::new();
    let flags = [&QUICK[..], &["--watch", "later/deep", "--watch-debounce", "50ms"]].concat();
    let mut client = Client::connect(&env, &flags, "");
    let old = client.pid();
    fs::create_dir_all(env.work().join("later/deep")).expect("the workspace is writable");
    env.write("later/deep/a.py", "1");
    let new = env.wait_for_pid("server_started", 2);
    assert!(new != old && client.pid() == new);
    assert!(reasons(&env)[0].contains("later/deep/a.py"), "{:?}", reasons(&env));
    client.hang_up(&env);
}

#[test]
fn a_server_that_grows_is_restarted_and_one_that_is_too_large_at_once_is_given_time() {
    // W12
    let env = TestEnv::new();
    let flags = ["--max-rss", "64MiB", "--delay", "50s"];
    let mut client = Client::connect(&env, &flags, "");
    let old = client.pid();
    client.call("allocate", &json!({"mebibytes": 100}));
    let new = env.wait_for_pid("server_started", 2);
    assert!(new != old && client.pid() == new);
    let reason = &reasons(&env)[0];
    assert!(reason.contains("memory") && reason.contains("64 MiB"), "{reason}");
    // From now on it is too large as soon as it runs.
    env.write("allocate", "100");
    client.call_ours("restart_server", &json!({}));
    wait_for("it waits before the next try", || {
        client.call_ours("server_status", &json!({}))["state"] == "backing off"
    });
    let status = client.call_ours("server_status", &json!({}));
    let last = status["restarts"]["last"].as_array().and_then(|all| all.last()).cloned();
    let last = last.expect("there were some");
    assert!(last["reason"].as_str().is_some_and(|it| it.contains("memory")), "{status}");
    assert!(env.events("server_started").len() <= 5);
    client.hang_up(&env);
}

/// The messages of a trace.
fn traced(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    // The last one may be half written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    whole.lines().map(parse).collect()
}

fn pings(file: &Path) -> usize {
    let is_ping =
        |entry: &Value| entry["way"] == "to server" && entry["message"]["method"] == "ping";
    traced(file).iter().filter(|entry| is_ping(entry)).count()
}

const WEDGE: [&str; 6] =
    ["--wedge-timeout", "1s", "--stdin-timeout", "50ms", "--stop-timeout", "50ms"];

#[test]
fn a_server_that_hangs_is_replaced_and_an_idle_one_is_left_in_peace() {
    // R7
    let env = TestEnv::new();
    let trace = env.work().join("idle.jsonl");
    let flags = [&QUICK[..], &WEDGE, &["--trace", "idle.jsonl"]].concat();
    let mut idle = Client::connect(&env, &flags, "");
    let idle_pid = idle.pid();
    let flags = [&QUICK[..], &WEDGE].concat();
    let mut client = Client::connect(&env, &flags, "");
    // Asleep in a call.
    let old = client.pid();
    let answer = client.call("hang", &json!({}));
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let text = text_of(&answer);
    assert!(text.contains("did not answer `ping`"), "{text}");
    // Stopped before it has read the call: the next one gets it.
    let second = client.pid();
    assert_ne!(second, old);
    stop_short(second);
    let third = client.pid();
    assert!(third != second && third != old);
    let crashed = env.events("server_crashed");
    assert!(crashed.iter().all(|it| it["props"]["ending"] == "health_failed"), "{crashed:?}");
    client.hang_up_alone();
    // All that time nobody has asked the other one anything.
    assert_eq!(pings(&trace), 0);
    assert_eq!(idle.pid(), idle_pid);
    idle.hang_up(&env);
}

#[test]
fn a_server_that_works_is_left_alone() {
    let env = TestEnv::new();
    let trace = env.work().join("trace.jsonl");
    let flags = [&QUICK[..], &WEDGE, &["--trace", "trace.jsonl"]].concat();
    let mut client = Client::connect(&env, &flags, "");
    let (pid, tools) = (client.pid(), client.tools());
    client.send_call(50, "burn", &json!({"for": "enough"}));
    wait_for("it is asked whether it lives", || pings(&trace) == 1);
    // It does not answer: that is shown, and the tools are known.
    wait_for("it is shown", || env.run(&["status"]).stdout.contains("no answer since 20"));
    assert_eq!(client.call_ours("server_status", &json!({}))["state"], "degraded");
    assert_eq!(client.tools(), tools);
    // The same again takes as long as to find that one hangs.
    let mut other = Client::connect(&env, &[&QUICK[..], &WEDGE, &["--name", "other"]].concat(), "");
    other.call("hang", &json!({}));
    other.hang_up_alone();
    env.write("enough", "");
    assert_eq!(text_of(&client.hear()), pid.to_string());
    assert_eq!(client.pid(), pid);
    assert_eq!(client.call_ours("server_status", &json!({}))["state"], "ready");
    client.hang_up(&env);
}

#[test]
fn the_calls_of_a_server_that_hangs_are_answered_as_soon_as_it_is_to_be_restarted() {
    let env = TestEnv::new();
    let flags = [&QUICK[..], &["--drain-timeout", "1h", "--stop-timeout", "1h"]].concat();
    let mut client = Client::connect(&env, &flags, "");
    let old = client.pid();
    client.send_call(50, "later", &json!({}));
    client.call("echo", &json!({}));
    stop_short(old);
    client.send_call(51, "restart_server", &json!({}));
    let answers = [client.hear(), client.hear()];
    assert_eq!((&answers[0]["id"], &answers[1]["id"]), (&json!(50), &json!(51)), "{answers:?}");
    assert!(text_of(&answers[0]).contains("The server hung"), "{answers:?}");
    assert_ne!(client.pid(), old);
    client.hang_up(&env);
}

#[test]
fn a_server_that_answers_calls_and_no_ping_is_left_alone() {
    let env = TestEnv::new();
    let trace = env.work().join("trace.jsonl");
    let flags = [&QUICK[..], &WEDGE, &["--trace", "trace.jsonl"]].concat();
    let mut client = Client::connect(&env, &flags, "no-ping");
    let pid = client.pid();
    // One call stays open.
    client.send_call(50, "later", &json!({}));
    for times in 1..=3 {
        wait_for("it is asked whether it lives", || pings(&trace) == times);
        assert_eq!(client.pid(), pid);
    }
    assert!(env.events("server_crashed").is_empty());
    client.hang_up(&env);
}

#[test]
fn a_trace_has_every_message_both_ways_and_no_secret() {
    let env = TestEnv::new();
    let trace = env.work().join("trace.jsonl");
    let flags = [&QUICK[..], &["--trace", "trace.jsonl"]].concat();
    let mut client = Client::connect(&env, &flags, "");
    let secret =
        json!({"api_key": "hush-1", "text": "Authorization: Bearer hush-2-0123456789abcdef"});
    let answer = client.call("echo", &secret);
    assert!(text_of(&answer).contains("hush-2"), "the client gets all of it");
    client.call_ours("restart_server", &json!({}));
    client.pid();
    client.hang_up(&env);
    let all = traced(&trace);
    let text = fs::read_to_string(&trace).expect("there is one");
    assert!(!text.contains("hush"), "{text}");
    let times: Vec<&str> = all.iter().filter_map(|entry| entry["time"].as_str()).collect();
    assert_eq!(times.len(), all.len());
    assert!(times.is_sorted() && times.iter().all(|time| time.ends_with('Z')));
    // The call passed four times, the last answer too; the replay went to the second instance.
    let calls = |way: &str, name: &str| {
        let is = |entry: &&Value| entry["way"] == way && entry["message"]["params"]["name"] == name;
        all.iter().filter(is).count()
    };
    for name in ["echo", "pid"] {
        assert_eq!((calls("from client", name), calls("to server", name)), (1, 1), "{name}");
    }
    assert_eq!(
        (calls("from client", "restart_server"), calls("to server", "restart_server")),
        (1, 0)
    );
    let replay = all.iter().find(|entry| entry["generation"] == 2).expect("a second instance");
    assert_eq!(replay["message"]["method"], "initialize");
    let last = all.last().expect("there are some");
    assert_eq!((&last["way"], &last["message"]["id"]), (&json!("to client"), &json!(4)));
}

#[test]
fn a_trace_or_log_that_cannot_be_written_is_said_before_anything_starts() {
    let env = TestEnv::new();
    for flag in ["--trace", "--log-file"] {
        let done = env.run(&["mcp", flag, "no/such/folder/file", "--", "true"]);
        assert_eq!(done.code, Some(5), "{done:?}");
        assert!(done.stderr.contains("no/such/folder/file"), "{done:?}");
        assert_eq!(done.stdout, "");
    }
    assert!(env.records().is_empty());
}

#[test]
fn a_log_file_has_our_log_and_the_servers_words_though_nobody_reads_them() {
    // W3
    let env = TestEnv::new();
    let flags = [&QUICK[..], &["--log-file", "afresh.log"]].concat();
    let mut client = Client::connect_unread(&env, &flags);
    for text in ["first words", "second words"] {
        client.call("stderr", &json!({"text": text}));
        client.call_ours("restart_server", &json!({"reason": "new parser"}));
    }
    let pid = client.pid();
    client.hang_up(&env);
    let log = fs::read_to_string(env.work().join("afresh.log")).expect("there is one");
    for word in ["first words", "second words", "[SUPERVISOR]", &format!("started (pid {pid},")] {
        assert!(log.contains(word), "{word} is not in:\n{log}");
    }
}

#[test]
fn files_of_our_own_are_no_change() {
    let env = project(&[("a.py", "1")]);
    let flags = ["--watch", "src", "--watch-debounce", "20ms"];
    let own = ["--log-file", "src/log.txt", "--trace", "src/trace.jsonl"];
    let mut client = Client::connect(&env, &[&QUICK[..], &flags, &own].concat(), "");
    for times in 2..=4 {
        // Each restart writes to both.
        env.write("src/a.py", &times.to_string());
        assert_eq!(env.wait_for_pid("server_started", times), client.pid());
    }
    wait_for("both are written", || {
        let length = |name: &str| fs::metadata(env.work().join(name)).map_or(0, |file| file.len());
        length("src/log.txt") > 0 && length("src/trace.jsonl") > 0
    });
    assert_eq!(reasons(&env), ["src/a.py changed"; 3]);
    client.hang_up(&env);
}

#[test]
fn a_client_hears_why_its_server_cannot_be_started() {
    let env = TestEnv::new();
    let mut afresh = env.start(&["mcp", "--", "no-such-command"]);
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}});
    afresh.write(&format!("{hello}\n"));
    assert_eq!(afresh.wait().code(), Some(127));
    assert!(afresh.stdout().contains("command not found: `no-such-command`"), "{afresh:?}");
    env.assert_nothing_left();
}

#[test]
fn a_trace_that_cannot_be_written_is_said() {
    let env = TestEnv::new();
    let mut afresh = env.start(&["mcp", "--trace", "/dev/full", "--", "cat"]);
    afresh.write("{\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n");
    afresh.wait_stderr("the trace cannot be written", 1);
    afresh.close_stdin();
    assert_eq!(afresh.wait().code(), Some(0));
    env.assert_nothing_left();
}
