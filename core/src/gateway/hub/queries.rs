//! Who uses what, and how it does.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::backend::Target;
use super::super::catalog;
use super::super::{ClientId, LinkId};
use super::Hub;
use super::link::{Link, Stage};
use super::session::Client;
use crate::mcp::envelope::Id;
use crate::mcp::{Kind, json};
use crate::service::State;
use crate::time::Time;

impl Hub {
    /// The servers that are reached over HTTP, each with its address and how its newest link does.
    pub fn remotes(&self) -> Vec<(String, String, State)> {
        let mut all = Vec::new();
        for (slot, server) in self.servers.iter().enumerate().filter(|(_, its)| !its.is_gone) {
            if let Target::Http(_) = &server.backend.target {
                let link = self.links.values().rev().find(|link| link.slot == slot);
                let state = link.map_or(State::Stopped, |link| self.how(link));
                all.push((server.backend.name.clone(), server.backend.target.to_string(), state));
            }
        }
        all
    }

    /// How a server does that runs, by what it says over this link; none where nobody has spoken to it.
    pub fn state_of(&self, link: LinkId) -> Option<State> {
        let link = self.links.get(&link).filter(|link| link.stage != Stage::Fresh)?;
        Some(self.how(link))
    }

    /// How a server does, by all that is known over a link.
    pub(super) fn how(&self, link: &Link) -> State {
        if let Some(state) = link.state.as_ref().filter(|_| !link.is_up()) {
            return state.clone();
        }
        match &link.stage {
            Stage::Fresh | Stage::Opening => State::Starting,
            Stage::Failed(why) => State::Failed { why: why.clone() },
            Stage::Open => match (self.circuit(link), &link.state) {
                (Some(why), _) => State::Degraded { why },
                (None, Some(state @ State::Degraded { .. })) => state.clone(),
                (None, _) => State::Ready,
            },
        }
    }

    /// The servers that a client may use, as they stand in the configuration.
    pub(super) fn slots_of(&self, client: ClientId) -> Vec<usize> {
        self.order.iter().copied().filter(|slot| self.has_server(client, *slot)).collect()
    }

    /// Whether a server is there, and a client may use it.
    pub(super) fn has_server(&self, client: ClientId, slot: usize) -> bool {
        !self.servers[slot].is_gone && self.is_for(client, slot)
    }

    /// Whether a client may use a server, if it is there.
    pub(super) fn is_for(&self, client: ClientId, slot: usize) -> bool {
        let backend = &self.servers[slot].backend;
        let may_use =
            |its: &Client| its.access.has_server(&backend.name, &catalog::prefix(backend));
        self.clients.get(&client).is_some_and(may_use)
    }

    /// The servers whose things of a kind a client may use. Where only its tools say which servers these are,
    /// all else of a server is for it only if it has one of these tools.
    pub(super) fn slots_for(&self, client: ClientId, kind: Kind) -> Vec<usize> {
        let mut slots = self.slots_of(client);
        slots.retain(|slot| self.may_see(client, *slot, kind));
        slots
    }

    /// The same of one server that it may use.
    pub(super) fn may_see(&self, client: ClientId, slot: usize, kind: Kind) -> bool {
        let Some(Client { access, .. }) = self.clients.get(&client) else { return false };
        let mut tools = self.servers[slot].known.get(&Kind::Tools).into_iter().flatten();
        kind == Kind::Tools
            || !access.is_by_tools()
            || tools.any(|tool| access.has_tool(&tool.exposed))
    }

    /// The links that a client uses now.
    pub(super) fn links_of(&self, client: ClientId) -> Vec<LinkId> {
        let slots = self.slots_of(client);
        slots.into_iter().filter_map(|slot| self.current_link(client, slot)).collect()
    }

    /// Until when a client's question waits for servers that are still being asked what they have, each for
    /// so long; none where there is none. One that has failed, or was waited for in vain, is not waited for.
    pub(super) fn settles_at(&self, client: ClientId, within: Duration) -> Option<Time> {
        let links = self.links_of(client);
        let links = links.iter().filter_map(|link| self.links.get(link));
        let unsettled = links.filter(|link| match &link.stage {
            Stage::Fresh | Stage::Opening => !link.has_failed,
            Stage::Open => !link.reading.is_empty(),
            Stage::Failed(_) => false,
        });
        unsettled.map(|link| link.begun_at + within).filter(|at| *at > self.now).max()
    }

    /// Whether a request of this id already waits for a server.
    pub(super) fn is_waiting(&self, client: ClientId, id: &Id) -> bool {
        let is_it = |whose: ClientId, line: &[u8]| {
            whose == client && json::get(line, &["id"]).is_some_and(|raw| Id::new(raw) == *id)
        };
        self.held.iter().any(|held| is_it(held.client, &held.line))
            || self.links.waiting().any(|(whose, line)| is_it(*whose, line))
    }

    /// Clients that use a link, and may.
    pub(super) fn users_of(&self, link: LinkId) -> BTreeSet<ClientId> {
        let Some(its) = self.links.get(&link) else { return BTreeSet::new() };
        let uses = |client: &ClientId| {
            self.current_link(*client, its.slot) == Some(link) && self.has_server(*client, its.slot)
        };
        match its.owner {
            Some(owner) => BTreeSet::from([owner]),
            None => self.clients.keys().copied().filter(uses).collect(),
        }
    }
}
