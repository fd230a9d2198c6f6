//! Servers that are still starting, and what they had in the last run.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::super::Input;
use super::super::super::backend::{Backend, Expose, Pin};
use super::super::super::pins::{Section, Sections};
use super::super::super::stored_catalogs::{CatalogReport, StoredLists};
use super::super::Settings;
use super::{World, backend, down, names, settings, text};
use crate::gateway::{ClientId, LinkId};
use crate::limits::GATEWAY_START_WAIT;

fn get() -> Value {
    json!({"name": "get", "description": "does get"})
}

fn stored(tools: &[Value]) -> StoredLists {
    StoredLists::from([(Section::Tools, tools.iter().map(Value::to_string).collect())])
}

/// A client has come to `a`, which does not answer yet, and to `b`; both had `last` in the last run.
fn starting(a: Backend, last: &[Value], pins: Sections) -> World {
    starting_with(settings(), a, last, pins)
}

fn starting_with(settings: Settings, a: Backend, last: &[Value], pins: Sections) -> World {
    let mut world = World::new(settings, &[]);
    for name in ["a", "b"] {
        world.tools.insert(name.to_owned(), vec!["get"]);
    }
    world.input(Input::Pinned(BTreeMap::from([(a.pin_key(), pins)])));
    let lists = ["a", "b"].map(|name| (name.to_owned(), stored(last)));
    world.input(Input::LastLists(lists.into()));
    world.input(Input::Configured(vec![a, backend("b")]));
    world.silent.push("initialize");
    world.legacy_begins();
    world.silent.clear();
    let asked = world.heard.iter().position(|(name, _)| name == "b").expect("asked");
    world.answer_handshake(asked);
    world.wait(GATEWAY_START_WAIT);
    world
}

impl World {
    fn legacy_begins(&mut self) {
        self.join(1, Default::default());
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
        self.send(1, "initialize", params);
    }

    /// Answers the handshake of ours that a server has heard and not answered.
    fn answer_handshake(&mut self, heard: usize) {
        let (name, asked) = self.heard.remove(heard);
        let link = self.link(&name);
        let result = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}});
        self.say(link, &json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}), None);
        self.input(Input::Wakeup);
    }

    fn list_now(&mut self) -> Vec<String> {
        let list = self.ask(1, "tools/list", json!({}));
        names(&list).into_iter().map(str::to_owned).collect()
    }

    fn changes(&self) -> usize {
        let changed = "notifications/tools/list_changed";
        self.notifications(1).iter().filter(|its| *its == changed).count()
    }

    fn fails(&mut self) {
        let link: LinkId = self.link("a");
        self.input(Input::LinkLost { link, why: "it is gone".to_owned() });
    }
}

#[test]
fn a_server_that_is_starting_has_the_tools_of_the_last_run_and_calls_wait_for_it() {
    let mut world = starting(backend("a"), &[get()], Sections::new());
    assert_eq!(world.list_now(), ["a__get", "b__get"]);
    let call = world.send(1, "tools/call", json!({"name": "a__get", "arguments": {}}));
    assert_eq!(world.answer_to(1, &call), None, "it waits for the server");
    let before = world.changes();
    world.answer_handshake(0);
    assert_eq!(text(&world.answer_to(1, &call).expect("an answer")), "a did get");
    assert_eq!(world.changes(), before, "the list is the same");
    assert_eq!(world.stored, [], "and is stored already");
}

#[test]
fn a_search_finds_tools_of_the_last_run_and_names_the_servers_that_are_starting() {
    let search = Settings { expose: Expose::Search, ..settings() };
    let mut world = starting_with(search, backend("a"), &[get()], Sections::new());
    let query = json!({"name": "find_tools", "arguments": {"query": "what does it get"}});
    let found = world.ask(1, "tools/call", query.clone());
    assert!(text(&found).contains("\"a__get\""), "{found}");
    assert!(text(&found).ends_with("may be missing here: a"), "{found}");
    world.answer_handshake(0);
    let found = world.ask(1, "tools/call", query);
    assert!(text(&found).contains("\"a__get\""), "{found}");
    assert!(!text(&found).contains("still starting"), "{found}");
}

#[test]
fn a_client_is_told_of_a_list_that_is_another_than_in_the_last_run() {
    let old = json!({"name": "old"});
    let mut world = starting(backend("a"), &[get(), old], Sections::new());
    assert_eq!(world.list_now(), ["a__get", "a__old", "b__get"]);
    let before = world.changes();
    world.answer_handshake(0);
    assert_eq!(world.changes(), before + 1);
    assert_eq!(world.list_now(), ["a__get", "b__get"]);
    let report = |server: &str| CatalogReport {
        server: server.to_owned(),
        section: Section::Tools,
        entries: vec![get().to_string()],
    };
    assert_eq!(world.stored, [report("b"), report("a")], "each under its own names");
}

#[test]
fn a_server_that_cannot_be_used_has_no_tools_of_the_last_run() {
    let mut world = starting(backend("a"), &[get()], Sections::new());
    assert_eq!(world.list_now(), ["a__get", "b__get"]);
    // It has crashed, and is started again.
    let link = world.link("a");
    world.input(Input::Serves { link, state: down() });
    assert_eq!(world.list_now(), ["a__get", "b__get"]);
    let before = world.changes();
    world.fails();
    assert_eq!((world.list_now(), world.changes()), (vec!["b__get".to_owned()], before + 1));
    assert_eq!(world.stored, [], "the next run may be better");
}

#[test]
fn a_list_that_a_server_does_not_have_any_more_is_forgotten() {
    let mut world = World::new(settings(), &[]);
    world.tools.insert("a".to_owned(), vec!["get"]);
    let prompts = vec![json!({"name": "ask"}).to_string()];
    let mut last = stored(&[get()]);
    last.insert(Section::Prompts, prompts);
    world.input(Input::LastLists(BTreeMap::from([("a".to_owned(), last)])));
    world.input(Input::Configured(vec![backend("a")]));
    world.silent.push("initialize");
    world.legacy_begins();
    world.silent.clear();
    world.wait(GATEWAY_START_WAIT);
    let prompts = |world: &mut World| world.ask(1, "prompts/list", json!({}))["result"].clone();
    assert_eq!(prompts(&mut world)["prompts"][0]["name"], "a__ask");
    world.answer_handshake(0);
    assert_eq!(prompts(&mut world)["prompts"], json!([]));
    let told = &world.told[&ClientId(1)];
    let is_it = |line: &Value| line["method"] == "notifications/prompts/list_changed";
    assert!(told.iter().any(|(line, _)| is_it(line)), "{told:?}");
    let reported: Vec<_> =
        world.stored.iter().map(|its| (its.section, its.entries.len())).collect();
    assert_eq!(reported, [(Section::Prompts, 0)]);
}

#[test]
fn nothing_of_the_last_run_is_shown_that_the_rules_or_a_pin_withhold() {
    let last = [get(), json!({"name": "set"}), json!({"name": "restart_server"})];
    let of_a = |a: Backend, pins: Sections| {
        let mut world = starting(a, &last, pins);
        let mut list = world.list_now();
        list.retain(|name| name.starts_with("a__"));
        list
    };
    let denying = Backend { deny: vec!["set".to_owned()], ..backend("a") };
    assert!(!of_a(denying, Sections::new()).contains(&"a__set".to_owned()));
    let blocking = || Backend { pin: Pin::Block, ..backend("a") };
    assert_eq!(of_a(blocking(), Sections::new()), [""; 0], "it was never used with a pin");
    let items = [("get", r#"{"description":"does get"}"#), ("set", r#"{"description":"old"}"#)];
    let items = items.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    assert_eq!(of_a(blocking(), Sections::from([(Section::Tools, items)])), ["a__get"]);
}
