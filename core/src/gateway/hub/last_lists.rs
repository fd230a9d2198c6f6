//! Uses the lists of the last run until those of this one are read: clients see the tools of a server that is still
//! starting, and their calls wait for it. Driven by `Directory`. Never shows an entry that the rules of the configuration,
//! or a pin, withhold.

use std::collections::BTreeSet;

use super::backends::BackendSlot;
use super::hub_state::Directory;
use crate::gateway::backend::Pin;
use crate::gateway::catalog::{CatalogEntry, entry, is_allowed};
use crate::gateway::pins::{Pins, Section, canonical};
use crate::gateway::stored_catalogs::{CatalogReport, StoredLists, storable};
use crate::gateway::{Effect, LinkId};
use crate::mcp::Kind;

impl BackendSlot {
    /// Takes the lists that the server had in the last run.
    pub(super) fn take_last_lists(&mut self, lists: &StoredLists, pins: &Pins) {
        let (backend, key) = (&self.backend, self.backend.pin_key());
        // Before the first use all would be accepted, and the user has seen nothing of it yet.
        let is_accepted = |kind: Kind, section: Section, entry: &CatalogEntry| {
            let text = || canonical(kind, &entry.json);
            pins.has_section(&key, section) && pins.is_accepted(&key, section, &entry.own, &text())
        };
        for kind in Kind::ALL {
            let Some(section) = Section::of(kind) else { continue };
            let Some(stored) = lists.get(&section) else { continue };
            let entries = stored.iter().filter_map(|raw| entry(backend, kind, raw.as_bytes()));
            let mut list: Vec<CatalogEntry> = entries.collect();
            list.retain(|entry| is_allowed(backend, kind, &entry.own));
            list.retain(|entry| backend.pin != Pin::Block || is_accepted(kind, section, entry));
            self.known.insert(kind, list);
            self.unconfirmed.insert(kind);
        }
    }

    /// Reports a list for the next run.
    pub(super) fn store_list(&self, kind: Kind) -> Option<Effect> {
        let section = Section::of(kind)?;
        let entries = storable(kind, self.known(kind));
        let server = self.name().to_owned();
        Some(Effect::StoreList(CatalogReport { server, section, entries }))
    }
}

/// A session has opened, or cannot: forgets the lists of the last run that the server does not have any more, or all
/// of them, as far as they were not read in this run. One that cannot be opened now may have them in the next run.
pub(super) fn forget_last_lists(directory: &mut Directory, id: LinkId) {
    let Some(link) = directory.backends.links.get(id) else { return };
    let (slot, is_open) = (link.slot, link.is_open());
    let mut kinds: Vec<Kind> = directory.backends.slots[slot].unconfirmed.iter().copied().collect();
    kinds.retain(|kind| !is_open || !link.has_list(*kind));
    if kinds.is_empty() {
        return;
    }
    directory.notify_server_changed(slot, &kinds);
    let server = &mut directory.backends.slots[slot];
    for kind in &kinds {
        server.known.remove(kind);
        server.unconfirmed.remove(kind);
    }
    if is_open {
        directory.out.effects.extend(kinds.iter().filter_map(|kind| server.store_list(*kind)));
    }
    let mut moved = directory.names.rebuild(&kinds, &directory.backends, &mut directory.out);
    moved.retain(|moved| moved.slot != slot);
    directory.notify_moved(&moved, BTreeSet::new());
}
