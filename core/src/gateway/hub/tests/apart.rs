//! What is no business of a client's does not reach it.

use serde_json::{Value, json};

use super::super::super::Input;
use super::super::super::access_patterns::Access;
use super::super::super::backend::{Backend, Prefix};
use super::{World, backend, down, names, settings, two};

/// A client that may use these servers and tools.
fn guest(world: &mut World, client: u64, servers: &[&str], tools: &[&str]) {
    let of = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        (!names.is_empty()).then_some(names)
    };
    let access = Access { name: String::new(), servers: of(servers), tools: of(tools) };
    world.join(client, access);
    world.ask(client, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
}

fn entry(level: &str) -> Value {
    json!({"method": "notifications/message", "params": {"level": level, "data": "x"}})
}

#[test]
fn the_log_of_a_server_is_for_those_who_may_use_it() {
    let mut world = two();
    guest(&mut world, 1, &[], &[]);
    guest(&mut world, 2, &["b"], &[]);
    world.server_says("a", &entry("error"), None);
    assert_eq!(world.notifications(1), ["notifications/message"]);
    assert_eq!(world.notifications(2), [""; 0]);
    // Nor anything else that it tells.
    world.server_says("a", &json!({"method": "notifications/of/its/own"}), None);
    assert_eq!((world.notifications(1).len(), world.notifications(2).len()), (2, 0));
}

#[test]
fn what_is_logged_while_a_call_runs_is_for_its_client() {
    let mut world = two();
    world.silent.push("tools/call");
    world.legacy(1);
    world.legacy(2);
    world.send(2, "tools/call", json!({"name": "a__get"}));
    world.server_says("a", &entry("error"), None);
    assert_eq!((world.notifications(1).len(), world.notifications(2).len()), (0, 1));
    world.server_says("b", &entry("error"), None);
    assert_eq!((world.notifications(1).len(), world.notifications(2).len()), (1, 2));
}

#[test]
fn who_asks_for_more_of_a_log_asks_for_itself() {
    let mut world = two();
    world.legacy(1);
    world.legacy(2);
    world.server_says("a", &entry("debug"), None);
    assert_eq!((world.notifications(1).len(), world.notifications(2).len()), (1, 1));
    world.ask(2, "logging/setLevel", json!({"level": "debug"}));
    world.server_says("a", &entry("debug"), None);
    assert_eq!((world.notifications(1).len(), world.notifications(2).len()), (1, 2));
    world.server_says("a", &entry("info"), None);
    assert_eq!((world.notifications(1).len(), world.notifications(2).len()), (2, 3));
}

#[test]
fn a_list_has_changed_only_for_those_who_see_it() {
    let mut world = two();
    guest(&mut world, 1, &[], &[]);
    guest(&mut world, 2, &["b"], &[]);
    guest(&mut world, 3, &[], &["*__get"]);
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    world.tools.insert("a".to_owned(), vec!["get", "new"]);
    world.server_says("a", &changed, None);
    assert_eq!(world.notifications(1), ["notifications/tools/list_changed"]);
    assert_eq!((world.notifications(2).len(), world.notifications(3).len()), (0, 0));
    world.tools.insert("a".to_owned(), vec!["new"]);
    world.server_says("a", &changed, None);
    assert!(world.notifications(2).is_empty());
    // Without a tool for it, there is nothing else for it either.
    let told = ["notifications/tools/list_changed", "notifications/resources/list_changed"];
    assert_eq!(world.notifications(3), told);
}

#[test]
fn who_loses_a_name_to_a_server_of_others_is_told() {
    let bare = |name: &str| Backend { prefix: Prefix::None, ..backend(name) };
    let mut world = World::new(settings(), &[(bare("a"), &["one"]), (bare("b"), &["get", "two"])]);
    guest(&mut world, 1, &["b"], &[]);
    guest(&mut world, 2, &[], &[]);
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    let told = ["notifications/tools/list_changed"; 2];
    for (round, tools, seen) in
        [(1, vec!["one", "get"], &["two"][..]), (2, vec!["one", "more"], &["get", "two"])]
    {
        world.tools.insert("a".to_owned(), tools);
        world.server_says("a", &changed, None);
        assert_eq!(world.notifications(1), told[..round]);
        assert_eq!(names(&world.ask(1, "tools/list", json!({}))), seen);
    }
}

#[test]
fn what_is_hidden_is_told_to_those_who_saw_it() {
    let hidden = Backend { hide_when_down: true, ..backend("a") };
    let mut world = World::new(settings(), &[(hidden, &["get"]), (backend("b"), &["get"])]);
    guest(&mut world, 1, &[], &["b__*"]);
    guest(&mut world, 2, &[], &["a__*"]);
    let link = world.link("a");
    world.input(Input::Serves { link, state: down() });
    assert!(world.notifications(1).is_empty(), "no tool of its is there");
    let told = ["notifications/tools/list_changed", "notifications/resources/list_changed"];
    assert_eq!(world.notifications(2), told);
}
