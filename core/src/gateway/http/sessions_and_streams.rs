//! Owns all sessions and their streams, between connections and the hub. Driven by the daemon's HTTP front. Never
//! touches a socket.
//!
//! A session lives in `clients` and, by its name, in `sessions`; a connection that waits for a response is an exchange.
//! The first half has the way from connections to the hub, the second, from `told` on, the way back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::admission::{PostBody, Tokens};
use super::client_state::{
    FrontClient, MessageStream, STANDALONE, SessionId, event, parse_event_id,
};
use super::rate_limit::{Caller, Callers};
use super::unread_budget::{Unread, unread_error};
use super::{FrontEffect, FrontInput, FrontRequest, HttpExchange, HttpRefusal, RequestKind};
use crate::gateway::access_patterns::Access;
use crate::gateway::settings::FrontSettings;
use crate::gateway::{ClientId, Input};
use crate::limits::{
    FRONT_ENDED_MAX, FRONT_KEPT_ALL_BYTES_MAX, FRONT_QUIET_MAX, FRONT_REQUESTS_MAX,
    FRONT_RESERVED_PART, FRONT_SHORT_BYTES,
};
use crate::mcp::envelope::{Id, Message, look};
use crate::mcp::json;
use crate::time::Time;

/// The machine.
#[derive(Debug, Default)]
pub struct Front {
    settings: FrontSettings,
    tokens: Tokens,
    /// When streams get a sign of life; none where there is no stream.
    sign_at: Option<Time>,
    pub(super) clients: BTreeMap<ClientId, FrontClient>,
    pub(super) last_client: u64,
    /// How many of them each token has.
    by_token: BTreeMap<Option<usize>, usize>,
    pub(super) sessions: BTreeMap<SessionId, ClientId>,
    exchanges: BTreeMap<HttpExchange, (ClientId, u64)>,
    callers: Callers,
    /// When to look whether a session is used; one entry for each.
    idle: BTreeSet<(Time, ClientId)>,
    /// Requests that have nothing of an answer yet, and until when that is so.
    quiet: BTreeMap<HttpExchange, Time>,
    /// Streams that have ended and are kept, the oldest first.
    ended: VecDeque<(ClientId, u64)>,
    pub(super) kept_bytes: usize,
    unread: Unread,
    is_closing: bool,
    pub(super) effects: Vec<FrontEffect>,
}

impl Front {
    /// A front without clients.
    pub fn new(settings: &FrontSettings) -> Self {
        let mut tokens = Tokens::default();
        tokens.renew(&settings.tokens);
        Self { settings: settings.clone(), tokens, ..Self::default() }
    }

    /// Notes one input, and says what must be done.
    pub fn handle(&mut self, now: Time, input: FrontInput) -> Vec<FrontEffect> {
        match input {
            FrontInput::Request(asked) => {
                let exchange = asked.exchange;
                if let Err(refusal) = self.asked(now, asked) {
                    self.effects.push(FrontEffect::Refuse { exchange, refusal });
                }
            }
            FrontInput::Gone(exchange) => drop(self.gone(now, exchange)),
            FrontInput::Slow(exchange) => self.slow(now, exchange),
            FrontInput::Told { client, line, about } => self.told(client, line, about.as_ref()),
            FrontInput::Sent(sent) => self.unread.add(sent.token, sent.exchange, sent.bytes),
            FrontInput::Written(sent) => self.unread.remove(sent.token, sent.exchange, sent.bytes),
            FrontInput::Configured(settings) => self.configure(now, &settings),
            FrontInput::Wakeup => self.wakeup(now),
            FrontInput::Close => self.close(),
        }
        let has_begun = |effect: &FrontEffect| matches!(effect, FrontEffect::Begin { .. });
        if self.sign_at.is_none()
            && self.settings.keep_alive.is_some()
            && self.effects.iter().any(has_begun)
        {
            self.sign_at = self.settings.keep_alive.map(|interval| now + interval);
        }
        std::mem::take(&mut self.effects)
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let idle = self.idle.first().map(|(at, _)| *at);
        // Numbers and moments go up together, but for some that overtook others.
        let quiet = self.quiet.values().next().copied();
        idle.into_iter().chain(quiet).chain(self.sign_at).min()
    }

    /// Whether a message of this length may wait for a client of this token; else its connection is closed.
    pub fn has_room(&self, token: Option<usize>, bytes: usize) -> bool {
        self.unread.admits(token, bytes)
    }

    fn asked(&mut self, now: Time, asked: FrontRequest) -> Result<(), HttpRefusal> {
        let FrontRequest { exchange, token, peer, session, issued, resumes, primes, ask } = asked;
        // It was let in before the settings were others.
        let access = self.tokens.access(token).ok_or_else(HttpRefusal::unknown_token)?;
        let mut client = session.as_deref().map(|name| self.session(name, token));
        self.count(now, (token, peer), client.flatten(), &ask)?;
        if let (Some(None), Some(name), Some(resumes)) = (client, session, resumes) {
            client = Some(self.resume(now, &name, (token, access.clone()), &resumes)?);
        }
        match ask {
            RequestKind::Post { line, post: PostBody::Modern(id), .. } => {
                let client = self.join(now, None, (token, access), &id)?;
                self.ask(now, client, vec![id], exchange, false);
                self.effects.push(FrontEffect::Hub(Input::Client { client, line }));
            }
            RequestKind::Post { post: PostBody::Nothing, .. } => self.accept(exchange, 202),
            RequestKind::Post { line, post: PostBody::Initialize(id), new } => {
                match client {
                    None => {}
                    Some(None) => return Err(HttpRefusal::no_session().of(&id)),
                    Some(Some(_)) => {
                        let what = "this session is initialized already";
                        return Err(HttpRefusal::new(400, what).of(&id));
                    }
                }
                let name = issued.unwrap_or_else(|| new.to_string());
                let client = self.join(now, Some((new, &name)), (token, access), &id)?;
                self.ask(now, client, vec![id], exchange, primes);
                self.effects.push(FrontEffect::Hub(Input::Client { client, line }));
            }
            RequestKind::Post { line, post: PostBody::Session { ids, .. }, .. } => {
                let client = self.used(now, client)?;
                self.admit(client, &ids)?;
                match ids.is_empty() {
                    true => self.accept(exchange, 202),
                    false => self.ask(now, client, ids, exchange, primes),
                }
                self.effects.push(FrontEffect::Hub(Input::Client { client, line }));
            }
            RequestKind::Get { last_event } => {
                let client = self.used(now, client)?;
                self.listen(client, exchange, last_event.as_deref(), primes)?;
            }
            RequestKind::Delete => {
                let client = self.used(now, client)?;
                // What is answered after `SessionEnded` waits until that is stored.
                self.remove(client, &HttpRefusal::no_session());
                self.accept(exchange, 204);
            }
        }
        Ok(())
    }

    /// Counts the messages of a request, also those in a batch.
    fn count(
        &mut self,
        now: Time,
        caller: Caller,
        client: Option<ClientId>,
        ask: &RequestKind,
    ) -> Result<(), HttpRefusal> {
        let rate = self.settings.requests_per_second;
        let (count, is_modern) = match ask {
            RequestKind::Post {
                post: post @ (PostBody::Modern(_) | PostBody::Nothing), ..
            } => (post.count(), true),
            RequestKind::Post { post, .. } => (post.count(), false),
            RequestKind::Get { .. } | RequestKind::Delete => (1, false),
        };
        if rate.is_some_and(|rate| count > rate.max(1)) {
            let what = "the batch has more messages than may come in a second; send less at once";
            return Err(HttpRefusal::new(413, what));
        }
        let client = client.filter(|_| !is_modern);
        let may = match client.and_then(|client| self.clients.get_mut(&client)) {
            Some(its) => its.bucket.take(now, count, rate),
            None => self.callers.take(now, caller, count, rate),
        };
        match may {
            true => Ok(()),
            false => Err(HttpRefusal::new(429, "too many requests within a second; wait a little")),
        }
    }

    /// The client of a session; none where there is no such session, or where it belongs to another token.
    fn session(&self, name: &str, token: Option<usize>) -> Option<ClientId> {
        let client = *self.sessions.get(&SessionId::parse(name)?)?;
        // As a whole: only one id was issued for it.
        let is_its =
            |its: &&FrontClient| its.token == token && its.session.as_deref() == Some(name);
        self.clients.get(&client).filter(is_its).map(|_| client)
    }

    fn used(
        &mut self,
        now: Time,
        client: Option<Option<ClientId>>,
    ) -> Result<ClientId, HttpRefusal> {
        let missing =
            || HttpRefusal::new(400, "there is no `Mcp-Session-Id`; begin with `initialize`");
        let client = client.ok_or_else(missing)?.ok_or_else(HttpRefusal::no_session)?;
        if let Some(its) = self.clients.get_mut(&client) {
            its.used_at = now;
        }
        Ok(client)
    }

    pub(super) fn join(
        &mut self,
        now: Time,
        session: Option<(SessionId, &str)>,
        (token, access): (Option<usize>, Access),
        id: &Id,
    ) -> Result<ClientId, HttpRefusal> {
        while !self.has_place(token) {
            let Some(idle) = self.oldest_idle(token) else {
                let max = self.settings.clients_max;
                let what = format!("there are {max} clients, and no room for more");
                return Err(HttpRefusal::new(503, what).of(id));
            };
            self.remove(idle, &HttpRefusal::no_session());
        }
        self.last_client += 1;
        let client = ClientId(self.last_client);
        *self.by_token.entry(token).or_default() += 1;
        let id = session.map(|(_, text)| text.into());
        let its = FrontClient { session: id, token, used_at: now, ..FrontClient::default() };
        self.clients.insert(client, its);
        if let Some((session, _)) = session {
            self.sessions.insert(session, client);
            self.look_later(now + self.settings.session_idle, client);
        }
        self.effects.push(FrontEffect::Hub(Input::Joined { client, access }));
        Ok(client)
    }

    /// Whether there is a place for one more client of a token: one of its own, or one that is kept for no other token.
    fn has_place(&self, token: Option<usize>) -> bool {
        let (all, max) = (self.clients.len(), self.settings.clients_max);
        let part = max / FRONT_RESERVED_PART / self.tokens.count().max(1);
        let free = |token: Option<usize>| {
            part.saturating_sub(self.by_token.get(&token).copied().unwrap_or(0))
        };
        if all < max / FRONT_RESERVED_PART || free(token) > 0 {
            return all < max;
        }
        let kept: usize = self.tokens.numbers().map(|other| free(Some(other))).sum();
        all + kept < max
    }

    /// The session of a token that was used longest ago and has no connection: one without requests first.
    fn oldest_idle(&self, token: Option<usize>) -> Option<ClientId> {
        let is_idle =
            |its: &FrontClient| its.token == token && its.session.is_some() && !its.is_connected();
        let idle = self.clients.iter().filter(|(_, its)| is_idle(its));
        idle.min_by_key(|(_, its)| (its.owed() > 0, its.used_at)).map(|(client, _)| *client)
    }

    /// Whether a session may ask this besides.
    fn admit(&self, client: ClientId, ids: &[Id]) -> Result<(), HttpRefusal> {
        let Some(its) = self.clients.get(&client) else { return Ok(()) };
        if let Some(id) = ids.iter().find(|id| its.owing(id).is_some()) {
            let what = "a request with this id has no answer yet; take another";
            return Err(HttpRefusal::new(400, what).of(id));
        }
        if its.owed() + ids.len() > FRONT_REQUESTS_MAX {
            let what = "too many requests of this session have no answer yet; wait for some";
            return Err(HttpRefusal::new(429, what));
        }
        Ok(())
    }

    /// Waits for answers.
    fn ask(
        &mut self,
        now: Time,
        client: ClientId,
        ids: Vec<Id>,
        exchange: HttpExchange,
        primes: bool,
    ) {
        let Some(its) = self.clients.get_mut(&client) else { return };
        let stream = its.add(ids, exchange, primes);
        self.exchanges.insert(exchange, (client, stream));
        self.quiet.insert(exchange, now + FRONT_QUIET_MAX);
    }

    /// Opens the stream of a session, or resumes one.
    fn listen(
        &mut self,
        client: ClientId,
        exchange: HttpExchange,
        last_event: Option<&str>,
        primes: bool,
    ) -> Result<(), HttpRefusal> {
        let Some(its) = self.clients.get_mut(&client) else {
            return Err(HttpRefusal::no_session());
        };
        let (number, from) = match last_event {
            None => (STANDALONE, None),
            Some(text) => {
                let has_had = |(number, event): &(u64, u64)| {
                    let stream = its.streams.get(number).filter(|stream| stream.has_begun);
                    // An event that is yet to come may be one of the gateway before.
                    stream.is_some_and(|stream| !its.is_resumed || *event <= stream.last)
                };
                let known = parse_event_id(text).filter(has_had);
                let what = "`Last-Event-ID` is of no stream that is still kept";
                match known {
                    Some((number, event)) => (number, Some(event)),
                    // Its streams have ended with the gateway before.
                    None if its.is_resumed => (STANDALONE, None),
                    None => return Err(HttpRefusal::new(400, what)),
                }
            }
        };
        let stream = its.streams.entry(number).or_insert_with(MessageStream::default);
        // The later connection wins: the one before may be dead without notice.
        if let Some(before) = stream.connection.replace(exchange) {
            self.exchanges.remove(&before);
            self.effects.push(FrontEffect::End { exchange: before });
        }
        (stream.has_begun, stream.primes) = (true, primes);
        self.exchanges.insert(exchange, (client, number));
        self.effects.push(FrontEffect::Begin { exchange, session: None });
        if from.is_none() && primes {
            self.effects.push(FrontEffect::Write { exchange, event: stream.prime(number) });
        }
        for event in stream.after(from.unwrap_or(stream.written)) {
            self.effects.push(FrontEffect::Write { exchange, event: event.clone() });
        }
        stream.written = stream.last;
        if number != STANDALONE && stream.owed.is_empty() {
            stream.connection = None;
            self.exchanges.remove(&exchange);
            self.effects.push(FrontEffect::End { exchange });
        }
        Ok(())
    }

    /// Schedules the check of an idle session.
    fn look_later(&mut self, at: Time, client: ClientId) {
        if let Some(its) = self.clients.get_mut(&client) {
            its.idle_at = Some(at);
            self.idle.insert((at, client));
        }
    }

    fn accept(&mut self, exchange: HttpExchange, status: u16) {
        self.effects.push(FrontEffect::Answer { exchange, status, session: None, body: None });
    }

    /// The settings are these now. Who came in by a token that is gone, or opens something else now, goes; so does
    /// who came in without one, where one is needed now, and the other way round.
    fn configure(&mut self, now: Time, settings: &FrontSettings) {
        self.tokens.renew(&settings.tokens);
        let before = std::mem::replace(&mut self.settings, settings.clone());
        let is_out = |client: &FrontClient| self.tokens.access(client.token).is_none();
        let all = self.clients.iter().filter(|(_, client)| is_out(client));
        let out: Vec<ClientId> = all.map(|(client, _)| *client).collect();
        for client in out {
            self.remove(client, &HttpRefusal::unknown_token());
        }
        if before.session_idle != settings.session_idle {
            // Sessions are idle after another time.
            for (_, client) in std::mem::take(&mut self.idle) {
                if let Some(its) = self.clients.get(&client) {
                    self.look_later(its.used_at + settings.session_idle, client);
                }
            }
        }
        if before.keep_alive != settings.keep_alive {
            let is_told = !self.exchanges.is_empty();
            self.sign_at =
                self.settings.keep_alive.filter(|_| is_told).map(|interval| now + interval);
        }
    }

    /// A message for a client.
    fn told(&mut self, client: ClientId, line: Vec<u8>, about: Option<&Id>) {
        let Some(its) = self.clients.get_mut(&client) else { return };
        let (answered, is_error) = answers(&line);
        let is_answer = !answered.is_empty();
        let number = match (&its.session, about.or(answered.first())) {
            // All that it is told is about the one thing that it has asked.
            (None, _) => Some(its.last_stream),
            (Some(_), Some(id)) => its.owing(id),
            (Some(_), None) => None,
        };
        let number = match number {
            Some(number) => number,
            // No request waits for it.
            None if is_answer => return,
            None => STANDALONE,
        };
        let stream = its.streams.entry(number).or_default();
        let (line, is_error) = match stream.connection {
            Some(exchange)
                if is_answer && !self.unread.admits_answer(its.token, exchange, line.len()) =>
            {
                (unread_error(&answered), true)
            }
            _ => (line, is_error),
        };
        stream.owed.retain(|id| !answered.contains(id));
        let is_last = is_answer && number != STANDALONE && stream.owed.is_empty();
        if is_last && !its.is_open && its.session.is_some() {
            its.is_open = !is_error;
            if is_error && !stream.has_begun {
                let name = its.session.take().and_then(|id| SessionId::parse(&id));
                name.map(|name| self.sessions.remove(&name));
            }
        }
        let (connection, has_begun) = (stream.connection, stream.has_begun);
        let is_modern = its.session.is_none();
        match connection {
            Some(exchange) if is_last && !has_begun => self.answer(client, number, exchange, line),
            Some(exchange) if is_modern => {
                self.begin(client, number, exchange);
                self.effects.push(FrontEffect::Write { exchange, event: event(None, &line) });
                if is_last {
                    self.remove(client, &HttpRefusal::no_session());
                }
            }
            _ => {
                if let Some(exchange) = connection {
                    self.begin(client, number, exchange);
                }
                self.keep(client, number, &line);
                if is_last {
                    self.end_stream(client, number);
                    if is_error && self.clients.get(&client).is_some_and(|its| !its.is_open) {
                        self.remove(client, &HttpRefusal::no_session());
                    }
                }
            }
        }
    }

    /// Answers a request with nothing but its answer.
    fn answer(&mut self, client: ClientId, number: u64, exchange: HttpExchange, line: Vec<u8>) {
        self.forget(exchange);
        let Some(its) = self.clients.get_mut(&client) else { return };
        its.streams.remove(&number);
        // The first stream of a session is that of its `initialize`.
        let session = its.session_name().filter(|_| number == 1);
        let is_over = its.session.is_none();
        let status = if is_over { status_of(&line) } else { 200 };
        self.effects.push(FrontEffect::Answer { exchange, status, session, body: Some(line) });
        if is_over {
            self.remove(client, &HttpRefusal::no_session());
        }
    }

    /// Makes a stream of an answer, if it is none yet.
    fn begin(&mut self, client: ClientId, number: u64, exchange: HttpExchange) {
        self.quiet.remove(&exchange);
        let Some(its) = self.clients.get_mut(&client) else { return };
        let session = its.session_name().filter(|_| number == 1 && !its.is_open);
        let Some(stream) = its.streams.get_mut(&number) else { return };
        if std::mem::replace(&mut stream.has_begun, true) {
            return;
        }
        self.effects.push(FrontEffect::Begin { exchange, session });
        if stream.primes {
            self.effects.push(FrontEffect::Write { exchange, event: stream.prime(number) });
        }
    }

    /// Keeps a message of a session, and writes it where there is a connection.
    fn keep(&mut self, client: ClientId, number: u64, line: &[u8]) {
        let Some(its) = self.clients.get_mut(&client) else { return };
        let Some(stream) = its.streams.get_mut(&number) else { return };
        let before = stream.kept_bytes;
        let (event, unseen) = stream.push(number, line);
        if let Some(exchange) = stream.connection {
            stream.written = stream.last;
            self.effects.push(FrontEffect::Write { exchange, event });
        }
        self.kept_bytes = self.kept_bytes + stream.kept_bytes - before;
        let is_lost = self.make_room(client, number) || unseen > 0;
        let Some(its) = self.clients.get_mut(&client) else { return };
        if is_lost && !std::mem::replace(&mut its.is_loss_told, true) {
            let name = name_of(client, its, &self.tokens);
            let what = format!("{name} does not listen: messages for it are lost");
            self.effects.push(FrontEffect::Log(what));
        }
    }

    /// Forgets what was kept first, where it is too much for all; true where that was never written.
    fn make_room(&mut self, client: ClientId, number: u64) -> bool {
        while self.kept_bytes > FRONT_KEPT_ALL_BYTES_MAX || self.ended.len() > FRONT_ENDED_MAX {
            let Some((client, number)) = self.ended.pop_front() else { break };
            let Some(its) = self.clients.get_mut(&client) else { continue };
            let stream = its.streams.remove(&number);
            self.kept_bytes -= stream.map_or(0, |stream| stream.kept_bytes);
        }
        let mut is_lost = false;
        for keeps_last in [true, false] {
            let its = self.clients.get_mut(&client);
            let stream = its.and_then(|its| its.streams.get_mut(&number));
            let Some(stream) = stream.filter(|_| self.kept_bytes > FRONT_KEPT_ALL_BYTES_MAX) else {
                break;
            };
            let before = stream.kept_bytes;
            match keeps_last {
                true => stream.keep_last(),
                // What is short is kept: requests in flight bound how many there are.
                false if before <= FRONT_SHORT_BYTES => {}
                false => is_lost = stream.keep_none(),
            }
            self.kept_bytes = self.kept_bytes + stream.kept_bytes - before;
        }
        is_lost
    }

    /// A stream has all that it will ever have.
    fn end_stream(&mut self, client: ClientId, number: u64) {
        let Some(its) = self.clients.get_mut(&client) else { return };
        let Some(stream) = its.streams.get_mut(&number) else { return };
        if let Some(exchange) = stream.connection.take() {
            self.finish(exchange);
        }
        self.ended.push_back((client, number));
        self.make_room(client, number);
    }

    fn finish(&mut self, exchange: HttpExchange) {
        self.forget(exchange);
        self.effects.push(FrontEffect::End { exchange });
    }

    fn forget(&mut self, exchange: HttpExchange) {
        self.exchanges.remove(&exchange);
        self.quiet.remove(&exchange);
    }

    /// A connection is gone; returns whose it was, where that one is still there.
    fn gone(&mut self, now: Time, exchange: HttpExchange) -> Option<ClientId> {
        let (client, number) = *self.exchanges.get(&exchange)?;
        self.forget(exchange);
        let its = self.clients.get_mut(&client)?;
        its.used_at = now;
        let stream = its.streams.get_mut(&number)?;
        stream.connection = None;
        let has_begun = stream.has_begun;
        if !has_begun {
            // Without the number of an event the client cannot resume it.
            its.streams.remove(&number);
        }
        // In the modern era a closed connection cancels; and the client does not know a session that was not answered.
        if its.session.is_none() || (!its.is_open && !has_begun) {
            self.remove(client, &HttpRefusal::no_session());
            return None;
        }
        Some(client)
    }

    /// A client does not read.
    fn slow(&mut self, now: Time, exchange: HttpExchange) {
        let Some((client, _)) = self.exchanges.get(&exchange) else { return };
        let client = *client;
        if let Some(its) = self.clients.get_mut(&client)
            && !std::mem::replace(&mut its.is_slow_told, true)
        {
            let name = name_of(client, its, &self.tokens);
            let what = format!("{name} does not read what it is told: its connection is closed");
            self.effects.push(FrontEffect::Log(what));
        }
        self.gone(now, exchange);
    }

    /// Ends a client, and tells those who wait for something of it.
    fn remove(&mut self, client: ClientId, refusal: &HttpRefusal) {
        let Some(its) = self.clients.remove(&client) else { return };
        if let Some(count) = self.by_token.get_mut(&its.token) {
            *count -= 1;
        }
        self.by_token.retain(|_, count| *count > 0);
        self.kept_bytes -= its.kept_bytes();
        if let Some(name) = its.session_name() {
            self.sessions.remove(&name);
            if its.is_open && !self.is_closing {
                self.effects.push(FrontEffect::SessionEnded(name));
            }
        }
        if let Some(at) = its.idle_at {
            self.idle.remove(&(at, client));
            self.ended.retain(|(other, _)| *other != client);
        }
        for stream in its.streams.into_values() {
            let Some(exchange) = stream.connection else { continue };
            self.forget(exchange);
            self.effects.push(match (stream.has_begun, stream.owed.first()) {
                (true, _) => FrontEffect::End { exchange },
                (false, Some(id)) => {
                    FrontEffect::Refuse { exchange, refusal: refusal.clone().of(id) }
                }
                (false, None) => FrontEffect::Refuse { exchange, refusal: refusal.clone() },
            });
        }
        self.effects.push(FrontEffect::Hub(Input::Left { client }));
    }

    /// Ends idle sessions, and turns late responses into streams.
    fn wakeup(&mut self, now: Time) {
        while let Some((at, client)) = self.idle.first().copied().filter(|(at, _)| *at <= now) {
            self.idle.remove(&(at, client));
            let Some(its) = self.clients.get(&client) else { continue };
            let used_at = if its.is_connected() { now } else { its.used_at };
            match used_at + self.settings.session_idle {
                until if until <= now => self.remove(client, &HttpRefusal::no_session()),
                until => self.look_later(until, client),
            }
        }
        while let Some((exchange, _)) = self.quiet.first_key_value().filter(|(_, at)| **at <= now) {
            let exchange = *exchange;
            self.quiet.remove(&exchange);
            if let Some((client, number)) = self.exchanges.get(&exchange).copied() {
                self.begin(client, number, exchange);
            }
        }
        if self.sign_at.is_some_and(|at| at <= now) {
            self.give_sign(now);
        }
    }

    /// Writes something to every stream that clients pass over.
    fn give_sign(&mut self, now: Time) {
        let event: Arc<[u8]> = Arc::from(&b": still here\n\n"[..]);
        self.sign_at = None;
        for (exchange, (client, number)) in &self.exchanges {
            let stream = self.clients.get(client).and_then(|its| its.streams.get(number));
            if stream.is_some_and(|stream| stream.has_begun) {
                self.effects.push(FrontEffect::Write { exchange: *exchange, event: event.clone() });
                self.sign_at = self.settings.keep_alive.map(|interval| now + interval);
            }
        }
    }

    /// Ends all clients: the gateway ends.
    fn close(&mut self) {
        // Its sessions go on in the next one.
        self.is_closing = true;
        let all: Vec<ClientId> = self.clients.keys().copied().collect();
        for client in all {
            self.remove(client, &HttpRefusal::new(503, "the gateway ends"));
        }
        self.sign_at = None;
    }
}

/// The requests that a line answers, and whether with an error.
fn answers(line: &[u8]) -> (Vec<Id>, bool) {
    match look(line) {
        Some(Message::Response { id: Some(id), is_error }) => (vec![id], is_error),
        Some(Message::Batch) => {
            let elements = json::elements(line).unwrap_or_default();
            let all = elements.into_iter().flat_map(|at| match look(&line[at]) {
                Some(Message::Response { id, .. }) => id,
                _ => None,
            });
            (all.collect(), false)
        }
        _ => (Vec::new(), false),
    }
}

/// The status of an answer in the modern era, where some errors have their own.
fn status_of(line: &[u8]) -> u16 {
    match json::get(line, &["error", "code"]) {
        Some(b"-32601") => 404,
        Some(b"-32020" | b"-32021" | b"-32022" | b"-32700" | b"-32600") => 400,
        _ => 200,
    }
}

/// A client for the log.
fn name_of(client: ClientId, its: &FrontClient, tokens: &Tokens) -> String {
    let access = tokens.access(its.token);
    match access.map(|access| access.name).filter(|name| !name.is_empty()) {
        Some(name) => format!("client {} (`{name}`)", client.0),
        None => format!("client {}", client.0),
    }
}
