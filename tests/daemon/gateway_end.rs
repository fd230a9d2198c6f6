//! However it stands: when `afresh gateway` is told to end, all of it ends within a second (G6). The bound
//! here is wider, for machines with too much to do; what is looked at is that nothing waits for its own
//! deadline.

#![expect(clippy::disallowed_types, reason = "real processes run by the real clock")]

use std::time::{Duration, Instant};

use afresh_tests::connection::Connection;
use afresh_tests::http_client::HttpClient;
use afresh_tests::{TestEnv, wait_for};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::gateway::{connect, pid, send_call, server};
use crate::gateway_http::{self, start};

/// Far below what anybody here would wait for by himself.
const BOUND: Duration = Duration::from_secs(5);

/// How a gateway is told to end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Signal,
    Eof,
}

#[track_caller]
fn assert_ends(env: &TestEnv, client: Connection, by: By) {
    let began = Instant::now();
    match by {
        By::Signal => {
            let mut client = client;
            client.signal(Signal::SIGTERM);
            client.assert_ends(env, Some(0));
        }
        By::Eof => client.hang_up(env),
    }
    let took = began.elapsed();
    assert!(took < BOUND, "{by:?}: {took:?}");
}

const WAYS: [By; 2] = [By::Signal, By::Eof];

#[test]
fn in_the_middle_of_the_start() {
    for by in WAYS {
        let env = TestEnv::new();
        let entries = [server(&env, "a", "", ""), server(&env, "b", "", "")];
        env.write("a/hold", "");
        env.write("afresh.toml", &entries.concat());
        let client = Connection::start_as(&env, &["gateway"]);
        env.wait_for_pid("server_started", 2);
        assert_ends(&env, client, by);
    }
}

#[test]
fn when_all_is_ready() {
    for by in WAYS {
        let env = TestEnv::new();
        let mut client = connect(&env, &[server(&env, "a", "", ""), server(&env, "b", "", "")]);
        pid(&mut client, "a");
        assert_ends(&env, client, by);
    }
}

#[test]
fn while_a_server_waits_for_its_next_try() {
    for by in WAYS {
        let env = TestEnv::new();
        let entries =
            [server(&env, "a", "", ""), server(&env, "b", "", "delay = \"1m\"\nthrottle = \"1m\"")];
        env.write("b/broken", "");
        let mut client = connect(&env, &entries);
        pid(&mut client, "a");
        wait_for("it backs off", || env.run(&["status"]).stdout.contains("backing off"));
        assert_ends(&env, client, by);
    }
}

#[test]
fn in_a_call_of_a_server_that_ignores_everything() {
    for by in WAYS {
        let env = TestEnv::new();
        let entries = [server(&env, "a", "ignores-everything", ""), server(&env, "b", "", "")];
        let mut client = connect(&env, &entries);
        let a = pid(&mut client, "a");
        send_call(&mut client, "1", "a__wait", &json!({"for": "nothing"}));
        send_call(&mut client, "2", "b__later", &json!({}));
        pid(&mut client, "b");
        // One more that does not even run.
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(a), Signal::SIGSTOP).expect("it runs");
        assert_ends(&env, client, by);
    }
}

#[test]
fn with_clients_over_http_that_do_whatever_they_like() {
    let env = TestEnv::new();
    let entries = [server(&env, "a", "ignores-everything", ""), server(&env, "b", "", "")];
    let (mut gateway, port) = start(&env, &entries);
    let mut client = HttpClient::connect(port);
    gateway_http::pid(&mut client, "b");
    let told = client.listen();
    // In a call; with half a request; with a connection and nothing else; with a stream that is not read.
    let line =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a__later"}});
    let mut caller = HttpClient::connect(port);
    caller.send("POST", "", &line.to_string());
    let mut half = HttpClient::new(port);
    half.send("POST", "content-length: 1000\r\n", "");
    let silent = std::net::TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
    let events = env.start(&["events", "--follow"]);
    wait_for("the call is with the server", || {
        client.call("2", "server_status", &json!({})).text().contains("a: ready, 6 tools, 1 calls")
    });
    let began = Instant::now();
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.stderr());
    let took = began.elapsed();
    assert!(took < BOUND, "{took:?}");
    // Who waits for an answer gets one.
    let reply = caller.hear();
    assert!(reply.status == 503 || reply.text().contains("outcome is unknown"), "{reply:?}");
    assert_eq!(told.count(), 0);
    drop((silent, half, events));
    env.assert_nothing_left();
}
