//! What a server has: its lists, read page by page.

use super::super::LinkId;
use super::super::catalog;
use super::link::{Reading, Stage};
use super::{Hub, What};
use crate::limits::{CATALOG_ENTRIES_MAX, CATALOG_PAGES_MAX};
use crate::mcp::{Era, Kind, next_cursor};

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
        let backend = &self.servers[its.slot].backend;
        let entries = catalog::read(backend, kind, line).filter(|_| !is_error);
        let has_failed = entries.is_none();
        reading.entries.extend(entries.unwrap_or_default());
        reading.pages += 1;
        let is_full =
            reading.pages >= CATALOG_PAGES_MAX || reading.entries.len() > CATALOG_ENTRIES_MAX;
        if let Some(cursor) = next_cursor(line).filter(|_| !is_full && !has_failed) {
            let cursor = cursor.to_vec();
            return self.read_page(link, kind, Some(&cursor));
        }
        if is_full {
            let name = backend.name.clone();
            reading.entries.truncate(CATALOG_ENTRIES_MAX);
            self.log(format!(
                "the server `{name}` has more {} than {CATALOG_ENTRIES_MAX}, or more than \
                 {CATALOG_PAGES_MAX} pages of them: the rest is left out",
                kind.members().0
            ));
        }
        let Some(its) = self.links.get_mut(&link) else { return };
        let Some(Reading { mut entries, again, .. }) = its.reading.remove(&kind) else { return };
        if again {
            return self.read_list(link, kind);
        }
        if kind == Kind::Tools {
            self.take_own_tools(link, &mut entries);
        }
        let Some(its) = self.links.get_mut(&link) else { return };
        let slot = its.slot;
        // Where a list cannot be read, what was known of it stays.
        let is_changed = !has_failed && its.lists.get(&kind) != Some(&entries);
        if is_changed {
            // What its clients have been shown so far.
            let known = self.servers[slot].known.insert(kind, entries.clone());
            let shown = its.lists.insert(kind, entries.clone()).or(known).unwrap_or_default();
            self.make_routes();
            self.tell_users_list_changed(kind, link, &shown, &entries);
        }
        self.settle();
    }
}
