//! Receives bodies of requests, as far as `core/src/gateway/http/body_budget.rs` has room for them. Driven by
//! `exchange.rs`. Never looks into a body.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use afresh_core::gateway::http::{Bodies, BodyId, Gate, HttpRefusal, Room};
use afresh_core::limits::FRONT_BODY_WAIT;
use afresh_core::time::Time;
use hyper::body::Incoming;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::http::next_bytes;

/// The room for all bodies. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Rooms(Arc<BodyBudget>);

#[derive(Default)]
struct BodyBudget {
    bodies: Mutex<Bodies>,
    /// Told whenever a place is free again, or lost.
    changed: Notify,
}

/// A body's place; it is free again when this is dropped.
pub(super) struct BodyPlace {
    rooms: Rooms,
    body: BodyId,
}

impl Rooms {
    /// All of a body, and its place.
    pub(super) async fn receive(
        &self,
        body: &mut Incoming,
        gate: &Gate,
    ) -> Result<(Vec<u8>, BodyPlace), HttpRefusal> {
        let place = BodyPlace { body: self.bodies().begin(now()), rooms: self.clone() };
        let mut is_waiting = false;
        let all = place.fill(body, gate, &mut is_waiting);
        let bytes = match timeout(FRONT_BODY_WAIT, all).await {
            Ok(bytes) => bytes?,
            Err(_) if is_waiting => return Err(gate.no_room()),
            Err(_) => return Err(gate.too_slow()),
        };
        self.bodies().note_whole(place.body);
        Ok((bytes, place))
    }

    /// Nothing in there can panic halfway.
    fn bodies(&self) -> MutexGuard<'_, Bodies> {
        self.0.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BodyPlace {
    /// Reads all of a body, and no more of it than there is room for.
    async fn fill(
        &self,
        body: &mut Incoming,
        gate: &Gate,
        is_waiting: &mut bool,
    ) -> Result<Vec<u8>, HttpRefusal> {
        let mut all = Vec::new();
        loop {
            let next = tokio::select! {
                next = next_bytes(body) => next,
                () = self.lost() => return Err(gate.no_room()),
            };
            match next {
                None => return Ok(all),
                Some(Err(_)) => return Err(HttpRefusal::new(400, "the body is broken")),
                Some(Ok(bytes)) => all.extend_from_slice(&bytes),
            }
            if all.len() > gate.body_bytes_max() {
                return Err(gate.too_long());
            }
            *is_waiting = true;
            self.grow(all.len()).await.map_err(|()| gate.no_room())?;
            *is_waiting = false;
        }
    }

    /// Waits until there is room for so many bytes.
    async fn grow(&self, bytes: usize) -> Result<(), ()> {
        let rooms = &self.rooms;
        loop {
            let changed = rooms.0.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Changes from here on are noticed.
            changed.as_mut().enable();
            let now = now();
            let room = rooms.bodies().grow(now, self.body, bytes);
            match room {
                Room::Enough => return Ok(()),
                Room::Instead => {
                    rooms.0.changed.notify_waiters();
                    return Ok(());
                }
                Room::Lost => return Err(()),
                Room::Later(at) => {
                    let wait = at.map_or(Duration::MAX, |at| at.since(now));
                    tokio::select! {
                        () = changed => {}
                        () = sleep(wait) => {}
                    }
                }
            }
        }
    }

    /// Waits until the place is lost to another.
    async fn lost(&self) {
        loop {
            let changed = self.rooms.0.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if self.rooms.bodies().has_lost(self.body) {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for BodyPlace {
    fn drop(&mut self) {
        if self.rooms.bodies().leave(self.body) {
            self.rooms.0.changed.notify_waiters();
        }
    }
}

fn now() -> Time {
    Time::after_start(crate::monotonic())
}
