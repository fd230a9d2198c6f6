//! Clients of the newer protocol and older servers that ask: the client is asked by the result of its call.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::super::access_patterns::Access;
use super::super::super::backend::{Backend, ClientEra, Expose, Share};
use super::super::super::{ClientId, Input};
use super::super::Settings;
use super::{World, backend, names, settings, text};
use crate::limits::{
    GATEWAY_SESSION_IDLE, HELD_CALL_WAIT, HELD_CALLS_MAX, HELD_QUESTIONS_MAX, QUESTION_WAIT,
    ROOTS_ASKED_WAIT, ROOTS_TAKEN_WAIT,
};

/// Parameters of a request of a client of this name, with all capabilities.
fn params_of(client: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": client, "version": "1"},
        "io.modelcontextprotocol/clientCapabilities":
            {"roots": {}, "sampling": {}, "elicitation": {}},
    });
    params
}

fn call() -> Value {
    params_of("test", json!({"name": "a__get", "arguments": {"x": 1}}))
}

fn question(id: u64, method: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {"message": "which?"}})
}

fn token(name: &str) -> Access {
    Access { name: name.to_owned(), ..Access::default() }
}

/// A world with one server of the older protocol, which answers no call by itself, and a client.
fn world(settings: Settings) -> World {
    let mut world = World::new(settings, &[(backend("a"), &["get"]), (backend("b"), &["get"])]);
    world.silent.push("tools/call");
    world.join(1, token("t"));
    world
}

fn single() -> Settings {
    Settings { is_single: true, ..settings() }
}

/// The responses that the servers got to their own requests.
fn responses(world: &World) -> Vec<&Value> {
    let all = world.heard.iter().map(|(_, line)| line);
    all.filter(|line| line["method"].is_null() && !line["id"].is_null()).collect()
}

fn calls(world: &World) -> usize {
    world.heard.iter().filter(|(_, line)| line["method"] == "tools/call").count()
}

/// The retry of a call, by the result that asked.
fn retry(asked: &Value, answer: &Value) -> Value {
    let mut params = call();
    let keys = asked["result"]["inputRequests"].as_object().expect("questions").keys();
    params["inputResponses"] = keys.map(|key| (key.clone(), answer.clone())).collect();
    params["requestState"] = asked["result"]["requestState"].clone();
    params
}

/// Answers the call that a server has.
fn server_answers(world: &mut World) {
    let is_call = |(_, line): &&(String, Value)| line["method"] == "tools/call";
    let (name, call) = world.heard.iter().rfind(is_call).expect("a call").clone();
    let content = json!([{"type": "text", "text": "done"}]);
    let answer = json!({"jsonrpc": "2.0", "id": call["id"], "result": {"content": content}});
    world.server_says(&name, &answer, None);
}

/// A call whose server has asked: the result that asks the client.
fn asked(world: &mut World, client: u64) -> Value {
    let id = world.send(client, "tools/call", call());
    world.server_says("a", &question(7, "elicitation/create"), None);
    world.answer_to(client, &id).expect("it is asked")
}

#[test]
fn a_client_is_asked_by_the_result_of_its_call_and_goes_on_with_it() {
    let mut world = world(single());
    let first = asked(&mut world, 1);
    assert_eq!(first["result"]["resultType"], "input_required");
    let questions = first["result"]["inputRequests"].as_object().expect("questions");
    let question = questions.values().next().expect("one");
    let wanted = json!({"method": "elicitation/create", "params": {"message": "which?"}});
    assert_eq!((questions.len(), question), (1, &wanted));
    let answer = json!({"action": "accept", "content": {"n": 1.50}});
    let id = world.send(1, "tools/call", retry(&first, &answer));
    assert_eq!(responses(&world), [&json!({"jsonrpc": "2.0", "id": 7, "result": answer})]);
    assert_eq!((calls(&world), world.answer_to(1, &id)), (1, None), "the server has it once");
    server_answers(&mut world);
    let last = world.answer_to(1, &id).expect("the result");
    assert_eq!((text(&last), &last["result"]["resultType"]), ("done", &json!("complete")));
    // Its state opens nothing more.
    let id = world.send(1, "tools/call", retry(&first, &answer));
    assert_eq!(world.answer_to(1, &id).expect("an answer")["error"]["code"], -32602);
    assert_eq!(calls(&world), 1);
}

#[test]
fn requests_without_a_session_go_on_with_a_call_by_token_and_name() {
    let mut world = world(settings());
    let first = asked(&mut world, 1);
    world.input(Input::Left { client: ClientId(1) });
    assert_eq!(responses(&world), [&json!(null); 0], "the server still waits");
    let mut stolen = |client: u64, access: Access, params: Value| {
        world.join(client, access);
        let id = world.send(client, "tools/call", params);
        let answer = world.answer_to(client, &id).expect("an answer");
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert_eq!((responses(&world).len(), calls(&world)), (0, 1));
    };
    // The state of another token, of another client or of another tool opens nothing, and a guessed one neither.
    stolen(2, token("u"), retry(&first, &json!({"action": "accept"})));
    let mut params = retry(&first, &json!({"action": "accept"}));
    params["_meta"]["io.modelcontextprotocol/clientInfo"]["name"] = "other".into();
    stolen(3, token("t"), params);
    let mut params = retry(&first, &json!({"action": "accept"}));
    params["name"] = "b__get".into();
    stolen(4, token("t"), params);
    let mut params = retry(&first, &json!({"action": "accept"}));
    let state = params["requestState"].as_str().expect("a state").to_owned();
    params["requestState"] = state.replace(char::is_alphabetic, "0").into();
    stolen(5, token("t"), params);
    world.join(6, token("t"));
    let id = world.send(6, "tools/call", retry(&first, &json!({"action": "decline"})));
    server_answers(&mut world);
    assert_eq!(text(&world.answer_to(6, &id).expect("the result")), "done");
}

#[test]
fn what_a_server_asks_or_answers_meanwhile_waits_for_the_client() {
    let mut world = world(single());
    let first = asked(&mut world, 1);
    world.server_says("a", &question(8, "sampling/createMessage"), None);
    let id = world.send(1, "tools/call", retry(&first, &json!({"action": "accept"})));
    let second = world.answer_to(1, &id).expect("it is asked again");
    assert_eq!(second["result"]["resultType"], "input_required");
    assert_ne!(second["result"]["requestState"], first["result"]["requestState"]);
    // The server does not wait for the answer.
    server_answers(&mut world);
    let id = world.send(1, "tools/call", retry(&second, &json!({"role": "assistant"})));
    assert_eq!(text(&world.answer_to(1, &id).expect("the result")), "done");
    assert_eq!(responses(&world).len(), 1, "its second question is over with the call");
}

#[test]
fn a_held_call_is_bounded_in_number_and_time() {
    let mut world = world(single());
    let first = asked(&mut world, 1);
    for id in 0..u64::try_from(HELD_QUESTIONS_MAX).expect("it is small") {
        world.server_says("a", &question(100 + id, "elicitation/create"), None);
    }
    assert_eq!(responses(&world).len(), 1, "one question too many");
    world.wait(HELD_CALL_WAIT);
    assert_eq!(responses(&world).len(), 1 + HELD_QUESTIONS_MAX);
    let cancelled = |world: &World| {
        let is_it = |(_, line): &&(String, Value)| line["method"] == "notifications/cancelled";
        world.heard.iter().filter(is_it).count()
    };
    assert_eq!(cancelled(&world), 1);
    let id = world.send(1, "tools/call", retry(&first, &json!({"action": "accept"})));
    assert_eq!(world.answer_to(1, &id).expect("an answer")["error"]["code"], -32602);
    // So are those of a client that is gone.
    for _ in 0..HELD_CALLS_MAX {
        asked(&mut world, 1);
    }
    let before = responses(&world).len();
    let id = world.send(1, "tools/call", call());
    world.server_says("a", &question(9, "elicitation/create"), None);
    assert_eq!((responses(&world).len(), world.answer_to(1, &id)), (before + 1, None));
    world.input(Input::Left { client: ClientId(1) });
    assert_eq!(cancelled(&world), 2 + HELD_CALLS_MAX);
    assert_eq!(world.hub.next_wakeup(), None);
}

#[test]
fn a_held_call_whose_server_is_lost_ends_with_an_error() {
    let mut world = world(single());
    let first = asked(&mut world, 1);
    let link = world.link("a");
    world.input(Input::LinkLost { link, why: "it fell over".to_owned() });
    let id = world.send(1, "tools/call", retry(&first, &json!({"action": "accept"})));
    let last = world.answer_to(1, &id).expect("the result");
    assert!(text(&last).contains("it fell over"), "{last}");
    assert_eq!((&last["result"]["isError"], calls(&world)), (&json!(true), 1));
}

#[test]
fn no_question_of_a_held_call_goes_to_another_client() {
    let mut world = world(settings());
    asked(&mut world, 1);
    world.input(Input::Left { client: ClientId(1) });
    // Another token calls the same server, which then does not say which call it asks for.
    world.join(2, token("u"));
    let id = world.send(2, "tools/call", call());
    world.server_says("a", &question(8, "elicitation/create"), None);
    assert_eq!(world.answer_to(2, &id), None);
    let refused = responses(&world);
    assert!(refused[0]["error"]["message"].as_str().expect("words").contains("per-client"));
}

#[test]
fn a_client_without_the_capability_is_not_asked() {
    let mut world = world(single());
    let mut params = call();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"sampling": {}});
    let id = world.send(1, "tools/call", params);
    world.server_says("a", &question(7, "elicitation/create"), None);
    assert_eq!(responses(&world)[0]["error"]["code"], -32601);
    server_answers(&mut world);
    assert_eq!(text(&world.answer_to(1, &id).expect("the result")), "done");
    // Nor is its server told of what it cannot do.
    let (_, opening) = world.opened_with("a");
    assert_eq!(opening["params"]["capabilities"], json!({"sampling": {}}));
    assert_eq!(opening["params"]["clientInfo"]["name"], "test");
}

/// Begins with a server that asks for roots as soon as it has a session.
fn wants_roots(settings: Settings) -> World {
    let mut world = world(settings);
    world.ask(1, "server/discover", params_of("test", json!({})));
    world.server_says("a", &question(7, "roots/list"), None);
    world
}

#[test]
fn roots_are_asked_for_before_the_first_call() {
    let mut world = wants_roots(single());
    assert_eq!(responses(&world), [&json!(null); 0], "the question waits for a call");
    let id = world.send(1, "tools/call", call());
    let first = world.answer_to(1, &id).expect("it is asked");
    assert_eq!(first["result"]["inputRequests"], json!({"roots": {"method": "roots/list"}}));
    assert_eq!(calls(&world), 0);
    let roots = json!({"roots": [{"uri": "file:///w"}]});
    let id = world.send(1, "tools/call", retry(&first, &roots));
    assert_eq!(responses(&world), [&json!({"jsonrpc": "2.0", "id": 7, "result": roots})]);
    assert_eq!(calls(&world), 0, "the server looks at them first");
    world.wait(ROOTS_TAKEN_WAIT);
    let (_, sent) = world.heard.last().expect("the call").clone();
    assert_eq!((calls(&world), &sent["params"]["arguments"]), (1, &json!({"x": 1})));
    assert!(sent["params"]["inputResponses"].is_null() && sent["params"]["requestState"].is_null());
    server_answers(&mut world);
    assert_eq!(text(&world.answer_to(1, &id).expect("the result")), "done");
    // The client is not asked again, whatever becomes of the server.
    world.server_says("a", &question(8, "roots/list"), None);
    assert_eq!(responses(&world)[1]["result"], roots);
    let id = world.send(1, "tools/call", call());
    server_answers(&mut world);
    assert_eq!(text(&world.answer_to(1, &id).expect("the result")), "done");
}

#[test]
fn a_server_that_asked_long_before_is_told_of_roots() {
    let mut world = wants_roots(single());
    world.wait(QUESTION_WAIT);
    assert!(responses(&world)[0]["error"].is_object());
    let id = world.send(1, "tools/call", call());
    let first = world.answer_to(1, &id).expect("it is asked");
    world.send(1, "tools/call", retry(&first, &json!({"roots": []})));
    let (_, told) = world.heard.last().expect("a notification").clone();
    assert_eq!(told["method"], "notifications/roots/list_changed");
    world.server_says("a", &question(8, "roots/list"), None);
    assert_eq!(responses(&world)[1]["result"], json!({"roots": []}));
    world.wait(ROOTS_TAKEN_WAIT);
    assert_eq!(calls(&world), 1);
    // One that does not ask again is not waited for.
    let mut world = wants_roots(single());
    world.wait(QUESTION_WAIT);
    let id = world.send(1, "tools/call", call());
    let first = world.answer_to(1, &id).expect("it is asked");
    world.send(1, "tools/call", retry(&first, &json!({"roots": []})));
    world.wait(ROOTS_ASKED_WAIT);
    assert_eq!(calls(&world), 1);
}

/// A call through `call_tool`, as it is or as a retry of this one.
fn found_call(retried: Option<(&Value, &Value)>) -> Value {
    let mut params = retried.map_or_else(call, |(asked, answer)| retry(asked, answer));
    params["name"] = "call_tool".into();
    params["arguments"] = json!({"name": "a__get", "arguments": {"x": 1}});
    params
}

#[test]
fn a_call_through_call_tool_goes_on_with_its_state() {
    let mut world = world(Settings { expose: Expose::Search, ..settings() });
    let id = world.send(1, "tools/call", found_call(None));
    world.server_says("a", &question(7, "elicitation/create"), None);
    let first = world.answer_to(1, &id).expect("it is asked");
    assert_eq!(first["result"]["resultType"], "input_required");
    let answer = json!({"action": "accept"});
    let id = world.send(1, "tools/call", found_call(Some((&first, &answer))));
    assert_eq!(responses(&world), [&json!({"jsonrpc": "2.0", "id": 7, "result": answer})]);
    assert_eq!((calls(&world), world.answer_to(1, &id)), (1, None), "the server has it once");
    server_answers(&mut world);
    assert_eq!(text(&world.answer_to(1, &id).expect("the result")), "done");
    let id = world.send(1, "tools/call", found_call(Some((&first, &answer))));
    assert_eq!(world.answer_to(1, &id).expect("an answer")["error"]["code"], -32602);
}

#[test]
fn roots_that_a_call_through_call_tool_was_asked_for_are_taken_once() {
    let mut world = wants_roots(Settings { expose: Expose::Search, ..settings() });
    let id = world.send(1, "tools/call", found_call(None));
    let first = world.answer_to(1, &id).expect("it is asked");
    assert_eq!(first["result"]["inputRequests"], json!({"roots": {"method": "roots/list"}}));
    let roots = json!({"roots": [{"uri": "file:///w"}]});
    let id = world.send(1, "tools/call", found_call(Some((&first, &roots))));
    assert_eq!(responses(&world), [&json!({"jsonrpc": "2.0", "id": 7, "result": roots})]);
    world.wait(ROOTS_TAKEN_WAIT);
    let (_, sent) = world.heard.last().expect("the call").clone();
    assert_eq!((calls(&world), &sent["params"]["name"]), (1, &json!("get")));
    assert_eq!(sent["params"]["arguments"], json!({"x": 1}));
    assert!(sent["params"]["inputResponses"].is_null() && sent["params"]["requestState"].is_null());
    server_answers(&mut world);
    assert_eq!(text(&world.answer_to(1, &id).expect("the result")), "done");
}

#[test]
fn whose_roots_a_shared_server_has_is_not_changed_while_it_is_used() {
    let mut world = wants_roots(settings());
    let mut next = 1;
    let mut call_as = |world: &mut World, name: &str| {
        next += 1;
        world.join(next, token("t"));
        let mut params = call();
        params["_meta"]["io.modelcontextprotocol/clientInfo"]["name"] = name.into();
        let id = world.send(next, "tools/call", params);
        let asked = world.answer_to(next, &id);
        if asked.is_none() {
            server_answers(world);
        }
        world.input(Input::Left { client: ClientId(next) });
        asked
    };
    let first = call_as(&mut world, "test").expect("it is asked");
    world.join(100, token("t"));
    world.send(100, "tools/call", retry(&first, &json!({"roots": []})));
    world.wait(ROOTS_ASKED_WAIT);
    server_answers(&mut world);
    for _ in 0..3 {
        assert_eq!(call_as(&mut world, "test"), None);
        world.wait(GATEWAY_SESSION_IDLE / 2);
        assert_eq!(call_as(&mut world, "other"), None, "it comes beside");
    }
    world.wait(GATEWAY_SESSION_IDLE);
    assert!(call_as(&mut world, "other").is_some(), "the owner is gone");
}

#[test]
fn each_client_without_a_session_has_its_own_server() {
    let share = Share::PerClient { instances_max: 2, idle_after: Duration::from_secs(60) };
    let own = Backend { share, ..backend("a") };
    let mut world = World::new(settings(), &[(own, &["get"])]);
    world.modern.push("a");
    let mut ask = |client: u64, token_name: &str, name: &str| {
        world.join(client, token(token_name));
        let params = params_of(name, json!({"name": "a__get"}));
        let answer = text(&world.ask(client, "tools/call", params)).to_owned();
        world.input(Input::Left { client: ClientId(client) });
        (answer, world.opened.len())
    };
    assert_eq!(ask(1, "t", "x"), ("a did get".to_owned(), 1));
    assert_eq!(ask(2, "t", "x"), ("a did get".to_owned(), 1), "it is the same one");
    assert_eq!(ask(3, "u", "x"), ("a did get".to_owned(), 2));
    assert!(ask(4, "t", "y").0.contains("instances_max"));
    world.wait(Duration::from_secs(60));
    assert_eq!(world.links.len(), 0, "unused instances end");
    let mut ask = |client: u64, name: &str| {
        world.join(client, Access::default());
        let mut params = params_of(name, json!({"name": "a__get"}));
        if name.is_empty() {
            params["_meta"]["io.modelcontextprotocol/clientInfo"] = Value::Null;
        }
        text(&world.ask(client, "tools/call", params)).to_owned()
    };
    // Those that cannot be told apart share one, and the log says so.
    assert_eq!((ask(5, "").as_str(), ask(6, "").as_str()), ("a did get", "a did get"));
    assert_eq!(world.opened.len(), 3);
    assert!(world.log.iter().any(|text| text.contains("cannot be told apart")), "{:?}", world.log);
}

#[test]
fn a_gateway_can_speak_the_older_protocol_only() {
    let mut world = world(Settings { era: ClientEra::Legacy, ..settings() });
    world.silent.clear();
    let refused = world.ask(1, "server/discover", params_of("test", json!({})));
    assert_eq!(refused["error"]["code"], -32601);
    let refused = world.ask(1, "tools/list", params_of("test", json!({})));
    assert_eq!(refused["error"]["code"], -32022);
    assert_eq!(refused["error"]["data"]["supported"][3], "2025-11-25");
    world.ask(1, "initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}}));
    assert_eq!(names(&world.ask(1, "tools/list", json!({}))), ["a__get", "b__get"]);
}
