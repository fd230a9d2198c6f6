//! How long clients wait for servers, and for which.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::super::Input;
use super::super::super::access_patterns::Access;
use super::{World, down, names, two};
use crate::limits::{GATEWAY_HELLO_WAIT, GATEWAY_START_WAIT};

/// A client has come to two servers, of which one has not answered the handshake.
fn one_hangs() -> (World, Value) {
    let mut world = two();
    world.silent.push("initialize");
    world.join(1, Access::default());
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
    let id = world.send(1, "initialize", params);
    let (_, asked) = world.heard.iter().find(|(name, _)| name == "b").cloned().expect("asked");
    let link = world.link("b");
    let result = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}});
    world.say(link, &json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}), None);
    world.input(Input::Wakeup);
    (world, id)
}

#[test]
fn one_that_hangs_does_not_hold_up_the_beginning() {
    let (mut world, id) = one_hangs();
    assert_eq!(world.answer_to(1, &id), None);
    world.wait(GATEWAY_HELLO_WAIT);
    let answer = world.answer_to(1, &id).expect("it is not waited for any longer");
    for promised in ["tools", "prompts", "resources"] {
        let its = &answer["result"]["capabilities"][promised];
        assert_eq!(its["listChanged"], true, "{promised}: {answer}");
    }
    let list = world.send(1, "tools/list", json!({}));
    world.wait(GATEWAY_START_WAIT - GATEWAY_HELLO_WAIT - Duration::from_millis(1));
    assert_eq!(world.answer_to(1, &list), None);
    world.wait(Duration::from_millis(1));
    assert_eq!(names(&world.answer_to(1, &list).expect("what there is")), ["b__get"]);
    // From now on nothing waits for it.
    assert_eq!(names(&world.ask(1, "tools/list", json!({}))), ["b__get"]);
    // It is told when it comes after all.
    let (_, asked) = world.heard.iter().find(|(name, _)| name == "a").cloned().expect("asked");
    let result = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}});
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
    world.server_says("a", &answer, None);
    assert_eq!(world.notifications(1), ["notifications/tools/list_changed"]);
}

#[test]
fn one_that_has_failed_is_not_waited_for() {
    let (mut world, id) = one_hangs();
    let link = world.link("a");
    world.input(Input::Serves { link, state: down() });
    assert!(world.answer_to(1, &id).is_some());
    assert_eq!(names(&world.ask(1, "tools/list", json!({}))), ["b__get"]);
}
