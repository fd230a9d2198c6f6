//! Questions of servers: who is asked, and who never is.

use serde_json::{Value, json};

use super::super::super::ClientId;
use super::super::super::access::Access;
use super::{World, backend, settings, two};

/// A client that may use some servers, and has these capabilities.
fn guest(world: &mut World, client: u64, servers: &[&str], capabilities: Value) {
    let servers = servers.iter().map(|name| (*name).to_owned()).collect();
    let name = format!("token {client}");
    world.join(client, Access { name, servers, tools: Vec::new() });
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": capabilities});
    world.ask(client, "initialize", params);
    world.says(client, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
}

fn all() -> Value {
    json!({"roots": {"listChanged": true}, "sampling": {}, "elicitation": {}})
}

fn question(id: u64, method: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {}})
}

/// The questions that a client was asked.
fn asked(world: &World, client: u64) -> Vec<String> {
    let told = world.told.get(&ClientId(client)).into_iter().flatten();
    let questions = told.filter(|(line, _)| !line["id"].is_null() && !line["method"].is_null());
    questions.map(|(line, _)| line["method"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Why a server's question was refused.
fn refusal(world: &World, id: u64) -> String {
    let of = |(_, line): &&(String, Value)| line["id"] == id && line["error"].is_object();
    let (_, line) = world.heard.iter().find(of).expect("a refusal");
    line["error"]["message"].as_str().expect("words").to_owned()
}

#[test]
fn nobody_is_asked_but_the_client_of_the_call() {
    let mut world = two();
    world.silent.push("tools/call");
    guest(&mut world, 1, &[], all());
    guest(&mut world, 2, &["a"], json!({}));
    world.send(2, "tools/call", json!({"name": "a__get"}));
    for (at, method) in (7..).zip(["roots/list", "sampling/createMessage", "elicitation/create"]) {
        world.server_says("a", &question(at, method), None);
        assert!(refusal(&world, at).contains("the client of this call does not support it"));
    }
    assert_eq!((asked(&world, 1), asked(&world, 2)), (Vec::new(), Vec::new()));
}

#[test]
fn calls_of_different_tokens_are_not_taken_for_one_another() {
    let mut world = two();
    world.silent.push("tools/call");
    guest(&mut world, 1, &[], all());
    guest(&mut world, 2, &["a"], all());
    let first = world.send(1, "tools/call", json!({"name": "a__get"}));
    world.send(2, "tools/call", json!({"name": "a__get"}));
    world.server_says("a", &question(7, "sampling/createMessage"), None);
    assert!(refusal(&world, 7).contains("per-client"), "{}", refusal(&world, 7));
    // Where it says itself which one it belongs to, there is no doubt.
    let (_, call) =
        world.heard.iter().find(|(_, line)| line["method"] == "tools/call").expect("it");
    let about = call["id"].to_string();
    world.server_says("a", &question(8, "sampling/createMessage"), Some(&about));
    assert_eq!(asked(&world, 1), ["sampling/createMessage"]);
    let (_, about) = world.told[&ClientId(1)].last().cloned().expect("asked");
    assert_eq!((about, asked(&world, 2)), (Some(first.to_string()), Vec::new()));
}

#[test]
fn of_clients_with_one_token_the_one_that_called_last_is_asked() {
    let mut world = two();
    world.silent.push("tools/call");
    world.legacy(1);
    world.legacy(2);
    world.send(2, "tools/call", json!({"name": "a__get"}));
    world.send(1, "tools/call", json!({"name": "a__get"}));
    world.server_says("a", &question(7, "sampling/createMessage"), None);
    assert_eq!((asked(&world, 1).len(), asked(&world, 2).len()), (1, 0));
    // It has sampling and roots, but nobody that it could ask.
    world.server_says("a", &question(8, "elicitation/create"), None);
    assert!(refusal(&world, 8).contains("does not support it"));
}

#[test]
fn without_a_call_there_must_be_no_doubt_who_is_meant() {
    let mut world = World::new(settings(), &[(backend("a"), &["get"]), (backend("b"), &["get"])]);
    guest(&mut world, 1, &["a"], all());
    guest(&mut world, 2, &["b"], all());
    world.server_says("a", &question(7, "roots/list"), None);
    assert_eq!((asked(&world, 1).len(), asked(&world, 2).len()), (1, 0));
    guest(&mut world, 3, &["a"], all());
    world.server_says("a", &question(8, "roots/list"), None);
    assert!(refusal(&world, 8).contains("2 clients use this server"), "{}", refusal(&world, 8));
    world.call(3, "a__get");
    world.server_says("a", &question(9, "roots/list"), None);
    assert_eq!(asked(&world, 3), ["roots/list"]);
    assert_eq!((asked(&world, 1).len(), asked(&world, 2).len()), (1, 0));
}
