//! Questions of servers: which client is asked, and which never is.
//!
//! A question belongs to a call, and its answer ends up in that call's result: nobody is asked but the
//! client of the call. Where it belongs to none, there must be no doubt who is meant.

use std::collections::BTreeSet;

use serde_json::json;

use super::super::{ClientId, Effect, LinkId};
use super::session::Client;
use super::{Asked, Flight, Hub, What, edit, member, number_in, own_id, place};
use crate::limits::ASKED_MAX;
use crate::mcp::answer;
use crate::mcp::envelope::{Id, Params, param};

impl Client {
    /// Whether it can be asked this. The newer protocol has no questions.
    fn can_answer(&self, method: &str) -> bool {
        let capability = match method {
            "sampling/createMessage" => "sampling",
            "elicitation/create" => "elicitation",
            "roots/list" => "roots",
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
            return self.tell_link(link, answer::pong(&theirs));
        }
        let Some(id_part) = member(line, "id") else { return };
        let (client, about) = match self.whom(link, method, about) {
            Ok(_) if self.asked.len() >= ASKED_MAX => {
                let why = "too many questions of servers have no answer yet; try again later";
                return self.refuse_question(link, &theirs, -32603, why);
            }
            Ok(chosen) => chosen,
            Err(why) => {
                let why = format!("nobody can be asked `{method}`: {why}");
                return self.refuse_question(link, &theirs, -32601, &why);
            }
        };
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
        self.tell_link(link, answer::line(theirs, "error", &error));
    }

    /// The client that a question is for, and its request that it is asked for; or why there is none.
    fn whom(
        &self,
        link: LinkId,
        method: &str,
        about: Option<&Id>,
    ) -> Result<(ClientId, Option<Id>), String> {
        let can = |client: &ClientId| {
            self.clients.get(client).is_some_and(|client| client.can_answer(method))
        };
        if let Some((client, id)) = self.whose(link, about) {
            if about.is_none() && !self.is_of_one_access(link) {
                return Err(
                    "calls of clients with different tokens run, and it does not say which \
                            it belongs to; `share = \"per-client\"` gives each client a server of \
                            its own"
                        .to_owned(),
                );
            }
            return match can(&client) {
                true => Ok((client, Some(id))),
                false => Err("the client of this call does not support it".to_owned()),
            };
        }
        let users = self.users_of(link);
        let users: Vec<ClientId> = users
            .into_iter()
            .filter(|user| self.clients.get(user).is_some_and(|user| user.is_open))
            .collect();
        let last = self.links.get(&link).and_then(|its| its.caller);
        let chosen = match users[..] {
            [client] => Some(client),
            _ => last.filter(|last| users.contains(last)),
        };
        match chosen {
            Some(client) if can(&client) => Ok((client, None)),
            Some(_) => Err("the client that uses this server does not support it".to_owned()),
            None if users.is_empty() => Err("no client uses this server now".to_owned()),
            None => Err(format!(
                "no call runs that it could belong to, and {} clients use this server",
                users.len()
            )),
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

impl Flight {
    /// The client's request that this is, where it goes over this link.
    fn of_client(&self, link: LinkId) -> Option<(ClientId, Id)> {
        match &self.what {
            What::Client { client, id, .. } if self.link == link => Some((*client, id.clone())),
            _ => None,
        }
    }
}
