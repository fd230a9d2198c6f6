//! What goes out, and what is answered here because it does not.

use super::error_responses::{Trouble, line as response};
use super::{
    Ask, At, Effect, Exchange, ExchangeId, Header, Method, Owed, Purpose, Remote, State, Step,
    Transport, Waiting,
};
use crate::limits::{EXCHANGES_MAX, NOTICE_WAIT, SENDINGS_MAX};
use crate::mcp::envelope::Id;
use crate::mcp::inflight::Class;
use crate::mcp::json::get;
use crate::time::Time;

impl Remote {
    /// Takes every step that can be taken now.
    pub(super) fn step(&mut self, now: Time) {
        self.expire(now);
        match &self.state {
            State::Closed => self.open(now),
            State::Down { at: Some(at), .. } if *at <= now => self.try_again(now),
            State::Up | State::Opening { .. } | State::Scouting(_) | State::Down { .. } => {}
        }
        self.flush(now);
        self.listen(now);
    }

    fn flush(&mut self, now: Time) {
        while self.state == State::Up && self.exchanges.len() < EXCHANGES_MAX {
            let Some(waiting) = self.waiting.pop_front() else { return };
            self.give(now, waiting);
        }
    }

    /// Gives to the server what waited; returns the exchange, where there is something to give.
    pub(super) fn give(&mut self, now: Time, waiting: Waiting) -> Option<ExchangeId> {
        let id = match waiting {
            Waiting::Request(id) => id,
            Waiting::Notice { line, .. } => return self.give_notice(now, line),
        };
        // It may have been cancelled or answered, or stand here twice.
        let owed = self.owed.get_mut(&id)?;
        if !matches!(owed.at, At::Waiting { .. }) {
            return None;
        }
        owed.sendings += 1;
        let (line, mut headers) = (owed.flight.line.clone(), owed.headers.clone());
        let (is_modern, class) = (owed.is_modern, owed.flight.class);
        if class == Class::Handshake {
            self.handshake = Some((id.clone(), Self::opens_until(now)));
        } else if !is_modern {
            headers.extend(self.session_headers());
        }
        let exchange = self.post(Purpose::Request(id.clone()), line, headers);
        if let Some(owed) = self.owed.get_mut(&id) {
            owed.at = At::Asked(exchange);
        }
        Some(exchange)
    }

    fn give_notice(&mut self, now: Time, line: Vec<u8>) -> Option<ExchangeId> {
        let purpose = Self::purpose_of(line.clone());
        let is_initialized = purpose == Purpose::Initialized;
        let exchange = self.post(purpose, line, self.session_headers());
        let until = now + NOTICE_WAIT;
        match is_initialized {
            true => self.state = State::Opening { step: Step::Initialized(exchange), until },
            false => {
                self.notices.insert(exchange, until);
            }
        }
        Some(exchange)
    }

    pub(super) fn post(
        &mut self,
        purpose: Purpose,
        body: Vec<u8>,
        headers: Vec<Header>,
    ) -> ExchangeId {
        let url = match &self.transport {
            Transport::Old { endpoint: Some(endpoint), .. } => endpoint.clone(),
            Transport::Old { .. } | Transport::Streamable { .. } => self.url.clone(),
        };
        self.begin(purpose, Ask { method: Method::Post, url, headers, body })
    }

    pub(super) fn get(&mut self, purpose: Purpose, last_event: Option<&String>) -> ExchangeId {
        let mut headers = self.session_headers();
        headers.extend(last_event.map(|id| ("last-event-id".into(), id.clone())));
        let url = self.url.clone();
        self.begin(purpose, Ask { method: Method::Get, url, headers, body: Vec::new() })
    }

    fn begin(&mut self, purpose: Purpose, ask: Ask) -> ExchangeId {
        let exchange = ExchangeId(self.next_number);
        self.next_number += 1;
        let session = self.session.number;
        let begun = Exchange { purpose, session, last_event: None, retry: None, opened_at: None };
        self.exchanges.insert(exchange, begun);
        self.effects.push(Effect::Ask { exchange, ask });
        exchange
    }

    /// Nobody wants an exchange any more.
    pub(super) fn close(&mut self, exchange: ExchangeId) {
        if self.forget_exchange(exchange).is_some() {
            self.effects.push(Effect::Drop(exchange));
        }
    }

    /// An exchange has brought all that it was for.
    pub(super) fn finish(&mut self, exchange: ExchangeId) {
        if self.forget_exchange(exchange).is_some() {
            self.effects.push(Effect::Finish(exchange));
        }
    }

    pub(super) fn forget_exchange(&mut self, exchange: ExchangeId) -> Option<Exchange> {
        self.notices.remove(&exchange);
        if self.state == State::Scouting(exchange) {
            self.state = State::Up;
        }
        self.exchanges.remove(&exchange)
    }

    /// A request goes to the front of those that wait.
    pub(super) fn requeue(&mut self, now: Time, id: &Id) {
        let is_heard = self.memory.acknowledged.contains(id);
        // Who listens waits as long as it takes.
        let until = if is_heard { None } else { Some(self.waits_until(now)) };
        if let Some(owed) = self.owed.get_mut(id) {
            owed.at = At::Waiting { until };
            self.broken.remove(id);
            self.handshake.take_if(|(handshake, _)| handshake == id);
            self.waiting.push_front(Waiting::Request(id.clone()));
        }
    }

    /// A request was with the server, and nothing will come of that: it is sent again where that is
    /// safe, and answered otherwise.
    pub(super) fn settle(&mut self, now: Time, id: &Id, trouble: &Trouble) {
        let Some(owed) = self.owed.get_mut(id) else { return };
        let is_safe = match owed.flight.class {
            Class::Handshake => owed.sendings < SENDINGS_MAX,
            Class::Safe | Class::Probe => !owed.flight.was_sent_again,
            Class::Tool | Class::Other => false,
        };
        if is_safe {
            owed.flight.was_sent_again = true;
            owed.last_event = None;
            self.requeue(now, id);
        } else {
            self.answer(id, trouble);
        }
    }

    /// Answers a request in the server's place.
    pub(super) fn answer(&mut self, id: &Id, trouble: &Trouble) {
        if let Some(owed) = self.take_owed(id) {
            let line = trouble.answer(id, owed.flight.class, self.memory.era, self.origin());
            self.tell_answer(id, &owed, line, true);
        }
    }

    /// Answers a request with the error of a reply that names no request.
    pub(super) fn answer_with_error(&mut self, id: &Id, reply: &[u8]) {
        let Some(error) = get(reply, &["error"]) else { return };
        if let Some(owed) = self.take_owed(id) {
            self.tell_answer(id, &owed, response(id, "error", error), true);
        }
    }

    pub(super) fn tell_answer(&mut self, id: &Id, owed: &Owed, line: Vec<u8>, is_error: bool) {
        if let At::Asked(exchange) = owed.at {
            self.finish(exchange);
        }
        self.memory.answered(id, &owed.flight, &line, is_error);
        self.effects.push(Effect::Tell { line, about: Some(id.clone()) });
    }

    /// Answers everything that waits: nothing will become of it.
    pub(super) fn answer_waiting(&mut self) {
        let trouble = self.why_waiting();
        let waiting = std::mem::take(&mut self.waiting);
        for waiting in waiting {
            match waiting {
                Waiting::Request(id) => match self.owed.get(&id).map(|owed| owed.at) {
                    Some(At::Waiting { until: Some(_) }) => self.answer(&id, &trouble),
                    Some(At::Waiting { until: None }) => {
                        self.waiting.push_back(Waiting::Request(id));
                    }
                    Some(At::Asked(_) | At::Given | At::Broken) | None => {}
                },
                Waiting::Notice { .. } => self.waiting.push_back(waiting),
            }
        }
    }

    fn why_waiting(&self) -> Trouble {
        match &self.state {
            State::Down { why, .. } => why.clone(),
            State::Opening { .. } | State::Scouting(_) | State::Closed => Trouble::Silent,
            State::Up => Trouble::TooMany,
        }
    }

    /// What has waited long enough is answered or dropped.
    fn expire(&mut self, now: Time) {
        if self.waiting_due.is_some_and(|due| due <= now) {
            let all = std::mem::take(&mut self.waiting);
            let is_late = |waiting: &Waiting| self.waits_for(waiting).is_some_and(|at| at <= now);
            let (late, waiting) = all.into_iter().partition(is_late);
            self.waiting = waiting;
            self.waiting_due = self.waiting.iter().filter_map(|it| self.waits_for(it)).min();
            let trouble = self.why_waiting();
            self.expire_all(late, &trouble);
        }
        let late: Vec<ExchangeId> =
            self.notices.iter().filter(|(_, until)| **until <= now).map(|(id, _)| *id).collect();
        for exchange in late {
            self.close(exchange);
        }
        if let Some((id, _)) = self.handshake.clone().filter(|(_, until)| *until <= now) {
            if let Some(At::Asked(exchange)) = self.owed.get(&id).map(|owed| owed.at) {
                self.close(exchange);
            }
            self.answer(&id, &Trouble::Silent);
        }
        self.expire_opening(now);
        let due: Vec<Id> =
            self.broken.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone()).collect();
        for id in due {
            self.take_up(now, &id);
        }
    }

    fn expire_all(&mut self, late: std::collections::VecDeque<Waiting>, trouble: &Trouble) {
        for waiting in late {
            match waiting {
                Waiting::Request(id) => {
                    if let Some(At::Waiting { .. }) = self.owed.get(&id).map(|owed| owed.at) {
                        self.answer(&id, trouble);
                    }
                }
                Waiting::Notice { .. } => self.log("a notification to it was dropped"),
            }
        }
    }

    /// The broken stream of a request is taken up.
    fn take_up(&mut self, now: Time, id: &Id) {
        self.broken.remove(id);
        let Some(owed) = self.owed.get(id) else { return };
        if owed.flight.is_listen() {
            if self.memory.acknowledged.contains(id) {
                self.again.insert(id.clone());
            }
            return self.requeue(now, id);
        }
        let last_event = owed.last_event.clone();
        let exchange = self.get(Purpose::Resume(id.clone()), last_event.as_ref());
        if let Some(owed) = self.owed.get_mut(id) {
            owed.at = At::Asked(exchange);
        }
    }

    pub(super) fn log(&mut self, what: &str) {
        let text = format!("the server at `{}`: {what}", self.origin());
        self.effects.push(Effect::Log(text));
    }
}
