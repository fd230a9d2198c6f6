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

/// A name of one server's that means something else now, or did before.
#[derive(Debug)]
pub(super) struct Moved {
    pub(super) kind: Kind,
    pub(super) slot: usize,
    pub(super) name: String,
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
    /// name, the first in the configuration keeps it. A resource is the first one's that a client may use:
    /// URIs have no prefixes, nobody could tell them apart.
    ///
    /// Returns the names that mean something else now, each with the servers that have, or had it.
    pub(super) fn make_routes(&mut self, kinds: &[Kind]) -> Vec<Moved> {
        let old = self.routes.extract_if(.., |(kind, _), _| kinds.contains(kind)).collect();
        let mut clashes = Vec::new();
        for kind in kinds.iter().copied() {
            let mut firsts: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
            for second in self.order.iter().copied() {
                for entry in self.servers[second].known.get(&kind).into_iter().flatten() {
                    let first = match firsts.get(entry.exposed.as_str()) {
                        _ if kind == Kind::Tools && self.is_own_name(&entry.exposed) => None,
                        None => {
                            firsts.insert(&entry.exposed, (second, &entry.own));
                            continue;
                        }
                        Some((first, _)) => Some(*first),
                    };
                    clashes.push(Clash { kind, first, second, name: entry.exposed.clone() });
                }
            }
            if matches!(kind, Kind::Tools | Kind::Prompts) {
                let route = |(name, (slot, own)): (&str, (usize, &str))| {
                    ((kind, name.to_owned()), (slot, own.to_owned()))
                };
                self.routes.extend(firsts.into_iter().map(route));
            }
        }
        self.tell_clashes(kinds, clashes);
        self.moved(kinds, &old)
    }

    fn moved(&self, kinds: &[Kind], old: &BTreeMap<(Kind, String), (usize, String)>) -> Vec<Moved> {
        let mut all = Vec::new();
        let mut note = |key: &(Kind, String), slot: usize| {
            all.push(Moved { kind: key.0, slot, name: key.1.clone() });
        };
        for (key, (was, _)) in old {
            let is = self.routes.get(key).map(|(is, _)| *is);
            if is != Some(*was) {
                note(key, *was);
                is.into_iter().for_each(|is| note(key, is));
            }
        }
        let new = self.routes.iter().filter(|(key, _)| kinds.contains(&key.0));
        for (key, (is, _)) in new.filter(|(key, _)| !old.contains_key(*key)) {
            note(key, *is);
        }
        all
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
    fn tell_clashes(&mut self, kinds: &[Kind], clashes: Vec<Clash>) {
        let known = &self.clashes;
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
            let end = match (first, kind) {
                (None, _) => "only afresh's own can be used; give the server a `prefix`",
                (_, Kind::Tools | Kind::Prompts) => {
                    "only the first one's can be used; give one of them a `prefix`"
                }
                (_, Kind::Resources | Kind::Templates) => "who may use both gets the first one's",
            };
            texts.push(format!(
                "error: {who} both have {} among their {}: {end}",
                text.join(", "),
                kind.members().0
            ));
        }
        self.clashes.retain(|clash| !kinds.contains(&clash.kind));
        self.clashes.extend(clashes);
        for text in texts {
            self.log(text);
        }
    }
}
