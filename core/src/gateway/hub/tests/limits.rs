//! Each bound, where it is reached.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::super::backend::{Backend, Expose};
use super::super::super::{Effect, Input, LinkId, NotTaken};
use super::super::{Hub, Settings};
use super::{World, backend, names, settings, text, two};
use crate::limits::{
    CATALOG_ENTRIES_MAX, CATALOG_NAME_CHARS_MAX, CATALOG_PAGES_MAX, CIRCUIT_OPEN_FOR,
    CLIENT_FLIGHTS_MAX, CLIENT_ID_BYTES_MAX, CLIENT_INTRODUCTION_BYTES_MAX, CLIENT_LISTENS_MAX,
    CLIENT_SUBSCRIPTIONS_BYTES_MAX, CLIENT_SUBSCRIPTIONS_MAX, FOUND_TOOLS, FOUND_TOOLS_MAX,
    FRONT_BATCH_MAX, GATEWAY_HELLO_WAIT, GATEWAY_START_WAIT, LISTEN_FILTER_BYTES_MAX,
    PAGE_BYTES_MAX, PAGE_ENTRIES_MAX, PROBE_MAX, SESSION_RETRY, TIMEOUTS_IN_A_ROW_MAX,
    TURN_ANSWERS_BYTES_MAX,
};
use crate::time::Time;

pub(super) const A_MOMENT: Duration = Duration::from_millis(1);

/// A hub with one client and a server that is played line by line.
pub(super) struct Alone {
    hub: Hub,
    now: Time,
    link: LinkId,
    pub(super) to_server: Vec<Value>,
    pub(super) to_client: Vec<Value>,
    pub(super) log: Vec<String>,
}

impl Alone {
    pub(super) fn new() -> Self {
        let (hub, now) = (Hub::new(settings()), Time::ZERO);
        let (to_server, to_client, log) = (Vec::new(), Vec::new(), Vec::new());
        let mut alone = Self { hub, now, link: LinkId(1), to_server, to_client, log };
        alone.input(Input::Configured(vec![backend("a")]));
        let access = super::Access::default();
        alone.input(Input::Joined { client: super::ClientId(1), access });
        alone
    }

    fn input(&mut self, input: Input) {
        for effect in self.hub.handle(self.now, input) {
            match effect {
                Effect::ToLink { line, .. } => {
                    self.to_server.push(serde_json::from_slice(&line).expect("JSON"));
                }
                Effect::ToClient { line, .. } => {
                    self.to_client.push(serde_json::from_slice(&line).expect("JSON"));
                }
                Effect::Log(text) => self.log.push(text),
                Effect::Open { .. }
                | Effect::Close { .. }
                | Effect::Refused { .. }
                | Effect::RestartCalled { .. }
                | Effect::Pin(_)
                | Effect::StoreList(_)
                | Effect::Span(_) => {}
            }
        }
    }

    pub(super) fn says(&mut self, id: u64, method: &str, params: Value) {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let line = line.to_string().into_bytes();
        self.input(Input::Client { client: super::ClientId(1), line });
    }

    /// Answers what the server was asked last.
    pub(super) fn answers(&mut self, result: &str) {
        let method = self.to_server.last().expect("asked")["method"].clone();
        self.answers_to(method.as_str().expect("a text"), result);
    }

    /// The same of one method.
    pub(super) fn answers_to(&mut self, method: &str, result: &str) {
        let asked = self.to_server.iter().rfind(|line| line["method"] == method);
        let id = asked.expect("asked")["id"].to_string();
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into_bytes();
        self.input(Input::Link { link: self.link, line, about: None });
    }

    pub(super) fn begin(&mut self) {
        self.begin_with(r#"{"tools":{}}"#);
    }

    /// A server that can do this.
    pub(super) fn begin_with(&mut self, capabilities: &str) {
        self.says(0, "initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}}));
        self.answers(&format!(r#"{{"capabilities":{capabilities}}}"#));
    }

    fn tools(&mut self) -> usize {
        self.says(1, "tools/list", json!({}));
        let answer = self.to_client.last().expect("an answer");
        answer["result"]["tools"].as_array().expect("tools").len()
    }
}

/// The same in a form that a server would write.
fn listed(from: usize, to: usize) -> String {
    let mut tools = String::new();
    for n in from..to {
        write!(tools, r#"{}{{"name":"t{n}"}}"#, if n > from { "," } else { "" }).expect("text");
    }
    tools
}

#[test]
fn a_list_without_end_is_cut_off() {
    let mut alone = Alone::new();
    alone.begin();
    for page in 0..CATALOG_PAGES_MAX {
        assert_eq!(alone.to_server.last().expect("asked")["method"], "tools/list");
        alone.answers(&format!(r#"{{"tools":[{{"name":"x"}}],"nextCursor":"{page}"}}"#));
    }
    let asked = alone.to_server.iter().filter(|line| line["method"] == "tools/list").count();
    assert_eq!(asked, CATALOG_PAGES_MAX);
    assert!(alone.log.iter().any(|text| text.contains("the rest is left out")), "{:?}", alone.log);
    assert!(alone.tools() > 0);
}

#[test]
fn a_list_that_is_too_long_is_cut_off() {
    let mut alone = Alone::new();
    alone.begin();
    let (half, all) = (CATALOG_ENTRIES_MAX / 2, CATALOG_ENTRIES_MAX + 2);
    alone.answers(&format!(r#"{{"tools":[{}],"nextCursor":"more"}}"#, listed(0, half)));
    alone.answers(&format!(r#"{{"tools":[{}],"nextCursor":"last"}}"#, listed(half, all)));
    let asked = alone.to_server.iter().filter(|line| line["method"] == "tools/list").count();
    assert_eq!(asked, 2);
    assert!(alone.log.iter().any(|text| text.contains("the rest is left out")), "{:?}", alone.log);
    // What comes to the client comes page by page, and it is all that is kept.
    let (mut count, mut cursor) = (0, json!({}));
    loop {
        alone.says(1, "tools/list", cursor);
        let answer = alone.to_client.last().expect("an answer");
        let page = answer["result"]["tools"].as_array().expect("tools").len();
        assert!(page <= PAGE_ENTRIES_MAX);
        count += page;
        match answer["result"]["nextCursor"].as_str() {
            Some(next) => cursor = json!({"cursor": next}),
            None => break,
        }
    }
    assert_eq!(count, CATALOG_ENTRIES_MAX);
}

#[test]
fn a_client_that_reads_one_page_sees_all_that_a_thousand_long_tools_are() {
    let mut alone = Alone::new();
    alone.begin();
    let long = "y".repeat(3_500);
    let tool = |number| format!(r#"{{"name":"x{number}","description":"{long}"}}"#);
    let tools: Vec<String> = (0..1_000).map(tool).collect();
    alone.answers(&format!(r#"{{"tools":[{}]}}"#, tools.join(",")));
    assert_eq!(alone.tools(), 1_000);
    assert_eq!(alone.to_client.last().expect("an answer")["result"]["nextCursor"], Value::Null);
}

#[test]
fn entries_with_names_too_long_are_left_out_and_pages_are_bounded_in_bytes() {
    let mut alone = Alone::new();
    alone.begin();
    let fits = "x".repeat(CATALOG_NAME_CHARS_MAX);
    let long = "y".repeat(PAGE_BYTES_MAX / 2);
    alone.answers(&format!(
        r#"{{"tools":[{{"name":"{fits}"}},{{"name":"{fits}x"}},{{"name":"a","description":"{long}"}},
            {{"name":"b","description":"{long}"}},{{"name":"c","description":"{long}{long}"}}]}}"#
    ));
    // The first page has the first two that are left: the next does not fit.
    assert_eq!(alone.tools(), 2);
    let mut next = alone.to_client.last().expect("an answer")["result"]["nextCursor"].clone();
    for name in ["a__b", "a__c"] {
        alone.says(1, "tools/list", json!({"cursor": next}));
        let answer = alone.to_client.last().expect("an answer");
        assert_eq!(names(answer), [name]);
        next = answer["result"]["nextCursor"].clone();
    }
    assert_eq!(next, Value::Null);
    for wrong in ["", "p", "x7", "p-1"] {
        alone.says(1, "tools/list", json!({"cursor": wrong}));
        assert_eq!(alone.to_client.last().expect("an answer")["error"]["code"], -32602);
    }
    alone.says(1, "tools/list", json!({"cursor": "p999999"}));
    assert_eq!(names(alone.to_client.last().expect("an answer")), [""; 0]);
}

#[test]
fn first_questions_wait_for_servers_that_start_but_not_for_ever() {
    let mut alone = Alone::new();
    alone.says(0, "initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}}));
    assert_eq!(alone.to_client.len(), 0);
    assert_eq!(alone.hub.next_wakeup(), Some(Time::ZERO + GATEWAY_HELLO_WAIT));
    alone.now = Time::ZERO + GATEWAY_HELLO_WAIT;
    alone.input(Input::Wakeup);
    assert_eq!(alone.to_client[0]["id"], 0);
    // The server comes later, and the client hears of it.
    alone.answers(r#"{"capabilities":{"tools":{}}}"#);
    alone.answers(r#"{"tools":[{"name":"x"}]}"#);
    assert_eq!(alone.to_client[1]["method"], "notifications/tools/list_changed");
}

#[test]
fn a_server_that_never_says_what_it_has_is_waited_for_once() {
    for silent in ["initialize", "tools/list"] {
        let mut world = World::new(settings(), &[(backend("a"), &["get"])]);
        world.silent.push(silent);
        world.join(1, super::Access::default());
        let first = world.send(1, "initialize", json!({"protocolVersion": "2025-11-25"}));
        world.wait(GATEWAY_HELLO_WAIT - A_MOMENT);
        assert_eq!(world.answer_to(1, &first), None);
        world.wait(A_MOMENT);
        assert!(world.answer_to(1, &first).is_some());
        world.wait(GATEWAY_START_WAIT - GATEWAY_HELLO_WAIT);
        // Whoever comes later waits for nothing.
        assert_eq!(names(&world.ask(1, "tools/list", json!({}))), [""; 0]);
        world.legacy(2);
        assert_eq!(names(&world.ask(2, "tools/list", json!({}))), [""; 0]);
    }
}

#[test]
fn a_client_that_asks_without_end_is_told_so() {
    // While a server starts, its questions are held…
    let mut alone = Alone::new();
    let count = CLIENT_FLIGHTS_MAX as u64;
    for id in 0..count + 5 {
        alone.says(id, "tools/list", json!({}));
    }
    assert_eq!(alone.to_client.len(), 5);
    assert_eq!(alone.to_client[0]["error"]["data"]["reason"], "too_many_requests");
    alone.now = Time::ZERO + GATEWAY_START_WAIT;
    alone.input(Input::Wakeup);
    assert_eq!(alone.to_client.len() as u64, count + 5);
    // …and calls wait, up to as many as the server may have at once. Each has an answer in the end, and
    // none goes to a server that has not shaken hands.
    let max = backend("a").in_flight_max as u64;
    let before = alone.to_client.len();
    for id in 0..max + 5 {
        alone.says(10_000 + id, "tools/call", json!({"name": "a__x"}));
    }
    assert_eq!(alone.to_client.len(), before + 5);
    assert!(text(&alone.to_client[before]).contains("nothing was done"));
    assert!(alone.to_server.iter().all(|line| line["method"] == "initialize"));
    alone.answers(r#"{"capabilities":{"tools":{}}}"#);
    let calls = |line: &&Value| line["method"] == "tools/call";
    assert_eq!(alone.to_server.iter().filter(calls).count() as u64, max);
    // One more than the server may have.
    alone.says(20_000, "tools/call", json!({"name": "a__x"}));
    assert!(text(alone.to_client.last().expect("an answer")).contains("in_flight_max"));
}

#[test]
fn a_client_has_so_many_calls_at_once() {
    let wide = Backend { in_flight_max: 65_536, ..backend("a") };
    let mut world = World::new(settings(), &[(wide, &["get"]), (backend("b"), &["get"])]);
    world.legacy(1);
    world.legacy(2);
    world.silent.push("tools/call");
    for _ in 0..CLIENT_FLIGHTS_MAX {
        let id = world.send(1, "tools/call", json!({"name": "a__get"}));
        assert_eq!(world.answer_to(1, &id), None);
    }
    for tool in ["a__get", "b__get"] {
        let answer = world.call(1, tool);
        assert!(text(&answer).contains("too many requests"), "{answer}");
    }
    // Another client has its own.
    let id = world.send(2, "tools/call", json!({"name": "a__get"}));
    assert_eq!(world.answer_to(2, &id), None);
}

#[test]
fn a_client_has_so_many_subscriptions_and_streams() {
    let mut world = two();
    world.modern.push("a");
    world.legacy(1);
    for n in 0..CLIENT_SUBSCRIPTIONS_MAX {
        let answer = world.ask(1, "resources/subscribe", json!({"uri": format!("x://a/{n}/b")}));
        assert!(answer["result"].is_object(), "{n}: {answer}");
    }
    let answer = world.ask(1, "resources/subscribe", json!({"uri": "x://a/last/b"}));
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    world.ask(1, "resources/unsubscribe", json!({"uri": "x://a/0/b"}));
    let answer = world.ask(1, "resources/subscribe", json!({"uri": "x://a/last/b"}));
    assert!(answer["result"].is_object(), "{answer}");

    world.join(2, super::Access::default());
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    let listen = |uris: usize| {
        let uris: Vec<String> = (0..uris).map(|n| format!("x://a/{n}/b")).collect();
        let notifications = json!({"toolsListChanged": true, "resourceSubscriptions": uris});
        json!({"_meta": meta, "notifications": notifications})
    };
    let answer = world.ask(2, "subscriptions/listen", listen(CLIENT_SUBSCRIPTIONS_MAX + 1));
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    for _ in 0..CLIENT_LISTENS_MAX {
        let id = world.send(2, "subscriptions/listen", listen(0));
        assert_eq!(world.answer_to(2, &id), None);
    }
    let answer = world.ask(2, "subscriptions/listen", listen(0));
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
}

#[test]
fn subscriptions_have_so_many_bytes() {
    let mut world = two();
    world.legacy(1);
    let subscribe = |world: &mut World, uri: String| {
        let answer = world.ask(1, "resources/subscribe", json!({"uri": uri}));
        answer["error"]["code"].as_i64()
    };
    let long = |n: usize| format!("x://a/{}{n}/b", "x".repeat(4_000));
    let too_long = format!("x://a/{}/b", "x".repeat(CATALOG_NAME_CHARS_MAX));
    assert_eq!(subscribe(&mut world, too_long), Some(-32603));
    let taken = (0..100).take_while(|n| subscribe(&mut world, long(*n)).is_none()).count();
    assert_eq!(taken, CLIENT_SUBSCRIPTIONS_BYTES_MAX / long(10).len());
    world.ask(1, "resources/unsubscribe", json!({"uri": long(1)}));
    assert_eq!(subscribe(&mut world, long(98)), None);

    world.join(2, super::Access::default());
    let uris: Vec<String> = (0..33).map(long).collect();
    let listen = json!({
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"},
        "notifications": {"resourceSubscriptions": uris, "x": "y".repeat(LISTEN_FILTER_BYTES_MAX)},
    });
    assert_eq!(world.ask(2, "subscriptions/listen", listen.clone())["error"]["code"], -32602);
    let mut shorter = listen;
    shorter["notifications"]["x"] = Value::Null;
    assert_eq!(world.ask(2, "subscriptions/listen", shorter)["error"]["code"], -32603);
}

#[test]
fn a_request_with_a_long_id_is_an_error() {
    let mut world = two();
    world.legacy(1);
    for (length, is_served) in [(CLIENT_ID_BYTES_MAX - 2, true), (CLIENT_ID_BYTES_MAX - 1, false)] {
        let id = json!("x".repeat(length));
        world.says(1, &json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
        let answer = world.answer_to(1, &id).expect("an answer");
        assert_eq!(answer["result"].is_object(), is_served, "{length}");
    }
}

#[test]
fn a_client_that_says_too_much_of_itself_has_no_session() {
    let mut world = two();
    let long = json!({"name": "x".repeat(CLIENT_INTRODUCTION_BYTES_MAX), "version": "1"});
    world.join(1, super::Access::default());
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": long});
    assert_eq!(world.ask(1, "initialize", params)["error"]["code"], -32602);
    world.join(2, super::Access::default());
    let modern = |info: &Value, other: usize| {
        json!({"_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": info,
            "com.example/other": "x".repeat(other),
        }})
    };
    assert_eq!(world.ask(2, "tools/list", modern(&long, 0))["error"]["code"], -32602);
    let short = json!({"name": "x", "version": "1"});
    let answer = world.ask(2, "tools/list", modern(&short, CLIENT_INTRODUCTION_BYTES_MAX));
    assert!(answer["result"].is_object(), "the rest of `_meta` is not about the client: {answer}");
}

#[test]
fn a_server_that_leaves_calls_unanswered_is_left_alone_for_a_while() {
    let call_timeout = Some(Duration::from_secs(1));
    let slow = Backend { call_timeout, ..backend("a") };
    let mut world = World::new(settings(), &[(slow, &["get"])]);
    world.legacy(1);
    world.silent.push("tools/call");
    for _ in 0..TIMEOUTS_IN_A_ROW_MAX {
        world.send(1, "tools/call", json!({"name": "a__get"}));
        world.wait(Duration::from_secs(1));
    }
    let asked = |world: &World| {
        world.heard.iter().filter(|(_, line)| line["method"] == "tools/call").count()
    };
    let before = asked(&world);
    assert!(text(&world.call(1, "a__get")).contains("it is tried again in 30 s"));
    world.wait(CIRCUIT_OPEN_FOR - A_MOMENT);
    world.call(1, "a__get");
    assert_eq!(asked(&world), before);
    world.wait(A_MOMENT);
    // One to see, and no more than one.
    world.send(1, "tools/call", json!({"name": "a__get"}));
    world.call(1, "a__get");
    assert_eq!(asked(&world), before + 1);
}

#[test]
fn a_session_that_was_lost_is_tried_again_after_a_while() {
    let mut world = two();
    world.legacy(1);
    let link = world.link("a");
    world.silent.push("initialize");
    world.input(Input::LinkLost { link, why: "it fell over".to_owned() });
    assert!(text(&world.call(1, "a__get")).contains("it fell over"));
    let asked = |world: &World| {
        world.heard.iter().filter(|(_, line)| line["method"] == "initialize").count()
    };
    world.wait(SESSION_RETRY - A_MOMENT);
    assert_eq!(asked(&world), 0);
    world.wait(A_MOMENT);
    assert_eq!(asked(&world), 1);
}

#[test]
fn a_server_that_does_not_answer_a_probe_is_spoken_to_as_before() {
    let mut world = two();
    world.silent.push("server/discover");
    world.join(1, super::Access::default());
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    let id = world.send(1, "tools/call", json!({"_meta": meta, "name": "a__get"}));
    world.wait(PROBE_MAX - A_MOMENT);
    assert_eq!(world.answer_to(1, &id), None);
    world.wait(A_MOMENT);
    assert_eq!(text(&world.answer_to(1, &id).expect("an answer")), "a did get");
}

#[test]
fn a_search_finds_so_many() {
    let tools = (0..FOUND_TOOLS_MAX + 10).map(|n| &*format!("get{n}").leak());
    let tools: Vec<&'static str> = tools.collect();
    let settings = Settings { expose: Expose::Search, ..settings() };
    let mut world = World::new(settings, &[(backend("a"), &tools)]);
    world.legacy(1);
    let mut find = |limit: Value| {
        let arguments = json!({"query": "get", "limit": limit});
        let answer =
            world.ask(1, "tools/call", json!({"name": "find_tools", "arguments": arguments}));
        text(&answer).lines().count() - 1
    };
    assert_eq!(find(Value::Null), FOUND_TOOLS);
    assert_eq!(find(json!(3)), 3);
    assert_eq!(find(json!(1_000_000)), FOUND_TOOLS_MAX);
    assert_eq!(find(json!(0)), 1);
}

#[test]
fn what_is_too_long_or_not_taken_is_answered_in_its_place() {
    let mut world = two();
    world.legacy(1);
    world.silent.push("tools/call");
    let client = super::ClientId(1);
    let beginning =
        br#"{"jsonrpc":"2.0","id":"long","method":"tools/call","params":{"x":"aaa"#.to_vec();
    world.input(Input::ClientTooLong { client, beginning, ending: b"aaa\"}}".to_vec() });
    let answer = world.answer_to(1, &json!("long")).expect("an answer");
    assert_eq!(answer["error"]["code"], -32600);
    assert!(answer.to_string().contains("longer than the limit of 67108864 bytes"), "{answer}");
    for (why, said) in [
        (NotTaken::Full, "does not read what it is sent"),
        (NotTaken::Blocked("no such folder".to_owned()), "no such folder"),
    ] {
        let id = world.send(1, "tools/call", json!({"name": "a__get"}));
        let (link, line) = (world.link("a"), world.heard.last().expect("a call").1.clone());
        world.input(Input::NotTaken { link, line: line.to_string().into_bytes(), why });
        let answer = world.answer_to(1, &id).expect("an answer");
        assert!(answer["error"]["message"].to_string().contains(said), "{answer}");
    }
    assert_eq!(world.hub.in_flight(), 0);
}

/// Requests for the list of tools in one line.
fn batch(count: usize) -> Vec<u8> {
    let list = |id: usize| json!({"jsonrpc": "2.0", "id": 100 + id, "method": "tools/list"});
    Value::from((0..count).map(list).collect::<Vec<_>>()).to_string().into_bytes()
}

/// A list as long as a page.
fn long_page() -> String {
    let entry = |n: usize| format!(r#"{{"name":"t{n}","description":"{}"}}"#, "x".repeat(9_900));
    let tools: Vec<String> = (0..100).map(entry).collect();
    format!(r#"{{"tools":[{}]}}"#, tools.join(","))
}

#[test]
fn a_batch_is_answered_as_far_as_one_turn_goes() {
    let mut alone = Alone::new();
    alone.begin();
    alone.answers_to("tools/list", &long_page());
    alone.to_client.clear();
    let client = super::ClientId(1);
    alone.input(Input::Client { client, line: batch(200) });
    let (busy, whole): (Vec<&Value>, Vec<&Value>) =
        alone.to_client.iter().partition(|answer| answer["error"].is_object());
    assert_eq!(busy.len() + whole.len(), 200);
    let fit = TURN_ANSWERS_BYTES_MAX / 1_000_000 + 1;
    assert!((fit - 1..=fit + 1).contains(&whole.len()), "{}", whole.len());
    assert_eq!(busy[0]["error"]["data"]["reason"], "server_busy", "{}", busy[0]);
    // The next one is another turn.
    assert_eq!(alone.tools(), 100);
    // One that is too long is none.
    alone.to_client.clear();
    alone.input(Input::Client { client, line: batch(FRONT_BATCH_MAX + 1) });
    let [error] = &alone.to_client[..] else { panic!("{:?}", alone.to_client) };
    assert_eq!((&error["id"], &error["error"]["code"]), (&Value::Null, &json!(-32600)));
}

#[test]
fn a_batch_of_a_server_has_a_bound_too() {
    let mut alone = Alone::new();
    alone.begin();
    for (count, is_long) in [(FRONT_BATCH_MAX, false), (FRONT_BATCH_MAX + 1, true)] {
        let (link, line) = (alone.link, vec!["1"; count].join(","));
        alone.input(Input::Link { link, line: format!("[{line}]").into_bytes(), about: None });
        let is_said = alone.log.iter().any(|text| text.contains("too many messages"));
        assert_eq!(is_said, is_long, "{:?}", alone.log);
    }
}

#[test]
fn lists_that_waited_are_answered_turn_by_turn() {
    let mut alone = Alone::new();
    alone.begin();
    let client = super::ClientId(1);
    alone.input(Input::Client { client, line: batch(20) });
    let answers = |alone: &Alone| {
        alone.to_client.iter().filter(|line| line["result"]["tools"].is_array()).count()
    };
    assert_eq!(answers(&alone), 0, "the server is starting");
    alone.answers_to("tools/list", &long_page());
    let mut before = answers(&alone);
    assert!((1..10).contains(&before), "{before}");
    while before < 20 {
        assert!(alone.hub.next_wakeup() <= Some(alone.now), "it goes on at once");
        alone.input(Input::Wakeup);
        let now = answers(&alone);
        assert!(now > before && now < before + 10, "{now} after {before}");
        before = now;
    }
}
