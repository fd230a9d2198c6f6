//! Spans of calls, from their beginning to each of their ends.

use std::time::Duration;

use serde_json::json;

use super::super::super::access_patterns::Access;
use super::super::super::backend::Backend;
use super::super::super::{ClientId, Input};
use super::super::Settings;
use super::{World, backend, settings};
use crate::gateway::spans::{Span, SpanOutcome, SpanTarget};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn traced(backends: &[(Backend, &[&'static str])]) -> World {
    let mut world = World::new(Settings { is_traced: true, ..settings() }, backends);
    world.legacy(1);
    // What the gateway asks for itself is nobody's call.
    assert_eq!(world.spans, []);
    world
}

fn one(world: &mut World) -> Span {
    assert_eq!(world.spans.len(), 1, "{:?}", world.spans);
    world.spans.remove(0)
}

#[test]
fn each_call_is_a_span() {
    let mut world = traced(&[(backend("a"), &["get"]), (backend("b"), &["get"])]);
    world.join(2, Access { name: "ci".to_owned(), ..Access::default() });
    world.call(2, "b__get");
    let span = one(&mut world);
    assert_eq!(span.target, SpanTarget::Tool("b__get".to_owned()));
    assert_eq!((span.method.as_str(), span.server.as_str()), ("tools/call", "b"));
    assert_eq!((span.client.as_str(), span.outcome), ("ci", SpanOutcome::Answered));
    world.ask(1, "resources/read", json!({"uri": "x://a/a"}));
    let span = one(&mut world);
    assert_eq!(span.target, SpanTarget::Resource("x://a/a".to_owned()));
    assert_eq!(span.version.as_deref(), Some("2025-06-18"));
    // Answered by the gateway itself, for all of the servers or for none.
    world.ask(1, "tools/list", json!({}));
    world.ask(1, "ping", json!({}));
    world.call(1, "c__get");
    assert_eq!(world.spans, []);
}

#[test]
fn a_call_has_the_clients_trace_and_the_server_gets_it_as_it_came() {
    let mut world = traced(&[(backend("a"), &["get"])]);
    world.silent.push("tools/call");
    let meta = |parent: &str| json!({"traceparent": parent, "tracestate": "k=v", "x": 1});
    let call = |world: &mut World, parent: &str| {
        world.send(1, "tools/call", json!({"name": "a__get", "_meta": meta(parent)}));
        let heard = world.heard.pop().expect("the call").1;
        assert_eq!(heard["params"]["_meta"], meta(parent));
        let id = heard["id"].clone();
        world.server_says("a", &json!({"jsonrpc": "2.0", "id": id, "result": {}}), None);
    };
    call(&mut world, PARENT);
    assert!(one(&mut world).parent.is_some());
    // What is no trace is passed on all the same, and what nobody keeps is not kept here.
    call(&mut world, "hello");
    assert_eq!(one(&mut world).parent, None);
    call(&mut world, &PARENT.replace("-01", "-00"));
    assert_eq!(world.spans, []);
}

#[test]
fn every_end_of_a_call_ends_its_span() {
    let slow = Backend { call_timeout: Some(Duration::from_secs(2)), ..backend("a") };
    let mut world = traced(&[(slow, &["get"])]);
    world.silent.push("tools/call");
    let answers = [
        (json!({"result": {"isError": true}}), SpanOutcome::ToolFailed),
        (
            json!({"error": {"code": -32602, "message": "no"}}),
            SpanOutcome::Error { code: Some(-32602), message: "no".to_owned() },
        ),
        (json!({"error": {}}), SpanOutcome::Error { code: None, message: String::new() }),
    ];
    for (mut answer, outcome) in answers {
        world.send(1, "tools/call", json!({"name": "a__get"}));
        world.now = world.now + Duration::from_millis(5);
        answer["id"] = world.heard.pop().expect("the call").1["id"].clone();
        world.server_says("a", &answer, None);
        let span = one(&mut world);
        assert_eq!(span.ended.since(span.began), Duration::from_millis(5));
        assert_eq!(span.outcome, outcome);
    }
    let id = world.send(1, "tools/call", json!({"name": "a__get"}));
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    world.says(1, &cancel);
    assert_eq!(one(&mut world).outcome, SpanOutcome::Cancelled);
    world.send(1, "tools/call", json!({"name": "a__get"}));
    world.wait(Duration::from_secs(2));
    assert_eq!(one(&mut world).outcome, SpanOutcome::Failed("timed_out"));
    world.send(1, "tools/call", json!({"name": "a__get"}));
    let link = world.link("a");
    world.input(Input::LinkLost { link, why: "it is gone".to_owned() });
    assert_eq!(one(&mut world).outcome, SpanOutcome::Failed("server_lost"));
    // It does not even go there.
    world.call(1, "a__get");
    assert_eq!(one(&mut world).outcome, SpanOutcome::Failed("server_down"));
}

#[test]
fn the_end_of_a_client_or_of_the_gateway_ends_spans_too() {
    let mut world = traced(&[(backend("a"), &["get"])]);
    world.silent.push("tools/call");
    world.legacy(2);
    world.send(2, "tools/call", json!({"name": "a__get"}));
    world.input(Input::Left { client: ClientId(2) });
    assert_eq!(one(&mut world).outcome, SpanOutcome::Cancelled);
    world.send(1, "tools/call", json!({"name": "a__get"}));
    let ended = world.hub.end_spans(world.now + Duration::from_secs(3));
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].ended.since(ended[0].began), Duration::from_secs(3));
    assert_eq!(ended[0].outcome, SpanOutcome::Cancelled);
    assert!(world.hub.end_spans(world.now).is_empty());
}

#[test]
fn nothing_is_said_where_calls_are_not_traced() {
    let mut world = World::new(settings(), &[(backend("a"), &["get"])]);
    world.legacy(1);
    world.call(1, "a__get");
    assert_eq!(world.spans, []);
}
