//! Owns the spare: an idle instance that takes over when the current one crashes.
//!
//! Driven by [`SideInstances`](super::side_instances::SideInstances). Never decides whether a spare is wanted.

use std::time::Duration;

use super::state::Instance;
use crate::policy::Backoff;
use crate::time::Time;

/// The place for one spare.
#[derive(Debug, Default)]
pub(super) struct SpareSlot {
    spare: Option<Instance>,
    /// No spare is started before this.
    start_at: Time,
    /// Spares in a row that ended by themselves.
    failures: u32,
}

impl SpareSlot {
    pub(super) const fn instance(&self) -> Option<&Instance> {
        self.spare.as_ref()
    }

    pub(super) const fn instance_mut(&mut self) -> Option<&mut Instance> {
        self.spare.as_mut()
    }

    /// When the next spare may start, where there is none.
    pub(super) fn due_at(&self) -> Option<Time> {
        self.spare.is_none().then_some(self.start_at)
    }

    pub(super) fn put(&mut self, spare: Instance) {
        self.spare = Some(spare);
    }

    pub(super) fn take(&mut self) -> Option<Instance> {
        self.spare.take()
    }

    /// Takes the spare out for good, as it is of older code. Another one may follow at once.
    pub(super) fn renew(&mut self, now: Time) -> Option<Instance> {
        (self.start_at, self.failures) = (now, 0);
        self.spare.take()
    }

    /// Takes the spare out as it has failed after `uptime`; the next one waits longer, unless this one
    /// had run for more than `stable_after`.
    pub(super) fn fail(
        &mut self,
        now: Time,
        backoff: &Backoff,
        is_stable: impl FnOnce(Duration) -> bool,
    ) -> Option<Instance> {
        let spare = self.spare.take()?;
        if is_stable(now.since(spare.since)) {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        self.start_at = now + backoff.spare_delay(self.failures);
        Some(spare)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Generation;
    use crate::service::state::Role;

    #[test]
    fn each_failure_in_a_row_makes_the_next_one_wait_longer() {
        let backoff = Backoff::default();
        let mut slot = SpareSlot::default();
        assert_eq!(slot.due_at(), Some(Time::ZERO));
        let mut waits = Vec::new();
        let now = Time::after_start(Duration::from_secs(100));
        for is_stable in [false, false, false, true] {
            slot.put(Instance::new(Generation(1), Time::ZERO, Role::Spare));
            assert_eq!(slot.due_at(), None);
            slot.fail(now, &backoff, |_| is_stable);
            waits.push(slot.due_at().unwrap().since(now).as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 1]);
        slot.renew(now);
        assert_eq!(slot.due_at(), Some(now));
    }
}
