//! Owns the clients over Streamable HTTP: a port, its connections, and the machine of `core/src/gateway/http.rs`. Driven
//! by `next` and `tell` in the task of the loop: an idle session costs an entry in a map. Never blocks the loop.
//!
//! `server.rs` accepts connections, each in a task of its own, and receives bodies, as far as there is room;
//! `exchange.rs` serves a request and has the bodies of responses.

mod exchange;
mod server;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use afresh_core::gateway::http::{
    Front, FrontEffect, FrontInput, FrontRequest, Gate, HttpExchange, HttpRefusal, SessionId,
};
use afresh_core::gateway::settings::FrontSettings;
use afresh_core::gateway::{ClientId, Input};
use afresh_core::mcp::envelope::Id;
use afresh_core::time::Time;
use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use self::exchange::{Events, Written};
pub(crate) use self::server::Bounds;
use self::server::{BodyPlace, Host, Limit, Rooms};
use crate::clock::sleep_until;
use crate::control::listen_on;
use crate::output::Output;

/// A port that is bound, and its address.
pub(crate) type BoundPort = (TcpListener, SocketAddr);

/// Takes an address, if the settings are good.
pub(crate) fn bind(
    settings: &FrontSettings,
    address: SocketAddr,
) -> Result<BoundPort, Box<dyn Error + Send + Sync>> {
    settings.check()?;
    Ok(listen_on(address)?)
}

/// The clients that come over HTTP.
pub(crate) struct HttpFront {
    core: Front,
    /// What the hub is to be told.
    words: VecDeque<Input>,
    letters: mpsc::Receiver<ConnectionEvent>,
    outlets: BTreeMap<HttpExchange, Outlet>,
    gate: watch::Sender<Arc<Gate>>,
    closing: watch::Sender<bool>,
    tasks: JoinSet<()>,
    bounds: Bounds,
    /// When we were told to go.
    left_at: Option<Instant>,
    log: Output,
}

/// What connections tell the loop.
enum ConnectionEvent {
    /// A request, with its turn among those that wait, the place of its body among all, and where its reply goes.
    Request {
        asked: Box<FrontRequest>,
        _turn: OwnedSemaphorePermit,
        _place: Option<BodyPlace>,
        outlet: Outlet,
    },
    /// A connection is gone.
    Gone(HttpExchange),
}

/// Where something can be told to a connection.
struct Outlet {
    way: OutletKind,
    /// Ends the connection where it is set to now.
    limit: Limit,
}

enum OutletKind {
    Reply(oneshot::Sender<FrontReply>),
    Events(Arc<Written>, mpsc::Sender<Bytes>),
}

/// What a request gets.
enum FrontReply {
    Whole { status: u16, session: Option<SessionId>, body: Option<Vec<u8>> },
    Refused(HttpRefusal),
    Stream { session: Option<SessionId>, events: Events },
}

impl HttpFront {
    /// Begins to serve.
    pub(crate) fn start(
        (listener, address): BoundPort,
        settings: &FrontSettings,
        bounds: Bounds,
        log: Output,
    ) -> io::Result<Self> {
        let port = tokio::net::TcpListener::from_std(listener)?;
        // Each exchange holds a place for the word that it is gone, so there is always room for it.
        let (sender, letters) = mpsc::channel(bounds.connections_max + bounds.asks_max);
        let (closing, watch) = watch::channel(false);
        let (gate, gates) = watch::channel(Arc::new(Gate::new(settings, address.port())));
        let host = Host {
            gate: gates,
            letters: sender,
            closing: watch,
            exchanges: Arc::new(AtomicU64::new(0)),
            turns: Arc::new(Semaphore::new(bounds.asks_max)),
            rooms: Rooms::default(),
            bounds,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(server::serve(port, host));
        Ok(Self {
            core: Front::new(settings),
            words: VecDeque::new(),
            letters,
            outlets: BTreeMap::new(),
            gate,
            closing,
            tasks,
            bounds,
            left_at: None,
            log,
        })
    }

    /// The next that a client does. Cancel safe.
    pub(crate) async fn next(&mut self) -> Input {
        loop {
            if let Some(word) = self.words.pop_front() {
                return word;
            }
            let now = Time::after_start(crate::monotonic());
            let wakeup = self.core.next_wakeup().map(|at| Instant::now() + at.since(now));
            tokio::select! {
                letter = self.letters.recv() => match letter {
                    Some(letter) => self.take(letter),
                    // The server has ended, which it does only when we close.
                    None => pending().await,
                },
                () = sleep_until(wakeup) => self.handle(FrontInput::Wakeup),
            }
        }
    }

    /// Tells a client something, beside the answer to its request where it is about one. Never waits.
    pub(crate) fn tell(&mut self, client: ClientId, line: Vec<u8>, about: Option<Id>) {
        self.handle(FrontInput::Told { client, line, about });
    }

    /// The settings are these now, all but the address: they are good, and hold from the next request on.
    pub(crate) fn configure(&mut self, settings: &FrontSettings) {
        self.gate.send_modify(|gate| *gate = Arc::new(gate.renewed(settings)));
        self.handle(FrontInput::Configured(Box::new(settings.clone())));
    }

    /// Admits no more clients; pending requests can still be answered.
    pub(crate) fn leave(&mut self) {
        self.left_at.get_or_insert_with(Instant::now);
        self.closing.send_replace(true);
    }

    /// Ends all clients and connections.
    pub(crate) async fn close(mut self) {
        self.leave();
        self.handle(FrontInput::Close);
        drop((self.letters, self.outlets));
        let now = Instant::now();
        let until = self.left_at.unwrap_or(now) + self.bounds.close_wait;
        let served = async { while self.tasks.join_next().await.is_some() {} };
        timeout_at(until.max(now + self.bounds.last_wait), served).await.ok();
        self.tasks.shutdown().await;
    }

    fn take(&mut self, letter: ConnectionEvent) {
        match letter {
            ConnectionEvent::Request { asked, outlet, .. } => {
                self.outlets.insert(asked.exchange, outlet);
                self.handle(FrontInput::Request(*asked));
            }
            ConnectionEvent::Gone(exchange) => {
                self.outlets.remove(&exchange);
                self.handle(FrontInput::Gone(exchange));
            }
        }
    }

    fn handle(&mut self, input: FrontInput) {
        let now = Time::after_start(crate::monotonic());
        let mut effects = VecDeque::from(self.core.handle(now, input));
        while let Some(effect) = effects.pop_front() {
            if let Some(slow) = self.perform(effect) {
                effects.extend(self.core.handle(now, FrontInput::Slow(slow)));
            }
        }
    }

    /// Does it; returns whose connection takes no more.
    fn perform(&mut self, effect: FrontEffect) -> Option<HttpExchange> {
        match effect {
            FrontEffect::Hub(input) => self.words.push_back(input),
            FrontEffect::Answer { exchange, status, session, body } => {
                self.reply(exchange, FrontReply::Whole { status, session, body });
            }
            FrontEffect::Refuse { exchange, refusal } => {
                self.reply(exchange, FrontReply::Refused(refusal))
            }
            FrontEffect::Begin { exchange, session } => self.begin(exchange, session),
            FrontEffect::Write { exchange, event } => return self.write(exchange, &event),
            FrontEffect::End { exchange } => {
                if let Some(Outlet { way: OutletKind::Events(written, _), .. }) =
                    self.outlets.remove(&exchange)
                {
                    written.has_ended.store(true, Ordering::Relaxed);
                }
            }
            FrontEffect::Log(text) => self.log.log(&text),
        }
        None
    }

    fn reply(&mut self, exchange: HttpExchange, reply: FrontReply) {
        if let Some(Outlet { way: OutletKind::Reply(sender), .. }) = self.outlets.remove(&exchange)
        {
            // A connection that has gone meanwhile reports it itself.
            sender.send(reply).ok();
        }
    }

    fn begin(&mut self, exchange: HttpExchange, session: Option<SessionId>) {
        let Some(outlet) = self.outlets.remove(&exchange) else { return };
        let OutletKind::Reply(reply) = outlet.way else { return };
        let (sender, written, events) = Events::new();
        reply.send(FrontReply::Stream { session, events }).ok();
        let way = OutletKind::Events(written, sender);
        self.outlets.insert(exchange, Outlet { way, limit: outlet.limit });
    }

    fn write(&mut self, exchange: HttpExchange, event: &Arc<[u8]>) -> Option<HttpExchange> {
        let outlet = self.outlets.get(&exchange)?;
        let OutletKind::Events(written, sender) = &outlet.way else { return None };
        if written.admits(event.len()) && sender.try_send(Bytes::from_owner(event.clone())).is_ok()
        {
            written.unread_bytes.fetch_add(event.len(), Ordering::Relaxed);
            return None;
        }
        // Who has gone is no slow one.
        if sender.is_closed() {
            return None;
        }
        outlet.limit.until.send_replace(Some(Instant::now()));
        self.outlets.remove(&exchange);
        Some(exchange)
    }
}
