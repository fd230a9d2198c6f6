//! Random histories: whatever happens, each request is answered once, or was given up by who asked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::super::super::access_patterns::Access;
use super::super::super::backend::{Backend, Share};
use super::super::super::{ClientId, Effect, Input, LinkId};
use super::super::{Hub, Settings};
use super::{backend, settings};
use crate::gateway::spans::SpanOutcome;
use crate::random::Random;
use crate::time::Time;

/// Servers that answer when they like, in any order, or get lost; clients that come and go.
struct History {
    hub: Hub,
    random: Random,
    now: Time,
    /// Requests that each server has and has not answered.
    owed: Vec<(LinkId, Value)>,
    links: BTreeSet<LinkId>,
    clients: BTreeSet<u64>,
    asked: BTreeSet<(u64, String)>,
    answered: BTreeMap<(u64, String), usize>,
    gone: BTreeSet<(u64, String)>,
    executed: BTreeMap<String, usize>,
    /// Requests that had a span.
    spans: BTreeSet<String>,
    /// Those among them that went to a server.
    traced: usize,
    next: u64,
}

impl History {
    fn input(&mut self, input: Input) {
        for effect in self.hub.handle(self.now, input) {
            match effect {
                Effect::Open { link, .. } => drop(self.links.insert(link)),
                Effect::Close { link } => {
                    self.links.remove(&link);
                    self.owed.retain(|(over, _)| *over != link);
                }
                Effect::ToClient { client, line, .. } => {
                    let line: Value = serde_json::from_slice(&line).expect("JSON");
                    assert!(self.clients.contains(&client.0), "told though gone: {line}");
                    if line["method"].is_null() {
                        let id = line["id"].as_str().expect("our ids are texts").to_owned();
                        *self.answered.entry((client.0, id)).or_default() += 1;
                    }
                }
                Effect::ToLink { link, line } => {
                    assert!(self.links.contains(&link), "over a link that is closed");
                    let line: Value = serde_json::from_slice(&line).expect("JSON");
                    if line["method"] == "tools/call" {
                        let mark = line["params"]["arguments"]["mark"].as_str().expect("a mark");
                        *self.executed.entry(mark.to_owned()).or_default() += 1;
                    }
                    if !line["id"].is_null() && !line["method"].is_null() {
                        self.owed.push((link, line));
                    }
                }
                Effect::Span(span) => {
                    let id = String::from_utf8_lossy(span.request.raw()).into_owned();
                    assert!(self.spans.insert(id), "two spans of one request: {span:?}");
                    let refused =
                        ["server_down", "server_busy", "circuit_open"].map(SpanOutcome::Failed);
                    self.traced += usize::from(!refused.contains(&span.outcome));
                }
                Effect::Refused { .. }
                | Effect::RestartCalled { .. }
                | Effect::Log(_)
                | Effect::Pin(_)
                | Effect::StoreList(_) => {}
            }
        }
    }

    fn pick(&mut self, below: usize) -> usize {
        (self.random.unit() * below as f64) as usize
    }

    fn step(&mut self) {
        match self.pick(20) {
            0 => {
                self.next += 1;
                let client = self.next;
                self.clients.insert(client);
                let access = Access::default();
                self.input(Input::Joined { client: ClientId(client), access });
                self.ask(
                    client,
                    "initialize",
                    json!({"protocolVersion": "2025-11-25", "capabilities": {}}),
                );
            }
            1 => {
                if let Some(client) = self.a_client().filter(|_| self.clients.len() > 2) {
                    self.clients.remove(&client);
                    let open = self.asked.iter().filter(|(whose, _)| *whose == client).cloned();
                    self.gone.extend(open.collect::<Vec<_>>());
                    self.input(Input::Left { client: ClientId(client) });
                }
            }
            2 => {
                let links: Vec<LinkId> = self.links.iter().copied().collect();
                if !links.is_empty() {
                    let link = links[self.pick(links.len())];
                    self.owed.retain(|(over, _)| *over != link);
                    self.input(Input::LinkLost { link, why: "it fell over".to_owned() });
                }
            }
            3 => {
                let long = u64::try_from(self.pick(8_000)).expect("it is small");
                self.now = self.now + Duration::from_millis(long);
                self.input(Input::Wakeup);
            }
            4 => {
                let names = ["a", "b", "c"];
                let mut all: Vec<Backend> = names.iter().map(|name| backend_of(name)).collect();
                if self.pick(4) == 0 {
                    all.remove(self.pick(3));
                }
                self.input(Input::Configured(all));
            }
            5..=10 => {
                if let Some(client) = self.a_client() {
                    let tool = ["a__x", "b__x", "c__x", "d__x"][self.pick(4)];
                    self.next += 1;
                    let mark = format!("m{}", self.next);
                    let params = json!({"name": tool, "arguments": {"mark": mark}});
                    let method = ["tools/call", "tools/call", "tools/list"][self.pick(3)];
                    let id = self.ask(client, method, params);
                    if self.pick(8) == 0 {
                        self.gone.insert((client, id.clone()));
                        let params = json!({"requestId": id});
                        let line = json!({"method": "notifications/cancelled", "params": params});
                        let line = line.to_string().into_bytes();
                        self.input(Input::Client { client: ClientId(client), line });
                    }
                }
            }
            _ => self.answer_one(),
        }
    }

    fn a_client(&mut self) -> Option<u64> {
        let all: Vec<u64> = self.clients.iter().copied().collect();
        (!all.is_empty()).then(|| all[self.pick(all.len())])
    }

    fn ask(&mut self, client: u64, method: &str, params: Value) -> String {
        self.next += 1;
        let id = format!("q{}", self.next);
        self.asked.insert((client, id.clone()));
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let line = line.to_string().into_bytes();
        self.input(Input::Client { client: ClientId(client), line });
        id
    }

    fn answer_one(&mut self) {
        if self.owed.is_empty() {
            return;
        }
        let at = self.pick(self.owed.len());
        let (link, line) = self.owed.remove(at);
        let result = match line["method"].as_str() {
            Some("initialize") => {
                json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}})
            }
            Some("tools/list") => json!({"tools": [{"name": "x"}]}),
            _ => json!({"content": []}),
        };
        let answer = match self.pick(10) {
            0 => {
                json!({"jsonrpc": "2.0", "id": line["id"], "error": {"code": -32603, "message": "no"}})
            }
            _ => json!({"jsonrpc": "2.0", "id": line["id"], "result": result}),
        };
        let times = if self.pick(10) == 0 { 2 } else { 1 };
        for _ in 0..times {
            let line = answer.to_string().into_bytes();
            self.input(Input::Link { link, line, about: None });
        }
    }
}

fn backend_of(name: &str) -> Backend {
    let share = match name {
        "c" => Share::PerClient { instances_max: 3, idle_after: Duration::from_secs(20) },
        _ => Share::All,
    };
    let call_timeout = (name == "b").then_some(Duration::from_secs(5));
    Backend { share, call_timeout, in_flight_max: 8, ..backend(name) }
}

fn play(seed: u64) {
    let mut history = History {
        hub: Hub::new(Settings { is_traced: true, ..settings() }),
        random: Random::new(seed),
        now: Time::ZERO,
        owed: Vec::new(),
        links: BTreeSet::new(),
        clients: BTreeSet::new(),
        asked: BTreeSet::new(),
        answered: BTreeMap::new(),
        gone: BTreeSet::new(),
        executed: BTreeMap::new(),
        spans: BTreeSet::new(),
        traced: 0,
        next: 0,
    };
    history.input(Input::Configured(["a", "b", "c"].map(backend_of).to_vec()));
    for _ in 0..300 {
        history.step();
    }
    // Everything comes to an end: servers answer, time passes.
    for _ in 0..400 {
        if history.owed.is_empty() {
            history.now = history.now + Duration::from_secs(7);
            history.input(Input::Wakeup);
        } else {
            history.answer_one();
        }
    }
    for (key, count) in &history.answered {
        assert_eq!(*count, 1, "seed {seed}: {key:?} was answered {count} times");
        assert!(history.asked.contains(key), "seed {seed}: nobody asked {key:?}");
    }
    for key in &history.asked {
        let is_answered = history.answered.contains_key(key);
        assert!(is_answered || history.gone.contains(key), "seed {seed}: {key:?} has no answer");
    }
    for (mark, count) in &history.executed {
        assert_eq!(*count, 1, "seed {seed}: {mark} was done {count} times");
    }
    assert_eq!(history.hub.in_flight(), 0, "seed {seed}");
    assert_eq!(history.traced, history.executed.len(), "seed {seed}: a span for each call");
}

#[test]
fn whatever_happens_each_request_is_answered_once() {
    for seed in 0..150 {
        play(seed);
    }
}
