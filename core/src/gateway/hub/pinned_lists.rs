//! Compares what servers say with what is pinned: reports differences, and withholds what has changed where `pin` is
//! `block`. Driven by `Directory` for each handshake and each list that was read. Never stores a pin: the daemon does.

use std::collections::BTreeMap;

use super::backends::Backends;
use super::link::Link;
use super::outgoing::Outgoing;
use super::server_lists::Reading;
use crate::gateway::backend::Pin;
use crate::gateway::catalog::is_allowed;
use crate::gateway::pins::{Items, PinChange, PinKey, PinUpdate, Section, Sections, canonical};
use crate::gateway::{Effect, LinkId, PinReport};
use crate::limits::PIN_LIST_BYTES_MAX;
use crate::mcp::Kind;

impl Backends {
    /// What has changed of a server since it was pinned.
    pub(super) fn changed_since_pinned(&self, slot: usize) -> Vec<(Section, &str)> {
        let backend = &self.slots[slot].backend;
        match backend.pin {
            Pin::Off => Vec::new(),
            Pin::Warn | Pin::Block => self.pins.changed(&backend.pin_key()).collect(),
        }
    }

    /// Whether an entry of a server may be used under a name of the server's own before its list was read. Where changes
    /// are withheld, that is one that is pinned.
    pub(super) fn may_be_unread(&self, slot: usize, kind: Kind, own: &str) -> bool {
        let backend = &self.slots[slot].backend;
        match Section::of(kind).filter(|_| backend.pin == Pin::Block) {
            Some(section) => self.pins.has_name(&backend.pin_key(), section, own),
            None => true,
        }
    }

    /// Whether an entry of a server is withheld because it has changed, or is new.
    pub(super) fn withholds(&self, slot: usize, kind: Kind, own: &str) -> bool {
        let backend = &self.slots[slot].backend;
        let is_it =
            |section| self.pins.changed(&backend.pin_key()).any(|its| its == (section, own));
        backend.pin == Pin::Block && Section::of(kind).is_some_and(is_it)
    }

    /// The instructions of the server behind a link, unless they are withheld. Those that are too long to be pinned are:
    /// their changes would not be seen.
    pub(super) fn instructions_of<'a>(&self, link: &'a Link) -> Option<&'a String> {
        let backend = &self.slots[link.slot].backend;
        let (key, section) = (backend.pin_key(), Section::Instructions);
        link.instructions.as_ref().filter(|text| match backend.pin {
            Pin::Off => true,
            Pin::Warn => text.len() <= PIN_LIST_BYTES_MAX,
            Pin::Block => {
                text.len() <= PIN_LIST_BYTES_MAX && self.pins.is_accepted(&key, section, "", text)
            }
        })
    }

    /// A session is open: compares the instructions, and the lists that the server does not have.
    pub(super) fn check_introduction(&mut self, id: LinkId, out: &mut Outgoing) {
        let Some(link) = self.links.get(id) else { return };
        let (slot, instructions) = (link.slot, link.instructions.clone());
        let mut absent = Kind::ALL.map(|kind| (kind, link.has_list(kind))).to_vec();
        absent.retain(|(_, has_list)| !has_list);
        if instructions.as_ref().is_none_or(|text| text.len() <= PIN_LIST_BYTES_MAX) {
            let items = instructions.into_iter().map(|text| (String::new(), text)).collect();
            self.compare(slot, Section::Instructions, items, out);
        } else if self.slots[slot].backend.pin != Pin::Off {
            let name = &self.slots[slot].backend.name;
            out.effects.push(Effect::Log(format!(
                "the instructions of the server `{name}` are left out: only {PIN_LIST_BYTES_MAX} bytes can be pinned; \
                 `pin = \"off\"` shows them"
            )));
        }
        for section in absent.into_iter().filter_map(|(kind, _)| Section::of(kind)) {
            self.compare(slot, section, Items::new(), out);
        }
    }

    /// Compares a list that was read to its end. Takes out what is withheld.
    pub(super) fn check_list(
        &mut self,
        slot: usize,
        kind: Kind,
        list: &mut Reading,
        out: &mut Outgoing,
    ) {
        let Some(section) = Section::of(kind) else { return };
        let mut items = std::mem::take(&mut list.items);
        let (backend, pins) = (&self.slots[slot].backend, &self.pins);
        // All are pinned at first, so that one that is allowed later is not new then. Changes of the others are the
        // user's business only when they are allowed.
        if pins.has_section(&backend.pin_key(), section) {
            items.retain(|own, _| is_allowed(backend, kind, own));
        }
        self.compare(slot, section, items, out);
        let backend = &self.slots[slot].backend;
        if backend.pin == Pin::Block {
            let (key, pins) = (backend.pin_key(), &self.pins);
            list.entries.retain(|entry| {
                pins.is_accepted(&key, section, &entry.own, &canonical(kind, &entry.json))
            });
        }
    }

    fn compare(&mut self, slot: usize, section: Section, items: Items, out: &mut Outgoing) {
        let backend = &self.slots[slot].backend;
        if backend.pin == Pin::Off {
            return;
        }
        let (key, pin) = (backend.pin_key(), backend.pin);
        let Some(change) = self.pins.observe(&key, section, items) else { return };
        let changed = match &change {
            PinChange::Differs(_) => {
                self.pins.changed(&key).map(|(section, name)| section.item(name)).collect()
            }
            PinChange::First(_) | PinChange::Same => Vec::new(),
        };
        let update = PinUpdate { key, change: Some((section, change)) };
        out.effects.push(Effect::Pin(PinReport { update, pin, changed }));
    }

    /// Takes what is stored. Where changes of a server are accepted now, what was withheld comes with its next list.
    pub(super) fn take_pins(&mut self, stored: BTreeMap<PinKey, Sections>, out: &mut Outgoing) {
        for key in self.pins.load(stored) {
            out.log(format!("the changes of the server `{}` are accepted", key.server));
            let slots = self.order.iter().copied();
            let is_its = |slot: &usize| {
                let backend = &self.slots[*slot].backend;
                backend.pin == Pin::Block && backend.pin_key() == key
            };
            for slot in slots.filter(is_its).collect::<Vec<_>>() {
                let links: Vec<LinkId> = self.links.to(slot).map(|(id, _)| id).collect();
                for link in links {
                    let Some(link) = self.links.get_mut(link) else { continue };
                    Kind::ALL.into_iter().for_each(|kind| link.read_list(kind, out));
                }
            }
        }
    }
}
