//! Links to servers: when they are opened, and when they are closed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use super::super::backend::{Backend, Share, Target};
use super::super::catalog::Entry;
use super::super::{ClientId, Effect, LinkId};
use super::Hub;
use super::list_paging::{Oddity, Pace, Reading};
use super::session::Client;
use crate::mcp::{AdminTool, Era, Kind};
use crate::service::State;
use crate::time::Time;

/// A server, and its links.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) backend: Backend,
    /// It is in the configuration no more.
    pub(super) is_gone: bool,
    /// A link that nobody has spoken over yet.
    fresh: Option<LinkId>,
    /// The links that all share, for each era.
    pub(super) legacy: Option<LinkId>,
    pub(super) modern: Option<LinkId>,
    /// It was asked for the modern era, and does not know it.
    pub(super) is_legacy_only: bool,
    /// What it had when somebody last looked.
    pub(super) known: BTreeMap<Kind, Vec<Entry>>,
    /// What was said of its lists.
    pub(super) oddities: BTreeSet<(Kind, Oddity)>,
}

/// A conversation with a server.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) slot: usize,
    pub(super) era: Era,
    /// Whose it is; everybody's where it is nobody's.
    pub(super) owner: Option<ClientId>,
    pub(super) stage: Stage,
    pub(super) capabilities: Value,
    pub(super) instructions: Option<String>,
    pub(super) lists: BTreeMap<Kind, Vec<Entry>>,
    /// Lists that are being asked for, page by page.
    pub(super) reading: BTreeMap<Kind, Reading>,
    /// How often they were asked for of late.
    pub(super) paces: BTreeMap<Kind, Pace>,
    /// What our own tools are called there.
    pub(super) own_tools: BTreeMap<AdminTool, String>,
    /// Requests of clients' that wait until it is open.
    pub(super) waiting: VecDeque<(ClientId, Vec<u8>)>,
    pub(super) in_flight: usize,
    /// The client that called last.
    pub(super) caller: Option<ClientId>,
    /// It has asked for roots.
    pub(super) asks_roots: bool,
    /// Whom they were asked of.
    pub(super) roots_of: Option<ClientId>,
    /// Calls in a row that were not answered in time.
    pub(super) late: u32,
    /// Until then calls are answered at once.
    pub(super) closed_until: Option<Time>,
    pub(super) retry_at: Option<Time>,
    /// Why it failed, as it was last said.
    pub(super) stage_told: Option<String>,
    /// The level of its log that was asked for.
    pub(super) level: Option<usize>,
    pub(super) subscribed: BTreeSet<String>,
    /// The number of our request that listens.
    pub(super) listens: Option<u64>,
    /// The `_meta` of our own requests, raw; only the modern era has one.
    pub(super) meta: Vec<u8>,
    /// The parameters of `initialize`, raw.
    pub(super) opening: Vec<u8>,
    pub(super) used_at: Time,
    /// When something has to be done about it, as it was last noted.
    pub(super) moment: Option<Time>,
    /// When somebody first spoke over it.
    pub(super) begun_at: Time,
    /// How its server does, where that was said.
    pub(super) state: Option<State>,
    /// The number of our first request since its server is not there.
    pub(super) down_since: Option<u64>,
    /// Its server did not come up: it is not waited for any more.
    pub(super) has_failed: bool,
}

impl Link {
    /// Whether its server serves, as far as is known.
    pub(super) fn is_up(&self) -> bool {
        let is_up =
            |state: &State| matches!(state, State::Ready | State::Running | State::Degraded { .. });
        self.state.as_ref().is_none_or(is_up)
    }

    /// Why there is no server now, in words; none where there is one, or one is on its way.
    pub(super) fn absence(&self) -> Option<String> {
        match self.state.as_ref()? {
            State::Failed { why } => Some(why.clone()),
            State::BackingOff { .. } | State::CrashLoop { .. } => {
                Some("it has crashed, and is started again".to_owned())
            }
            State::Stopping | State::Stopped => {
                Some("somebody has stopped it; `afresh start` starts it again".to_owned())
            }
            State::Finished => Some("it has ended".to_owned()),
            State::Waiting
            | State::Starting
            | State::Restarting
            | State::Running
            | State::Ready
            | State::Degraded { .. } => None,
        }
    }
}

/// How far a link is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Fresh,
    Opening,
    Open,
    Failed(String),
}

impl Hub {
    /// The servers are these now.
    pub(super) fn configure(&mut self, backends: Vec<Backend>) {
        let own_before = self.own_of_all();
        for slot in 0..self.servers.len() {
            let server = &self.servers[slot];
            let new = backends.iter().find(|backend| backend.name == server.backend.name);
            match new {
                _ if server.is_gone => {}
                Some(new) if *new == server.backend => {}
                Some(_) => self.remove(slot, "its configuration has changed"),
                None => self.remove(slot, "it was taken out of the configuration"),
            }
        }
        let names: Vec<String> = backends.iter().map(|its| its.name.clone()).collect();
        for backend in backends {
            let is_there = |its: &Server| !its.is_gone && its.backend.name == backend.name;
            if self.servers.iter().any(is_there) {
                continue;
            }
            let is_shared = backend.share == Share::All;
            self.servers.push(Server {
                backend,
                is_gone: false,
                fresh: None,
                legacy: None,
                modern: None,
                is_legacy_only: false,
                known: BTreeMap::new(),
                oddities: BTreeSet::new(),
            });
            let slot = self.servers.len() - 1;
            self.put_in_order(&names);
            if is_shared {
                let link = self.open(slot, None, "");
                self.servers[slot].fresh = Some(link);
            }
            // Clients that are there already use it from now on.
            for client in self.clients.keys().copied().collect::<Vec<_>>() {
                if self.clients.get(&client).is_some_and(|client| client.era != Era::Unknown) {
                    self.use_servers(client);
                }
            }
        }
        self.put_in_order(&names);
        let moved = self.make_routes(&Kind::ALL);
        // Our own tools name the programs among the servers.
        let mut told = BTreeSet::new();
        for (client, before) in own_before {
            if self.own_definitions(client) != before {
                self.tell_client_list_changed(client, Kind::Tools);
                told.insert((client, Kind::Tools));
            }
        }
        self.tell_moved(&moved, told);
        self.resume_held();
    }

    /// A server is not there any more: neither are its links, and what was asked of it is not answered.
    fn remove(&mut self, slot: usize, why: &str) {
        self.servers[slot].is_gone = true;
        let links: Vec<LinkId> =
            self.links.iter().filter(|(_, link)| link.slot == slot).map(|(id, _)| *id).collect();
        for link in links {
            self.close(link, why);
        }
        self.tell_lists_changed(slot);
    }

    /// Ends a link; whoever waits for something over it is told.
    pub(super) fn close(&mut self, link: LinkId, why: &str) {
        self.fail_flights(link, why);
        let Some(its) = self.links.remove(&link) else { return };
        let server = &mut self.servers[its.slot];
        for place in [&mut server.fresh, &mut server.legacy, &mut server.modern] {
            place.take_if(|there| *there == link);
        }
        if let Some(owner) = its.owner.and_then(|owner| self.clients.get_mut(&owner)) {
            owner.links.remove(&its.slot);
        }
        let name = self.servers[its.slot].backend.name.clone();
        for (client, line) in its.waiting {
            let why = format!("the server `{name}` is not there: {why}");
            self.fail_line(client, its.slot, &line, &why);
        }
        self.asked.retain(|_, asked| asked.link != link);
        self.unasked.retain(|unasked| unasked.link != link);
        self.effects.push(Effect::Close { link });
    }

    fn open(&mut self, slot: usize, owner: Option<ClientId>, suffix: &str) -> LinkId {
        let link = LinkId(self.next_link);
        self.next_link += 1;
        let backend = self.servers[slot].backend.name.clone();
        self.links.insert(
            link,
            Link {
                slot,
                era: Era::Unknown,
                owner,
                stage: Stage::Fresh,
                capabilities: Value::Null,
                instructions: None,
                lists: BTreeMap::new(),
                reading: BTreeMap::new(),
                paces: BTreeMap::new(),
                own_tools: BTreeMap::new(),
                waiting: VecDeque::new(),
                in_flight: 0,
                caller: None,
                asks_roots: false,
                roots_of: None,
                late: 0,
                closed_until: None,
                retry_at: None,
                stage_told: None,
                level: None,
                subscribed: BTreeSet::new(),
                listens: None,
                meta: Vec::new(),
                opening: Vec::new(),
                used_at: self.now,
                moment: None,
                begun_at: self.now,
                state: None,
                down_since: None,
                has_failed: false,
            },
        );
        self.effects.push(Effect::Open { link, backend, suffix: suffix.to_owned() });
        link
    }

    /// The link that a client has to a server, if there is one.
    pub(super) fn current_link(&self, client: ClientId, slot: usize) -> Option<LinkId> {
        let its = self.clients.get(&client)?;
        let server = &self.servers[slot];
        match self.own_instances(its, slot) {
            Some(_) => its.links.get(&slot).copied(),
            None if its.is_modern() && !server.is_legacy_only => server.modern,
            None => server.legacy,
        }
    }

    /// How many instances there may be of a server of which the client has its own; none where it shares
    /// one. Over HTTP the newer protocol has no sessions: whoever speaks it cannot be told from others.
    fn own_instances(&self, client: &Client, slot: usize) -> Option<usize> {
        match self.servers[slot].backend.share {
            Share::PerClient { instances_max, .. } => {
                (!client.is_modern() || self.settings.is_single).then_some(instances_max)
            }
            Share::All => None,
        }
    }

    /// Opens all that a client needs.
    pub(super) fn use_servers(&mut self, client: ClientId) {
        for slot in self.slots_of(client) {
            // Why not is said when it is used.
            self.link_for(client, slot).ok();
        }
    }

    /// The link over which a client speaks to a server; opens it where there is none.
    pub(super) fn link_for(&mut self, client: ClientId, slot: usize) -> Result<LinkId, String> {
        if let Some(link) = self.current_link(client, slot) {
            return Ok(link);
        }
        let Some(its) = self.clients.get(&client) else { return Err("nobody asks".to_owned()) };
        let is_modern = its.is_modern() && !self.servers[slot].is_legacy_only;
        let link = match self.own_instances(its, slot) {
            Some(instances_max) => {
                let count = self.links.values().filter(|link| link.slot == slot).count();
                if count >= instances_max {
                    return Err(format!(
                        "it already runs {count} times, as often as `instances_max` allows; try again \
                         when another client is gone"
                    ));
                }
                let link = self.open(slot, Some(client), &format!("@{}", client.0));
                if let Some(its) = self.clients.get_mut(&client) {
                    its.links.insert(slot, link);
                }
                link
            }
            None => {
                let server = &self.servers[slot];
                let has_other = server.legacy.or(server.modern).is_some();
                let fresh = self.servers[slot].fresh.take();
                let suffix = if has_other { "@2" } else { "" };
                let link = fresh.unwrap_or_else(|| self.open(slot, None, suffix));
                let server = &mut self.servers[slot];
                *(if is_modern { &mut server.modern } else { &mut server.legacy }) = Some(link);
                link
            }
        };
        self.begin(link, client, if is_modern { Era::Modern } else { Era::Legacy });
        Ok(link)
    }

    pub(super) fn send_waiting(&mut self, link: LinkId) {
        let Some(its) = self.links.get_mut(&link) else { return };
        for (client, line) in std::mem::take(&mut its.waiting) {
            self.client(client, line, true);
        }
    }

    /// Whether the server is a program of ours, with our own tools beside its own.
    pub(super) fn is_stdio(&self, slot: usize) -> bool {
        matches!(self.servers[slot].backend.target, Target::Stdio(_))
    }
}
