//! What a server has: its lists, read page by page.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::super::LinkId;
use super::super::catalog::{self, Entry};
use super::link::Stage;
use super::{Hub, What};
use crate::limits::{CATALOG_ENTRIES_MAX, CATALOG_PAGES_MAX};
use crate::mcp::{Era, Kind, next_cursor};

/// A list that comes page by page.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) entries: Vec<Entry>,
    /// What is in them, as the server calls it.
    pub(super) names: BTreeSet<String>,
    /// The first that came again.
    pub(super) repeated: Option<String>,
    pub(super) pages: usize,
    /// The cursors so far, hashed: one can be as long as a message.
    pub(super) cursors: BTreeSet<u64>,
    /// It has changed meanwhile.
    pub(super) again: bool,
}

impl Hub {
    /// Something that was waited for is there, or will not be.
    pub(super) fn settle(&mut self) {
        if !self.held.is_empty() {
            self.resume_held();
        }
    }

    /// Asks for a list from its beginning, where the server has one.
    pub(super) fn read_list(&mut self, link: LinkId, kind: Kind) {
        let Some(its) = self.links.get_mut(&link) else { return };
        let capability = match kind {
            Kind::Tools => "tools",
            Kind::Prompts => "prompts",
            Kind::Resources | Kind::Templates => "resources",
        };
        if its.stage != Stage::Open || !its.capabilities[capability].is_object() {
            return;
        }
        if let Some(reading) = its.reading.get_mut(&kind) {
            reading.again = true;
            return;
        }
        its.reading.insert(kind, Reading::default());
        self.read_page(link, kind, None);
    }

    fn read_page(&mut self, link: LinkId, kind: Kind, cursor: Option<&[u8]>) {
        let Some(its) = self.links.get(&link) else { return };
        let mut params = b"{".to_vec();
        if its.era == Era::Modern {
            params.extend_from_slice(br#""_meta":"#);
            params.extend_from_slice(&its.meta);
        }
        if let Some(cursor) = cursor {
            params.extend_from_slice(if params.len() > 1 { b"," } else { b"" });
            params.extend_from_slice(br#""cursor":"#);
            params.extend_from_slice(cursor);
        }
        params.push(b'}');
        self.request(link, kind.method(), &params, What::Page(kind));
    }

    /// A page of a list has come.
    pub(super) fn page(&mut self, link: LinkId, kind: Kind, line: &[u8], is_error: bool) {
        let Some(its) = self.links.get_mut(&link) else { return };
        let Some(reading) = its.reading.get_mut(&kind) else { return };
        let slot = its.slot;
        let entries = catalog::read(&self.servers[slot].backend, kind, line);
        let entries = entries.filter(|_| !is_error);
        let has_failed = entries.is_none();
        reading.add(entries.unwrap_or_default());
        let is_full =
            reading.pages >= CATALOG_PAGES_MAX || reading.entries.len() > CATALOG_ENTRIES_MAX;
        let next = next_cursor(line).filter(|_| !has_failed);
        // With a cursor that there was before, all would come again, and again.
        let is_new = next.is_none_or(|next| reading.cursors.insert(hashed(next)));
        if let Some(cursor) = next.filter(|_| !is_full && is_new) {
            let cursor = cursor.to_vec();
            return self.read_page(link, kind, Some(&cursor));
        }
        let Some(Reading { mut entries, again, repeated, .. }) = its.reading.remove(&kind) else {
            return;
        };
        if again {
            return self.read_list(link, kind);
        }
        // Ours stand at the end of the last page.
        if kind == Kind::Tools && next.is_none() {
            self.take_own_tools(link, &mut entries);
        }
        let is_cut = next.is_some() && is_new || entries.len() > CATALOG_ENTRIES_MAX;
        entries.truncate(CATALOG_ENTRIES_MAX);
        self.tell_oddities(slot, kind, repeated, is_new, is_cut);
        self.keep_list(link, kind, entries, has_failed);
        self.settle();
    }

    /// Says what is wrong with a list, the first time.
    fn tell_oddities(
        &mut self,
        slot: usize,
        kind: Kind,
        repeated: Option<String>,
        is_new: bool,
        is_cut: bool,
    ) {
        let server = &mut self.servers[slot];
        let (name, list) = (server.backend.name.clone(), kind.members().0);
        if let Some(own) = repeated.filter(|_| server.repeats.insert(kind)) {
            self.log(format!(
                "the server `{name}` has `{own}` more than once in its list of {list}: only the first one \
                 is used, of this and of all others that it has more than once"
            ));
        }
        let server = &mut self.servers[slot];
        if !is_new && server.endless.insert(kind) {
            self.log(format!(
                "the list of {list} of the server `{name}` has no end, it gives the same `nextCursor` \
                 again: what came until then is used"
            ));
        }
        if is_cut {
            self.log(format!(
                "the server `{name}` has more {list} than {CATALOG_ENTRIES_MAX}, or more than \
                 {CATALOG_PAGES_MAX} pages of them: the rest is left out"
            ));
        }
    }

    /// A list is known now. Where it cannot be read, what was known of it stays.
    fn keep_list(&mut self, link: LinkId, kind: Kind, entries: Vec<Entry>, has_failed: bool) {
        let Some(its) = self.links.get_mut(&link) else { return };
        let slot = its.slot;
        if has_failed || its.lists.get(&kind) == Some(&entries) {
            return;
        }
        // What its clients have been shown so far.
        let known = self.servers[slot].known.insert(kind, entries.clone());
        let shown = its.lists.insert(kind, entries.clone()).or(known).unwrap_or_default();
        self.make_routes(&[kind]);
        self.tell_users_list_changed(kind, link, &shown, &entries);
    }
}

impl Reading {
    /// One more page. What is in the list already stays as it is.
    fn add(&mut self, entries: Vec<Entry>) {
        self.pages += 1;
        for entry in entries {
            if self.names.insert(entry.own.clone()) {
                self.entries.push(entry);
            } else {
                self.repeated.get_or_insert(entry.own);
            }
        }
    }
}

fn hashed(cursor: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    cursor.hash(&mut hasher);
    hasher.finish()
}
