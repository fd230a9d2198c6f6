//! Owns which tools, prompts and resources of a shared server have asked a client something. Driven by `server_requests.rs`,
//! which notes questions, and by `route_request.rs`, which holds calls. Never reads a message.
//!
//! A server on stdio does not say which call a question belongs to. A call that is known to ask runs while no other client
//! has one, so that there is one client whose question it can be; all other calls run at the same time.

use std::collections::BTreeSet;

use super::held_calls::can_ask;
use super::outgoing::{Outgoing, PendingRequests};
use crate::gateway::{ClientId, LinkId};
use crate::limits::{ASKING_CALLS_MAX, ASKING_TARGET_BYTES_MAX};

/// What has asked.
#[derive(Debug, Default)]
pub(super) struct AskingCalls {
    /// The methods with what they name.
    known: BTreeSet<(String, String)>,
    /// There were more than are kept: every call may ask.
    is_any: bool,
}

impl AskingCalls {
    /// A question has come: each call that runs may have asked it.
    pub(super) fn note(&mut self, requests: &PendingRequests, link: LinkId) {
        let calls = requests.of_clients(link).map(|(_, call)| call);
        for call in calls.filter(|call| can_ask(&call.method)) {
            let is_kept =
                self.known.len() < ASKING_CALLS_MAX && call.target.len() <= ASKING_TARGET_BYTES_MAX;
            match is_kept {
                true => _ = self.known.insert((call.method.clone(), call.target.clone())),
                false => self.is_any = true,
            }
        }
    }

    /// Whether any question has come so far.
    pub(super) fn has_any(&self) -> bool {
        self.is_any || !self.known.is_empty()
    }

    fn may_ask(&self, method: &str, target: &str) -> bool {
        self.is_any || self.known.contains(&(method.to_owned(), target.to_owned()))
    }

    /// Whether a call of a client waits until calls of other clients have ended. Of calls that were cancelled and may
    /// still run, it is not known whether they will ask: calls that may ask wait for them, too.
    pub(super) fn must_wait(
        &self,
        out: &Outgoing,
        (link, client): (LinkId, ClientId),
        (method, target): (&str, &str),
    ) -> bool {
        if !self.has_any() || !can_ask(method) {
            return false;
        }
        let may_ask = self.may_ask(method, target);
        let mut others = out.requests.of_clients(link).filter(|(_, call)| call.client != client);
        others.any(|(_, call)| may_ask || self.may_ask(&call.method, &call.target))
            || may_ask && out.requests.has_withdrawn_of_others(link, client, out.now)
    }
}
