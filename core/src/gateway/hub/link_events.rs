//! Handles what happens on a link: the end of a handshake, a page of a list, a change of its server's state, a wakeup.
//! Driven by [`Hub`](super::Hub). Never dispatches a client's message: lines that can go on are put into the outbox.

use super::directory::Directory;
use super::link::{HandshakeOutcome, Link, LinkStage};
use super::list_paging::{PageOutcome, Reading};
use super::outbox::Outbox;
use super::pending_requests::ClientRequest;
use crate::gateway::span::{Outcome, Span};
use crate::gateway::{Effect, LinkId};
use crate::limits::CIRCUIT_OPEN_FOR;
use crate::mcp::Kind;
use crate::service::State;

impl Directory {
    /// The first request over a link has its response.
    pub(super) fn finish_handshake(
        &mut self,
        id: LinkId,
        line: &[u8],
        is_error: bool,
        out: &mut Outbox,
    ) {
        if let Some(link) = self.backends.links.get_mut(id) {
            let outcome = link.finish_handshake(line, is_error, out);
            self.end_handshake(id, outcome, out);
        }
    }

    /// The first request over a link had no response in time.
    pub(super) fn time_out_handshake(&mut self, id: LinkId, out: &mut Outbox) {
        if let Some(link) = self.backends.links.get(id) {
            let outcome = link.handshake_timeout();
            self.end_handshake(id, outcome, out);
        }
    }

    fn end_handshake(&mut self, id: LinkId, outcome: HandshakeOutcome, out: &mut Outbox) {
        match outcome {
            HandshakeOutcome::Open => {
                self.sync_log_level(id, out);
                self.sync_subscriptions(id, out);
                self.resume_waiting(id, out);
                out.settle();
            }
            HandshakeOutcome::Failed(why) => self.fail_link(id, &why, out),
            HandshakeOutcome::Refused(why) => {
                out.push(Effect::Refused { link: id, why: why.clone() });
                self.fail_link(id, &why, out);
            }
            HandshakeOutcome::UnknownProtocol => {
                if self.backends.fall_back(id, out) {
                    self.resume_waiting(id, out);
                    self.close_link(id, "it does not know the newer protocol", out);
                    out.settle();
                }
            }
        }
    }

    fn resume_waiting(&mut self, id: LinkId, out: &mut Outbox) {
        let Some(link) = self.backends.links.get_mut(id) else { return };
        for (client, line) in link.calls.take_waiting() {
            out.resume(client, line);
        }
    }

    /// A link has no session for now: the requests that wait for it are answered with an error.
    fn fail_link(&mut self, id: LinkId, why: &str, out: &mut Outbox) {
        let Some(link) = self.backends.links.get_mut(id) else { return };
        let is_news = link.fail(why, out.now());
        let (slot, waiting) = (link.slot(), link.calls.take_waiting());
        let text = self.backends.slot(slot).unusable(why);
        for (client, line) in waiting {
            self.refuse_line(client, slot, &line, &text, out);
        }
        if is_news {
            let name = self.backends.slot(slot).name();
            out.log(format!("no session with the server `{name}`: {why}"));
        }
        out.settle();
    }

    /// Nothing comes over a link any more.
    pub(super) fn lose_link(&mut self, id: LinkId, why: &str, out: &mut Outbox) {
        // A link that was not used yet has nothing to lose.
        let is_fresh = |link: &Link| *link.stage() == LinkStage::Fresh;
        if self.backends.links.get(id).is_none_or(is_fresh) {
            return;
        }
        self.fail_requests(id, why, out);
        self.fail_link(id, why, out);
    }

    /// The state of the server behind a link has changed.
    pub(super) fn set_server_state(&mut self, id: LinkId, state: State, out: &mut Outbox) {
        let Some(link) = self.backends.links.get_mut(id) else { return };
        let was_up = link.is_up();
        link.set_server_state(state, out.requests.next_number());
        let (slot, is_up) = (link.slot(), link.is_up());
        if matches!(link.stage(), LinkStage::Failed(_)) && is_up && !was_up {
            return link.open_session(out);
        }
        if is_up != was_up && self.backends.slot(slot).backend.hide_when_down {
            self.notify_server_changed(slot, out);
        }
        out.settle();
    }

    /// Reads the lists, opens the sessions again and closes the links whose time has come.
    pub(super) fn wake_links(&mut self, out: &mut Outbox) {
        for id in self.backends.links.due(out.now()) {
            let Some(link) = self.backends.links.get_mut(id) else { continue };
            for kind in link.lists.take_due(out.now()) {
                link.read_list(kind, out);
            }
            if link.is_retry_due(out.now()) {
                link.open_session(out);
            } else if link.is_idle(out.now()) {
                // It comes back with the next call.
                self.close_link(id, "nobody has used it for a while", out);
            }
        }
    }

    /// A page of a list has come.
    pub(super) fn add_page(
        &mut self,
        id: LinkId,
        kind: Kind,
        line: &[u8],
        is_error: bool,
        out: &mut Outbox,
    ) {
        let has_admin = self.tools.has_admin();
        let outcome = self.backends.add_page(id, kind, line, is_error, has_admin, out);
        let Some(PageOutcome::End { list, has_changed }) = outcome else { return };
        if let Some(list) = list {
            self.keep_list(id, kind, list, out);
        }
        if let Some(link) = self.backends.links.get_mut(id).filter(|_| has_changed) {
            link.read_list(kind, out);
        }
        out.settle();
    }

    /// A list was read to its end.
    fn keep_list(&mut self, id: LinkId, kind: Kind, list: Reading, out: &mut Outbox) {
        let Some(slot) = self.backends.links.get(id).map(|link| link.slot()) else { return };
        let Some([known, seen, new]) = self.backends.keep_list(id, kind, list, out) else { return };
        let mut moved = self.names.rebuild(&[kind], &self.backends, self.tools, out);
        self.notify_list_changed(kind, id, &seen, &new, out);
        // Entries of other servers can have lost their names to these, or have them back.
        moved.retain(|moved| moved.slot != slot);
        let told = self.users_of(id).into_iter().map(|user| (user, kind)).collect();
        self.notify_moved(&moved, told, out);
        if kind == Kind::Tools {
            self.notify_let_in(slot, &known, &new, out);
        }
    }

    /// A client's request had no response in time.
    pub(super) fn time_out_request(
        &mut self,
        id: LinkId,
        number: u64,
        request: &ClientRequest,
        span: Option<Box<Span>>,
        out: &mut Outbox,
    ) {
        let Some(link) = self.backends.links.get_mut(id) else { return };
        link.calls.end();
        let (slot, absence) = (link.slot(), link.absence_since(number));
        let timeouts = link.calls.circuit.time_out(out.now());
        let server = self.backends.slot(slot);
        let why = match absence {
            Some(why) => server.unusable(&why),
            None => format!(
                "the server `{}` has not answered in time (`call_timeout`); its outcome is unknown",
                server.name()
            ),
        };
        out.end_span(span, Outcome::Failed("timed_out"));
        out.cancel(id, number, "it took too long");
        let ClientRequest { client, id, method, .. } = request;
        self.sessions.end_request(*client, id);
        self.sessions.answer_failure(*client, id, method, "timed_out", &why, out);
        if let Some(timeouts) = timeouts {
            out.log(format!(
                "the server `{}` left {timeouts} calls in a row without an answer: for {} s calls \
                 to it are answered at once, with an error",
                server.name(),
                CIRCUIT_OPEN_FOR.as_secs()
            ));
        }
    }
}
