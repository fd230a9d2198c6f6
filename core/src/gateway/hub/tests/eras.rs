//! Clients of both eras of the protocol at the same servers.

use serde_json::{Value, json};

use super::super::super::access_patterns::Access;
use super::{World, backend, names, settings, text, two};

/// Parameters of a request of the newer protocol.
fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    params
}

#[test]
fn each_era_has_the_tools_that_its_server_has_for_it() {
    let mut world = World::new(settings(), &[(backend("a"), &["get", "ask"])]);
    world.modern.push("a");
    world.modern_tools = Some(vec!["get", "ask_later"]);
    world.join(1, Access::default());
    let list = world.ask(1, "tools/list", modern(json!({})));
    assert_eq!(names(&list), ["a__get", "a__ask_later"]);
    // Who looked last does not decide for all.
    world.legacy(2);
    let list = world.ask(2, "tools/list", json!({}));
    assert_eq!(names(&list), ["a__get", "a__ask"]);
    let answer = world.ask(1, "tools/call", modern(json!({"name": "a__ask_later"})));
    assert_eq!(text(&answer), "a did ask_later");
    assert_eq!(text(&world.call(2, "a__ask")), "a did ask");
    assert_eq!(world.call(2, "a__nothing")["error"]["code"], -32602);
}

#[test]
fn a_list_that_others_see_changes_for_nobody_else() {
    let mut world = World::new(settings(), &[(backend("a"), &["get"])]);
    world.modern.push("a");
    world.modern_tools = Some(vec!["get", "more"]);
    world.legacy(1);
    world.join(2, Access::default());
    world.ask(2, "tools/list", modern(json!({})));
    assert_eq!(world.notifications(1), [""; 0]);
    // Over its own link it does.
    world.tools.insert("a".to_owned(), vec!["get", "put"]);
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    world.server_says("a", &changed, None);
    assert_eq!(world.notifications(1), ["notifications/tools/list_changed"]);
}

#[test]
fn the_newer_protocol_has_no_session() {
    let mut world = two();
    world.modern.extend(["a", "b"]);
    world.join(1, Access::default());
    for method in
        ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"]
    {
        let params = modern(json!({"level": "info", "uri": "x://a/a"}));
        let answer = world.ask(1, method, params);
        assert_eq!(answer["error"]["code"], -32601, "{method}");
    }
    // A client that has only looked, and begins as before, is not refused.
    world.ask(1, "server/discover", modern(json!({})));
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
    let answer = world.ask(1, "initialize", params);
    assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
    assert!(world.ask(1, "ping", json!({})).get("result").is_some());
}

/// A client of the newer protocol, and a server that does not know it.
fn apart() -> World {
    let mut world = World::new(settings(), &[(backend("a"), &["get"])]);
    world.join(1, Access::default());
    world
}

#[test]
fn an_older_server_answers_as_a_newer_client_wants_it() {
    let mut world = apart();
    let answer = world.ask(1, "tools/call", modern(json!({"name": "a__get"})));
    assert_eq!(text(&answer), "a did get");
    assert_eq!(answer["result"]["resultType"], "complete");
    let read = |world: &mut World, uri: &str| {
        world.ask(1, "resources/read", modern(json!({"uri": uri})))["result"].take()
    };
    let result = read(&mut world, "x://a/a");
    assert_eq!((&result["resultType"], &result["ttlMs"]), (&json!("complete"), &json!(0)));
    assert_eq!(result["cacheScope"], "private");
    // What it says itself stays, and so does an answer in the same era.
    world.silent.push("tools/call");
    let id = world.send(1, "tools/call", modern(json!({"name": "a__get"})));
    answer_heard(&mut world, json!({"result": {"resultType": "task", "ttlMs": 1}}));
    let told = world.answer_to(1, &id).expect("an answer");
    assert_eq!(told["result"], json!({"resultType": "task", "ttlMs": 1}));
    let id = world.send(1, "tools/call", modern(json!({"name": "a__get"})));
    answer_heard(&mut world, json!({"result": {}}));
    let told = world.answer_to(1, &id).expect("an answer");
    assert_eq!(told["result"], json!({"resultType": "complete"}));
    world.legacy(2);
    let id = world.send(2, "tools/call", json!({"name": "a__get"}));
    answer_heard(&mut world, json!({"result": {}}));
    assert_eq!(world.answer_to(2, &id).expect("an answer")["result"], json!({}));
}

#[test]
fn a_resource_that_an_older_server_lacks_is_told_in_newer_words() {
    let mut world = apart();
    world.silent.push("resources/read");
    let id = world.send(1, "resources/read", modern(json!({"uri": "x://a/a"})));
    answer_heard(&mut world, json!({"error": {"code": -32002, "message": "none"}}));
    assert_eq!(world.answer_to(1, &id).expect("an answer")["error"]["code"], -32602);
}

#[test]
fn an_older_server_logs_only_for_who_asked() {
    let mut world = apart();
    world.silent.push("tools/call");
    let entry = |level: &str| {
        let params = json!({"level": level, "data": "x"});
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
    };
    world.send(1, "tools/call", modern(json!({"name": "a__get"})));
    world.server_says("a", &entry("error"), None);
    assert_eq!(world.notifications(1), [""; 0]);
    answer_heard(&mut world, json!({"result": {}}));
    let mut params = modern(json!({"name": "a__get"}));
    params["_meta"]["io.modelcontextprotocol/logLevel"] = "warning".into();
    world.send(1, "tools/call", params);
    world.server_says("a", &entry("info"), None);
    assert_eq!(world.notifications(1), [""; 0]);
    world.server_says("a", &entry("error"), None);
    assert_eq!(world.notifications(1), ["notifications/message"]);
}

/// Answers the request that came last.
fn answer_heard(world: &mut World, mut answer: Value) {
    let (_, line) = world.heard.last().expect("a request").clone();
    (answer["jsonrpc"], answer["id"]) = ("2.0".into(), line["id"].clone());
    world.server_says("a", &answer, None);
}
