//! Owns the lists of one server as they are read over one link, page by page, and how often. Driven by
//! [`Link::read_list`](super::link::Link::read_list). Never sends a request.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::outgoing::Response;
use crate::gateway::backend::{Backend, Pin};
use crate::gateway::catalog::{self, CatalogEntry, CatalogPage};
use crate::gateway::pins::{Items, Section, canonical};
use crate::limits::{
    CATALOG_BYTES_MAX, CATALOG_ENTRIES_MAX, CATALOG_PAGES_MAX, PIN_LIST_BYTES_MAX,
    READINGS_IN_A_ROW_MAX, READINGS_PAUSE,
};
use crate::mcp::{Kind, next_cursor};
use crate::time::Time;

/// The lists of a server.
#[derive(Debug, Default)]
pub(super) struct ServerLists {
    /// Lists that were read to their ends.
    pub(super) complete: BTreeMap<Kind, Vec<CatalogEntry>>,
    /// Lists that are being read.
    pub(super) readings: BTreeMap<Kind, Reading>,
    paces: BTreeMap<Kind, Pace>,
}

/// What follows a page.
#[derive(Debug)]
pub(super) enum PageOutcome {
    /// The next page, by this cursor, raw.
    Next(Vec<u8>),
    /// The list has ended.
    End {
        /// None where it could not be read: then the known list stays.
        list: Option<Reading>,
        /// It has changed while it was read.
        has_changed: bool,
    },
}

/// A list that comes page by page.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) entries: Vec<CatalogEntry>,
    /// Of the entries.
    bytes: usize,
    /// Of the entries, as the server has them.
    names: BTreeSet<String>,
    /// What is pinned of all entries, those that are not allowed included: where they are pinned.
    pub(super) items: Items,
    item_bytes: usize,
    /// Entries that were left out because they cannot be pinned.
    unpinned: usize,
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
    has_changed: bool,
}

/// A defect of a list that is logged once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ListDefect {
    Repeats,
    NoEnd,
    Improper,
    NotPinned,
}

/// Limits how often a list is read.
#[derive(Debug, Default)]
struct Pace {
    since: Time,
    count: u32,
    /// It is to be read when the pause is over.
    is_due: bool,
}

impl Pace {
    /// Whether the list may be read now; otherwise it is due after the pause.
    fn take(&mut self, now: Time) -> bool {
        if now.since(self.since) >= READINGS_PAUSE {
            (self.since, self.count) = (now, 0);
        }
        self.is_due = self.count >= READINGS_IN_A_ROW_MAX;
        self.count += u32::from(!self.is_due);
        !self.is_due
    }

    fn due_at(&self) -> Option<Time> {
        self.is_due.then(|| self.since + READINGS_PAUSE)
    }
}

impl ServerLists {
    /// A list is to be read from its beginning. Returns whether its first page is to be requested now.
    pub(super) fn start(&mut self, kind: Kind, now: Time) -> bool {
        if let Some(reading) = self.readings.get_mut(&kind) {
            reading.has_changed = true;
            return false;
        }
        let may_read = self.paces.entry(kind).or_default().take(now);
        if may_read {
            self.readings.insert(kind, Reading::default());
        }
        may_read
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.paces.values().filter_map(Pace::due_at).min()
    }

    /// The lists whose pause is over.
    pub(super) fn take_due(&mut self, now: Time) -> Vec<Kind> {
        let due =
            self.paces.iter_mut().filter(|(_, pace)| pace.due_at().is_some_and(|at| at <= now));
        due.map(|(kind, pace)| {
            pace.is_due = false;
            *kind
        })
        .collect()
    }

    /// Adds a page of a list that is being read.
    pub(super) fn add_page(
        &mut self,
        backend: &Backend,
        kind: Kind,
        Response { line, is_error }: Response<'_>,
    ) -> Option<PageOutcome> {
        let reading = self.readings.get_mut(&kind)?;
        let page = catalog::read(backend, kind, line).filter(|_| !is_error);
        let has_failed = page.is_none();
        let mut page = page.unwrap_or_default();
        if backend.pin != Pin::Off && Section::of(kind).is_some() {
            page.entries.retain(|entry| reading.add_item(kind, entry));
        }
        page.entries.retain(|entry| catalog::is_allowed(backend, kind, &entry.own));
        reading.add(page);
        let next = next_cursor(line).filter(|_| !has_failed);
        // With a cursor that there was before, all would come again, and again.
        reading.is_endless = next.is_some_and(|next| !reading.cursors.insert(hashed(next)));
        if let Some(cursor) = next.filter(|_| !reading.is_endless) {
            if reading.pages < CATALOG_PAGES_MAX
                && reading.entries.len() <= CATALOG_ENTRIES_MAX
                && !reading.is_cut
            {
                return Some(PageOutcome::Next(cursor.to_vec()));
            }
            reading.is_cut = true;
        }
        let mut reading = self.readings.remove(&kind)?;
        let has_changed = reading.has_changed;
        if has_failed {
            return Some(PageOutcome::End { list: None, has_changed });
        }
        reading.is_cut |= reading.entries.len() > CATALOG_ENTRIES_MAX;
        reading.entries.truncate(CATALOG_ENTRIES_MAX);
        Some(PageOutcome::End { list: Some(reading), has_changed })
    }
}

impl Reading {
    /// One more page. An entry that is in the list already stays as it is.
    fn add(&mut self, page: CatalogPage) {
        self.pages += 1;
        self.improper += page.improper;
        for entry in page.entries {
            if self.names.contains(&entry.own) {
                self.repeated.get_or_insert(entry.own);
                continue;
            }
            let bytes = self.bytes + entry.json.len();
            if self.entries.len() >= CATALOG_ENTRIES_MAX || bytes > CATALOG_BYTES_MAX {
                self.is_cut = true;
                return;
            }
            self.bytes = bytes;
            self.names.insert(entry.own.clone());
            self.entries.push(entry);
        }
    }

    /// Notes what is pinned of an entry, the first of its name. Returns false where there is no room for it: then the
    /// entry is left out, because its changes would not be seen.
    fn add_item(&mut self, kind: Kind, entry: &CatalogEntry) -> bool {
        if self.items.contains_key(&entry.own) {
            return true;
        }
        // One that is far too long is not even read: that takes many times its bytes.
        let is_long = entry.json.len() > PIN_LIST_BYTES_MAX;
        let text = if is_long { String::new() } else { canonical(kind, &entry.json) };
        let bytes = self.item_bytes + entry.own.len() + text.len();
        if is_long || bytes > PIN_LIST_BYTES_MAX {
            self.unpinned += 1;
            return false;
        }
        self.item_bytes = bytes;
        self.items.insert(entry.own.clone(), text);
        true
    }

    /// The defects of the list, as sentences for the log; those without a kind are logged each time.
    pub(super) fn defects(&self, server: &str, kind: Kind) -> Vec<(Option<ListDefect>, String)> {
        let list = kind.members().0;
        let mut all = Vec::new();
        if let Some(own) = &self.repeated {
            let text = format!(
                "the server `{server}` has `{own}` more than once in its list of {list}: only the first one \
                 is used, of this and of all others that it has more than once"
            );
            all.push((Some(ListDefect::Repeats), text));
        }
        if self.is_endless {
            let text = format!(
                "the list of {list} of the server `{server}` has no end, it gives the same `nextCursor` \
                 again: what came until then is used"
            );
            all.push((Some(ListDefect::NoEnd), text));
        }
        if self.improper > 0 {
            let text = format!(
                "{} of the {list} of the server `{server}` are left out: they have no proper name, hidden \
                 characters in it, or are no proper JSON",
                self.improper
            );
            all.push((Some(ListDefect::Improper), text));
        }
        if self.unpinned > 0 {
            let text = format!(
                "{} of the {list} of the server `{server}` are left out: only {PIN_LIST_BYTES_MAX} bytes of a list can \
                 be pinned; `pin = \"off\"` shows all",
                self.unpinned
            );
            all.push((Some(ListDefect::NotPinned), text));
        }
        if self.is_cut {
            let text = format!(
                "the server `{server}` has more {list} than {CATALOG_ENTRIES_MAX}, more than \
                 {CATALOG_PAGES_MAX} pages of them, or more than {CATALOG_BYTES_MAX} bytes: the rest is \
                 left out"
            );
            all.push((None, text));
        }
        all
    }
}

fn hashed(cursor: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    cursor.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::super::tests::backend;
    use super::*;

    fn page(lists: &mut ServerLists, line: &[u8]) -> Option<PageOutcome> {
        lists.add_page(&backend("a"), Kind::Tools, Response { line, is_error: false })
    }

    #[test]
    fn a_list_ends_with_its_last_page() {
        let mut lists = ServerLists::default();
        assert!(lists.start(Kind::Tools, Time::ZERO) && !lists.readings.is_empty());
        let first = br#"{"result":{"tools":[{"name":"get"}],"nextCursor":"x"}}"#;
        assert!(
            matches!(page(&mut lists, first), Some(PageOutcome::Next(cursor)) if cursor == b"\"x\"")
        );
        // It changes meanwhile.
        assert!(!lists.start(Kind::Tools, Time::ZERO));
        let last = br#"{"result":{"tools":[{"name":"set"}]}}"#;
        let Some(PageOutcome::End { list: Some(list), has_changed: true }) = page(&mut lists, last)
        else {
            panic!("the list has ended, and has changed")
        };
        let names: Vec<String> = list.entries.into_iter().map(|entry| entry.own).collect();
        assert_eq!(names, ["get", "set"]);
        assert!(lists.readings.is_empty() && page(&mut lists, last).is_none());
    }

    #[test]
    fn a_list_that_changes_all_the_time_is_read_after_a_pause() {
        let mut lists = ServerLists::default();
        for _ in 0..READINGS_IN_A_ROW_MAX {
            assert!(lists.start(Kind::Tools, Time::ZERO));
            lists.readings.clear();
        }
        assert!(!lists.start(Kind::Tools, Time::ZERO));
        let due = Time::ZERO + READINGS_PAUSE;
        assert_eq!(lists.next_due(), Some(due));
        assert_eq!(lists.take_due(Time::ZERO), []);
        assert_eq!(lists.take_due(due), [Kind::Tools]);
        assert_eq!(lists.next_due(), None);
    }
}
