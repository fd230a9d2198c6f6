//! `afresh gateway` on stdio, in front of servers that die, do not start, or change.

#![expect(clippy::disallowed_types, reason = "real processes run by the real clock")]

use std::fs;
use std::time::{Duration, Instant};

use afresh_tests::connection::{Connection, kill_server};
use afresh_tests::{TestEnv, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::mcp::{names, text_of};

pub(crate) const SERVER: &str = env!("CARGO_BIN_EXE_mcp-server");
pub(crate) const ROGUE: &str = env!("CARGO_BIN_EXE_mcp-rogue");

/// The tools that a server here has.
const TOOLS: &str = "pid Tells\necho Says\nlater Waits\nstderr Writes\ncrash Ends\nwait Waits\n";

/// Restarts without waits, as often as it takes.
pub(crate) const AT_ONCE: &str = "delay = \"0s\"\nthrottle = \"1ms\"\nstable_after = \"0s\"\nmax_restarts = 0\ncrash_loop_count = 0\n";

/// The entry of a server with a folder of its own, and more keys.
pub(crate) fn server(env: &TestEnv, name: &str, mode: &str, more: &str) -> String {
    fs::create_dir_all(env.work().join(name)).expect("the workspace is writable");
    env.write(&format!("{name}/tools"), TOOLS);
    format!("[server.{name}]\ncommand = [{SERVER:?}, {mode:?}]\ncwd = {name:?}\n{more}\n")
}

/// Starts a gateway on stdio, with a session of the legacy era.
pub(crate) fn connect(env: &TestEnv, entries: &[String]) -> Connection {
    env.write("afresh.toml", &entries.concat());
    let mut connection = Connection::start_as(env, &["gateway"]);
    connection.open();
    connection
}

/// The names of all tools.
#[track_caller]
pub(crate) fn tools(connection: &mut Connection) -> Vec<String> {
    names(&connection.ask("\"list\"", "tools/list", &json!({})))
}

/// The process behind a server.
#[track_caller]
pub(crate) fn pid(connection: &mut Connection, server: &str) -> i32 {
    let text = connection.call("\"pid\"", &format!("{server}__pid"), &json!({}));
    text.parse().unwrap_or_else(|_| panic!("{text}"))
}

/// Sends a call and does not wait for its answer.
pub(crate) fn send_call(connection: &mut Connection, id: &str, name: &str, arguments: &Value) {
    connection.send(id, "tools/call", &json!({"name": name, "arguments": arguments}));
}

#[test]
fn the_death_of_a_server_is_nobody_elses() {
    // G1 G5 G7
    let env = TestEnv::new();
    let entries = [server(&env, "a", "", AT_ONCE), server(&env, "b", "", AT_ONCE)];
    let mut client = connect(&env, &entries);
    let list = tools(&mut client);
    for name in ["a__pid", "a__echo", "b__pid", "b__echo", "restart_server", "server_status"] {
        assert!(list.iter().any(|its| its == name), "{name}: {list:?}");
    }
    let (a, b) = (pid(&mut client, "a"), pid(&mut client, "b"));
    assert_ne!(a, b);
    for round in 0..10 {
        let victim = pid(&mut client, "a");
        send_call(&mut client, "\"lost\"", "a__later", &json!({}));
        send_call(&mut client, &format!("\"kept {round}\""), "b__later", &json!({}));
        // What was sent before it is read before it.
        assert_eq!(pid(&mut client, "a"), victim);
        match round % 2 {
            0 => kill_server(victim),
            // Not by us: nobody has stopped it.
            _ => kill(Pid::from_raw(victim), Signal::SIGTERM).expect("it runs"),
        }
        let lost = client.hear_answer();
        assert_eq!((&lost["id"], &lost["result"]["isError"]), (&json!("lost"), &json!(true)));
        assert!(text_of(&lost).contains("outcome is unknown"), "{lost}");
        // The other one is the same, and so is what it was asked.
        assert_eq!(pid(&mut client, "b"), b);
        // The next call waits for the new instance.
        assert_ne!(pid(&mut client, "a"), victim);
    }
    client.hang_up(&env);
}

#[test]
fn a_server_that_does_not_start_is_missing_and_says_why() {
    // G4 G7
    let env = TestEnv::new();
    let gives_up = "max_restarts = 1\ndelay = \"1ms\"\nthrottle = \"1ms\"";
    let entries = [
        server(&env, "good", "", ""),
        server(&env, "bad", "", gives_up),
        server(&env, "slow", "", "delay = \"1m\""),
        "[server.none]\ncommand = [\"/no/such/program\"]\nmax_restarts = 1\ndelay = \"1ms\"\n"
            .to_owned(),
    ];
    env.write("bad/broken", "");
    env.write("slow/broken", "");
    let mut client = connect(&env, &entries);
    let list = tools(&mut client);
    assert!(list.contains(&"good__pid".to_owned()), "{list:?}");
    let of_others =
        |name: &&String| ["bad__", "slow__", "none__"].iter().any(|of| name.starts_with(of));
    assert_eq!(list.iter().find(of_others), None);
    for (name, says) in [("bad", "NameError"), ("slow", "NameError"), ("none", "/no/such/program")]
    {
        let answer = client.ask("1", "tools/call", &json!({"name": format!("{name}__pid")}));
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        let text = text_of(&answer);
        assert!(text.contains(&format!("`{name}`")) && text.contains(says), "{name}: {text}");
        pid(&mut client, "good");
    }
    // The one that was given up comes back when somebody mends it.
    fs::remove_file(env.work().join("bad/broken")).expect("it is there");
    client.call("2", "restart_server", &json!({"server": "bad"}));
    wait_for("it is there again", || {
        let answer = client.ask("3", "tools/call", &json!({"name": "bad__pid"}));
        answer["result"]["isError"] != true
    });
    assert!(tools(&mut client).contains(&"bad__pid".to_owned()));
    client.hang_up(&env);
}

#[test]
fn new_code_has_other_tools_and_the_client_is_told() {
    // G2
    let env = TestEnv::new();
    let mut client = connect(&env, &[server(&env, "a", "", ""), server(&env, "b", "", "")]);
    let (a, b) = (pid(&mut client, "a"), pid(&mut client, "b"));
    env.write("b/tools", "pid Tells\nnew_one Is new\n");
    client.send(
        "1",
        "tools/call",
        &json!({"name": "restart_server", "arguments": {"server": "b"}}),
    );
    let (mut is_told, mut is_answered) = (false, false);
    while !(is_told && is_answered) {
        let message = client.hear();
        is_told |= message["method"] == "notifications/tools/list_changed";
        is_answered |= message["id"] == 1;
    }
    let list = tools(&mut client);
    assert!(list.contains(&"b__new_one".to_owned()), "{list:?}");
    assert!(
        !list.contains(&"b__echo".to_owned()) && list.contains(&"a__echo".to_owned()),
        "{list:?}"
    );
    assert_eq!(pid(&mut client, "a"), a);
    assert_ne!(pid(&mut client, "b"), b);
    // The same code again: nothing has changed, and nothing is told.
    client.call("2", "restart_server", &json!({"server": "b"}));
    assert_ne!(pid(&mut client, "b"), b);
    tools(&mut client);
    assert_eq!(client.try_hear(), None);
    client.hang_up(&env);
}

#[test]
fn our_own_tools_are_about_one_server() {
    let env = TestEnv::new();
    let mut client = connect(&env, &[server(&env, "a", "", ""), server(&env, "b", "", "")]);
    let b = pid(&mut client, "b");
    client.call("1", "a__stderr", &json!({"text": "a word of a"}));
    client.call("2", "b__stderr", &json!({"text": "a word of b"}));
    wait_for("what it wrote is in its log", || {
        client.call("3", "server_logs", &json!({"server": "b"})).contains("a word of b")
    });
    assert!(!client.call("4", "server_logs", &json!({"server": "b"})).contains("a word of a"));
    let all = client.call("5", "server_status", &json!({}));
    assert!(all.contains("a: ready, 6 tools") && all.contains("b: ready, 6 tools"), "{all}");
    let one = client.call("6", "server_status", &json!({"server": "b"}));
    assert!(one.contains(&b.to_string()), "{one}");
    client.call("7", "restart_server", &json!({"server": "b", "reason": "new code"}));
    assert_ne!(pid(&mut client, "b"), b);
    assert_eq!(env.events("server_restart_requested").len(), 1);
    for arguments in [json!({}), json!({"server": "c"}), json!({"server": 7})] {
        let answer = client.ask(
            "8",
            "tools/call",
            &json!({"name": "restart_server", "arguments": arguments}),
        );
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        assert_eq!(text_of(&answer), "`server` must be one of: a, b");
    }
    assert_eq!(env.events("server_restart_requested").len(), 1);
    client.hang_up(&env);
}

#[test]
fn a_server_that_is_down_can_leave_the_list() {
    let env = TestEnv::new();
    let entries = [
        server(&env, "a", "", "delay = \"0s\"\nthrottle = \"1ms\"\nhide_when_down = true"),
        server(&env, "b", "", "delay = \"0s\"\nthrottle = \"1ms\""),
    ];
    let mut client = connect(&env, &entries);
    assert!(tools(&mut client).contains(&"a__pid".to_owned()));
    for name in ["a", "b"] {
        let victim = pid(&mut client, name);
        // It comes back when that file is gone.
        env.write(&format!("{name}/hold"), "");
        kill_server(victim);
    }
    wait_for("it leaves the list", || !tools(&mut client).contains(&"a__pid".to_owned()));
    assert!(tools(&mut client).contains(&"b__pid".to_owned()));
    for name in ["a", "b"] {
        fs::remove_file(env.work().join(format!("{name}/hold"))).expect("it is there");
    }
    wait_for("it is back", || tools(&mut client).contains(&"a__pid".to_owned()));
    pid(&mut client, "b");
    client.hang_up(&env);
}

#[test]
fn twenty_servers_come_up_at_once() {
    let env = TestEnv::new();
    let entries: Vec<String> = (0..20).map(|n| server(&env, &format!("s{n}"), "", "")).collect();
    let mut client = connect(&env, &entries);
    let list = tools(&mut client);
    assert_eq!(list.len(), 20 * 6 + 4, "{list:?}");
    let pids: std::collections::BTreeSet<i32> =
        (0..20).map(|n| pid(&mut client, &format!("s{n}"))).collect();
    assert_eq!(pids.len(), 20);
    client.hang_up(&env);
}

#[test]
fn which_servers_there_are_is_said_without_starting_any() {
    let env = TestEnv::new();
    let none = env.run(&["gateway"]);
    assert_eq!(none.code, Some(3), "{none:?}");
    assert!(none.stderr.contains("there are no servers to stand in front of"), "{none:?}");
    assert!(none.stderr.contains("hint: ") && none.stderr.contains("[server.files]"), "{none:?}");
    // One that cannot be taken is left out, and the others work.
    let imported = json!({"mcpServers": {
        "notes": {"command": SERVER, "args": ["x"]},
        "broken": {"command": "x", "args": ["${IS_NOT_SET}"]},
    }});
    env.write(".mcp.json", &imported.to_string());
    let list = env.run(&["gateway", "--list"]);
    let left = "broken  left out: `args` of server `broken` needs the variable `IS_NOT_SET`, which is \
                not set; set `IS_NOT_SET` where `afresh gateway` is started";
    let mut lines: Vec<&str> = list.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!((list.code, lines), (Some(0), vec![left, &*format!("notes  {SERVER} …")]));
    assert!(list.stderr.contains("server `broken` is left out: "), "{list:?}");
    assert!(list.stderr.contains("the servers are those of `.mcp.json`"), "{list:?}");
    // The file is used as it is.
    let mut client = Connection::start_as(&env, &["gateway"]);
    client.open();
    pid(&mut client, "notes");
    let status = client.call("\"status\"", "server_status", &json!({}));
    assert!(status.contains("broken: left out (") && status.contains("IS_NOT_SET"), "{status}");
    client.hang_up(&env);
    // Where `afresh.toml` has some, it is not looked at.
    env.write("afresh.toml", &[server(&env, "b", "", ""), server(&env, "a", "", "")].concat());
    let list = env.run(&["gateway", "--list"]);
    assert_eq!(list.stdout, format!("b  {SERVER} …\na  {SERVER} …\n"));
    assert!(!list.stderr.contains(".mcp.json"), "{list:?}");
    env.assert_nothing_left();
}

#[test]
fn the_instances_of_each_client_are_known_by_the_name_of_their_server() {
    // G6
    let env = TestEnv::new();
    let entries = [server(&env, "own", "", "share = \"per-client\""), server(&env, "b", "", "")];
    let mut client = connect(&env, &entries);
    let (old, other) = (pid(&mut client, "own"), pid(&mut client, "b"));
    let restart = env.run(&["restart", "own"]);
    assert_eq!(restart.code, Some(0), "{restart:?}");
    let new = pid(&mut client, "own");
    assert_eq!(restart.stdout, format!("own@1: restarted (pid {old} → {new})\n"));
    assert_eq!(pid(&mut client, "b"), other);
    let status = env.run(&["status", "own", "--json"]);
    let status: Value = serde_json::from_str(&status.stdout).expect("JSON");
    assert_eq!((&status[0]["name"], &status[0]["group"]), (&json!("own@1"), &json!("own")));
    client.call("1", "own__stderr", &json!({}));
    wait_for("it is in the log", || !env.run(&["logs", "own"]).stdout.is_empty());
    client.hang_up(&env);
}

#[test]
fn servers_that_hang_or_are_not_there_do_not_hold_up_the_beginning() {
    let env = TestEnv::new();
    let hangs = "[server.hangs]\ncommand = [\"sleep\", \"1000\"]\n".to_owned();
    // Nobody listens on port 9.
    let is_not_there = "[server.gone]\nurl = \"http://127.0.0.1:9/mcp\"\n".to_owned();
    let begun = Instant::now();
    let mut client = connect(&env, &[server(&env, "good", "", ""), hangs, is_not_there]);
    // Clients wait 10 s, which the handshake of one that hangs would take.
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert!(tools(&mut client).contains(&"good__pid".to_owned()));
    client.hang_up(&env);
}
