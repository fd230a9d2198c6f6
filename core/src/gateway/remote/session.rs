//! The session: how it is opened, and opened anew when the server or the way to it was lost.

use std::time::Duration;

use super::error_responses::Trouble;
use super::{
    At, Effect, Header, Own, Purpose, Remote, Standalone, State, Step, Transport, Waiting,
};
use crate::backoff::ExponentialWait;
use crate::limits::{
    GUESS_WAIT, NOTICE_WAIT, QUEUE_WAIT, RECONNECT_DELAY, RECONNECT_DELAY_MAX, RECONNECT_JITTER,
    STREAM_STABLE,
};
use crate::mcp::Era;
use crate::mcp::envelope::Id;
use crate::mcp::json::{self, get};
use crate::mcp::responses::{cancelled, notification, request};
use crate::time::Time;

/// What is told of each list that may have changed, and the filter of those who listen for it.
const LISTS: [(&str, &str); 3] = [
    ("notifications/tools/list_changed", "toolsListChanged"),
    ("notifications/resources/list_changed", "resourcesListChanged"),
    ("notifications/prompts/list_changed", "promptsListChanged"),
];

impl Remote {
    /// What each request of a session says of it.
    pub(super) fn session_headers(&self) -> Vec<Header> {
        let id = self.session.id.clone().map(|id| ("mcp-session-id".into(), id));
        let version = self.session.version.clone();
        let version = version.map(|version| ("mcp-protocol-version".into(), version));
        id.into_iter().chain(version).collect()
    }

    /// Opens what is missing, or finds that nothing is.
    pub(super) fn open(&mut self, now: Time) {
        let mut until = Self::opens_until(now);
        if let Transport::Old { stream: None, instead, .. } = &self.transport {
            // Nobody has asked for anything yet.
            let is_wanted = !self.waiting.is_empty() || instead.is_some();
            if !is_wanted && self.replayed().is_none() {
                return;
            }
            if instead.is_some() {
                until = now + GUESS_WAIT;
            }
            let exchange = self.get(Purpose::Main, None);
            if let Transport::Old { stream, .. } = &mut self.transport {
                *stream = Some(exchange);
            }
            self.state = State::Opening { step: Step::Stream(exchange), until };
            return;
        }
        match self.replayed().filter(|_| !self.session.is_open) {
            None => self.state = State::Up,
            Some(params) => {
                let id = self.own_id(Own::Opening);
                let text: String = json::text(id.raw()).unwrap_or_default();
                let line = request(&text, "initialize", Some(&params));
                let exchange = self.post(Purpose::Opening, line, Vec::new());
                self.state = State::Opening { step: Step::Initialize(id, exchange), until };
            }
        }
    }

    /// The parameters of the hub's `initialize`, if it has been answered.
    pub(super) fn replayed(&self) -> Option<Vec<u8>> {
        match self.memory.era {
            Era::Legacy => self.memory.opening().map(|(_, params)| params),
            Era::Modern | Era::Unknown => None,
        }
    }

    fn own_id(&mut self, own: Own) -> Id {
        let id = Id::new(format!("\"afresh-link-{}\"", self.next_number).as_bytes());
        self.next_number += 1;
        self.own.insert(id.clone(), own);
        id
    }

    /// The stream of the old transport says where messages go.
    pub(super) fn endpoint_known(&mut self, now: Time, place: String) {
        if let Transport::Old { endpoint, instead, .. } = &mut self.transport {
            (*endpoint, *instead) = (Some(place), None);
        }
        self.session.opened_at = now;
        self.state = State::Closed;
        self.open(now);
    }

    /// Our own `initialize` was answered.
    pub(super) fn opening_answered(&mut self, now: Time, line: &[u8], is_error: bool) {
        let State::Opening { step: Step::Initialize(_, exchange), .. } = self.state else { return };
        self.finish(exchange);
        if is_error {
            let said = get(line, &["error", "message"]).and_then(json::text);
            let why = said.unwrap_or_else(|| "it answered with an error".to_owned());
            return self.opening_refused(now, Trouble::NoSession(why));
        }
        self.version_agreed(now, line);
        let is_initialized = |waiting: &Waiting| match waiting {
            Waiting::Notice { line, .. } => Self::purpose_of(line.clone()) == Purpose::Initialized,
            Waiting::Request(_) => false,
        };
        self.waiting.retain(|waiting| !is_initialized(waiting));
        match self.memory.initialized() {
            None => self.is_open_again(now),
            Some(line) => {
                let exchange = self.post(Purpose::Initialized, line, self.session_headers());
                let until = now + NOTICE_WAIT;
                self.state = State::Opening { step: Step::Initialized(exchange), until };
            }
        }
    }

    /// The answer to an `initialize` came, the hub's or ours.
    pub(super) fn version_agreed(&mut self, now: Time, answer: &[u8]) {
        let version = get(answer, &["result", "protocolVersion"]).and_then(json::text);
        let version = version.filter(|text| crate::sse::is_header_value(text.as_bytes()));
        self.session.version = version;
        self.session.is_open = true;
        self.session.opened_at = now;
    }

    /// The server knows that the session is open: everything else may follow.
    pub(super) fn initialized_accepted(&mut self, now: Time) {
        // Only where it is a new session of a link that had one does the hub have to look again.
        match self.session.number {
            0 => {
                self.state = State::Up;
                self.want_standalone(now);
            }
            _ => self.is_open_again(now),
        }
    }

    fn is_open_again(&mut self, now: Time) {
        self.state = State::Up;
        self.log("a new session is open");
        for (method, params) in self.memory.restoring() {
            let id = self.own_id(Own::Restoring);
            let text: String = json::text(id.raw()).unwrap_or_default();
            let line = request(&text, method, Some(&params));
            let exchange = self.post(Purpose::Own(id), line, self.session_headers());
            self.notices.insert(exchange, now + NOTICE_WAIT);
        }
        self.tell_changes(None);
        self.want_standalone(now);
    }

    /// What the lists and resources are now is not known: the hub is told to look. `listener` is the
    /// only one to be told, of those who listen in the modern era.
    pub(super) fn tell_changes(&mut self, listener: Option<&Id>) {
        let mut told = Vec::new();
        for (method, filter) in LISTS {
            let listeners = self.memory.list_listeners(filter);
            told.extend(listeners.into_iter().map(|params| (method, params)));
        }
        let updates = self.memory.updates().into_iter();
        told.extend(updates.map(|params| ("notifications/resources/updated", Some(params))));
        for (method, params) in told {
            let path = ["_meta", "io.modelcontextprotocol/subscriptionId"];
            let about = params.as_deref().and_then(|params| get(params, &path)).map(Id::new);
            if listener.is_none() || about.as_ref() == listener {
                let line = notification(method, params.as_deref());
                self.effects.push(Effect::Tell { line, about });
            }
        }
    }

    /// The server has forgotten the session.
    pub(super) fn lost(&mut self, now: Time) {
        self.log("it has forgotten the session");
        self.forget_session();
        self.count_loss(now);
        // Their streams were of that session.
        for id in self.broken.keys().cloned().collect::<Vec<_>>() {
            self.settle(now, &id, &Trouble::Forgotten);
        }
        if self.replayed().is_none() {
            // The hub has not got its own one yet.
            self.state = State::Up;
            return;
        }
        self.reopen_after_loss(now, Trouble::ForgetsAlways);
    }

    /// Everything of the session is void.
    pub(super) fn forget_session(&mut self) {
        self.session.number += 1;
        self.session.id = None;
        self.session.is_open = false;
        for (id, asked) in std::mem::take(&mut self.asked) {
            debug_assert!(asked.session < self.session.number);
            let id: String = json::text(id.raw()).unwrap_or_default();
            self.effects.push(Effect::Tell { line: cancelled(&id), about: None });
        }
        if let Some(exchange) = self.standalone.exchange {
            self.close(exchange);
        }
        self.standalone = Standalone::default();
        self.own.clear();
        // A stream that is being opened is as good for the next session.
        if let State::Opening {
            step: Step::Initialize(_, exchange) | Step::Initialized(exchange),
            ..
        } = self.state
        {
            self.close(exchange);
            self.state = State::Closed;
        }
    }

    fn count_loss(&mut self, now: Time) {
        let was_stable = now.since(self.session.opened_at) >= STREAM_STABLE;
        self.losses = if was_stable { 1 } else { self.losses + 1 };
    }

    fn reopen_after_loss(&mut self, now: Time, why: Trouble) {
        let delay = self.delay(self.losses);
        self.state = match delay.is_zero() {
            true => State::Closed,
            false => {
                let earliest = now + delay.min(RECONNECT_DELAY);
                State::Down { at: Some(now + delay), earliest, why }
            }
        };
        if delay.is_zero() {
            self.open(now);
        }
    }

    /// The one stream of the old transport is over: so is everything that it would have answered.
    pub(super) fn main_lost(&mut self, now: Time, trouble: Trouble, was_given: &Trouble) {
        let Transport::Old { stream, endpoint, instead } = &mut self.transport else { return };
        (*stream, *endpoint) = (None, None);
        let was_open = self.session.is_open;
        if let Some(instead) = instead.take() {
            return self.guessed_wrong(&instead);
        }
        self.forget_session();
        let given: Vec<Id> = self
            .owed
            .iter()
            .filter(|(_, owed)| matches!(owed.at, At::Given | At::Asked(_)))
            .map(|(id, _)| id.clone())
            .collect();
        for id in given.iter().rev() {
            if let Some(At::Asked(exchange)) = self.owed.get(id).map(|owed| owed.at) {
                self.close(exchange);
            }
            self.settle(now, id, was_given);
        }
        if was_open {
            self.count_loss(now);
            return self.reopen_after_loss(now, trouble);
        }
        if trouble.is_final() {
            return self.opening_refused(now, trouble);
        }
        self.state = State::Closed;
        self.down(now, trouble, None);
    }

    /// The server speaks neither: the first answer is the one that counts.
    fn guessed_wrong(&mut self, instead: &Trouble) {
        self.transport = Transport::Streamable { is_certain: false };
        self.state = State::Up;
        let handshakes: Vec<Id> = self
            .owed
            .iter()
            .filter(|(_, owed)| owed.flight.method == "initialize")
            .map(|(id, _)| id.clone())
            .collect();
        for id in handshakes {
            self.answer(&id, instead);
        }
    }

    /// No session, and trying again by ourselves would not change that.
    pub(super) fn opening_refused(&mut self, now: Time, why: Trouble) {
        self.state = State::Closed;
        self.down(now, why, None);
        if let State::Down { at, .. } = &mut self.state {
            *at = None;
        }
        self.answer_waiting();
    }

    /// The server cannot be reached, or wants to be left alone for so long.
    pub(super) fn down(&mut self, now: Time, why: Trouble, ordered: Option<Duration>) {
        match &self.state {
            // Others have said so.
            State::Down { .. } if ordered.is_none() => return,
            // It will find out.
            State::Opening { step, .. } if self.exchanges.contains_key(&step.exchange()) => return,
            _ => {}
        }
        self.failures += 1;
        if self.failures == 1 {
            let text = why.text(self.origin());
            self.effects.push(Effect::Log(text));
        }
        if !matches!(why, Trouble::Busy(_)) && !self.is_away {
            self.is_away = true;
            self.effects.push(Effect::Serves(Err(why.state(self.origin()))));
        }
        let delay = self.delay(self.failures);
        let (delay, earliest) = match ordered {
            Some(wait) => (wait, wait),
            None => (delay, delay.min(RECONNECT_DELAY)),
        };
        self.state = State::Down { at: Some(now + delay), earliest: now + earliest, why };
        if earliest > QUEUE_WAIT {
            self.answer_waiting();
        }
    }

    /// The wait before the n-th try.
    pub(super) fn delay(&mut self, tries: u32) -> Duration {
        if tries <= 1 {
            return Duration::ZERO;
        }
        let waits = ExponentialWait::doubling(RECONNECT_DELAY, RECONNECT_DELAY_MAX);
        waits.jittered(tries - 2, RECONNECT_JITTER, self.random.unit())
    }

    /// The time has come to see whether the server is back.
    pub(super) fn try_again(&mut self, now: Time) {
        self.state = State::Closed;
        self.open(now);
        // One finds out for all.
        while self.state == State::Up {
            let Some(first) = self.waiting.pop_front() else { return };
            if let Some(exchange) = self.give(now, first)
                && self.state == State::Up
            {
                self.state = State::Scouting(exchange);
            }
        }
    }

    /// The server has answered something: it is there.
    pub(super) fn is_there(&mut self) {
        if std::mem::take(&mut self.failures) > 0 {
            self.log("it answers again");
        }
        if std::mem::take(&mut self.is_away) {
            self.effects.push(Effect::Serves(Ok(())));
        }
    }

    pub(super) fn expire_opening(&mut self, now: Time) {
        let State::Opening { step, until } = &self.state else { return };
        if *until > now {
            return;
        }
        match step.clone() {
            Step::Initialized(exchange) => {
                self.close(exchange);
                self.initialized_accepted(now);
            }
            Step::Initialize(_, exchange) => {
                self.close(exchange);
                self.state = State::Closed;
                self.down(now, Trouble::Silent, None);
            }
            Step::Stream(exchange) => {
                self.close(exchange);
                self.state = State::Closed;
                self.main_lost(now, Trouble::Silent, &Trouble::Silent);
            }
        }
    }
}
