//! The lists that clients see: all that their servers have, under one roof.

use std::collections::BTreeSet;

use super::super::backend::Expose;
use super::super::catalog::Entry;
use super::super::{ClientId, LinkId};
use super::names::Moved;
use super::session::Client;
use super::subscriptions::to_listener;
use super::{Hub, raw};
use crate::limits::{GATEWAY_START_WAIT, PAGE_BYTES_MAX, PAGE_ENTRIES_MAX};
use crate::mcp::envelope::{Id, param};
use crate::mcp::{Kind, responses};

impl Hub {
    /// What a server offers to a client, as far as it is known.
    pub(super) fn entries_of(&self, client: ClientId, slot: usize, kind: Kind) -> &[Entry] {
        let server = &self.servers[slot];
        let link = self.current_link(client, slot).and_then(|link| self.links.get(&link));
        if server.backend.hide_when_down && link.is_some_and(|link| !link.is_up()) {
            return &[];
        }
        let lists = match link {
            Some(link) if link.lists.contains_key(&kind) => &link.lists,
            // What it had when it was last used.
            _ => &server.known,
        };
        lists.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// All of a kind that a client may use, in the order of the servers; each name once.
    pub(super) fn usable(&self, client: ClientId, kind: Kind) -> Vec<&Entry> {
        let Some(its) = self.clients.get(&client) else { return Vec::new() };
        let (mut all, mut names) = (Vec::new(), BTreeSet::new());
        for slot in self.slots_for(client, kind) {
            for entry in self.entries_of(client, slot, kind) {
                let is_allowed = kind != Kind::Tools || its.access.has_tool(&entry.exposed);
                if is_allowed && self.is_of(slot, kind, entry) && names.insert(&entry.exposed) {
                    all.push(entry);
                }
            }
        }
        all
    }

    /// The same, as far as the client sees it in its list.
    fn visible(&self, client: ClientId, kind: Kind) -> Vec<&Entry> {
        let mut all = self.usable(client, kind);
        if let Some(its) = self.clients.get(&client)
            && kind == Kind::Tools
            && self.settings.expose == Expose::Search
        {
            all.retain(|entry| its.revealed.contains(&entry.exposed));
        }
        all
    }

    /// Whether a client sees what a server that it may use has under this name.
    fn is_shown(&self, client: &Client, kind: Kind, name: &str) -> bool {
        let is_hidden = self.settings.expose == Expose::Search && !client.revealed.contains(name);
        kind != Kind::Tools || client.access.has_tool(name) && !is_hidden
    }

    /// A client asks for a list.
    pub(super) fn list(
        &mut self,
        client: ClientId,
        id: &Id,
        kind: Kind,
        line: &[u8],
        is_late: bool,
    ) {
        self.use_servers(client);
        if !is_late && self.waits(client, line, GATEWAY_START_WAIT) {
            return;
        }
        let cursor = param(line, &["cursor"]).filter(|raw| *raw != b"null").map(raw::text);
        let begin = match cursor {
            None => 0,
            Some(cursor) => match cursor.and_then(|text| text.strip_prefix('p')?.parse().ok()) {
                Some(begin) => begin,
                None => return self.answer_error(client, id, -32602, "there is no such cursor"),
            },
        };
        let own = match kind {
            Kind::Tools => self.own_definitions(client),
            _ => Vec::new(),
        };
        let theirs = self.visible(client, kind);
        let all = theirs.iter().map(|entry| entry.json.as_slice());
        let all: Vec<&[u8]> = all.chain(own.iter().map(String::as_bytes)).collect();
        let mut page = Vec::new();
        let mut end = begin;
        for json in all.iter().skip(begin) {
            let is_full = page.len() + json.len() > PAGE_BYTES_MAX && !page.is_empty();
            if is_full || end - begin == PAGE_ENTRIES_MAX {
                break;
            }
            page.extend_from_slice(if page.is_empty() { b"" } else { b"," });
            page.extend_from_slice(json);
            end += 1;
        }
        let next = match end < all.len() {
            true => format!(r#","nextCursor":"p{end}""#),
            false => String::new(),
        };
        let is_modern = self.clients.get(&client).is_some_and(|client| client.is_modern());
        let more = match is_modern {
            true => r#","resultType":"complete","ttlMs":0,"cacheScope":"private""#,
            false => "",
        };
        let mut answer = br#"{"jsonrpc":"2.0","id":"#.to_vec();
        answer.extend_from_slice(id.raw());
        answer.extend_from_slice(format!(r#","result":{{"{}":["#, kind.members().0).as_bytes());
        answer.extend_from_slice(&page);
        answer.extend_from_slice(format!("]{next}{more}}}}}").as_bytes());
        self.answer(client, id, answer);
    }

    /// Tells those who use a server that all it has has come or gone.
    pub(super) fn tell_lists_changed(&mut self, slot: usize) {
        let server = &self.servers[slot];
        let mut told = Vec::new();
        for (id, client) in &self.clients {
            if !client.is_open || !self.is_for(*id, slot) {
                continue;
            }
            let sees = |kind: &Kind| {
                let entries = server.known.get(kind).into_iter().flatten();
                self.may_see(*id, slot, *kind)
                    && entries.into_iter().any(|entry| self.is_shown(client, *kind, &entry.exposed))
            };
            // Resources and their templates are told of together.
            let kinds: BTreeSet<&str> =
                Kind::ALL.into_iter().filter(sees).map(Kind::notification).collect();
            let lists = [Kind::Tools, Kind::Prompts, Kind::Resources].into_iter();
            told.extend(
                lists.filter(|kind| kinds.contains(kind.notification())).map(|kind| (*id, kind)),
            );
        }
        for (client, kind) in told {
            self.tell_client_list_changed(client, kind);
        }
    }

    /// Tells those who use a link that one of its lists has changed, where it has for them. Other links may
    /// have other lists.
    pub(super) fn tell_users_list_changed(
        &mut self,
        kind: Kind,
        link: LinkId,
        old: &[Entry],
        new: &[Entry],
    ) {
        if old == new {
            return;
        }
        for user in self.users_of(link) {
            let Some(client) = self.clients.get(&user).filter(|client| client.is_open) else {
                continue;
            };
            let is_seen = |entry: &&Entry| self.is_shown(client, kind, &entry.exposed);
            if !old.iter().filter(is_seen).eq(new.iter().filter(is_seen)) {
                self.tell_client_list_changed(user, kind);
            }
        }
    }

    /// Tells clients of names that are another server's now, but for those who were told that the list has
    /// changed.
    pub(super) fn tell_moved(&mut self, all: &[Moved], mut told: BTreeSet<(ClientId, Kind)>) {
        let mut news = Vec::new();
        for moved in all.iter().filter(|moved| !self.servers[moved.slot].is_gone) {
            for (id, client) in self.clients.iter().filter(|(_, client)| client.is_open) {
                if !told.contains(&(*id, moved.kind))
                    && self.is_for(*id, moved.slot)
                    && self.may_see(*id, moved.slot, moved.kind)
                    && self.is_shown(client, moved.kind, &moved.name)
                {
                    told.insert((*id, moved.kind));
                    news.push((*id, moved.kind));
                }
            }
        }
        for (client, kind) in news {
            self.tell_client_list_changed(client, kind);
        }
    }

    /// Tells clients whose servers are known by their tools, where a server has come or gone for them by that.
    pub(super) fn tell_let_in(&mut self, slot: usize, old: &[Entry], new: &[Entry]) {
        let mut news = Vec::new();
        for (id, Client { access, .. }) in self.clients.iter().filter(|(_, its)| its.is_open) {
            let is_in = |tools: &[Entry]| tools.iter().any(|tool| access.has_tool(&tool.exposed));
            if access.is_by_tools() && self.is_for(*id, slot) && is_in(old) != is_in(new) {
                let known = &self.servers[slot].known;
                let has = |kind: &Kind| known.get(kind).is_some_and(|all| !all.is_empty());
                news.extend(has(&Kind::Prompts).then_some((*id, Kind::Prompts)));
                let has_resources = has(&Kind::Resources) || has(&Kind::Templates);
                news.extend(has_resources.then_some((*id, Kind::Resources)));
            }
        }
        for (client, kind) in news {
            self.tell_client_list_changed(client, kind);
        }
    }

    /// Tells one client that a list has changed for it.
    pub(super) fn tell_client_list_changed(&mut self, client: ClientId, kind: Kind) {
        let Some(its) = self.clients.get(&client) else { return };
        let method = kind.notification();
        if !its.is_modern() {
            let line = responses::notification(method, None);
            self.effects.push(super::Effect::ToClient { client, line, about: None });
            return;
        }
        let listens = its.listens.iter().filter(|(_, filter)| filter.lists.contains(kind.filter()));
        for id in listens.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            let line = to_listener(method, &id, b"");
            self.effects.push(super::Effect::ToClient { client, line, about: Some(id) });
        }
    }
}
