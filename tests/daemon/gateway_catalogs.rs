//! What a gateway's clients see of servers that are still starting: their lists of the last run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use afresh_tests::connection::Connection;
use afresh_tests::{TestEnv, wait_for};
use serde_json::{Value, json};

use crate::gateway::{connect, send_call, server, tools};
use crate::mcp::text_of;

const SOON: &str = "[gateway]\nstart_wait = \"100ms\"\n";

fn file(env: &TestEnv) -> PathBuf {
    env.home().join(".local/state/afresh/private/catalogs.json")
}

fn stored(env: &TestEnv) -> Value {
    serde_json::from_str(&fs::read_to_string(file(env)).expect("it is there")).expect("JSON")
}

/// A gateway has been used in front of a server, which is as quick as ever.
fn used_once(more: &str) -> TestEnv {
    let env = TestEnv::new();
    let mut client = connect(&env, &[server(&env, "a", "", more)]);
    assert!(tools(&mut client).contains(&"a__pid".to_owned()));
    client.hang_up(&env);
    env
}

/// Opens a gateway in front of the same server, which starts when `a/hold` is gone.
fn connect_slow(env: &TestEnv, mode: &str, more: &str) -> Connection {
    env.write("a/hold", "");
    let entry = server(env, "a", mode, more);
    connect(env, &[SOON.to_owned(), entry])
}

fn go(env: &TestEnv) {
    fs::remove_file(env.work().join("a/hold")).expect("it is there");
}

fn of_a(list: &[String]) -> Vec<&str> {
    list.iter().filter_map(|name| name.strip_prefix("a__")).collect()
}

/// It is shown when the server has started.
#[track_caller]
fn end(env: &TestEnv, mut client: Connection) {
    go(env);
    while client.hear()["method"] != "notifications/tools/list_changed" {}
    assert!(tools(&mut client).contains(&"a__pid".to_owned()));
    client.hang_up(env);
}

#[test]
fn a_server_that_is_still_starting_has_the_tools_of_the_last_run() {
    let env = used_once("");
    assert_eq!(stored(&env)["version"], 1);
    let mode = fs::metadata(file(&env)).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!env.work().join("catalogs.json").exists());
    let mut client = connect_slow(&env, "", "");
    let all = ["pid", "echo", "later", "stderr", "crash", "wait"];
    assert_eq!(of_a(&tools(&mut client)), all);
    send_call(&mut client, "\"early\"", "a__pid", &json!({}));
    let status = client.call("\"status\"", "server_status", &json!({}));
    assert!(status.contains("starting"), "{status}");
    go(&env);
    let answer = client.hear_answer();
    assert_eq!(answer["id"], "early", "{answer}");
    text_of(&answer).parse::<i32>().expect("the process of the server");
    client.hang_up(&env);
    // It has other tools now: clients see these, and so do those of the next run.
    let mut client = connect_slow(&env, "", "");
    env.write("a/tools", "pid Tells\nnew_one Is new\n");
    assert_eq!(of_a(&tools(&mut client)), all);
    go(&env);
    while client.hear()["method"] != "notifications/tools/list_changed" {}
    assert_eq!(of_a(&tools(&mut client)), ["pid", "new_one"]);
    client.hang_up(&env);
    let text = stored(&env).to_string();
    assert!(text.contains("new_one") && !text.contains("later"), "{text}");
}

#[test]
fn a_server_that_is_started_otherwise_has_none_of_the_last_run() {
    let secret = "env = { TOKEN = \"hunter2\" }";
    let env = used_once(secret);
    assert!(!stored(&env).to_string().contains("hunter2"));
    for (mode, more) in [("chatty", secret), ("", "env = { TOKEN = \"another\" }"), ("", "")] {
        let mut client = connect_slow(&env, mode, more);
        assert_eq!(of_a(&tools(&mut client)), [""; 0], "{mode} {more}");
        end(&env, client);
    }
    let mut client = connect_slow(&env, "", secret);
    assert!(!of_a(&tools(&mut client)).is_empty(), "the first one is still known");
    go(&env);
    client.hang_up(&env);
}

#[test]
fn lists_of_a_newer_afresh_are_left_alone() {
    let env = used_once("");
    let newer = stored(&env).to_string().replace("\"version\":1", "\"version\":2");
    fs::write(file(&env), &newer).expect("ours");
    let mut client = connect_slow(&env, "", "");
    assert_eq!(of_a(&tools(&mut client)), [""; 0]);
    wait_for("the log says why", || {
        let log = client.log();
        log.contains("no tools of the last run")
            && log.contains("has version 2, and this afresh knows 1")
    });
    end(&env, client);
    assert_eq!(fs::read_to_string(file(&env)).expect("it is there"), newer);
}

#[test]
fn lists_of_version_1_are_read() {
    let env = used_once("");
    let key = stored(&env)["servers"][0]["key"].as_str().expect("a key").to_owned();
    let text = include_str!("../compat/catalogs-1.json").replace("KEY", &key);
    fs::write(file(&env), text).expect("ours");
    let mut client = connect_slow(&env, "", "");
    assert_eq!(of_a(&tools(&mut client)), ["pid", "gone"]);
    end(&env, client);
}
