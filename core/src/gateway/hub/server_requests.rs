//! Questions of servers: which client is asked, and which never is.
//!
//! A question belongs to a call, and its answer ends up in that call's result: nobody is asked but the
//! client of the call. Where it belongs to none, there must be no doubt who is meant.

use std::collections::BTreeSet;

use serde_json::json;

use super::super::{ClientId, Effect, LinkId};
use super::link::{Link, Stage};
use super::session::Client;
use super::{Asked, Flight, Hub, What, edit, member, number_in, own_id, place};
use crate::limits::{ASKED_MAX, QUESTION_WAIT};
use crate::mcp::envelope::{Id, Message, Params, look, param};
use crate::mcp::{Era, responses};
use crate::time::Time;

const ROOTS: &str = "roots/list";

/// Who is asked a question of a server's.
enum Whom {
    /// This one, for this request of its.
    Client(ClientId, Option<Id>),
    /// Whoever is still beginning its session.
    Later,
    /// Nobody, and why.
    Nobody(String),
}

/// A question of a server's that came before there was anybody to be asked.
#[derive(Debug)]
pub(super) struct Unasked {
    pub(super) link: LinkId,
    theirs: Id,
    line: Vec<u8>,
    about: Option<Id>,
    pub(super) until: Time,
}

impl Client {
    /// Whether it can be asked this. The newer protocol has no questions.
    fn can_answer(&self, method: &str) -> bool {
        let capability = match method {
            "sampling/createMessage" => "sampling",
            "elicitation/create" => "elicitation",
            ROOTS => "roots",
            _ => return self.is_open && !self.is_modern(),
        };
        self.is_open && !self.is_modern() && self.capabilities[capability].is_object()
    }
}

impl Hub {
    /// Whose request a server speaks of: as the way that it came says, or the newest that it has.
    pub(super) fn whose(&self, link: LinkId, about: Option<&Id>) -> Option<(ClientId, Id)> {
        match about.and_then(|about| number_in(about.raw(), b'g')) {
            Some(number) => self.flights.get(&number)?.of_client(link),
            None => self.flights.values().rev().find_map(|flight| flight.of_client(link)),
        }
    }

    /// The clients whose requests run over a link.
    pub(super) fn callers_of(&self, link: LinkId) -> BTreeSet<ClientId> {
        let flights = self.flights.values().filter_map(|flight| flight.of_client(link));
        flights.map(|(client, _)| client).collect()
    }

    /// A question of a server's.
    pub(super) fn asks(
        &mut self,
        link: LinkId,
        theirs: Id,
        method: &str,
        params: &Params,
        line: &[u8],
        about: Option<&Id>,
    ) {
        if method == "ping" {
            return self.tell_link(link, responses::pong(&theirs));
        }
        let Some(id_part) = member(line, "id") else { return };
        if let Some(its) = self.links.get_mut(&link) {
            its.asks_roots |= method == ROOTS;
        }
        let whom = self.whom(link, method, about);
        let is_full = self.asked.len() + self.unasked.len() >= ASKED_MAX;
        let (client, about) = match whom {
            Whom::Client(..) | Whom::Later if is_full => {
                let why = "too many questions of servers have no answer yet; try again later";
                return self.refuse_question(link, &theirs, -32603, why);
            }
            Whom::Client(client, about) => (client, about),
            Whom::Later => {
                let (line, about) = (line.to_vec(), about.cloned());
                let until = self.now + QUESTION_WAIT;
                self.unasked.push_back(Unasked { link, theirs, line, about, until });
                return;
            }
            Whom::Nobody(why) => {
                let why = format!("nobody can be asked `{method}`: {why}");
                return self.refuse_question(link, &theirs, -32601, &why);
            }
        };
        if let Some(its) = self.links.get_mut(&link).filter(|_| method == ROOTS) {
            its.roots_of = Some(client);
        }
        let number = self.number();
        let mut edits = vec![(id_part, own_id('s', number))];
        let token = params.progress_token.clone();
        let own_token = token.clone().map(|part| line[part].to_vec());
        edits.extend(token.map(|part| (part, own_id('s', number))));
        let line = edit(line, edits);
        let asked = Asked { link, theirs, token: own_token, client, about: about.clone() };
        self.asked.insert(number, asked);
        self.effects.push(Effect::ToClient { client, line, about });
    }

    fn refuse_question(&mut self, link: LinkId, theirs: &Id, code: i32, why: &str) {
        let error = json!({"code": code, "message": why});
        self.tell_link(link, responses::line(theirs, "error", &error));
    }

    /// The client that a question is for.
    fn whom(&self, link: LinkId, method: &str, about: Option<&Id>) -> Whom {
        let can = |client: &ClientId| {
            self.clients.get(client).is_some_and(|client| client.can_answer(method))
        };
        if let Some((client, id)) = self.whose(link, about) {
            if about.is_none() && !self.is_of_one_access(link) {
                return Whom::nobody(
                    "calls of clients with different tokens run, and it does not say which it belongs \
                     to; `share = \"per-client\"` gives each client a server of its own",
                );
            }
            return match can(&client) {
                true => Whom::Client(client, Some(id)),
                false => Whom::nobody("the client of this call does not support it"),
            };
        }
        let users = self.users_of(link);
        let is_ready = |user: &ClientId| self.clients.get(user).is_some_and(|user| user.is_ready);
        let (ready, others): (Vec<_>, Vec<_>) = users.into_iter().partition(is_ready);
        let last = self.links.get(&link).and_then(|its| its.caller);
        let chosen = match ready[..] {
            [client] => Some(client),
            _ => last.filter(|last| ready.contains(last)),
        };
        let begins = |user: &ClientId| self.clients.get(user).is_some_and(|user| !user.is_modern());
        match chosen {
            Some(client) if can(&client) => Whom::Client(client, None),
            Some(_) => Whom::nobody("the client that uses this server does not support it"),
            None if ready.is_empty() && others.iter().any(begins) => Whom::Later,
            None if ready.is_empty() => Whom::nobody("no client uses this server now"),
            None => Whom::Nobody(format!(
                "no call runs that it could belong to, and {} clients use this server",
                ready.len()
            )),
        }
    }

    /// A client can be asked from now on.
    pub(super) fn is_ready(&mut self, client: ClientId) {
        let Some(its) = self.clients.get_mut(&client).filter(|its| !its.is_ready) else { return };
        its.is_ready = true;
        self.ask_again();
        for link in self.links_of(client) {
            // Whose roots it has is gone, or there was nobody who has any.
            let wants = self.links.get(&link).is_some_and(|its| {
                its.asks_roots
                    && !its.roots_of.is_some_and(|whose| self.clients.contains_key(&whose))
            });
            if wants && self.is_generic(link) && self.has_roots_for(client, link) {
                let line = responses::notification("notifications/roots/list_changed", None);
                self.tell_link(link, line);
            }
        }
    }

    /// Whether a server that has a session is told of this client's roots, when it asks.
    pub(super) fn has_roots_for(&self, client: ClientId, link: LinkId) -> bool {
        let is_told = |its: &Link| its.stage == Stage::Open && its.era == Era::Legacy;
        self.links.get(&link).is_some_and(is_told)
            && matches!(self.whom(link, ROOTS, None), Whom::Client(whom, _) if whom == client)
    }

    /// Asks what could not be asked before, and answers what has waited long enough.
    pub(super) fn ask_again(&mut self) {
        for unasked in std::mem::take(&mut self.unasked) {
            let Unasked { link, theirs, line, about, until } = &unasked;
            let Some(Message::Request { method, params, .. }) = look(line) else { continue };
            match self.whom(*link, &method, about.as_ref()) {
                Whom::Later if *until > self.now => self.unasked.push_back(unasked),
                Whom::Later => {
                    let why = "no client was ready to be asked in time";
                    self.refuse_question(*link, theirs, -32603, why);
                }
                Whom::Client(..) | Whom::Nobody(_) => {
                    self.asks(*link, theirs.clone(), &method, &params, line, about.as_ref());
                }
            }
        }
    }

    /// Whether all whose calls run on a server came in by the same door.
    fn is_of_one_access(&self, link: LinkId) -> bool {
        let callers = self.callers_of(link);
        let mut all = callers.iter().filter_map(|id| Some(&self.clients.get(id)?.access));
        let first = all.next();
        all.all(|access| Some(access) == first)
    }

    /// A server does not want the answer to its question any more.
    pub(super) fn takes_back(&mut self, link: LinkId, line: &[u8]) {
        let Some(part) = param(line, &["requestId"]) else { return };
        let theirs = Id::new(part);
        self.unasked.retain(|unasked| unasked.link != link || unasked.theirs != theirs);
        let is_it = |asked: &Asked| asked.link == link && asked.theirs == theirs;
        let number = self.asked.iter().find(|(_, asked)| is_it(asked)).map(|(number, _)| *number);
        if let Some(number) = number
            && let Some(Asked { client, about, .. }) = self.asked.remove(&number)
        {
            let line = edit(line, vec![(place(line, part), own_id('s', number))]);
            self.effects.push(Effect::ToClient { client, line, about });
        }
    }
}

impl Whom {
    fn nobody(why: &str) -> Self {
        Self::Nobody(why.to_owned())
    }
}

impl Flight {
    /// The client's request that this is, where it goes over this link.
    fn of_client(&self, link: LinkId) -> Option<(ClientId, Id)> {
        match &self.what {
            What::Client { client, id, .. } if self.link == link => Some((*client, id.clone())),
            _ => None,
        }
    }
}
