//! Owns one conversation of the gateway with a server: its handshake, its state, the calls over it, and the lists and
//! subscriptions of that server. Driven by [`Directory`](super::hub_state::Directory); [`Links`] keeps all of them, and
//! when each has something to do. Never knows what a client may use.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::link_calls::LinkCalls;
use super::outgoing::{Outgoing, Purpose, Response};
use super::server_lists::ServerLists;
use super::sessions::{LEVELS, Principal};
use crate::gateway::backend::{Backend, Share};
use crate::gateway::{ClientId, LinkId};
use crate::hidden_characters::escaped;
use crate::limits::{HANDSHAKE_MAX, PROBE_MAX, SESSION_RETRY};
use crate::mcp::envelope::Id;
use crate::mcp::replay::params;
use crate::mcp::{Era, Kind, json as raw, responses};
use crate::service::State;
use crate::time::Time;

/// A conversation with a server.
#[derive(Debug, Default)]
pub(super) struct Link {
    id: LinkId,
    pub(super) slot: usize,
    /// The one whose link it is; none where clients share it.
    pub(super) owner: Option<Principal>,
    is_stdio: bool,
    /// Clients see the server as it is: its lists are not read by the hub.
    pub(super) is_transparent: bool,
    /// The result of its first request, raw, where clients see it as it is.
    pub(super) introduction: Option<Vec<u8>>,
    pub(super) era: Era,
    pub(super) stage: LinkStage,
    /// The `_meta` of our own requests, raw; only the modern era has one.
    meta: Vec<u8>,
    /// The parameters of `initialize`, raw.
    opening: Vec<u8>,
    pub(super) capabilities: Value,
    pub(super) instructions: Option<String>,
    pub(super) retry_at: Option<Time>,
    /// The failure that was logged last.
    logged_failure: Option<String>,
    /// When the first request went over it.
    begun_at: Time,
    /// As its supervisor or its transport last reported it.
    server_state: Option<State>,
    /// The number of our first request since its server is down.
    down_since: Option<u64>,
    /// Its server did not come up: clients' first requests do not wait for it any more.
    has_failed: bool,
    /// The level of log messages that the server was asked for.
    pub(super) log_level: Option<usize>,
    /// The resources that the server was asked for.
    pub(super) subscribed: BTreeSet<String>,
    /// The number of our request that listens to changes.
    pub(super) listener: Option<u64>,
    pub(super) roots: LinkRoots,
    pub(super) lists: ServerLists,
    pub(super) calls: LinkCalls,
    /// Its wakeup, as [`Links`] has it.
    noted_wakeup: Option<Time>,
}

/// The roots that a server has.
#[derive(Debug, Default)]
pub(super) struct LinkRoots {
    /// The server has requested them.
    pub(super) are_wanted: bool,
    /// Whose it has.
    pub(super) owner: Option<Principal>,
    /// The owner's answer, where it cannot be asked at any time.
    pub(super) kept: Option<Vec<u8>>,
    /// When the owner used the server last.
    pub(super) used_at: Time,
}

/// The progress of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum LinkStage {
    /// Nothing was sent yet.
    #[default]
    Fresh,
    Opening,
    Open,
    Failed(String),
}

/// The end of a handshake.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HandshakeOutcome {
    Open,
    /// There is no server now.
    Failed(String),
    /// The server does not take the session.
    Refused(String),
    /// The server may know the older protocol.
    UnknownProtocol,
}

impl Link {
    pub(super) fn new(
        id: LinkId,
        slot: usize,
        backend: &Backend,
        owner: Option<Principal>,
        now: Time,
    ) -> Self {
        let idle_after = match (backend.share, &owner) {
            (Share::PerClient { idle_after, .. }, Some(_)) => Some(idle_after),
            _ => None,
        };
        Self {
            id,
            slot,
            owner,
            is_stdio: backend.is_stdio(),
            begun_at: now,
            calls: LinkCalls { used_at: now, idle_after, ..LinkCalls::default() },
            ..Self::default()
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.stage == LinkStage::Open
    }

    /// Why there is no session.
    pub(super) fn failure(&self) -> Option<&str> {
        match &self.stage {
            LinkStage::Failed(why) => Some(why),
            LinkStage::Fresh | LinkStage::Opening | LinkStage::Open => None,
        }
    }

    /// Whether its server serves, as far as is known.
    pub(super) fn is_up(&self) -> bool {
        let is_up =
            |state: &State| matches!(state, State::Ready | State::Running | State::Degraded { .. });
        self.server_state.as_ref().is_none_or(is_up)
    }

    /// Why there is no server now, in words; none where there is one, or one is starting.
    pub(super) fn absence(&self) -> Option<String> {
        match self.server_state.as_ref()? {
            State::Failed { why } => Some(why.clone()),
            State::BackingOff { .. } | State::CrashLoop { .. } => {
                Some("it has crashed, and is started again".to_owned())
            }
            State::Stopping | State::Stopped => {
                Some("a user stopped it; `afresh start` starts it again".to_owned())
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

    /// Why there is no server now, where it was down when a request was sent, and since then.
    pub(super) fn absence_since(&self, number: u64) -> Option<String> {
        self.absence().filter(|_| self.down_since.is_some_and(|at| at <= number))
    }

    /// Why a call cannot wait for its server: it was stopped.
    pub(super) fn stopped(&self) -> Option<String> {
        let is_stopped = matches!(self.server_state, Some(State::Stopped | State::Stopping));
        self.absence().filter(|_| is_stopped)
    }

    /// The state of the server, by all that is known over this link.
    pub(super) fn state(&self, now: Time) -> State {
        if let Some(state) = self.server_state.as_ref().filter(|_| !self.is_up()) {
            return state.clone();
        }
        match &self.stage {
            LinkStage::Fresh | LinkStage::Opening => State::Starting,
            LinkStage::Failed(why) => State::Failed { why: why.clone() },
            LinkStage::Open => match (self.calls.circuit.open(now), &self.server_state) {
                (Some((timeouts, seconds)), _) => State::Degraded {
                    why: format!(
                        "{timeouts} calls in a row had no answer; it is tried again in {seconds} s"
                    ),
                },
                (None, Some(state @ State::Degraded { .. })) => state.clone(),
                (None, _) => State::Ready,
            },
        }
    }

    /// Takes the state that its supervisor or its transport reports; `number` is that of the next request.
    pub(super) fn set_server_state(&mut self, state: State, number: u64) {
        self.server_state = Some(state);
        if self.is_up() {
            self.down_since = None;
        } else if self.absence().is_some() {
            self.down_since.get_or_insert(number);
            self.has_failed = true;
        }
    }

    /// Until when a client's first requests wait for the server's lists, each for so long; none where these are
    /// there, or the server has failed.
    pub(super) fn settles_at(&self, within: Duration) -> Option<Time> {
        let is_unsettled = match &self.stage {
            LinkStage::Fresh | LinkStage::Opening => !self.has_failed,
            LinkStage::Open => !self.lists.readings.is_empty(),
            LinkStage::Failed(_) => false,
        };
        is_unsettled.then(|| self.begun_at + within)
    }

    /// Sends the first request.
    pub(super) fn begin(&mut self, era: Era, meta: Vec<u8>, opening: Vec<u8>, out: &mut Outgoing) {
        (self.meta, self.opening, self.era) = (meta, opening, era);
        self.begun_at = out.now;
        self.open_session(out);
    }

    pub(super) fn open_session(&mut self, out: &mut Outgoing) {
        self.stage = LinkStage::Opening;
        self.retry_at = None;
        let (method, params, within) = match self.era {
            Era::Modern => ("server/discover", params(Some(&self.meta), b""), PROBE_MAX),
            Era::Legacy | Era::Unknown => ("initialize", self.opening.clone(), HANDSHAKE_MAX),
        };
        out.request(self.id, method, &params, Purpose::OpenSession, Some(within));
    }

    /// The response to the first request. Where the session is open now, the lists are read.
    pub(super) fn finish_handshake(
        &mut self,
        Response { line, is_error }: Response<'_>,
        out: &mut Outgoing,
    ) -> HandshakeOutcome {
        if is_error {
            let message = raw::get(line, &["error", "message"]).and_then(raw::text);
            let why = message.unwrap_or_else(|| "it refused the session".to_owned());
            // Written in the server's place by its conversation.
            let is_ours = raw::get(line, &["error", "data", "retryable"]).is_some();
            return match self.era {
                _ if is_ours => {
                    HandshakeOutcome::Failed(responses::without_consequence(&why).to_owned())
                }
                Era::Modern => HandshakeOutcome::UnknownProtocol,
                Era::Legacy | Era::Unknown => HandshakeOutcome::Refused(why),
            };
        }
        let part = |key: &str| raw::get(line, &["result", key]);
        self.capabilities = raw::value(part("capabilities"));
        let instructions = part("instructions").and_then(raw::text);
        self.instructions = match self.is_stdio {
            true => instructions,
            false => instructions.map(|text| escaped(&text).into_owned()),
        };
        self.stage = LinkStage::Open;
        self.logged_failure = None;
        self.has_failed = false;
        self.log_level = None;
        self.subscribed.clear();
        if self.era != Era::Modern {
            out.send_to_link(self.id, responses::notification("notifications/initialized", None));
        }
        if self.is_transparent {
            self.introduction = raw::get(line, &["result"]).map(<[u8]>::to_vec);
            return HandshakeOutcome::Open;
        }
        for kind in Kind::ALL {
            self.read_list(kind, out);
        }
        HandshakeOutcome::Open
    }

    /// The first request had no response in time.
    pub(super) fn handshake_timeout(&self) -> HandshakeOutcome {
        match (self.era, self.absence()) {
            (_, Some(why)) => HandshakeOutcome::Failed(why),
            (Era::Modern, None) => HandshakeOutcome::UnknownProtocol,
            (Era::Legacy | Era::Unknown, None) => {
                HandshakeOutcome::Refused("it did not answer the handshake in time".to_owned())
            }
        }
    }

    /// There is no session for now. Returns whether this is to be logged.
    pub(super) fn fail(&mut self, why: &str, now: Time) -> bool {
        self.stage = LinkStage::Failed(why.to_owned());
        self.retry_at = Some(now + SESSION_RETRY);
        self.lists.readings.clear();
        self.logged_failure.replace(why.to_owned()).as_deref() != Some(why)
    }

    /// A client needs a server whose session has failed: the session is opened again, unless that was tried of late.
    pub(super) fn retry(&mut self, out: &mut Outgoing) {
        if matches!(self.stage, LinkStage::Failed(_))
            && self.retry_at.is_none_or(|at| at <= out.now)
        {
            self.open_session(out);
        }
    }

    /// When the session is opened again though no client needs it. A program that was given up or stopped is left
    /// alone until one does: a request would start it.
    fn retry_at(&self) -> Option<Time> {
        let rests = matches!(
            self.server_state,
            Some(State::Failed { .. } | State::Stopped | State::Finished)
        );
        self.retry_at.filter(|_| !(rests && self.is_stdio))
    }

    pub(super) fn is_retry_due(&self, now: Time) -> bool {
        self.retry_at().is_some_and(|at| at <= now)
    }

    fn wakeup(&self) -> Option<Time> {
        [self.retry_at(), self.calls.idle_at(), self.lists.next_due()].into_iter().flatten().min()
    }

    /// Reads a list from its beginning, where the server has one.
    pub(super) fn read_list(&mut self, kind: Kind, out: &mut Outgoing) {
        if self.is_open() && self.has_list(kind) && self.lists.start(kind, out.now) {
            self.request_page(kind, None, out);
        }
    }

    /// Whether the server has a list, by its capabilities.
    pub(super) fn has_list(&self, kind: Kind) -> bool {
        let capability = match kind {
            Kind::Tools => "tools",
            Kind::Prompts => "prompts",
            Kind::Resources | Kind::Templates => "resources",
        };
        self.capabilities[capability].is_object()
    }

    pub(super) fn request_page(&self, kind: Kind, cursor: Option<&[u8]>, out: &mut Outgoing) {
        let meta = (self.era == Era::Modern).then_some(self.meta.as_slice());
        let cursor = cursor.map(|cursor| [br#""cursor":"#, cursor].concat());
        let params = params(meta, &cursor.unwrap_or_default());
        out.request(self.id, kind.method(), &params, Purpose::ListPage(kind), None);
    }

    /// Asks the server for log messages from this level on.
    pub(super) fn set_log_level(&mut self, level: usize, out: &mut Outgoing) {
        let has_levels =
            self.is_open() && self.era == Era::Legacy && self.capabilities["logging"].is_object();
        if has_levels && self.log_level != Some(level) {
            self.log_level = Some(level);
            let params = json!({"level": LEVELS[level]}).to_string();
            let method = "logging/setLevel";
            out.request(self.id, method, params.as_bytes(), Purpose::Unawaited, None);
        }
    }

    /// Asks the server for changes of these resources, where that is something else than before.
    pub(super) fn subscribe(&mut self, wanted: BTreeSet<String>, out: &mut Outgoing) {
        let known = std::mem::replace(&mut self.subscribed, wanted);
        let wanted = &self.subscribed;
        if self.era == Era::Modern {
            if known == *wanted && self.listener.is_some() {
                return;
            }
            let meta = String::from_utf8_lossy(&self.meta);
            let filter = json!({
                "toolsListChanged": true,
                "promptsListChanged": true,
                "resourcesListChanged": true,
                "resourceSubscriptions": wanted,
            });
            let params = format!(r#"{{"_meta":{meta},"notifications":{filter}}}"#);
            if let Some(old) = self.listener.filter(|old| out.requests.take(*old).is_some()) {
                out.cancel(self.id, old, "other resources are wanted");
            }
            let method = "subscriptions/listen";
            let number = out.request(self.id, method, params.as_bytes(), Purpose::Listen, None);
            self.listener = Some(number);
            return;
        }
        let has_subscribe = self.capabilities["resources"]["subscribe"] == true;
        for (method, uris) in [
            ("resources/subscribe", wanted.difference(&known)),
            ("resources/unsubscribe", known.difference(wanted)),
        ] {
            for uri in uris.filter(|_| has_subscribe) {
                let params = json!({"uri": uri}).to_string();
                out.request(self.id, method, params.as_bytes(), Purpose::Unawaited, None);
            }
        }
    }
}

/// The links by their ids. What is asked of all of them with each message is kept beside them, so that a message
/// does not cost more where there are more servers.
#[derive(Debug, Default)]
pub(super) struct Links {
    all: BTreeMap<LinkId, Link>,
    wakeups: BTreeSet<(Time, LinkId)>,
    /// Links that requests wait for.
    awaited: BTreeSet<LinkId>,
    /// Links that may have changed since `wakeups` and `awaited` were noted.
    touched: Vec<LinkId>,
}

impl Links {
    pub(super) fn get(&self, id: LinkId) -> Option<&Link> {
        self.all.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        if self.touched.last() != Some(&id) {
            self.touched.push(id);
        }
        self.all.get_mut(&id)
    }

    pub(super) fn insert(&mut self, link: Link) {
        self.touched.push(link.id);
        self.all.insert(link.id, link);
    }

    pub(super) fn remove(&mut self, id: LinkId) -> Option<Link> {
        let link = self.all.remove(&id)?;
        if let Some(wakeup) = link.noted_wakeup {
            self.wakeups.remove(&(wakeup, id));
        }
        self.awaited.remove(&id);
        Some(link)
    }

    /// The links to a server, the oldest first.
    pub(super) fn to(&self, slot: usize) -> impl DoubleEndedIterator<Item = (LinkId, &Link)> {
        self.all.iter().filter(move |(_, link)| link.slot == slot).map(|(id, link)| (*id, link))
    }

    pub(super) fn ids(&self) -> Vec<LinkId> {
        self.all.keys().copied().collect()
    }

    /// How many requests of clients wait for their servers.
    pub(super) fn waiting(&self) -> usize {
        self.all.values().map(|link| link.calls.waiting.len()).sum()
    }

    /// Whether a request waits for a link to open.
    pub(super) fn is_waiting(&self, client: ClientId, id: &Id) -> bool {
        let links = self.awaited.iter().chain(&self.touched).filter_map(|id| self.all.get(id));
        links
            .flat_map(|link| &link.calls.waiting)
            .any(|(whose, line)| *whose == client && has_id(line, id))
    }

    /// Drops the requests of a client that wait for links to open: all, or the one with this id.
    pub(super) fn forget_waiting(&mut self, client: ClientId, id: Option<&Id>) {
        self.touched.extend(&self.awaited);
        for id_of_link in &self.touched {
            if let Some(link) = self.all.get_mut(id_of_link) {
                let is_it = |line: &[u8]| id.is_none_or(|id| has_id(line, id));
                link.calls.waiting.retain(|(whose, line)| *whose != client || !is_it(line));
            }
        }
    }

    /// The earliest wakeup of all, as it was last noted.
    pub(super) fn next_wakeup(&self) -> Option<Time> {
        self.wakeups.first().map(|(at, _)| *at)
    }

    /// The links whose wakeups have come.
    pub(super) fn due(&self, now: Time) -> Vec<LinkId> {
        self.wakeups.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect()
    }

    /// Notes the wakeups of the links that may have changed.
    pub(super) fn note(&mut self) {
        for id in self.touched.drain(..) {
            let Some(link) = self.all.get_mut(&id) else { continue };
            if !link.calls.waiting.is_empty() {
                self.awaited.insert(id);
            } else if !self.awaited.is_empty() {
                self.awaited.remove(&id);
            }
            let wakeup = link.wakeup();
            if link.noted_wakeup != wakeup {
                let before = std::mem::replace(&mut link.noted_wakeup, wakeup);
                before.map(|before| self.wakeups.remove(&(before, id)));
                self.wakeups.extend(wakeup.map(|wakeup| (wakeup, id)));
            }
        }
        debug_assert!(
            self.all.values().all(|link| link.noted_wakeup == link.wakeup()),
            "a wakeup is not noted"
        );
    }
}

/// Whether a request has this id.
pub(super) fn has_id(line: &[u8], id: &Id) -> bool {
    raw::get(line, &["id"]).is_some_and(|raw| Id::new(raw) == *id)
}

#[cfg(test)]
mod tests {
    use super::super::tests::backend;
    use super::*;

    fn link(share: Share) -> Link {
        let backend = Backend { share, ..backend("a") };
        Link::new(LinkId(1), 0, &backend, Some(Principal::Session(ClientId(1))), Time::ZERO)
    }

    #[test]
    fn a_session_is_opened_again_after_a_pause() {
        let (mut link, mut out) = (link(Share::All), Outgoing::default());
        link.begin(Era::Legacy, Vec::new(), b"{}".to_vec(), &mut out);
        let refusal = br#"{"error":{"code":1,"message":"no"}}"#;
        let refused = HandshakeOutcome::Refused("no".to_owned());
        assert_eq!(
            link.finish_handshake(Response { line: refusal, is_error: true }, &mut out),
            refused
        );
        assert!(link.fail("no", out.now));
        assert!(!link.fail("no", out.now), "the same failure is logged once");
        link.retry(&mut out);
        assert_eq!(link.stage, LinkStage::Failed("no".to_owned()));
        out.now = Time::ZERO + SESSION_RETRY;
        assert!(link.is_retry_due(out.now));
        link.retry(&mut out);
        assert_eq!(link.stage, LinkStage::Opening);
        assert_eq!(
            link.finish_handshake(
                Response { line: br#"{"result":{}}"#, is_error: false },
                &mut out
            ),
            HandshakeOutcome::Open
        );
        assert!(link.is_open() && !link.is_retry_due(out.now));
    }

    #[test]
    fn the_wakeups_of_links_are_noted() {
        let idle_after = Duration::from_secs(9);
        let mut links = Links::default();
        links.insert(link(Share::PerClient { instances_max: 1, idle_after }));
        links.note();
        let idle_at = Time::ZERO + idle_after;
        assert_eq!((links.next_wakeup(), links.due(Time::ZERO)), (Some(idle_at), Vec::new()));
        assert_eq!(links.due(idle_at), [LinkId(1)]);
        if let Some(link) = links.get_mut(LinkId(1)) {
            link.calls.start(ClientId(1));
        }
        links.note();
        assert_eq!(links.next_wakeup(), None);
        links.remove(LinkId(1));
        assert_eq!(links.ids(), []);
    }

    #[test]
    fn requests_that_wait_are_found_and_dropped() {
        let mut links = Links::default();
        links.insert(link(Share::All));
        let (client, id) = (ClientId(1), Id::new(b"5"));
        if let Some(link) = links.get_mut(LinkId(1)) {
            link.calls.waiting.push_back((client, br#"{"id":5}"#.to_vec()));
        }
        assert!(links.is_waiting(client, &id) && !links.is_waiting(ClientId(2), &id));
        links.note();
        links.forget_waiting(client, Some(&Id::new(b"6")));
        assert!(links.is_waiting(client, &id));
        links.forget_waiting(client, Some(&id));
        assert!(!links.is_waiting(client, &id));
    }
}
