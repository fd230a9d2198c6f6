//! Questions of servers: who is asked, and who never is.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::super::access_patterns::Access;
use super::super::super::backend::{Backend, Share};
use super::super::super::http::{
    Front, FrontEffect, FrontInput, FrontRequest, HttpExchange, PostBody, RequestKind,
    ResumedSession, SessionId,
};
use super::super::super::settings::FrontSettings;
use super::super::super::{ClientId, Input};
use super::super::Settings;
use super::{World, backend, settings, two};
use crate::limits::{ASKED_MAX, GATEWAY_HELLO_WAIT, QUESTION_WAIT};
use crate::mcp::envelope::Id;

/// A client that may use some servers, and has these capabilities.
fn guest(world: &mut World, client: u64, servers: &[&str], capabilities: Value) {
    let servers: Vec<String> = servers.iter().map(|name| (*name).to_owned()).collect();
    let servers = (!servers.is_empty()).then_some(servers);
    let name = format!("token {client}");
    world.join(client, Access { name, servers, tools: None });
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

#[test]
fn a_session_of_a_gateway_before_is_asked_while_other_servers_start() {
    let share = Share::PerClient { instances_max: 9, idle_after: Duration::from_secs(60) };
    let mut world = World::new(
        settings(),
        &[(backend("a"), &["get"]), (Backend { share, ..backend("b") }, &["get"])],
    );
    guest(&mut world, 9, &["a"], json!({}));
    // `a` is up, and the instance of `b` for this session starts.
    world.silent.extend(["initialize", "tools/call"]);
    let line =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a__get"}});
    let post = PostBody::Session { ids: vec![Id::new(b"1")], count: 1 };
    let asked = FrontRequest {
        exchange: HttpExchange(1),
        token: None,
        peer: "127.0.0.1".parse().expect("an address"),
        session: Some(format!("{}.claim.signature", SessionId([5; 16]))),
        issued: None,
        resumes: Some(ResumedSession {
            params: json!({"protocolVersion": "2025-06-18", "capabilities": all()})
                .to_string()
                .into(),
            numbers_from: 1,
        }),
        primes: true,
        ask: RequestKind::Post { line: line.to_string().into(), post, new: SessionId([6; 16]) },
    };
    let effects =
        Front::new(&FrontSettings::default()).handle(world.now, FrontInput::Request(asked));
    for effect in effects {
        if let FrontEffect::Hub(input) = effect {
            world.input(input);
        }
    }
    assert_eq!(world.opened, ["a", "b@1"]);
    world.server_says("a", &question(7, "elicitation/create"), None);
    assert_eq!(self::asked(&world, 1), ["elicitation/create"]);
    let names = world.told[&ClientId(1)].iter().map(|(line, _)| line["method"].clone());
    assert_eq!(
        names.collect::<Vec<_>>(),
        ["elicitation/create"],
        "it has its `initialize` since long"
    );
}

/// A server that asks for roots as soon as it has a session, before its first client has one.
fn asks_early(settings: Settings, backend: Backend) -> World {
    let mut world = World::new(settings, &[(backend, &["get"]), (self::backend("b"), &["get"])]);
    world.silent.push("tools/list");
    world.join(1, Access::default());
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {"roots": {}}});
    world.send(1, "initialize", params);
    world.server_says("a", &question(7, "roots/list"), None);
    assert_eq!((asked(&world, 1), world.heard.iter().any(is_refusal)), (Vec::new(), false));
    world
}

fn is_refusal((_, line): &(String, Value)) -> bool {
    line["error"].is_object()
}

fn initialized() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

#[test]
fn what_is_asked_early_waits_for_the_client() {
    let share = Share::PerClient { instances_max: 2, idle_after: Duration::from_secs(60) };
    let single = Settings { is_single: true, ..settings() };
    let all = [
        (settings(), backend("a")),
        (settings(), Backend { share, ..backend("a") }),
        (single, backend("a")),
    ];
    for (settings, backend) in all {
        let mut world = asks_early(settings, backend);
        world.wait(GATEWAY_HELLO_WAIT);
        assert_eq!(asked(&world, 1), [""; 0], "it has not said that it is ready");
        world.says(1, &initialized());
        assert_eq!(asked(&world, 1), ["roots/list"]);
        let (line, _) = world.told[&ClientId(1)].last().cloned().expect("asked");
        world.says(1, &json!({"jsonrpc": "2.0", "id": line["id"], "result": {"roots": []}}));
        let answer = json!({"jsonrpc": "2.0", "id": 7, "result": {"roots": []}});
        assert_eq!(world.heard.last(), Some(&("a".to_owned(), answer)));
    }
}

#[test]
fn what_is_asked_early_does_not_wait_for_ever() {
    let mut world = asks_early(settings(), backend("a"));
    world.wait(QUESTION_WAIT);
    assert!(refusal(&world, 7).contains("in time"), "{}", refusal(&world, 7));
    // Nor for a client that is gone, nor when it is taken back.
    let mut world = asks_early(settings(), backend("a"));
    world.input(Input::Left { client: ClientId(1) });
    assert!(refusal(&world, 7).contains("no client uses this server"), "{}", refusal(&world, 7));
    let mut world = asks_early(settings(), backend("a"));
    let params = json!({"requestId": 7});
    let cancelled = json!({"method": "notifications/cancelled", "params": params});
    world.server_says("a", &cancelled, None);
    world.wait(GATEWAY_HELLO_WAIT);
    world.says(1, &initialized());
    assert_eq!(asked(&world, 1), [""; 0]);
    // And there is a bound to it.
    let mut world = asks_early(settings(), backend("a"));
    for at in 0..ASKED_MAX {
        let at = u64::try_from(at).expect("it is small");
        world.server_says("a", &question(100 + at, "roots/list"), None);
    }
    assert_eq!(world.heard.iter().filter(|heard| is_refusal(heard)).count(), 1);
}

#[test]
fn whoever_has_roots_after_others_had_none_is_asked_for_them() {
    let told = |world: &World| {
        let is_it = |line: &Value| line["method"] == "notifications/roots/list_changed";
        world.heard.iter().filter(|(name, line)| name == "a" && is_it(line)).count()
    };
    let mut world = two();
    guest(&mut world, 1, &[], json!({}));
    world.server_says("a", &question(7, "roots/list"), None);
    assert!(refusal(&world, 7).contains("does not support it"));
    world.input(Input::Left { client: ClientId(1) });
    guest(&mut world, 2, &[], all());
    assert_eq!(told(&world), 1);
    world.server_says("a", &question(8, "roots/list"), None);
    assert_eq!(asked(&world, 2), ["roots/list"]);
    // It has them now, and whoever comes beside changes nothing.
    guest(&mut world, 3, &[], all());
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    world.says(3, &changed);
    assert_eq!(told(&world), 1);
    // The roots of one that is gone are nobody's.
    world.input(Input::Left { client: ClientId(2) });
    world.says(3, &changed);
    world.input(Input::Left { client: ClientId(3) });
    guest(&mut world, 4, &[], all());
    assert_eq!(told(&world), 3);
}
