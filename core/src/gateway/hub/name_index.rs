//! Owns the names of tools and prompts: the server that each belongs to, where several have it. Rebuilt by
//! [`Directory`](super::hub_state::Directory) when a list changes. Never asks what a client may use.

use std::collections::{BTreeMap, BTreeSet};

use super::backends::Backends;
use super::outgoing::Outgoing;
use crate::gateway::catalog::CatalogEntry;
use crate::limits::CLASHES_NAMED;
use crate::mcp::Kind;

/// The names, and what they mean.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The server that has the tool or prompt of a name, and its own name for it.
    routes: BTreeMap<(Kind, String), (usize, String)>,
    /// Clashes that were logged.
    clashes: BTreeSet<NameClash>,
}

/// Two servers that have something of one name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NameClash {
    kind: Kind,
    /// The server that keeps it; afresh itself where there is none.
    first: Option<usize>,
    /// The server that cannot be reached by it.
    second: usize,
    name: String,
}

/// A name that means something else than before, and one server that has or had it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MovedName {
    pub(super) kind: Kind,
    pub(super) slot: usize,
    pub(super) name: String,
}

impl Names {
    /// The server that has the tool or prompt of a name, and its own name for it.
    pub(super) fn route(&self, kind: Kind, name: &str) -> Option<&(usize, String)> {
        self.routes.get(&(kind, name.to_owned()))
    }

    /// Rebuilds the names of these kinds. Our own tools have their names for themselves; where two servers have
    /// the same name, the first in the configuration keeps it. A resource is the first one's that a client may
    /// use: URIs have no prefixes to tell them apart.
    ///
    /// Returns the names that mean something else now, each with the servers that have, or had it.
    pub(super) fn rebuild(
        &mut self,
        kinds: &[Kind],
        backends: &Backends,
        out: &mut Outgoing,
    ) -> Vec<MovedName> {
        let old = self.routes.extract_if(.., |(kind, _), _| kinds.contains(kind)).collect();
        let mut clashes = Vec::new();
        for kind in kinds.iter().copied() {
            let mut firsts: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
            for second in backends.order.iter().copied() {
                for entry in backends.slots[second].known(kind) {
                    let first = match firsts.get(entry.exposed.as_str()) {
                        _ if kind == Kind::Tools && backends.reserves(&entry.exposed) => None,
                        None => {
                            firsts.insert(&entry.exposed, (second, &entry.own));
                            continue;
                        }
                        Some((first, _)) => Some(*first),
                    };
                    clashes.push(NameClash { kind, first, second, name: entry.exposed.clone() });
                }
            }
            if matches!(kind, Kind::Tools | Kind::Prompts) {
                let route = |(name, (slot, own)): (&str, (usize, &str))| {
                    ((kind, name.to_owned()), (slot, own.to_owned()))
                };
                self.routes.extend(firsts.into_iter().map(route));
            }
        }
        self.log_clashes(kinds, clashes, backends, out);
        self.moved(kinds, &old)
    }

    fn moved(
        &self,
        kinds: &[Kind],
        old: &BTreeMap<(Kind, String), (usize, String)>,
    ) -> Vec<MovedName> {
        let mut all = Vec::new();
        let mut note = |key: &(Kind, String), slot: usize| {
            all.push(MovedName { kind: key.0, slot, name: key.1.clone() });
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

    /// Whether an entry of a server can be used under its name, as far as other servers have that name too.
    pub(super) fn is_reachable(&self, slot: usize, kind: Kind, entry: &CatalogEntry) -> bool {
        match kind {
            Kind::Tools | Kind::Prompts => {
                self.route(kind, &entry.exposed).is_none_or(|(first, _)| *first == slot)
            }
            Kind::Resources | Kind::Templates => true,
        }
    }

    /// Logs the clashes that are new.
    fn log_clashes(
        &mut self,
        kinds: &[Kind],
        clashes: Vec<NameClash>,
        backends: &Backends,
        out: &mut Outgoing,
    ) {
        let mut news: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for clash in clashes.iter().filter(|clash| !self.clashes.contains(*clash)) {
            let names = news.entry((clash.kind, clash.first, clash.second)).or_default();
            names.push(&clash.name);
        }
        for ((kind, first, second), names) in news {
            let of = |slot: usize| format!("`{}`", backends.slots[slot].name());
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
            out.log(format!(
                "error: {who} both have {} among their {}: {end}",
                text.join(", "),
                kind.members().0
            ));
        }
        self.clashes.retain(|clash| !kinds.contains(&clash.kind));
        self.clashes.extend(clashes);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{backend, settings};
    use super::*;
    use crate::gateway::Effect;

    #[test]
    fn the_first_server_of_the_configuration_keeps_a_name() {
        let (mut backends, mut out) = (Backends::new(settings()), Outgoing::default());
        for (slot, name) in ["a", "b"].into_iter().enumerate() {
            backends.add(backend(name), &mut out);
            let (own, exposed, json) = ("get".to_owned(), "get".to_owned(), b"{}".to_vec());
            let tools = vec![CatalogEntry { own, exposed, json }];
            backends.slots[slot].known.insert(Kind::Tools, tools);
        }
        out.effects.clear();
        let mut names = Names::default();
        let mut rebuild = |order: [&str; 2], out: &mut Outgoing| {
            backends.put_in_order(&order.map(str::to_owned));
            let moved = names.rebuild(&[Kind::Tools], &backends, out);
            let first = names.route(Kind::Tools, "get").map(|(slot, _)| *slot);
            (first, moved.into_iter().map(|moved| moved.slot).collect::<Vec<_>>())
        };
        assert_eq!(rebuild(["a", "b"], &mut out), (Some(0), vec![0]));
        assert!(matches!(&out.effects[..], [Effect::Log(text)] if text.contains("`a` and `b`")));
        assert_eq!(rebuild(["a", "b"], &mut out), (Some(0), vec![]));
        assert_eq!(out.effects.len(), 1, "a clash is logged once");
        assert_eq!(rebuild(["b", "a"], &mut out), (Some(1), vec![0, 1]));
    }
}
