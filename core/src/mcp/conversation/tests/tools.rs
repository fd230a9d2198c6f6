//! Our own tools, and lists that change.

use serde_json::Value;

use super::*;
use crate::limits::RESTART_ANSWER_MAX;

impl Bench {
    /// A legacy session with tools of our own, whose client has seen the tool `a`.
    fn with_tools() -> Self {
        let mut bench = Self::new();
        bench.conversation = Conversation::new(&settings(WhichTools::All));
        bench.start(1);
        bench.client(INITIALIZE);
        bench.server(1, INITIALIZED_RESULT);
        bench.client(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        bench.client(LIST);
        bench.server(1, &tools(8, r#"[{"name":"a"}]"#));
        bench
    }

    /// Starts an instance, answers the replay, and returns what it is asked after that.
    fn revive_asked(&mut self, generation: u64) -> Vec<(String, String)> {
        let done = self.revive(generation);
        done.iter().filter_map(asked).collect()
    }
}

/// The id and the method of a request that went to a server.
fn asked(done: &Done) -> Option<(String, String)> {
    let Done::Server(_, line) = done else { return None };
    let value: Value = serde_json::from_str(line).expect("JSON");
    Some((value.get("id")?.to_string(), value["method"].as_str()?.to_owned()))
}

fn tools(id: impl std::fmt::Display, tools: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":{tools}}}}}"#)
}

fn call(id: u32, tool: &str, arguments: &str) -> String {
    request(id, "tools/call", &format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#))
}

fn heard(done: &[Done]) -> Vec<Value> {
    let lines = done.iter().filter_map(|done| match done {
        Done::Client(line) => Some(serde_json::from_str(line).expect("JSON")),
        _ => None,
    });
    lines.collect()
}

#[test]
fn our_tools_stand_at_the_end_of_the_last_page() {
    let mut bench = Bench::with_tools();
    bench.client(LIST);
    let first = r#"{"jsonrpc":"2.0","id":8,"result":{"tools":[{"name":"a"}],"nextCursor":"p2"}}"#;
    assert_eq!(bench.server(1, first), [Done::Client(first.to_owned())]);
    bench.client(&request(9, "tools/list", r#"{"cursor":"p2"}"#));
    let last = heard(&bench.server(1, &tools(9, r#"[{"name":"server_status"}]"#)));
    let names: Vec<&str> = last[0]["result"]["tools"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    // A tool of the server's own keeps its name.
    let ours = ["restart_server", "verify_server_restarted", "afresh_server_status", "server_logs"];
    assert_eq!(names, [&["server_status"], &ours[..]].concat());
    let done = bench.client(&call(10, "server_status", "{}"));
    assert!(matches!(&done[..], [Done::Server(1, _)]), "it is the server's: {done:?}");
    let done = bench.client(&call(11, "afresh_server_status", "{}"));
    assert!(matches!(
        &done[..],
        [Done::Other(Effect::AdminRequest { request: AdminRequest::Status, .. })]
    ));
}

#[test]
fn a_server_without_tools_shows_ours() {
    let mut bench = Bench::new();
    bench.conversation = Conversation::new(&settings(WhichTools::All));
    bench.start(1);
    bench.client(INITIALIZE);
    let done = bench.server(1, r#"{"jsonrpc":"2.0","id":0,"result":{"capabilities":{}}}"#);
    assert_eq!(heard(&done)[0]["result"]["capabilities"]["tools"]["listChanged"], true);
    bench.client(LIST);
    let done =
        bench.server(1, r#"{"jsonrpc":"2.0","id":8,"error":{"code":-32601,"message":"no"}}"#);
    assert_eq!(heard(&done)[0]["result"]["tools"].as_array().map(Vec::len), Some(4));
}

#[test]
fn a_call_of_ours_needs_no_server() {
    let mut bench = Bench::with_tools();
    bench.end(1);
    let done = bench.client(&call(20, "server_logs", r#"{"lines":5}"#));
    let asked = AdminRequest::Logs { lines: 5, filter: None };
    let id = Id::new(b"20");
    assert_eq!(done, [Done::Other(Effect::AdminRequest { id: id.clone(), request: asked })]);
    let said = ToolResult { text: "a line".to_owned(), data: None, is_error: false };
    let done = heard(&bench.handle(Input::AdminResult { id: id.clone(), result: said.clone() }));
    assert_eq!(done[0]["result"]["content"][0]["text"], "a line");
    // Once is enough; and one that was cancelled gets none.
    assert_eq!(bench.handle(Input::AdminResult { id, result: said.clone() }), []);
    bench.client(&call(21, "server_status", "{}"));
    bench.client(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":21}}"#,
    );
    assert_eq!(bench.handle(Input::AdminResult { id: Id::new(b"21"), result: said }), []);
    let done = heard(&bench.client(&call(22, "verify_server_restarted", "{}")));
    assert_eq!(done[0]["result"]["isError"], true);
}

#[test]
fn a_restart_is_answered_when_the_new_instance_serves_and_its_tools_are_known() {
    // R1, R7
    let mut bench = Bench::with_tools();
    let done = bench.client(&call(30, "restart_server", r#"{"reason":"new parser"}"#));
    assert!(
        matches!(&done[..], [Done::Other(Effect::AdminRequest { request: AdminRequest::Restart { reason }, .. })]
            if reason == "new parser")
    );
    bench.now = bench.now + Duration::from_millis(250);
    let asked = bench.revive_asked(2);
    let (id, _) = asked.iter().find(|(_, method)| method == "tools/list").expect("it is asked");
    let done = bench.server(2, &tools(id, r#"[{"name":"a","x":1},{"name":"b"}]"#));
    let heard = heard(&done);
    assert_eq!(heard[0]["method"], "notifications/tools/list_changed");
    let result = &heard[1]["result"];
    assert_eq!(heard[1]["id"], 30);
    assert_eq!(result["isError"], false);
    assert_eq!(result["structuredContent"]["seconds"], 0.25);
    assert_eq!(result["structuredContent"]["new_pid"], 1_000);
    assert_eq!(result["structuredContent"]["tools"]["added"][0], "b");
    assert_eq!(result["structuredContent"]["tools"]["changed"][0], "a");
    assert_eq!(
        bench.conversation.report().last_changes.map(|c| c.added),
        Some(vec!["b".to_owned()])
    );
}

#[test]
fn a_restart_that_fails_is_answered_with_why() {
    let mut bench = Bench::with_tools();
    bench.client(&call(30, "restart_server", "{}"));
    let why = "Traceback: no module".to_owned();
    let done = heard(&bench.handle(Input::RestartFailed(why)));
    assert_eq!(done[0]["result"]["isError"], true);
    assert!(done[0]["result"]["content"][0]["text"].as_str().is_some_and(|t| t.contains("Trace")));
    // And one that never ends is answered too.
    bench.client(&call(31, "restart_server", "{}"));
    bench.now = bench.now + RESTART_ANSWER_MAX;
    let done = heard(&bench.handle(Input::Wakeup));
    assert_eq!(done[0]["id"], 31);
    assert_eq!(bench.conversation.owed(), 0);
}

#[test]
fn a_restart_whose_instance_is_superseded_waits_for_the_next_one() {
    let mut bench = Bench::with_tools();
    bench.client(&call(30, "restart_server", "{}"));
    bench.start(2);
    bench.client(&call(31, "restart_server", "{}"));
    let end = |cause| Input::Ended {
        generation: Generation(2),
        read: None,
        how: "exited with code 0".to_owned(),
        cause,
    };
    assert!(heard(&bench.handle(end(EndCause::Superseded))).is_empty());
    assert_eq!(bench.conversation.owed(), 2);
    // One that fails by itself fails only those who wait for it.
    bench.start(3);
    bench.client(&call(32, "restart_server", "{}"));
    let failed = Input::Ended {
        generation: Generation(3),
        read: None,
        how: "exited with code 1".to_owned(),
        cause: EndCause::Other,
    };
    let done = heard(&bench.handle(failed));
    let ids: Vec<_> = done.iter().map(|answer| answer["id"].as_u64()).collect();
    assert_eq!(ids, [Some(30), Some(31)]);
    assert_eq!(bench.conversation.owed(), 1);
}

#[test]
fn what_has_waited_long_enough_hears_how_the_last_instance_ended() {
    let mut bench = Bench::with_tools();
    let how = "exited with code 1; the last lines of its stderr:\nNameError".to_owned();
    let generation = Generation(1);
    bench.handle(Input::Ended { generation, read: None, how, cause: EndCause::Other });
    assert!(heard(&bench.client(&call(40, "a", "{}"))).is_empty());
    assert_eq!(bench.conversation.next_wakeup(), Some(bench.now + PATIENCE));
    bench.now = bench.now + PATIENCE;
    let done = heard(&bench.handle(Input::Wakeup));
    assert_eq!((&done[0]["id"], &done[0]["result"]["isError"]), (&40.into(), &true.into()));
    let text = done[0]["result"]["content"][0]["text"].as_str().expect("text");
    assert!(text.contains("nothing was done") && text.contains("NameError"), "{text}");
    assert!(text.contains("code 1") && bench.conversation.owed() == 0, "{text}");
}

#[test]
fn a_list_that_is_the_same_is_not_told() {
    let mut bench = Bench::with_tools();
    bench.end(1);
    let asked = bench.revive_asked(2);
    let (id, method) = asked.last().expect("it is asked");
    assert_eq!(method, "tools/list");
    // What the server says of changes meanwhile is looked at, not passed on.
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    for _ in 0..1_000 {
        assert_eq!(bench.server(2, changed), []);
    }
    // The answer to the older question; then it is asked once more.
    let again = bench.server(2, &tools(id, "[]"));
    let [Done::Server(2, line)] = &again[..] else { panic!("{again:?}") };
    let again = asked_id(line);
    assert_eq!(bench.server(2, &tools(again, r#"[{"name":"a"}]"#)), []);
    assert_eq!(bench.server(2, changed), [Done::Client(changed.to_owned())]);
}

fn asked_id(line: &str) -> String {
    serde_json::from_str::<Value>(line).expect("JSON")["id"].to_string()
}

#[test]
fn listeners_of_the_modern_era_are_told_by_their_ids() {
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    let mut bench = Bench::new();
    bench.start(1);
    let listen = format!(
        r#"{{{meta},"notifications":{{"toolsListChanged":true,"resourceSubscriptions":["u:1"]}}}}"#
    );
    bench.client(&request(5, "subscriptions/listen", &listen));
    let ack = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":5},"notifications":{}}}"#;
    bench.server(1, ack);
    bench.client(&request(6, "tools/list", &format!("{{{meta}}}")));
    bench.server(1, &tools(6, r#"[{"name":"a"}]"#));
    bench.end(1);
    let done = bench.revive(2);
    let updates = heard(&done);
    assert_eq!(updates[0]["params"]["uri"], "u:1");
    let key = "io.modelcontextprotocol/subscriptionId";
    assert_eq!(updates[0]["params"]["_meta"][key], 5);
    let (id, _) = done.iter().filter_map(asked).find(|(_, m)| m == "tools/list").expect("asked");
    let done = heard(&bench.server(2, &tools(id, "[]")));
    assert_eq!(done[0]["method"], "notifications/tools/list_changed");
    assert_eq!(done[0]["params"]["_meta"][key], 5);
    assert_eq!(bench.server(2, ack), [], "the client has it already");
}

#[test]
fn what_a_dead_instance_never_read_is_for_the_next_one() {
    let mut bench = Bench::legacy();
    bench.client(CALL);
    bench.client(&call(40, "t", "{}"));
    // `initialize`, `initialized` and the first call were read, the second call was not.
    let how = "was ended by signal 9".to_owned();
    let done = bench.handle(Input::Ended {
        generation: Generation(1),
        read: Some(3),
        how,
        cause: EndCause::Other,
    });
    let answers = heard(&done);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["id"], 7);
    assert!(answers[0].to_string().contains("signal 9"), "{answers:?}");
    let done = bench.revive(2);
    assert!(done.contains(&Done::Server(2, call(40, "t", "{}"))), "{done:?}");
}

#[test]
fn a_list_that_cannot_be_had_is_for_the_client_to_look_at() {
    let mut bench = Bench::with_tools();
    bench.client(&call(30, "restart_server", "{}"));
    let asked = bench.revive_asked(2);
    let (id, _) = asked.iter().find(|(_, method)| method == "tools/list").expect("it is asked");
    let refused =
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32603,"message":"no"}}}}"#);
    let done = heard(&bench.server(2, &refused));
    assert_eq!(done[0]["method"], "notifications/tools/list_changed");
    let text = done[1]["result"]["content"][0]["text"].as_str().expect("text");
    assert!(text.contains("could not be listed") && !text.contains("the same"), "{text}");
}

/// The result of the next call, by the instance that serves.
fn result_of_call(bench: &mut Bench, generation: u64, tool: &str) -> Value {
    bench.client(&call(90, tool, "{}"));
    let result = r#"{"jsonrpc":"2.0","id":90,"result":{"content":[{"type":"text","text":"x"}]}}"#;
    heard(&bench.server(generation, result))[0]["result"].clone()
}

#[test]
fn the_first_result_after_a_crash_says_so_and_none_after_a_swap() {
    let mut bench = Bench::with_tools();
    assert_eq!(result_of_call(&mut bench, 1, "a")["_meta"], Value::Null);
    bench.end(1);
    bench.revive(2);
    let told = result_of_call(&mut bench, 2, "a");
    assert_eq!(told["_meta"]["afresh/restarted"]["server"], "server", "{told}");
    assert!(told["content"][1]["text"].as_str().is_some_and(|text| text.contains("is lost")));
    assert_eq!(result_of_call(&mut bench, 2, "a")["_meta"], Value::Null);
    // A tool that is not in the list may promise data.
    bench.end(2);
    bench.revive(3);
    let told = result_of_call(&mut bench, 3, "unlisted");
    assert!(told["_meta"].is_object() && told["content"].as_array().map(Vec::len) == Some(1));
    // A swap: the old one drains and ends.
    bench.revive(4);
    bench.end(3);
    assert_eq!(result_of_call(&mut bench, 4, "a")["_meta"], Value::Null);
}

#[test]
fn a_restart_that_nobody_waits_for_and_that_failed_is_told_once() {
    let mut bench = Bench::with_tools();
    bench.start(2);
    let (generation, cause) = (Generation(2), EndCause::Other);
    let how = "exited with code 1; the last lines of its stderr:\nNameError".to_owned();
    bench.handle(Input::Ended { generation, read: None, how, cause });
    let report = bench.conversation.report().failed_restart;
    assert!(report.is_some_and(|why| why.ends_with("NameError")));
    let told = result_of_call(&mut bench, 1, "a");
    assert!(told["content"][1]["text"].as_str().is_some_and(|text| text.ends_with("NameError")));
    assert_eq!(result_of_call(&mut bench, 1, "a")["_meta"], Value::Null);
    assert!(bench.conversation.report().failed_restart.is_some());
    bench.revive(3);
    assert_eq!(bench.conversation.report().failed_restart, None);
}
