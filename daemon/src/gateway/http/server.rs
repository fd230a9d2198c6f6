//! Owns the connections of the HTTP front: accepts them and serves each in a task of its own, within its deadlines, and
//! receives bodies of requests as far as `core/src/gateway/http/body_budget.rs` has room for them. Driven by the port and
//! by `exchange.rs`. Never looks into a message.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use afresh_core::gateway::http::{Bodies, BodyId, Gate, HttpRefusal, Room};
use afresh_core::limits::{
    FRONT_ASKS_MAX, FRONT_BODY_WAIT, FRONT_BUFFER_BYTES, FRONT_CLOSE_WAIT, FRONT_CONNECTIONS_MAX,
    FRONT_HEAD_WAIT, FRONT_IDLE_WAIT, FRONT_LAST_WAIT, FRONT_REFUSED_BYTES_MAX, FRONT_REFUSED_WAIT,
    OUTPUT_RETRY_PAUSE,
};
use afresh_core::time::Time;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::ConnectionEvent;
use super::exchange::exchange;
use crate::http::{WriteTimeout, next_bytes};

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
    pub(super) turns: Arc<Semaphore>,
    /// For bodies.
    pub(super) rooms: Rooms,
    pub(super) bounds: Bounds,
}

/// Until when a connection may be silent; none while it is served.
#[derive(Clone)]
pub(super) struct Limit {
    pub(super) until: Arc<watch::Sender<Option<Instant>>>,
    /// How long it may be silent after each request.
    idle_wait: Duration,
}

impl Limit {
    fn busy(&self) -> Busy {
        self.until.send_replace(None);
        Busy(self.clone())
    }
}

/// A request that is served; when it is over, the next one is waited for.
pub(super) struct Busy(Limit);

impl Drop for Busy {
    fn drop(&mut self) {
        // One that is to be ended stays so.
        let Limit { until, idle_wait } = &self.0;
        until.send_if_modified(|until| {
            let is_served = until.is_none();
            if is_served {
                *until = Some(Instant::now() + *idle_wait);
            }
            is_served
        });
    }
}

/// Takes connections until we end.
pub(super) async fn serve(port: TcpListener, host: Host) {
    let mut connections = JoinSet::new();
    let mut closing = host.closing.clone();
    loop {
        tokio::select! {
            _ = closing.changed() => break,
            accepted = port.accept(), if connections.len() < host.bounds.connections_max => match accepted {
                Ok((stream, peer)) => {
                    connections.spawn(converse(stream, peer.ip(), host.clone()));
                }
                // Out of descriptors, say: it may pass.
                Err(_) => sleep(OUTPUT_RETRY_PAUSE * 20).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop((port, host));
    while connections.join_next().await.is_some() {}
}

/// Serves one connection.
async fn converse(stream: TcpStream, peer: IpAddr, host: Host) {
    // Responses are short, and clients wait for each.
    stream.set_nodelay(true).ok();
    let bounds = host.bounds;
    let (until, mut changes) = watch::channel(Some(Instant::now() + bounds.head_wait));
    let limit = Limit { until: Arc::new(until), idle_wait: bounds.idle_wait };
    let service = service_fn(|request: Request<Incoming>| {
        let (busy, limit, host) = (limit.busy(), limit.clone(), &host);
        async move {
            let response = exchange(request, peer, limit, host).await;
            Ok::<_, Infallible>(response.map(|body| body.holding(busy)))
        }
    });
    let connection = http1::Builder::new()
        .max_buf_size(FRONT_BUFFER_BYTES)
        .serve_connection(WriteTimeout::served(stream), service);
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
                Some(Ok(bytes)) => all.extend_from_slice(&bytes),
            }
            if all.len() as u64 > gate.body_bytes_max {
                return Err(gate.too_long());
            }
            *is_waiting = true;
            self.grow(all.len()).await.map_err(|()| no_room())?;
            *is_waiting = false;
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
