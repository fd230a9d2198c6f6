//! Servers that are played, clients that look at everything, and what must be seen.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::RandomState;
use std::time::Duration;

use afresh_core::definition::HealthSettings;
use afresh_core::gateway::access_patterns::Access;
use afresh_core::gateway::backend::{
    Backend, ClientEra, Expose, HttpServer, Pin, Prefix, Share, StdioServer, Transport,
};
use afresh_core::gateway::inherited_env::InheritedEnv;
use afresh_core::gateway::{ClientId, Effect, Hub, Input, LinkId, Settings, StateKey};
use afresh_core::limits::{PAGE_BYTES_MAX, PAGE_ENTRIES_MAX, READINGS_PAUSE};
use afresh_core::policy::Policy;
use afresh_core::service::State;
use afresh_core::time::Time;
use serde_json::{Value, json};

use super::entries::{Kind, Listed, Page, Random};

#[path = "looks.rs"]
mod looks;

/// The tools that a conversation adds to those of its server.
const ADMIN: [&str; 4] =
    ["restart_server", "verify_server_restarted", "server_status", "server_logs"];

const MODERN: &str = "io.modelcontextprotocol/protocolVersion";

/// What has been done.
#[derive(Default)]
pub(crate) struct Count {
    pub(crate) pages: usize,
    pub(crate) entries: usize,
    pub(crate) names: usize,
    pub(crate) clashes: usize,
}

/// What a server answers.
struct Script {
    capabilities: Value,
    lists: BTreeMap<Kind, Vec<Page>>,
    is_modern: bool,
}

/// A list that is being read.
#[derive(Default)]
struct Reading {
    /// The page that is asked for.
    at: usize,
    cursor: Option<String>,
    /// One that comes again ends the list.
    cursors: BTreeSet<String>,
    entries: Vec<Listed>,
}

/// A link, as the server behind it sees it.
struct Link {
    server: String,
    is_up: bool,
    reading: BTreeMap<Kind, Reading>,
    /// What was last read to its end.
    lists: BTreeMap<Kind, Vec<Listed>>,
}

struct Client {
    access: Access,
    is_modern: bool,
    /// What it found by searching.
    found: BTreeSet<String>,
    /// What it was shown last.
    shown: BTreeMap<Kind, Vec<Value>>,
    /// Lists that it was told have changed.
    told: BTreeSet<String>,
}

pub(crate) struct World {
    pub(crate) count: Count,
    seed: u64,
    random: Random,
    hub: Hub,
    settings: Settings,
    now: Time,
    backends: Vec<Backend>,
    scripts: BTreeMap<String, Script>,
    links: BTreeMap<LinkId, Link>,
    clients: BTreeMap<u64, Client>,
    /// Both eras at once: then lists differ between the links of a server.
    is_mixed: bool,
    owed: Vec<(LinkId, Kind, String)>,
    /// What servers were asked since somebody last looked.
    calls: Vec<(LinkId, Value)>,
    answers: BTreeMap<String, Value>,
    log: Vec<String>,
    offer: looks::Offer,
    next_id: u64,
}

fn stdio() -> Transport {
    let health = HealthSettings { memory_bytes_max: None, wedge_timeout: None };
    Transport::Stdio(Box::new(StdioServer {
        command: vec!["server".to_owned()],
        cwd: None,
        env: Vec::new(),
        inherit_env: InheritedEnv::All,
        env_file: None,
        policy: Policy::default(),
        health,
        spare: false,
        watch: Vec::new(),
        watch_debounce: Duration::ZERO,
        tell_restarts: true,
    }))
}

/// Whether a name fits a pattern, tried in every way.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.into_iter().any(|at| fits(after, &rest[at..]))
        }),
    }
}

fn fits_any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| fits(pattern, name))
}

impl Random {
    /// A list of patterns, or none; seldom one that is empty.
    fn maybe_patterns(&mut self, all: &[&str]) -> Option<Vec<String>> {
        let patterns = self.patterns(all);
        (!patterns.is_empty() || self.one_in(12)).then_some(patterns)
    }

    fn patterns(&mut self, all: &[&str]) -> Vec<String> {
        let count = [0, 0, 0, 1, 2][self.below(5)];
        (0..count).map(|_| (*self.of(all)).to_owned()).collect()
    }

    fn backend(&mut self, name: &str) -> Backend {
        let texts = ["a__", "afresh_", "x.", "a", "\u{202e}", "get"];
        let prefix = match self.below(4) {
            0 => Prefix::None,
            1 => Prefix::Text((*self.of(&texts)).to_owned()),
            _ => Prefix::Name,
        };
        let url = format!("http://{name}.example/mcp");
        let transport = match self.below(3) {
            0 => stdio(),
            _ => Transport::Http(HttpServer { url, headers: Vec::new(), sse: None }),
        };
        let patterns = ["get*", "*", "set", "", "*_*", "a*b*", "工具", "many*1"];
        Backend {
            name: name.to_owned(),
            transport,
            prefix,
            allow: self.maybe_patterns(&patterns),
            deny: self.patterns(&["get", "s*", "*e*t*", "find_tools", "many*2", "\n*"]),
            share: Share::All,
            hide_when_down: self.one_in(2),
            call_timeout: None,
            in_flight_max: 65_536,
            pin: Pin::Off,
        }
    }

    fn script(&mut self) -> Script {
        let mut capabilities = json!({});
        for key in ["tools", "prompts", "resources"] {
            capabilities[key] = match self.below(12) {
                0 => json!(null),
                1 => json!(true),
                _ => json!({"listChanged": true}),
            };
        }
        let lists = Kind::ALL.map(|kind| (kind, self.pages(kind))).into();
        Script { capabilities, lists, is_modern: self.one_in(2) }
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let count = 1 + random.below(4);
        let backends: Vec<Backend> =
            ["a", "a__b", "b", "afresh"][..count].iter().map(|name| random.backend(name)).collect();
        let scripts =
            backends.iter().map(|backend| (backend.name.clone(), random.script())).collect();
        let settings = Settings {
            version: "1".to_owned(),
            is_single: false,
            expose: if random.one_in(4) { Expose::Search } else { Expose::All },
            admin_tools: random.one_in(2),
            start_wait: afresh_core::limits::GATEWAY_START_WAIT,
            era: ClientEra::Auto,
            state_key: StateKey([RandomState::new(), RandomState::new()]),
            is_traced: false,
            is_transparent: false,
            first_link: 0,
        };
        Self {
            count: Count::default(),
            seed,
            hub: Hub::new(settings.clone()),
            settings,
            now: Time::ZERO,
            backends,
            scripts,
            links: BTreeMap::new(),
            clients: BTreeMap::new(),
            is_mixed: random.one_in(4),
            owed: Vec::new(),
            calls: Vec::new(),
            answers: BTreeMap::new(),
            log: Vec::new(),
            offer: looks::Offer::default(),
            next_id: 0,
            random,
        }
    }

    /// Clients come, servers change what they have, and everybody looks at all of it each time.
    pub(crate) fn live(&mut self) {
        self.input(Input::Configured(self.backends.clone()));
        for client in 1..=2 {
            self.join(client);
        }
        for _ in 0..4 {
            self.settle();
            self.note_offer();
            for client in self.clients.keys().copied().collect::<Vec<_>>() {
                self.look(client);
            }
            self.check_log();
            self.change();
        }
    }

    fn input(&mut self, input: Input) {
        for effect in self.hub.handle(self.now, input) {
            match effect {
                Effect::Open { link, backend, .. } => {
                    let link_of = Link {
                        server: backend,
                        is_up: true,
                        reading: BTreeMap::new(),
                        lists: BTreeMap::new(),
                    };
                    self.links.insert(link, link_of);
                }
                Effect::Close { link } => {
                    self.links.remove(&link);
                    self.owed.retain(|(over, ..)| *over != link);
                }
                Effect::ToLink { link, line } => self.hear(link, &line),
                Effect::RestartCalled { .. } => {}
                Effect::ToClient { client, line, .. } => {
                    let seed = self.seed;
                    let read: Value = serde_json::from_slice(&line).unwrap_or_else(|error| {
                        panic!("seed {seed}: {error}: {}", String::from_utf8_lossy(&line))
                    });
                    let id = read["id"].as_str().map(str::to_owned);
                    match (id, read["method"].as_str()) {
                        (Some(id), _) => drop(self.answers.insert(id, read)),
                        (None, method) => {
                            let its = self.clients.get_mut(&client.0).expect("it is there");
                            its.told.extend(method.map(str::to_owned));
                        }
                    }
                }
                Effect::Log(text) => self.log.push(text),
                Effect::Refused { .. }
                | Effect::Pin(_)
                | Effect::StoreList(_)
                | Effect::Span(_) => {}
            }
        }
    }

    /// A server hears something.
    fn hear(&mut self, link: LinkId, line: &[u8]) {
        let heard: Value = serde_json::from_slice(line).expect("what we say is JSON");
        let (id, method) = (heard["id"].to_string(), heard["method"].as_str().unwrap_or_default());
        let Some(its) = self.links.get_mut(&link) else { panic!("over a link that is closed") };
        let script = &self.scripts[&its.server];
        if let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.method() == method) {
            let cursor = &heard["params"]["cursor"];
            match its.reading.get_mut(&kind) {
                Some(reading) if reading.at > 0 => {
                    let given = reading.cursor.as_ref().expect("there is one");
                    let given: Value = serde_json::from_str(given).expect("JSON");
                    assert_eq!(*cursor, given, "seed {}", self.seed);
                }
                _ => {
                    assert!(cursor.is_null(), "seed {}: {heard}", self.seed);
                    its.reading.insert(kind, Reading::default());
                }
            }
            return self.owed.push((link, kind, id));
        }
        let answer = match method {
            "initialize" => json!({"result": {"capabilities": script.capabilities}}),
            "server/discover" if script.is_modern => {
                json!({"result": {"supportedVersions": ["2026-07-28"], "capabilities": script.capabilities}})
            }
            "server/discover" => json!({"error": {"code": -32601, "message": "no"}}),
            _ if id == "null" || method == "subscriptions/listen" => return,
            _ => {
                self.calls.push((link, heard));
                json!({"result": {}})
            }
        };
        let (key, value) = answer.as_object().and_then(|it| it.iter().next()).expect("one");
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"{key}":{value}}}"#).into_bytes();
        self.input(Input::Link { link, line, about: None });
    }

    /// Answers what servers were asked, in any order, while they change their minds.
    fn settle(&mut self) {
        let mut patience = 500;
        loop {
            if self.owed.is_empty() {
                // One that has changed too often is read again when a pause is over.
                let due = self.hub.next_wakeup().filter(|at| *at <= self.now + READINGS_PAUSE);
                let Some(due) = due else { return };
                self.now = due;
                self.input(Input::Wakeup);
                continue;
            }
            let at = self.random.below(self.owed.len());
            let (link, kind, id) = self.owed.swap_remove(at);
            patience -= 1;
            if patience > 0 && self.random.one_in(20) {
                self.change_list(link, kind);
            }
            self.answer(link, kind, &id);
        }
    }

    /// Answers with one page.
    fn answer(&mut self, link: LinkId, kind: Kind, id: &str) {
        let Some(its) = self.links.get_mut(&link) else { return };
        let reading = its.reading.get_mut(&kind).expect("it was asked for");
        let pages = &self.scripts[&its.server].lists[&kind];
        // It may have been another list when it began.
        let page = pages.get(reading.at).cloned().unwrap_or(Page::Entries(Vec::new()));
        let is_last = reading.at + 1 >= pages.len();
        self.count.pages += 1;
        let cursor = self.random.cursor();
        let body = match &page {
            Page::Other(text) => (*text).to_owned().into_bytes(),
            Page::Entries(entries) => {
                let mut entries = entries.clone();
                self.count.entries += entries.len();
                let raws: Vec<Vec<u8>> = entries.iter().map(|entry| entry.raw.clone()).collect();
                reading.entries.append(&mut entries);
                let (member, _) = kind.members();
                let next = match is_last {
                    true => [r#","nextCursor":null"#, ""][self.random.below(2)].to_owned(),
                    false => format!(r#","nextCursor":{cursor}"#),
                };
                let mut body = format!(r#""result":{{"{member}":["#).into_bytes();
                body.extend_from_slice(&raws.join(&b","[..]));
                body.extend_from_slice(format!("]{next}}}").as_bytes());
                body
            }
        };
        match page {
            Page::Entries(_) if !is_last && reading.cursors.insert(cursor.clone()) => {
                reading.at += 1;
                reading.cursor = Some(cursor);
            }
            _ => {
                let done = its.reading.remove(&kind).expect("just used");
                if matches!(page, Page::Entries(_)) {
                    its.lists.insert(kind, done.entries);
                }
            }
        }
        let line = [format!(r#"{{"jsonrpc":"2.0","id":{id},"#).as_bytes(), &body, b"}"].concat();
        self.input(Input::Link { link, line, about: None });
    }

    /// A server has something else from now on, and says so.
    fn change_list(&mut self, link: LinkId, kind: Kind) {
        let Some(its) = self.links.get_mut(&link) else { return };
        let pages = self.random.pages(kind);
        self.scripts.get_mut(&its.server).expect("known").lists.insert(kind, pages);
        let line = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/{}/list_changed"}}"#,
            kind.capability()
        );
        self.input(Input::Link { link, line: line.into_bytes(), about: None });
    }

    fn change(&mut self) {
        let links: Vec<LinkId> = self.links.keys().copied().collect();
        let link = *self.random.of(&links);
        match self.random.below(4) {
            0 => {
                let is_up = self.random.one_in(2);
                self.links.get_mut(&link).expect("it is there").is_up = is_up;
                let state = if is_up { State::Ready } else { State::Restarting };
                self.input(Input::Serves { link, state });
            }
            1 => {
                // Another configuration: some change, one goes, one comes.
                for at in 0..self.backends.len() {
                    if self.random.one_in(3) {
                        self.backends[at] = self.random.backend(&self.backends[at].name.clone());
                    }
                }
                if self.random.one_in(2) && self.backends.len() > 1 {
                    let at = self.random.below(self.backends.len());
                    self.backends.remove(at);
                }
                if self.random.one_in(2) {
                    let backend = self.random.backend("late");
                    let script = self.random.script();
                    self.backends.retain(|backend| backend.name != "late");
                    self.scripts.insert("late".to_owned(), script);
                    self.backends.insert(0, backend);
                }
                self.input(Input::Configured(self.backends.clone()));
            }
            _ => {
                for _ in 0..=self.random.below(3) {
                    let kind = *self.random.of(&Kind::ALL);
                    let link = *self.random.of(&links);
                    self.change_list(link, kind);
                }
            }
        }
    }

    fn join(&mut self, client: u64) {
        let access = Access {
            name: "x".to_owned(),
            servers: self.random.maybe_patterns(&["a", "a*", "*b", "afresh", "*"]),
            tools: self.random.maybe_patterns(&["*", "*get*", "a__*", "find_tools", "*_*"]),
        };
        let is_modern = self.is_mixed && client == 2;
        let its = Client {
            access: access.clone(),
            is_modern,
            found: BTreeSet::new(),
            shown: BTreeMap::new(),
            told: BTreeSet::new(),
        };
        self.clients.insert(client, its);
        self.input(Input::Joined { client: ClientId(client), access });
        match is_modern {
            true => drop(self.ask(client, "server/discover", json!({}))),
            false => {
                let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
                self.ask(client, "initialize", params);
            }
        }
        if is_modern {
            let lists = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
            self.ask(client, "subscriptions/listen", json!({"notifications": lists}));
        }
    }

    /// Asks; the answer may come later.
    fn ask(&mut self, client: u64, method: &str, mut params: Value) -> String {
        self.next_id += 1;
        let id = format!("q{}", self.next_id);
        if self.clients[&client].is_modern {
            params["_meta"] = json!({ MODERN: "2026-07-28" });
        }
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let line = line.to_string().into_bytes();
        self.input(Input::Client { client: ClientId(client), line });
        id
    }

    /// The answer to what is asked now.
    fn answered(&mut self, client: u64, method: &str, params: Value) -> Value {
        let id = self.ask(client, method, params);
        let answer = self.answers.remove(&id);
        answer.unwrap_or_else(|| panic!("seed {}: no answer to {method}", self.seed))
    }
}
