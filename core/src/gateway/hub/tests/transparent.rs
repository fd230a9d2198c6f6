//! One server for several clients, which see it as it is.

use serde_json::{Value, json};

use super::super::super::access_patterns::Access;
use super::super::super::{ClientId, Input, LinkId};
use super::super::Settings;
use super::{World, backend, settings};
use crate::limits::{QUESTION_WAIT, SHARED_TURN_WAIT, WITHDRAWN_CALL_WAIT};

const FIRST: u64 = 5 << 32;

/// A server, and two clients with these capabilities.
fn shared(capabilities: &Value) -> World {
    shared_with(capabilities, json!({}))
}

/// The same with a server that offers this besides.
fn shared_with(capabilities: &Value, offers: Value) -> World {
    let settings = Settings { is_transparent: true, first_link: FIRST, ..settings() };
    let mut world = World::new(settings, &[(backend("a"), &["get"])]);
    world.offers = json!({"a": offers});
    for client in [1, 2] {
        world.join(client, Access::default());
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": capabilities});
        let answer = world.ask(client, "initialize", params);
        let result = &answer["result"];
        // In the words of the server, with the version that the client knows.
        assert_eq!(result["serverInfo"], json!({"name": "a", "version": "1"}));
        assert_eq!(result["protocolVersion"], "2025-06-18");
        assert_eq!(result["capabilities"]["tools"], json!({}));
        world.says(client, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }
    world
}

fn questions(world: &World, client: u64) -> Vec<Value> {
    let told = world.told.get(&ClientId(client)).into_iter().flatten();
    let questions = told.filter(|(line, _)| !line["id"].is_null() && !line["method"].is_null());
    questions.map(|(line, _)| line.clone()).collect()
}

#[test]
fn names_and_lists_are_the_servers_own() {
    let mut world = shared(&json!({}));
    assert_eq!(world.opened, ["a"]);
    assert_eq!(world.link("a"), LinkId(FIRST + 1));
    let answer = world.ask(1, "tools/list", json!({}));
    assert_eq!(answer["result"]["tools"][0]["name"], "get");
    let answer = world.ask(2, "tools/call", json!({"name": "unlisted"}));
    assert_eq!(answer["result"]["content"][0]["text"], "a did unlisted");
    // What the server does not know, it says itself.
    assert_eq!(world.ask(2, "x/y", json!({}))["error"]["message"], "method not found");
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    world.server_says("a", &changed, None);
    for client in [1, 2] {
        assert_eq!(world.notifications(client), ["notifications/tools/list_changed"]);
    }
}

#[test]
fn the_pages_of_tasks_have_the_servers_own_cursors() {
    let tasks = json!({"tasks": {"list": {}, "requests": {"tools": {"call": {}}}}});
    let mut world = shared_with(&json!({}), tasks);
    world.silent.extend(["tools/call", "tasks/list"]);
    let mut ask = |method: &str, params: Value, result: Value| {
        let id = world.send(1, method, params);
        let (_, sent) = world.heard.last().expect("a request").clone();
        let answer = json!({"jsonrpc": "2.0", "id": sent["id"], "result": result});
        world.server_says("a", &answer, None);
        let answer = world.answer_to(1, &id).expect("an answer");
        (sent["params"].clone(), answer["result"].clone())
    };
    for own in ["t1", "t2"] {
        let task = json!({"taskId": own, "status": "working"});
        ask("tools/call", json!({"name": "get", "task": {}}), json!({"task": task}));
    }
    let page = |own: &str| json!([{"taskId": own, "status": "working"}]);
    // A cursor of the server may look like one of the gateway's.
    for cursor in ["2", "t0:2"] {
        let first = json!({"tasks": page("t1"), "nextCursor": cursor});
        let (_, first) = ask("tasks/list", json!({}), first);
        assert_eq!((&first["tasks"], &first["nextCursor"]), (&page("t1"), &json!(cursor)));
        let (sent, last) =
            ask("tasks/list", json!({"cursor": cursor}), json!({"tasks": page("t2")}));
        assert_eq!((&sent["cursor"], &last["tasks"]), (&json!(cursor), &page("t2")));
        assert_eq!(last["nextCursor"], Value::Null);
    }
}

#[test]
fn a_question_waits_until_it_is_known_whose_it_is() {
    let mut world = shared(&json!({"sampling": {}}));
    world.silent.push("tools/call");
    let ask = |id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "sampling/createMessage", "params": {}});
    // Nothing runs that it could belong to.
    world.server_says("a", &ask(1), None);
    assert!(world.heard.iter().any(|(_, line)| line["id"] == 1 && line["error"].is_object()));
    world.send(1, "tools/call", json!({"name": "get"}));
    world.send(2, "tools/call", json!({"name": "get"}));
    world.server_says("a", &ask(2), None);
    assert_eq!((questions(&world, 1).len(), questions(&world, 2).len()), (0, 0));
    // The call of the second ends: the question was not its.
    let mut calls = world.heard.iter().filter(|(_, line)| line["method"] == "tools/call");
    let second = calls.next_back().expect("a call").1["id"].clone();
    let result = json!({"jsonrpc": "2.0", "id": second, "result": {"content": []}});
    world.server_says("a", &result, None);
    assert_eq!((questions(&world, 1).len(), questions(&world, 2).len()), (1, 0));

    let mut world = shared(&json!({"sampling": {}}));
    world.silent.push("tools/call");
    world.send(1, "tools/call", json!({"name": "get"}));
    world.send(2, "tools/call", json!({"name": "get"}));
    world.server_says("a", &ask(3), None);
    world.wait(QUESTION_WAIT);
    assert!(world.heard.iter().any(|(_, line)| line["id"] == 3 && line["error"].is_object()));
    assert_eq!((questions(&world, 1).len(), questions(&world, 2).len()), (0, 0));
}

/// Calls a tool that does not answer, and returns the id under which the server has it; none where it is held.
fn call(world: &mut World, client: u64, tool: &str) -> Option<Value> {
    let before = world.heard.len();
    world.send(client, "tools/call", json!({"name": tool}));
    let call = |(_, line): &&(String, Value)| line["method"] == "tools/call";
    world.heard[before..].iter().find(call).map(|(_, line)| line["id"].clone())
}

fn end(world: &mut World, call: Option<Value>) {
    let result = json!({"jsonrpc": "2.0", "id": call, "result": {"content": []}});
    world.server_says("a", &result, None);
}

fn ask(world: &mut World, id: u64) {
    let question =
        json!({"jsonrpc": "2.0", "id": id, "method": "sampling/createMessage", "params": {}});
    world.server_says("a", &question, None);
}

fn is_refused(world: &World, id: u64) -> bool {
    world.heard.iter().any(|(_, line)| line["id"] == id && line["error"].is_object())
}

/// How many calls of a tool the server has got so far.
fn calls_of(world: &World, tool: &str) -> usize {
    let is_it = |line: &Value| line["method"] == "tools/call" && line["params"]["name"] == tool;
    world.heard.iter().filter(|(_, line)| is_it(line)).count()
}

#[test]
fn calls_that_ask_run_while_no_other_client_has_one() {
    let mut world = shared(&json!({"sampling": {}}));
    world.silent.push("tools/call");
    let first = call(&mut world, 1, "get");
    ask(&mut world, 1);
    assert_eq!((questions(&world, 1).len(), questions(&world, 2).len()), (1, 0));
    // The same tool and any other wait for it, those of the same client do not.
    assert_eq!(call(&mut world, 2, "get"), None);
    assert_eq!(call(&mut world, 2, "put"), None);
    assert_eq!(world.hub.in_flight(), 3);
    end(&mut world, first);
    assert_eq!((calls_of(&world, "get"), calls_of(&world, "put")), (2, 1));
    ask(&mut world, 2);
    assert_eq!((questions(&world, 1).len(), questions(&world, 2).len()), (1, 1));
    // The first one's call waits for both of them.
    assert_eq!(call(&mut world, 1, "get"), None);
    let numbers: Vec<Value> = world
        .heard
        .iter()
        .rev()
        .filter(|(_, line)| line["method"] == "tools/call")
        .take(2)
        .map(|(_, line)| line["id"].clone())
        .collect();
    for number in numbers {
        assert_eq!(calls_of(&world, "get"), 2);
        end(&mut world, Some(number));
    }
    assert_eq!((calls_of(&world, "get"), calls_of(&world, "put")), (3, 1));
    assert_eq!(call(&mut world, 2, "put"), None);
    // A client that leaves frees the others too, once its call has ended.
    let last = world.heard.iter().rev().find(|(_, line)| line["method"] == "tools/call");
    let last = last.map(|(_, line)| line["id"].clone());
    world.input(Input::Left { client: ClientId(1) });
    assert_eq!(calls_of(&world, "put"), 1);
    end(&mut world, last);
    assert_eq!(calls_of(&world, "put"), 2);
}

#[test]
fn a_call_that_needs_another_of_its_client_is_not_held_up_by_those_that_wait_for_it() {
    let mut world = shared(&json!({"sampling": {}}));
    world.silent.push("tools/call");
    let first = call(&mut world, 1, "get");
    ask(&mut world, 1);
    assert_eq!(call(&mut world, 2, "get"), None);
    // To answer the question, the first client calls other tools, and one that asks it something too.
    let (second, third) = (call(&mut world, 1, "put"), call(&mut world, 1, "get"));
    assert!(second.is_some() && third.is_some(), "{second:?} {third:?}");
    ask(&mut world, 2);
    assert_eq!((questions(&world, 1).len(), questions(&world, 2).len()), (2, 0));
    end(&mut world, third);
    end(&mut world, first);
    // What it calls from now on waits for its turn: the second client's is first.
    assert_eq!(call(&mut world, 1, "put"), None);
    assert_eq!((calls_of(&world, "get"), calls_of(&world, "put")), (2, 1));
    end(&mut world, second);
    assert_eq!(calls_of(&world, "get"), 3);
    ask(&mut world, 3);
    assert_eq!((questions(&world, 1).len(), questions(&world, 2).len()), (2, 1));
}

#[test]
fn a_call_that_its_client_waits_for_goes_on_before_those_that_wait_for_that_client() {
    let mut world = shared(&json!({"sampling": {}}));
    world.silent.push("tools/call");
    let learnt = call(&mut world, 1, "get");
    ask(&mut world, 1);
    end(&mut world, learnt);
    let (first, other) = (call(&mut world, 1, "put"), call(&mut world, 2, "put"));
    assert!(first.is_some() && other.is_some());
    // Both clients' next calls wait for the other's call that runs.
    assert_eq!((call(&mut world, 2, "get"), call(&mut world, 1, "get")), (None, None));
    end(&mut world, other);
    assert_eq!(calls_of(&world, "get"), 2, "the first one's");
    ask(&mut world, 2);
    assert_eq!((questions(&world, 1).len(), questions(&world, 2).len()), (2, 0));
}

#[test]
fn calls_that_never_asked_run_at_the_same_time() {
    let mut world = shared(&json!({"sampling": {}}));
    world.silent.push("tools/call");
    let asking = call(&mut world, 1, "ask");
    ask(&mut world, 1);
    end(&mut world, asking);
    let calls =
        [call(&mut world, 1, "get"), call(&mut world, 2, "get"), call(&mut world, 2, "put")];
    assert!(calls.iter().all(Option::is_some), "{calls:?}");
    // One that waits for others to end is told so in time.
    world.send(2, "tools/call", json!({"name": "ask"}));
    world.wait(SHARED_TURN_WAIT);
    let told = world.told.get(&ClientId(2)).into_iter().flatten();
    let texts = told.filter_map(|(line, _)| line["result"]["content"][0]["text"].as_str());
    assert!(texts.clone().any(|text| text.contains("nothing was done: calls of other clients")));
    assert_eq!(calls_of(&world, "ask"), 1);
}

#[test]
fn questions_of_two_clients_that_wait_for_one_another_are_refused_at_once() {
    let mut world = shared(&json!({"sampling": {}}));
    world.silent.push("tools/call");
    let (first, second) = (call(&mut world, 1, "get"), call(&mut world, 2, "get"));
    ask(&mut world, 1);
    ask(&mut world, 2);
    assert_eq!((questions(&world, 1).len(), questions(&world, 2).len()), (0, 0));
    assert!(is_refused(&world, 2) && !is_refused(&world, 1));
    // The refused call ends, and the other one's client is asked.
    end(&mut world, second);
    assert_eq!((questions(&world, 1).len(), questions(&world, 2).len()), (1, 0));
    // From now on they run one after another.
    assert_eq!(call(&mut world, 2, "get"), None);
    end(&mut world, first);
    assert_eq!(calls_of(&world, "get"), 3);
}

#[test]
fn a_cancelled_call_may_still_ask() {
    let mut world = shared(&json!({"sampling": {}}));
    world.silent.push("tools/call");
    let id = world.send(1, "tools/call", json!({"name": "get"}));
    let first = world.heard.last().map(|(_, line)| line["id"].clone());
    let params = json!({"requestId": id});
    world
        .says(1, &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    let second = call(&mut world, 2, "get");
    ask(&mut world, 1);
    assert!(is_refused(&world, 1));
    assert_eq!((questions(&world, 1).len(), questions(&world, 2).len()), (0, 0));
    // Its server has answered it all the same: it has ended.
    end(&mut world, first);
    ask(&mut world, 2);
    assert_eq!((questions(&world, 1).len(), questions(&world, 2).len()), (0, 1));
    end(&mut world, second);

    call(&mut world, 1, "get");
    world.input(Input::Left { client: ClientId(1) });
    call(&mut world, 2, "get");
    ask(&mut world, 3);
    assert!(is_refused(&world, 3));
    world.wait(WITHDRAWN_CALL_WAIT);
    ask(&mut world, 4);
    assert_eq!(questions(&world, 2).len(), 2);
}

fn cancel(world: &mut World, client: u64, id: &Value) {
    let params = json!({"requestId": id});
    let line = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    world.says(client, &line);
}

#[test]
fn a_call_that_is_cancelled_at_its_question_ends_by_the_answer_to_it() {
    for method in ["elicitation/create", "sampling/createMessage"] {
        for leaves in [false, true] {
            let mut world = shared(&json!({"sampling": {}, "elicitation": {}}));
            world.silent.push("tools/call");
            let id = world.send(1, "tools/call", json!({"name": "get"}));
            let first = world.heard.last().map(|(_, line)| line["id"].clone());
            let question = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}});
            world.server_says("a", &question, None);
            let asked = questions(&world, 1)[0]["id"].clone();
            match leaves {
                true => world.input(Input::Left { client: ClientId(1) }),
                false => cancel(&mut world, 1, &id.clone()),
            }
            let answer = world.heard.iter().find(|(_, line)| line["id"] == 1).expect("answered");
            match method {
                "elicitation/create" => assert_eq!(answer.1["result"], json!({"action": "cancel"})),
                _ => assert!(answer.1["error"].is_object(), "{answer:?}"),
            }
            let is_cancel = |line: &Value| line["method"] == "notifications/cancelled";
            assert!(!world.heard.iter().any(|(_, line)| is_cancel(line)), "it has a response");
            if !leaves {
                let told = world.told[&ClientId(1)].iter().find(|(line, _)| is_cancel(line));
                assert_eq!(told.expect("told").0["params"]["requestId"], asked);
            }
            // The other client's call waits for that response, and not for longer.
            assert_eq!(call(&mut world, 2, "get"), None);
            end(&mut world, first);
            assert_eq!(calls_of(&world, "get"), 2);
            ask(&mut world, 2);
            assert_eq!(questions(&world, 2).len(), 1);
        }
    }
}

#[test]
fn a_call_that_may_ask_waits_for_one_that_was_cancelled() {
    let mut world = shared(&json!({"sampling": {}}));
    world.silent.push("tools/call");
    let learnt = call(&mut world, 1, "get");
    ask(&mut world, 1);
    end(&mut world, learnt);
    let id = world.send(1, "tools/call", json!({"name": "get"}));
    cancel(&mut world, 1, &id);
    assert_eq!((call(&mut world, 2, "get"), calls_of(&world, "get")), (None, 2));
    assert!(call(&mut world, 2, "put").is_some(), "it never asked");
    world.wait(WITHDRAWN_CALL_WAIT);
    assert_eq!(calls_of(&world, "get"), 3);
    ask(&mut world, 2);
    assert_eq!((questions(&world, 1).len(), questions(&world, 2).len()), (1, 1));
}

#[test]
fn any_client_tells_the_roots_that_all_have() {
    let mut world = shared(&json!({"roots": {}}));
    let ask = json!({"jsonrpc": "2.0", "id": 9, "method": "roots/list"});
    world.server_says("a", &ask, None);
    assert_eq!(questions(&world, 1).len() + questions(&world, 2).len(), 1);
    world.input(Input::Left { client: ClientId(1) });
    world.server_says("a", &json!({"jsonrpc": "2.0", "id": 10, "method": "roots/list"}), None);
    assert_eq!(questions(&world, 2).len(), 1);
}
