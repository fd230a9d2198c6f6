//! Owns the requests of servers to clients: sampling, elicitation, roots. Driven by [`Hub`](super::Hub).
//!
//! A server's request belongs to a call, and its response ends up in the result of that call: it is never passed to
//! another client than that of the call. Where it belongs to none, the client must be beyond doubt.

use std::collections::{BTreeMap, VecDeque};

use super::hub_state::Directory;
use super::outgoing::{Outgoing, number_in, own_id};
use crate::gateway::{ClientId, LinkId};
use crate::limits::{ASKED_MAX, QUESTION_WAIT};
use crate::mcp::envelope::{Id, Message, Params, edit, look, param, with_id};
use crate::mcp::{Era, json as raw, responses};
use crate::time::Time;

const ROOTS: &str = "roots/list";

/// The requests of servers that have no response yet.
#[derive(Debug, Default)]
pub(super) struct ServerRequests {
    /// Those that a client has, by the numbers in their ids.
    pending: BTreeMap<u64, ServerRequest>,
    /// Those that wait for a client whose session is still beginning.
    deferred: VecDeque<DeferredRequest>,
}

/// A request of a server's that a client has.
#[derive(Debug)]
struct ServerRequest {
    link: LinkId,
    /// The server's own id of it.
    id: Id,
    /// The server's own progress token, raw.
    token: Option<Vec<u8>>,
    client: ClientId,
    /// The client's request that it belongs to.
    about: Option<Id>,
}

/// A request that no client could take yet.
#[derive(Debug)]
struct DeferredRequest {
    link: LinkId,
    id: Id,
    line: Vec<u8>,
    about: Option<Id>,
    until: Time,
}

/// The client that a request goes to.
enum Addressee {
    /// This one, beside the response to its request.
    Client(ClientId, Option<Id>),
    /// One whose session is still beginning.
    Later,
    /// None, and why.
    None(String),
}

impl ServerRequests {
    /// Passes a request of a server's on to a client, or refuses it.
    pub(super) fn handle(
        &mut self,
        directory: &mut Directory,
        link: LinkId,
        (id, method, params, line): (Id, &str, &Params, &[u8]),
        about: Option<&Id>,
    ) {
        if method == "ping" {
            return directory.out.send_to_link(link, responses::pong(&id));
        }
        let Some(raw_id) = raw::get(line, &["id"]) else { return };
        let addressee = addressee(directory, link, method, about);
        let is_full = self.pending.len() + self.deferred.len() >= ASKED_MAX;
        if method == ROOTS
            && let Some(link) = directory.backends.links.get_mut(link)
        {
            link.wants_roots = true;
            if let Addressee::Client(client, _) = addressee
                && !is_full
            {
                link.roots_of = Some(client);
            }
        }
        let out = &mut directory.out;
        let (client, about) = match addressee {
            Addressee::Client(..) | Addressee::Later if is_full => {
                let why = "too many questions of servers have no answer yet; try again later";
                return refuse(link, &id, -32603, why, out);
            }
            Addressee::Client(client, about) => (client, about),
            Addressee::Later => {
                let (line, about) = (line.to_vec(), about.cloned());
                let until = out.now + QUESTION_WAIT;
                self.deferred.push_back(DeferredRequest { link, id, line, about, until });
                return;
            }
            Addressee::None(why) => {
                let why = format!("nobody can be asked `{method}`: {why}");
                return refuse(link, &id, -32601, &why, out);
            }
        };
        let number = out.requests.number();
        let token = params.progress_token.clone();
        let own_token = token.clone().map(|part| line[part].to_vec());
        let parts = token.into_iter().chain([raw::place(line, raw_id)]);
        let line = edit(line, parts.map(|part| (part, own_id('s', number))).collect());
        let request = ServerRequest { link, id, token: own_token, client, about: about.clone() };
        self.pending.insert(number, request);
        out.send_to_client(client, line, about);
    }

    /// Passes the deferred requests on where a client can take them now, and refuses those that waited too long.
    pub(super) fn retry_deferred(&mut self, directory: &mut Directory) {
        for deferred in std::mem::take(&mut self.deferred) {
            let DeferredRequest { link, id, line, about, until } = &deferred;
            let Some(Message::Request { method, params, .. }) = look(line) else { continue };
            match addressee(directory, *link, &method, about.as_ref()) {
                Addressee::Later if *until > directory.out.now => self.deferred.push_back(deferred),
                Addressee::Later => {
                    let why = "no client was ready to be asked in time";
                    refuse(*link, id, -32603, why, &mut directory.out);
                }
                Addressee::Client(..) | Addressee::None(_) => {
                    let request = (id.clone(), &*method, &params, &**line);
                    self.handle(directory, *link, request, about.as_ref());
                }
            }
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        self.deferred.iter().map(|deferred| deferred.until).min()
    }

    /// A client can take requests from now on.
    pub(super) fn client_ready(&mut self, client: ClientId, directory: &mut Directory) {
        let Some(session) = directory.sessions.get_mut(&client) else { return };
        if std::mem::replace(&mut session.is_ready, true) {
            return;
        }
        self.retry_deferred(directory);
        for id in directory.links_of(client) {
            // The server has the roots of a client that is gone, or got none.
            let is_gone = |whose: ClientId| !directory.sessions.contains_key(&whose);
            let link = directory.backends.links.get(id);
            if link.is_some_and(|link| link.wants_roots && link.roots_of.is_none_or(is_gone))
                && directory.backends.is_generic(id)
                && gives_roots(directory, client, id)
            {
                let line = responses::notification("notifications/roots/list_changed", None);
                directory.out.send_to_link(id, line);
            }
        }
    }

    /// The request of this id, where this client has it.
    fn number_of(&self, client: ClientId, id: &[u8]) -> Option<u64> {
        let number = number_in(id, b's')?;
        self.pending.get(&number).filter(|request| request.client == client).map(|_| number)
    }

    /// Passes a client's response on.
    pub(super) fn reply(&mut self, client: ClientId, id: &Id, line: &[u8], out: &mut Outgoing) {
        if let Some(number) = self.number_of(client, id.raw())
            && let Some(request) = self.pending.remove(&number)
            && let Some(line) = with_id(line, request.id.raw())
        {
            out.send_to_link(request.link, line);
        }
    }

    /// Answers a server in the client's place.
    pub(super) fn refuse(&mut self, client: ClientId, id: &Id, why: &str, out: &mut Outgoing) {
        if let Some(number) = self.number_of(client, id.raw())
            && let Some(request) = self.pending.remove(&number)
        {
            refuse(request.link, &request.id, -32603, why, out);
        }
    }

    /// Passes a client's progress notification on.
    pub(super) fn progress(&self, client: ClientId, line: &[u8], out: &mut Outgoing) {
        if let Some(token) = param(line, &["progressToken"])
            && let Some(number) = self.number_of(client, token)
            && let Some(ServerRequest { link, token: Some(theirs), .. }) = self.pending.get(&number)
        {
            out.send_to_link(*link, edit(line, vec![(raw::place(line, token), theirs.clone())]));
        }
    }

    /// A server has cancelled its request.
    pub(super) fn cancel(&mut self, link: LinkId, line: &[u8], out: &mut Outgoing) {
        let Some(part) = param(line, &["requestId"]) else { return };
        let id = Id::new(part);
        self.deferred.retain(|deferred| deferred.link != link || deferred.id != id);
        let is_it = |request: &ServerRequest| request.link == link && request.id == id;
        let found = self.pending.iter().find(|(_, request)| is_it(request));
        if let Some(number) = found.map(|(number, _)| *number)
            && let Some(ServerRequest { client, about, .. }) = self.pending.remove(&number)
        {
            let line = edit(line, vec![(raw::place(line, part), own_id('s', number))]);
            out.send_to_client(client, line, about);
        }
    }

    /// A client is gone: the servers that wait for it get errors.
    pub(super) fn client_left(&mut self, client: ClientId, out: &mut Outgoing) {
        for (_, request) in self.pending.extract_if(.., |_, request| request.client == client) {
            refuse(request.link, &request.id, -32603, "the client is gone", out);
        }
    }

    /// A link was closed.
    pub(super) fn link_closed(&mut self, link: LinkId) {
        self.pending.retain(|_, request| request.link != link);
        self.deferred.retain(|deferred| deferred.link != link);
    }
}

fn refuse(link: LinkId, id: &Id, code: i32, why: &str, out: &mut Outgoing) {
    out.send_to_link(link, responses::error(id, code, why));
}

/// The roots of a client have changed.
pub(super) fn roots_changed(directory: &mut Directory, client: ClientId, line: &[u8]) {
    for link in directory.links_of(client) {
        if gives_roots(directory, client, link) {
            directory.out.send_to_link(link, line.to_vec());
        }
    }
}

/// The client that a request of a server's goes to.
fn addressee(directory: &Directory, link: LinkId, method: &str, about: Option<&Id>) -> Addressee {
    let session = |client: &ClientId| directory.sessions.get(client);
    let can = |client: &ClientId| session(client).is_some_and(|its| its.can_answer(method));
    if let Some((client, id)) = directory.out.requests.about(link, about) {
        if about.is_none() && !is_of_one_access(directory, link) {
            return Addressee::None(
                "calls of clients with different tokens run, and it does not say which it belongs \
                 to; `share = \"per-client\"` gives each client a server of its own"
                    .to_owned(),
            );
        }
        return match can(&client) {
            true => Addressee::Client(client, Some(id)),
            false => Addressee::None("the client of this call does not support it".to_owned()),
        };
    }
    let users = directory.users_of(link).into_iter();
    let is_ready = |user: &ClientId| session(user).is_some_and(|user| user.is_ready);
    let (ready, others): (Vec<_>, Vec<_>) = users.partition(is_ready);
    let last = directory.backends.links.get(link).and_then(|link| link.calls.last_caller);
    let chosen = match ready[..] {
        [client] => Some(client),
        _ => last.filter(|last| ready.contains(last)),
    };
    let is_beginning = |user: &ClientId| session(user).is_some_and(|user| !user.is_modern());
    match chosen {
        Some(client) if can(&client) => Addressee::Client(client, None),
        Some(_) => {
            Addressee::None("the client that uses this server does not support it".to_owned())
        }
        None if ready.is_empty() && others.iter().any(is_beginning) => Addressee::Later,
        None if ready.is_empty() => Addressee::None("no client uses this server now".to_owned()),
        None => Addressee::None(format!(
            "no call runs that it could belong to, and {} clients use this server",
            ready.len()
        )),
    }
}

/// Whether all clients whose calls run over a link have the same access.
fn is_of_one_access(directory: &Directory, link: LinkId) -> bool {
    let callers = directory.out.requests.callers(link);
    let mut all = callers.iter().filter_map(|id| Some(&directory.sessions.get(id)?.access));
    let first = all.next();
    all.all(|access| Some(access) == first)
}

/// Whether a server that has a session gets this client's roots.
fn gives_roots(directory: &Directory, client: ClientId, id: LinkId) -> bool {
    let link = directory.backends.links.get(id);
    let has_session = link.is_some_and(|link| link.is_open() && link.era == Era::Legacy);
    let to = || addressee(directory, id, ROOTS, None);
    has_session && matches!(to(), Addressee::Client(whom, _) if whom == client)
}
