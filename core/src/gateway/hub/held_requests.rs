//! Owns the requests of clients that wait before they are dispatched. Driven by the hub, which dispatches them. Never sends
//! anything.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::asking_calls::AskingCalls;
use super::held_calls::{can_ask, target_of};
use super::hub_state::Directory;
use super::link::has_id;
use super::outgoing::Outgoing;
use super::route_request::Request;
use crate::gateway::{ClientId, LinkId};
use crate::limits::{CLIENT_FLIGHTS_MAX, SHARED_TURN_WAIT};
use crate::mcp::envelope::Id;
use crate::time::Time;

/// All of them, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct HeldRequests {
    queue: VecDeque<HeldRequest>,
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct HeldRequest {
    pub(super) client: ClientId,
    pub(super) line: Vec<u8>,
    pub(super) wait: Wait,
    pub(super) until: Time,
}

/// What a request waits for.
#[derive(Debug)]
pub(super) enum Wait {
    /// For servers to start, for each of them so long.
    Start(Duration),
    /// For the server behind this link to take the client's roots.
    Roots(LinkId),
    /// For calls of other clients of a shared server to end.
    Turn(Turn),
}

/// A call of a shared server that waits for calls of other clients.
#[derive(Debug)]
pub(super) struct Turn {
    link: LinkId,
    method: String,
    /// The tool, prompt or resource that it names.
    target: String,
    /// The number of the last request that was sent before it came.
    sent_before: u64,
}

/// What becomes of a held request.
pub(super) enum HeldStep {
    Dispatch(HeldRequest),
    /// It has waited too long for calls of other clients.
    Refuse(HeldRequest),
    /// It is held on.
    Keep,
}

impl HeldRequests {
    pub(super) fn hold(&mut self, client: ClientId, line: Vec<u8>, wait: Wait, until: Time) {
        self.queue.push_back(HeldRequest { client, line, wait, until });
    }

    /// Holds a call until calls of other clients have ended.
    pub(super) fn hold_for_turn(&mut self, link: LinkId, request: &Request<'_>, out: &Outgoing) {
        let (method, target) = (request.method.to_owned(), target_of(request));
        let sent_before = out.requests.last_number();
        let wait = Wait::Turn(Turn { link, method, target, sent_before });
        self.hold(request.client, request.line.to_vec(), wait, out.now + SHARED_TURN_WAIT);
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// When the first of them is due: now where calls of other clients no longer hold one back.
    pub(super) fn next_wakeup(&self, asking: &AskingCalls, out: &Outgoing) -> Option<Time> {
        let turn = self.has_free_turn(asking, out).then_some(out.now);
        let is_turn = |held: &HeldRequest| matches!(held.wait, Wait::Turn(_));
        turn.or_else(|| {
            let withdrawn =
                self.queue.iter().any(is_turn).then(|| out.requests.withdrawn_until(out.now));
            self.queue.iter().map(|held| held.until).chain(withdrawn.flatten()).min()
        })
    }

    /// Whether a client has a request with this id among them.
    pub(super) fn has(&self, client: ClientId, id: &Id) -> bool {
        self.queue.iter().any(|held| held.client == client && has_id(&held.line, id))
    }

    /// Whether a client that has so many requests with servers may have no more, with those that are held.
    pub(super) fn has_too_many(&self, client: ClientId, sent: usize) -> bool {
        // Most clients have few, and are not counted.
        let its = || self.queue.iter().filter(|held| held.client == client).count();
        sent + self.queue.len() >= CLIENT_FLIGHTS_MAX && sent + its() >= CLIENT_FLIGHTS_MAX
    }

    /// Drops a client's requests: all of them, or the one with this id.
    pub(super) fn forget(&mut self, client: ClientId, id: Option<&Id>) {
        let is_it = |held: &HeldRequest| {
            held.client == client && id.is_none_or(|id| has_id(&held.line, id))
        };
        self.queue.retain(|held| !is_it(held));
    }

    /// The server behind a link looks at the roots of its client: what waits for that goes on by then.
    pub(super) fn roots_asked(&mut self, link: LinkId, at: Time) {
        let waits = |held: &&mut HeldRequest| matches!(held.wait, Wait::Roots(its) if its == link);
        for held in self.queue.iter_mut().filter(waits) {
            held.until = held.until.min(at);
        }
    }

    /// Whether a call has to wait for calls of other clients: those that run, or those that are held.
    pub(super) fn must_wait(
        &self,
        link: LinkId,
        request: &Request<'_>,
        asking: &AskingCalls,
        out: &Outgoing,
    ) -> bool {
        if !asking.has_any() || !can_ask(request.method) {
            return false;
        }
        let its = (request.method, &*target_of(request));
        self.are_others_first(link, request.client, out)
            || asking.must_wait(out, (link, request.client), its)
    }

    /// Whether a call that waits for calls of other clients can go on: the one that has waited longest, or the first of a
    /// client for whose running call that one waits.
    pub(super) fn has_free_turn(&self, asking: &AskingCalls, out: &Outgoing) -> bool {
        let mut seen = BTreeSet::new();
        let Some((_, oldest)) = self.turns().next() else { return false };
        self.turns().filter(|(client, _)| seen.insert(*client)).enumerate().any(
            |(place, (client, turn))| {
                let may_pass =
                    || out.requests.runs_call_until(turn.link, client, oldest.sent_before);
                (place == 0 || may_pass()) && !turn.must_wait(client, asking, out)
            },
        )
    }

    fn turns(&self) -> impl Iterator<Item = (ClientId, &Turn)> {
        self.queue.iter().filter_map(|held| match &held.wait {
            Wait::Turn(turn) => Some((held.client, turn)),
            Wait::Start(_) | Wait::Roots(_) => None,
        })
    }

    /// Takes all of them out, to decide anew on each.
    pub(super) fn take(&mut self) -> VecDeque<HeldRequest> {
        std::mem::take(&mut self.queue)
    }

    /// Decides on a request that was taken out: those that were before it are held again, or gone.
    pub(super) fn decide(
        &mut self,
        mut held: HeldRequest,
        directory: &Directory,
        asking: &AskingCalls,
    ) -> HeldStep {
        let (view, out) = (directory.client(held.client), &directory.out);
        let is_settled = view.is_none_or(|view| match &held.wait {
            Wait::Start(within) => view.settles_at(*within, out.now).is_none(),
            Wait::Roots(_) => false,
            Wait::Turn(turn) => {
                !self.are_others_first(turn.link, held.client, out)
                    && !turn.must_wait(held.client, asking, out)
            }
        });
        let is_due = is_settled || held.until <= out.now;
        let is_turn = matches!(held.wait, Wait::Turn(_));
        if is_due && !out.is_full() {
            return if is_turn && !is_settled {
                HeldStep::Refuse(held)
            } else {
                HeldStep::Dispatch(held)
            };
        }
        if is_due && !is_turn {
            // It goes on in the next turn of the loop.
            held.until = out.now;
        }
        self.queue.push_back(held);
        HeldStep::Keep
    }

    /// Whether calls of other clients that wait for calls that run go on before a call of this client. They do not where a
    /// call of the client ran before they came, and still runs: it may need this one to end, and they wait for it anyway.
    fn are_others_first(&self, link: LinkId, client: ClientId, out: &Outgoing) -> bool {
        let oldest = self.turns().find(|(its, _)| *its != client);
        oldest
            .is_some_and(|(_, turn)| !out.requests.runs_call_until(link, client, turn.sent_before))
    }
}

impl Turn {
    /// Whether the call has to wait for calls that run.
    fn must_wait(&self, client: ClientId, asking: &AskingCalls, out: &Outgoing) -> bool {
        asking.must_wait(out, (self.link, client), (&self.method, &self.target))
    }
}
