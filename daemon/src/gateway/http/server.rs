//! Owns the connections of the HTTP front: accepts them and serves each in a task of its own, within its deadlines.
//! Driven by the port. Never reads a message.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use afresh_core::gateway::http::Gate;
use afresh_core::limits::{FRONT_BUFFER_BYTES, OUTPUT_RETRY_PAUSE};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::ConnectionEvent;
use super::body_reader::Rooms;
use super::bounds::Bounds;
use super::exchange::exchange;
use crate::http::WriteTimeout;

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
    until: Arc<watch::Sender<Option<Instant>>>,
    /// How long it may be silent after each request.
    idle_wait: Duration,
}

impl Limit {
    /// Ends the connection at once.
    pub(super) fn end_now(&self) {
        self.until.send_replace(Some(Instant::now()));
    }

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
    let mut connection = std::pin::pin!(connection);
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
