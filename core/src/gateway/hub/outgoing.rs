//! Owns what leaves the hub: the effects of one input, and the requests to servers that have no response yet, with their
//! numbers and their deadlines. Filled by the hub's parts, drained by `Hub::handle`. Never decides what is sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::held_calls::can_ask;
use crate::gateway::spans::{Span, SpanOutcome};
use crate::gateway::{ClientId, Effect, LinkId};
use crate::limits::{TURN_ANSWERS_BYTES_MAX, WITHDRAWN_CALL_WAIT, WITHDRAWN_CALLS_MAX};
use crate::mcp::envelope::Id;
use crate::mcp::{Kind, responses};
use crate::time::Time;

/// What leaves the hub.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// The time of this input.
    pub(super) now: Time,
    pub(super) effects: Vec<Effect>,
    /// How many bytes for clients are among these.
    told_bytes: usize,
    pub(super) requests: PendingRequests,
    /// Lines of clients that are to be dispatched again, now that their server has a session.
    pub(super) resumed: VecDeque<(ClientId, Vec<u8>)>,
    /// Links that were closed by this input, and why.
    pub(super) closed: Vec<(LinkId, String)>,
    /// Held calls whose servers were lost by this input, by their numbers, and why.
    pub(super) lost_calls: Vec<(u64, String)>,
    /// A server has come up, or has failed: requests that are held may go on.
    pub(super) is_settled: bool,
}

impl Outgoing {
    pub(super) fn send_to_link(&mut self, link: LinkId, line: Vec<u8>) {
        self.effects.push(Effect::ToLink { link, line });
    }

    /// Begins the effects of the next input.
    pub(super) fn begin(&mut self, now: Time) {
        (self.now, self.told_bytes) = (now, 0);
    }

    /// Whether clients are told so much by this input that other answers have to wait.
    pub(super) fn is_full(&self) -> bool {
        self.told_bytes >= TURN_ANSWERS_BYTES_MAX
    }

    /// Writes to a client, beside the response to one of its requests where that is given.
    pub(super) fn send_to_client(&mut self, client: ClientId, line: Vec<u8>, about: Option<Id>) {
        self.told_bytes += line.len();
        self.effects.push(Effect::ToClient { client, line, about });
    }

    /// Writes the response to a client's request.
    pub(super) fn answer(&mut self, client: ClientId, id: &Id, line: Vec<u8>) {
        self.send_to_client(client, line, Some(id.clone()));
    }

    pub(super) fn answer_error(&mut self, client: ClientId, id: &Id, code: i32, why: &str) {
        self.answer(client, id, responses::error(id, code, why));
    }

    pub(super) fn log(&mut self, text: String) {
        self.effects.push(Effect::Log(text));
    }

    /// Closes a link.
    pub(super) fn close(&mut self, link: LinkId, why: &str) {
        self.closed.push((link, why.to_owned()));
        self.effects.push(Effect::Close { link });
    }

    /// Sends a request of the hub's own, which is to be answered within this time.
    pub(super) fn request(
        &mut self,
        link: LinkId,
        method: &str,
        params: &[u8],
        purpose: Purpose,
        within: Option<Duration>,
    ) -> u64 {
        let number = self.requests.number();
        let line = responses::request(&format!("g{number}"), method, Some(params));
        let until = within.map(|within| self.now + within);
        self.requests.insert(number, link, purpose, until, None);
        self.send_to_link(link, line);
        number
    }

    /// Tells a server that the response to a request does not matter any more.
    pub(super) fn cancel(&mut self, link: LinkId, number: u64, reason: &str) {
        self.send_to_link(link, responses::cancelled_because(&format!("g{number}"), reason));
    }

    pub(super) fn end_span(&mut self, span: Option<Box<Span>>, outcome: SpanOutcome) {
        if let Some(mut span) = span {
            (span.ended, span.outcome) = (self.now, outcome);
            self.effects.push(Effect::Span(span));
        }
    }
}

/// The requests in flight, by the numbers in their ids.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    requests: BTreeMap<u64, PendingRequest>,
    deadlines: BTreeSet<(Time, u64)>,
    /// Calls that were cancelled: their servers may not have ended them.
    withdrawn: BTreeMap<u64, WithdrawnCall>,
    pub(super) last_number: u64,
}

/// A call that was cancelled.
#[derive(Debug)]
struct WithdrawnCall {
    link: LinkId,
    client: ClientId,
    /// Then it counts as ended.
    until: Time,
}

/// A request of the hub's to a server.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) link: LinkId,
    pub(super) purpose: Purpose,
    /// Only of a client's request, and only where calls are traced.
    pub(super) span: Option<Box<Span>>,
    /// As it stands in `deadlines`.
    until: Option<Time>,
}

/// What a request is for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// It is a client's.
    Client(ClientRequest),
    /// The first request of a session.
    OpenSession,
    ListPage(Kind),
    /// The stream of changes of a server of the newer protocol.
    Listen,
    /// Its response does not matter.
    Unawaited,
}

/// A client's request on its way.
#[derive(Clone, Debug)]
pub(super) struct ClientRequest {
    pub(super) client: ClientId,
    pub(super) id: Id,
    pub(super) method: String,
    /// The tool, prompt or resource that it names, where its client can be asked by its result or shares the server.
    pub(super) target: String,
    /// The client's own progress token, raw.
    pub(super) token: Option<Vec<u8>>,
    /// The resource that it is about.
    pub(super) uri: Option<String>,
    /// The lowest log level that it asks for, where the server does not know that itself.
    pub(super) log_level: Option<usize>,
    /// The questions of its server that its client can be asked by its result.
    pub(super) inputs: Vec<&'static str>,
    /// Its result may be a task.
    pub(super) may_make_task: bool,
    /// The client has been asked so: its id was answered, and the server still has the request.
    pub(super) is_held: bool,
}

/// The response to a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response<'a> {
    pub(super) line: &'a [u8],
    pub(super) is_error: bool,
}

impl PendingRequests {
    /// A number that no request had before.
    pub(super) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// The number of the newest request.
    pub(super) const fn last_number(&self) -> u64 {
        self.last_number
    }

    pub(super) fn insert(
        &mut self,
        number: u64,
        link: LinkId,
        purpose: Purpose,
        until: Option<Time>,
        span: Option<Box<Span>>,
    ) {
        self.deadlines.extend(until.map(|until| (until, number)));
        self.requests.insert(number, PendingRequest { link, purpose, span, until });
    }

    /// Takes a request out, together with its deadline.
    pub(super) fn take(&mut self, number: u64) -> Option<PendingRequest> {
        let request = self.requests.remove(&number)?;
        if let Some(until) = request.until {
            self.deadlines.remove(&(until, number));
        }
        Some(request)
    }

    /// Takes the request that a response over this link is for. None where it came twice, over another link, or
    /// after the request was cancelled.
    pub(super) fn take_answered(&mut self, link: LinkId, id: &Id) -> Option<(u64, PendingRequest)> {
        let number = number_in(id.raw(), b'g')?;
        self.withdrawn.remove(&number);
        self.requests.get(&number).filter(|request| request.link == link)?;
        Some((number, self.take(number)?))
    }

    /// Takes a request whose deadline has passed.
    pub(super) fn take_expired(&mut self, now: Time) -> Option<(u64, PendingRequest)> {
        let (_, number) = self.deadlines.first().copied().filter(|(until, _)| *until <= now)?;
        Some((number, self.take(number)?))
    }

    /// Takes all requests over a link.
    pub(super) fn take_all_over(&mut self, link: LinkId) -> Vec<(u64, PendingRequest)> {
        let over = self.requests.iter().filter(|(_, request)| request.link == link);
        let numbers: Vec<u64> = over.map(|(number, _)| *number).collect();
        self.withdrawn.retain(|_, call| call.link != link);
        numbers.into_iter().filter_map(|number| Some((number, self.take(number)?))).collect()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// How many are clients'.
    pub(super) fn client_count(&self) -> usize {
        let is_clients = |request: &&PendingRequest| matches!(&request.purpose, Purpose::Client(its) if !its.is_held);
        self.requests.values().filter(is_clients).count()
    }

    /// The client's request of this number.
    pub(super) fn client_request(&self, number: u64) -> Option<(LinkId, &ClientRequest)> {
        let request = self.requests.get(&number)?;
        match &request.purpose {
            Purpose::Client(its) => Some((request.link, its)),
            _ => None,
        }
    }

    /// Whether a response over this link is for a client's request.
    pub(super) fn is_of_client(&self, link: LinkId, id: &Id) -> bool {
        let number = number_in(id.raw(), b'g');
        let request = number.and_then(|number| self.client_request(number));
        request.is_some_and(|(over, _)| over == link)
    }

    /// The client's request that a message of a server belongs to: the one that its transport names, or the newest
    /// over the link.
    pub(super) fn about(&self, link: LinkId, about: Option<&Id>) -> Option<(ClientId, Id)> {
        let (_, request) = self.call_about(link, about).filter(|(_, its)| !its.is_held)?;
        Some((request.client, request.id.clone()))
    }

    /// The same with its number, also where it is held.
    pub(super) fn call_about(
        &self,
        link: LinkId,
        about: Option<&Id>,
    ) -> Option<(u64, &ClientRequest)> {
        match about.and_then(|about| number_in(about.raw(), b'g')) {
            Some(number) => {
                let found = self.client_request(number).filter(|(over, _)| *over == link);
                found.map(|(_, its)| (number, its))
            }
            None => self.of_clients(link).next_back(),
        }
    }

    /// Notes that the client of a request has been asked by its result: no answer is due until it asks again.
    pub(super) fn hold(&mut self, number: u64) -> Option<ClientRequest> {
        let request = self.requests.get_mut(&number)?;
        if let Some(until) = request.until.take() {
            self.deadlines.remove(&(until, number));
        }
        let Purpose::Client(its) = &mut request.purpose else { return None };
        its.is_held = true;
        Some(its.clone())
    }

    /// The client has asked again: the response to a request that was held is for this one now.
    pub(super) fn resume(&mut self, number: u64, by: ClientRequest, until: Option<Time>) -> bool {
        let Some(request) = self.requests.get_mut(&number) else { return false };
        (request.purpose, request.until) = (Purpose::Client(by), until);
        self.deadlines.extend(until.map(|until| (until, number)));
        true
    }

    /// The client's request that a server reports progress of, by our token.
    pub(super) fn by_token(&self, link: LinkId, token: &[u8]) -> Option<&ClientRequest> {
        let (over, request) = self.client_request(number_in(token, b'g')?)?;
        (over == link && !request.is_held).then_some(request)
    }

    /// The clients that have requests over a link.
    pub(super) fn callers(&self, link: LinkId) -> BTreeSet<ClientId> {
        self.of_clients(link).map(|(_, its)| its.client).collect()
    }

    /// Notes that a call was cancelled: it counts as running for a while.
    pub(super) fn note_withdrawn(
        &mut self,
        number: u64,
        link: LinkId,
        client: ClientId,
        now: Time,
    ) {
        self.withdrawn.retain(|_, call| call.until > now);
        if self.withdrawn.len() >= WITHDRAWN_CALLS_MAX {
            self.withdrawn.pop_first();
        }
        let until = now + WITHDRAWN_CALL_WAIT;
        self.withdrawn.insert(number, WithdrawnCall { link, client, until });
    }

    /// The clients whose calls run over a link, or may: they were cancelled a short while ago.
    pub(super) fn possible_callers(&self, link: LinkId, now: Time) -> BTreeSet<ClientId> {
        let withdrawn =
            self.withdrawn.values().filter(|call| call.link == link && call.until > now);
        self.callers(link).into_iter().chain(withdrawn.map(|call| call.client)).collect()
    }

    /// Whether calls of other clients over a link were cancelled a short while ago.
    pub(super) fn has_withdrawn_of_others(
        &self,
        link: LinkId,
        client: ClientId,
        now: Time,
    ) -> bool {
        let is_others =
            |call: &WithdrawnCall| call.link == link && call.client != client && call.until > now;
        self.withdrawn.values().any(is_others)
    }

    /// When the first of the calls that were cancelled counts as ended.
    pub(super) fn withdrawn_until(&self, now: Time) -> Option<Time> {
        self.withdrawn.values().map(|call| call.until).filter(|until| *until > now).min()
    }

    /// The requests of clients over a link.
    pub(super) fn of_clients(
        &self,
        link: LinkId,
    ) -> impl DoubleEndedIterator<Item = (u64, &ClientRequest)> {
        self.requests.iter().filter_map(move |(number, request)| match &request.purpose {
            Purpose::Client(its) if request.link == link => Some((*number, its)),
            _ => None,
        })
    }

    /// Whether a call of a client that can ask runs over a link, and was sent by this number.
    pub(super) fn runs_call_until(&self, link: LinkId, client: ClientId, number: u64) -> bool {
        let its = self.of_clients(link).take_while(|(sent, _)| *sent <= number);
        its.map(|(_, call)| call).any(|call| call.client == client && can_ask(&call.method))
    }

    /// Takes the spans of all requests.
    pub(super) fn take_spans(&mut self) -> impl Iterator<Item = Box<Span>> {
        self.requests.values_mut().filter_map(|request| request.span.take())
    }
}

/// The number in an id of ours, such as `"g12"`.
pub(super) fn number_in(id: &[u8], letter: u8) -> Option<u64> {
    let inside = id.strip_prefix(b"\"")?.strip_suffix(b"\"")?.strip_prefix(&[letter])?;
    std::str::from_utf8(inside).ok()?.parse().ok()
}

pub(super) fn own_id(letter: char, number: u64) -> Vec<u8> {
    format!("\"{letter}{number}\"").into_bytes()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn of_client(client: u64) -> Purpose {
        Purpose::Client(ClientRequest {
            client: ClientId(client),
            id: Id::new(b"7"),
            method: "tools/call".to_owned(),
            target: String::new(),
            token: None,
            uri: None,
            log_level: None,
            inputs: Vec::new(),
            may_make_task: false,
            is_held: false,
        })
    }

    #[test]
    fn a_response_counts_once_and_over_its_own_link() {
        let mut requests = PendingRequests::default();
        let number = requests.number();
        requests.insert(number, LinkId(1), of_client(1), Some(at(1)), None);
        let id = Id::new(br#""g1""#);
        assert!(requests.take_answered(LinkId(2), &id).is_none());
        assert!(requests.take_answered(LinkId(1), &id).is_some());
        assert!(requests.take_answered(LinkId(1), &id).is_none());
        assert_eq!(requests.next_deadline(), None);
    }

    #[test]
    fn requests_expire_in_the_order_of_their_deadlines() {
        let mut requests = PendingRequests::default();
        for (number, until) in [(1, Some(at(3))), (2, Some(at(2))), (3, None)] {
            requests.insert(number, LinkId(1), Purpose::Unawaited, until, None);
        }
        let mut expired = |now| requests.take_expired(now).map(|(number, _)| number);
        assert_eq!([expired(at(1)), expired(at(3)), expired(at(3))], [None, Some(2), Some(1)]);
        assert_eq!(expired(at(9)), None);
    }

    #[test]
    fn a_message_belongs_to_the_newest_request_over_its_link() {
        let mut requests = PendingRequests::default();
        for (number, link, client) in [(1, 1, 1), (2, 1, 2), (3, 2, 3)] {
            requests.insert(number, LinkId(link), of_client(client), None, None);
        }
        let about = |id: Option<&[u8]>| {
            requests.about(LinkId(1), id.map(Id::new).as_ref()).map(|(client, _)| client.0)
        };
        assert_eq!(about(None), Some(2));
        assert_eq!(about(Some(br#""g1""#)), Some(1));
        assert_eq!(about(Some(br#""g3""#)), None);
        assert_eq!(requests.callers(LinkId(1)), BTreeSet::from([ClientId(1), ClientId(2)]));
    }
}
