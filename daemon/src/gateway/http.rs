//! Owns the clients over Streamable HTTP: a port, its connections, and the machine of `core/src/gateway/http.rs`. Driven
//! by `next` and `tell` in the task of the loop: an idle session costs an entry in a map. Never blocks the loop.
//!
//! `connections_and_bodies.rs` accepts connections, each in a task of its own, and receives bodies, as far as there is room;
//! `idle_connections.rs` has those that wait for a request and make room for others; `exchange.rs` serves a request and has the
//! bodies of responses; `unread_messages.rs` has the messages that were handed to connections.

mod connections_and_bodies;
mod exchange;
mod idle_connections;
mod signed_sessions;
#[cfg(test)]
mod tests;
mod unread_messages;

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

use afresh_core::gateway::http::{
    Front, FrontEffect, FrontInput, FrontRequest, Gate, HttpExchange, HttpRefusal, ResumedSession,
    SentMessage, SessionId,
};
use afresh_core::gateway::settings::{FrontAddress, FrontSettings};
use afresh_core::gateway::{ClientId, Input};
use afresh_core::limits::{TURN_TOLD_BYTES_MAX, TURN_TOLD_EACH_BYTES};
use afresh_core::mcp::envelope::Id;
use afresh_core::time::Time;
use hyper::body::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout_at};

pub(crate) use self::connections_and_bodies::Bounds;
use self::connections_and_bodies::{BodyPlace, Host, Limit, Rooms, Turn, Turns};
#[cfg(feature = "fuzzing")]
pub use self::exchange::admit_request;
use self::exchange::{Events, Written};
use self::idle_connections::WaitingConnections;
pub(crate) use self::signed_sessions::EndedSessions;
use self::signed_sessions::StoredEnd;
use self::unread_messages::WrittenMessages;
use crate::clock::sleep_until;
use crate::control::BoundPort;
use crate::http::Door;
use crate::os::{SOCKET_PATH_BYTES_MAX, SocketListener, has_listener, is_socket};
use crate::output::Output;
use crate::refusals::Refusals;

/// A port or a socket that is bound.
#[derive(Debug)]
pub(crate) enum BoundFront {
    Port(BoundPort),
    Socket(SocketListener, PathBuf),
}

/// Why a path is not listened on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    #[error("the path `{0}` is longer than {SOCKET_PATH_BYTES_MAX} bytes; take a shorter one")]
    TooLong(PathBuf),
    #[error("`{0}` is in use by another process; take another path")]
    InUse(PathBuf),
    #[error("`{0}` is there and is not a socket; take another path")]
    NotASocket(PathBuf),
    #[error("cannot listen on `{0}`")]
    Bind(PathBuf, #[source] io::Error),
}

/// Takes an address, if the settings are good.
pub(crate) fn bind(
    settings: &FrontSettings,
    address: &FrontAddress,
) -> Result<BoundFront, Box<dyn Error + Send + Sync>> {
    settings.check()?;
    Ok(match address {
        FrontAddress::Port(address) => BoundFront::Port(BoundPort::listen(*address)?),
        FrontAddress::Socket(path) => BoundFront::Socket(bind_socket(path)?, path.clone()),
    })
}

/// Listens on a path, for this user alone. The socket of a process that has ended gives way; nothing else does.
fn bind_socket(path: &Path) -> Result<SocketListener, SocketError> {
    let named = || path.to_owned();
    let mut unnamed = path.as_os_str().to_owned();
    unnamed.push(format!(".{}", std::process::id()));
    if unnamed.len() > SOCKET_PATH_BYTES_MAX {
        return Err(SocketError::TooLong(named()));
    }
    match fs::symlink_metadata(path) {
        Ok(metadata) if !is_socket(&metadata) => return Err(SocketError::NotASocket(named())),
        Ok(_) if has_listener(path) => return Err(SocketError::InUse(named())),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(SocketError::Bind(named(), error)),
    }
    SocketListener::bind(path, Path::new(&unnamed))
        .map_err(|error| SocketError::Bind(named(), error))
}

impl BoundFront {
    /// Where it is, for the log.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Port(port) => format!("clients are served at http://{}/mcp", port.address),
            Self::Socket(_, path) => {
                format!("clients are served at `/mcp` on the socket `{}`", path.display())
            }
        }
    }

    /// As connections are accepted, and the port; 0 for none.
    fn door(self) -> io::Result<(Door, u16)> {
        Ok(match self {
            Self::Port(port) => {
                let number = port.address.port();
                (port.door()?, number)
            }
            Self::Socket(listener, _) => (Door::Socket(listener), 0),
        })
    }
}

/// The clients that come over HTTP.
pub(crate) struct HttpFront {
    core: Front,
    /// What the hub is to be told.
    words: VecDeque<Input>,
    letters: mpsc::Receiver<ConnectionEvent>,
    outlets: BTreeMap<HttpExchange, Outlet>,
    /// Messages that connections have written, and the core does not know of yet.
    written: WrittenMessages,
    /// Bytes that connections were given since they last had a turn.
    told_bytes: usize,
    gate: watch::Sender<Arc<Gate>>,
    closing: watch::Sender<bool>,
    tasks: JoinSet<()>,
    bounds: Bounds,
    /// When we were told to go.
    left_at: Option<Instant>,
    log: Output,
    ended: EndedSessions,
    /// The last end of a session among the effects that are performed now.
    last_end: Option<StoredEnd>,
}

/// What connections tell the loop.
enum ConnectionEvent {
    /// A request, with its turn among those that wait, the place of its body among all, and where its reply goes.
    Request {
        asked: Box<FrontRequest>,
        /// The header of that name, where the request is of a session.
        authorization: Option<String>,
        _turn: Turn,
        _place: Option<BodyPlace>,
        outlet: Outlet,
    },
    /// A connection is gone.
    Gone(HttpExchange),
}

/// Where something can be told to a connection.
struct Outlet {
    way: OutletKind,
    /// Of whose request it is.
    token: Option<usize>,
    /// Ends the connection where it is set to now.
    limit: Limit,
}

enum OutletKind {
    /// With what is to be stored before the client gets it.
    Reply(oneshot::Sender<(FrontReply, Option<StoredEnd>)>),
    Events(Arc<Written>, mpsc::Sender<Bytes>),
}

/// What a request gets.
enum FrontReply {
    Whole { status: u16, session: Option<SessionId>, body: Option<Bytes> },
    Refused(HttpRefusal),
    Stream { session: Option<SessionId>, events: Events },
}

impl HttpFront {
    /// Begins to serve.
    pub(crate) fn start(
        bound: BoundFront,
        settings: &FrontSettings,
        bounds: Bounds,
        (log, refusals): (Output, Refusals),
        ended: EndedSessions,
    ) -> io::Result<Self> {
        let (door, port) = bound.door()?;
        // Each exchange holds a place for the word that it is gone, so there is always room for it.
        let (sender, letters) = mpsc::channel(bounds.connections_max + bounds.asks_max);
        let (closing, watch) = watch::channel(false);
        let (gate, gates) = watch::channel(Arc::new(Gate::new(settings, port)));
        let host = Host {
            gate: gates,
            letters: sender,
            closing: watch,
            exchanges: Arc::new(AtomicU64::new(0)),
            turns: Turns::new(bounds.asks_max),
            rooms: Rooms::default(),
            waiting: WaitingConnections::default(),
            bounds,
            refusals,
            signer: ended.signer(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(connections_and_bodies::serve(door, host));
        Ok(Self {
            core: Front::new(settings),
            words: VecDeque::new(),
            letters,
            outlets: BTreeMap::new(),
            written: WrittenMessages::default(),
            told_bytes: 0,
            gate,
            closing,
            tasks,
            bounds,
            left_at: None,
            log,
            ended,
            last_end: None,
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

    /// Whether connections were given so much that they should have a turn to write it; true once.
    pub(crate) fn gives_way(&mut self) -> bool {
        let is_much = self.told_bytes >= TURN_TOLD_BYTES_MAX;
        if is_much {
            self.told_bytes = 0;
        }
        is_much
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
        let ended = self.ended;
        spawn_blocking(move || ended.close()).await.ok();
    }

    fn take(&mut self, letter: ConnectionEvent) {
        match letter {
            ConnectionEvent::Request { mut asked, authorization, outlet, .. } => {
                // Signatures take longer than all else: they are checked where the session is not known.
                if let Some(name) = &asked.session
                    && !self.core.has_session(name)
                {
                    let params = self.ended.resumable(name, authorization.as_deref());
                    // A gateway numbers less than one event in a microsecond: those before have lower numbers.
                    let numbers_from = (crate::clock::now().unix_nanos() / 1_000) as u64;
                    asked.resumes = params.map(|params| ResumedSession { params, numbers_from });
                }
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
        for message in self.written.take() {
            self.core.handle(now, FrontInput::Written(message));
        }
        let mut effects = VecDeque::from(self.core.handle(now, input));
        while let Some(effect) = effects.pop_front() {
            if let Some(slow) = self.perform(now, effect) {
                effects.extend(self.core.handle(now, FrontInput::Slow(slow)));
            }
        }
        self.last_end = None;
    }

    /// Does it; returns whose connection takes no more.
    fn perform(&mut self, now: Time, effect: FrontEffect) -> Option<HttpExchange> {
        match effect {
            FrontEffect::Hub(input) => self.words.push_back(input),
            FrontEffect::Answer { exchange, status, session, body } => {
                let token = self.outlets.get(&exchange).and_then(|outlet| outlet.token);
                let body = body.map(|body| self.sent(now, token, exchange, body));
                self.reply(exchange, FrontReply::Whole { status, session, body });
            }
            FrontEffect::Refuse { exchange, refusal } => {
                self.reply(exchange, FrontReply::Refused(refusal))
            }
            FrontEffect::Begin { exchange, session } => self.begin(exchange, session),
            FrontEffect::Write { exchange, event } => return self.write(now, exchange, event),
            FrontEffect::End { exchange } => {
                if let Some(Outlet { way: OutletKind::Events(written, _), .. }) =
                    self.outlets.remove(&exchange)
                {
                    written.has_ended.store(true, Ordering::Relaxed);
                }
            }
            FrontEffect::SessionEnded(session) => self.last_end = self.ended.note(session),
            FrontEffect::Log(text) => self.log.log(&text),
        }
        None
    }

    /// A message for a connection, which counts as unread until the connection has dropped it.
    fn sent(
        &mut self,
        now: Time,
        token: Option<usize>,
        exchange: HttpExchange,
        message: impl AsRef<[u8]> + Send + 'static,
    ) -> Bytes {
        let bytes = message.as_ref().len();
        let sent = SentMessage { token, exchange, bytes };
        self.told_bytes += bytes + TURN_TOLD_EACH_BYTES;
        self.core.handle(now, FrontInput::Sent(sent));
        self.written.bytes_of(message, sent)
    }

    fn reply(&mut self, exchange: HttpExchange, reply: FrontReply) {
        if let Some(Outlet { way: OutletKind::Reply(sender), .. }) = self.outlets.remove(&exchange)
        {
            // A connection that has gone meanwhile reports it itself.
            sender.send((reply, self.last_end.clone())).ok();
        }
    }

    fn begin(&mut self, exchange: HttpExchange, session: Option<SessionId>) {
        let Some(outlet) = self.outlets.remove(&exchange) else { return };
        let OutletKind::Reply(reply) = outlet.way else { return };
        let (sender, written, events) = Events::new();
        reply.send((FrontReply::Stream { session, events }, None)).ok();
        let way = OutletKind::Events(written, sender);
        self.outlets.insert(exchange, Outlet { way, ..outlet });
    }

    fn write(
        &mut self,
        now: Time,
        exchange: HttpExchange,
        event: Arc<[u8]>,
    ) -> Option<HttpExchange> {
        let Outlet { way: OutletKind::Events(written, sender), token, .. } =
            self.outlets.get(&exchange)?
        else {
            return None;
        };
        let (written, sender, token) = (Arc::clone(written), sender.clone(), *token);
        let length = event.len();
        if written.admits(length)
            && self.core.has_room(token, length)
            && sender.try_send(self.sent(now, token, exchange, event)).is_ok()
        {
            written.unread_bytes.fetch_add(length, Ordering::Relaxed);
            return None;
        }
        // Who has gone is no slow one.
        if sender.is_closed() {
            return None;
        }
        let outlet = self.outlets.get(&exchange)?;
        outlet.limit.until.send_replace(Some(Instant::now()));
        self.outlets.remove(&exchange);
        Some(exchange)
    }
}
