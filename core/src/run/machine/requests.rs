//! Owns the requests of users that are not granted yet: a stop, a skip, a pause. Driven by the machine, which grants
//! them at the next step where that is possible. Never ends a session or a phase itself.

use super::outbox::Outbox;

/// The note that a request to skip came when its phase had ended.
pub(super) const TOO_LATE: &str = "nothing is skipped: that phase was over before";

/// A request that ends the phase or the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PendingEnd {
    Stop,
    Skip,
}

/// PendingRequests that wait.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingRequests {
    end: Option<PendingEnd>,
    is_held: bool,
}

impl PendingRequests {
    /// A stop outweighs a skip.
    pub(super) fn ask_end(&mut self, end: PendingEnd) {
        if self.end != Some(PendingEnd::Stop) {
            self.end = Some(end);
        }
    }

    pub(super) const fn take_end(&mut self) -> Option<PendingEnd> {
        self.end.take()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.end == Some(PendingEnd::Stop)
    }

    /// A phase ends by itself: the request to skip it did not mean the next one.
    pub(super) fn forget_skip(&mut self, out: &mut Outbox) {
        if self.end.take_if(|end| *end == PendingEnd::Skip).is_some() {
            out.note(TOO_LATE);
        }
    }

    /// Nothing new begins until the run is resumed.
    pub(super) const fn hold(&mut self) {
        self.is_held = true;
    }

    /// Returns whether the run was held.
    pub(super) const fn release(&mut self) -> bool {
        std::mem::replace(&mut self.is_held, false)
    }

    pub(super) const fn is_held(&self) -> bool {
        self.is_held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_outweighs_a_skip_and_survives_the_end_of_the_phase() {
        let (mut requests, mut out) = (PendingRequests::default(), Outbox::default());
        requests.ask_end(PendingEnd::Stop);
        requests.ask_end(PendingEnd::Skip);
        requests.forget_skip(&mut out);
        assert!(requests.is_stopping() && out.take().is_empty());
        assert_eq!(requests.take_end(), Some(PendingEnd::Stop));
        requests.ask_end(PendingEnd::Skip);
        requests.forget_skip(&mut out);
        assert_eq!((requests.take_end(), out.take().len()), (None, 1));
    }

    #[test]
    fn a_hold_is_released_once() {
        let mut requests = PendingRequests::default();
        requests.hold();
        assert!(requests.release() && !requests.release());
    }
}
