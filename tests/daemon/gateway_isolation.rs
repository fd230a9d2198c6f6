//! A server that hangs, floods or dies all the time, behind one gateway with one that does not. What is
//! looked at is the order of things, never the time: an answer that waited for the other server would
//! never come.

use afresh_tests::connection::Connection;
use afresh_tests::http_client::HttpClient;
use afresh_tests::{TestEnv, stop_short};
use nix::unistd::Pid;
use serde_json::json;

use crate::gateway::{AT_ONCE, ROGUE, connect, pid, send_call, server};
use crate::gateway_http::start;
use crate::stop;

/// So many calls in a row are answered, each before anything else that has an id.
#[track_caller]
fn assert_serves(client: &mut Connection, server: &str, calls: usize) {
    for n in 0..calls {
        let said = n.to_string();
        let name = format!("{server}__echo");
        assert_eq!(client.call(&said, &name, &json!({"text": said})), said);
    }
}

#[test]
fn a_server_that_hangs_holds_up_nobody() {
    let env = TestEnv::new();
    let entries = [
        server(&env, "good", "", ""),
        server(&env, "bad", "", "call_timeout = \"1s\"\nin_flight_max = 10"),
    ];
    let mut client = connect(&env, &entries);
    let bad = Pid::from_raw(pid(&mut client, "bad"));
    stop_short(bad.as_raw());
    for n in 0..10 {
        send_call(&mut client, &format!("\"bad {n}\""), "bad__echo", &json!({"text": "late"}));
    }
    // One more than it may have is answered at once; the others when they have taken too long.
    let answer = client.ask("\"more\"", "tools/call", &json!({"name": "bad__echo"}));
    assert!(answer.to_string().contains("in_flight_max"), "{answer}");
    let mut late = 0;
    let mut served = 0;
    while late < 10 {
        send_call(&mut client, "\"good\"", "good__echo", &json!({"text": "now"}));
        loop {
            let answer = client.hear_answer();
            if answer["id"] == "good" {
                served += 1;
                break;
            }
            assert!(answer.to_string().contains("has not answered in time"), "{answer}");
            late += 1;
        }
    }
    assert!(served > 10, "{served}");
    // The circuit is open: nobody waits for it any more.
    let answer = client.ask("\"open\"", "tools/call", &json!({"name": "bad__echo"}));
    assert!(answer.to_string().contains("calls in a row without an answer"), "{answer}");
    assert_serves(&mut client, "good", 50);
    client.hang_up(&env);
}

#[test]
fn a_server_that_takes_nothing_holds_up_nobody() {
    let env = TestEnv::new();
    let entries = [server(&env, "good", "", ""), server(&env, "bad", "", "in_flight_max = 65536")];
    let mut client = connect(&env, &entries);
    let bad = Pid::from_raw(pid(&mut client, "bad"));
    stop_short(bad.as_raw());
    let before = client.resident();
    // More than its pipe and our queue take: then it is said.
    let text = "x".repeat(1024 * 1024);
    let mut refused = 0;
    for n in 0..60 {
        send_call(&mut client, &format!("\"bad {n}\""), "bad__echo", &json!({"text": text}));
    }
    send_call(&mut client, "\"good\"", "good__echo", &json!({"text": "now"}));
    loop {
        let answer = client.hear_answer();
        if answer["id"] == "good" {
            break;
        }
        assert!(answer.to_string().contains("does not read what it is sent"), "{answer}");
        refused += 1;
    }
    assert!(refused > 10, "{refused}");
    let grown = client.resident() - before.min(client.resident());
    assert!(grown < 150 * 1024, "{grown} kB");
    assert_serves(&mut client, "good", 50);
    client.hang_up(&env);
}

#[test]
fn a_server_that_floods_holds_up_nobody() {
    let env = TestEnv::new();
    let entries = [server(&env, "good", "", ""), server(&env, "bad", "floods", "")];
    let mut client = connect(&env, &entries[..1]);
    assert_serves(&mut client, "good", 10);
    env.write("afresh.toml", &entries.concat());
    assert_eq!(env.run(&["reload"]).code, Some(0));
    while client.hear()["method"] != "notifications/x" {}
    let before = client.resident();
    assert_serves(&mut client, "good", 30);
    let grown = client.resident() - before.min(client.resident());
    assert!(grown < 100 * 1024, "{grown} kB");
    client.hang_up(&env);
}

#[test]
fn a_flood_that_nobody_reads_is_bounded_over_http() {
    let env = TestEnv::new();
    let entries = [server(&env, "good", "", ""), server(&env, "bad", "floods", "")];
    let (mut gateway, port) = start(&env, &entries);
    let mut clients: Vec<HttpClient> = (0..5).map(|_| HttpClient::connect(port)).collect();
    // Two of them listen, and one of these never reads.
    let _unread = clients[0].listen();
    let mut told = clients[1].listen();
    for round in 0..100 {
        for client in &mut clients {
            let said = round.to_string();
            assert_eq!(client.call("1", "good__echo", &json!({"text": said})).text(), said);
        }
        // Who reads is told, for as long as he keeps up.
        told.next();
    }
    let resident = resident(gateway.pid());
    assert!(resident < 200 * 1024, "{resident} kB");
    stop(&env, &mut gateway);
}

fn resident(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).expect("a number")
}

#[test]
fn a_server_that_dies_all_the_time_holds_up_nobody() {
    let env = TestEnv::new();
    let entries = [
        server(&env, "good", "", ""),
        server(&env, "bad", "dies-in-handshake", AT_ONCE),
        format!("[server.worse]\ncommand = [{ROGUE:?}, \"never-shakes-hands\"]\n"),
    ];
    env.write("afresh.toml", &entries.concat());
    let mut client = Connection::start_as(&env, &["gateway"]);
    client.open();
    let good = pid(&mut client, "good");
    let started = || env.events("server_started").len();
    while started() < 50 {
        assert_serves(&mut client, "good", 20);
    }
    assert_eq!(pid(&mut client, "good"), good);
    client.hang_up(&env);
}
