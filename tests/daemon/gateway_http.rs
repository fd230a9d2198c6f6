//! `afresh gateway --http`: many clients, sessions, tokens, and the commands that see its servers.

use std::{fs, thread};

use afresh_tests::connection::kill_server;
use afresh_tests::http_client::{HttpClient, port_of};
use afresh_tests::{Running, TestEnv, wait_for};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::gateway::{AT_ONCE, server};
use crate::mcp::names;
use crate::stop;

/// Starts a gateway with a port of its own choice. Clients need a token only where one is configured.
pub(crate) fn start(env: &TestEnv, entries: &[String]) -> (Running, u16) {
    let config = entries.concat();
    env.write("afresh.toml", &config);
    let open: &[&str] = if config.contains("[gateway.token.") { &[] } else { &["--no-token"] };
    let gateway = env.start(&[&["gateway", "--http", "127.0.0.1:0"], open].concat());
    let port = port_of(&gateway);
    (gateway, port)
}

/// The process behind a server.
#[track_caller]
pub(crate) fn pid(client: &mut HttpClient, server: &str) -> i32 {
    let reply = client.call("\"pid\"", &format!("{server}__pid"), &json!({}));
    reply.text().parse().unwrap_or_else(|_| panic!("{reply:?}"))
}

#[test]
fn clients_have_sessions_and_equal_ids_are_kept_apart() {
    // G7
    let env = TestEnv::new();
    let (mut gateway, port) = start(&env, &[server(&env, "a", "", ""), server(&env, "b", "", "")]);
    let callers: Vec<_> = (0..8)
        .map(|number| {
            thread::spawn(move || {
                let mut client = HttpClient::connect(port);
                for id in 0..100 {
                    let said = format!("{number} {id}");
                    let name = ["a__echo", "b__echo"][id % 2];
                    let reply = client.call(&id.to_string(), name, &json!({"text": said}));
                    assert_eq!(reply.answer()["id"], id, "{reply:?}");
                    assert_eq!(reply.text(), said);
                }
                client
            })
        })
        .collect();
    let mut clients: Vec<HttpClient> =
        callers.into_iter().map(|caller| caller.join().expect("all is answered")).collect();
    // One session for each, one instance for all.
    let sessions: std::collections::BTreeSet<_> =
        clients.iter().map(|client| client.session.clone()).collect();
    assert_eq!(sessions.len(), 8);
    let pids: std::collections::BTreeSet<i32> =
        clients.iter_mut().map(|client| pid(client, "a")).collect();
    assert_eq!(pids.len(), 1);
    // One that has ended is unknown, and so is one that never was.
    assert_eq!(clients[0].delete(), 204);
    assert_eq!(clients[0].ask("1", "tools/list", &json!({})).status, 404);
    clients[1].session = Some("0123456789abcdef0123456789abcdef".to_owned());
    assert_eq!(clients[1].ask("1", "tools/list", &json!({})).status, 404);
    clients[2].session = None;
    assert_eq!(clients[2].ask("1", "tools/list", &json!({})).status, 400);
    assert_eq!(clients[3].call("1", "a__echo", &json!({"text": "still"})).text(), "still");
    stop(&env, &mut gateway);
}

#[test]
fn sessions_go_on_after_a_restart_of_the_gateway_unless_they_have_ended() {
    let env = TestEnv::new();
    let tokens = "[gateway.token.one]\ntoken = \"one-0123456789abcdef\"\n[gateway.token.two]\n\
                  token = \"two-0123456789abcdef\"\n";
    let entries = [server(&env, "a", "", ""), tokens.to_owned()];
    let (mut gateway, port) = start(&env, &entries);
    let open = |port: u16| {
        let mut client = HttpClient::new(port);
        client.token = Some("one-0123456789abcdef".to_owned());
        client
    };
    let (mut kept, mut ended) = (open(port), open(port));
    kept.open();
    ended.open();
    assert!(kept.session.as_ref().is_some_and(|id| id.len() <= 1_024), "{kept:?}");
    assert_eq!(ended.delete(), 204);
    let again = |port: u16, old: &HttpClient| {
        let mut client = open(port);
        client.session.clone_from(&old.session);
        client
    };
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        gateway.signal(signal);
        gateway.wait();
        env.assert_nothing_left();
        let (other, port) = start(&env, &entries);
        gateway = other;
        let mut client = again(port, &kept);
        assert_eq!(client.call("1", "a__echo", &json!({"text": "on"})).text(), "on", "{signal}");
        assert_eq!(names(client.ask("2", "tools/list", &json!({})).answer())[0], "a__pid");
        // What has ended stays so, and an id is of its token, whole and unchanged.
        assert_eq!(again(port, &ended).ask("1", "tools/list", &json!({})).status, 404);
        let mut thief = again(port, &kept);
        thief.token = Some("two-0123456789abcdef".to_owned());
        assert_eq!(thief.ask("1", "tools/list", &json!({})).status, 404);
        let id = kept.session.clone().unwrap_or_default();
        let other = if id.starts_with('f') { "e" } else { "f" };
        let forged = format!("{other}{}", &id[1..]);
        let last = if id.ends_with('0') { "1" } else { "0" };
        let long = format!("{id}{}", "A".repeat(2_000));
        let signature = format!("{}{last}", &id[..id.len() - 1]);
        let others = [&forged, &forged[..32], &id.replace('.', ""), &id[..32], &signature, &long];
        for forged in others {
            let mut client = open(port);
            client.session = Some(forged.to_owned());
            assert_eq!(client.ask("1", "tools/list", &json!({})).status, 404, "{forged}");
        }
    }
    stop(&env, &mut gateway);
}

#[test]
fn the_end_of_a_session_is_on_disk_when_it_is_answered() {
    let env = TestEnv::new();
    let (mut gateway, port) = start(&env, &[server(&env, "a", "", "")]);
    let file = env.home().join(".local/state/afresh/private/sessions.json");
    for _ in 0..20 {
        let mut client = HttpClient::connect(port);
        let id = client.session.clone().expect("a session");
        assert_eq!(client.delete(), 204);
        let stored = fs::read_to_string(&file).expect("it is there");
        assert!(stored.contains(&id[..32]), "{stored}");
    }
    // A kill at once changes nothing.
    let mut client = HttpClient::connect(port);
    let session = client.session.clone();
    assert_eq!(client.delete(), 204);
    gateway.signal(Signal::SIGKILL);
    gateway.wait();
    let (mut gateway, port) = start(&env, &[server(&env, "a", "", "")]);
    let mut again = HttpClient::new(port);
    again.session = session;
    assert_eq!(again.ask("1", "tools/list", &json!({})).status, 404);
    stop(&env, &mut gateway);
}

#[test]
fn both_eras_are_served_at_once() {
    let env = TestEnv::new();
    let (mut gateway, port) = start(&env, &[server(&env, "a", "", ""), server(&env, "b", "", "")]);
    let mut old = HttpClient::connect(port);
    let mut new = HttpClient::new(port);
    let found = new.ask_modern("1", "server/discover", &json!({}));
    assert_eq!(found.answer()["result"]["supportedVersions"][0], "2026-07-28", "{found:?}");
    let listed = new.ask_modern("2", "tools/list", &json!({}));
    assert_eq!(listed.answer()["result"]["resultType"], "complete", "{listed:?}");
    assert_eq!(names(listed.answer()), names(old.ask("3", "tools/list", &json!({})).answer()));
    let params = json!({"name": "b__echo", "arguments": {"text": "new"}});
    assert_eq!(new.ask_modern("4", "tools/call", &params).text(), "new");
    assert_eq!(old.call("4", "b__echo", &json!({"text": "old"})).text(), "old");
    // Neither server knows the newer protocol: they are spoken to as they like, and are there once.
    let params = json!({"name": "a__pid", "arguments": {}});
    assert_eq!(new.ask_modern("5", "tools/call", &params).text(), pid(&mut old, "a").to_string());
    stop(&env, &mut gateway);
}

#[test]
fn a_token_opens_what_it_is_for() {
    let env = TestEnv::new();
    let tokens = "[gateway.token.all]\ntoken = \"all-0123456789abcdef\"\n[gateway.token.some]\n\
                  token = \"some-0123456789abcdef\"\nservers = [\"b\"]\ntools = [\"*__echo\", \"b__p*\"]\n";
    let entries = [server(&env, "a", "", ""), server(&env, "b", "", ""), tokens.to_owned()];
    let (mut gateway, port) = start(&env, &entries);
    let mut nobody = HttpClient::new(port);
    assert_eq!(nobody.ask("1", "initialize", &json!({})).status, 401);
    nobody.token = Some("all-0123456789abcdeg".to_owned());
    assert_eq!(nobody.ask("1", "initialize", &json!({})).status, 401);
    let client = |token: &str| {
        let mut client = HttpClient::new(port);
        client.token = Some(token.to_owned());
        client.open();
        client
    };
    let (mut all, mut some) = (client("all-0123456789abcdef"), client("some-0123456789abcdef"));
    let list = names(some.ask("1", "tools/list", &json!({})).answer());
    let theirs: Vec<&String> = list.iter().filter(|name| name.contains("__")).collect();
    assert_eq!(theirs, ["b__pid", "b__echo"]);
    let list = names(all.ask("1", "tools/list", &json!({})).answer());
    assert_eq!(list.iter().filter(|name| name.contains("__")).count(), 12);
    assert_eq!(some.call("2", "b__echo", &json!({"text": "yes"})).text(), "yes");
    for name in ["a__echo", "b__stderr", "a__pid"] {
        let reply = some.call("3", name, &json!({}));
        assert_eq!(reply.answer()["error"]["code"], -32602, "{name}: {reply:?}");
        assert!(!reply.answer().to_string().contains("not allowed"), "as if it were not there");
    }
    // Nor can it be seen or steered by our own tools, which it has to be allowed like any other.
    for name in ["server_status", "restart_server"] {
        let reply = some.call("4", name, &json!({"server": "a"}));
        assert_eq!(reply.answer()["error"]["code"], -32602, "{name}: {reply:?}");
    }
    assert!(env.events("server_restart_requested").is_empty());
    // A session is for the token that opened it.
    some.session = all.session.clone();
    assert_eq!(some.ask("6", "tools/list", &json!({})).status, 404);
    stop(&env, &mut gateway);
}

#[test]
fn the_commands_see_and_steer_the_servers() {
    let env = TestEnv::new();
    let (mut gateway, port) = start(&env, &[server(&env, "a", "", ""), server(&env, "b", "", "")]);
    let mut client = HttpClient::connect(port);
    let (a, b) = (pid(&mut client, "a"), pid(&mut client, "b"));
    let status = env.run(&["status"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    for word in [a.to_string(), b.to_string(), "ready".to_owned()] {
        assert!(status.stdout.contains(&word), "{word}: {status:?}");
    }
    client.call("1", "b__stderr", &json!({"text": "a word of b"}));
    wait_for("its log has it", || env.run(&["logs", "b"]).stdout.contains("a word of b"));
    assert!(!env.run(&["logs", "a"]).stdout.contains("a word of b"));
    let restarted = env.run(&["restart", "b"]);
    assert_eq!(restarted.code, Some(0), "{restarted:?}");
    assert_ne!(pid(&mut client, "b"), b);
    assert_eq!(pid(&mut client, "a"), a);
    let events = env.run(&["events"]);
    assert!(events.stdout.contains("restart"), "{events:?}");
    stop(&env, &mut gateway);
}

#[test]
fn a_server_is_killed_under_many_clients() {
    // G5
    let env = TestEnv::new();
    let entries = [server(&env, "a", "", AT_ONCE), server(&env, "b", "", AT_ONCE)];
    let (mut gateway, port) = start(&env, &entries);
    let mut clients: Vec<HttpClient> = (0..10).map(|_| HttpClient::connect(port)).collect();
    let mut listening: Vec<_> = clients.iter_mut().map(HttpClient::listen).collect();
    let (a, b) = (pid(&mut clients[0], "a"), pid(&mut clients[0], "b"));
    for client in &mut clients {
        let params = json!({"name": "a__later", "arguments": {}});
        let line = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
        client.send("POST", "", &line.to_string());
    }
    let mut other = HttpClient::connect(port);
    wait_for("all calls are with the server", || {
        other.call("1", "server_status", &json!({})).text().contains("a: ready, 6 tools, 10 calls")
    });
    // It has read them: what it never read would be sent to the next one.
    assert_eq!(other.call("2", "a__echo", &json!({"text": "read"})).text(), "read");
    kill_server(a);
    for client in &mut clients {
        let reply = client.hear();
        assert_eq!(reply.answer()["id"], 7, "{reply:?}");
        assert!(reply.text().contains("outcome is unknown"), "{reply:?}");
    }
    for client in &mut clients {
        assert_ne!(pid(client, "a"), a);
        assert_eq!(pid(client, "b"), b);
    }
    // Somebody tells all of them: new tools.
    env.write("b/tools", "pid Tells\nnew_one Is new\n");
    other.call("2", "restart_server", &json!({"server": "b"}));
    for told in &mut listening {
        let told = told.next().expect("a notification");
        assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
    }
    gateway.signal(Signal::SIGTERM);
    for mut told in listening {
        assert_eq!(told.next(), None, "the stream ends");
    }
    stop(&env, &mut gateway);
}
