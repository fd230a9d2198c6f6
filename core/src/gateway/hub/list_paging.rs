//! What a server has: its lists, read page by page.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::super::LinkId;
use super::super::catalog::{self, Entry, Page};
use super::link::Stage;
use super::{Hub, What};
use crate::limits::{
    CATALOG_BYTES_MAX, CATALOG_ENTRIES_MAX, CATALOG_PAGES_MAX, READINGS_IN_A_ROW_MAX,
    READINGS_PAUSE,
};
use crate::mcp::{AdminTool, Era, Kind, next_cursor};
use crate::time::Time;

/// A list that comes page by page.
#[derive(Debug, Default)]
pub(super) struct Reading {
    entries: Vec<Entry>,
    /// Of the entries.
    bytes: usize,
    /// What is in them, as the server calls it.
    names: BTreeSet<String>,
    /// The first that came again.
    repeated: Option<String>,
    /// Entries that were left out.
    improper: usize,
    /// There were more than are kept.
    is_cut: bool,
    pages: usize,
    /// The cursors so far, hashed: one can be as long as a message.
    cursors: BTreeSet<u64>,
    /// A cursor came again.
    is_endless: bool,
    /// It has changed meanwhile.
    again: bool,
}

/// What can be wrong with a list, and is said once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Oddity {
    Repeats,
    NoEnd,
    Improper,
}

/// How often a list was asked for of late.
#[derive(Debug, Default)]
pub(super) struct Pace {
    since: Time,
    count: u32,
    /// It is to be read when that is over.
    is_due: bool,
}

impl Pace {
    /// Whether it may be read now; else it is when it may.
    fn take(&mut self, now: Time) -> bool {
        if now.since(self.since) >= READINGS_PAUSE {
            (self.since, self.count) = (now, 0);
        }
        self.is_due = self.count >= READINGS_IN_A_ROW_MAX;
        self.count += u32::from(!self.is_due);
        !self.is_due
    }

    pub(super) fn due_at(&self) -> Option<Time> {
        self.is_due.then(|| self.since + READINGS_PAUSE)
    }
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
        let now = self.now;
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
        if its.paces.entry(kind).or_default().take(now) {
            its.reading.insert(kind, Reading::default());
            self.read_page(link, kind, None);
        }
    }

    /// Asks for the lists whose pause is over.
    pub(super) fn read_due_lists(&mut self, link: LinkId) {
        let now = self.now;
        let Some(its) = self.links.get_mut(&link) else { return };
        let mut due = Vec::new();
        for (kind, pace) in &mut its.paces {
            if pace.due_at().is_some_and(|at| at <= now) {
                pace.is_due = false;
                due.push(*kind);
            }
        }
        for kind in due {
            self.read_list(link, kind);
        }
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
        let backend = &self.servers[its.slot].backend;
        let page = catalog::read(backend, kind, line).filter(|_| !is_error);
        let has_failed = page.is_none();
        let mut page = page.unwrap_or_default();
        page.entries.retain(|entry| {
            catalog::is_allowed(backend, kind, &entry.own)
                || AdminTool::of_injected(&entry.own).is_some()
        });
        reading.add(page);
        let next = next_cursor(line).filter(|_| !has_failed);
        // With a cursor that there was before, all would come again, and again.
        reading.is_endless = next.is_some_and(|next| !reading.cursors.insert(hashed(next)));
        if let Some(cursor) = next.filter(|_| !reading.is_endless) {
            if reading.pages < CATALOG_PAGES_MAX
                && reading.entries.len() <= CATALOG_ENTRIES_MAX
                && !reading.is_cut
            {
                let cursor = cursor.to_vec();
                return self.read_page(link, kind, Some(&cursor));
            }
            reading.is_cut = true;
        }
        let Some(mut reading) = its.reading.remove(&kind) else { return };
        let again = reading.again;
        // Where a list cannot be read, what was known of it stays.
        if !has_failed {
            // Ours stand at the end of the last page.
            if kind == Kind::Tools && next.is_none() {
                self.take_own_tools(link, &mut reading.entries);
            }
            self.keep_list(link, kind, reading);
        }
        if again {
            self.read_list(link, kind);
        }
        self.settle();
    }

    /// A list was read to its end.
    fn keep_list(&mut self, link: LinkId, kind: Kind, mut reading: Reading) {
        let Some(slot) = self.links.get(&link).map(|its| its.slot) else { return };
        let mut entries = std::mem::take(&mut reading.entries);
        let backend = &self.servers[slot].backend;
        entries.retain(|entry| catalog::is_allowed(backend, kind, &entry.own));
        reading.is_cut |= entries.len() > CATALOG_ENTRIES_MAX;
        entries.truncate(CATALOG_ENTRIES_MAX);
        self.tell_oddities(slot, kind, reading);
        let Some(its) = self.links.get_mut(&link) else { return };
        if its.lists.get(&kind) == Some(&entries) {
            return;
        }
        // What its clients have been shown so far.
        let known = self.servers[slot].known.insert(kind, entries.clone()).unwrap_or_default();
        let shown = its.lists.insert(kind, entries.clone()).unwrap_or_else(|| known.clone());
        let mut moved = self.make_routes(&[kind]);
        self.tell_users_list_changed(kind, link, &shown, &entries);
        // What another server has can have gone, or be there now.
        moved.retain(|moved| moved.slot != slot);
        let told = self.users_of(link).into_iter().map(|user| (user, kind)).collect();
        self.tell_moved(&moved, told);
        if kind == Kind::Tools {
            self.tell_let_in(slot, &known, &entries);
        }
    }

    /// Says what is wrong with a list, the first time.
    fn tell_oddities(&mut self, slot: usize, kind: Kind, reading: Reading) {
        let Reading { repeated, improper, is_cut, is_endless, .. } = reading;
        let server = &mut self.servers[slot];
        let (name, list) = (server.backend.name.clone(), kind.members().0);
        let mut is_new = |oddity: Oddity| server.oddities.insert((kind, oddity));
        let mut texts = Vec::new();
        if let Some(own) = repeated.filter(|_| is_new(Oddity::Repeats)) {
            texts.push(format!(
                "the server `{name}` has `{own}` more than once in its list of {list}: only the first one \
                 is used, of this and of all others that it has more than once"
            ));
        }
        if is_endless && is_new(Oddity::NoEnd) {
            texts.push(format!(
                "the list of {list} of the server `{name}` has no end, it gives the same `nextCursor` \
                 again: what came until then is used"
            ));
        }
        if improper > 0 && is_new(Oddity::Improper) {
            texts.push(format!(
                "{improper} of the {list} of the server `{name}` are left out: they have no proper name, \
                 or are no proper JSON"
            ));
        }
        if is_cut {
            texts.push(format!(
                "the server `{name}` has more {list} than {CATALOG_ENTRIES_MAX}, more than \
                 {CATALOG_PAGES_MAX} pages of them, or more than {CATALOG_BYTES_MAX} bytes: the rest is \
                 left out"
            ));
        }
        for text in texts {
            self.log(text);
        }
    }
}

impl Reading {
    /// One more page. What is in the list already stays as it is.
    fn add(&mut self, page: Page) {
        self.pages += 1;
        self.improper += page.improper;
        for entry in page.entries {
            if self.names.contains(&entry.own) {
                self.repeated.get_or_insert(entry.own);
                continue;
            }
            let bytes = self.bytes + entry.json.len();
            // Ours do not count; they stand at the end.
            if self.entries.len() >= CATALOG_ENTRIES_MAX + AdminTool::ALL.len()
                || bytes > CATALOG_BYTES_MAX
            {
                self.is_cut = true;
                return;
            }
            self.bytes = bytes;
            self.names.insert(entry.own.clone());
            self.entries.push(entry);
        }
    }
}

fn hashed(cursor: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    cursor.hash(&mut hasher);
    hasher.finish()
}
