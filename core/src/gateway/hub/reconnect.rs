//! How links fail, and when they are tried again.

use super::super::LinkId;
use super::super::backend::Share;
use super::super::span::Outcome;
use super::link::{Link, Stage};
use super::list_paging::Pace;
use super::{Hub, What};
use crate::limits::SESSION_RETRY;
use crate::service::State;
use crate::time::Time;

impl Hub {
    /// A link is of no use for now.
    pub(super) fn fail(&mut self, link: LinkId, why: &str) {
        let Some(its) = self.links.get_mut(&link) else { return };
        let is_news = its.stage_told.as_deref() != Some(why);
        its.stage_told = Some(why.to_owned());
        its.stage = Stage::Failed(why.to_owned());
        its.retry_at = Some(self.now + SESSION_RETRY);
        its.reading.clear();
        let (slot, waiting) = (its.slot, std::mem::take(&mut its.waiting));
        let name = self.servers[slot].backend.name.clone();
        let text = self.unusable(slot, why);
        for (client, line) in waiting {
            self.fail_line(client, slot, &line, &text);
        }
        if is_news {
            self.log(format!("no session with the server `{name}`: {why}"));
        }
        self.settle();
    }

    /// What is said to a call that a server does not get.
    pub(super) fn unusable(&self, slot: usize, why: &str) -> String {
        let name = &self.servers[slot].backend.name;
        let how = if self.is_stdio(slot) { "is not running" } else { "cannot be used" };
        format!("nothing was done, the server `{name}` {how}: {why}")
    }

    /// Nothing comes over a link any more.
    pub(super) fn lost(&mut self, link: LinkId, why: &str) {
        // Nobody has spoken over it yet: nothing is lost.
        if self.links.get(&link).is_none_or(|its| its.stage == Stage::Fresh) {
            return;
        }
        self.fail_flights(link, why);
        self.fail(link, why);
    }

    /// How the server behind a link does now.
    pub(super) fn serves(&mut self, link: LinkId, state: State) {
        let number = self.next_number;
        let Some(its) = self.links.get_mut(&link) else { return };
        let was_up = its.is_up();
        its.state = Some(state);
        if its.is_up() {
            its.down_since = None;
        } else if its.absence().is_some() {
            its.down_since.get_or_insert(number);
            its.has_failed = true;
        }
        let (slot, is_up) = (its.slot, its.is_up());
        match &its.stage {
            Stage::Failed(_) if is_up && !was_up => return self.open_session(link),
            _ if is_up != was_up && self.servers[slot].backend.hide_when_down => {
                self.tell_lists_changed(slot);
            }
            _ => {}
        }
        self.settle();
    }

    /// Somebody wants an answer of a server that gave none before: it is tried again.
    pub(super) fn retry(&mut self, link: LinkId) {
        let is_failed = |link: &&mut Link| matches!(link.stage, Stage::Failed(_));
        if let Some(its) = self.links.get_mut(&link).filter(is_failed)
            && its.retry_at.is_none_or(|at| at <= self.now)
        {
            self.open_session(link);
        }
    }

    /// Somebody has the server started again: what it said before does not count.
    pub(super) fn retry_now(&mut self, link: LinkId) {
        if let Some(its) = self.links.get_mut(&link) {
            its.retry_at = its.retry_at.map(|_| self.now);
        }
    }

    /// When something has to be done about a link.
    pub(super) fn link_wakeup(&self, link: &Link) -> Option<Time> {
        let lists = link.paces.values().filter_map(Pace::due_at);
        [self.retry_at(link), self.idle_at(link)].into_iter().flatten().chain(lists).min()
    }

    /// When nobody has used a link for long enough.
    fn idle_at(&self, link: &Link) -> Option<Time> {
        match (self.servers[link.slot].backend.share, link.owner) {
            (Share::PerClient { idle_after, .. }, Some(_)) if link.in_flight == 0 => {
                Some(link.used_at + idle_after)
            }
            _ => None,
        }
    }

    /// When a session is opened again though nobody asks. A program that was given up or stopped rests until
    /// somebody does: asking it would start it.
    fn retry_at(&self, link: &Link) -> Option<Time> {
        let rests =
            matches!(link.state, Some(State::Failed { .. } | State::Stopped | State::Finished));
        link.retry_at.filter(|_| !(rests && self.is_stdio(link.slot)))
    }

    pub(super) fn look_after_links(&mut self) {
        for link in self.links.due(self.now) {
            self.read_due_lists(link);
            let Some(its) = self.links.get(&link) else { continue };
            let is_due = |at: Option<Time>| at.is_some_and(|at| at <= self.now);
            if is_due(self.retry_at(its)) {
                self.open_session(link);
            } else if is_due(self.idle_at(its)) {
                // It comes back with the next call.
                self.close(link, "nobody has used it for a while");
            }
        }
    }

    /// Each request over the link that has no answer is answered with an error.
    pub(super) fn fail_flights(&mut self, link: LinkId, why: &str) {
        let lost = self.flights.iter().filter(|(_, flight)| flight.link == link);
        let lost: Vec<u64> = lost.map(|(number, _)| *number).collect();
        let Some(its) = self.links.get(&link) else { return };
        let name = self.servers[its.slot].backend.name.clone();
        for number in lost {
            let Some(flight) = self.take_flight(number) else { continue };
            if let What::Client { client, id, method, .. } = flight.what {
                if let Some(its) = self.clients.get_mut(&client) {
                    its.flights.remove(&id);
                }
                self.end_span(flight.span, Outcome::Failed("server_lost"));
                let text = format!(
                    "the server `{name}` is gone while this ran; its outcome is unknown: {why}"
                );
                self.answer_failure(client, &id, &method, "server_lost", &text);
            }
        }
        if let Some(its) = self.links.get_mut(&link) {
            its.in_flight = 0;
            its.listens = None;
        }
    }
}
