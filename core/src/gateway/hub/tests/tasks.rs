//! Tasks of several servers, and tools that MCP Apps call by their servers' own names.

use serde_json::{Value, json};

use super::super::super::access_patterns::Access;
use super::super::super::backend::Backend;
use super::super::super::{ClientId, Input};
use super::{World, backend, settings, text};
use crate::limits::GATEWAY_TASKS_MAX;

/// Two servers with tasks of the older protocol, and two clients.
fn world() -> World {
    let tools: &[&str] = &["get"];
    let mut world = World::new(settings(), &[(backend("a"), tools), (backend("b"), tools)]);
    let tasks = |more: Value| json!({"tasks": {"list": {}, "requests": {"tools": more}}});
    world.offers = json!({"a": tasks(json!({"call": {}})), "b": tasks(json!({"x": {}}))});
    world.legacy(1);
    world.legacy(2);
    world.silent.extend(["tools/call", "tasks/get", "tasks/result", "tasks/cancel", "tasks/list"]);
    world
}

/// The last request that a server has, with its name.
fn last(world: &World) -> (String, Value) {
    let is_request =
        |(_, line): &&(String, Value)| line["method"].is_string() && !line["id"].is_null();
    world.heard.iter().rfind(is_request).expect("a request").clone()
}

/// Answers it.
fn answer(world: &mut World, mut answer: Value) {
    let (name, line) = last(world);
    (answer["jsonrpc"], answer["id"]) = ("2.0".into(), line["id"].clone());
    world.server_says(&name, &answer, None);
}

/// A call that creates a task.
fn create(world: &mut World, client: u64, tool: &str, handle: &str) -> Value {
    let id = world.send(client, "tools/call", json!({"name": tool, "task": {"ttl": 9}}));
    let task = json!({"taskId": handle, "status": "working", "createdAt": "2026-01-02T03:04:05Z", "ttl": 9});
    answer(world, json!({"result": {"task": task}}));
    world.answer_to(client, &id).expect("a task")
}

fn modern(mut params: Value, extensions: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"extensions": extensions},
    });
    params
}

#[test]
fn each_handle_leads_to_its_own_server() {
    let mut world = world();
    assert_eq!(create(&mut world, 1, "a__get", "ta")["result"]["task"]["taskId"], "ta");
    create(&mut world, 1, "b__get", "tb");
    for (handle, server) in [("ta", "a"), ("tb", "b")] {
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            let id = world.send(1, method, json!({"taskId": handle}));
            let (name, line) = last(&world);
            assert_eq!(
                (&*name, &line["method"], &line["params"]["taskId"]),
                (server, &json!(method), &json!(handle))
            );
            answer(&mut world, json!({"result": {"taskId": handle}}));
            assert_eq!(world.answer_to(1, &id).expect("an answer")["result"]["taskId"], handle);
        }
    }
    assert_eq!(world.ask(1, "tasks/get", json!({"taskId": "tc"}))["error"]["code"], -32602);
    assert_eq!(world.ask(1, "tasks/update", json!({"taskId": "ta"}))["error"]["code"], -32601);
}

#[test]
fn a_handle_opens_nothing_for_another_client() {
    let mut world = world();
    create(&mut world, 1, "a__get", "ta");
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        assert_eq!(
            world.ask(2, method, json!({"taskId": "ta"}))["error"]["code"],
            -32602,
            "{method}"
        );
    }
    // Nor does its status reach one, nor a question about it.
    let status = json!({"method": "notifications/tasks/status", "params": {"taskId": "ta"}});
    world.server_says("a", &status, None);
    assert_eq!(world.notifications(1), ["notifications/tasks/status"]);
    assert_eq!(world.notifications(2), [""; 0]);
    world.send(2, "tools/call", json!({"name": "a__get"}));
    let related = json!({"io.modelcontextprotocol/related-task": {"taskId": "ta"}});
    let ask = json!({"id": 7, "method": "sampling/createMessage", "params": {"_meta": related}});
    world.server_says("a", &ask, None);
    let told = |client: u64| world.told[&ClientId(client)].last().expect("it").0["method"].clone();
    assert_eq!((told(1), told(2)), ("sampling/createMessage".into(), Value::Null));
    // A server cannot take the handle of another one.
    let other = create(&mut world, 1, "b__get", "ta");
    assert_ne!(other["result"]["task"]["taskId"], "ta");
    world.send(1, "tasks/get", json!({"taskId": "ta"}));
    assert_eq!(last(&world).0, "a");
    // With its client a task is gone.
    world.input(Input::Left { client: ClientId(1) });
    world.legacy(1);
    assert_eq!(world.ask(1, "tasks/get", json!({"taskId": "ta"}))["error"]["code"], -32602);
}

#[test]
fn servers_that_number_their_tasks_alike_do_not_collide() {
    let mut world = world();
    assert_eq!(create(&mut world, 1, "a__get", "1")["result"]["task"]["taskId"], "1");
    let made = create(&mut world, 1, "b__get", "1");
    let handle = made["result"]["task"]["taskId"].clone();
    assert!(handle.is_string() && handle != "1", "{made}");
    // Both can be reached, each server by its own id.
    let related = |id: &Value| json!({"io.modelcontextprotocol/related-task": {"taskId": id}});
    for (its, server) in [(&json!("1"), "a"), (&handle, "b")] {
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            let id = world.send(1, method, json!({"taskId": its, "_meta": related(its)}));
            let (name, line) = last(&world);
            let asked = (&*name, &line["params"]["taskId"], &line["params"]["_meta"]);
            assert_eq!(asked, (server, &json!("1"), &related(&json!("1"))), "{method}");
            let result = match method {
                "tasks/result" => json!({"content": [], "_meta": related(&json!("1"))}),
                _ => json!({"taskId": "1", "status": "working"}),
            };
            answer(&mut world, json!({"result": result}));
            let got = world.answer_to(1, &id).expect("an answer")["result"].take();
            match method {
                "tasks/result" => assert_eq!(got["_meta"], related(its)),
                _ => assert_eq!(&got["taskId"], its, "{method}"),
            }
        }
        // So do what servers say by themselves, and what they ask.
        let params = json!({"taskId": "1", "status": "working", "_meta": related(&json!("1"))});
        let status = json!({"method": "notifications/tasks/status", "params": params});
        world.server_says(server, &status, None);
        let told = world.told[&ClientId(1)].last().expect("it").0["params"].clone();
        assert_eq!((&told["taskId"], &told["_meta"]), (its, &related(its)));
        let params = json!({"_meta": related(&json!("1"))});
        let ask = json!({"id": 7, "method": "sampling/createMessage", "params": params});
        world.server_says(server, &ask, None);
        let asked = world.told[&ClientId(1)].last().expect("it").0.clone();
        assert_eq!(asked["params"]["_meta"], related(its));
        world.says(
            1,
            &json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"_meta": related(its)}}),
        );
        let (name, reply) = world.heard.last().expect("a reply").clone();
        let heard = (&*name, &reply["id"], &reply["result"]["_meta"]);
        assert_eq!(heard, (server, &json!(7), &related(&json!("1"))));
        let id = world.send(
            1,
            "tasks/list",
            match server {
                "a" => json!({}),
                _ => json!({"cursor": "t1:"}),
            },
        );
        answer(&mut world, json!({"result": {"tasks": [{"taskId": "1", "status": "working"}]}}));
        let page = world.answer_to(1, &id).expect("a page")["result"].take();
        assert_eq!(page["tasks"], json!([{"taskId": its, "status": "working"}]));
    }
    // The handle of a task whose server is gone stays its own.
    let changed = Backend { in_flight_max: 1, ..backend("b") };
    world.input(Input::Configured(vec![backend("a"), changed]));
    let new = create(&mut world, 1, "b__get", "1")["result"]["task"]["taskId"].clone();
    assert!(new.is_string() && new != "1" && new != handle, "{new}");
    let got = world.ask(1, "tasks/get", json!({"taskId": handle}))["result"].take();
    assert_eq!((&got["taskId"], &got["status"]), (&handle, &json!("completed")), "as was told");
}

#[test]
fn a_client_lists_its_own_tasks_server_by_server() {
    let mut world = world();
    assert_eq!(world.ask(1, "tasks/list", json!({}))["result"], json!({"tasks": []}));
    create(&mut world, 1, "a__get", "ta");
    create(&mut world, 2, "a__get", "other");
    create(&mut world, 1, "b__get", "tb");
    let mut cursor = Value::Null;
    let mut seen = Vec::new();
    for (server, its, next) in [("a", "ta", Some("p2")), ("a", "ta", None), ("b", "tb", None)] {
        let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
        let id = world.send(1, "tasks/list", params);
        let (name, _) = last(&world);
        assert_eq!(name, server);
        let tasks = json!([{"taskId": "other"}, {"taskId": its}, {"taskId": "unknown"}]);
        answer(&mut world, json!({"result": {"tasks": tasks, "nextCursor": next}}));
        let page = world.answer_to(1, &id).expect("a page")["result"].take();
        seen.push(page["tasks"].clone());
        cursor = page["nextCursor"].clone();
    }
    assert_eq!(
        seen,
        [json!([{"taskId": "ta"}]), json!([{"taskId": "ta"}]), json!([{"taskId": "tb"}])]
    );
    assert!(cursor.is_null(), "{cursor}");
    assert_eq!(world.ask(1, "tasks/list", json!({"cursor": "t7:x"}))["error"]["code"], -32602);
}

#[test]
fn a_task_whose_server_is_gone_has_failed() {
    let mut world = world();
    create(&mut world, 1, "a__get", "ta");
    let changed = Backend { in_flight_max: 1, ..backend("a") };
    world.input(Input::Configured(vec![changed, backend("b")]));
    let got = world.ask(1, "tasks/get", json!({"taskId": "ta"}))["result"].take();
    assert_eq!((&got["taskId"], &got["status"]), (&json!("ta"), &json!("failed")));
    let why = got["statusMessage"].as_str().expect("words");
    assert!(why.contains("`a`") && why.contains("configuration has changed"), "{why}");
    let got = world.ask(1, "tasks/result", json!({"taskId": "ta"}));
    assert_eq!((&got["result"]["isError"], text(&got)), (&json!(true), why));
    // The new server has none of its tasks.
    assert_eq!(world.ask(1, "tasks/list", json!({}))["result"], json!({"tasks": []}));
}

#[test]
fn a_status_that_was_told_outlives_the_server() {
    let mut world = world();
    create(&mut world, 1, "a__get", "ta");
    create(&mut world, 1, "a__get", "tb");
    let status = |task: &str| json!({"taskId": task, "status": "cancelled", "lastUpdatedAt": "2026-01-02T03:04:09Z"});
    world.send(1, "tasks/cancel", json!({"taskId": "ta"}));
    answer(&mut world, json!({"result": status("ta")}));
    let told = json!({"method": "notifications/tasks/status", "params": status("tb")});
    world.server_says("a", &told, None);
    let changed = Backend { in_flight_max: 1, ..backend("a") };
    world.input(Input::Configured(vec![changed, backend("b")]));
    for task in ["ta", "tb"] {
        let got = world.ask(1, "tasks/get", json!({"taskId": task}))["result"].take();
        assert_eq!((&got["status"], &got["taskId"]), (&json!("cancelled"), &json!(task)));
    }
}

#[test]
fn tasks_are_bounded() {
    let mut world = world();
    for number in 0..=GATEWAY_TASKS_MAX {
        create(&mut world, 1, "a__get", &format!("t{number}"));
    }
    assert_eq!(world.ask(1, "tasks/get", json!({"taskId": "t0"}))["error"]["code"], -32602);
    let last = world.send(1, "tasks/get", json!({"taskId": format!("t{GATEWAY_TASKS_MAX}")}));
    assert_eq!(world.answer_to(1, &last), None, "the server has it");
}

#[test]
fn what_servers_offer_is_put_together() {
    let mut world = world();
    let answer = world.legacy(3);
    let wanted = json!({"list": {}, "requests": {"tools": {"call": {}, "x": {}}}});
    assert_eq!(answer["result"]["capabilities"]["tasks"], wanted);
    // A client of the newer protocol is not offered what it cannot use.
    world.join(4, Access::default());
    let answer = world.ask(4, "server/discover", modern(json!({}), json!({})));
    assert!(answer["result"]["capabilities"]["tasks"].is_null(), "{answer}");
}

#[test]
fn tasks_of_the_newer_protocol_belong_to_token_and_name() {
    let extension = json!({"io.modelcontextprotocol/tasks": {}});
    let mut world = World::new(settings(), &[(backend("a"), &["get"]), (backend("b"), &["get"])]);
    world.modern.extend(["a", "b"]);
    world.offers = json!({"b": {"extensions": extension}});
    let token = |name: &str| Access { name: name.to_owned(), ..Access::default() };
    world.join(1, token("t"));
    let answer = world.ask(1, "server/discover", modern(json!({}), json!({})));
    assert_eq!(answer["result"]["capabilities"]["extensions"], extension);
    world.silent.extend(["tools/call", "tasks/get"]);
    let id = world.send(1, "tools/call", modern(json!({"name": "b__get"}), extension.clone()));
    self::answer(
        &mut world,
        json!({"result": {"resultType": "task", "taskId": "tb", "status": "working"}}),
    );
    assert_eq!(world.answer_to(1, &id).expect("a task")["result"]["taskId"], "tb");
    world.input(Input::Left { client: ClientId(1) });
    let mut get = |client: u64, access: Access, extensions: Value| {
        world.join(client, access);
        let id = world.send(client, "tasks/get", modern(json!({"taskId": "tb"}), extensions));
        world.answer_to(client, &id).map(|answer| answer["error"]["code"].clone())
    };
    assert_eq!(get(2, token("u"), extension.clone()), Some(json!(-32602)));
    assert_eq!(get(3, token("t"), json!({})), Some(json!(-32021)), "it does not know tasks");
    assert_eq!(get(4, token("t"), extension), None, "its server has it");
    assert_eq!(last(&world).0, "b");
}

#[test]
fn an_app_calls_the_tools_of_its_own_server() {
    let tools: &[&str] = &["get", "put"];
    let mut world = World::new(
        settings(),
        &[(backend("a"), tools), (backend("b"), &["get"]), (backend("c"), &["get", "only"])],
    );
    world.is_app = vec!["a", "b"];
    world.legacy(1);
    world.ask(1, "tools/list", json!({}));
    assert_eq!(text(&world.call(1, "put")), "a did put");
    assert_eq!(world.call(1, "only")["error"]["code"], -32602, "its server has no app");
    assert_eq!(world.call(1, "get")["error"]["code"], -32602, "two servers with apps have it");
    world.ask(1, "resources/read", json!({"uri": "ui://b/page"}));
    assert_eq!(text(&world.call(1, "get")), "b did get");
    // What a client may not use, its apps may not either.
    world.join(2, Access { tools: Some(vec!["b__*".to_owned()]), ..Access::default() });
    world.ask(2, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    assert_eq!(world.call(2, "put")["error"]["code"], -32602);
    assert_eq!(text(&world.call(2, "get")), "b did get");
}
