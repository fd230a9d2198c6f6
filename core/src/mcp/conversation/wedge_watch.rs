//! Owns the watch over the instance that serves: it is checked now and then while it owes an answer.
//!
//! Driven by [`Conversation`](super::Conversation), which sends the probe. [`Wedge`] decides; this only
//! gathers its inputs, so that a message costs one flag.

use std::time::Duration;

use crate::limits::{WEDGE_LOOK_INTERVAL_MAX, WEDGE_LOOK_INTERVAL_MIN};
use crate::mcp::envelope::Id;
use crate::mcp::replay::Era;
use crate::mcp::wedge::{Effect, Input, Wedge};
use crate::time::Time;

/// The machine that decides, and its inputs for the next check.
#[derive(Debug)]
pub(super) struct WedgeWatch {
    wedge: Wedge,
    timeout: Option<Duration>,
    check_at: Option<Time>,
    has_sent: bool,
    has_answered: bool,
    probe: Option<Id>,
}

impl WedgeWatch {
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        Self {
            wedge: Wedge::new(timeout),
            timeout,
            check_at: None,
            has_sent: false,
            has_answered: false,
            probe: None,
        }
    }

    /// A request was given to the server: from now on it is checked.
    pub(super) fn watch(&mut self, now: Time) {
        if let (None, Some(timeout)) = (self.check_at, self.timeout) {
            let interval = (timeout / 10).clamp(WEDGE_LOOK_INTERVAL_MIN, WEDGE_LOOK_INTERVAL_MAX);
            self.check_at = Some(now + interval);
        }
    }

    /// No check until the next request.
    pub(super) fn pause(&mut self) {
        self.check_at = None;
    }

    pub(super) fn next_wakeup(&self, era: Era) -> Option<Time> {
        self.check_at?;
        self.wedge.next_wakeup(era).into_iter().chain(self.check_at).min()
    }

    /// The server has sent something.
    pub(super) fn note_sent(&mut self) {
        self.has_sent = true;
    }

    /// The server has answered a call.
    pub(super) fn note_answered(&mut self) {
        self.has_answered = true;
    }

    /// What the server has done since the last check.
    pub(super) fn take_signs(&mut self) -> impl Iterator<Item = Input> + use<> {
        let answered = std::mem::take(&mut self.has_answered).then_some(Input::CallAnswered);
        let sent = std::mem::take(&mut self.has_sent).then_some(Input::Heard);
        answered.into_iter().chain(sent)
    }

    pub(super) fn set_probe(&mut self, probe: Option<Id>) {
        self.probe = probe;
    }

    /// Whether this answers the probe; asked once.
    pub(super) fn take_probe(&mut self, id: &Id) -> bool {
        self.probe.take_if(|probe| probe == id).is_some()
    }

    pub(super) fn handle(&mut self, now: Time, era: Era, input: Input) -> Vec<Effect> {
        self.wedge.handle(now, era, input)
    }
}
