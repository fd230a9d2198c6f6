//! The bounds of lists, where they are reached.

use std::fmt::Write as _;

use serde_json::json;

use super::super::super::Input;
use super::super::super::access_patterns::Access;
use super::super::super::backend::{Backend, Transport};
use super::super::Settings;
use super::limits::{A_MOMENT, Alone};
use super::{World, backend, names, program, settings, text};
use crate::limits::{
    CATALOG_BYTES_MAX, CATALOG_ENTRIES_MAX, CATALOG_PAGES_MAX, GATEWAY_START_WAIT,
    READINGS_IN_A_ROW_MAX, READINGS_PAUSE,
};

/// Tools, as a server writes them.
fn listed(from: usize, to: usize) -> String {
    let mut tools = String::new();
    for n in from..to {
        write!(tools, r#"{}{{"name":"t{n}"}}"#, if n > from { "," } else { "" }).expect("text");
    }
    tools
}

#[test]
fn a_list_of_too_many_bytes_is_cut_off() {
    let mut alone = Alone::new();
    alone.begin();
    let long = "x".repeat(CATALOG_BYTES_MAX / 4);
    let tool = |n: usize| format!(r#"{{"name":"t{n}","description":"{long}"}}"#);
    let three: Vec<String> = (0..3).map(tool).collect();
    alone.answers(&format!(r#"{{"tools":[{}],"nextCursor":"more"}}"#, three.join(",")));
    assert_eq!(alone.log, [""; 0]);
    // It just does not fit, and nothing after it is asked for.
    alone.answers(&format!(r#"{{"tools":[{},{{"name":"small"}}],"nextCursor":"on"}}"#, tool(3)));
    assert!(alone.log[0].contains("or more than 16777216 bytes: the rest is left out"));
    let asked = alone.to_server.iter().filter(|line| line["method"] == "tools/list").count();
    assert_eq!(asked, 2);
    alone.says(1, "tools/list", json!({"cursor": "p2"}));
    assert_eq!(names(alone.to_client.last().expect("an answer")), ["a__t2"]);
}

#[test]
fn a_list_that_just_fits_is_whole() {
    let mut alone = Alone::new();
    alone.begin();
    for page in 1..CATALOG_PAGES_MAX {
        alone.answers(&format!(r#"{{"tools":[],"nextCursor":"{page}"}}"#));
    }
    alone.answers(&format!(r#"{{"tools":[{}]}}"#, listed(0, CATALOG_ENTRIES_MAX)));
    assert_eq!(alone.log, [""; 0]);
    alone.says(1, "tools/list", json!({"cursor": format!("p{}", CATALOG_ENTRIES_MAX - 1)}));
    assert_eq!(names(alone.to_client.last().expect("an answer")).len(), 1);
}

#[test]
fn a_server_that_says_all_the_time_that_its_lists_have_changed_is_asked_now_and_then() {
    let mut world = World::new(settings(), &[(backend("a"), &["get"])]);
    world.legacy(1);
    world.wait(READINGS_PAUSE);
    world.silent.push("tools/list");
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    let asked = |world: &World| {
        world.heard.iter().filter(|(_, line)| line["method"] == "tools/list").count()
    };
    world.server_says("a", &changed, None);
    for round in 1..100 {
        let last = world.heard.iter().rev().find(|(_, line)| line["method"] == "tools/list");
        let id = last.expect("it is asked").1["id"].clone();
        // While it is read, and once more before the answer is used.
        world.server_says("a", &changed, None);
        let tools = json!([{"name": format!("get{}", round.min(9))}]);
        let link = world.link("a");
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"tools": tools}});
        world.say(link, &answer, None);
        world.input(Input::Wakeup);
    }
    let most = READINGS_IN_A_ROW_MAX as usize;
    assert_eq!(asked(&world), most);
    // What was read counts, though there may be something else by now.
    let expected = format!("a__get{most}");
    assert_eq!(names(&world.ask(1, "tools/list", json!({}))), [&*expected]);
    world.wait(READINGS_PAUSE - A_MOMENT);
    assert_eq!(asked(&world), most);
    world.wait(A_MOMENT);
    assert_eq!(asked(&world), most + 1);
}

#[test]
fn what_is_denied_is_denied_before_there_is_a_list() {
    let guarded = Backend { deny: vec!["set".to_owned()], ..backend("a") };
    let mut world = World::new(settings(), &[(guarded, &["get", "set"]), (backend("b"), &["get"])]);
    world.silent.push("tools/list");
    world.join(1, Access::default());
    world.send(1, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    world.wait(GATEWAY_START_WAIT);
    // What it has is not known: it may have this…
    assert_eq!(text(&world.call(1, "a__get")), "a did get");
    // …and nobody may have that.
    assert_eq!(world.call(1, "a__set")["error"]["code"], -32602);
}

#[test]
fn a_program_that_comes_changes_our_own_tools() {
    let admin = Settings { admin_tools: true, ..settings() };
    let stdio =
        |name: &str| Backend { transport: Transport::Stdio(Box::new(program())), ..backend(name) };
    let mut world = World::new(admin, &[(stdio("a"), &["get"])]);
    world.legacy(1);
    world.tools.insert("b".to_owned(), vec![]);
    world.input(Input::Configured(vec![stdio("a"), stdio("b")]));
    let told = |world: &World| {
        let all = world.notifications(1);
        all.iter().filter(|method| *method == "notifications/tools/list_changed").count()
    };
    assert_eq!(told(&world), 1);
    world.input(Input::Configured(vec![stdio("a"), stdio("b")]));
    assert_eq!(told(&world), 1, "nothing has changed");
}

#[test]
fn rules_about_tools_do_not_mistake_a_servers_tool_for_ours() {
    let admin = Settings { admin_tools: true, ..settings() };
    let transport = Transport::Stdio(Box::new(program()));
    let deny = vec!["restart_server".to_owned()];
    let guarded = Backend { transport, deny, ..backend("a") };
    // The last one is the conversation's.
    let mut world = World::new(admin, &[(guarded, &["afresh_restart_server", "restart_server"])]);
    world.legacy(1);
    let list = world.ask(1, "tools/list", json!({}));
    assert!(names(&list).contains(&"a__afresh_restart_server"), "{list}");
}
