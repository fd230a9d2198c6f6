//! Owns the rate limit of clients, `requests_per_second`: token buckets that refill with time, of each session and, for
//! requests without one, of each caller. Driven by `sessions_and_streams.rs`. Never rejects a request itself.

use core::net::IpAddr;
use std::collections::BTreeMap;

use crate::limits::FRONT_CALLERS_MAX;
use crate::time::Time;

/// One bucket; it begins full. Kept as the moment at which it is full again, so it needs no refilling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bucket {
    full_at: Time,
}

impl Bucket {
    /// Takes some of so many a second, all of them or none; false where there are not so many.
    pub(super) fn take(&mut self, now: Time, count: u32, per_second: Option<u32>) -> bool {
        let Some(rate) = per_second else { return true };
        let each = std::time::Duration::from_secs(1) / rate.max(1);
        let full_at = self.full_at.max(now) + each * count;
        let is_there = full_at.since(now) <= each * rate.max(1);
        if is_there {
            self.full_at = full_at;
        }
        is_there
    }
}

/// Who asks without a session: by which token, from where.
pub(super) type Caller = (Option<usize>, IpAddr);

/// The buckets of those without a session.
#[derive(Debug, Default)]
pub(super) struct Callers(BTreeMap<Caller, Bucket>);

impl Callers {
    /// Takes from the bucket of a caller; false where it has too few.
    pub(super) fn take(
        &mut self,
        now: Time,
        caller: Caller,
        count: u32,
        per_second: Option<u32>,
    ) -> bool {
        if per_second.is_none() {
            return true;
        }
        if self.0.len() >= FRONT_CALLERS_MAX && !self.0.contains_key(&caller) {
            // A full bucket is as good as none.
            self.0.retain(|_, bucket| bucket.full_at > now);
            if self.0.len() >= FRONT_CALLERS_MAX {
                return false;
            }
        }
        self.0.entry(caller).or_default().take(now, count, per_second)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Time {
        Time::after_start(Duration::from_millis(ms))
    }

    #[test]
    fn so_many_come_at_once_and_then_so_many_a_second() {
        let mut bucket = Bucket::default();
        let mut taken = |ms| (0..9).filter(|_| bucket.take(at(ms), 1, Some(4))).count();
        assert_eq!(taken(5_000), 4);
        assert_eq!(taken(5_249), 0);
        assert_eq!(taken(5_500), 2);
        assert_eq!(taken(60_000), 4);
        assert!((0..1_000).all(|_| Bucket::default().take(at(0), 9, None)));
        let mut none = Bucket::default();
        assert!(none.take(at(0), 1, Some(0)) && !none.take(at(0), 1, Some(0)), "0 is as 1");
        // Several at once count as many, and are taken together or not at all.
        let mut some = Bucket::default();
        assert!(some.take(at(0), 3, Some(4)) && !some.take(at(0), 2, Some(4)));
        assert!(some.take(at(0), 1, Some(4)) && !some.take(at(999), 4, Some(4)));
        assert!(some.take(at(1_000), 4, Some(4)));
    }

    #[test]
    fn those_who_are_quiet_make_room() {
        let mut callers = Callers::default();
        let address = |n: usize| IpAddr::from(u32::try_from(n).unwrap().to_be_bytes());
        for n in 0..FRONT_CALLERS_MAX {
            assert!(callers.take(at(0), (None, address(n)), 1, Some(1)));
        }
        assert!(!callers.take(at(0), (None, address(FRONT_CALLERS_MAX)), 1, Some(1)));
        assert!(callers.take(at(1_000), (None, address(FRONT_CALLERS_MAX)), 1, Some(1)));
        assert_eq!(callers.0.len(), 1);
    }
}
