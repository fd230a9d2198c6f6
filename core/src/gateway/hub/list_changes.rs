//! Tells clients that a list has changed, where it has for them. Driven by [`Directory`] when a server's list, state
//! or names change. Never reads a list from a server.

use std::collections::BTreeSet;

use super::directory::Directory;
use super::names::MovedName;
use super::outbox::Outbox;
use crate::gateway::catalog::Entry;
use crate::gateway::{ClientId, LinkId};
use crate::mcp::Kind;

impl Directory {
    /// Tells the clients of a server that all its entries have come or gone.
    pub(super) fn notify_server_changed(&self, slot: usize, out: &mut Outbox) {
        let server = self.backends.slot(slot);
        for client in self.sessions.open() {
            let Some(view) = self.client(client).filter(|view| view.may_use_server(slot)) else {
                continue;
            };
            let sees = |kind: &Kind| {
                let mut entries = server.known(*kind).iter();
                view.may_see(slot, *kind)
                    && entries.any(|entry| view.is_shown(*kind, &entry.exposed))
            };
            // Resources and their templates have one notification.
            let methods: BTreeSet<&str> =
                Kind::ALL.into_iter().filter(sees).map(Kind::notification).collect();
            for kind in [Kind::Tools, Kind::Prompts, Kind::Resources] {
                if methods.contains(kind.notification()) {
                    self.sessions.notify_list_changed(client, kind, out);
                }
            }
        }
    }

    /// Tells the clients of a link that one of its lists has changed, where they see that. Other links of the
    /// server may have other lists.
    pub(super) fn notify_list_changed(
        &self,
        kind: Kind,
        link: LinkId,
        old: &[Entry],
        new: &[Entry],
        out: &mut Outbox,
    ) {
        if old == new {
            return;
        }
        for user in self.users_of(link) {
            let Some(view) = self.client(user).filter(|view| view.session.is_open()) else {
                continue;
            };
            let is_seen = |entry: &&Entry| view.is_shown(kind, &entry.exposed);
            if !old.iter().filter(is_seen).eq(new.iter().filter(is_seen)) {
                self.sessions.notify_list_changed(user, kind, out);
            }
        }
    }

    /// Tells clients of names that are another server's now, except those that were told that the list has changed.
    pub(super) fn notify_moved(
        &self,
        all: &[MovedName],
        mut told: BTreeSet<(ClientId, Kind)>,
        out: &mut Outbox,
    ) {
        for MovedName { kind, slot, name } in all {
            if self.backends.slot(*slot).is_removed() {
                continue;
            }
            for client in self.sessions.open() {
                if !told.contains(&(client, *kind))
                    && self.client(client).is_some_and(|view| {
                        view.may_use_server(*slot)
                            && view.may_see(*slot, *kind)
                            && view.is_shown(*kind, name)
                    })
                {
                    told.insert((client, *kind));
                    self.sessions.notify_list_changed(client, *kind, out);
                }
            }
        }
    }

    /// Tells clients whose access is a list of tools alone, where a server has come or gone for them by its tools.
    pub(super) fn notify_let_in(
        &self,
        slot: usize,
        old: &[Entry],
        new: &[Entry],
        out: &mut Outbox,
    ) {
        let has = |kind: Kind| !self.backends.slot(slot).known(kind).is_empty();
        for client in self.sessions.open() {
            let Some(view) = self.client(client) else { continue };
            let access = view.session.access();
            let is_in = |tools: &[Entry]| tools.iter().any(|tool| access.has_tool(&tool.exposed));
            if !access.is_by_tools() || !view.may_use_server(slot) || is_in(old) == is_in(new) {
                continue;
            }
            if has(Kind::Prompts) {
                self.sessions.notify_list_changed(client, Kind::Prompts, out);
            }
            if has(Kind::Resources) || has(Kind::Templates) {
                self.sessions.notify_list_changed(client, Kind::Resources, out);
            }
        }
    }
}
