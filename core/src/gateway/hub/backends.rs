//! Owns the servers of the configuration and the links to them: which link a client uses, and whether a call may go
//! over it now. Driven by [`Directory`](super::hub_state::Directory). Never knows which client may use what.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::Settings;
use super::link::{Link, LinkStage, Links};
use super::outgoing::Outgoing;
use super::server_lists::ListDefect;
use super::sessions::{ClientSession, MODERN, NEWEST_LEGACY, Principal};
use crate::gateway::backend::{Backend, Share, Transport};
use crate::gateway::catalog::CatalogEntry;
use crate::gateway::pins::Pins;
use crate::gateway::stored_catalogs::StoredLists;
use crate::gateway::{ClientId, Effect, LinkId};
use crate::mcp::{Era, Kind};
use crate::service::State;
use crate::time::Time;

/// All servers, and the links to them.
#[derive(Debug)]
pub(super) struct Backends {
    pub(super) settings: Settings,
    /// A server that was taken out of the configuration keeps its slot.
    pub(super) slots: Vec<BackendSlot>,
    /// The slots of those that are in the configuration, in its order.
    pub(super) order: Vec<usize>,
    pub(super) links: Links,
    /// What the project's files ask for and the user has not accepted.
    pub(super) untrusted: Vec<String>,
    /// Servers that cannot be used, each with why.
    pub(super) left_out: Vec<(String, String)>,
    pub(super) pins: Pins,
    /// The lists of the last run of servers that are not configured yet.
    pub(super) last_lists: BTreeMap<String, StoredLists>,
    last_link: u64,
    /// The links of clients without a session.
    named_links: BTreeMap<(Principal, usize), LinkId>,
}

/// A server.
#[derive(Debug)]
pub(super) struct BackendSlot {
    pub(super) backend: Backend,
    /// It is in the configuration no more.
    pub(super) is_removed: bool,
    /// A link that was opened ahead of the first client.
    fresh: Option<LinkId>,
    /// The links that clients share, for each era.
    legacy: Option<LinkId>,
    modern: Option<LinkId>,
    /// It does not know the modern era.
    is_legacy_only: bool,
    /// Clients that cannot be told apart share it, though each is to have its own.
    pub(super) is_shared_anyway: bool,
    /// Its lists, as they were last read over any link, or in the last run.
    pub(super) known: BTreeMap<Kind, Vec<CatalogEntry>>,
    /// Which of them are of the last run.
    pub(super) unconfirmed: BTreeSet<Kind>,
    /// The defects of its lists that were logged.
    pub(super) defects: BTreeSet<(Kind, ListDefect)>,
}

impl BackendSlot {
    fn new(backend: Backend) -> Self {
        Self {
            backend,
            is_removed: false,
            fresh: None,
            legacy: None,
            modern: None,
            is_legacy_only: false,
            is_shared_anyway: false,
            known: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
            defects: BTreeSet::new(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.backend.name
    }

    /// Whether it is a program in the configuration: only these can be restarted.
    pub(super) fn is_managed(&self) -> bool {
        !self.is_removed && self.backend.is_stdio()
    }

    /// A list of its, as it was last read.
    pub(super) fn known(&self, kind: Kind) -> &[CatalogEntry] {
        self.known.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// The sentence for a call that does not get to it.
    pub(super) fn unusable(&self, why: &str) -> String {
        let name = self.name();
        let how = if self.backend.is_stdio() { "is not running" } else { "cannot be used" };
        format!("nothing was done, the server `{name}` {how}: {why}")
    }
}

impl Backends {
    pub(super) fn new(settings: Settings) -> Self {
        let (links, pins) = (Links::default(), Pins::default());
        let (slots, order, untrusted, left_out) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let last_link = settings.first_link;
        let (last_lists, named_links) = (BTreeMap::new(), BTreeMap::new());
        Self {
            settings,
            slots,
            order,
            links,
            untrusted,
            left_out,
            pins,
            last_lists,
            last_link,
            named_links,
        }
    }

    /// A link has a session again: the requests that wait for it go on.
    pub(super) fn resume_waiting(&mut self, id: LinkId, out: &mut Outgoing) {
        if let Some(link) = self.links.get_mut(id) {
            out.resumed.append(&mut link.calls.waiting);
        }
    }

    /// The servers that are not in this configuration, or otherwise, and why they go.
    pub(super) fn outdated(&self, backends: &[Backend]) -> Vec<(usize, &'static str)> {
        let why = |slot: &BackendSlot| match backends.iter().find(|new| new.name == slot.name()) {
            Some(new) if *new == slot.backend => None,
            Some(_) => Some("its configuration has changed"),
            None => Some("it was taken out of the configuration"),
        };
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| !slot.is_removed);
        slots.filter_map(|(at, slot)| Some((at, why(slot)?))).collect()
    }

    /// Takes a server out; returns its links, which are to be closed.
    pub(super) fn remove(&mut self, slot: usize) -> Vec<LinkId> {
        self.slots[slot].is_removed = true;
        self.links.to(slot).map(|(id, _)| id).collect()
    }

    /// Adds a server, where it is not there yet, and opens the link that clients will share.
    pub(super) fn add(&mut self, backend: Backend, out: &mut Outgoing) -> bool {
        if self.slots.iter().any(|slot| !slot.is_removed && slot.name() == backend.name) {
            return false;
        }
        let is_shared = backend.share == Share::All;
        let mut server = BackendSlot::new(backend);
        if let Some(lists) = self.last_lists.remove(server.name()) {
            server.take_last_lists(&lists, &self.pins);
        }
        self.slots.push(server);
        if is_shared {
            let slot = self.slots.len() - 1;
            self.slots[slot].fresh = Some(self.open(slot, None, "", out));
        }
        true
    }

    /// Takes the order of the configuration; a server that has changed has a new slot, and its old place.
    pub(super) fn put_in_order(&mut self, names: &[String]) {
        let slot = |name: &String| {
            self.slots.iter().position(|slot| !slot.is_removed && slot.name() == *name)
        };
        self.order = names.iter().filter_map(slot).collect();
    }

    fn open(
        &mut self,
        slot: usize,
        owner: Option<Principal>,
        suffix: &str,
        out: &mut Outgoing,
    ) -> LinkId {
        self.last_link += 1;
        let link = LinkId(self.last_link);
        let backend = &self.slots[slot].backend;
        let mut its = Link::new(link, slot, backend, owner, out.now);
        its.is_transparent = self.settings.is_transparent;
        self.links.insert(its);
        let backend = backend.name.clone();
        out.effects.push(Effect::Open { link, backend, suffix: suffix.to_owned() });
        link
    }

    /// Takes a link out.
    pub(super) fn detach(&mut self, id: LinkId) -> Option<Link> {
        let link = self.links.remove(id)?;
        self.named_links.retain(|_, its| *its != id);
        let slot = &mut self.slots[link.slot];
        for place in [&mut slot.fresh, &mut slot.legacy, &mut slot.modern] {
            place.take_if(|there| *there == id);
        }
        Some(link)
    }

    /// The link that a client has to a server, if there is one.
    pub(super) fn link_to(&self, slot: usize, client: &ClientSession) -> Option<LinkId> {
        let its = &self.slots[slot];
        match self.own_instances(slot, client) {
            Some(_) if self.is_without_session(client) => {
                self.named_links.get(&(client.named(), slot)).copied()
            }
            Some(_) => client.links.get(&slot).copied(),
            None if client.is_modern() && !its.is_legacy_only => its.modern,
            None => its.legacy,
        }
    }

    /// Over HTTP the newer protocol has no sessions.
    fn is_without_session(&self, client: &ClientSession) -> bool {
        client.is_modern() && !self.settings.is_single
    }

    /// How many instances there may be of a server of which the client has its own; none where it shares one, as one
    /// without a session, a token and a name does.
    fn own_instances(&self, slot: usize, client: &ClientSession) -> Option<usize> {
        match self.slots[slot].backend.share {
            Share::PerClient { instances_max, .. } => {
                let is_known = !self.is_without_session(client) || client.named().is_known();
                is_known.then_some(instances_max)
            }
            Share::All => None,
        }
    }

    /// The link over which a client talks to a server; opens it where there is none.
    pub(super) fn link_for(
        &mut self,
        slot: usize,
        id: ClientId,
        client: &mut ClientSession,
        out: &mut Outgoing,
    ) -> Result<LinkId, String> {
        if let Some(link) = self.link_to(slot, client) {
            return Ok(link);
        }
        let is_modern = client.is_modern() && !self.slots[slot].is_legacy_only;
        let link = match self.own_instances(slot, client) {
            Some(instances_max) => {
                let count = self.links.to(slot).count();
                if count >= instances_max {
                    return Err(format!(
                        "it already runs {count} times, as often as `instances_max` allows; try again \
                         when another client is gone"
                    ));
                }
                let is_without_session = self.is_without_session(client);
                let owner = match is_without_session {
                    true => client.named(),
                    false => Principal::Session(id),
                };
                let link = self.open(slot, Some(owner.clone()), &format!("@{}", id.0), out);
                match is_without_session {
                    true => drop(self.named_links.insert((owner, slot), link)),
                    false => drop(client.links.insert(slot, link)),
                }
                link
            }
            None => {
                self.log_unshared(slot, out);
                let its = &mut self.slots[slot];
                let has_other = its.legacy.or(its.modern).is_some();
                let suffix = if has_other { "@2" } else { "" };
                let fresh = its.fresh.take();
                let link = fresh.unwrap_or_else(|| self.open(slot, None, suffix, out));
                let its = &mut self.slots[slot];
                *(if is_modern { &mut its.modern } else { &mut its.legacy }) = Some(link);
                link
            }
        };
        let (meta, opening) = self.introduction(link, client);
        if let Some(link) = self.links.get_mut(link) {
            let era = if is_modern { Era::Modern } else { Era::Legacy };
            link.begin(era, meta, opening, out);
        }
        Ok(link)
    }

    /// Logs that a server which clients are to have for themselves is shared by some, once.
    fn log_unshared(&mut self, slot: usize, out: &mut Outgoing) {
        let its = &mut self.slots[slot];
        if its.backend.share != Share::All && !its.is_shared_anyway {
            its.is_shared_anyway = true;
            let name = its.name();
            out.log(format!(
                "the server `{name}` has `share = \"per-client\"`, and clients of 2026-07-28 that have no token and do not \
                 say who they are share one: they cannot be told apart"
            ));
        }
    }

    /// The `_meta` and the parameters of `initialize` for a server: those of the client that it is for alone, or
    /// the gateway's.
    fn introduction(&self, link: LinkId, client: &ClientSession) -> (Vec<u8>, Vec<u8>) {
        let own = |raw: &Option<Vec<u8>>| raw.clone().filter(|_| !self.is_generic(link));
        let us = json!({"name": "afresh", "version": self.settings.version});
        let meta = own(&client.meta).unwrap_or_else(|| {
            let meta = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": us,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            meta.to_string().into_bytes()
        });
        let of_meta = || client.opening_of_meta().filter(|_| !self.is_generic(link));
        let opening = own(&client.opening).or_else(of_meta).unwrap_or_else(|| {
            let opening = json!({
                "protocolVersion": NEWEST_LEGACY,
                "capabilities": {"roots": {"listChanged": true}, "sampling": {}, "elicitation": {}},
                "clientInfo": us,
            });
            opening.to_string().into_bytes()
        });
        (meta, opening)
    }

    /// Whether a server gets the gateway's capabilities, because any number of clients may use the link.
    pub(super) fn is_generic(&self, link: LinkId) -> bool {
        !self.settings.is_single && self.links.get(link).is_some_and(|link| link.owner.is_none())
    }

    /// A server does not know the newer protocol: the older is tried. Returns whether the link is not needed any
    /// more, because there is one for that protocol already.
    pub(super) fn fall_back(&mut self, id: LinkId, out: &mut Outgoing) -> bool {
        let Some(link) = self.links.get_mut(id) else { return false };
        link.era = Era::Legacy;
        let slot = &mut self.slots[link.slot];
        slot.is_legacy_only = true;
        if link.owner.is_none() {
            slot.modern = None;
            if slot.legacy.is_some() {
                return true;
            }
            slot.legacy = Some(id);
        }
        link.open_session(out);
        false
    }

    /// The link, where a client's call may go over it now; none where the call waits for the session. Else the reason that
    /// it is refused, as a word and as a sentence.
    pub(super) fn admit(
        &mut self,
        id: LinkId,
        client: ClientId,
        line: &[u8],
        out: &mut Outgoing,
    ) -> Result<Option<LinkId>, (&'static str, String)> {
        let Some(link) = self.links.get_mut(id) else { return Ok(None) };
        let slot = &self.slots[link.slot];
        let (name, max) = (slot.name(), slot.backend.in_flight_max);
        link.retry(out);
        link.calls.used_at = out.now;
        if let Some(why) = link.stopped() {
            return Err(("server_down", slot.unusable(&why)));
        }
        if let LinkStage::Failed(why) = &link.stage {
            return Err(("server_down", slot.unusable(why)));
        }
        if !link.is_open() {
            if link.calls.waiting.len() < max {
                link.calls.waiting.push_back((client, line.to_vec()));
                return Ok(None);
            }
            let why = format!(
                "nothing was done: {max} calls wait for the server `{name}`, which is still \
                 starting, as many as `in_flight_max` allows; try again later"
            );
            return Err(("server_busy", why));
        }
        let count = link.calls.in_flight;
        if count >= max {
            let why = format!(
                "nothing was done: {count} calls to the server `{name}` have no answer yet, as \
                 many as `in_flight_max` allows; wait for some of them"
            );
            return Err(("server_busy", why));
        }
        if let Some((timeouts, seconds)) = link.calls.circuit.open(out.now) {
            let why = format!(
                "nothing was done: the server `{name}` left {timeouts} calls in a row without an \
                 answer; it is tried again in {seconds} s"
            );
            return Err(("circuit_open", why));
        }
        link.calls.circuit.pass(out.now);
        Ok(Some(id))
    }

    /// The servers that are reached over HTTP, each with its address and the state of its newest link.
    pub(super) fn remotes(&self, now: Time) -> Vec<(String, String, State)> {
        let mut all = Vec::new();
        for (at, slot) in self.slots.iter().enumerate().filter(|(_, slot)| !slot.is_removed) {
            if let Transport::Http(_) = &slot.backend.transport {
                let newest = self.links.to(at).next_back();
                let state = newest.map_or(State::Stopped, |(_, link)| link.state(now));
                all.push((slot.name().to_owned(), slot.backend.transport.to_string(), state));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{backend, settings};
    use super::*;
    use crate::gateway::access_patterns::Access;

    #[test]
    fn clients_share_a_link_or_have_their_own() {
        let (mut backends, mut out) = (Backends::new(settings()), Outgoing::default());
        let share = Share::PerClient { instances_max: 1, idle_after: Duration::from_secs(1) };
        assert!(backends.add(backend("a"), &mut out));
        assert!(!backends.add(backend("a"), &mut out), "it is there already");
        assert!(backends.add(Backend { share, ..backend("b") }, &mut out));
        let mut sessions = BTreeMap::new();
        let mut link = |client: u64, slot: usize| {
            let id = ClientId(client);
            let session =
                sessions.entry(id).or_insert_with(|| ClientSession::new(Access::default()));
            backends.link_for(slot, id, session, &mut out)
        };
        assert_eq!((link(1, 0), link(2, 0)), (Ok(LinkId(1)), Ok(LinkId(1))));
        assert_eq!((link(1, 1), link(1, 1)), (Ok(LinkId(2)), Ok(LinkId(2))));
        assert!(link(2, 1).is_err_and(|why| why.contains("instances_max")));
    }

    #[test]
    fn a_changed_server_is_outdated() {
        let (mut backends, mut out) = (Backends::new(settings()), Outgoing::default());
        for name in ["a", "b", "c"] {
            backends.add(backend(name), &mut out);
        }
        let new = [backend("a"), Backend { in_flight_max: 1, ..backend("b") }];
        let outdated: Vec<usize> =
            backends.outdated(&new).into_iter().map(|(slot, _)| slot).collect();
        assert_eq!(outdated, [1, 2]);
        assert_eq!(backends.remove(1), [LinkId(2)]);
        assert_eq!(backends.outdated(&new).len(), 1);
        backends.put_in_order(&["c".to_owned(), "b".to_owned(), "a".to_owned()]);
        assert_eq!(backends.order, [2, 0]);
    }
}
