//! What a client must see, and whether it does.

use std::collections::{BTreeMap, BTreeSet};

use afresh_core::gateway::backend::{Backend, Expose, Prefix, Transport};
use afresh_core::hidden_characters::{escaped, is_hidden};
use serde_json::{Value, json};

use super::{ADMIN, Kind, Listed, PAGE_BYTES_MAX, PAGE_ENTRIES_MAX, World, fits_any};

/// One entry that a client must see.
struct Wanted {
    exposed: String,
    /// None where it is our own.
    of: Option<(String, Listed)>,
}

fn exposed(backend: &Backend, kind: Kind, own: &str) -> String {
    match (&backend.prefix, kind.has_prefix()) {
        (Prefix::Name, true) => format!("{}__{own}", backend.name),
        (Prefix::Text(text), true) => format!("{text}{own}"),
        (Prefix::None, true) | (_, false) => own.to_owned(),
    }
}

fn is_allowed(backend: &Backend, kind: Kind, own: &str) -> bool {
    kind != Kind::Tools
        || backend.allow.as_ref().is_none_or(|allow| fits_any(allow, own))
            && !fits_any(&backend.deny, own)
            // By these names the gateway calls what stands in front of a program.
            && !own.starts_with("afresh:")
}

fn without(mut entry: Value, key: &str) -> Value {
    entry.as_object_mut().expect("an object").remove(key);
    entry
}

fn is_remote(backend: &Backend) -> bool {
    matches!(backend.transport, Transport::Http(_))
}

/// A value in whose texts all can be seen.
fn visible(value: Value) -> Value {
    match value {
        Value::String(text) => escaped(&text).into(),
        Value::Array(items) => items.into_iter().map(visible).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(key, value)| (escaped(&key).into_owned(), visible(value)))
            .collect(),
        other => other,
    }
}

/// What all servers have to offer, as it must be seen.
#[derive(Default)]
pub(super) struct Offer {
    /// The first of each name that may be used, by its name for clients, in the order of the servers.
    entries: BTreeMap<(usize, Kind), Vec<(String, Listed)>>,
    /// The first server in the configuration that has a name.
    firsts: BTreeMap<(Kind, String), usize>,
}

impl World {
    pub(super) fn note_offer(&mut self) {
        let mut offer = Offer::default();
        for (at, backend) in self.backends.iter().enumerate() {
            let link = self.links.values().find(|link| link.server == backend.name);
            for kind in Kind::ALL {
                let mut seen = BTreeSet::new();
                let all = link.and_then(|link| link.lists.get(&kind)).into_iter().flatten();
                let named = |entry: &Listed| {
                    let own = entry.own.as_ref().filter(|own| is_allowed(backend, kind, own))?;
                    if is_remote(backend) && own.contains(is_hidden) {
                        return None;
                    }
                    let name = exposed(backend, kind, own);
                    seen.insert(name.clone()).then(|| (name, entry.clone()))
                };
                let entries: Vec<(String, Listed)> = all.filter_map(named).collect();
                for (name, _) in &entries {
                    offer.firsts.entry((kind, name.clone())).or_insert(at);
                }
                offer.entries.insert((at, kind), entries);
            }
        }
        self.offer = offer;
    }

    fn first(&self, kind: Kind, name: &str) -> Option<&Backend> {
        self.offer.firsts.get(&(kind, name.to_owned())).map(|at| &self.backends[*at])
    }

    fn may_use(&self, client: u64, backend: &Backend) -> bool {
        let prefix = exposed(backend, Kind::Tools, "");
        self.clients[&client].access.has_server(&backend.name, &prefix)
    }

    /// Whether things of this kind are for a client: where only tools are named, its server must have one of them.
    fn may_see(&self, client: u64, at: usize, kind: Kind) -> bool {
        let access = &self.clients[&client].access;
        let mut tools = self.offer.entries[&(at, Kind::Tools)].iter();
        let is_by_tools = access.servers.is_none() && access.tools.is_some();
        self.may_use(client, &self.backends[at])
            && (kind == Kind::Tools
                || !is_by_tools
                || tools.any(|(name, _)| self.may_call(client, name)))
    }

    fn may_call(&self, client: u64, name: &str) -> bool {
        let access = &self.clients[&client].access;
        access.tools.as_ref().is_none_or(|tools| fits_any(tools, name))
    }

    /// Whether a name is one of our own: then no server has it.
    fn is_own(&self, name: &str) -> bool {
        let is_program = |backend: &Backend| matches!(backend.transport, Transport::Stdio(_));
        match name {
            "find_tools" | "call_tool" => self.settings.expose == Expose::Search,
            _ => {
                self.settings.admin_tools
                    && ADMIN.contains(&name)
                    && self.backends.iter().any(is_program)
            }
        }
    }

    /// Our own tools, as a client sees them.
    fn own_names(&self, client: u64) -> Vec<String> {
        let mut names = Vec::new();
        if self.settings.expose == Expose::Search {
            names.extend(["find_tools", "call_tool"].map(str::to_owned));
        }
        let is_program = |backend: &Backend| {
            matches!(backend.transport, Transport::Stdio(_)) && self.may_use(client, backend)
        };
        if self.settings.admin_tools && self.backends.iter().any(is_program) {
            let admin = ADMIN.into_iter().filter(|name| self.may_call(client, name));
            names.extend(admin.map(str::to_owned));
        }
        names
    }

    /// All that a client may use, in the order of the configuration.
    fn wanted(&self, client: u64, kind: Kind) -> Vec<Wanted> {
        let mut all: Vec<Wanted> = Vec::new();
        let mut seen = BTreeSet::new();
        for (at, backend) in self.backends.iter().enumerate() {
            let link = self.links.values().find(|link| link.server == backend.name);
            let is_hidden = backend.hide_when_down && link.is_some_and(|link| !link.is_up);
            if is_hidden || !self.may_see(client, at, kind) {
                continue;
            }
            for (name, entry) in &self.offer.entries[&(at, kind)] {
                // A tool or prompt means the same to everybody, whoever may use it.
                let first = self.first(kind, name).filter(|_| kind.has_prefix());
                let is_taken = first.is_some_and(|first| first.name != backend.name)
                    || kind == Kind::Tools && self.is_own(name);
                let is_its = kind != Kind::Tools || self.may_call(client, name);
                if is_its && !is_taken && seen.insert(name) {
                    let of = Some((backend.name.clone(), entry.clone()));
                    all.push(Wanted { exposed: name.clone(), of });
                }
            }
        }
        all
    }

    /// A client looks at everything.
    pub(super) fn look(&mut self, client: u64) {
        self.check_cursors(client);
        if self.settings.expose == Expose::Search {
            self.search(client);
        }
        for kind in Kind::ALL {
            let shown = self.list(client, kind);
            let names = self.names(client, kind, &shown);
            if !self.is_mixed {
                self.compare(client, kind, &shown, &names);
            }
            self.follow(client, kind, &names);
            let before =
                self.clients.get_mut(&client).expect("it is there").shown.insert(kind, shown);
            let changed = before.is_some_and(|before| before != self.clients[&client].shown[&kind]);
            let notification = format!("notifications/{}/list_changed", kind.capability());
            let is_told = self.clients[&client].told.contains(&notification);
            assert!(
                !changed || is_told || self.is_mixed,
                "seed {}: {kind:?} of {client}",
                self.seed
            );
        }
        self.try_denied(client);
        self.clients.get_mut(&client).expect("it is there").told.clear();
    }

    /// The whole list, page by page.
    fn list(&mut self, client: u64, kind: Kind) -> Vec<Value> {
        let (member, _) = kind.members();
        let (mut all, mut params) = (Vec::new(), json!({}));
        loop {
            let answer = self.answered(client, kind.method(), params);
            let result = &answer["result"];
            let page = result[member].as_array().unwrap_or_else(|| panic!("{answer}"));
            assert!(page.len() <= PAGE_ENTRIES_MAX);
            assert!(page.len() <= 1 || result[member].to_string().len() <= 2 * PAGE_BYTES_MAX);
            all.extend(page.iter().cloned());
            match &result["nextCursor"] {
                Value::Null => return all,
                next => params = json!({ "cursor": next }),
            }
            assert!(!page.is_empty(), "seed {}: a page without an entry", self.seed);
        }
    }

    /// The names in a list: each is there once.
    fn names(&self, client: u64, kind: Kind, shown: &[Value]) -> Vec<String> {
        let (_, key) = kind.members();
        let seed = self.seed;
        let name = |entry: &Value| match entry[key].as_str() {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => panic!("seed {seed}: {entry}"),
        };
        let names: Vec<String> = shown.iter().map(name).collect();
        let mut seen = BTreeSet::new();
        let twice = names.iter().find(|name| !seen.insert(*name));
        assert_eq!(twice, None, "seed {seed}: {kind:?} of {client}");
        names
    }

    /// The list is what it must be, and each entry what its server gave but for the name.
    fn compare(&mut self, client: u64, kind: Kind, shown: &[Value], names: &[String]) {
        let mut wanted = self.wanted(client, kind);
        if kind == Kind::Tools {
            let found = &self.clients[&client].found;
            wanted.retain(|wanted| {
                self.settings.expose == Expose::All || found.contains(&wanted.exposed)
            });
            let own = self.own_names(client).into_iter();
            wanted.extend(own.map(|exposed| Wanted { exposed, of: None }));
        }
        let expected: Vec<&String> = wanted.iter().map(|wanted| &wanted.exposed).collect();
        assert_eq!(names.iter().collect::<Vec<_>>(), expected, "seed {}: {kind:?}", self.seed);
        let (_, key) = kind.members();
        for _ in 0..shown.len().min(2) {
            let at = self.random.below(shown.len());
            let (entry, wanted) = (&shown[at], &wanted[at]);
            if let Some((server, listed)) = &wanted.of {
                let theirs: Value = serde_json::from_slice(&listed.raw).expect("proper");
                let of_remote = |its: &Backend| its.name == *server && is_remote(its);
                let theirs = match self.backends.iter().any(of_remote) {
                    true => visible(theirs),
                    false => theirs,
                };
                assert_eq!(without(entry.clone(), key), without(theirs, key), "seed {}", self.seed);
            }
        }
    }

    /// Uses what a name stands for; returns which servers were asked for what.
    fn usage(&mut self, client: u64, kind: Kind, name: &str) -> Vec<(String, String)> {
        self.calls.clear();
        let (method, params) = match kind {
            Kind::Tools => ("tools/call", json!({"name": name, "arguments": {}})),
            Kind::Prompts => ("prompts/get", json!({ "name": name })),
            Kind::Resources => ("resources/read", json!({ "uri": name })),
            Kind::Templates => {
                let reference = json!({"type": "ref/resource", "uri": name});
                ("completion/complete", json!({"ref": reference, "argument": {"name": "id"}}))
            }
        };
        self.answered(client, method, params);
        let calls = std::mem::take(&mut self.calls);
        let asked = calls.into_iter().map(|(link, line)| {
            let params = &line["params"];
            let name = match kind {
                Kind::Tools | Kind::Prompts => &params["name"],
                Kind::Resources => &params["uri"],
                Kind::Templates => &params["ref"]["uri"],
            };
            (self.links[&link].server.clone(), name.as_str().expect("a name").to_owned())
        });
        asked.collect()
    }

    /// Each name leads to one server, and to what that one calls it.
    fn follow(&mut self, client: u64, kind: Kind, names: &[String]) {
        let wanted = self.wanted(client, kind);
        for _ in 0..names.len().min(2) {
            let name = self.random.of(names).clone();
            if kind == Kind::Tools && self.is_own(&name) {
                continue;
            }
            let asked = self.usage(client, kind, &name);
            let [(server, own)] = &asked[..] else {
                panic!("seed {}: {kind:?} {name:?} leads to {asked:?}", self.seed)
            };
            self.count.names += 1;
            let backend = self.backends.iter().find(|its| its.name == *server).expect("known");
            assert_eq!(exposed(backend, kind, own), name, "seed {}", self.seed);
            let mut links = self.links.values().filter(|link| link.server == *server);
            let has = links.any(|link| {
                let all = link.lists.get(&kind).into_iter().flatten();
                all.filter_map(|entry| entry.own.as_ref()).any(|its| its == own)
            });
            let is_its = has && is_allowed(backend, kind, own) && self.may_use(client, backend);
            assert!(is_its, "seed {}: {kind:?} {name:?} is none of {server}", self.seed);
            if !self.is_mixed {
                let wanted = wanted.iter().find(|wanted| wanted.exposed == name).expect("listed");
                let (of, _) = wanted.of.as_ref().expect("a server's");
                assert_eq!(of, server, "seed {}: {kind:?} {name:?}", self.seed);
            }
        }
    }

    /// What is denied cannot be used, by whichever name.
    fn try_denied(&mut self, client: u64) {
        let mut denied = Vec::new();
        for link in self.links.values() {
            let backend = self.backends.iter().find(|its| its.name == link.server).expect("known");
            // Also what it does not list.
            let listed = link.lists.get(&Kind::Tools).into_iter().flatten();
            let listed = listed.filter_map(|entry| entry.own.clone());
            for own in listed.chain(["get".to_owned(), "s x".to_owned()]) {
                let name = exposed(backend, Kind::Tools, &own);
                let is_denied = !is_allowed(backend, Kind::Tools, &own)
                    || !self.may_use(client, backend)
                    || !self.may_call(client, &name);
                if is_denied {
                    denied.push((backend.name.clone(), own, name));
                }
            }
        }
        for _ in 0..denied.len().min(2) {
            let (server, own, name) = self.random.of(&denied).clone();
            let may_call = self.may_call(client, &name);
            if self.is_own(&name) {
                continue;
            }
            let asked = self.usage(client, Kind::Tools, &name);
            let is_reached = asked.contains(&(server.clone(), own.clone()));
            assert!(!is_reached, "seed {}: {server} was asked for {own:?}", self.seed);
            assert!(may_call || asked.is_empty(), "seed {}: {asked:?}", self.seed);
        }
    }

    /// Finds some tools, which are in the list from then on.
    fn search(&mut self, client: u64) {
        let query = *self.random.of(&["", "get", "é", "does set"]);
        let limit = self.random.below(60);
        let arguments = json!({"query": query, "limit": limit});
        let params = json!({"name": "find_tools", "arguments": arguments});
        let answer = self.answered(client, "tools/call", params);
        let text = answer["result"]["content"][0]["text"].as_str().expect("a text");
        let found = text.split_once('\n').map_or("", |(_, found)| found);
        let found = serde_json::Deserializer::from_str(found).into_iter::<Value>();
        let found: Vec<Value> = found.map(|entry| entry.expect("an entry")).collect();
        let names = self.names(client, Kind::Tools, &found);
        if !self.is_mixed {
            let wanted = self.wanted(client, Kind::Tools);
            for name in &names {
                let is_wanted = wanted.iter().any(|wanted| wanted.exposed == *name);
                assert!(is_wanted, "seed {}: {name:?} was found", self.seed);
            }
        }
        self.clients.get_mut(&client).expect("it is there").found.extend(names);
    }

    /// Cursors that were never given are refused, or lead to the end.
    fn check_cursors(&mut self, client: u64) {
        let cursors = [
            json!(""),
            json!("p"),
            json!("q1"),
            json!("p-1"),
            json!("p 1"),
            json!("p99999999999999999999"),
            json!(7),
            json!({"p": 1}),
            json!("p18446744073709551615"),
        ];
        let at = self.random.below(cursors.len());
        let kind = *self.random.of(&Kind::ALL);
        let answer = self.answered(client, kind.method(), json!({"cursor": cursors[at]}));
        match at + 1 == cursors.len() {
            true => assert_eq!(answer["result"][kind.members().0], json!([]), "{answer}"),
            false => assert_eq!(answer["error"]["code"], -32602, "{answer}"),
        }
    }

    /// Where two servers have one name, the log has named both.
    pub(super) fn check_log(&mut self) {
        if self.is_mixed {
            return;
        }
        let mut clashes = Vec::new();
        for ((at, kind), entries) in &self.offer.entries {
            let second = &self.backends[*at].name;
            for (name, _) in entries {
                let first = &self.first(*kind, name).expect("one has it").name;
                let who = match *kind == Kind::Tools && self.is_own(name) {
                    true => format!("afresh itself and the server `{second}`"),
                    false if first != second => format!("the servers `{first}` and `{second}`"),
                    false => continue,
                };
                clashes.push((format!("{who} both have "), *kind, format!("`{name}`")));
            }
        }
        self.count.clashes += clashes.len();
        for (who, kind, name) in clashes {
            let list = format!(" among their {}: ", kind.members().0);
            // A line names some, and says how many more there are.
            let is_said = self.log.iter().any(|text| {
                text.contains(&who)
                    && text.contains(&list)
                    && (text.contains(&name) || text.contains(&format!(" more{list}")))
            });
            assert!(is_said, "seed {}: nothing is said of {who}{name}", self.seed);
        }
    }
}
