//! Servers that are not there: what is said of them, and when they are tried again.

use std::time::Duration;

use serde_json::json;

use super::super::super::Input;
use super::super::super::access_patterns::Access;
use super::super::super::backend::{Backend, Transport};
use super::super::Settings;
use super::{World, backend, program, settings, text};
use crate::limits::{CIRCUIT_OPEN_FOR, HANDSHAKE_MAX, SESSION_RETRY};
use crate::service::State;

const REFUSED: &str = "the server at `h` cannot be reached: connection refused";

fn failed(why: &str) -> State {
    State::Failed { why: why.to_owned() }
}

/// One server whose calls may take 2 s, with our own tools beside its own.
fn one(backend: Backend) -> World {
    let backend = Backend { call_timeout: Some(Duration::from_secs(2)), ..backend };
    World::new(Settings { admin_tools: true, ..settings() }, &[(backend, &["get"])])
}

fn stdio() -> Backend {
    Backend { transport: Transport::Stdio(Box::new(program())), ..backend("a") }
}

fn status(world: &mut World) -> (String, String) {
    let answer = world.ask(1, "tools/call", json!({"name": "server_status", "arguments": {}}));
    let its = &answer["result"]["structuredContent"]["servers"][0];
    let of = |key: &str| its[key].as_str().unwrap_or_default().to_owned();
    (of("state"), of("why"))
}

#[test]
fn what_a_server_never_got_was_not_done() {
    let mut world = one(backend("a"));
    world.legacy(1);
    world.silent.push("tools/call");
    let link = world.link("a");
    let before = world.send(1, "tools/call", json!({"name": "a__get"}));
    world.input(Input::Serves { link, state: failed(REFUSED) });
    let after = world.send(1, "tools/call", json!({"name": "a__get"}));
    world.wait(Duration::from_secs(2));
    let said = world.answer_to(1, &before).expect("it took too long");
    assert!(text(&said).contains("outcome is unknown"), "{said}");
    let said = world.answer_to(1, &after).expect("it took too long");
    let words = format!("nothing was done, the server `a` cannot be used: {REFUSED}");
    assert_eq!(text(&said), words);
    // It is there again: what is not answered then may have been done.
    world.input(Input::Serves { link, state: State::Ready });
    let again = world.send(1, "tools/call", json!({"name": "a__get"}));
    world.wait(Duration::from_secs(2));
    let said = world.answer_to(1, &again).expect("it took too long");
    assert!(text(&said).contains("outcome is unknown"), "{said}");
}

#[test]
fn one_that_was_never_there_has_not_missed_a_handshake() {
    let mut world = one(backend("a"));
    world.silent.push("initialize");
    world.join(1, Access::default());
    world.send(1, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    let link = world.link("a");
    world.input(Input::Serves { link, state: failed(REFUSED) });
    let call = world.send(1, "tools/call", json!({"name": "a__get"}));
    world.wait(HANDSHAKE_MAX);
    let said = world.answer_to(1, &call).expect("it was not there");
    let words = format!("nothing was done, the server `a` cannot be used: {REFUSED}");
    assert_eq!(text(&said), words);
    assert_eq!(world.log, [format!("no session with the server `a`: {REFUSED}")]);
}

#[test]
fn that_nothing_was_done_is_said_once() {
    let mut world = one(stdio());
    world.silent.push("initialize");
    world.join(1, Access::default());
    world.send(1, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    let call = world.send(1, "tools/call", json!({"name": "a__get"}));
    let (_, asked) = world.heard.last().cloned().expect("asked");
    let error = json!({"code": -32603, "data": {"reason": "server_down", "retryable": true},
        "message": "nothing was done, the server is not running: it was given up"});
    world.server_says("a", &json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}), None);
    let said = world.answer_to(1, &call).expect("it is down");
    let words = "nothing was done, the server `a` is not running: it was given up";
    assert_eq!(text(&said), words);
}

#[test]
fn one_that_was_given_up_rests_until_somebody_calls() {
    let mut world = one(stdio());
    world.legacy(1);
    let link = world.link("a");
    world.silent.push("initialize");
    world.input(Input::Serves { link, state: failed("it exited with code 1") });
    world.input(Input::LinkLost { link, why: "it was given up".to_owned() });
    let asked = |world: &World| {
        world.heard.iter().filter(|(_, line)| line["method"] == "initialize").count()
    };
    assert_eq!(world.hub.next_wakeup(), None);
    world.wait(10 * SESSION_RETRY);
    assert_eq!(asked(&world), 0);
    world.send(1, "tools/call", json!({"name": "a__get"}));
    assert_eq!(asked(&world), 1);
}

#[test]
fn one_that_was_stopped_is_not_waited_for() {
    let mut world = one(stdio());
    world.legacy(1);
    let link = world.link("a");
    world.input(Input::Serves { link, state: State::Stopped });
    let said = world.call(1, "a__get");
    assert!(text(&said).contains("`a` is not running"), "{said}");
    assert!(text(&said).contains("stopped it; `afresh start`"), "{said}");
    assert_eq!(status(&mut world), ("stopped".to_owned(), String::new()));
    world.input(Input::Serves { link, state: State::Ready });
    assert_eq!(text(&world.call(1, "a__get")), "a did get");
}

#[test]
fn how_a_server_does_is_the_same_wherever_it_is_told() {
    let mut world = one(stdio());
    world.silent.push("initialize");
    world.join(1, Access::default());
    let link = world.link("a");
    assert_eq!(world.hub.state_of(link), None);
    world.send(1, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    world.input(Input::Serves { link, state: State::Ready });
    assert_eq!(world.hub.state_of(link), Some(State::Starting));
    assert_eq!(status(&mut world).0, "starting");
    world.silent.clear();
    world.wait(HANDSHAKE_MAX);
    world.wait(SESSION_RETRY);
    assert_eq!(world.hub.state_of(link), Some(State::Ready));
    assert_eq!(status(&mut world).0, "ready");
    world.silent.push("tools/call");
    for _ in 0..3 {
        world.send(1, "tools/call", json!({"name": "a__get"}));
        world.wait(Duration::from_secs(2));
    }
    let (state, why) = status(&mut world);
    assert_eq!(
        (state.as_str(), why.as_str()),
        ("degraded", "3 calls in a row had no answer; it is tried again in 30 s")
    );
    assert_eq!(world.hub.state_of(link), Some(State::Degraded { why }));
    world.wait(CIRCUIT_OPEN_FOR);
    assert_eq!(status(&mut world).0, "ready");
}
