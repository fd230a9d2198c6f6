//! Owns the requests of servers to clients: sampling, elicitation, roots. Driven by [`Hub`](super::Hub).
//!
//! A server's request belongs to a call, and its response ends up in the result of that call: it is never passed to
//! another client than that of the call. Where it belongs to none, the client must be beyond doubt.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::asking_calls::AskingCalls;
use super::held_calls::HeldCalls;
use super::hub_state::Directory;
use super::link::Link;
use super::outgoing::{ClientRequest, Outgoing, number_in, own_id};
use super::sessions::Principal;
use crate::gateway::{ClientId, LinkId};
use crate::limits::{ASKED_MAX, QUESTION_WAIT, ROOTS_ASKED_WAIT, ROOTS_TAKEN_WAIT};
use crate::mcp::envelope::{Id, Message, Params, edit, look, param, with_id};
use crate::mcp::{Era, json as raw, responses};
use crate::time::Time;

pub(super) const ROOTS: &str = "roots/list";
const ELICITATION: &str = "elicitation/create";

/// Why a question is refused that no client could take.
const NOT_READY: &str = "no client was ready to be asked in time";

/// Why a question of a shared server is refused.
const OTHERS_RUN: &str = "no client was asked: calls of several clients run, or were cancelled a moment ago, and the server \
     does not say whose question this is; \
     call again: from now on such a call runs while no other client has one";

/// The requests of servers that have no response yet.
#[derive(Debug, Default)]
pub(super) struct ServerRequests {
    /// Those that a client has, by the numbers in their ids.
    pending: BTreeMap<u64, ServerRequest>,
    /// Those that wait for a client whose session is still beginning.
    deferred: VecDeque<DeferredRequest>,
    pub(super) held_calls: HeldCalls,
    pub(super) asking_calls: AskingCalls,
}

/// A request of a server's that a client has.
#[derive(Debug)]
struct ServerRequest {
    link: LinkId,
    /// The server's own id of it.
    id: Id,
    method: String,
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
    /// The client of the call of this number, by the result of that call.
    ByResult(u64),
    /// One whose session is still beginning, or that has to call first.
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
        of_task: Option<ClientId>,
    ) {
        if method == "ping" {
            return directory.out.send_to_link(link, responses::pong(&id));
        }
        let Some(raw_id) = raw::get(line, &["id"]) else { return };
        if method == ROOTS
            && let Some(kept) = self.held_calls.kept_roots(directory, link, about)
        {
            let answer = responses::result(&id, kept);
            return directory.out.send_to_link(link, answer);
        }
        if method != ROOTS && directory.backends.settings.is_transparent {
            self.asking_calls.note(&directory.out.requests, link);
        }
        let of_task = of_task.filter(|client| {
            directory.sessions.get(client).is_some_and(|its| its.can_answer(method))
        });
        let addressee = match of_task {
            Some(client) => {
                let call = directory.out.requests.about(link, about);
                Addressee::Client(client, call.filter(|(its, _)| *its == client).map(|(_, id)| id))
            }
            None => addressee(directory, &self.held_calls, link, method, about),
        };
        let is_full = self.pending.len() + self.deferred.len() >= ASKED_MAX;
        if method == ROOTS
            && let Some(link) = directory.backends.links.get_mut(link)
        {
            link.roots.are_wanted = true;
            if let Addressee::Client(client, _) = addressee
                && !is_full
            {
                (link.roots.owner, link.roots.kept) = (Some(Principal::Session(client)), None);
            }
        }
        let out = &mut directory.out;
        let (client, about) = match addressee {
            Addressee::Client(..) | Addressee::Later if is_full => {
                let why = "too many questions of servers have no answer yet; try again later";
                return refuse(link, &id, -32603, why, out);
            }
            Addressee::Client(client, about) => (client, about),
            Addressee::ByResult(number) => {
                if let Err(why) =
                    self.held_calls.hold(directory, number, (id.clone(), method, line))
                {
                    refuse(link, &id, -32603, why, &mut directory.out);
                }
                return;
            }
            Addressee::Later => {
                let (line, about) = (line.to_vec(), about.cloned());
                let until = out.now + QUESTION_WAIT;
                self.deferred.push_back(DeferredRequest { link, id, line, about, until });
                return self.refuse_deadlocked(directory, link);
            }
            Addressee::None(why) => {
                let why = format!("no client can answer `{method}`: {why}");
                return refuse(link, &id, -32601, &why, out);
            }
        };
        let number = out.requests.number();
        let token = params.progress_token.clone();
        let own_token = token.clone().map(|part| line[part].to_vec());
        let parts = token.into_iter().chain([raw::place(line, raw_id)]);
        let line = edit(line, parts.map(|part| (part, own_id('s', number))).collect());
        let (method, about_id) = (method.to_owned(), about.clone());
        let request = ServerRequest { link, id, method, token: own_token, client, about: about_id };
        self.pending.insert(number, request);
        out.send_to_client(client, line, about);
    }

    /// Passes the deferred requests on where a client can take them now, and refuses those that waited too long.
    pub(super) fn retry_deferred(&mut self, directory: &mut Directory) {
        for deferred in std::mem::take(&mut self.deferred) {
            let DeferredRequest { link, id, line, about, until } = &deferred;
            let Some(Message::Request { method, params, .. }) = look(line) else { continue };
            match addressee(directory, &self.held_calls, *link, &method, about.as_ref()) {
                Addressee::Later if *until > directory.out.now => self.deferred.push_back(deferred),
                Addressee::Later => {
                    let is_shared = directory.backends.settings.is_transparent;
                    let why = if is_shared && method != ROOTS { OTHERS_RUN } else { NOT_READY };
                    refuse(*link, id, -32603, why, &mut directory.out);
                }
                Addressee::Client(..) | Addressee::ByResult(_) | Addressee::None(_) => {
                    let request = (id.clone(), &*method, &params, &**line);
                    self.handle(directory, *link, request, about.as_ref(), None);
                }
            }
        }
        let links: BTreeSet<LinkId> = self.deferred.iter().map(|deferred| deferred.link).collect();
        for link in links {
            self.refuse_deadlocked(directory, link);
        }
    }

    /// Refuses questions of a shared server while as many wait as calls run: no call would end before its question is
    /// answered, and none is answered before the calls of other clients have ended.
    fn refuse_deadlocked(&mut self, directory: &mut Directory, link: LinkId) {
        if !directory.backends.settings.is_transparent {
            return;
        }
        let running = directory.out.requests.of_clients(link).count();
        let is_its = |deferred: &DeferredRequest| {
            deferred.link == link && method_of(&deferred.line).as_deref() != Some(ROOTS)
        };
        while self.deferred.iter().filter(|deferred| is_its(deferred)).count() >= running.max(1) {
            let Some(newest) = self.deferred.iter().rposition(is_its) else { return };
            let Some(deferred) = self.deferred.remove(newest) else { return };
            refuse(link, &deferred.id, -32603, OTHERS_RUN, &mut directory.out);
        }
    }

    /// Answers the questions for roots that wait, now that a server has some; false where there are none.
    fn answer_deferred_roots(&mut self, directory: &mut Directory, link: LinkId) -> bool {
        let is_it = |deferred: &DeferredRequest| {
            deferred.link == link && method_of(&deferred.line).as_deref() == Some(ROOTS)
        };
        let all = std::mem::take(&mut self.deferred).into_iter();
        let (its, others): (VecDeque<_>, VecDeque<_>) = all.partition(is_it);
        self.deferred = others;
        for deferred in &its {
            if let Some(kept) = self.held_calls.kept_roots(directory, link, None) {
                directory.out.send_to_link(link, responses::result(&deferred.id, kept));
            }
        }
        !its.is_empty()
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        let deferred = self.deferred.iter().map(|deferred| deferred.until).min();
        deferred.into_iter().chain(self.held_calls.next_deadline()).min()
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
            let lacks_roots = |link: &Link| {
                let owner = link.roots.owner.as_ref();
                let is_gone = |owner: &Principal| owner.has_left(directory, link.roots.used_at);
                link.roots.are_wanted && owner.is_none_or(is_gone)
            };
            if directory.backends.links.get(id).is_some_and(lacks_roots)
                && directory.backends.is_generic(id)
                && gives_roots(directory, &self.held_calls, client, id)
            {
                let line = responses::notification("notifications/roots/list_changed", None);
                directory.out.send_to_link(id, line);
            }
        }
    }

    /// The roots of a client have changed.
    pub(super) fn roots_changed(&self, directory: &mut Directory, client: ClientId, line: &[u8]) {
        for link in directory.links_of(client) {
            if gives_roots(directory, &self.held_calls, client, link) {
                directory.out.send_to_link(link, line.to_vec());
            }
        }
    }

    /// Tells a server of the roots that its client has given. Returns how long a call of that client waits for the server to
    /// look at them.
    pub(super) fn tell_roots(&mut self, directory: &mut Directory, link: LinkId) -> Duration {
        let its = directory.backends.links.get(link);
        if its.is_none_or(|its| its.roots.kept.is_none()) {
            return Duration::ZERO;
        }
        if self.answer_deferred_roots(directory, link) {
            return ROOTS_TAKEN_WAIT;
        }
        let line = responses::notification("notifications/roots/list_changed", None);
        directory.out.send_to_link(link, line);
        ROOTS_ASKED_WAIT
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
        self.held_calls.cancel(link, &id);
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

    /// Cancels a request of a client. One of a shared server that waits for its client is ended by the answer to its
    /// question: its response tells other clients' calls that they can go on, and a cancelled one has none.
    pub(super) fn withdraw(
        &mut self,
        directory: &mut Directory,
        client: ClientId,
        (number, reason): (u64, &str),
    ) {
        let is_ended = self.decline(directory, client, number);
        directory.withdraw(number, (!is_ended).then_some(reason));
    }

    /// Answers the question that a call of a shared server waits for, because its client has cancelled the call: it is
    /// the client's only call there, so the question is its. Returns whether there was one.
    fn decline(&mut self, directory: &mut Directory, client: ClientId, number: u64) -> bool {
        let out = &mut directory.out;
        let Some((link, call)) = out.requests.client_request(number) else { return false };
        let call = call.id.clone();
        let is_its = |(_, call): &(u64, &ClientRequest)| call.client == client;
        let is_question = |request: &ServerRequest| {
            let is_about_it = request.about.as_ref() == Some(&call);
            is_about_it
                && request.link == link
                && request.client == client
                && request.method != ROOTS
        };
        let mut questions = self.pending.iter().filter(|(_, request)| is_question(request));
        let question = questions.next().map(|(number, _)| *number);
        if !directory.backends.settings.is_transparent
            || questions.next().is_some()
            || out.requests.of_clients(link).filter(is_its).count() != 1
        {
            return false;
        }
        let found = question.and_then(|question| Some((question, self.pending.remove(&question)?)));
        let Some((question, ServerRequest { id, method, about, .. })) = found else { return false };
        match &*method {
            ELICITATION => {
                out.send_to_link(link, responses::result(&id, br#"{"action":"cancel"}"#));
            }
            _ => refuse(link, &id, -32603, "the client has cancelled the call", out),
        }
        if directory.sessions.contains_key(&client) {
            let why = "the call that it belongs to was cancelled";
            out.send_to_client(
                client,
                responses::cancelled_because(&format!("s{question}"), why),
                about,
            );
        }
        true
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

fn method_of(line: &[u8]) -> Option<String> {
    raw::get(line, &["method"]).and_then(raw::text)
}

pub(super) fn refuse(link: LinkId, id: &Id, code: i32, why: &str, out: &mut Outgoing) {
    out.send_to_link(link, responses::error(id, code, why));
}

/// The client that a request of a server's goes to.
fn addressee(
    directory: &Directory,
    held_calls: &HeldCalls,
    link: LinkId,
    method: &str,
    about: Option<&Id>,
) -> Addressee {
    let session = |client: &ClientId| directory.sessions.get(client);
    let can = |client: &ClientId| session(client).is_some_and(|its| its.can_answer(method));
    if directory.backends.settings.is_transparent
        && let Some(chosen) = addressee_of_one_server(link, method, directory, can)
    {
        return chosen;
    }
    if let Some((number, request)) = directory.out.requests.call_about(link, about) {
        let (client, id) = (request.client, request.id.clone());
        if about.is_none() && !is_of_one_access(directory, held_calls, link) {
            return Addressee::None(
                "calls of clients with different tokens run, and it does not say which it belongs \
                 to; `share = \"per-client\"` gives each client a server of its own"
                    .to_owned(),
            );
        }
        if request.inputs.contains(&method) {
            return Addressee::ByResult(number);
        }
        return match !request.is_held && can(&client) {
            true => Addressee::Client(client, Some(id)),
            false => Addressee::None("the client of this call does not support it".to_owned()),
        };
    }
    let users = directory.users_of(link);
    // Only the next call of such a client can ask it.
    let is_asked_later =
        |user: &ClientId| session(user).is_some_and(|user| user.inputs().contains(&method));
    if method == ROOTS && !users.is_empty() && users.iter().all(is_asked_later) {
        return Addressee::Later;
    }
    let is_ready = |user: &ClientId| session(user).is_some_and(|user| user.is_ready);
    let (ready, others): (Vec<_>, Vec<_>) = users.into_iter().partition(is_ready);
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

/// The same where clients of one user share a server, and the transport does not say whose a request is; none where that
/// is beyond doubt, by the call that runs or by the only client.
fn addressee_of_one_server(
    link: LinkId,
    method: &str,
    directory: &Directory,
    can: impl Fn(&ClientId) -> bool,
) -> Option<Addressee> {
    let users = directory.users_of(link);
    let is_ready =
        |user: &&ClientId| directory.sessions.get(user).is_some_and(|user| user.is_ready);
    // They all have the same roots.
    if method == ROOTS {
        let any = users.iter().filter(is_ready).find(|user| can(user));
        return any.map(|client| Addressee::Client(*client, None));
    }
    let callers = directory.out.requests.possible_callers(link, directory.out.now);
    let runs = || !directory.out.requests.callers(link).is_empty();
    match (callers.len(), users.len()) {
        (1, _) if !runs() => {
            Some(Addressee::None("the call that it belongs to was cancelled".to_owned()))
        }
        // The calls of the others end, while that of the client it belongs to waits.
        (2.., _) => Some(Addressee::Later),
        (0, 2..) => Some(Addressee::None(
            "no call runs that it could belong to, and several clients share this server"
                .to_owned(),
        )),
        _ => None,
    }
}

/// Whether all clients whose calls run over a link have the same access.
fn is_of_one_access(directory: &Directory, held_calls: &HeldCalls, link: LinkId) -> bool {
    let callers = directory.out.requests.callers(link);
    let all = callers.iter().filter_map(|id| Some(&directory.sessions.get(id)?.access));
    let mut all = all.chain(held_calls.accesses(link));
    let first = all.next();
    all.all(|access| Some(access) == first)
}

/// Whether a server that has a session gets this client's roots.
fn gives_roots(
    directory: &Directory,
    held_calls: &HeldCalls,
    client: ClientId,
    id: LinkId,
) -> bool {
    let link = directory.backends.links.get(id);
    let has_session = link.is_some_and(|link| link.is_open() && link.era == Era::Legacy);
    let to = || addressee(directory, held_calls, id, ROOTS, None);
    has_session && matches!(to(), Addressee::Client(whom, _) if whom == client)
}
