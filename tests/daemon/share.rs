//! `afresh mcp --share`: one server for several clients, and a hub that may die.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use afresh_tests::measure::Activity;
#[cfg(target_os = "linux")]
use afresh_tests::measure::Memory;
use afresh_tests::process::Process;
use afresh_tests::{PATIENCE, TestEnv, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::is_long;

const SERVER: &str = env!("CARGO_BIN_EXE_mcp-server");
const ROGUE: &str = env!("CARGO_BIN_EXE_mcp-rogue");
const ECHO: &str = env!("CARGO_BIN_EXE_mcp-echo");

/// Restarts without waits, and servers that end with their last client.
const FLAGS: [&str; 12] = [
    "--share",
    "--idle-timeout",
    "0s",
    "--name",
    "docs",
    "--delay",
    "0s",
    "--stable-after",
    "0s",
    "--max-restarts",
    "0",
    "--wedge-timeout=0",
];

/// A client.
struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    heard: Receiver<Value>,
    next_id: u64,
}

impl Client {
    fn start(env: &TestEnv, server: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = env.afresh(&[&["mcp"], &FLAGS[..], &["--"], server].concat());
        command.envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let (sender, heard) = sync_channel(100_000);
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).expect("a message");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Self { stdin: child.stdin.take(), child, heard, next_id: 1 }
    }

    fn connect(env: &TestEnv, server: &[&str]) -> Self {
        Self::connect_with(env, server, &[], &json!({}))
    }

    fn connect_with(
        env: &TestEnv,
        server: &[&str],
        variables: &[(&str, &str)],
        capabilities: &Value,
    ) -> Self {
        let mut client = Self::start(env, server, variables);
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities});
        let answer = client.ask("initialize", &params);
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        client.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn write(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("it is open");
        stdin.write_all(format!("{message}\n").as_bytes()).expect("the shim reads");
    }

    #[track_caller]
    fn hear(&mut self) -> Value {
        self.heard.recv_timeout(PATIENCE).expect("something is said")
    }

    fn send(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Asks, and returns the answer; what is only told is passed over.
    #[track_caller]
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        loop {
            let message = self.hear();
            if message["id"] == id && message["method"].is_null() {
                return message;
            }
        }
    }

    #[track_caller]
    fn call(&mut self, name: &str) -> Value {
        self.ask("tools/call", &json!({"name": name, "arguments": {}}))
    }

    /// The process of its server.
    #[track_caller]
    fn server(&mut self) -> i32 {
        let answer = self.call("pid");
        let text = answer["result"]["content"][0]["text"].as_str();
        text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
    }

    /// Hangs up, and waits for the shim.
    fn end(mut self) {
        drop(self.stdin.take());
        let status = self.child.wait().expect("our child");
        assert_eq!(status.code(), Some(0));
    }
}

/// The hubs that live.
fn hubs(env: &TestEnv) -> Vec<Process> {
    let is_hub = |process: &Process| process.command.contains("__share-hub");
    env.alive().into_iter().filter(is_hub).collect()
}

fn hub(env: &TestEnv) -> Process {
    let mut found = hubs(env);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// The folder with the sockets.
fn socket(env: &TestEnv) -> std::path::PathBuf {
    let folder = env.runtime().join("afresh");
    let entries = fs::read_dir(folder).expect("it is there").flatten().map(|entry| entry.path());
    let mut sockets = entries.filter(|path| path.extension().is_some_and(|end| end == "hub"));
    sockets.next().expect("a hub listens")
}

#[test]
fn clients_share_a_server_and_nothing_is_left_after_the_last() {
    let env = TestEnv::new();
    let mut clients: Vec<Client> = (0..20).map(|_| Client::start(&env, &[SERVER], &[])).collect();
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    for client in &mut clients {
        client.send("initialize", &params);
    }
    for client in &mut clients {
        assert_eq!(client.hear()["result"]["serverInfo"]["name"], "strict");
        client.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }
    let servers: BTreeSet<i32> = clients.iter_mut().map(Client::server).collect();
    assert_eq!(servers.len(), 1, "{servers:?}");
    assert_eq!(hubs(&env).len(), 1);
    let listed = clients[0].ask("tools/list", &json!({}));
    let names: Vec<&str> = listed["result"]["tools"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(names[..2], ["pid", "docs_restart_server"]);
    let status = env.run(&["status", "docs"]);
    assert!(status.stdout.contains("clients") && status.stdout.contains("20"), "{}", status.stdout);
    clients.into_iter().for_each(Client::end);
    env.assert_nothing_left();
}

#[test]
fn other_variables_keep_clients_apart_unless_they_belong_to_a_terminal() {
    let env = TestEnv::new();
    let none = json!({});
    let mut one = Client::connect(&env, &[SERVER]);
    let mut other = Client::connect_with(&env, &[SERVER], &[("FOO", "secret")], &none);
    let terminal = [("WINDOWID", "7"), ("SSH_TTY", "/dev/pts/1")];
    let mut third = Client::connect_with(&env, &[SERVER], &terminal, &none);
    assert_ne!(one.server(), other.server());
    assert_eq!(one.server(), third.server());
    let status = env.run(&["status", "docs"]).stdout;
    assert!(status.contains("apart from `docs-2`: variable FOO"), "{status}");
    assert!(!status.contains("secret"), "{status}");
    [one, other, third].into_iter().for_each(Client::end);
    env.assert_nothing_left();
}

#[test]
fn other_roots_keep_clients_apart() {
    let env = TestEnv::new();
    let mut connect = |uri: &str| {
        let capabilities = json!({"roots": {"listChanged": true}});
        let mut client = Client::connect_with(&env, &[SERVER], &[], &capabilities);
        let question = client.hear();
        assert_eq!(question["method"], "roots/list", "{question}");
        let roots = json!({"roots": [{"uri": uri}]});
        client.write(&json!({"jsonrpc": "2.0", "id": question["id"], "result": roots}));
        client
    };
    let mut clients = ["file:///a", "file:///a", "file:///b"].map(&mut connect);
    let [one, two, three] = clients.each_mut().map(Client::server);
    assert_eq!(one, two);
    assert_ne!(one, three);
    let status = env.run(&["status", "docs"]).stdout;
    assert!(status.contains("apart from `docs-2`: roots"), "{status}");
    clients.into_iter().for_each(Client::end);
    env.assert_nothing_left();
}

#[test]
fn a_killed_hub_costs_no_client_its_connection() {
    let env = TestEnv::new();
    let mut clients = [(); 2].map(|()| Client::connect(&env, &[SERVER]));
    let before = clients[0].server();
    clients[1].server();
    // It is never answered. That the server has it is known when it answers the next one.
    let call = clients[0].send("tools/call", &json!({"name": "later", "arguments": {}}));
    clients[0].server();
    let first = hub(&env);
    first.signal(Signal::SIGKILL);
    let answer = clients[0].hear();
    assert_eq!(answer["id"], call);
    let text = answer["result"]["content"][0]["text"].as_str().expect("text").to_owned();
    assert!(text.contains("outcome is unknown"), "{answer}");
    for client in &mut clients {
        let answer = client.call("pid");
        // Each is told that what the server kept is lost.
        assert!(answer["result"]["_meta"]["afresh/restarted"].is_object(), "{answer}");
    }
    let after = clients[0].server();
    assert_ne!(after, before);
    assert_eq!(clients[1].server(), after);
    assert_ne!(hub(&env).pid, first.pid);
    clients.into_iter().for_each(Client::end);
    env.assert_nothing_left();
}

#[test]
fn a_restart_by_one_client_is_a_swap_for_all_and_a_crash_is_told_to_each() {
    let env = TestEnv::new();
    let mut clients = [(); 2].map(|()| Client::connect(&env, &[SERVER]));
    let before = clients[1].server();
    assert_eq!(clients[0].server(), before);
    let answer = clients[0].call("docs_restart_server");
    assert_eq!(answer["result"]["structuredContent"]["restarted"], true, "{answer}");
    let answer = clients[1].call("pid");
    assert_ne!(answer["result"]["content"][0]["text"], before.to_string());
    assert!(answer["result"]["_meta"].is_null(), "a swap loses nothing: {answer}");
    let answer = clients[0].call("die");
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    for client in &mut clients {
        let answer = client.call("pid");
        assert!(answer["result"]["_meta"]["afresh/restarted"].is_object(), "{answer}");
        let answer = client.call("pid");
        assert!(answer["result"]["_meta"].is_null(), "told twice: {answer}");
    }
    clients.into_iter().for_each(Client::end);
    env.assert_nothing_left();
}

#[test]
fn a_squatted_socket_makes_a_server_run_unshared() {
    let env = TestEnv::new();
    let client = Client::connect(&env, &[SERVER]);
    let socket = socket(&env);
    client.end();
    env.assert_nothing_left();
    // A listener that never says anything, as a hub does that was stopped.
    let listener = UnixListener::bind(&socket).expect("it is free");
    let mut client = Client::connect(&env, &[SERVER]);
    assert!(client.server() > 0);
    assert_eq!(hubs(&env).len(), 0);
    client.end();
    drop(listener);
    env.assert_nothing_left();
}

#[test]
fn a_hub_takes_the_protocol_before_its_own_and_no_other() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &[SERVER]);
    let server = client.server();
    // What a shim of another version says: the same session in its words.
    let hello = |protocol: u32| {
        let session = json!({"name": "x", "command": [SERVER], "cwd": env.work(), "env": {}, "tools": "none"});
        let hello = json!({"protocol": protocol, "version": "0.0.1", "pid": 1, "session": session});
        let mut hub = UnixStream::connect(socket(&env)).expect("it listens");
        hub.set_read_timeout(Some(PATIENCE)).expect("a time");
        let line = [b"\x01", json!({"hello": hello}).to_string().as_bytes(), b"\n"].concat();
        hub.write_all(&line).expect("it reads");
        let mut reader = BufReader::new(hub);
        let mut answer = Vec::new();
        reader.read_until(b'\n', &mut answer).expect("an answer");
        let answer: Value = serde_json::from_slice(&answer[1..]).expect("JSON");
        (answer, reader)
    };
    let (answer, mut old) = hello(1);
    assert_eq!(answer["welcome"]["protocol"], 1, "{answer}");
    let (answer, _) = hello(9);
    assert_eq!(answer["refused"]["protocol"], 2, "{answer}");
    // The older one is served, and has no frames that it does not know when the hub ends.
    let ping = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
    old.get_mut().write_all(ping.as_bytes()).expect("it reads");
    let mut line = String::new();
    old.read_line(&mut line).expect("an answer");
    assert!(line.contains("\"result\":{}"), "{line}");
    hub(&env).signal(Signal::SIGTERM);
    let mut rest = String::new();
    old.read_to_string(&mut rest).expect("its end");
    assert_eq!(rest, "");
    assert_ne!(client.server(), server);
    client.end();
    env.assert_nothing_left();
}

/// A server that saves something when its input has ended, which takes a while.
const SAVES: [&str; 4] = ["/bin/sh", "-c", "\"$0\"; sleep 0.3; echo saved >> saved", SERVER];

#[test]
fn a_hand_over_leaves_a_server_the_time_to_end() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &SAVES);
    let server = client.server();
    let before = hub(&env);
    // What a shim of a newer version says.
    let mut newer = UnixStream::connect(socket(&env)).expect("it listens");
    newer.write_all(b"\x01\"hand_over\"\n").expect("it reads");
    wait_for("the hub has handed over", || hubs(&env).iter().any(|hub| hub.pid != before.pid));
    assert_ne!(client.server(), server);
    assert_eq!(fs::read_to_string(env.work().join("saved")).expect("it was not killed"), "saved\n");
    client.end();
    env.assert_nothing_left();
}

#[test]
fn a_shim_that_comes_while_the_hub_ends_is_not_refused() {
    let env = TestEnv::new();
    let mut client = Client::connect(&env, &SAVES);
    let socket = socket(&env);
    let mut late = UnixStream::connect(&socket).expect("it listens");
    late.set_read_timeout(Some(PATIENCE)).expect("a time");
    // The connection is taken before what comes later is answered.
    let server = client.server();
    let before = hub(&env);
    before.signal(Signal::SIGTERM);
    wait_for("the hub ends", || !socket.exists());
    let session =
        json!({"name": "x", "command": [SERVER], "cwd": env.work(), "env": {}, "tools": "none"});
    let hello = json!({"protocol": 2, "version": "0.0.1", "pid": 1, "session": session});
    let line = [b"\x01", json!({"hello": hello}).to_string().as_bytes(), b"\n"].concat();
    late.write_all(&line).expect("it reads");
    let mut answer = String::new();
    late.read_to_string(&mut answer).expect("its end");
    assert_eq!(answer, "", "a refusal is final");
    assert_ne!(client.server(), server);
    client.end();
    env.assert_nothing_left();
}

/// Asserts that a process does not spin.
#[track_caller]
fn assert_at_rest(pid: i32) {
    let activity = || Activity::of([pid].into_iter());
    let before = activity();
    let (_sender, silence) = sync_channel::<()>(0);
    silence.recv_timeout(Duration::from_millis(500)).expect_err("the whole time passes");
    let used = Duration::from_nanos(activity().since(before).nanoseconds);
    // One that spins on a machine with other work has a part of its processors.
    assert!(used < Duration::from_millis(50), "{used:?} of processor time");
}

#[cfg(target_os = "linux")]
#[test]
fn a_shim_whose_client_does_not_read_rests_when_its_hub_ends() {
    let env = TestEnv::new();
    let mut command = env.afresh(&[&["mcp"], &FLAGS[..], &["--", ECHO]].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut shim = command.spawn().expect("it starts");
    let mut stdin = shim.stdin.take().expect("it is piped");
    let mut say = |id: u32, method: &str, params: Value| {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        stdin.write_all(format!("{message}\n").as_bytes()).expect("the shim reads");
    };
    say(0, "initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}}));
    let calls = 16;
    let arguments = json!({"message": "x".repeat(256 * 1024)});
    for id in 1..=calls {
        say(id, "tools/call", json!({"name": "echo", "arguments": arguments}));
    }
    let pid = shim.id().cast_signed();
    let mut before = 0;
    wait_for("the shim is full", || {
        let switches = Activity::of([pid].into_iter()).switches;
        std::mem::replace(&mut before, switches) == switches && Memory::of(pid).private > 1024
    });
    assert_at_rest(pid);
    hub(&env).signal(Signal::SIGKILL);
    wait_for("the hub has ended", || hubs(&env).is_empty());
    assert_at_rest(pid);
    // Now the client reads: each request has an answer.
    let stdout = BufReader::new(shim.stdout.take().expect("it is piped"));
    let answers = stdout.lines().map(|line| line.expect("text"));
    let answers: Vec<Value> = answers
        .map(|line| serde_json::from_str(&line).expect("a message"))
        .filter(|answer: &Value| answer["method"].is_null())
        .take(1 + calls as usize)
        .collect();
    let ids: BTreeSet<u64> = answers.iter().filter_map(|answer| answer["id"].as_u64()).collect();
    assert_eq!(ids, (0..=u64::from(calls)).collect());
    drop(stdin);
    assert_eq!(shim.wait().expect("our child").code(), Some(0));
    env.assert_nothing_left();
}

#[test]
fn a_shim_whose_client_ends_before_it_has_a_hub_rests() {
    let env = TestEnv::new();
    let client = Client::connect(&env, &[SERVER]);
    let socket = socket(&env);
    client.end();
    env.assert_nothing_left();
    // A listener that never says anything.
    let listener = UnixListener::bind(&socket).expect("it is free");
    let mut client = Client::start(&env, &[SERVER], &[]);
    drop(client.stdin.take());
    let connection = listener.accept().expect("the shim connects");
    assert_at_rest(client.child.id().cast_signed());
    // Another hub can be had in the end.
    drop((connection, listener));
    fs::remove_file(&socket).expect("ours");
    client.end();
    env.assert_nothing_left();
}

#[test]
fn many_clients_call_while_the_hub_is_killed() {
    let (clients, calls, kills) = if is_long() { (20, 10_000, 50) } else { (5, 500, 5) };
    let env = TestEnv::new();
    let mut all: Vec<Client> = (0..clients).map(|_| Client::connect(&env, &[ROGUE])).collect();
    let mut open: Vec<BTreeMap<u64, u64>> = vec![BTreeMap::new(); clients];
    let (mut succeeded, mut unknown) = (BTreeSet::new(), BTreeSet::new());
    let (mut asked, mut answered, mut killed) = (0, 0, 0);
    while answered < calls {
        for (client, open) in all.iter_mut().zip(&mut open) {
            while open.len() < 4 && asked < calls {
                let arguments = json!({"number": asked});
                let id = client.send("tools/call", &json!({"name": "run", "arguments": arguments}));
                open.insert(id, asked);
                asked += 1;
            }
        }
        if killed < kills && answered >= (killed + 1) * calls / (kills + 1) {
            wait_for("a hub", || {
                let found = hubs(&env);
                found.iter().for_each(|hub| hub.signal(Signal::SIGKILL));
                !found.is_empty()
            });
            killed += 1;
        }
        for (client, open) in all.iter_mut().zip(&mut open).filter(|(_, open)| !open.is_empty()) {
            let answer = client.hear();
            let Some(id) = answer["id"].as_u64() else { continue };
            let number =
                open.remove(&id).unwrap_or_else(|| panic!("not asked, or twice: {answer}"));
            let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
            match text {
                text if text == number.to_string() => succeeded.insert(number),
                text if text.contains("outcome is unknown") => unknown.insert(number),
                _ => panic!("{answer}"),
            };
            answered += 1;
        }
    }
    assert_eq!(killed, kills);
    let done = fs::read_to_string(env.work().join("done")).expect("something was done");
    let mut count: BTreeMap<u64, u32> = BTreeMap::new();
    for line in done.lines() {
        let number = line.split_whitespace().next().and_then(|word| word.parse().ok());
        *count.entry(number.expect("a number")).or_default() += 1;
    }
    assert!(count.values().all(|count| *count == 1), "done twice");
    assert!(succeeded.iter().all(|number| count.contains_key(number)), "not done");
    assert!(unknown.len() <= clients * 4 * kills as usize, "{} unknown", unknown.len());
    for mut client in all {
        assert!(client.server() > 0);
        client.end();
    }
    env.assert_nothing_left();
}
