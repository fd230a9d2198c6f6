//! Owns the calls of clients of the newer protocol whose older servers have asked something: the client was asked by the
//! result of its call (`input_required`), the server still has the call, and the client's next request with the state in that
//! result goes on with it. Driven by `server_requests.rs` and [`Hub`](super::Hub). Never asks another client than that of the call.
//!
//! A state opens nothing but its own call, for the client that it was given to, and once.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use super::hub_state::Directory;
use super::outgoing::ClientRequest;
use super::route_request::Request;
use super::server_messages::modern_answer;
use super::server_requests::{ROOTS, refuse};
use super::sessions::Principal;
use crate::gateway::access_patterns::Access;
use crate::gateway::{ClientId, LinkId};
use crate::limits::{
    HELD_ANSWER_BYTES_MAX, HELD_CALL_WAIT, HELD_CALLS_MAX, HELD_QUESTION_BYTES_MAX,
    HELD_QUESTIONS_MAX,
};
use crate::mcp::envelope::{Id, param, splice, with_id};
use crate::mcp::{Era, ToolResult, json as raw, responses};
use crate::time::Time;

/// The methods whose results can ask.
const ASKING_METHODS: [&str; 3] = ["tools/call", "prompts/get", "resources/read"];

/// What stands before each state.
const STATE_PREFIX: &str = "afresh-call:";

/// The random keys by which the states of held calls are made, so that none can be guessed.
#[derive(Clone, Debug)]
pub struct StateKey(pub [RandomState; 2]);

impl StateKey {
    fn state(&self, number: u64) -> String {
        let [first, second] = &self.0;
        let (first, second) = (first.hash_one(number), second.hash_one(number));
        format!("{STATE_PREFIX}{number}:{first:016x}{second:016x}")
    }
}

/// All of them, by their states.
#[derive(Debug, Default)]
pub(super) struct HeldCalls(BTreeMap<String, HeldCall>);

/// One call.
#[derive(Debug)]
struct HeldCall {
    principal: Principal,
    access: Access,
    method: String,
    /// The tool, prompt or resource.
    target: String,
    link: LinkId,
    /// The number of the request that its server has; none where it was not sent yet.
    number: Option<u64>,
    questions: Vec<Question>,
    /// What the server has answered meanwhile; its id is ours.
    response: Option<Vec<u8>>,
    until: Time,
}

/// What became of a request that may go on with a held call.
pub(super) enum Resumption {
    /// It has the state of none.
    None,
    /// It is answered, or will be by the server.
    Done,
    /// It is to be sent, now that the server behind this link is told of the client's roots.
    Unsent(LinkId),
}

/// A question that the client has no answer to yet.
#[derive(Debug)]
struct Question {
    /// Its name among the questions of the result.
    key: String,
    method: String,
    /// Method and parameters, raw.
    json: Vec<u8>,
    /// The server's id of it; none where it is the gateway's own.
    id: Option<Id>,
}

impl HeldCalls {
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.0.values().map(|call| call.until).min()
    }

    /// The rights of the clients whose calls are held by the server behind a link.
    pub(super) fn accesses(&self, link: LinkId) -> impl Iterator<Item = &Access> {
        let over = move |call: &&HeldCall| call.link == link && call.number.is_some();
        self.0.values().filter(over).map(|call| &call.access)
    }

    fn of_number(&mut self, number: u64) -> Option<&mut HeldCall> {
        self.0.values_mut().find(|call| call.number == Some(number))
    }

    /// Whose call the server has under this number, where it is held.
    pub(super) fn principal_of(&self, number: u64) -> Option<&Principal> {
        let call = self.0.values().find(|call| call.number == Some(number));
        call.map(|call| &call.principal)
    }

    fn has_room(&self, token: &str) -> bool {
        self.0.values().filter(|call| call.access.name == token).count() < HELD_CALLS_MAX
    }

    /// A server has cancelled a question.
    pub(super) fn cancel(&mut self, link: LinkId, id: &Id) {
        for call in self.0.values_mut().filter(|call| call.link == link) {
            call.questions.retain(|question| question.id.as_ref() != Some(id));
        }
    }

    /// A held call has failed: the answer is kept as one of its server's would be.
    pub(super) fn fail(&mut self, number: u64, reason: &str, why: &str) {
        if let Some(call) = self.of_number(number) {
            let line = failure(&call.method, reason, why);
            self.finish(number, &line);
        }
    }

    /// A held call has its answer: it is kept for the client's next request.
    pub(super) fn finish(&mut self, number: u64, line: &[u8]) {
        let Some(call) = self.of_number(number) else { return };
        call.questions.clear();
        call.number = None;
        call.response = Some(match line.len() <= HELD_ANSWER_BYTES_MAX {
            true => line.to_vec(),
            false => {
                let why = "the server has answered while its client was being asked, with more than can be kept";
                failure(&call.method, "message_too_long", why)
            }
        });
    }

    /// Holds a call, or adds a question to one that is held. Says why not.
    pub(super) fn hold(
        &mut self,
        directory: &mut Directory,
        number: u64,
        (id, method, line): (Id, &str, &[u8]),
    ) -> Result<(), &'static str> {
        let params = raw::get(line, &["params"]).unwrap_or(b"{}");
        if params.len() > HELD_QUESTION_BYTES_MAX {
            return Err("the question is too long to be asked; ask for less");
        }
        let json =
            [format!(r#"{{"method":"{method}","params":"#).as_bytes(), params, b"}"].concat();
        let key = format!("q{}", directory.out.requests.number());
        let question = Question { key, method: method.to_owned(), json, id: Some(id) };
        if let Some(held) = self.of_number(number) {
            if held.questions.len() >= HELD_QUESTIONS_MAX {
                return Err("too many questions of this call have no answer yet");
            }
            held.questions.push(question);
            return Ok(());
        }
        let Some((link, request)) = directory.out.requests.client_request(number) else {
            return Err("the call is over");
        };
        let (client, client_id) = (request.client, request.id.clone());
        let (call_method, target) = (request.method.clone(), request.target.clone());
        let Some(principal) = directory.principal_of(client) else {
            return Err("the client is gone");
        };
        let Some(session) = directory.sessions.get_mut(&client) else {
            return Err("the client is gone");
        };
        if !self.has_room(&session.access.name) {
            return Err("too many calls wait for answers of this client; try again later");
        }
        session.requests.remove(&client_id);
        directory.out.requests.hold(number);
        let call = HeldCall {
            principal,
            access: session.access.clone(),
            method: call_method,
            target,
            link,
            number: Some(number),
            questions: vec![question],
            response: None,
            until: directory.out.now + HELD_CALL_WAIT,
        };
        self.ask_by_result(directory, client, &client_id, call);
        Ok(())
    }

    /// Answers a client's request with the questions of its call, and keeps the call under a new state.
    fn ask_by_result(
        &mut self,
        directory: &mut Directory,
        client: ClientId,
        id: &Id,
        call: HeldCall,
    ) {
        let state = directory.backends.settings.state_key.state(directory.out.requests.number());
        directory.out.answer(client, id, input_required(id, &state, &call.questions));
        self.0.insert(state, call);
    }

    /// Whether a request for an older server has a state that no call is held under.
    pub(super) fn has_unknown_state(
        directory: &Directory,
        link: LinkId,
        request: &Request<'_>,
    ) -> bool {
        can_ask(request.method)
            && directory.is_bridged(request.client, link)
            && param(request.line, &["requestState"]).is_some()
    }

    /// Whether a client has to be asked for its roots before its call goes over a link: the server wants some, and can ask
    /// by no request.
    pub(super) fn needs_roots(directory: &Directory, link: LinkId, request: &Request<'_>) -> bool {
        let Some(its) = directory.backends.links.get(link).filter(|its| its.roots.are_wanted)
        else {
            return false;
        };
        let is_asked = can_ask(request.method) && directory.is_bridged(request.client, link);
        if !is_asked
            || !directory
                .sessions
                .get(&request.client)
                .is_some_and(|its| its.inputs().contains(&ROOTS))
        {
            return false;
        }
        let principal = directory.principal_of(request.client);
        match &its.roots.owner {
            None => true,
            owner if *owner == principal => false,
            // Who comes beside others changes nothing for them.
            Some(owner) => its.owner.is_some() || owner.has_left(directory, its.roots.used_at),
        }
    }

    /// Asks a client for its roots by the result of a call that was not sent yet. False where there is no room.
    pub(super) fn ask_roots(
        &mut self,
        directory: &mut Directory,
        link: LinkId,
        request: &Request<'_>,
    ) -> bool {
        let Some(session) = directory.sessions.get(&request.client) else { return false };
        let Some(principal) = directory.principal_of(request.client) else { return false };
        if !self.has_room(&session.access.name) {
            return false;
        }
        let json = format!(r#"{{"method":"{ROOTS}"}}"#).into_bytes();
        let (key, method) = ("roots".to_owned(), ROOTS.to_owned());
        let call = HeldCall {
            principal,
            access: session.access.clone(),
            method: request.method.to_owned(),
            target: target_of(request),
            link,
            number: None,
            questions: vec![Question { key, method, json, id: None }],
            response: None,
            until: directory.out.now + HELD_CALL_WAIT,
        };
        self.ask_by_result(directory, request.client, request.id, call);
        true
    }

    /// The answer of a client that cannot be asked now to a question of a server for roots.
    pub(super) fn kept_roots<'a>(
        &self,
        directory: &'a Directory,
        link: LinkId,
        about: Option<&Id>,
    ) -> Option<&'a [u8]> {
        let roots = &directory.backends.links.get(link)?.roots;
        let kept = roots.kept.as_deref()?;
        if let Some((number, request)) = directory.out.requests.call_about(link, about)
            && !request.inputs.is_empty()
        {
            // Another client's call is about that client's roots.
            let its = self.principal_of(number).cloned();
            let its = its.or_else(|| directory.principal_of(request.client));
            return Some(kept).filter(|_| its == roots.owner);
        }
        Some(kept)
    }

    /// Gives up the calls whose clients did not come back in time.
    pub(super) fn expire(&mut self, directory: &mut Directory) {
        let now = directory.out.now;
        let late = self.0.extract_if(.., |_, call| call.until <= now);
        for (_, call) in late.collect::<Vec<_>>() {
            Self::give_up(directory, call, "the client has not answered in time");
        }
    }

    /// Gives up the calls of a client.
    pub(super) fn client_left(&mut self, directory: &mut Directory, of: &Principal, why: &str) {
        let its = self.0.extract_if(.., |_, call| call.principal == *of);
        for (_, call) in its.collect::<Vec<_>>() {
            Self::give_up(directory, call, why);
        }
    }

    fn give_up(directory: &mut Directory, call: HeldCall, why: &str) {
        if directory.backends.links.get(call.link).is_none() {
            return;
        }
        for id in call.questions.iter().filter_map(|question| question.id.as_ref()) {
            refuse(call.link, id, -32603, why, &mut directory.out);
        }
        if let Some(number) = call.number {
            directory.withdraw(number, Some(why));
        }
    }

    /// Goes on with a held call, where a request has its state.
    pub(super) fn resume(
        &mut self,
        directory: &mut Directory,
        request: &Request<'_>,
    ) -> Resumption {
        let Request { client, id, line, .. } = *request;
        let is_modern = directory.era_of(client) == Era::Modern;
        if !can_ask(request.method) || !is_modern || self.0.is_empty() {
            return Resumption::None;
        }
        let Some(state) = param(line, &["requestState"]).and_then(raw::text) else {
            return Resumption::None;
        };
        let Some(call) = self.0.get(&state) else { return Resumption::None };
        let session = directory.sessions.get(&client);
        let is_its = directory.principal_of(client).as_ref() == Some(&call.principal)
            && session.is_some_and(|session| session.access == call.access)
            && call.method == request.method
            && call.target == target_of(request);
        if !is_its {
            return Resumption::None;
        }
        let Some(mut call) = self.0.remove(&state) else { return Resumption::None };
        call.until = directory.out.now + HELD_CALL_WAIT;
        let is_unsent = call.questions.iter().any(|question| question.id.is_none());
        Self::take_answers(directory, &mut call, line);
        if is_unsent {
            return Resumption::Unsent(call.link);
        }
        if let Some(response) = &call.response {
            if let Some(answer) = with_id(response, id.raw()) {
                directory.out.answer(client, id, modern_answer(answer, &call.method));
            }
        } else if !call.questions.is_empty() {
            self.ask_by_result(directory, client, id, call);
        } else if let Some(number) = call.number {
            Self::take_over(directory, number, call, request);
        }
        Resumption::Done
    }

    /// Passes a client's answers on to the server; what it has not answered is left.
    fn take_answers(directory: &mut Directory, call: &mut HeldCall, line: &[u8]) {
        for question in std::mem::take(&mut call.questions) {
            let answer = param(line, &["inputResponses", &question.key]);
            let answer = answer.filter(|answer| answer.first() == Some(&b'{'));
            if question.method == ROOTS
                && let Some(link) = directory.backends.links.get_mut(call.link)
            {
                let kept = answer.map(<[u8]>::to_vec);
                (link.roots.owner, link.roots.kept) = (Some(call.principal.clone()), kept);
                link.roots.used_at = directory.out.now;
            }
            match (answer, &question.id) {
                (Some(answer), Some(id)) => {
                    directory.out.send_to_link(call.link, responses::result(id, answer));
                }
                (None, Some(_)) => call.questions.push(question),
                (_, None) => {}
            }
        }
    }

    /// The client's request is the one that the server's response is for now.
    fn take_over(directory: &mut Directory, number: u64, call: HeldCall, request: &Request<'_>) {
        let Request { client, id, line, params, .. } = request;
        let slot = directory.backends.links.get(call.link).map(|link| link.slot);
        let timeout = slot.and_then(|slot| directory.backends.slots[slot].backend.call_timeout);
        let until = timeout.map(|timeout| directory.out.now + timeout);
        let Some(session) = directory.sessions.get_mut(client) else { return };
        let by = ClientRequest {
            client: *client,
            id: (*id).clone(),
            method: call.method,
            target: call.target,
            token: params.progress_token.clone().map(|part| line[part].to_vec()),
            uri: None,
            log_level: None,
            inputs: session.inputs(),
            may_make_task: false,
            is_held: false,
        };
        if directory.out.requests.resume(number, by, until) {
            session.requests.insert((*id).clone(), number);
        }
    }
}

/// A failure as the answer to a call; its id is put in later.
fn failure(method: &str, reason: &str, why: &str) -> Vec<u8> {
    let none = Id::new(b"null");
    match method {
        "tools/call" => responses::said(&none, Era::Modern, &ToolResult::error(why)),
        _ => responses::failure(&none, -32603, reason, true, why),
    }
}

/// The tool, prompt or resource that a request names.
pub(super) fn target_of(request: &Request<'_>) -> String {
    let uri = || param(request.line, &["uri"]).and_then(raw::text);
    request.name().or_else(uri).unwrap_or_default()
}

fn input_required(id: &Id, state: &str, questions: &[Question]) -> Vec<u8> {
    let mut asked = Vec::new();
    for question in questions {
        asked.extend_from_slice(if asked.is_empty() { b"" } else { b"," });
        asked.extend_from_slice(format!(r#""{}":"#, question.key).as_bytes());
        asked.extend_from_slice(&question.json);
    }
    let head = br#","result":{"resultType":"input_required","inputRequests":{"#;
    let tail = format!(r#"}},"requestState":"{state}"}}}}"#);
    [br#"{"jsonrpc":"2.0","id":"#, id.raw(), head, &asked, tail.as_bytes()].concat()
}

/// A request without what its client has answered: its server knows nothing of that.
pub(super) fn without_answers(line: &[u8]) -> Vec<u8> {
    let Some(params) = raw::get(line, &["params"]) else { return line.to_vec() };
    let members = raw::members(params).unwrap_or_default().into_iter();
    let is_other = |key: &[u8]| ![&br#""inputResponses""#[..], br#""requestState""#].contains(&key);
    let others = members.filter(|member| is_other(&params[member.key.clone()]));
    let parts: Vec<&[u8]> =
        others.map(|member| &params[member.key.start..member.value.end]).collect();
    let params_of = [b"{", parts.join(&b',').as_slice(), b"}"].concat();
    splice(line, raw::place(line, params), &params_of)
}

/// The methods of a client's request whose questions its result can ask.
pub(super) fn can_ask(method: &str) -> bool {
    ASKING_METHODS.contains(&method)
}
