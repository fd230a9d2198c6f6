//! How exchanges went that became streams, and those that broke off.

use super::error_responses::Trouble;
use super::{
    At, Exchange, ExchangeId, Failure, Purpose, Remote, SseEvent, State, Step, Transport, Waiting,
    url,
};
use crate::limits::{RESUMES_MAX, STREAM_STABLE};
use crate::mcp::Era;
use crate::mcp::envelope::Id;
use crate::time::Time;

impl Remote {
    pub(super) fn opened(&mut self, now: Time, exchange: ExchangeId, session: Option<String>) {
        let Some(opened) = self.exchanges.get_mut(&exchange) else { return };
        opened.opened_at = Some(now);
        let purpose = opened.purpose.clone();
        // A stream that says nothing more is no sign of life.
        if purpose != Purpose::Main {
            self.is_there();
        }
        if self.state == State::Scouting(exchange) {
            self.state = State::Up;
        }
        match purpose {
            Purpose::Request(id) => self.note_session(&id, session),
            Purpose::Opening => self.session.id = session,
            Purpose::Initialized => {
                self.finish(exchange);
                self.initialized_accepted(now);
            }
            Purpose::Notice(_) => self.finish(exchange),
            Purpose::Resume(_) | Purpose::Own(_) | Purpose::Standalone | Purpose::Main => {}
        }
    }

    /// The reply to the hub's `initialize` names the session.
    pub(super) fn note_session(&mut self, id: &Id, session: Option<String>) {
        let is_opening = |owed: &super::Owed| owed.flight.method == "initialize";
        if self.owed.get(id).is_some_and(is_opening) {
            self.session.id = session;
            if let Transport::Streamable { is_certain } = &mut self.transport {
                *is_certain = true;
            }
        }
    }

    pub(super) fn event(&mut self, now: Time, exchange: ExchangeId, event: SseEvent) {
        let Some(open) = self.exchanges.get_mut(&exchange) else { return };
        open.retry = event.retry.or(open.retry);
        if let Some(id) = event.id {
            open.last_event = Some(id);
        }
        let purpose = open.purpose.clone();
        if event.is_too_long {
            return self.too_long(now, exchange, &purpose);
        }
        if purpose == Purpose::Main && event.name == "endpoint" {
            let reference = String::from_utf8_lossy(&event.data).into_owned();
            return self.endpoint(now, exchange, &reference);
        }
        if event.data.is_empty() || !matches!(event.name.as_str(), "" | "message") {
            return;
        }
        let about = match &purpose {
            Purpose::Request(id) | Purpose::Resume(id) => Some(id),
            _ => None,
        };
        self.message(now, exchange, about, event.data);
    }

    fn endpoint(&mut self, now: Time, exchange: ExchangeId, reference: &str) {
        let is_expected =
            matches!(&self.state, State::Opening { step: Step::Stream(it), .. } if *it == exchange);
        match url::resolve(&self.url, reference) {
            Some(place) if is_expected => self.endpoint_known(now, place),
            Some(_) => {}
            None => {
                self.close(exchange);
                let what = "names an endpoint at another address, where nothing is sent";
                let trouble = Trouble::Strange(what.to_owned());
                self.main_lost(now, trouble.clone(), &trouble);
            }
        }
    }

    fn too_long(&mut self, now: Time, exchange: ExchangeId, purpose: &Purpose) {
        match purpose {
            Purpose::Request(id) | Purpose::Resume(id) => {
                self.close(exchange);
                self.answer(id, &Trouble::TooLong);
            }
            // Which answer it was cannot be known, and one of them will not come.
            Purpose::Main => {
                self.close(exchange);
                let why = "it sent a message that is longer than allowed".to_owned();
                self.main_lost(now, Trouble::TooLong, &Trouble::Broke(why));
            }
            Purpose::Opening => {
                self.close(exchange);
                self.opening_refused(now, Trouble::TooLong);
            }
            Purpose::Initialized | Purpose::Notice(_) | Purpose::Own(_) | Purpose::Standalone => {
                self.log("it sent a message that is longer than allowed");
            }
        }
    }

    /// An exchange broke off, or its stream ended.
    pub(super) fn failed(&mut self, now: Time, exchange: ExchangeId, failure: &Failure) {
        let Some(ended) = self.forget_exchange(exchange) else { return };
        let unreachable = Trouble::Unreachable(failure.why.clone());
        let was_stable = ended.opened_at.is_some_and(|at| now.since(at) >= STREAM_STABLE);
        match ended.purpose.clone() {
            Purpose::Request(id) => self.request_broke(now, &id, &ended, failure),
            Purpose::Resume(id) => self.resume_broke(now, &id, &ended, &failure.why),
            // The one that counts is another.
            Purpose::Opening | Purpose::Initialized if !self.is_step(exchange) => {}
            Purpose::Opening => {
                self.state = State::Closed;
                self.down(now, unreachable, None);
            }
            Purpose::Initialized if failure.was_sent => self.initialized_accepted(now),
            Purpose::Initialized => {
                let line = self.memory.initialized().unwrap_or_default();
                let until = self.waits_until(now);
                self.waiting.push_front(Waiting::Notice { line, until });
                self.state = State::Closed;
                self.down(now, unreachable, None);
            }
            Purpose::Notice(line) if !failure.was_sent => {
                let until = self.waits_until(now);
                self.waiting.push_front(Waiting::Notice { line, until });
                self.down(now, unreachable, None);
            }
            Purpose::Notice(_) | Purpose::Own(_) => {}
            Purpose::Standalone => {
                let last_event = ended.last_event;
                if self.is_standalone(exchange) {
                    self.standalone.last_event = last_event.or(self.standalone.last_event.take());
                    self.listen_again(now, was_stable, ended.retry);
                }
            }
            Purpose::Main => {
                self.main_lost(now, unreachable, &Trouble::Broke(failure.why.clone()));
            }
        }
    }

    fn request_broke(&mut self, now: Time, id: &Id, ended: &Exchange, failure: &Failure) {
        if !failure.was_sent {
            // Nobody has seen it: this time does not count.
            if let Some(owed) = self.owed.get_mut(id) {
                owed.sendings -= 1;
            }
            self.requeue(now, id);
            return self.down(now, Trouble::Unreachable(failure.why.clone()), None);
        }
        self.stream_broke(now, id, ended, &failure.why);
    }

    /// A stream of a request is over before its answer came.
    fn stream_broke(&mut self, now: Time, id: &Id, ended: &Exchange, why: &str) {
        let Some(owed) = self.owed.get_mut(id) else { return };
        owed.last_event = ended.last_event.clone().or(owed.last_event.take());
        let is_same = ended.session == self.session.number;
        let can_resume = owed.last_event.is_some() && is_same && self.memory.era == Era::Legacy;
        let listens = owed.flight.is_listen() && owed.is_modern;
        if !(can_resume || (listens && ended.opened_at.is_some())) {
            let trouble = match is_same {
                true => Trouble::Broke(why.to_owned()),
                false => Trouble::Forgotten,
            };
            return self.settle(now, id, &trouble);
        }
        let was_stable = ended.opened_at.is_some_and(|at| now.since(at) >= STREAM_STABLE);
        owed.resumes = if was_stable { 1 } else { owed.resumes + 1 };
        owed.at = At::Broken;
        let resumes = owed.resumes;
        let delay = self.delay(resumes).max(ended.retry.unwrap_or_default());
        self.broken.insert(id.clone(), now + delay);
    }

    /// A stream could not be taken up, or broke again.
    pub(super) fn resume_broke(&mut self, now: Time, id: &Id, ended: &Exchange, why: &str) {
        let tries = self.owed.get(id).map_or(0, |owed| owed.resumes);
        match ended.opened_at.is_some() || tries < RESUMES_MAX {
            true => self.stream_broke(now, id, ended, why),
            false => self.settle(now, id, &Trouble::Broke(why.to_owned())),
        }
    }
}
