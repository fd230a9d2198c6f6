//! Tasks of servers whose processes are killed, under `afresh mcp` and through `afresh gateway` with two servers.

use afresh_tests::TestEnv;
use afresh_tests::connection::{Connection, kill_server};
use serde_json::{Value, json};

use crate::AT_ONCE;
use crate::gateway::{AT_ONCE as KEYS_AT_ONCE, SERVER, connect, server};
use crate::mcp::text_of;

/// Creates a task, and returns its handle.
#[track_caller]
fn create(client: &mut Connection, prefix: &str) -> String {
    let params = json!({"name": format!("{prefix}pid"), "task": {"ttl": 60_000}});
    let answer = client.ask("\"create\"", "tools/call", &params);
    let handle = answer["result"]["task"]["taskId"].as_str();
    handle.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[track_caller]
fn get(client: &mut Connection, handle: &str) -> Value {
    client.ask("\"get\"", "tasks/get", &json!({"taskId": handle}))["result"].take()
}

/// Kills the server with a task in each of its states: it has failed, and says why, unless its client was told its end.
#[track_caller]
fn kill_in_each_state(env: &TestEnv, client: &mut Connection, prefix: &str, folder: &str) {
    let done = format!("{folder}done");
    let die = |client: &mut Connection| {
        let pid = client.call("\"pid\"", &format!("{prefix}pid"), &json!({}));
        kill_server(pid.parse().expect("a number"));
    };
    let has_failed = |client: &mut Connection, handle: &str| {
        let task = get(client, handle);
        assert_eq!(
            (&task["taskId"], &task["status"]),
            (&json!(handle), &json!("failed")),
            "{task}"
        );
        let why = task["statusMessage"].as_str().expect("words");
        assert!(why.contains("SIGKILL"), "{why}");
    };
    // While it works.
    let handle = create(client, prefix);
    assert_eq!(get(client, &handle)["status"], "working");
    die(client);
    has_failed(client, &handle);
    // While its result is awaited.
    let handle = create(client, prefix);
    client.send("\"result\"", "tasks/result", &json!({"taskId": handle}));
    die(client);
    let result = client.hear_answer();
    assert_eq!((&result["id"], &result["result"]["isError"]), (&json!("result"), &json!(true)));
    assert!(text_of(&result).contains("SIGKILL"), "{result}");
    has_failed(client, &handle);
    // When it is done, and its result not fetched.
    let handle = create(client, prefix);
    env.write(&done, "");
    let done_task = get(client, &handle);
    assert_eq!(done_task["status"], "completed");
    die(client);
    assert_eq!(get(client, &handle), done_task, "what was told stays");
    let result = client.ask("\"gone\"", "tasks/result", &json!({"taskId": handle}));
    assert_eq!(result["result"]["isError"], true);
    assert!(text_of(&result).contains("had completed"), "{result}");
    std::fs::remove_file(env.work().join(done)).expect("it is there");
}

#[test]
fn tasks_of_two_servers_are_polled_and_fail_with_their_server() {
    let env = TestEnv::new();
    let entries =
        [server(&env, "a", "tasks", KEYS_AT_ONCE), server(&env, "b", "tasks", KEYS_AT_ONCE)];
    let mut client = connect(&env, &entries);
    let (a, b) = (create(&mut client, "a__"), create(&mut client, "b__"));
    for (handle, name) in [(&a, "a"), (&b, "b")] {
        let pid = client.call("\"pid\"", &format!("{name}__pid"), &json!({}));
        assert!(handle.starts_with(&pid), "{handle} is of {pid}");
        assert_eq!(get(&mut client, handle)["taskId"], **handle);
    }
    let page = client.ask("\"list\"", "tasks/list", &json!({}));
    assert_eq!(page["result"]["tasks"][0]["taskId"], *a);
    let cursor = page["result"]["nextCursor"].clone();
    let page = client.ask("\"list\"", "tasks/list", &json!({"cursor": cursor}));
    assert_eq!(page["result"]["tasks"][0]["taskId"], *b);
    assert!(page["result"]["nextCursor"].is_null(), "{page}");
    kill_in_each_state(&env, &mut client, "a__", "a/");
    // The other server's is as it was.
    assert_eq!(get(&mut client, &b)["status"], "working");
    client.hang_up(&env);
}

#[test]
fn a_task_fails_with_its_server_under_mcp() {
    let env = TestEnv::new();
    let mut client = Connection::connect(&env, &AT_ONCE, &[SERVER, "tasks"]);
    kill_in_each_state(&env, &mut client, "", "");
    client.hang_up(&env);
}
