//! The machine between connections and the hub: it knows all sessions and their streams.
//!
//! A session lives in `clients` and, by its name, in `sessions`; a connection that waits for something is an
//! exchange. `told.rs` has the way from the hub to the connections.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::Settings;
use super::client::{Client, SessionId};
use super::input::{Ask, Asked, Effect, Exchange, Input};
use super::post_body::Post;
use super::rate_limit::{Caller, Callers};
use super::refusal::Refusal;
use super::stream::{STANDALONE, Stream, parse_event_id};
use super::tokens::Tokens;
use crate::gateway::ClientId;
use crate::gateway::access::Access;
use crate::limits::{FRONT_QUIET_MAX, FRONT_REQUESTS_MAX};
use crate::mcp::envelope::Id;
use crate::time::Time;

mod deliver;
mod reconfigure;

/// The machine.
#[derive(Debug)]
pub struct Front {
    tokens: Tokens,
    clients_max: usize,
    requests_per_second: Option<u32>,
    session_idle: Duration,
    keep_alive: Option<Duration>,
    /// When streams get a sign of life; none where there is no stream.
    sign_at: Option<Time>,
    clients: BTreeMap<ClientId, Client>,
    last_client: u64,
    sessions: BTreeMap<SessionId, ClientId>,
    exchanges: BTreeMap<Exchange, (ClientId, u64)>,
    callers: Callers,
    /// When to look whether a session is used; one entry for each.
    idle: BTreeSet<(Time, ClientId)>,
    /// Requests that have nothing of an answer yet, and until when that is so.
    quiet: BTreeMap<Exchange, Time>,
    /// Streams that have ended and are kept, the oldest first.
    ended: VecDeque<(ClientId, u64)>,
    kept_bytes: usize,
    effects: Vec<Effect>,
}

impl Front {
    /// Nobody is there yet.
    pub fn new(settings: &Settings) -> Self {
        let mut tokens = Tokens::default();
        tokens.renew(&settings.tokens);
        Self {
            tokens,
            clients_max: settings.clients_max,
            requests_per_second: settings.requests_per_second,
            session_idle: settings.session_idle,
            keep_alive: settings.keep_alive,
            sign_at: None,
            clients: BTreeMap::new(),
            last_client: 0,
            sessions: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            callers: Callers::default(),
            idle: BTreeSet::new(),
            quiet: BTreeMap::new(),
            ended: VecDeque::new(),
            kept_bytes: 0,
            effects: Vec::new(),
        }
    }

    /// Notes one input, and says what must be done.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Effect> {
        match input {
            Input::Asked(asked) => {
                let exchange = asked.exchange;
                if let Err(refusal) = self.asked(now, asked) {
                    self.effects.push(Effect::Refuse { exchange, refusal });
                }
            }
            Input::Gone(exchange) => drop(self.gone(now, exchange)),
            Input::Slow(exchange) => self.slow(now, exchange),
            Input::Told { client, line, about } => self.told(client, line, about.as_ref()),
            Input::Configured(settings) => self.configure(now, &settings),
            Input::Wakeup => self.wakeup(now),
            Input::Close => self.close(),
        }
        let has_begun = |effect: &Effect| matches!(effect, Effect::Begin { .. });
        if self.sign_at.is_none() && self.keep_alive.is_some() && self.effects.iter().any(has_begun)
        {
            self.sign_at = self.keep_alive.map(|interval| now + interval);
        }
        std::mem::take(&mut self.effects)
    }

    /// When `Wakeup` is to come; none where everybody is idle for as long as they like.
    pub fn next_wakeup(&self) -> Option<Time> {
        let idle = self.idle.first().map(|(at, _)| *at);
        // Numbers and moments go up together, but for some that overtook others.
        let quiet = self.quiet.values().next().copied();
        idle.into_iter().chain(quiet).chain(self.sign_at).min()
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    #[cfg(test)]
    pub(super) fn last_client(&self) -> u64 {
        self.last_client
    }

    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    fn asked(&mut self, now: Time, asked: Asked) -> Result<(), Refusal> {
        let Asked { exchange, token, peer, session, primes, ask } = asked;
        // It was let in before the settings were others.
        let access = self.tokens.access(token).ok_or_else(Refusal::unknown_token)?;
        let client = session.as_deref().map(|name| self.session(name, token));
        self.count(now, (token, peer), client.flatten(), &ask)?;
        match ask {
            Ask::Post { line, post: Post::Modern(id), .. } => {
                let client = self.join(now, None, (token, access), &id)?;
                self.ask(now, client, vec![id], exchange, false);
                self.effects.push(Effect::Said { client, line });
            }
            Ask::Post { post: Post::Nothing, .. } => self.accept(exchange, 202),
            Ask::Post { line, post: Post::Initialize(id), new } => {
                match client {
                    None => {}
                    Some(None) => return Err(Refusal::no_session().of(&id)),
                    Some(Some(_)) => {
                        return Err(
                            Refusal::new(400, "this session is initialized already").of(&id)
                        );
                    }
                }
                let client = self.join(now, Some(new), (token, access), &id)?;
                self.ask(now, client, vec![id], exchange, primes);
                self.effects.push(Effect::Said { client, line });
            }
            Ask::Post { line, post: Post::Session { ids, .. }, .. } => {
                let client = self.used(now, client)?;
                self.admit(client, &ids)?;
                match ids.is_empty() {
                    true => self.accept(exchange, 202),
                    false => self.ask(now, client, ids, exchange, primes),
                }
                self.effects.push(Effect::Said { client, line });
            }
            Ask::Get { last_event } => {
                let client = self.used(now, client)?;
                self.listen(client, exchange, last_event.as_deref(), primes)?;
            }
            Ask::Delete => {
                let client = self.used(now, client)?;
                self.accept(exchange, 204);
                self.remove(client, &Refusal::no_session());
            }
        }
        Ok(())
    }

    /// Counts what somebody asks: each message, be it in a batch.
    fn count(
        &mut self,
        now: Time,
        caller: Caller,
        client: Option<ClientId>,
        ask: &Ask,
    ) -> Result<(), Refusal> {
        let rate = self.requests_per_second;
        let (count, is_modern) = match ask {
            Ask::Post { post: post @ (Post::Modern(_) | Post::Nothing), .. } => {
                (post.count(), true)
            }
            Ask::Post { post, .. } => (post.count(), false),
            Ask::Get { .. } | Ask::Delete => (1, false),
        };
        if rate.is_some_and(|rate| count > rate.max(1)) {
            let what = "the batch has more messages than may come in a second; send less at once";
            return Err(Refusal::new(413, what));
        }
        let client = client.filter(|_| !is_modern);
        let may = match client.and_then(|client| self.clients.get_mut(&client)) {
            Some(its) => its.bucket.take(now, count, rate),
            None => self.callers.take(now, caller, count, rate),
        };
        match may {
            true => Ok(()),
            false => Err(Refusal::too_many("too many requests within a second; wait a little")),
        }
    }

    /// The client of a session; none where there is no such one, or where it is somebody else's.
    fn session(&self, name: &str, token: Option<usize>) -> Option<ClientId> {
        let client = *self.sessions.get(&SessionId::parse(name)?)?;
        self.clients.get(&client).filter(|its| its.token == token).map(|_| client)
    }

    fn used(&mut self, now: Time, client: Option<Option<ClientId>>) -> Result<ClientId, Refusal> {
        let missing = || Refusal::new(400, "there is no `Mcp-Session-Id`; begin with `initialize`");
        let client = client.ok_or_else(missing)?.ok_or_else(Refusal::no_session)?;
        if let Some(its) = self.clients.get_mut(&client) {
            its.used_at = now;
        }
        Ok(client)
    }

    fn join(
        &mut self,
        now: Time,
        session: Option<SessionId>,
        (token, access): (Option<usize>, Access),
        id: &Id,
    ) -> Result<ClientId, Refusal> {
        if self.clients.len() >= self.clients_max {
            let what = format!("there are {} clients, and no room for more", self.clients_max);
            return Err(Refusal::new(503, what).of(id));
        }
        self.last_client += 1;
        let client = ClientId(self.last_client);
        self.clients.insert(client, Client::new(session, token, now));
        if let Some(session) = session {
            self.sessions.insert(session, client);
            self.look_later(now + self.session_idle, client);
        }
        self.effects.push(Effect::Joined { client, access });
        Ok(client)
    }

    /// Whether a session may ask this besides.
    fn admit(&self, client: ClientId, ids: &[Id]) -> Result<(), Refusal> {
        let Some(its) = self.clients.get(&client) else { return Ok(()) };
        if let Some(id) = ids.iter().find(|id| its.owing(id).is_some()) {
            let what = "a request with this id has no answer yet; take another";
            return Err(Refusal::new(400, what).of(id));
        }
        if its.owed() + ids.len() > FRONT_REQUESTS_MAX {
            let what = "too many requests of this session have no answer yet; wait for some";
            return Err(Refusal::too_many(what));
        }
        Ok(())
    }

    /// Waits for answers.
    fn ask(&mut self, now: Time, client: ClientId, ids: Vec<Id>, exchange: Exchange, primes: bool) {
        let Some(its) = self.clients.get_mut(&client) else { return };
        let stream = its.add(ids, exchange, primes);
        self.exchanges.insert(exchange, (client, stream));
        self.quiet.insert(exchange, now + FRONT_QUIET_MAX);
    }

    /// Opens the stream of a session, or resumes one.
    fn listen(
        &mut self,
        client: ClientId,
        exchange: Exchange,
        last_event: Option<&str>,
        primes: bool,
    ) -> Result<(), Refusal> {
        let Some(its) = self.clients.get_mut(&client) else { return Err(Refusal::no_session()) };
        let (number, from) = match last_event {
            None => (STANDALONE, None),
            Some(text) => {
                let has_begun =
                    |number: &u64| its.streams.get(number).is_some_and(|it| it.has_begun);
                let known = parse_event_id(text).filter(|(number, _)| has_begun(number));
                let what = "`Last-Event-ID` is of no stream that is still kept";
                let (number, event) = known.ok_or_else(|| Refusal::new(400, what))?;
                (number, Some(event))
            }
        };
        let stream = its.streams.entry(number).or_insert_with(Stream::default);
        // Whoever comes later is right: the connection before may be dead without our knowing.
        if let Some(before) = stream.connection.replace(exchange) {
            self.exchanges.remove(&before);
            self.effects.push(Effect::End { exchange: before });
        }
        (stream.has_begun, stream.primes) = (true, primes);
        self.exchanges.insert(exchange, (client, number));
        self.effects.push(Effect::Begin { exchange, session: None });
        if from.is_none() && primes {
            self.effects.push(Effect::Write { exchange, event: stream.prime(number) });
        }
        for event in stream.after(from.unwrap_or(stream.written)) {
            self.effects.push(Effect::Write { exchange, event: event.clone() });
        }
        stream.note_written();
        if number != STANDALONE && stream.owed.is_empty() {
            stream.connection = None;
            self.exchanges.remove(&exchange);
            self.effects.push(Effect::End { exchange });
        }
        Ok(())
    }

    /// Looks then whether somebody uses a session.
    fn look_later(&mut self, at: Time, client: ClientId) {
        if let Some(its) = self.clients.get_mut(&client) {
            its.idle_at = Some(at);
            self.idle.insert((at, client));
        }
    }

    fn accept(&mut self, exchange: Exchange, status: u16) {
        self.effects.push(Effect::Answer { exchange, status, session: None, body: None });
    }
}
