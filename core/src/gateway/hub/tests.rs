//! The hub between clients and servers that are played here.

mod apart;
mod asked_by_result;
mod doubt;
mod eras;
mod histories;
mod last_lists;
mod limits;
mod lists;
mod names;
mod pinned;
mod questions;
mod tasks;
mod traced;
mod transparent;
mod trouble;
mod waits;

use std::collections::{BTreeMap, VecDeque};
use std::hash::RandomState;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::access_patterns::Access;
use super::super::backend::{
    Backend, ClientEra, Expose, HttpServer, Pin, Prefix, Share, StdioServer, Transport,
};
use super::super::spans::Span;
use super::super::stored_catalogs::CatalogReport;
use super::super::{ClientId, Effect, Input, LinkId, PinReport};
use super::{Hub, Settings, StateKey};
use crate::definition::HealthSettings;
use crate::limits::GATEWAY_START_WAIT;
use crate::policy::Policy;
use crate::service::State;
use crate::time::Time;

pub(super) fn backend(name: &str) -> Backend {
    let url = format!("http://{name}.example/mcp");
    Backend {
        name: name.to_owned(),
        transport: Transport::Http(HttpServer { url, headers: Vec::new(), sse: None }),
        prefix: Prefix::Name,
        allow: None,
        deny: Vec::new(),
        share: Share::All,
        hide_when_down: false,
        call_timeout: None,
        in_flight_max: 256,
        pin: Pin::Off,
    }
}

fn program() -> StdioServer {
    StdioServer {
        command: vec!["server".to_owned()],
        cwd: None,
        env: Vec::new(),
        inherit_env: Default::default(),
        env_file: None,
        policy: Policy::default(),
        health: HealthSettings { memory_bytes_max: None, wedge_timeout: None },
        spare: false,
        watch: Vec::new(),
        watch_debounce: Duration::ZERO,
        tell_restarts: true,
    }
}

/// Servers that answer everything at once, and clients that keep what they are told.
pub(super) struct World {
    pub(super) hub: Hub,
    pub(super) now: Time,
    /// What servers say about themselves.
    pub(super) instructions: Option<&'static str>,
    /// What each server has: its tools, by their names, or as `name=description`.
    pub(super) tools: BTreeMap<String, Vec<&'static str>>,
    pub(super) links: BTreeMap<LinkId, String>,
    pub(super) opened: Vec<String>,
    /// What each client was told, and which request it belongs to.
    pub(super) told: BTreeMap<ClientId, Vec<(Value, Option<String>)>>,
    /// The first requests of the links, by their servers.
    pub(super) openings: Vec<(String, Value)>,
    /// What servers were told that they do not answer by themselves.
    pub(super) heard: Vec<(String, Value)>,
    /// Servers that know the newer protocol.
    pub(super) modern: Vec<&'static str>,
    /// What servers have for clients of the newer protocol, where that is something else.
    pub(super) modern_tools: Option<Vec<&'static str>>,
    /// Servers that have an MCP App.
    pub(super) is_app: Vec<&'static str>,
    /// What servers offer besides, in both protocols.
    pub(super) offers: Value,
    /// Whether all servers have the resource `x://all/a` and the template `x://all/{id}/b` besides.
    pub(super) is_all_one: bool,
    /// Methods that are not answered.
    pub(super) silent: Vec<&'static str>,
    pub(super) log: Vec<String>,
    pub(super) spans: Vec<Span>,
    /// The callers of restarts.
    pub(super) restarted_by: Vec<Value>,
    pub(super) pins: Vec<PinReport>,
    /// Lists that are to be stored for the next run.
    pub(super) stored: Vec<CatalogReport>,
    todo: VecDeque<Effect>,
    /// Requests of clients so far.
    sent: u64,
}

impl World {
    pub(super) fn new(settings: Settings, backends: &[(Backend, &[&'static str])]) -> Self {
        let tools = backends.iter().map(|(b, tools)| (b.name.clone(), tools.to_vec())).collect();
        let mut world = Self {
            hub: Hub::new(settings),
            now: Time::ZERO,
            instructions: None,
            tools,
            links: BTreeMap::new(),
            opened: Vec::new(),
            told: BTreeMap::new(),
            openings: Vec::new(),
            heard: Vec::new(),
            modern: Vec::new(),
            modern_tools: None,
            offers: json!({}),
            is_app: Vec::new(),
            is_all_one: false,
            silent: Vec::new(),
            log: Vec::new(),
            spans: Vec::new(),
            restarted_by: Vec::new(),
            pins: Vec::new(),
            stored: Vec::new(),
            todo: VecDeque::new(),
            sent: 0,
        };
        world.input(Input::Configured(backends.iter().map(|(b, _)| b.clone()).collect()));
        world
    }

    pub(super) fn input(&mut self, input: Input) {
        let effects = self.hub.handle(self.now, input);
        self.todo.extend(effects);
        while let Some(effect) = self.todo.pop_front() {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Open { link, backend, suffix } => {
                self.opened.push(format!("{backend}{suffix}"));
                self.links.insert(link, backend);
            }
            Effect::Close { link } => drop(self.links.remove(&link)),
            Effect::Log(text) => self.log.push(text),
            Effect::Span(span) => self.spans.push(*span),
            Effect::RestartCalled { by, .. } => self.restarted_by.push(by.to_json()),
            Effect::Pin(report) => self.pins.push(report),
            Effect::StoreList(report) => self.stored.push(report),
            Effect::Refused { .. } => {}
            Effect::ToClient { client, line, about } => {
                let line = serde_json::from_slice(&line).expect("JSON");
                let about = about.map(|id| String::from_utf8_lossy(id.raw()).into_owned());
                self.told.entry(client).or_default().push((line, about));
            }
            Effect::ToLink { link, line } => {
                let line: Value = serde_json::from_slice(&line).expect("JSON");
                let name = self.links[&link].clone();
                if line["method"] == "initialize" {
                    self.openings.push((name.clone(), line.clone()));
                }
                match self.answer(&name, &line) {
                    Some(mut answer) => {
                        answer["jsonrpc"] = "2.0".into();
                        answer["id"] = line["id"].clone();
                        self.say(link, &answer, None);
                    }
                    None => self.heard.push((name, line)),
                }
            }
        }
    }

    fn answer(&self, name: &str, line: &Value) -> Option<Value> {
        let method = line["method"].as_str()?;
        if line["id"].is_null() || self.silent.contains(&method) {
            return None;
        }
        let entry = |name: &&str| {
            let does = format!("does {name}");
            let (name, description) = name.split_once('=').unwrap_or((name, &does));
            json!({"name": name, "description": description})
        };
        let entries = |names: &[&str]| names.iter().map(entry).collect::<Vec<Value>>();
        let hosts = [name, "all"].into_iter().take(if self.is_all_one { 2 } else { 1 });
        let mut capabilities = match method {
            "initialize" => json!({"tools": {}, "resources": {"subscribe": true}, "logging": {}}),
            _ => json!({"tools": {}}),
        };
        if let Some(offers) = self.offers[name].as_object() {
            capabilities.as_object_mut().expect("an object").extend(offers.clone());
        }
        Some(match method {
            "initialize" => json!({"result": {
                "protocolVersion": line["params"]["protocolVersion"],
                "capabilities": capabilities,
                "serverInfo": {"name": name, "version": "1"},
                "instructions": self.instructions,
            }}),
            "server/discover" if self.modern.contains(&name) => json!({"result": {
                "supportedVersions": ["2026-07-28"],
                "capabilities": capabilities,
            }}),
            "tools/list" => {
                let is_modern = line["params"]["_meta"].is_object();
                let modern = self.modern_tools.as_ref().filter(|_| is_modern);
                json!({"result": {"tools": entries(modern.unwrap_or(&self.tools[name]))}})
            }
            "resources/list" => {
                let its = hosts.map(|host| json!({"uri": format!("x://{host}/a"), "name": "a"}));
                let page = json!({"uri": format!("ui://{name}/page"), "name": "page"});
                let page = Some(page).filter(|_| self.is_app.contains(&name));
                json!({"result": {"resources": its.chain(page).collect::<Vec<_>>()}})
            }
            "resources/templates/list" => {
                let its = hosts.map(
                    |host| json!({"uriTemplate": format!("x://{host}/{{id}}/b"), "name": "b"}),
                );
                json!({"result": {"resourceTemplates": its.collect::<Vec<_>>()}})
            }
            "tools/call" => json!({"result": {"content": [{"type": "text", "text":
                format!("{name} did {}", line["params"]["name"].as_str().unwrap_or("?"))}]}}),
            "resources/read" => {
                json!({"result": {"contents": [{"uri": line["params"]["uri"], "text": name}]}})
            }
            "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel" => {
                json!({"result": {}})
            }
            "subscriptions/listen" => return None,
            _ => json!({"error": {"code": -32601, "message": "method not found"}}),
        })
    }

    pub(super) fn say(&mut self, link: LinkId, line: &Value, about: Option<&str>) {
        let line = line.to_string().into_bytes();
        let about = about.map(|id| crate::mcp::envelope::Id::new(id.as_bytes()));
        let effects = self.hub.handle(self.now, Input::Link { link, line, about });
        self.todo.extend(effects);
    }

    /// Something that a server says by itself.
    pub(super) fn server_says(&mut self, name: &str, line: &Value, about: Option<&str>) {
        let link = self.link(name);
        self.say(link, line, about);
        self.input(Input::Wakeup);
    }

    /// The `initialize` that a server had last.
    pub(super) fn opened_with(&self, name: &str) -> &(String, Value) {
        self.openings.iter().rfind(|(its, _)| its == name).expect("it has a session")
    }

    pub(super) fn link(&self, name: &str) -> LinkId {
        *self.links.iter().find(|(_, its)| *its == name).expect("it is there").0
    }

    pub(super) fn join(&mut self, client: u64, access: Access) {
        self.input(Input::Joined { client: ClientId(client), access });
    }

    pub(super) fn says(&mut self, client: u64, line: &Value) {
        let line = line.to_string().into_bytes();
        self.input(Input::Client { client: ClientId(client), line });
    }

    /// A client of the older protocol that has begun.
    pub(super) fn legacy(&mut self, client: u64) -> Value {
        self.join(client, Access::default());
        let params = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"sampling": {}, "roots": {}},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let answer = self.ask(client, "initialize", params);
        self.says(client, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        answer
    }

    /// Asks and returns the one answer.
    pub(super) fn ask(&mut self, client: u64, method: &str, params: Value) -> Value {
        let id = self.send(client, method, params);
        self.answer_to(client, &id).expect("an answer")
    }

    pub(super) fn send(&mut self, client: u64, method: &str, params: Value) -> Value {
        self.sent += 1;
        let id = json!(format!("c{client}-{method}-{}", self.sent));
        self.says(client, &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub(super) fn answer_to(&self, client: u64, id: &Value) -> Option<Value> {
        let told = self.told.get(&ClientId(client))?;
        let mut answers = told.iter().filter(|(line, _)| line["id"] == *id);
        let answer = answers.next().cloned();
        assert!(answers.next().is_none(), "answered twice: {id}");
        let (line, about) = answer?;
        assert_eq!(about, Some(id.to_string()));
        Some(line)
    }

    pub(super) fn notifications(&self, client: u64) -> Vec<String> {
        let told = self.told.get(&ClientId(client)).into_iter().flatten();
        told.filter(|(line, _)| line["id"].is_null())
            .filter_map(|(line, _)| line["method"].as_str().map(str::to_owned))
            .collect()
    }

    pub(super) fn call(&mut self, client: u64, tool: &str) -> Value {
        self.ask(client, "tools/call", json!({"name": tool, "arguments": {}}))
    }

    pub(super) fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        self.input(Input::Wakeup);
    }
}

pub(super) fn settings() -> Settings {
    Settings {
        version: "1".to_owned(),
        is_single: false,
        expose: Expose::All,
        admin_tools: false,
        start_wait: GATEWAY_START_WAIT,
        era: ClientEra::Auto,
        state_key: StateKey([RandomState::new(), RandomState::new()]),
        is_traced: false,
        is_transparent: false,
        first_link: 0,
    }
}

fn two() -> World {
    World::new(settings(), &[(backend("a"), &["get", "set"]), (backend("b"), &["get"])])
}

/// A server that has crashed.
fn down() -> State {
    State::BackingOff { next_try_ms: 1_000 }
}

fn names(answer: &Value) -> Vec<&str> {
    let tools = answer["result"]["tools"].as_array().expect("tools");
    tools.iter().filter_map(|tool| tool["name"].as_str()).collect()
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or("")
}

#[test]
fn two_servers_are_one() {
    let mut world = two();
    let answer = world.legacy(1);
    assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(answer["result"]["serverInfo"]["name"], "afresh");
    let list = world.ask(1, "tools/list", json!({}));
    assert_eq!(names(&list), ["a__get", "a__set", "b__get"]);
    assert_eq!(text(&world.call(1, "b__get")), "b did get");
    assert_eq!(text(&world.call(1, "a__set")), "a did set");
    assert_eq!(world.call(1, "c__get")["error"]["code"], -32602);
    assert_eq!(world.call(1, "a__nothing")["error"]["code"], -32602);
    let read = |world: &mut World, uri: &str| world.ask(1, "resources/read", json!({"uri": uri}));
    assert_eq!(read(&mut world, "x://b/a")["result"]["contents"][0]["text"], "b");
    assert_eq!(read(&mut world, "x://a/7/b")["result"]["contents"][0]["text"], "a");
    assert_eq!(read(&mut world, "y://")["error"]["code"], -32002);
    // All clients share what is shared.
    world.legacy(2);
    assert_eq!(text(&world.call(2, "a__get")), "a did get");
    assert_eq!(world.opened, ["a", "b"]);
}

#[test]
fn prefixes_and_clashes() {
    let none = |name: &str| Backend { prefix: Prefix::None, ..backend(name) };
    let text_of = Backend { prefix: Prefix::Text("x.".to_owned()), ..backend("c") };
    let mut world = World::new(
        settings(),
        &[(none("a"), &["get"]), (none("b"), &["get", "put"]), (text_of, &["get"])],
    );
    world.legacy(1);
    let list = world.ask(1, "tools/list", json!({}));
    assert_eq!(names(&list), ["get", "put", "x.get"]);
    assert_eq!(text(&world.call(1, "get")), "a did get");
    assert_eq!(text(&world.call(1, "x.get")), "c did get");
    let clashes: Vec<&String> =
        world.log.iter().filter(|text| text.contains("both have")).collect();
    assert_eq!(clashes.len(), 1);
    assert!(clashes[0].contains("`a` and `b` both have `get`"), "{clashes:?}");
}

#[test]
fn an_empty_list_allows_nothing() {
    let none = Backend { allow: Some(Vec::new()), ..backend("a") };
    let mut world = World::new(settings(), &[(none, &["get"]), (backend("b"), &["get"])]);
    world.legacy(1);
    assert_eq!(names(&world.ask(1, "tools/list", json!({}))), ["b__get"]);
    assert_eq!(world.call(1, "a__get")["error"]["code"], -32602);
    for (client, access) in [
        (2, Access { servers: Some(Vec::new()), ..Access::default() }),
        (3, Access { tools: Some(Vec::new()), ..Access::default() }),
    ] {
        world.join(client, access);
        let session = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
        world.ask(client, "initialize", session);
        assert_eq!(names(&world.ask(client, "tools/list", json!({}))), [""; 0]);
        assert_eq!(world.call(client, "b__get")["error"]["code"], -32602);
    }
}

#[test]
fn what_is_not_allowed_is_not_there() {
    let some = Backend {
        allow: Some(vec!["get*".to_owned()]),
        deny: vec!["get_secret".to_owned()],
        ..backend("a")
    };
    let mut world = World::new(
        settings(),
        &[(some, &["get_it", "get_secret", "put"]), (backend("b"), &["get"])],
    );
    world.legacy(1);
    let list = world.ask(1, "tools/list", json!({}));
    assert_eq!(names(&list), ["a__get_it", "b__get"]);
    assert_eq!(world.call(1, "a__get_secret")["error"]["code"], -32602);
    let access = Access {
        name: "guest".to_owned(),
        servers: Some(vec!["b".to_owned()]),
        tools: Some(vec!["b__g*".to_owned()]),
    };
    world.join(2, access);
    world.ask(2, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    let list = world.ask(2, "tools/list", json!({}));
    assert_eq!(names(&list), ["b__get"]);
    assert_eq!(world.call(2, "a__get_it")["error"]["code"], -32602);
}

#[test]
fn what_belongs_to_a_request_finds_its_way() {
    let mut world = two();
    world.silent.push("tools/call");
    world.legacy(1);
    world.legacy(2);
    let params = |token: Value| json!({"name": "a__get", "_meta": {"progressToken": token}});
    let first = world.send(1, "tools/call", params(json!(7)));
    let second = world.send(2, "tools/call", params(json!(7)));
    let calls: Vec<Value> = world
        .heard
        .iter()
        .filter(|(_, line)| line["method"] == "tools/call")
        .map(|(_, line)| line.clone())
        .collect();
    assert_eq!(calls[0]["params"]["name"], "get");
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    let token = &calls[0]["params"]["_meta"]["progressToken"];
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": token, "progress": 1.50}});
    world.server_says("a", &progress, None);
    let (told, about) = world.told[&ClientId(1)].last().cloned().expect("told");
    assert_eq!(
        (told["params"]["progressToken"].clone(), about),
        (json!(7), Some(first.to_string()))
    );
    // A question of the server's goes to the client that it is asked for.
    let question =
        json!({"jsonrpc": "2.0", "id": 0, "method": "sampling/createMessage", "params": {}});
    let about = calls[1]["id"].to_string();
    world.server_says("a", &question, Some(&about));
    let (asked, about) = world.told[&ClientId(2)].last().cloned().expect("asked");
    assert_eq!(about, Some(second.to_string()));
    // Only who was asked can answer.
    world.says(1, &json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"no": 1}}));
    world.says(2, &json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"yes": 1}}));
    let replies: Vec<&Value> =
        world.heard.iter().map(|(_, line)| line).filter(|line| !line["result"].is_null()).collect();
    assert_eq!(replies, [&json!({"jsonrpc": "2.0", "id": 0, "result": {"yes": 1}})]);
    // One that is cancelled is not answered.
    world.says(
        1,
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": first, "reason": "enough"}}),
    );
    let cancelled = world.heard.last().cloned().expect("told");
    assert_eq!(cancelled.1["params"]["requestId"], calls[0]["id"]);
    let link = world.link("a");
    for call in &calls {
        world.say(
            link,
            &json!({"jsonrpc": "2.0", "id": call["id"], "result": {"late": true}}),
            None,
        );
    }
    world.input(Input::Wakeup);
    assert_eq!(world.answer_to(1, &first), None);
    assert!(world.answer_to(2, &second).is_some());
}

#[test]
fn changed_lists_are_told_only_where_they_changed() {
    let mut world = two();
    world.legacy(1);
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    world.server_says("a", &changed, None);
    assert_eq!(world.notifications(1), Vec::<String>::new());
    world.tools.insert("a".to_owned(), vec!["get", "new"]);
    world.server_says("a", &changed, None);
    assert_eq!(world.notifications(1), ["notifications/tools/list_changed"]);
    assert_eq!(text(&world.call(1, "a__new")), "a did new");
    assert_eq!(world.call(1, "a__set")["error"]["code"], -32602);
}

#[test]
fn a_server_that_refuses_harms_nobody_else() {
    let mut world = two();
    world.silent.push("initialize");
    world.join(1, Access::default());
    let id =
        world.send(1, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    assert_eq!(world.answer_to(1, &id), None);
    let b = world.heard.iter().find(|(name, _)| name == "b").cloned().expect("asked");
    let link = world.link("b");
    let result = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}});
    world.say(link, &json!({"jsonrpc": "2.0", "id": b.1["id"], "result": result}), None);
    world.wait(Duration::from_secs(11));
    assert!(world.answer_to(1, &id).is_some(), "the others are not waited for any longer");
    assert_eq!(text(&world.call(1, "b__get")), "b did get");
    // A call to the one that starts waits, and is answered when it fails.
    let call = world.send(1, "tools/call", json!({"name": "a__get"}));
    assert_eq!(world.answer_to(1, &call), None);
    world.wait(Duration::from_secs(30));
    let answer = world.answer_to(1, &call).expect("an answer");
    assert!(text(&answer).contains("`a` cannot be used"), "{answer}");
    // It is tried again, and its tools come.
    world.silent.clear();
    world.wait(Duration::from_secs(6));
    assert!(world.notifications(1).contains(&"notifications/tools/list_changed".to_owned()));
    assert_eq!(text(&world.call(1, "a__get")), "a did get");
}

#[test]
fn calls_that_take_too_long_open_the_circuit() {
    let slow = Backend { call_timeout: Some(Duration::from_secs(2)), ..backend("a") };
    let mut world = World::new(settings(), &[(slow, &["get"]), (backend("b"), &["get"])]);
    world.legacy(1);
    world.silent.push("tools/call");
    for _ in 0..3 {
        let call = world.send(1, "tools/call", json!({"name": "a__get"}));
        world.wait(Duration::from_secs(2));
        assert!(text(&world.answer_to(1, &call).expect("late")).contains("call_timeout"));
    }
    assert!(world.log.iter().any(|text| text.contains("3 calls in a row")), "{:?}", world.log);
    let refused = world.call(1, "a__get");
    assert!(text(&refused).contains("tried again in"), "{refused}");
    world.silent.clear();
    assert_eq!(text(&world.call(1, "b__get")), "b did get");
    world.wait(Duration::from_secs(31));
    assert_eq!(text(&world.call(1, "a__get")), "a did get");
    assert_eq!(text(&world.call(1, "a__get")), "a did get");
}

#[test]
fn each_client_can_have_its_own() {
    let share = Share::PerClient { instances_max: 2, idle_after: Duration::from_secs(60) };
    let own = Backend { share, ..backend("a") };
    let mut world = World::new(settings(), &[(own, &["get"])]);
    assert_eq!(world.opened, Vec::<String>::new());
    world.legacy(1);
    world.legacy(2);
    assert_eq!(world.opened, ["a@1", "a@2"]);
    world.legacy(3);
    let refused = world.call(3, "a__get");
    assert!(text(&refused).contains("instances_max"), "{refused}");
    world.input(Input::Left { client: ClientId(1) });
    assert_eq!(text(&world.call(3, "a__get")), "a did get");
    world.wait(Duration::from_secs(61));
    assert_eq!(world.links.len(), 0);
    let list = world.ask(2, "tools/list", json!({}));
    assert_eq!(names(&list), ["a__get"], "it comes back when it is asked for");
    assert_eq!(text(&world.call(2, "a__get")), "a did get");
}

#[test]
fn both_eras_side_by_side() {
    let mut world = two();
    world.modern.push("a");
    world.legacy(1);
    world.join(2, Access::default());
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = world.ask(2, "server/discover", json!({"_meta": meta}));
    assert_eq!(found["result"]["resultType"], "complete");
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28");
    // The one that knows both has a link for each; the other is spoken to as before.
    assert_eq!(world.opened, ["a", "b", "a@2", "b@2"]);
    assert_eq!(world.links.values().filter(|name| *name == "b").count(), 1);
    let list = world.ask(2, "tools/list", json!({"_meta": meta}));
    assert_eq!((names(&list).len(), &list["result"]["resultType"]), (3, &json!("complete")));
    let call = world.ask(2, "tools/call", json!({"_meta": meta, "name": "b__get"}));
    assert_eq!(text(&call), "b did get");
    let listen = json!({"_meta": meta, "notifications": {"toolsListChanged": true}});
    let id = world.send(2, "subscriptions/listen", listen);
    let (ack, about) = world.told[&ClientId(2)].last().cloned().expect("acknowledged");
    assert_eq!(ack["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(about, Some(id.to_string()));
    world.tools.insert("b".to_owned(), vec![]);
    world.server_says("b", &json!({"method": "notifications/tools/list_changed"}), None);
    let (changed, _) = world.told[&ClientId(2)].last().cloned().expect("told");
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert_eq!(changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
    let bad = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "1999-01-01"}});
    let refused = world.ask(2, "tools/list", bad);
    assert_eq!(refused["error"]["code"], -32022);
}

#[test]
fn tools_are_searched_for() {
    let search = Settings { expose: Expose::Search, ..settings() };
    let mut world = World::new(
        search,
        &[(backend("a"), &["read_file", "write_file"]), (backend("b"), &["ping"])],
    );
    world.legacy(1);
    let list = world.ask(1, "tools/list", json!({}));
    assert_eq!(names(&list), ["find_tools", "call_tool"]);
    let query = json!({"name": "find_tools", "arguments": {"query": "FILE write"}});
    let found = world.ask(1, "tools/call", query);
    let answer = text(&found);
    assert!(answer.starts_with("2 of 2 tools that fit:\n{\"name\":\"a__write_file\""), "{answer}");
    assert_eq!(world.notifications(1), ["notifications/tools/list_changed"]);
    let list = world.ask(1, "tools/list", json!({}));
    assert_eq!(names(&list), ["a__read_file", "a__write_file", "find_tools", "call_tool"]);
    let by_name =
        json!({"name": "call_tool", "arguments": {"name": "b__ping", "arguments": {"x": 1}}});
    assert_eq!(text(&world.ask(1, "tools/call", by_name)), "b did ping");
    let itself = json!({"name": "call_tool", "arguments": {"name": "call_tool"}});
    assert_eq!(world.ask(1, "tools/call", itself)["result"]["isError"], true);
}

#[test]
fn servers_come_and_go_with_the_configuration() {
    let mut world = two();
    world.legacy(1);
    world.silent.push("tools/call");
    let call = world.send(1, "tools/call", json!({"name": "b__get"}));
    let kept = world.link("a");
    world.tools.insert("c".to_owned(), vec!["new"]);
    world.input(Input::Configured(vec![backend("a"), backend("c")]));
    let answer = world.answer_to(1, &call).expect("an answer");
    assert!(text(&answer).contains("taken out of the configuration"), "{answer}");
    assert_eq!(world.link("a"), kept);
    let list = world.ask(1, "tools/list", json!({}));
    assert_eq!(names(&list), ["a__get", "a__set", "c__new"]);
    assert!(!world.links.values().any(|name| name == "b"));
}

#[test]
fn what_is_not_trusted_is_named_and_appears_once_it_is() {
    let admin = Settings { admin_tools: true, ..settings() };
    let mut world = World::new(admin, &[]);
    world.input(Input::Untrusted(vec!["server.a".to_owned()]));
    world.join(1, Access::default());
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
    let answer = world.ask(1, "initialize", hello.clone());
    let instructions = answer["result"]["instructions"].as_str().unwrap_or_default();
    assert!(instructions.contains("`server.a`") && instructions.contains("`afresh trust`"));
    assert_eq!(names(&world.ask(1, "tools/list", json!({}))), ["server_status"]);
    let status = world.ask(1, "tools/call", json!({"name": "server_status", "arguments": {}}));
    assert!(text(&status).contains("`server.a` of this project is not trusted"), "{status}");
    assert_eq!(status["result"]["structuredContent"]["not_trusted"], json!(["server.a"]));
    // A client that may use some servers alone hears nothing of others.
    world.join(2, Access { servers: Some(vec!["b".to_owned()]), ..Access::default() });
    let answer = world.ask(2, "initialize", hello);
    assert_eq!(answer["result"]["instructions"], Value::Null);
    assert_eq!(names(&world.ask(2, "tools/list", json!({}))), [""; 0]);
    world.told.clear();
    world.tools.insert("a".to_owned(), vec!["get"]);
    world.input(Input::Untrusted(Vec::new()));
    world.input(Input::Configured(vec![backend("a")]));
    let told = |world: &World| {
        world.told[&ClientId(1)]
            .iter()
            .any(|(line, _)| line["method"] == "notifications/tools/list_changed")
    };
    assert!(told(&world));
    assert_eq!(names(&world.ask(1, "tools/list", json!({}))), ["a__get"]);
}

#[test]
fn the_status_names_servers_that_cannot_be_used() {
    let admin = Settings { admin_tools: true, ..settings() };
    let stdio = Backend { transport: Transport::Stdio(Box::new(program())), ..backend("a") };
    let mut world = World::new(admin, &[(stdio, &["get"])]);
    world.input(Input::LeftOut(vec![("b".to_owned(), "needs `TOKEN`".to_owned())]));
    world.legacy(1);
    let status = json!({"name": "server_status", "arguments": {}});
    let answer = world.ask(1, "tools/call", status.clone());
    assert!(text(&answer).contains("b: left out (needs `TOKEN`)"), "{answer}");
    let data = &answer["result"]["structuredContent"]["servers"][1];
    assert_eq!(data, &json!({"server": "b", "state": "left out", "why": "needs `TOKEN`"}));
    world.join(2, Access { servers: Some(vec!["a".to_owned()]), ..Access::default() });
    world.ask(2, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    assert!(!text(&world.ask(2, "tools/call", status)).contains("left out"), "it is not its");
}

#[test]
fn our_own_tools_are_for_those_who_may() {
    let admin = Settings { admin_tools: true, ..settings() };
    let stdio = Backend { transport: Transport::Stdio(Box::new(program())), ..backend("a") };
    let mut world = World::new(admin, &[(stdio, &["get", "restart_server"])]);
    world.legacy(1);
    let list = world.ask(1, "tools/list", json!({}));
    // One that the server has under the same name is another one.
    let ours = ["restart_server", "verify_server_restarted", "server_status", "server_logs"];
    assert_eq!(names(&list), [&["a__get", "a__restart_server"][..], &ours[..]].concat());
    let restart = json!({"name": "restart_server", "arguments": {"server": "a"}});
    assert_eq!(text(&world.ask(1, "tools/call", restart.clone())), "a did afresh:restart_server");
    assert_eq!(text(&world.call(1, "a__restart_server")), "a did restart_server");
    // The name by which the gateway calls it is for none else.
    assert_eq!(world.call(1, "a__afresh:restart_server")["error"]["code"], -32602);
    let other = json!({"name": "restart_server", "arguments": {"server": "b"}});
    assert!(text(&world.ask(1, "tools/call", other)).contains("must be one of: a"));
    let tools = vec!["a__*".to_owned(), "server_status".to_owned()];
    world.join(2, Access { tools: Some(tools), ..Access::default() });
    world.ask(2, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    let list = world.ask(2, "tools/list", json!({}));
    assert_eq!(names(&list), ["a__get", "a__restart_server", "server_status"]);
    assert_eq!(world.ask(2, "tools/call", restart)["error"]["code"], -32602);
}

#[test]
fn without_sessions_an_instance_is_shared() {
    let share = Share::PerClient { instances_max: 2, idle_after: Duration::from_secs(60) };
    let mut world = World::new(settings(), &[(Backend { share, ..backend("a") }, &["get"])]);
    world.modern.push("a");
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    for client in 1..=5 {
        world.join(client, Access::default());
        let call = world.ask(client, "tools/call", json!({"_meta": meta, "name": "a__get"}));
        assert_eq!(text(&call), "a did get");
        world.input(Input::Left { client: ClientId(client) });
    }
    assert_eq!(world.opened, ["a"]);
}

#[test]
fn an_id_that_waits_is_not_answered_twice() {
    let mut world = two();
    world.silent.push("initialize");
    world.join(1, Access::default());
    world.send(1, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    let list = json!({"jsonrpc": "2.0", "id": "l", "method": "tools/list"});
    let call =
        json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": {"name": "a__get"}});
    for line in [&list, &list, &call, &call] {
        world.says(1, line);
    }
    world.wait(Duration::from_secs(11));
    assert!(world.answer_to(1, &json!("l")).is_some());
    world.wait(Duration::from_secs(30));
    assert!(text(&world.answer_to(1, &json!("c")).expect("an answer")).contains("cannot be used"));
}

#[test]
fn what_is_answered_is_not_waited_for() {
    let slow = Backend { call_timeout: Some(Duration::from_secs(60)), ..backend("a") };
    let mut world = World::new(settings(), &[(slow, &["get"])]);
    world.legacy(1);
    for _ in 0..10 {
        world.call(1, "a__get");
    }
    assert_eq!(world.hub.next_wakeup(), None);
}

#[test]
fn what_is_down_can_be_hidden() {
    let hidden = Backend { hide_when_down: true, ..backend("a") };
    let mut world = World::new(settings(), &[(hidden, &["get"]), (backend("b"), &["get"])]);
    world.legacy(1);
    let (a, b) = (world.link("a"), world.link("b"));
    world.input(Input::Serves { link: b, state: down() });
    assert_eq!(world.notifications(1), Vec::<String>::new());
    world.input(Input::Serves { link: a, state: down() });
    let told = ["notifications/tools/list_changed", "notifications/resources/list_changed"];
    assert_eq!(world.notifications(1), told);
    let list = world.ask(1, "tools/list", json!({}));
    assert_eq!(names(&list), ["b__get"]);
    world.input(Input::Serves { link: a, state: State::Ready });
    let list = world.ask(1, "tools/list", json!({}));
    assert_eq!(names(&list), ["a__get", "b__get"]);
}

#[test]
fn subscriptions_and_levels_are_held_together() {
    let mut world = two();
    world.legacy(1);
    world.legacy(2);
    let uri = json!({"uri": "x://a/a"});
    world.ask(1, "resources/subscribe", uri.clone());
    world.ask(2, "resources/subscribe", uri.clone());
    let update = json!({"method": "notifications/resources/updated", "params": {"uri": "x://a/a", "title": "t"}});
    world.server_says("a", &update, None);
    world.ask(1, "resources/unsubscribe", uri);
    world.server_says("a", &update, None);
    let count = |world: &World, client| {
        let all = world.notifications(client);
        all.iter().filter(|method| *method == "notifications/resources/updated").count()
    };
    assert_eq!((count(&world, 1), count(&world, 2)), (1, 2));
    world.ask(1, "logging/setLevel", json!({"level": "error"}));
    world.ask(2, "logging/setLevel", json!({"level": "info"}));
    let entry =
        json!({"method": "notifications/message", "params": {"level": "warning", "data": "x"}});
    world.server_says("a", &entry, None);
    let last = |client| world.notifications(client).last().cloned().unwrap_or_default();
    assert_eq!(last(2), "notifications/message");
    assert_ne!(last(1), "notifications/message");
    assert!(world.ask(1, "logging/setLevel", json!({"level": "loud"}))["error"].is_object());
}
