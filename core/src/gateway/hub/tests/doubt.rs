//! Messages that say one thing to us and another one to who reads them after us.

use serde_json::{Value, json};

use super::super::super::access_patterns::Access;
use super::super::super::backend::Backend;
use super::super::super::{ClientId, Effect, Input};
use super::super::Settings;
use super::{World, backend, settings, text};
use crate::limits::MESSAGE_DEPTH_MAX;

impl World {
    /// A client says these bytes.
    fn writes(&mut self, client: u64, line: &str) {
        self.input(Input::Client { client: ClientId(client), line: line.as_bytes().to_vec() });
    }

    /// A server does.
    fn server_writes(&mut self, name: &str, line: &str) {
        let link = self.link(name);
        self.input(Input::Link { link, line: line.as_bytes().to_vec(), about: None });
    }

    fn calls(&self) -> Vec<Value> {
        let all = self.heard.iter().map(|(_, line)| line);
        all.filter(|line| line["method"] == "tools/call").cloned().collect()
    }
}

#[test]
fn what_a_client_may_not_call_is_not_called_by_another_spelling() {
    let guarded = Backend { deny: vec!["set".to_owned()], ..backend("a") };
    let mut world = World::new(settings(), &[(guarded, &["get", "set"])]);
    world.silent.push("tools/call");
    world.join(1, Access { tools: Some(vec!["a__get".to_owned()]), ..Access::default() });
    world.ask(1, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    for line in [
        r#"{"id":"x","method":"tools/call","params":{"name":"a__get","n\u0061me":"set"}}"#,
        r#"{"id":"x","method":"tools/call","params":{"name":"set","name":"a__get"}}"#,
        r#"{"id":"x","method":"tools/call","params":{"name":"a__get","Name":"set"}}"#,
        r#"{"id":"x","method":"tools/call","params":{"name":"a__get"},"p\u0061rams":{"name":"set"}}"#,
        r#"{"id":"x","method":"resources/read","params":{"uri":"x://a/a"},"m\u0065thod":"tools/call"}"#,
        r#"{"\u0069d":"x","m\u0065thod":"tools/call","params":{"name":"a__set"}}"#,
    ] {
        world.told.clear();
        world.writes(1, line);
        let answer = world.answer_to(1, &json!("x")).expect("it is answered");
        assert_eq!(answer["error"]["code"], -32600, "{line}");
    }
    assert_eq!(world.calls().len(), 0);
    // What is in the arguments is the server's business.
    world.writes(1, r#"{"id":"y","method":"tools/call","params":{"name":"a__get","arguments":{"n\u0061me":"set"}}}"#);
    assert_eq!(world.calls().len(), 1);
}

#[test]
fn nobody_answers_or_asks_in_the_name_of_another() {
    let mut world = World::new(settings(), &[(backend("a"), &["get"]), (backend("b"), &["get"])]);
    world.silent.push("tools/call");
    world.legacy(1);
    world.legacy(2);
    // A client that gives the server the id of another's call.
    let other = world.send(2, "tools/call", json!({"name": "a__get"}));
    let theirs = world.calls()[0]["id"].clone();
    let line = format!(
        r#"{{"id":"x","method":"tools/call","params":{{"name":"a__get"}},"i\u0064":{theirs}}}"#
    );
    world.writes(1, &line);
    let token = format!(r#"{{"progressToken":1,"progressT\u006fken":{theirs}}}"#);
    world.writes(
        1,
        &format!(
            r#"{{"id":"z","method":"tools/call","params":{{"name":"a__get","_meta":{token}}}}}"#
        ),
    );
    assert_eq!(world.calls().len(), 1);
    // A server that answers a call to another server.
    let mine = world.send(2, "tools/call", json!({"name": "b__get"}));
    let ours = world.calls()[1]["id"].clone();
    world.server_writes("b", &format!(r#"{{"id":{ours},"result":{{}},"i\u0064":{other}}}"#));
    assert_eq!(world.answer_to(2, &other), None);
    let answer = world.answer_to(2, &mine).expect("it is answered");
    assert_eq!(answer["error"]["data"]["reason"], "bad_reply", "{answer}");
    // Or that reports on it, or asks by an id of another's.
    let before = world.told[&ClientId(2)].len();
    let progress = r#"{"method":"notifications/progress","params":{"progressToken":1,"progress\u0054oken":2}}"#;
    world.server_writes("b", progress);
    world.server_writes("b", r#"{"id":1,"method":"roots/list","i\u0064":"s1"}"#);
    assert_eq!(world.told[&ClientId(2)].len(), before);
    let refused = world.heard.last().expect("the server is told").clone();
    assert_eq!((refused.0.as_str(), &refused.1["error"]["code"]), ("b", &json!(-32600)));
    // And a client that answers another question than the one it was asked.
    let question = json!({"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage"});
    world.server_says("a", &question, Some(&theirs.to_string()));
    let (asked, _) = world.told[&ClientId(2)].last().cloned().expect("asked");
    world.writes(2, &format!(r#"{{"id":{},"result":{{}},"i\u0064":8}}"#, asked["id"]));
    let answer = world.heard.last().expect("the server is told").clone();
    assert_eq!((&answer.1["id"], answer.1["error"].is_object()), (&json!(7), true), "{answer:?}");
    // The first call is still open, and is answered by whom it was given to.
    let link = world.link("a");
    let result = json!({"content": [{"type": "text", "text": "done"}]});
    world.say(link, &json!({"jsonrpc": "2.0", "id": theirs, "result": result}), None);
    world.input(Input::Wakeup);
    assert_eq!(text(&world.answer_to(2, &other).expect("it is answered")), "done");
}

#[test]
fn what_is_nested_too_deeply_is_answered_and_not_passed_on() {
    let mut world = World::new(settings(), &[(backend("a"), &["get"])]);
    world.silent.push("tools/call");
    world.legacy(1);
    let call = |id: &str, depth: usize| {
        let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        format!(
            r#"{{"id":"{id}","method":"tools/call","params":{{"name":"a__get","arguments":{{"x":{deep}}}}}}}"#
        )
    };
    // The message itself has three.
    world.writes(1, &call("fits", MESSAGE_DEPTH_MAX - 3));
    assert_eq!(world.calls().len(), 1);
    world.writes(1, &call("deep", MESSAGE_DEPTH_MAX - 2));
    world.writes(1, &format!("[{}]", call("in a batch", 5_000)));
    assert_eq!(world.calls().len(), 1);
    for id in ["deep", "in a batch"] {
        let answer = world.answer_to(1, &json!(id)).expect("it is answered");
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
    }
    // A server whose request is answered so gets an error in its place.
    world.server_writes("a", r#"{"jsonrpc":"2.0","id":"r","method":"roots/list"}"#);
    let asked = world.told[&ClientId(1)].last().expect("it is asked").0["id"].clone();
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    world.writes(1, &format!(r#"{{"jsonrpc":"2.0","id":{asked},"result":{deep}}}"#));
    let (_, heard) = world.heard.last().expect("it is answered");
    assert_eq!((&heard["id"], &heard["error"]["code"]), (&json!("r"), &json!(-32603)));
}

#[test]
fn what_is_no_json_is_not_passed_on_to_clients_over_http() {
    for is_single in [false, true] {
        let settings = Settings { is_single, ..settings() };
        let mut hub = World::new(settings, &[(backend("a"), &["get"])]);
        hub.silent.push("tools/call");
        hub.legacy(1);
        let id = hub.send(1, "tools/call", json!({"name": "a__get"}));
        let number = hub.calls()[0]["id"].clone();
        let link = hub.link("a");
        let mut told = Vec::new();
        for line in [
            r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"n":01}}"#.to_owned(),
            format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{"n":01}}}}"#),
        ] {
            let input = Input::Link { link, line: line.into_bytes(), about: None };
            told.extend(hub.hub.handle(hub.now, input));
        }
        let lines: Vec<String> = told
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::ToClient { line, .. } => Some(String::from_utf8(line).unwrap()),
                _ => None,
            })
            .collect();
        match is_single {
            // On stdio bytes are forwarded as they came.
            true => assert_eq!(lines.iter().filter(|line| line.contains("01")).count(), 2),
            false => {
                let [error] = &lines[..] else { panic!("{lines:?}") };
                let error: Value = serde_json::from_str(error).unwrap();
                assert_eq!(
                    (&error["id"], &error["error"]["data"]["reason"]),
                    (&id, &json!("bad_reply"))
                );
            }
        }
    }
}
