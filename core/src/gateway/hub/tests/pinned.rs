//! Servers whose tools change after they were pinned.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::super::access_patterns::Access;
use super::super::super::backend::{Backend, Pin, Transport};
use super::super::super::pins::{PinChange, PinKey, Section, Sections};
use super::super::super::{Input, PinReport};
use super::super::Settings;
use super::{World, backend, names, program, settings, text};
use crate::limits::{GATEWAY_HELLO_WAIT, PIN_LIST_BYTES_MAX};

fn pinned(pin: Pin) -> Backend {
    Backend { pin, ..backend("a") }
}

fn world(pin: Pin, tools: &[&'static str]) -> World {
    let mut world = World::new(settings(), &[(pinned(pin), tools)]);
    world.legacy(1);
    world
}

impl World {
    fn change_tools(&mut self, tools: &[&'static str]) {
        self.tools.insert("a".to_owned(), tools.to_vec());
        let line = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        self.server_says("a", &line, None);
    }

    fn tool_names(&mut self) -> Vec<String> {
        let list = self.ask(1, "tools/list", json!({}));
        names(&list).into_iter().map(str::to_owned).collect()
    }

    /// What a gateway stores of all that was reported, after the user has accepted it.
    fn accepted(&self) -> BTreeMap<PinKey, Sections> {
        let mut stored: BTreeMap<PinKey, Sections> = BTreeMap::new();
        for PinReport { update, .. } in &self.pins {
            let sections = stored.entry(update.key.clone()).or_default();
            match &update.change {
                Some((section, PinChange::First(items) | PinChange::Differs(items))) => {
                    sections.insert(*section, items.clone());
                }
                Some((_, PinChange::Same)) | None => {}
            }
        }
        stored
    }

    fn reported(&self) -> Vec<Vec<String>> {
        let changed = self.pins.iter().map(|report| report.changed.clone());
        changed.filter(|changed| !changed.is_empty()).collect()
    }
}

#[test]
fn the_first_use_pins_and_a_change_is_reported_once() {
    let mut world = world(Pin::Warn, &["get", "set"]);
    let sections: Vec<Section> = world
        .pins
        .iter()
        .filter_map(|report| match &report.update.change {
            Some((section, PinChange::First(_))) => Some(*section),
            _ => None,
        })
        .collect();
    let all = [Section::Instructions, Section::Prompts, Section::Tools, Section::Templates];
    assert_eq!(sections, all, "those that it does not have are known to be empty");
    world.change_tools(&["get=now does harm", "set", "new"]);
    assert_eq!(world.reported(), [["get", "new"]]);
    assert_eq!(world.tool_names(), ["a__get", "a__set", "a__new"], "it is a warning");
    world.change_tools(&["get=now does harm", "set", "new"]);
    world.change_tools(&["get=now does harm", "new"]);
    assert_eq!(world.reported().len(), 2, "the same is not told again");
    world.change_tools(&["get", "set"]);
    assert!(matches!(
        world.pins.last().and_then(|report| report.update.change.as_ref()),
        Some((Section::Tools, PinChange::Same))
    ));
    // What is gone may come back as it was, and not otherwise.
    world.change_tools(&["get"]);
    let told = world.reported().len();
    world.change_tools(&["get", "set"]);
    assert_eq!(world.reported().len(), told);
    world.change_tools(&["get", "set=otherwise"]);
    assert_eq!(world.reported().last().map(Vec::as_slice), Some(&["set".to_owned()][..]));
}

#[test]
fn without_a_pin_nothing_is_compared() {
    let mut world = world(Pin::Off, &["get"]);
    world.change_tools(&["get=other"]);
    assert_eq!(world.pins, []);
    assert_eq!(world.tool_names(), ["a__get"]);
}

#[test]
fn what_has_changed_is_withheld_until_it_is_accepted() {
    let mut world = world(Pin::Block, &["get", "set"]);
    assert_eq!(world.tool_names(), ["a__get", "a__set"]);
    world.change_tools(&["get=now does harm", "set", "new"]);
    assert_eq!(world.tool_names(), ["a__set"]);
    assert_eq!(world.notifications(1), ["notifications/tools/list_changed"]);
    assert_eq!(text(&world.call(1, "a__set")), "a did set");
    for name in ["a__get", "a__new"] {
        let refused = world.call(1, name);
        let why = refused["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(why.contains("withheld") && why.contains("`afresh trust a`"), "{refused}");
    }
    assert!(world.call(1, "a__none").to_string().contains("no server has the tool"));
    // A client that may not use a tool is not told that there is one.
    world.join(2, Access { tools: Some(vec!["a__set".to_owned()]), ..Access::default() });
    world.ask(2, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    assert!(!world.call(2, "a__get").to_string().contains("withheld"));
    // The stored pins are as they were.
    let before = world.accepted();
    world.input(Input::Pinned(BTreeMap::new()));
    assert_eq!(world.tool_names(), ["a__set"]);
    world.input(Input::Pinned(before));
    assert_eq!(world.tool_names(), ["a__get", "a__set", "a__new"]);
    assert_eq!(world.notifications(1).len(), 2);
    assert_eq!(text(&world.call(1, "a__get")), "a did get");
    assert!(world.log.iter().any(|line| line.contains("`a` are accepted")), "{:?}", world.log);
}

#[test]
fn stored_pins_count_from_the_first_list_on() {
    let first = world(Pin::Block, &["get", "set"]).accepted();
    let mut world = World::new(settings(), &[]);
    world.tools.insert("a".to_owned(), vec!["get", "set=other"]);
    world.input(Input::Pinned(first.clone()));
    world.silent.push("tools/list");
    world.input(Input::Configured(vec![pinned(Pin::Block)]));
    world.join(1, Access::default());
    world.send(1, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    world.wait(GATEWAY_HELLO_WAIT);
    // Before its list is there, what is pinned can be called, and nothing else.
    assert_eq!(text(&world.call(1, "a__get")), "a did get");
    assert_eq!(world.call(1, "a__new")["error"]["code"], -32602);
    let mut world = World::new(settings(), &[]);
    world.tools.insert("a".to_owned(), vec!["get", "set=other"]);
    world.input(Input::Pinned(first));
    world.input(Input::Configured(vec![pinned(Pin::Block)]));
    world.legacy(1);
    assert_eq!(world.tool_names(), ["a__get"]);
    assert_eq!(world.reported(), [["set"]]);
    // Another address is another server.
    let mut other = pinned(Pin::Block);
    if let Transport::Http(http) = &mut other.transport {
        http.url = "http://other.example/mcp".to_owned();
    }
    world.input(Input::Configured(vec![other]));
    assert_eq!(world.tool_names(), ["a__get", "a__set"]);
}

#[test]
fn changed_instructions_are_withheld_and_hidden_characters_written_out() {
    let begin = |pin, instructions, stored| {
        let mut world = World::new(settings(), &[]);
        world.tools.insert("a".to_owned(), Vec::new());
        world.instructions = Some(instructions);
        world.input(Input::Pinned(stored));
        world.input(Input::Configured(vec![pinned(pin)]));
        let answer = world.legacy(1);
        (answer["result"]["instructions"].as_str().map(str::to_owned), world.accepted())
    };
    let (first, stored) = begin(Pin::Block, "Be \u{202e}good.", BTreeMap::new());
    assert_eq!(first.as_deref(), Some("Be \\u{202e}good."));
    assert_eq!(begin(Pin::Block, "Be bad.", stored.clone()).0, None);
    assert_eq!(begin(Pin::Warn, "Be bad.", stored.clone()).0.as_deref(), Some("Be bad."));
    assert_eq!(begin(Pin::Block, "Be \u{202e}good.", stored.clone()).0, first);
    // Of those that are too long to be pinned, changes would not be seen.
    let long: &'static str = "x".repeat(PIN_LIST_BYTES_MAX + 1).leak();
    for (pin, is_shown) in [(Pin::Off, true), (Pin::Warn, false), (Pin::Block, false)] {
        for stored in [BTreeMap::new(), stored.clone()] {
            assert_eq!(begin(pin, long, stored).0.is_some(), is_shown, "{pin:?}");
        }
    }
}

#[test]
fn a_tool_that_is_allowed_later_is_not_new() {
    let first = Backend { deny: vec!["set".to_owned()], ..pinned(Pin::Warn) };
    let mut world = World::new(settings(), &[(first, &["get", "set"])]);
    world.legacy(1);
    // What is denied may change.
    world.change_tools(&["get", "set=other"]);
    assert_eq!(world.reported(), [[""; 0]; 0]);
    world.change_tools(&["get", "set"]);
    world.input(Input::Configured(vec![pinned(Pin::Warn)]));
    assert_eq!(world.tool_names(), ["a__get", "a__set"]);
    assert_eq!(world.reported(), [[""; 0]; 0]);
    world.change_tools(&["get", "set=other"]);
    assert_eq!(world.reported(), [["set"]]);
}

#[test]
fn the_status_names_what_has_changed() {
    let admin = Settings { admin_tools: true, ..settings() };
    let stdio = Backend { transport: Transport::Stdio(Box::new(program())), ..backend("b") };
    let mut world = World::new(admin, &[(pinned(Pin::Warn), &["get", "set"]), (stdio, &["x"])]);
    world.legacy(1);
    let status = json!({"name": "server_status", "arguments": {}});
    let before = world.ask(1, "tools/call", status.clone());
    assert!(!text(&before).contains("pinned"), "{before}");
    world.change_tools(&["get=other", "set"]);
    let after = world.ask(1, "tools/call", status.clone());
    assert!(text(&after).contains("tools changed since pinned: get"), "{after}");
    let servers = &after["result"]["structuredContent"]["servers"];
    assert_eq!(servers[0]["changed_since_pinned"], json!(["get"]), "{after}");
    let tools = Some(vec!["a__set".to_owned(), "server_status".to_owned()]);
    world.join(2, Access { tools, ..Access::default() });
    world.ask(2, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    assert!(!text(&world.ask(2, "tools/call", status)).contains("pinned"));
}

#[test]
fn what_is_too_long_to_be_pinned_is_left_out_and_hides_no_change() {
    let long: &'static str = format!("long={}", "x".repeat(PIN_LIST_BYTES_MAX)).leak();
    for pin in [Pin::Warn, Pin::Block] {
        let mut world = world(pin, &["get", long, "set"]);
        let list = world.ask(1, "tools/list", json!({}));
        assert_eq!(names(&list), ["a__get", "a__set"], "{pin:?}");
        assert_eq!(list["result"]["nextCursor"], Value::Null);
        assert_eq!(world.call(1, "a__long")["error"]["code"], -32602, "{pin:?}");
        let said = "1 of the tools of the server `a` are left out";
        assert!(world.log.iter().any(|line| line.contains(said)), "{:?}", world.log);
        world.change_tools(&["get", long, "set=now does harm"]);
        assert_eq!(world.reported(), [["set"]], "{pin:?}");
    }
    let mut open = world(Pin::Off, &["get", long]);
    let list = open.ask(1, "tools/list", json!({}));
    assert_eq!(names(&list), ["a__get", "a__long"]);
}
