//! Owns the memory budget for bodies of requests while they are received. Received bytes count, never announced ones.
//! Driven by the daemon's body reader. Never reads a body.
//!
//! Each body has some bytes for itself, so that small ones never ask for room. The rest comes out of one store
//! for all, step by step. Where that is used up, a body that has not grown for a while loses its place to one
//! that grows: a slow client cannot hold the room, and bodies that wait for one another do not wait for ever.

use std::collections::BTreeMap;

use crate::limits::{
    FRONT_BODIES_BYTES_MAX, FRONT_BODIES_WAITING_MAX, FRONT_BODY_OWN_BYTES, FRONT_BODY_STALLED,
    FRONT_BODY_STEP_BYTES,
};
use crate::time::Time;

/// A body that is being received: 1, 2, 3…
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BodyId(u64);

/// The room, and who has how much of it.
#[derive(Debug, Default)]
pub struct Bodies {
    held: BTreeMap<BodyId, BodyShare>,
    bytes: usize,
    last: u64,
}

#[derive(Clone, Copy, Debug)]
struct BodyShare {
    /// Besides its own.
    bytes: usize,
    /// When it last got more.
    grown_at: Time,
    /// Whether all of it is there, and on its way to the loop.
    is_whole: bool,
    /// Whether it has found no room yet.
    is_waiting: bool,
}

/// Whether there is room for what a body has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is.
    Enough,
    /// There is, in the place of others, who have to hear it.
    Instead,
    /// Not now: ask again when a body has left, or at this moment.
    Later(Option<Time>),
    /// It has lost its place to another, or too many wait already.
    Lost,
}

impl BodyShare {
    fn new(bytes: usize, grown_at: Time) -> Self {
        Self { bytes, grown_at, is_whole: false, is_waiting: false }
    }
}

impl Bodies {
    /// A body begins. It holds nothing yet.
    pub fn begin(&mut self, now: Time) -> BodyId {
        self.last += 1;
        let body = BodyId(self.last);
        self.held.insert(body, BodyShare::new(0, now));
        body
    }

    /// A body has so many bytes now, all together.
    pub fn grow(&mut self, now: Time, body: BodyId, bytes: usize) -> Room {
        let shared = bytes.saturating_sub(FRONT_BODY_OWN_BYTES);
        let wanted = shared.div_ceil(FRONT_BODY_STEP_BYTES) * FRONT_BODY_STEP_BYTES;
        let Some(held) = self.held.get(&body) else { return Room::Lost };
        let more = wanted.saturating_sub(held.bytes);
        if more == 0 {
            return Room::Enough;
        }
        let mut room = Room::Enough;
        // One that is alone has room: the longest message fits.
        if self.bytes > held.bytes && self.bytes + more > FRONT_BODIES_BYTES_MAX {
            let Some((in_the_way, stalled_at)) = self.in_the_way(body, held.bytes, more) else {
                return self.wait(body, None);
            };
            // As long as one of them goes on, none loses its place: it would be for nothing.
            if stalled_at > now {
                return self.wait(body, Some(stalled_at));
            }
            for other in in_the_way {
                self.leave(other);
            }
            room = Room::Instead;
        }
        self.bytes += more;
        self.held.insert(body, BodyShare::new(wanted, now));
        room
    }

    /// The bodies that have to go so that one has room for more, those first that have not grown for the longest time,
    /// and when all of these count as stalled. None where it has no room without them either.
    fn in_the_way(&self, body: BodyId, own: usize, more: usize) -> Option<(Vec<BodyId>, Time)> {
        let others = self.held.iter().filter(|(other, _)| **other != body);
        let mut others: Vec<(&BodyId, &BodyShare)> =
            others.filter(|(_, held)| held.bytes > 0 && !held.is_whole).collect();
        others.sort_by_key(|(_, held)| held.grown_at);
        let (mut in_the_way, mut left) = (Vec::new(), self.bytes);
        for (other, held) in others {
            in_the_way.push(*other);
            left -= held.bytes;
            if left <= own || left + more <= FRONT_BODIES_BYTES_MAX {
                return Some((in_the_way, held.grown_at + FRONT_BODY_STALLED));
            }
        }
        None
    }

    /// A body finds no room: it waits, or is refused where too many do.
    fn wait(&mut self, body: BodyId, until: Option<Time>) -> Room {
        let others = self.held.iter().filter(|(other, held)| **other != body && held.is_waiting);
        if others.count() >= FRONT_BODIES_WAITING_MAX {
            // It leaves when it is dropped, and then the others hear of the room that it had.
            return Room::Lost;
        }
        if let Some(held) = self.held.get_mut(&body) {
            held.is_waiting = true;
        }
        Room::Later(until)
    }

    /// Whether a body has lost its place.
    pub fn has_lost(&self, body: BodyId) -> bool {
        !self.held.contains_key(&body)
    }

    /// All of it is there: it keeps its place until it leaves.
    pub fn note_whole(&mut self, body: BodyId) {
        if let Some(held) = self.held.get_mut(&body) {
            held.is_whole = true;
        }
    }

    /// Releases its place; true where others have more room now.
    pub fn leave(&mut self, body: BodyId) -> bool {
        let bytes = self.held.remove(&body).map_or(0, |held| held.bytes);
        self.bytes -= bytes;
        bytes > 0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HALF: usize = FRONT_BODIES_BYTES_MAX / 2;

    fn at(ms: u64) -> Time {
        Time::after_start(Duration::from_millis(ms))
    }

    #[test]
    fn only_so_many_wait_for_room_and_one_that_is_alone_has_it() {
        let mut bodies = Bodies::default();
        let alone = bodies.begin(at(0));
        assert_eq!(bodies.grow(at(0), alone, 2 * FRONT_BODIES_BYTES_MAX), Room::Enough);
        bodies.note_whole(alone);
        let waiting: Vec<BodyId> =
            (0..FRONT_BODIES_WAITING_MAX).map(|_| bodies.begin(at(0))).collect();
        for body in waiting.iter().chain(&waiting) {
            assert_eq!(bodies.grow(at(0), *body, HALF), Room::Later(None));
        }
        let (small, large) = (bodies.begin(at(0)), bodies.begin(at(0)));
        assert_eq!(bodies.grow(at(0), small, FRONT_BODY_OWN_BYTES), Room::Enough);
        assert_eq!(bodies.grow(at(0), large, HALF), Room::Lost);
        assert!(bodies.leave(alone));
        assert_eq!(bodies.grow(at(0), waiting[0], HALF), Room::Enough);
        assert!(!bodies.leave(large) && bodies.has_lost(large), "it had nothing to give");
        let next = bodies.begin(at(0));
        assert_ne!(bodies.grow(at(0), next, HALF), Room::Lost);
        // One that had some room gives it back when it leaves, so that others hear of it.
        let (mut bodies, whole) = (Bodies::default(), HALF + FRONT_BODY_OWN_BYTES);
        let some = bodies.begin(at(0));
        let full = bodies.begin(at(0));
        assert_eq!(bodies.grow(at(0), some, whole), Room::Enough);
        assert_eq!(bodies.grow(at(0), full, whole), Room::Enough);
        for _ in 0..FRONT_BODIES_WAITING_MAX {
            let other = bodies.begin(at(0));
            assert!(matches!(bodies.grow(at(0), other, whole), Room::Later(_)));
        }
        assert_eq!(bodies.grow(at(0), some, 2 * whole), Room::Lost);
        assert!(bodies.leave(some));
    }

    #[test]
    fn small_bodies_need_no_room() {
        let mut bodies = Bodies::default();
        let large = [bodies.begin(at(0)), bodies.begin(at(0))];
        for body in large {
            assert_eq!(bodies.grow(at(0), body, HALF), Room::Enough);
        }
        for _ in 0..5_000 {
            let small = bodies.begin(at(0));
            assert_eq!(bodies.grow(at(0), small, FRONT_BODY_OWN_BYTES), Room::Enough);
        }
        let other = bodies.begin(at(0));
        let later = Room::Later(Some(at(0) + FRONT_BODY_STALLED));
        assert_eq!(bodies.grow(at(0), other, FRONT_BODY_OWN_BYTES + 1), later);
        // Whoever leaves makes room at once.
        bodies.leave(large[0]);
        assert_eq!(bodies.grow(at(0), other, FRONT_BODY_OWN_BYTES + 1), Room::Enough);
    }

    #[test]
    fn who_does_not_go_on_makes_room_for_who_does() {
        let mut bodies = Bodies::default();
        let [slow, quick, new] = [0, 10, 20].map(|ms| bodies.begin(at(ms)));
        assert_eq!(bodies.grow(at(20), slow, HALF), Room::Enough);
        assert_eq!(bodies.grow(at(20), quick, HALF - FRONT_BODY_STEP_BYTES), Room::Enough);
        // A few bytes now and then are not going on: a step has to be full.
        assert_eq!(bodies.grow(at(900), slow, HALF + 10), Room::Enough);
        assert_eq!(bodies.grow(at(900), quick, HALF), Room::Enough);
        let wants = FRONT_BODY_OWN_BYTES + 2 * FRONT_BODY_STEP_BYTES;
        let stalled = at(20) + FRONT_BODY_STALLED;
        assert_eq!(bodies.grow(at(900), new, wants), Room::Later(Some(stalled)));
        assert_eq!(bodies.grow(stalled, new, wants), Room::Instead);
        assert!(bodies.has_lost(slow) && !bodies.has_lost(quick));
        assert_eq!(bodies.grow(stalled, slow, HALF), Room::Lost);
        assert!(!bodies.leave(slow) && bodies.leave(quick) && bodies.leave(new));
        assert_eq!((bodies.bytes, bodies.held.len()), (0, 0));
    }

    #[test]
    fn nobody_makes_room_that_does_not_suffice() {
        let mut bodies = Bodies::default();
        let [slow, quick, new] = [0, 0, 0].map(|ms| bodies.begin(at(ms)));
        assert_eq!(bodies.grow(at(0), slow, HALF), Room::Enough);
        assert_eq!(bodies.grow(at(500), quick, HALF), Room::Enough);
        let both = at(500) + FRONT_BODY_STALLED;
        assert_eq!(bodies.grow(at(1_200), new, 2 * HALF), Room::Later(Some(both)));
        assert!(!bodies.has_lost(slow), "it would have been for nothing");
        assert_eq!(bodies.grow(both, new, 2 * HALF), Room::Instead);
        assert!(bodies.has_lost(slow) && bodies.has_lost(quick));
    }

    #[test]
    fn bodies_that_wait_for_one_another_come_to_an_end() {
        let mut bodies = Bodies::default();
        let steps = FRONT_BODIES_BYTES_MAX / 10 / FRONT_BODY_STEP_BYTES;
        let tenth = |times| FRONT_BODY_OWN_BYTES + times * steps * FRONT_BODY_STEP_BYTES;
        let all: Vec<BodyId> = (0..10).map(|_| bodies.begin(at(0))).collect();
        for body in &all {
            assert_eq!(bodies.grow(at(0), *body, tenth(1)), Room::Enough);
        }
        // Each wants three times as much, and none has it.
        let step = |bodies: &mut Bodies, now| {
            let has_room = |room| matches!(room, Room::Enough | Room::Instead);
            all.iter().filter(|body| has_room(bodies.grow(now, **body, tenth(3)))).count()
        };
        assert_eq!(step(&mut bodies, at(500)), 0);
        assert_eq!(step(&mut bodies, at(1_500)), 3);
        assert!(bodies.bytes <= FRONT_BODIES_BYTES_MAX);
    }

    #[test]
    fn one_that_is_whole_keeps_its_place() {
        let mut bodies = Bodies::default();
        let (whole, new) = (bodies.begin(at(0)), bodies.begin(at(0)));
        assert_eq!(bodies.grow(at(0), whole, FRONT_BODIES_BYTES_MAX), Room::Enough);
        bodies.note_whole(whole);
        assert_eq!(bodies.grow(at(60_000), new, HALF), Room::Later(None));
        bodies.leave(whole);
        assert_eq!(bodies.grow(at(60_000), new, HALF), Room::Enough);
    }
}
