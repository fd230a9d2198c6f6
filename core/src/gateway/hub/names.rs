//! Whose a name is, where more than one have it.

use std::collections::BTreeMap;

use super::super::catalog::Entry;
use super::Hub;
use crate::limits::CLASHES_NAMED;
use crate::mcp::Kind;

/// Two that have something of one name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Clash {
    kind: Kind,
    /// The server whose it is; afresh itself where there is none.
    first: Option<usize>,
    /// The server whose it would be.
    second: usize,
    name: String,
}

impl Hub {
    /// The servers stand in the configuration like this; one that has changed has a new slot, and its old
    /// place.
    pub(super) fn put_in_order(&mut self, names: &[String]) {
        let slot = |name: &String| {
            self.servers.iter().position(|its| !its.is_gone && its.backend.name == *name)
        };
        self.order = names.iter().filter_map(slot).collect();
    }

    /// Which server has what. Our own tools have their names for themselves; where two servers have the same
    /// name, the first in the configuration keeps it.
    pub(super) fn make_routes(&mut self) {
        let mut routes: BTreeMap<(Kind, String), (usize, String)> = BTreeMap::new();
        let mut clashes = Vec::new();
        for second in self.order.iter().copied() {
            let server = &self.servers[second];
            for kind in [Kind::Tools, Kind::Prompts] {
                for entry in server.known.get(&kind).into_iter().flatten() {
                    let key = (kind, entry.exposed.clone());
                    let first = match routes.get(&key) {
                        _ if kind == Kind::Tools && self.is_own_name(&entry.exposed) => None,
                        None => {
                            routes.insert(key, (second, entry.own.clone()));
                            continue;
                        }
                        Some((first, _)) if *first == second => continue,
                        Some((first, _)) => Some(*first),
                    };
                    clashes.push(Clash { kind, first, second, name: entry.exposed.clone() });
                }
            }
        }
        self.routes = routes;
        self.tell_clashes(clashes);
    }

    /// Whether what a server offers can be used under its name, as far as others have that name too.
    pub(super) fn is_of(&self, slot: usize, kind: Kind, entry: &Entry) -> bool {
        if kind == Kind::Tools && self.is_own_name(&entry.exposed) {
            return false;
        }
        match kind {
            Kind::Tools | Kind::Prompts => {
                let route = self.routes.get(&(kind, entry.exposed.clone()));
                route.is_none_or(|(first, _)| *first == slot)
            }
            Kind::Resources | Kind::Templates => true,
        }
    }

    /// Says which names clash that did not before.
    fn tell_clashes(&mut self, clashes: Vec<Clash>) {
        let known = std::mem::take(&mut self.clashes);
        let mut news: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for clash in clashes.iter().filter(|clash| !known.contains(*clash)) {
            let names = news.entry((clash.kind, clash.first, clash.second)).or_default();
            names.push(&clash.name);
        }
        let mut texts = Vec::new();
        for ((kind, first, second), names) in news {
            let of = |slot: usize| format!("`{}`", self.servers[slot].backend.name);
            let who = match first {
                Some(first) => format!("the servers {} and {}", of(first), of(second)),
                None => format!("afresh itself and the server {}", of(second)),
            };
            let mut text: Vec<String> =
                names.iter().take(CLASHES_NAMED).map(|name| format!("`{name}`")).collect();
            if names.len() > text.len() {
                text.push(format!("{} more", names.len() - text.len()));
            }
            let whose = if first.is_some() { "the first one's" } else { "afresh's own" };
            let which = if first.is_some() { "one of them" } else { "the server" };
            texts.push(format!(
                "error: {who} both have {} among their {}: only {whose} can be used; give {which} a \
                 `prefix`",
                text.join(", "),
                kind.members().0
            ));
        }
        self.clashes = clashes.into_iter().collect();
        for text in texts {
            self.log(text);
        }
    }
}
