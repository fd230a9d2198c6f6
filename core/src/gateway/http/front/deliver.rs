//! Delivers messages of the hub to the streams and connections of clients, and ends them. Driven by `Front::handle`.
//! Never reads a request.

use std::sync::Arc;

use super::Front;
use crate::gateway::http::admission::Tokens;
use crate::gateway::http::sessions::{FrontClient, STANDALONE, event};
use crate::gateway::http::{FrontEffect, HttpExchange, HttpRefusal};
use crate::gateway::{ClientId, Input};
use crate::limits::{FRONT_ENDED_MAX, FRONT_KEPT_ALL_BYTES_MAX};
use crate::mcp::envelope::{Id, Message, look};
use crate::mcp::json;
use crate::time::Time;

impl Front {
    /// A message for a client.
    pub(super) fn told(&mut self, client: ClientId, line: Vec<u8>, about: Option<&Id>) {
        let Some(its) = self.clients.get_mut(&client) else { return };
        let (answered, is_error) = answers(&line);
        let is_answer = !answered.is_empty();
        let number = match (its.session, about.or(answered.first())) {
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
        stream.owed.retain(|id| !answered.contains(id));
        let is_last = is_answer && number != STANDALONE && stream.owed.is_empty();
        if is_last && !its.is_open && its.session.is_some() {
            its.is_open = !is_error;
            if is_error && !stream.has_begun {
                its.session.take().map(|name| self.sessions.remove(&name));
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
        let session = its.session.filter(|_| number == 1);
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
        let session = its.session.filter(|_| number == 1 && !its.is_open);
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
        if unseen > 0 && !std::mem::replace(&mut its.is_loss_told, true) {
            let name = name_of(client, its, &self.tokens);
            let what = format!("{name} does not listen: messages for it are lost");
            self.effects.push(FrontEffect::Log(what));
        }
        self.make_room(client, number);
    }

    /// Forgets what was kept first, where it is too much for all.
    fn make_room(&mut self, client: ClientId, number: u64) {
        while self.kept_bytes > FRONT_KEPT_ALL_BYTES_MAX || self.ended.len() > FRONT_ENDED_MAX {
            let Some((client, number)) = self.ended.pop_front() else { break };
            let Some(its) = self.clients.get_mut(&client) else { continue };
            let stream = its.streams.remove(&number);
            self.kept_bytes -= stream.map_or(0, |stream| stream.kept_bytes);
        }
        if self.kept_bytes > FRONT_KEPT_ALL_BYTES_MAX {
            let its = self.clients.get_mut(&client);
            let Some(stream) = its.and_then(|its| its.streams.get_mut(&number)) else { return };
            let before = stream.kept_bytes;
            stream.keep_last();
            self.kept_bytes = self.kept_bytes + stream.kept_bytes - before;
        }
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
    pub(super) fn gone(&mut self, now: Time, exchange: HttpExchange) -> Option<ClientId> {
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
    pub(super) fn slow(&mut self, now: Time, exchange: HttpExchange) {
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
    pub(super) fn remove(&mut self, client: ClientId, refusal: &HttpRefusal) {
        let Some(its) = self.clients.remove(&client) else { return };
        self.kept_bytes -= its.kept_bytes();
        if let Some(name) = its.session {
            self.sessions.remove(&name);
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
    pub(super) fn wakeup(&mut self, now: Time) {
        while let Some((at, client)) = self.idle.first().copied().filter(|(at, _)| *at <= now) {
            self.idle.remove(&(at, client));
            let Some(its) = self.clients.get(&client) else { continue };
            let is_connected = its.streams.values().any(|stream| stream.connection.is_some());
            let used_at = if is_connected { now } else { its.used_at };
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
    pub(super) fn close(&mut self) {
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
