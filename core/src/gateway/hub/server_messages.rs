//! What servers say: answers and notifications.

use serde_json::json;

use super::super::span::Outcome;
use super::super::{ClientId, Effect, LinkId, NotTaken};
use super::client_notifications::{INFO, LEVELS};
use super::era_bridge::modern_answer;
use super::session::Client;
use super::subscriptions::to_listener;
use super::{Flight, Hub, What, edit, number_in, place, raw};
use crate::mcp::envelope::{Id, Message, look, param, with_id};
use crate::mcp::{Kind, responses};

impl Hub {
    /// The answer to a request of ours.
    pub(super) fn answered(&mut self, link: LinkId, id: &Id, line: Vec<u8>, is_error: bool) {
        let Some(number) = number_in(id.raw(), b'g') else { return };
        // Twice, or over another link, or not wanted any more: nobody waits for it.
        if self.flights.get(&number).is_none_or(|flight| flight.link != link) {
            return;
        }
        let Some(Flight { what, span, .. }) = self.take_flight(number) else { return };
        match what {
            What::Client { client, id, method, uri, .. } => {
                if let Some(its) = self.links.get_mut(&link) {
                    its.in_flight = its.in_flight.saturating_sub(1);
                }
                self.was_in_time(link);
                self.end_span_with(span, &line, is_error);
                if let Some(its) = self.clients.get_mut(&client) {
                    its.flights.remove(&id);
                    if let Some(uri) = uri
                        && !is_error
                        && method == "resources/subscribe"
                    {
                        its.subscribed.insert(uri.clone());
                        if let Some(link) = self.links.get_mut(&link) {
                            link.subscribed.insert(uri);
                        }
                    }
                }
                if let Some(line) = with_id(&line, id.raw()) {
                    let line = match self.is_between(client, link) {
                        true => modern_answer(line, &method),
                        false => line,
                    };
                    self.answer(client, &id, line);
                }
            }
            What::Opens => self.opens(link, &line, is_error),
            What::Page(kind) => self.page(link, kind, &line, is_error),
            What::Listens => {
                if let Some(its) = self.links.get_mut(&link) {
                    its.listens.take_if(|listens| *listens == number);
                }
            }
            What::Ignored => {}
        }
    }

    /// A request of ours did not get to its server: it is answered in its place.
    pub(super) fn not_taken(&mut self, link: LinkId, line: &[u8], why: &NotTaken) {
        let Some(Message::Request { id, .. }) = look(line) else { return };
        let (reason, why) = match why {
            NotTaken::Full => (
                "server_busy",
                "nothing was done: the server does not read what it is sent, and too much waits for it",
            ),
            NotTaken::Blocked(why) => ("server_down", why.as_str()),
        };
        let data = json!({"reason": reason, "retryable": true});
        let error = json!({"code": -32603, "message": why, "data": data});
        self.answered(link, &id, responses::line(&id, "error", &error), true);
    }

    /// A notification of a server's.
    pub(super) fn told(&mut self, link: LinkId, method: &str, line: Vec<u8>, about: Option<&Id>) {
        let lists = [Kind::Tools, Kind::Prompts, Kind::Resources];
        if let Some(kind) = lists.into_iter().find(|kind| kind.notification() == method) {
            self.read_list(link, kind);
            if kind == Kind::Resources {
                self.read_list(link, Kind::Templates);
            }
            return;
        }
        match method {
            "notifications/progress" => self.progress(link, &line),
            "notifications/message" => self.message(link, &line, about),
            "notifications/resources/updated" => self.updated(link, &line),
            "notifications/cancelled" => self.takes_back(link, &line),
            "notifications/subscriptions/acknowledged" => {}
            _ => match self.whose(link, about).filter(|_| about.is_some()) {
                Some((client, about)) => self.tell_client(client, line, Some(about)),
                None => {
                    for client in self.users_of(link) {
                        if self.clients.get(&client).is_some_and(|client| !client.is_modern()) {
                            self.tell_client(client, line.clone(), None);
                        }
                    }
                }
            },
        }
    }

    fn tell_client(&mut self, client: ClientId, line: Vec<u8>, about: Option<Id>) {
        self.effects.push(Effect::ToClient { client, line, about });
    }

    fn progress(&mut self, link: LinkId, line: &[u8]) {
        let Some(token) = param(line, &["progressToken"]) else { return };
        let flight = number_in(token, b'g').and_then(|number| self.flights.get(&number));
        if let Some(Flight { link: over, what, .. }) = flight
            && *over == link
            && let What::Client { client, id, token: Some(theirs), .. } = what
        {
            let edited = edit(line, vec![(place(line, token), theirs.clone())]);
            let (client, about) = (*client, Some(id.clone()));
            self.tell_client(client, edited, about);
        }
    }

    /// An entry of a server's log.
    fn message(&mut self, link: LinkId, line: &[u8], about: Option<&Id>) {
        let level = param(line, &["level"]).and_then(raw::text);
        let level = LEVELS.iter().position(|name| level.as_deref() == Some(*name));
        // Where another client asked for more, one that has said nothing does not get all of it.
        let is_asked = self.links.get(&link).is_some_and(|its| its.level.is_some());
        let by_itself = if is_asked { INFO } else { 0 };
        let wants =
            |client: &Client| level.is_none_or(|level| level >= client.level.unwrap_or(by_itself));
        let whose = self.whose(link, about);
        if let Some((client, id)) = whose.clone().filter(|_| about.is_some()) {
            if self.clients.get(&client).is_some_and(wants) && self.wants_log(client, &id, level) {
                self.tell_client(client, line.to_vec(), Some(id));
            }
            return;
        }
        // It may tell of a call that runs: that is no business of other clients'.
        let callers = self.callers_of(link);
        let users = if callers.is_empty() { self.users_of(link) } else { callers };
        for client in users {
            let Some(its) = self.clients.get(&client) else { continue };
            let own = whose.clone().filter(|(whose, _)| *whose == client).map(|(_, id)| id);
            // Without a session nothing comes but what belongs to a request.
            let is_asked = |id: &Id| self.wants_log(client, id, level);
            if its.is_open && wants(its) && (!its.is_modern() || own.as_ref().is_some_and(is_asked))
            {
                self.tell_client(client, line.to_vec(), own);
            }
        }
    }

    /// A resource has changed.
    fn updated(&mut self, link: LinkId, line: &[u8]) {
        let Some(uri) = param(line, &["uri"]).and_then(raw::text) else { return };
        // Over the newer protocol it carries our own listener: what else it says is passed on.
        let params = raw::get(line, &["params"]).unwrap_or(b"{}");
        let mut more = Vec::new();
        for member in raw::members(params).unwrap_or_default() {
            if &params[member.key.clone()] != br#""_meta""# {
                more.push(b',');
                more.extend_from_slice(&params[member.key]);
                more.push(b':');
                more.extend_from_slice(&params[member.value]);
            }
        }
        let method = "notifications/resources/updated";
        let Some(slot) = self.links.get(&link).map(|its| its.slot) else { return };
        for client in self.users_of(link) {
            // It may be another server's resource that the client means by this.
            if self.slot_of_uri(client, &uri).is_some_and(|its| its != slot) {
                continue;
            }
            let Some(its) = self.clients.get(&client) else { continue };
            let listens = its.listens.iter().filter(|(_, filter)| filter.uris.contains(&uri));
            let listens: Vec<Id> = listens.map(|(id, _)| id.clone()).collect();
            if its.subscribed.contains(&uri) {
                let bare = [b"{", more.get(1..).unwrap_or_default(), b"}"].concat();
                self.tell_client(client, responses::notification(method, Some(&bare)), None);
            }
            for id in listens {
                self.tell_client(client, to_listener(method, &id, &more), Some(id));
            }
        }
    }

    /// Answers what has taken too long.
    pub(super) fn expire_flights(&mut self) {
        while let Some((until, number)) = self.deadlines.first().copied() {
            if until > self.now {
                return;
            }
            self.deadlines.pop_first();
            if let Some(Flight { link, what: What::Opens, .. }) = self.flights.get(&number) {
                self.opens_late(*link, number);
                continue;
            }
            let Some(Flight { link, what: What::Client { client, id, method, .. }, .. }) =
                self.flights.get(&number)
            else {
                continue;
            };
            let (link, client, id, method) = (*link, *client, id.clone(), method.clone());
            let Some(its) = self.links.get(&link) else { continue };
            let absence = its.absence().filter(|_| its.down_since.is_some_and(|at| at <= number));
            let why = match absence {
                // It was not there when it was asked, nor since then.
                Some(why) => self.unusable(its.slot, &why),
                None => format!(
                    "the server `{}` has not answered in time (`call_timeout`); its outcome is unknown",
                    self.servers[its.slot].backend.name
                ),
            };
            let span = self.flights.get_mut(&number).and_then(|flight| flight.span.take());
            self.end_span(span, Outcome::Failed("timed_out"));
            self.withdraw(number, "it took too long");
            if let Some(its) = self.clients.get_mut(&client) {
                its.flights.remove(&id);
            }
            self.answer_failure(client, &id, &method, "timed_out", &why);
            self.was_late(link);
        }
    }
}
