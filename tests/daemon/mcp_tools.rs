//! The tools of `afresh mcp` itself, what a client hears of a server's end, and what the commands see
//! of it.

use std::fs;
use std::net::TcpListener;

use afresh_tests::{Running, TestEnv, stop_short, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::mcp::{Client, QUICK, names, text_of};

const OURS: [&str; 4] =
    ["restart_server", "verify_server_restarted", "server_status", "server_logs"];

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).expect("it runs");
}

/// Whether the client was told that the tools have changed.
fn tells_of_tools(told: &[Value]) -> usize {
    told.iter().filter(|it| it["method"] == "notifications/tools/list_changed").count()
}

fn restart(client: &mut Client) -> (Value, Vec<Value>) {
    client.ask_among("tools/call", &json!({"name": "restart_server", "arguments": {}}))
}

#[test]
fn our_tools_stand_at_the_end_of_the_last_page() {
    // R1
    let env = TestEnv::new();
    env.write("tools", "pid Tells\n---\necho Echoes\n---\nserver_logs Its own\n");
    let mut client = Client::connect(&env, &QUICK, "");
    let pages = [json!({}), json!({"cursor": "1"}), json!({"cursor": "2"})];
    let pages = pages.map(|page| client.ask("tools/list", &page));
    assert_eq!(names(&pages[0]), ["pid"]);
    assert_eq!(names(&pages[1]), ["echo"]);
    // The server's name is the server's.
    let last = ["server_logs", OURS[0], OURS[1], OURS[2], "afresh_server_logs"];
    assert_eq!(names(&pages[2]), last);
    let theirs = client.call("server_logs", &json!({}));
    assert_eq!(theirs["error"]["message"], "no such tool", "the server has it: {theirs}");
    let ours = client.call("afresh_server_logs", &json!({}));
    assert_eq!(text_of(&ours), "the server `mcp-server` has written nothing to stderr");
    client.hang_up(&env);
}

#[test]
fn tools_of_two_servers_in_one_client_differ_and_the_answers_name_their_server() {
    let env = TestEnv::new();
    let mut clients = ["docs", "my code"]
        .map(|name| Client::connect(&env, &[&QUICK[..], &["--name", name]].concat(), ""));
    let names = [("docs", "docs"), ("my_code", "my code")];
    for (client, (prefix, name)) in clients.iter_mut().zip(names) {
        let listed = OURS.map(|tool| format!("{prefix}_{tool}"));
        assert_eq!(client.tools()[1..], listed);
        // The bare names of existing prompts and allow-lists, too.
        for tool in [OURS[0], &listed[0]] {
            let answer = client.call(tool, &json!({}));
            assert_eq!(answer["result"]["structuredContent"]["server"], name, "{answer}");
            let begins = format!("the server `{name}` was restarted");
            assert!(text_of(&answer).starts_with(&begins), "{answer}");
        }
        for since in [json!(0), json!("2026-01-01T00:00:00Z")] {
            let data = client.call_ours(&listed[1], &json!({"since_timestamp": since}));
            assert_eq!(
                (&data["server"], &data["restarted"]),
                (&json!(name), &json!(true)),
                "{data}"
            );
        }
        assert_eq!(client.call_ours(&listed[2], &json!({}))["name"], name);
        assert_eq!(client.call_ours(&listed[3], &json!({}))["server"], name);
    }
    let [first, second] = clients;
    second.hang_up_alone();
    first.hang_up(&env);
}

#[test]
fn the_prefix_and_the_number_of_our_tools_can_be_chosen() {
    let cases: [(&[&str], &[&str]); 3] = [
        (&["--name", "docs", "--tool-prefix", "none"], &OURS),
        (&["--name", "docs", "--tools", "restart"], &["docs_restart_server"]),
        (&["--tools", "restart"], &["restart_server"]),
    ];
    for (flags, ours) in cases {
        let env = TestEnv::new();
        let mut client = Client::connect(&env, flags, "");
        assert_eq!(client.tools()[1..], *ours, "{flags:?}");
        let answer = client.call("server_status", &json!({}));
        assert_eq!(answer["result"].is_object(), ours.len() > 1, "{flags:?}: {answer}");
        client.hang_up(&env);
    }
}

#[test]
fn our_tools_can_be_left_out_and_stand_alone() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &["--tools", "none"], "");
    assert_eq!(client.tools(), ["pid"]);
    for tool in OURS {
        let answer = client.call(tool, &json!({}));
        assert_eq!(answer["error"]["message"], "no such tool", "{answer}");
    }
    client.hang_up(&env);
    let env = TestEnv::new();
    let mut client = Client::start(&env, &QUICK, "no-tools");
    let answer = client.ask("initialize", &json!({"protocolVersion": "2025-11-25"}));
    assert_eq!(answer["result"]["capabilities"]["tools"]["listChanged"], true, "{answer}");
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert_eq!(client.tools(), OURS);
    let (answer, told) = restart(&mut client);
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    assert_eq!(tells_of_tools(&told), 0);
    client.hang_up(&env);
}

#[test]
fn a_restart_is_answered_by_the_new_instance_and_tells_what_has_changed() {
    // R1 R2 R4 R7 W6
    let env = TestEnv::new();
    env.write("tools", "pid Tells\nold Goes\nsame Stays\n");
    let mut client = Client::connect(&env, &QUICK, "");
    client.tools();
    let old = client.pid();
    let (answer, told) = restart(&mut client);
    let data = &answer["result"]["structuredContent"];
    assert_eq!(data["restarted"], true, "{answer}");
    assert_eq!(data["old_pid"], old);
    let new = client.pid();
    assert_eq!(data["new_pid"], new);
    assert!(new != old && data["seconds"].as_f64().is_some_and(|seconds| seconds < 30.0));
    assert_eq!(data["tools"], json!({"count": 3, "added": [], "removed": [], "changed": []}));
    assert_eq!(tells_of_tools(&told), 0, "{told:?}");
    // Other tools, from now on.
    env.write("tools", "pid Tells more\nnew Comes\nsame Stays\n");
    let (answer, told) = restart(&mut client);
    let tools = &answer["result"]["structuredContent"]["tools"];
    let expected = json!({"count": 3, "added": ["new"], "removed": ["old"], "changed": ["pid"]});
    assert_eq!(*tools, expected, "{answer}");
    let text = text_of(&answer);
    assert!(text.contains("added: new") && text.contains("removed: old"), "{text}");
    assert_eq!(tells_of_tools(&told), 1, "{told:?}");
    let (_, told) = restart(&mut client);
    assert_eq!(tells_of_tools(&told), 0, "{told:?}");
    assert_eq!(client.tools()[..3], ["pid", "new", "same"]);
    // After a crash the same: once, and not for nothing.
    env.write("tools", "pid Tells more\n");
    let params = json!({"name": "exit", "arguments": {"code": 1}});
    client.ask_among("tools/call", &params);
    let (_, told) = client.ask_among("tools/call", &json!({"name": "server_status"}));
    let (_, later) = client.ask_among("tools/call", &json!({"name": "pid"}));
    let (_, last) = client.ask_among("ping", &json!({}));
    let (list, behind) = client.ask_among("tools/list", &json!({}));
    assert_eq!(names(&list)[0], "pid");
    assert_eq!(tells_of_tools(&[told, later, last, behind].concat()), 1);
    client.hang_up(&env);
}

#[test]
fn broken_code_is_answered_with_its_traceback_and_the_old_server_stays() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &QUICK, "");
    let old = client.pid();
    let broken = env.write("broken", "");
    let (answer, _) = restart(&mut client);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let text = text_of(&answer);
    assert!(text.contains("NameError: name 'x' is not defined"), "{text}");
    assert!(text.contains("exited with code 1"), "{text}");
    assert_eq!(answer["result"]["structuredContent"]["restarted"], false);
    assert_eq!(client.pid(), old);
    fs::remove_file(broken).expect("it is there");
    let (answer, _) = restart(&mut client);
    assert_eq!(answer["result"]["structuredContent"]["new_pid"], client.pid());
    client.hang_up(&env);
}

/// A port that nobody has.
fn free_port() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there is one");
    listener.local_addr().expect("it has one").port().to_string()
}

#[test]
fn a_server_that_needs_its_port_for_itself_is_told_apart_and_can_be_replaced() {
    let env = TestEnv::new();
    env.write("port", &free_port());
    let mut client = Client::connect(&env, &QUICK, "");
    let old = client.pid();
    let (answer, _) = restart(&mut client);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let text = text_of(&answer);
    assert!(text.contains("cannot bind") && text.contains("--restart-mode replace"), "{text}");
    assert_eq!(client.pid(), old);
    client.hang_up(&env);
    let flags = [&QUICK[..], &["--restart-mode", "replace"]].concat();
    let mut client = Client::connect(&env, &flags, "");
    let old = client.pid();
    let (answer, _) = restart(&mut client);
    assert_eq!(answer["result"]["structuredContent"]["old_pid"], old, "{answer}");
    assert_eq!(answer["result"]["structuredContent"]["new_pid"], client.pid(), "{answer}");
    // Broken code takes it away here: the error is the same, and the next try brings it back.
    let broken = env.write("broken", "");
    let (answer, _) = restart(&mut client);
    assert!(text_of(&answer).contains("NameError"), "{answer}");
    fs::remove_file(broken).expect("it is there");
    let (answer, _) = restart(&mut client);
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    client.hang_up(&env);
}

#[test]
fn a_server_that_hangs_is_restarted_at_once() {
    // R7
    let env = TestEnv::new();
    let flags = [&QUICK[..], &["--drain-timeout", "100ms"]].concat();
    let mut client = Client::connect(&env, &flags, "");
    let old = client.pid();
    client.send_call(900, "hang", &json!({}));
    let (answer, told) = restart(&mut client);
    assert_eq!(answer["result"]["structuredContent"]["old_pid"], old, "{answer}");
    let hung = match told.into_iter().find(|message| message["id"] == 900) {
        Some(hung) => hung,
        None => client.hear(),
    };
    assert_eq!((&hung["id"], &hung["result"]["isError"]), (&json!(900), &json!(true)));
    assert_ne!(client.pid(), old);
    client.hang_up(&env);
}

#[test]
fn a_burst_of_restarts_is_throttled_and_all_of_it_is_answered_and_on_record() {
    // W4 W12 R2 R7
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &["--throttle", "300ms"], "");
    let old = client.pid();
    for id in 100..110 {
        client.send_call(id, "restart_server", &json!({"reason": format!("reason {id}")}));
    }
    let mut answered: Vec<u64> = Vec::new();
    let mut last = Value::Null;
    for _ in 0..10 {
        let answer = client.hear();
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        assert_eq!(answer["result"]["structuredContent"]["old_pid"], old, "{answer}");
        answered.extend(answer["id"].as_u64());
        last = answer;
    }
    answered.sort_unstable();
    assert_eq!(answered, (100..110).collect::<Vec<u64>>());
    assert_eq!(last["result"]["structuredContent"]["new_pid"], client.pid());
    let reasons: Vec<Value> = env
        .events("server_restart_requested")
        .iter()
        .map(|r| r["props"]["reason"].clone())
        .collect();
    assert_eq!(reasons, (100..110).map(|id| json!(format!("reason {id}"))).collect::<Vec<_>>());
    assert_eq!(env.events("restart_marker_written").len(), 10);
    wait_for("it is on record", || !env.events("server_restart_throttled").is_empty());
    let candidates = env.events("server_candidate_started").len();
    assert!(candidates <= 3, "{candidates} instances for one burst");
    assert!(env.events("server_swap_failed").is_empty());
    client.hang_up(&env);
}

#[test]
fn a_restart_brings_a_server_back_that_waits_or_was_given_up() {
    // R7
    for flags in
        [["--max-restarts", "2", "--delay", "50s"], ["--max-restarts", "1", "--delay", "1ms"]]
    {
        let env = TestEnv::new();
        let mut client = Client::connect(&env, &[&flags[..], &["--throttle", "1ms"]].concat(), "");
        client.pid();
        let broken = env.write("broken", "");
        client.call("exit", &json!({"code": 1}));
        let state = |client: &mut Client| {
            client.call_ours("server_status", &json!({}))["state"].as_str().map(str::to_owned)
        };
        wait_for("it waits or is given up", || {
            matches!(state(&mut client).as_deref(), Some("backing off" | "failed"))
        });
        // Still broken: the answer says so.
        let (answer, _) = restart(&mut client);
        assert!(text_of(&answer).contains("NameError"), "{answer}");
        fs::remove_file(broken).expect("it is there");
        wait_for("it waits or is given up", || {
            matches!(state(&mut client).as_deref(), Some("backing off" | "failed" | "ready"))
        });
        let (answer, _) = restart(&mut client);
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        assert_eq!(answer["result"]["structuredContent"]["new_pid"], client.pid());
        client.hang_up(&env);
    }
}

#[test]
fn the_secrets_of_a_reason_are_nowhere() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &QUICK, "");
    client.pid();
    let reason = "rotate api_key=sk-hush-hush-hush-0123456789 now";
    client.call_ours("restart_server", &json!({"reason": reason}));
    let verified = client.call_ours("verify_server_restarted", &json!({"since_timestamp": 0}));
    assert!(verified["reason"].as_str().is_some_and(|it| it.contains("rotate")), "{verified}");
    let status = client.call_ours("server_status", &json!({}));
    let marker = fs::read_to_string(env.work().join(".afresh/restart_marker.json"));
    let trail = fs::read_to_string(env.audit_file()).expect("there is one");
    for text in [verified.to_string(), status.to_string(), marker.expect("there is one"), trail] {
        assert!(text.contains("rotate") && !text.contains("hush"), "{text}");
    }
    client.hang_up(&env);
}

fn stamp() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_secs_f64()
}

#[test]
fn a_restart_can_be_verified_and_each_verification_is_on_record() {
    // R5 R6
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &QUICK, "");
    let old = client.pid();
    let verify = |client: &mut Client, since: f64| {
        client.call_ours("verify_server_restarted", &json!({"since_timestamp": since}))
    };
    let before = stamp();
    let missing = verify(&mut client, before);
    assert_eq!(missing["restarted"], false);
    assert!(
        missing["error"].as_str().is_some_and(|why| why.contains("does not exist")),
        "{missing}"
    );
    client.call_ours("restart_server", &json!({"reason": "new parser"}));
    let good = verify(&mut client, before);
    assert_eq!(good["restarted"], true, "{good}");
    assert_eq!((&good["previous_pid"], &good["reason"]), (&json!(old), &json!("new parser")));
    assert_eq!(good["current_pid"], client.pid());
    let at = good["restart_timestamp"].as_f64().expect("a number");
    assert!(at >= before && at <= stamp());
    assert!(good["time_since_restart"].as_f64().is_some_and(|it| it <= stamp() - before));
    assert!(good["iso_time"].as_str().is_some_and(|time| time.ends_with('Z')));
    assert!(good.get("error").is_none(), "{good}");
    let older = verify(&mut client, at + 0.001);
    assert_eq!(older["restarted"], false);
    assert!(older["error"].as_str().is_some_and(|why| why.contains("older")), "{older}");
    env.write(".afresh/restart_marker.json", "{\"timestamp\":");
    let corrupt = verify(&mut client, before);
    assert_eq!(corrupt["restarted"], false);
    assert!(corrupt["error"].as_str().is_some_and(|why| why.contains("corrupt")), "{corrupt}");
    let bad = client.call("verify_server_restarted", &json!({"since_timestamp": "now"}));
    assert_eq!(bad["result"]["isError"], true);
    assert!(text_of(&bad).contains("since_timestamp"), "{bad}");
    let told = |r: &Value| (r["props"]["result"]["restarted"].clone(), r["level"].clone());
    wait_for("all are on record", || env.events("server_restart_verified").len() == 4);
    let story: Vec<_> = env.events("server_restart_verified").iter().map(told).collect();
    let expected = [false, true, false, false].map(|it| (json!(it), json!("INFO")));
    assert_eq!(story, expected);
    client.hang_up(&env);
}

#[test]
fn the_marker_of_another_server_verifies_nothing() {
    // R6
    let env = TestEnv::new();
    let mut first = Client::connect(&env, &QUICK, "");
    let old = first.pid();
    // One of the same name, and one of another: all write the same file.
    for name in ["mcp-server", "other"] {
        let flags = [&QUICK[..], &["--name", name]].concat();
        let mut second = Client::connect(&env, &flags, "");
        second.pid();
        let before = stamp();
        second.call_ours("restart_server", &json!({"reason": "not yours"}));
        let since = json!({"since_timestamp": before});
        let wrong = first.call_ours("verify_server_restarted", &since);
        assert_eq!(wrong["restarted"], false, "{wrong}");
        assert!(wrong["error"].as_str().is_some_and(|why| why.contains("another")), "{wrong}");
        assert_eq!(second.call_ours("verify_server_restarted", &since)["restarted"], true);
        second.hang_up_alone();
    }
    let before = stamp();
    first.call_ours("restart_server", &json!({"reason": "mine"}));
    let mut second = Client::connect(&env, &QUICK, "");
    second.call_ours("restart_server", &json!({"reason": "not yours"}));
    let right = first.call_ours("verify_server_restarted", &json!({"since_timestamp": before}));
    assert_eq!(right["restarted"], true, "{right}");
    assert_eq!((&right["reason"], &right["previous_pid"]), (&json!("mine"), &json!(old)));
    second.hang_up_alone();
    first.hang_up(&env);
}

#[test]
fn the_status_has_the_pid_the_restarts_with_reasons_and_the_last_exit() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &QUICK, "");
    client.tools();
    let first = client.pid();
    let status = client.call_ours("server_status", &json!({}));
    assert_eq!((&status["state"], &status["pid"]), (&json!("ready"), &json!(first)), "{status}");
    assert!(status["uptime_ms"].as_u64().is_some_and(|millis| millis < 60_000), "{status}");
    assert_eq!(status["restarts"], json!({"total": 0, "last": []}));
    assert_eq!((&status["last_exit"], &status["tools"]), (&Value::Null, &json!(1)));
    client.call("crash", &json!({"text": "oh no"}));
    client.pid();
    // What this one offers was asked for before the second of these calls.
    client.pid();
    env.write("tools", "pid Tells\nmore Comes\n");
    client.send_call(700, "restart_server", &json!({"reason": "new parser"}));
    assert_eq!(client.hear()["method"], "notifications/tools/list_changed");
    assert_eq!(client.hear()["id"], 700);
    let last = client.pid();
    let status = client.call_ours("server_status", &json!({}));
    assert_eq!(status["pid"], last);
    assert_eq!(status["restarts"]["total"], 2);
    let reasons = status["restarts"]["last"].as_array().expect("a list");
    assert!(reasons[0]["reason"].as_str().is_some_and(|it| it.contains("code 1")), "{status}");
    assert_eq!(reasons[1]["reason"], "new parser");
    assert_eq!(status["last_exit"]["code"], 1, "{status}");
    assert_eq!(status["last_restart_tools"]["added"], json!(["more"]));
    assert_eq!(status["requests_in_flight"], 0, "the call itself is ours: {status}");
    client.hang_up(&env);
}

#[test]
fn the_log_reaches_across_restarts_and_can_be_searched() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &QUICK, "");
    let text = |client: &mut Client, arguments: Value| {
        text_of(&client.call("server_logs", &arguments)).to_owned()
    };
    let nothing = "the server `mcp-server` has written nothing to stderr";
    assert_eq!(text(&mut client, json!({})), nothing);
    let logs = |client: &mut Client, arguments: Value| {
        let all = text(client, arguments);
        all.strip_prefix("stderr of `mcp-server`:\n").unwrap_or(&all).to_owned()
    };
    client.call("stderr", &json!({"text": "one Warning\ntwo"}));
    client.call("crash", &json!({"text": "three"}));
    client.call("stderr", &json!({"text": "four, password=hush-hush"}));
    wait_for("all lines", || logs(&mut client, json!({})).lines().count() == 4);
    let all = logs(&mut client, json!({}));
    let words = ["[instance 1] one Warning", "1] two", "1] three", "[instance 2] four"];
    assert!(all.lines().zip(words).all(|(line, word)| line.contains(word)), "{all}");
    assert!(!all.contains("hush"), "{all}");
    assert_eq!(logs(&mut client, json!({"lines": 1})), all.lines().next_back().expect("four"));
    assert_eq!(logs(&mut client, json!({"filter": "WARN"})), all.lines().next().expect("four"));
    let nothing = logs(&mut client, json!({"filter": "five"}));
    assert_eq!(nothing, "no line on stderr of `mcp-server` has that in it");
    for (bad, word) in [
        (json!({"lines": 0}), "`lines` must be a whole number"),
        (json!({"lines": "all"}), "`lines` must be a whole number"),
        (json!({"filter": 7}), "`filter` must be a string"),
        (json!([1]), "must be an object"),
    ] {
        let answer = client.call("server_logs", &bad);
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        assert!(text_of(&answer).contains(word), "{answer}");
    }
    client.hang_up(&env);
}

#[test]
fn what_was_in_flight_says_how_the_server_ended_and_what_it_wrote() {
    // G5
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &QUICK, "");
    let answer = client.call("crash", &json!({"text": "KeyError: 'x' token=hush-hush"}));
    let text = text_of(&answer);
    assert!(text.contains("exited with code 1") && text.contains("KeyError"), "{text}");
    assert!(text.contains("outcome is unknown") && !text.contains("hush"), "{text}");
    let answer = client.call("die", &json!({}));
    let text = text_of(&answer);
    assert!(text.contains("SIGKILL") && text.contains("it wrote nothing to stderr"), "{text}");
    client.hang_up(&env);
    // What waits until it is given up hears why.
    let env = TestEnv::new();
    let flags = ["--delay", "1ms", "--max-restarts", "1"];
    let mut client = Client::connect(&env, &flags, "");
    client.pid();
    env.write("broken", "");
    client.send_call(800, "exit", &json!({"code": 1}));
    assert_eq!(client.hear()["id"], 800);
    client.send_call(801, "pid", &json!({}));
    let answer = client.hear();
    assert_eq!(answer["id"], 801);
    let text = text_of(&answer);
    assert!(text.contains("nothing was done") && text.contains("NameError"), "{text}");
    client.hang_up(&env);
}

#[test]
fn a_call_that_the_dead_server_never_read_is_answered_by_the_next_one() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &QUICK, "");
    for _ in 0..3 {
        let old = client.pid();
        stop_short(old);
        for id in 300..303 {
            client.send_call(id, "echo", &json!({"text": id.to_string()}));
        }
        // All of it has been taken by afresh when it answers this one itself.
        client.call_ours("server_status", &json!({}));
        signal(old, Signal::SIGKILL);
        for id in 300..303 {
            let answer = client.hear();
            assert_eq!((&answer["id"], text_of(&answer)), (&json!(id), id.to_string().as_str()));
        }
        assert_ne!(client.pid(), old);
    }
    client.hang_up(&env);
}

#[test]
fn after_a_clean_exit_afresh_exits_too_and_owes_nothing() {
    // W2
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &QUICK, "");
    client.pid();
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/exit"}));
    assert_eq!(client.wait(&env), Some(0));
    // Where nothing is restarted, who waits is answered.
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &["--policy", "never"], "");
    client.pid();
    let answers = exit_during_calls(&mut client);
    let message = answers[1]["error"]["message"].as_str().expect("an error");
    assert!(message.contains("ended for good") && message.contains("code 0"), "{message}");
    assert_eq!(client.wait(&env), Some(0));
    // Unless that is to be restarted.
    let env = TestEnv::new();
    let flags = [&QUICK[..], &["--on-clean-exit", "restart"]].concat();
    let mut client = Client::connect(&env, &flags, "");
    let old = client.pid();
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/exit"}));
    wait_for("there is another one", || env.events("server_started").len() == 2);
    assert_ne!(client.pid(), old);
    client.hang_up(&env);
}

/// Lets the server exit with 0 by a call, with a list behind it; returns both answers. In one write: a request that
/// comes after the end of a server that is not restarted is answered by none.
fn exit_during_calls(client: &mut Client) -> [Value; 2] {
    let params = json!({"name": "exit", "arguments": {"code": 0}});
    let exit = json!({"jsonrpc": "2.0", "id": 60, "method": "tools/call", "params": params});
    let list = json!({"jsonrpc": "2.0", "id": 61, "method": "tools/list"});
    client.send_text(&format!("{exit}\n{list}\n"));
    let answers = [client.hear(), client.hear()];
    assert_eq!((&answers[0]["id"], &answers[1]["id"]), (&json!(60), &json!(61)));
    assert_eq!(answers[0]["result"]["isError"], true, "{answers:?}");
    assert!(text_of(&answers[0]).contains("the server ended while this ran"), "{answers:?}");
    answers
}

#[test]
fn the_first_result_after_a_crash_says_that_state_is_lost() {
    for (flags, is_told) in [(&[][..], true), (&["--tell-restarts", "off"], false)] {
        let env = TestEnv::new();
        let mut client = Client::connect(&env, &[&QUICK[..], flags].concat(), "");
        client.tools();
        client.pid();
        client.call("crash", &json!({"text": "oh no"}));
        let answer = client.call("pid", &json!({}));
        let (meta, content) = (&answer["result"]["_meta"], &answer["result"]["content"]);
        assert_eq!(meta["afresh/restarted"]["how"] == "exited with code 1", is_told, "{answer}");
        let text = content[1]["text"].as_str().unwrap_or_default();
        assert_eq!(text.contains("What it kept in memory is lost"), is_told, "{answer}");
        // Once, and not after a swap.
        let answer = client.call("pid", &json!({}));
        assert_eq!(answer["result"]["_meta"], Value::Null, "{answer}");
        restart(&mut client);
        let answer = client.call("pid", &json!({}));
        assert_eq!(answer["result"]["_meta"], Value::Null, "{answer}");
        // A restart that failed while nobody waited for it, as of a watch.
        let broken = env.write("broken", "");
        client.restart_server();
        wait_for("the status says it", || {
            let status = client.call_ours("server_status", &json!({}));
            status["failed_restart"].as_str().is_some_and(|why| why.contains("NameError"))
        });
        let answer = client.call("pid", &json!({}));
        let text = answer["result"]["content"][1]["text"].as_str().unwrap_or_default();
        assert_eq!(text.contains("runs older code") && text.contains("NameError"), is_told);
        let answer = client.call("pid", &json!({}));
        assert_eq!(answer["result"]["_meta"], Value::Null, "{answer}");
        fs::remove_file(broken).expect("it is there");
        restart(&mut client);
        let status = client.call_ours("server_status", &json!({}));
        assert_eq!(status["failed_restart"], Value::Null, "{status}");
        client.hang_up(&env);
    }
}

#[test]
fn an_exit_with_0_while_a_call_is_in_flight_is_a_crash() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &QUICK, "");
    let mut old = client.pid();
    for _ in 0..2 {
        let answers = exit_during_calls(&mut client);
        assert_eq!(names(&answers[1])[0], "pid");
        let new = client.pid();
        assert_ne!(new, old);
        old = new;
    }
    wait_for("both are on record", || env.events("server_restarting").len() == 2);
    assert!(env.events("server_restarting").iter().all(|r| r["props"]["after"] == "crash"));
    client.hang_up(&env);
}

#[test]
fn a_signal_from_outside_does_not_take_the_server_away() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &QUICK, "");
    for signalled in [Signal::SIGTERM, Signal::SIGINT] {
        let old = client.pid();
        client.send_call(70, "later", &json!({}));
        // What was sent before it is read before it.
        assert_eq!(client.pid(), old);
        signal(old, signalled);
        let answer = client.hear();
        assert_eq!((&answer["id"], &answer["result"]["isError"]), (&json!(70), &json!(true)));
        assert_ne!(client.pid(), old);
    }
    client.hang_up(&env);
}

#[test]
fn who_ends_the_server_and_afresh_gets_no_other_server() {
    // Its stdin is closed, or it is signalled too, before it can look.
    for by_signal in [false, true] {
        let env = TestEnv::new();
        let mut client = Client::connect(&env, &QUICK, "");
        let (server, afresh) = (client.pid(), client.afresh());
        stop_short(afresh);
        signal(server, Signal::SIGTERM);
        match by_signal {
            true => signal(afresh, Signal::SIGTERM),
            false => client.close(),
        }
        signal(afresh, Signal::SIGCONT);
        client.wait(&env);
        assert_eq!(env.events("server_started").len(), 1);
    }
}

#[test]
fn the_commands_see_a_server_its_candidate_and_its_spare() {
    let env = TestEnv::new();
    let flags = [&QUICK[..], &["--spare"]].concat();
    let mut client = Client::connect(&env, &flags, "");
    let pid = client.pid();
    let spare = env.wait_for_pid("server_spare_started", 1);
    let hold = env.write("hold", "");
    client.restart_server();
    let candidate = env.wait_for_pid("server_candidate_started", 1);
    let shown = || {
        let text = env.run(&["status", "--json"]).stdout;
        let all: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
        all[0].clone()
    };
    wait_for("the status has all of them", || {
        let status = shown();
        status["pid"] == pid
            && status["candidate_pid"] == candidate
            && status["spare_pid"] == spare
            && status["state"] == "restarting"
            && status["face"] == "mcp"
    });
    let text = env.run(&["status", "mcp-server"]).stdout;
    assert!(text.contains(&format!("pid {candidate}")), "{text}");
    assert!(text.contains(&format!("pid {spare}")), "{text}");
    fs::remove_file(hold).expect("it is there");
    assert_eq!(env.wait_for_pid("server_started", 2), candidate);
    client.hang_up(&env);
}

#[test]
fn a_restart_by_command_waits_for_the_session_and_tells_the_traceback() {
    for mode in ["swap", "replace"] {
        let env = TestEnv::new();
        let flags = [&QUICK[..], &["--restart-mode", mode, "--max-restarts", "1"]].concat();
        let mut client = Client::connect(&env, &flags, "");
        let old = client.pid();
        let done = env.run(&["restart", "mcp-server", "--reason", "new parser"]);
        assert_eq!(done.code, Some(0), "{mode}: {done:?}");
        let new = client.pid();
        assert!(done.stdout.contains(&format!("{old} → {new}")), "{mode}: {done:?}");
        let broken = env.write("broken", "");
        let done = env.run(&["restart", "mcp-server"]);
        assert_eq!(done.code, Some(1), "{mode}: {done:?}");
        assert!(done.stdout.contains("NameError: name 'x'"), "{mode}: {done:?}");
        fs::remove_file(broken).expect("it is there");
        if mode == "swap" {
            assert_eq!(client.pid(), new);
        }
        let done = env.run(&["restart", "mcp-server"]);
        assert_eq!(done.code, Some(0), "{mode}: {done:?}");
        client.pid();
        client.hang_up(&env);
    }
}

#[test]
fn the_log_is_followed_across_a_swap() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &QUICK, "");
    client.call("stderr", &json!({"text": "from the first"}));
    let mut follower: Running = env.start(&["logs", "mcp-server", "-f", "-n", "50"]);
    follower.wait_stdout("from the first", 1);
    client.call_ours("restart_server", &json!({}));
    client.call("stderr", &json!({"text": "from the second"}));
    follower.wait_stdout("from the second", 1);
    follower.wait_stdout("restart requested", 1);
    client.hang_up_alone();
    assert_eq!(follower.wait().code(), Some(0), "{}", follower.stderr());
    env.assert_nothing_left();
}

#[test]
fn a_command_that_is_missing_for_a_while_does_not_cost_the_connection() {
    // R7 G3
    let env = TestEnv::new();
    let (place, away) = (env.work().join("build"), env.work().join("away"));
    fs::create_dir(&place).expect("the workspace is writable");
    let flags = ["--cwd", "build", "--delay", "1ms", "--max-restarts", "1", "--throttle", "1ms"];
    let mut client = Client::connect(&env, &flags, "");
    fs::rename(&place, &away).expect("it is there");
    // The old one goes on.
    let old = client.pid();
    let (answer, _) = restart(&mut client);
    assert!(text_of(&answer).contains("could not be started"), "{answer}");
    assert_eq!(client.pid(), old);
    client.call("exit", &json!({"code": 1}));
    wait_for("it is given up", || !env.events("server_gave_up").is_empty());
    let (answer, _) = restart(&mut client);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(text_of(&answer).contains("could not be started"), "{answer}");
    fs::rename(&away, &place).expect("it is there");
    let (answer, _) = restart(&mut client);
    assert_eq!(answer["result"]["structuredContent"]["new_pid"], client.pid(), "{answer}");
    client.hang_up(&env);
}
