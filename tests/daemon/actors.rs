//! What the trail says about who did it: `by` in the records of restarts, stops and refusals.

use std::fs;
use std::process::Stdio;

use afresh_tests::api::Api;
use afresh_tests::http_client::{HttpClient, port_of};
use afresh_tests::{TestEnv, wait_for};
use nix::sys::signal::Signal;
use nix::unistd::Uid;
use serde_json::{Value, json};

use crate::gateway::server;
use crate::mcp::{Client, QUICK};
use crate::{HOSTILE, keep, stop};

/// The `by` of the last record of a type, once there is one.
#[track_caller]
fn by(env: &TestEnv, event_type: &str) -> Value {
    wait_for(event_type, || !env.events(event_type).is_empty());
    env.events(event_type).pop().expect("just seen")["props"]["by"].clone()
}

fn own_uid() -> u32 {
    Uid::effective().as_raw()
}

#[test]
fn a_command_is_recorded_with_its_user_and_process() {
    let env = TestEnv::new();
    let mut afresh = keep(&env, &[], &["idle"]);
    afresh.wait_started(1);
    let mut restart = env.afresh(&["restart", "hostile"]);
    let mut child = restart.stdout(Stdio::null()).spawn().expect("it starts");
    let wanted = json!({"uid": own_uid(), "pid": child.id()});
    assert!(child.wait().expect("it ends").success());
    for event_type in ["server_restart_requested", "server_exiting_for_restart"] {
        assert_eq!(by(&env, event_type), wanted, "{event_type}");
    }
    // Too soon after the last one.
    assert_eq!(env.run(&["restart", "hostile"]).code, Some(0));
    assert_eq!(by(&env, "server_restart_throttled")["uid"], own_uid());
    let history = env.run(&["history", "--event", "server_restart_requested"]);
    let shown = format!("[by uid {}, pid {}]", own_uid(), wanted["pid"]);
    assert!(history.stdout.contains(&shown), "{history:?}");
    assert_eq!(env.run(&["stop", "hostile"]).code, Some(0));
    for event_type in ["server_stop_requested", "server_stopped"] {
        assert_eq!(by(&env, event_type)["uid"], own_uid(), "{event_type}");
    }
    afresh.signal(Signal::SIGTERM);
    assert_eq!(afresh.wait().code(), Some(0), "{}", afresh.stderr());
    assert_eq!(by(&env, "supervisor_stopped"), json!({"signal": "SIGTERM"}));
    env.assert_nothing_left();
}

#[test]
fn signals_tokens_and_watched_files_are_actors() {
    let env = TestEnv::new();
    let mut afresh = env.start(&["keep", "--listen", "0", "--name", "web", "--", HOSTILE, "idle"]);
    let api = Api::of(&env, &afresh);
    afresh.wait_started(1);
    afresh.signal(Signal::SIGUSR1);
    assert_eq!(by(&env, "server_restart_requested"), json!({"signal": "SIGUSR1"}));
    afresh.wait_started(2);
    assert_eq!(api.ask("POST /v1/services/web/restart?wait=true", "").status, 200);
    assert_eq!(by(&env, "server_restart_requested"), json!({"token": "control"}));
    stop(&env, &mut afresh);
    assert_eq!(by(&env, "server_stopped"), json!({"signal": "SIGTERM"}));
}

#[test]
fn a_file_that_changed_is_recorded_as_the_watch() {
    let env = TestEnv::new();
    env.write("tools", "pid Tells\n");
    let watched = env.write("code", "1");
    let client = Client::connect(&env, &["--watch", "code", "--delay", "0s"], "");
    fs::write(watched, "2").expect("it is writable");
    assert_eq!(by(&env, "server_restart_requested"), json!({"afresh": "watch"}));
    client.hang_up(&env);
    assert_eq!(by(&env, "server_stopped"), json!({"afresh": "client has gone"}));
}

#[test]
fn a_tool_call_is_recorded_with_its_client() {
    let env = TestEnv::new();
    env.write("tools", "pid Tells\n");
    let mut client = Client::connect(&env, &QUICK, "");
    client.call("restart_server", &json!({}));
    let wanted = json!({"client": "t", "tool": "restart_server"});
    for event_type in ["server_restart_requested", "server_exiting_for_restart"] {
        assert_eq!(by(&env, event_type), wanted, "{event_type}");
    }
    client.hang_up(&env);
}

#[test]
fn a_client_of_the_gateway_is_recorded_with_its_token() {
    let env = TestEnv::new();
    let token = "[gateway.token.ci]\ntoken = \"ci-0123456789abcdef\"\n\
                 [gateway.token.me]\ntoken = \"me-0123456789abcdef\"\n";
    env.write("afresh.toml", &[server(&env, "a", "", ""), token.to_owned()].concat());
    let mut gateway = env.start(&["gateway", "--http", "127.0.0.1:0"]);
    let port = port_of(&gateway);
    let client = |secret: &str| {
        let mut client = HttpClient::new(port);
        client.token = Some(secret.to_owned());
        client.open();
        client
    };
    let (mut ci, mut me) = (client("ci-0123456789abcdef"), client("me-0123456789abcdef"));
    // A call that is none leaves nothing behind.
    me.call("1", "restart_server", &json!({"server": "a", "reason": 7}));
    let restarted = ci.call("2", "restart_server", &json!({"server": "a"}));
    assert!(restarted.text().contains("restarted"), "{restarted:?}");
    let wanted = json!({"client": "t", "token": "ci", "tool": "restart_server"});
    assert_eq!(by(&env, "server_restart_requested"), wanted);
    // What is refused names the token that is known, or the address.
    me.session = ci.session.clone();
    assert_eq!(me.ask("3", "tools/list", &json!({})).status, 404);
    assert_eq!(by(&env, "request_refused"), json!({"token": "me"}));
    assert_eq!(HttpClient::new(port).ask("1", "initialize", &json!({})).status, 401);
    wait_for("the next one", || env.events("request_refused").len() == 2);
    let refused = env.events("request_refused").remove(1);
    let address = refused["props"]["by"]["address"].as_str().expect("an address");
    assert!(address.starts_with("127.0.0.1:"), "{refused}");
    assert_eq!(refused["props"]["status"], 401);
    assert_eq!(refused["props"]["request"], "POST /mcp");
    stop(&env, &mut gateway);
}

#[test]
fn a_flood_of_refusals_does_not_fill_the_trail() {
    let env = TestEnv::new();
    let mut afresh = env.start(&["keep", "--listen", "0", "--name", "web", "--", HOSTILE, "idle"]);
    let api = Api::of(&env, &afresh);
    afresh.wait_started(1);
    let without_token: Vec<String> = api.headers().into_iter().take(1).collect();
    for number in 0..100 {
        let answer = api.ask_with(&format!("GET /v1/services?{number}"), &without_token, "");
        assert_eq!(answer.status, 401, "{answer:?}");
    }
    stop(&env, &mut afresh);
    let refused = env.events("request_refused");
    // A minute may have begun meanwhile.
    assert!((21..=42).contains(&refused.len()), "{}", refused.len());
    let suppressed = refused.iter().filter_map(|record| record["props"]["suppressed"].as_u64());
    assert_eq!(refused.len() as u64 + suppressed.sum::<u64>(), 100);
    assert!(refused.iter().all(|record| record["props"]["by"]["address"].is_string()));
}
