//! Owns the connections of the HTTP front: accepts them and serves each in a task of its own, within its deadlines, and
//! receives bodies of requests as far as `core/src/gateway/http/body_budget.rs` has room for them. Driven by the port and
//! by `exchange.rs`. Never looks into a message.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use afresh_core::audit::Refusal;
use afresh_core::gateway::http::{Bodies, BodyId, Gate, HttpRefusal, Room};
use afresh_core::limits::{
    FRONT_ASKS_MAX, FRONT_BODY_OWN_BYTES, FRONT_BODY_STEP_BYTES, FRONT_BODY_WAIT,
    FRONT_BUFFER_BYTES, FRONT_CLOSE_WAIT, FRONT_CONNECTIONS_ENDING_MAX, FRONT_CONNECTIONS_MAX,
    FRONT_DESCRIPTORS_KEPT, FRONT_DESCRIPTORS_LEAST, FRONT_HEAD_WAIT, FRONT_IDLE_WAIT,
    FRONT_LAST_WAIT, FRONT_REFUSED_BYTES_MAX, FRONT_REFUSED_WAIT, FRONT_TOKEN_ASKS_MAX,
    OUTPUT_RETRY_PAUSE,
};
use afresh_core::time::Time;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::ConnectionEvent;
use super::exchange::exchange;
use super::idle_connections::{WaitingConnections, WaitingPlace};
use super::signed_sessions::SessionSigner;
use crate::http::{Door, Entered, Foreign, next_bytes};
use crate::refusals::Refusals;

/// What a connection is given.
#[derive(Clone)]
pub(super) struct Host {
    /// Changes when the configuration is read again.
    pub(super) gate: watch::Receiver<Arc<Gate>>,
    pub(super) letters: mpsc::Sender<ConnectionEvent>,
    /// Turns true when we end.
    pub(super) closing: watch::Receiver<bool>,
    /// How many there were.
    pub(super) exchanges: Arc<AtomicU64>,
    /// For requests that wait for the loop.
    pub(super) turns: Turns,
    /// For bodies.
    pub(super) rooms: Rooms,
    /// Connections without a request.
    pub(super) waiting: WaitingConnections,
    pub(super) bounds: Bounds,
    pub(super) refusals: Refusals,
    pub(super) signer: SessionSigner,
}

impl Host {
    /// A new connection, for which another makes room where there is none. None where it cannot be served: then it is
    /// closed.
    async fn admit(&self, mut entered: Entered, is_full: bool) -> Option<Entered> {
        let is_last = entered.is_kept_back(FRONT_DESCRIPTORS_KEPT);
        if !is_last && !is_full {
            return Some(entered);
        }
        let makes_room = self.waiting.end_first();
        // It ends before the next one is taken.
        yield_now().await;
        if is_last {
            entered = entered.with_lower_descriptor().ok()?;
        }
        if is_last && (!makes_room || entered.is_kept_back(FRONT_DESCRIPTORS_LEAST)) {
            sleep(OUTPUT_RETRY_PAUSE).await;
            return None;
        }
        Some(entered)
    }
}

/// Until when a connection may be silent; none while it is served.
#[derive(Clone)]
pub(super) struct Limit {
    pub(super) until: Arc<watch::Sender<Option<Instant>>>,
    /// How long it may be silent after each request.
    idle_wait: Duration,
    place: Arc<WaitingPlace>,
}

impl Limit {
    /// That of a new connection.
    fn new(host: &Host) -> Self {
        let until = Instant::now() + host.bounds.head_wait;
        let until = Arc::new(watch::Sender::new(Some(until)));
        let place = Arc::new(host.waiting.enter(&until));
        Self { until, idle_wait: host.bounds.idle_wait, place }
    }

    /// The request was let in.
    pub(super) fn note_client(&self) {
        self.place.note_client();
    }

    fn busy(&self) -> Busy {
        self.place.leave();
        self.until.send_replace(None);
        Busy(self.clone())
    }
}

/// A request that is served; when it is over, the next one is waited for.
pub(super) struct Busy(Limit);

impl Drop for Busy {
    fn drop(&mut self) {
        // One that is to be ended stays so.
        let Limit { until, idle_wait, place } = &self.0;
        let is_idle = until.send_if_modified(|until| {
            let is_served = until.is_none();
            if is_served {
                *until = Some(Instant::now() + *idle_wait);
            }
            is_served
        });
        if is_idle {
            place.enter_again(until);
        }
    }
}

/// Takes connections until we end. Where there is no room for one more, one that waits for a request makes room; where
/// all are served, new ones wait in the kernel's queue.
pub(super) async fn serve(door: Door, host: Host) {
    let mut connections = JoinSet::new();
    let mut closing = host.closing.clone();
    let max = host.bounds.connections_max;
    loop {
        let count = connections.len();
        let has_room =
            count < max || count < max + FRONT_CONNECTIONS_ENDING_MAX && !host.waiting.is_empty();
        tokio::select! {
            biased;
            _ = closing.changed() => break,
            // Whether one makes room is known anew, before the next one is taken.
            () = host.waiting.changed(), if count >= max => {}
            Some(_) = connections.join_next() => {}
            accepted = door.accept(), if has_room => match accepted {
                Ok(Ok(entered)) => {
                    let Some(entered) = host.admit(entered, count >= max).await else { continue };
                    // From here on it makes room for others, too.
                    let limit = Limit::new(&host);
                    connections.spawn(converse(entered, host.clone(), limit));
                }
                Ok(Err(Foreign(by))) => {
                    let reason = "the socket is for its user alone".to_owned();
                    host.refusals.note(Refusal { by, status: None, request: String::new(), reason });
                }
                // Out of descriptors, say: it may pass.
                Err(_) => {
                    host.waiting.end_first();
                    sleep(OUTPUT_RETRY_PAUSE * 20).await;
                }
            },
        }
    }
    drop((door, host));
    while connections.join_next().await.is_some() {}
}

/// Serves one connection.
async fn converse(entered: Entered, host: Host, limit: Limit) {
    let address = entered.address();
    let peer = entered.peer.clone();
    let wire = entered.wire();
    let bounds = host.bounds;
    let mut changes = limit.until.subscribe();
    let service = service_fn(|request: Request<Incoming>| {
        let (busy, limit, host) = (limit.busy(), limit.clone(), &host);
        let peer = (address, &peer);
        async move {
            let response = exchange(request, peer, limit, host).await;
            Ok::<_, Infallible>(response.map(|body| body.holding(busy)))
        }
    });
    let connection =
        http1::Builder::new().max_buf_size(FRONT_BUFFER_BYTES).serve_connection(wire, service);
    let mut connection = pin!(connection);
    let mut closing = host.closing.clone();
    let mut is_closing = *closing.borrow();
    loop {
        if is_closing {
            connection.as_mut().graceful_shutdown();
        }
        let mut until = *changes.borrow_and_update();
        // Who asks nothing is not waited for; what was answered last is still written.
        if is_closing {
            until = until.map(|until| until.min(Instant::now() + bounds.last_wait));
        }
        // One that makes room for another must not wait for the next tick of the timer.
        if until.is_some_and(|until| until <= Instant::now()) {
            return;
        }
        tokio::select! {
            // The side that broke it knows why.
            _ = &mut connection => return,
            _ = changes.changed() => {}
            _ = closing.changed(), if !is_closing => is_closing = true,
            () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => return,
        }
    }
}

/// Each as the limit of its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(super) connections_max: usize,
    pub(super) asks_max: usize,
    pub(super) head_wait: Duration,
    pub(super) idle_wait: Duration,
    pub(super) refused_wait: Duration,
    pub(super) refused_bytes_max: usize,
    pub(super) close_wait: Duration,
    pub(super) last_wait: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections_max: FRONT_CONNECTIONS_MAX,
            asks_max: FRONT_ASKS_MAX,
            head_wait: FRONT_HEAD_WAIT,
            idle_wait: FRONT_IDLE_WAIT,
            refused_wait: FRONT_REFUSED_WAIT,
            refused_bytes_max: FRONT_REFUSED_BYTES_MAX,
            close_wait: FRONT_CLOSE_WAIT,
            last_wait: FRONT_LAST_WAIT,
        }
    }
}

/// The turns of requests that wait for the loop: so many of all, and so many of each token. Clones are the same.
#[derive(Clone)]
pub(super) struct Turns {
    all: Arc<Semaphore>,
    /// Of tokens that have asked.
    tokens: Arc<Mutex<BTreeMap<Option<usize>, Arc<Semaphore>>>>,
}

/// A turn, until it is dropped.
pub(super) struct Turn(#[expect(dead_code, reason = "held")] [OwnedSemaphorePermit; 2]);

impl Turns {
    pub(super) fn new(max: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(max)), tokens: Arc::default() }
    }

    /// Waits for a turn of a token; none where the gateway ends.
    pub(super) async fn wait(&self, token: Option<usize>) -> Option<Turn> {
        let own = {
            let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Arc::new(Semaphore::new(FRONT_TOKEN_ASKS_MAX));
            Arc::clone(tokens.entry(token).or_insert_with(new))
        };
        let own = own.acquire_owned().await.ok()?;
        Some(Turn([own, Arc::clone(&self.all).acquire_owned().await.ok()?]))
    }
}

/// The room for all bodies. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Rooms {
    bodies: Arc<Mutex<Bodies>>,
    /// Told whenever a place is free again, or lost.
    changed: Arc<Notify>,
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
            Err(_) if is_waiting => return Err(no_room()),
            Err(_) => return Err(HttpRefusal::new(408, "the message did not come in time")),
        };
        self.bodies().note_whole(place.body);
        Ok((bytes, place))
    }

    /// Nothing in there can panic halfway.
    fn bodies(&self) -> MutexGuard<'_, Bodies> {
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
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
                () = self.lost() => return Err(no_room()),
            };
            match next {
                None => return Ok(all),
                Some(Err(_)) => return Err(HttpRefusal::new(400, "the body is broken")),
                Some(Ok(bytes)) => {
                    let length = all.len() + bytes.len();
                    if length as u64 > gate.body_bytes_max {
                        return Err(gate.too_long());
                    }
                    *is_waiting = true;
                    self.grow(length).await.map_err(|()| no_room())?;
                    *is_waiting = false;
                    // A vector that doubles would take up to twice the room.
                    if length > all.capacity() {
                        let is_short = length <= FRONT_BODY_OWN_BYTES;
                        let step = if is_short { 0 } else { FRONT_BODY_STEP_BYTES };
                        all.reserve_exact(bytes.len().max(step));
                    }
                    all.extend_from_slice(&bytes);
                }
            }
        }
    }

    /// Waits until there is room for so many bytes.
    async fn grow(&self, bytes: usize) -> Result<(), ()> {
        let rooms = &self.rooms;
        loop {
            let mut changed = pin!(rooms.changed.notified());
            // Changes from here on are noticed.
            changed.as_mut().enable();
            let now = now();
            let room = rooms.bodies().grow(now, self.body, bytes);
            match room {
                Room::Enough => return Ok(()),
                Room::Instead => {
                    rooms.changed.notify_waiters();
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
            let mut changed = pin!(self.rooms.changed.notified());
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
            self.rooms.changed.notify_waiters();
        }
    }
}

/// The rejection of a body for which there is no room.
fn no_room() -> HttpRefusal {
    let what = "there is no room for the message: too much comes at once; send it again later";
    HttpRefusal::new(503, what)
}

fn now() -> Time {
    Time::after_start(crate::monotonic())
}
