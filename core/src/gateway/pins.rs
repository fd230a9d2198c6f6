//! Owns the pins of servers: what each of them said about its tools, prompts, templates and itself when it was first
//! used, and what it says otherwise now. Driven by the hub, which shows each list that it has read; the daemon keeps
//! [`PinFile`]. Never decides whether a change is withheld: `hub/pinned_lists.rs` does.
//!
//! A server is known by the repository in which it is used, its name and its address. What is pinned stays until the user
//! accepts what the server says now.

mod differences;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::differences::{Difference, ItemDifference, differences};
use crate::hidden_characters::escaped;
use crate::limits::{PIN_ITEM_BYTES, PIN_LIST_BYTES_MAX, PIN_NAMES_SHOWN, PINS_BYTES_MAX};
use crate::mcp::{Kind, json};

/// The server that a pin is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PinKey {
    /// Its name in the configuration.
    pub server: String,
    /// Its address or its program, without what may be secret.
    pub address: String,
}

/// A part of what a server says about itself. Resources are not pinned: they change like files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// Its tools.
    Tools,
    /// Its prompts.
    Prompts,
    /// Its templates of resources.
    Templates,
    /// Its instructions, as one item without a name.
    Instructions,
}

impl Section {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Templates, Self::Instructions];

    /// The section of a list.
    pub const fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Tools => Some(Self::Tools),
            Kind::Prompts => Some(Self::Prompts),
            Kind::Templates => Some(Self::Templates),
            Kind::Resources => None,
        }
    }

    /// An item of it, in words.
    pub fn item(self, name: &str) -> String {
        match self {
            Self::Tools => name.to_owned(),
            Self::Prompts => format!("prompt {name}"),
            Self::Templates => format!("template {name}"),
            Self::Instructions => "instructions".to_owned(),
        }
    }
}

/// The items of a section by their names, each as a text that is compared.
pub type Items = BTreeMap<String, String>;

/// The sections of a server that are known.
pub type Sections = BTreeMap<Section, Items>;

/// The text of an entry of a list that is compared: its members in a fixed order, without its name and without what may
/// differ with each answer.
pub fn canonical(kind: Kind, entry: &[u8]) -> String {
    let as_it_is = || String::from_utf8_lossy(entry).into_owned();
    let Ok(Value::Object(mut members)) = serde_json::from_slice(entry) else { return as_it_is() };
    // Readers differ in which one of two equal keys they take.
    if has_repeated_keys(entry) {
        return as_it_is();
    }
    for key in [kind.members().1, "_meta", "icons"] {
        members.remove(key);
    }
    let mut value = Value::Object(members);
    value.sort_all_objects();
    value.to_string()
}

/// Whether an object in a value has a key twice. The catalog has bounded its depth.
fn has_repeated_keys(value: &[u8]) -> bool {
    let (mut names, mut is_repeated) = (BTreeSet::new(), false);
    json::each_member(value, |member| {
        is_repeated |= !names.insert(json::text(&value[member.key]));
        is_repeated |= has_repeated_keys(&value[member.value]);
    });
    json::each_element(value, |element| is_repeated |= has_repeated_keys(&value[element]));
    is_repeated
}

/// What follows a list that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinChange {
    /// It is the first one: it is pinned.
    First(Items),
    /// It differs from what is pinned, and from what was seen of it before.
    Differs(Items),
    /// It does not differ.
    Same,
}

/// The pins of a gateway's servers, and what these say otherwise.
#[derive(Debug, Default)]
pub(super) struct Pins {
    pinned: BTreeMap<PinKey, Sections>,
    /// Sections that differ, as they were last seen.
    pending: BTreeMap<PinKey, Sections>,
}

impl Pins {
    /// Takes a section as it is now. Returns none where this is known.
    pub(super) fn observe(
        &mut self,
        key: &PinKey,
        section: Section,
        items: Items,
    ) -> Option<PinChange> {
        let pinned = self.pinned.entry(key.clone()).or_default();
        let Some(known) = pinned.get(&section) else {
            pinned.insert(section, items.clone());
            return Some(PinChange::First(items));
        };
        let pending = self.pending.entry(key.clone()).or_default();
        if differing(known, &items).next().is_none() {
            pending.remove(&section);
            return Some(PinChange::Same);
        }
        if pending.get(&section) == Some(&items) {
            return None;
        }
        pending.insert(section, items.clone());
        Some(PinChange::Differs(items))
    }

    /// Takes what is stored. Returns the servers of which changes are accepted now.
    pub(super) fn load(&mut self, stored: BTreeMap<PinKey, Sections>) -> Vec<PinKey> {
        let mut accepted = Vec::new();
        for (key, sections) in stored {
            let pinned = self.pinned.entry(key.clone()).or_default();
            // A section that was just pinned may not be stored yet.
            pinned.extend(sections);
            let Some(pending) = self.pending.get_mut(&key) else { continue };
            let before = pending.len();
            pending.retain(|section, items| {
                pinned.get(section).is_some_and(|known| differing(known, items).next().is_some())
            });
            if pending.len() < before {
                accepted.push(key);
            }
        }
        accepted
    }

    /// Whether a text is as it is pinned; before the first use, each is.
    pub(super) fn is_accepted(
        &self,
        key: &PinKey,
        section: Section,
        name: &str,
        text: &str,
    ) -> bool {
        let known = self.section(key, section);
        known.is_none_or(|known| known.get(name).is_some_and(|pinned| pinned == text))
    }

    /// Whether a name is pinned; before the first use, each is.
    pub(super) fn has_name(&self, key: &PinKey, section: Section, name: &str) -> bool {
        self.section(key, section).is_none_or(|known| known.contains_key(name))
    }

    /// The items of a server that have changed or are new.
    pub(super) fn changed(&self, key: &PinKey) -> impl Iterator<Item = (Section, &str)> {
        let pending = self.pending.get(key).into_iter().flatten();
        pending.flat_map(move |(section, items)| {
            let known = self.section(key, *section).into_iter();
            known.flat_map(|known| differing(known, items)).map(|name| (*section, name))
        })
    }

    /// Whether any server has something to be accepted.
    pub(super) fn has_pending(&self) -> bool {
        self.pending.values().any(|sections| !sections.is_empty())
    }

    /// Whether a section of a server was seen before.
    pub(super) fn has_section(&self, key: &PinKey, section: Section) -> bool {
        self.section(key, section).is_some()
    }

    fn section(&self, key: &PinKey, section: Section) -> Option<&Items> {
        self.pinned.get(key)?.get(&section)
    }
}

/// Names of items for a line of text, the first of them.
pub fn listed(items: &[String]) -> String {
    let mut shown: Vec<String> =
        items.iter().take(PIN_NAMES_SHOWN).map(|item| escaped(item).into_owned()).collect();
    if items.len() > shown.len() {
        shown.push(format!("{} more", items.len() - shown.len()));
    }
    shown.join(", ")
}

/// The names of items that have changed or are new. One that is gone is pinned still: it cannot come back with another
/// text.
fn differing<'a>(known: &'a Items, items: &'a Items) -> impl Iterator<Item = &'a str> {
    let is_other = |(name, text): &(&'a String, &'a String)| known.get(*name) != Some(*text);
    items.iter().filter(is_other).map(|(name, _)| name.as_str())
}

/// Pins items that were accepted. Others stay pinned, as they are not allowed or not there at present, unless both
/// together are more than can be pinned.
fn accept_items(pinned: &mut Items, accepted: Items) {
    let others: usize = pinned
        .iter()
        .filter(|(name, _)| !accepted.contains_key(*name))
        .map(|(name, text)| name.len() + text.len())
        .sum();
    let bytes: usize = accepted.iter().map(|(name, text)| name.len() + text.len()).sum();
    if others + bytes > PIN_LIST_BYTES_MAX {
        pinned.clear();
    }
    pinned.extend(accepted);
}

/// All pins of a user, as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinFile {
    servers: Vec<PinnedServer>,
}

/// The pins of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedServer {
    /// The repository in which it is used.
    repository: String,
    /// Its name in the configuration.
    pub server: String,
    /// Its address or its program.
    pub address: String,
    /// When it was last used, in seconds since 1970.
    used: u64,
    /// What was there at its first use, or was accepted since.
    pub pinned: Sections,
    /// The sections that differ, as they are now.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pending: Sections,
}

/// What is to be noted about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinUpdate {
    /// Which.
    pub key: PinKey,
    /// A section that was read; none where the server is used, and nothing else.
    pub change: Option<(Section, PinChange)>,
}

impl PinnedServer {
    /// Whether an update says something that is not stored; that it is used alone is not enough.
    pub fn is_changed_by(&self, section: Section, change: &PinChange) -> bool {
        match change {
            PinChange::First(_) => !self.pinned.contains_key(&section),
            PinChange::Differs(items) => self.pending.get(&section) != Some(items),
            PinChange::Same => self.pending.contains_key(&section),
        }
    }

    /// How long its last use is ago, in seconds.
    pub fn unused_for(&self, now: u64) -> u64 {
        now.saturating_sub(self.used)
    }

    fn bytes(&self) -> usize {
        let sections = self.pinned.values().chain(self.pending.values());
        let items = sections.flatten().map(|(name, text)| name.len() + text.len() + PIN_ITEM_BYTES);
        items.sum::<usize>() + PIN_ITEM_BYTES
    }
}

impl PinFile {
    /// The servers of a repository.
    pub fn servers_of(&self, repository: &str) -> impl Iterator<Item = &PinnedServer> {
        self.servers.iter().filter(move |its| its.repository == repository)
    }

    /// Takes what a gateway of a repository has seen.
    pub fn apply(&mut self, repository: &str, now: u64, updates: Vec<PinUpdate>) {
        for PinUpdate { key, change } in updates {
            let server = self.server_mut(repository, key);
            server.used = now;
            match change {
                // Another gateway may have been the first.
                Some((section, PinChange::First(items))) => {
                    server.pinned.entry(section).or_insert(items);
                }
                // The user may have accepted that from another gateway.
                Some((section, PinChange::Differs(items))) => {
                    let pinned = server.pinned.get(&section);
                    match pinned.is_some_and(|known| differing(known, &items).next().is_none()) {
                        true => drop(server.pending.remove(&section)),
                        false => drop(server.pending.insert(section, items)),
                    }
                }
                Some((section, PinChange::Same)) => drop(server.pending.remove(&section)),
                None => {}
            }
        }
        self.forget_oldest();
    }

    /// The user accepts what was shown of a server. Returns false, and changes nothing, where that is not what it
    /// says now.
    pub fn accept(&mut self, repository: &str, shown: &PinnedServer) -> bool {
        let is_it = |its: &&mut PinnedServer| {
            its.repository == repository
                && (&its.server, &its.address) == (&shown.server, &shown.address)
        };
        let Some(server) = self.servers.iter_mut().find(is_it) else { return false };
        if (&server.pinned, &server.pending) != (&shown.pinned, &shown.pending) {
            return false;
        }
        for (section, items) in std::mem::take(&mut server.pending) {
            accept_items(server.pinned.entry(section).or_default(), items);
        }
        true
    }

    fn server_mut(
        &mut self,
        repository: &str,
        PinKey { server, address }: PinKey,
    ) -> &mut PinnedServer {
        let is_it = |its: &PinnedServer| {
            its.repository == repository && (&its.server, &its.address) == (&server, &address)
        };
        let at = self.servers.iter().position(is_it).unwrap_or_else(|| {
            let repository = repository.to_owned();
            let new = PinnedServer { repository, server, address, ..PinnedServer::default() };
            self.servers.push(new);
            self.servers.len() - 1
        });
        &mut self.servers[at]
    }

    fn forget_oldest(&mut self) {
        let mut bytes: usize = self.servers.iter().map(PinnedServer::bytes).sum();
        self.servers.sort_by_key(|its| std::cmp::Reverse(its.used));
        while bytes > PINS_BYTES_MAX
            && self.servers.len() > 1
            && let Some(oldest) = self.servers.pop()
        {
            bytes -= oldest.bytes();
        }
    }
}

#[cfg(test)]
mod tests;
