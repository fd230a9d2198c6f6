//! Servers that do not answer are not asked for a while.

use super::super::LinkId;
use super::Hub;
use super::link::Link;
use crate::limits::{CIRCUIT_OPEN_FOR, TIMEOUTS_IN_A_ROW_MAX};

impl Hub {
    /// Why a call cannot go over a link now; none where it can.
    pub(super) fn why_not(&mut self, link: LinkId) -> Option<(&'static str, String)> {
        let now = self.now;
        let its = self.links.get_mut(&link)?;
        let backend = &self.servers[its.slot].backend;
        let name = &backend.name;
        if its.in_flight >= backend.in_flight_max {
            let count = its.in_flight;
            return Some((
                "server_busy",
                format!(
                    "nothing was done: {count} calls to the server `{name}` have no answer yet, as \
                     many as `in_flight_max` allows; wait for some of them"
                ),
            ));
        }
        match its.closed_until {
            Some(until) if until > now => {
                let seconds = until.since(now).as_millis().div_ceil(1_000);
                Some((
                    "circuit_open",
                    format!(
                        "nothing was done: the server `{name}` left {} calls in a row without an \
                         answer; it is tried again in {seconds} s",
                        its.late
                    ),
                ))
            }
            Some(_) => {
                // One is let through to see.
                its.closed_until = Some(now + CIRCUIT_OPEN_FOR);
                None
            }
            None => None,
        }
    }

    /// What is wrong where calls do not go over a link now, because others had no answer.
    pub(super) fn circuit(&self, link: &Link) -> Option<String> {
        let until = link.closed_until.filter(|until| *until > self.now)?;
        let seconds = until.since(self.now).as_millis().div_ceil(1_000);
        Some(format!(
            "{} calls in a row had no answer; it is tried again in {seconds} s",
            link.late
        ))
    }

    /// A call was answered: the server lives.
    pub(super) fn was_in_time(&mut self, link: LinkId) {
        if let Some(its) = self.links.get_mut(&link) {
            (its.late, its.closed_until) = (0, None);
        }
    }

    /// A call was not answered in time.
    pub(super) fn was_late(&mut self, link: LinkId) {
        let Some(its) = self.links.get_mut(&link) else { return };
        its.late += 1;
        if its.late >= TIMEOUTS_IN_A_ROW_MAX {
            let (late, slot) = (its.late, its.slot);
            its.closed_until = Some(self.now + CIRCUIT_OPEN_FOR);
            let name = self.servers[slot].backend.name.clone();
            self.log(format!(
                "the server `{name}` left {late} calls in a row without an answer: for {} s calls \
                 to it are answered at once, with an error",
                CIRCUIT_OPEN_FOR.as_secs()
            ));
        }
    }
}
