//! Takes connections to the control socket, and to a port where there is one, and serves them, each in a
//! task of its own. One request a connection: a client that wants more connects again.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use afresh_core::audit::{Actor, Refusal};
use afresh_core::control::{Change, VersionAnswer};
use afresh_core::http_access::Guard;
use afresh_core::id::ServiceId;
use afresh_core::limits::{
    CONTROL_ASKS_MAX, CONTROL_BUFFER_BYTES, CONTROL_CLOSE_WAIT, CONTROL_CONNECTIONS_MAX,
    CONTROL_FOLLOWERS_MAX, CONTROL_HEADER_WAIT, CONTROL_REQUEST_WAIT, OUTPUT_RETRY_PAUSE,
};
use afresh_core::service::Rest;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::client::is_dead;
use super::loop_requests::{About, LoopRequest};
use super::port_and_token::Listen;
use super::request_handlers::route;
use super::socket_path::{RuntimeFolders, owner_of};
use crate::http::{Door, Entered, Foreign};
use crate::recent_events::Events;
use crate::refusals::Refusals;
use crate::supervise::Supervisor;

/// The control API of this process, and what the loop is asked over it.
pub(crate) struct Control {
    asks: mpsc::Receiver<LoopRequest>,
    about: About,
    closing: watch::Sender<bool>,
    tasks: JoinSet<()>,
    /// Services that were stopped over it: a client may want them back.
    stopped: BTreeSet<ServiceId>,
}

impl Control {
    /// Starts it; without folders and without a port there are no clients. The socket is made when
    /// the loop first waits for something: nothing waits for it, and nothing fails with it.
    pub(crate) fn start(
        folders: Option<RuntimeFolders>,
        listen: Option<Listen>,
        about: About,
        supervise: &Supervisor,
    ) -> Self {
        let recorder = &supervise.recorder;
        let (log, events) = (recorder.stderr.clone(), recorder.events.clone());
        let refusals = recorder.refusals.clone();
        Self::serve(folders, listen, about, (events, refusals), move |text| log.log(text))
    }

    /// The same, with events, a record of refusals and a log from elsewhere.
    pub(crate) fn serve(
        folders: Option<RuntimeFolders>,
        listen: Option<Listen>,
        about: About,
        (events, refusals): (Events, Refusals),
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let (sender, asks) = mpsc::channel(CONTROL_ASKS_MAX);
        let (closing, watch) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let version = Arc::new(about.version(events.ring().run.clone()));
        let host = Host {
            asks: sender,
            closing: watch,
            followers: Arc::new(Semaphore::new(CONTROL_FOLLOWERS_MAX)),
            guard: None,
            peer: Actor::Afresh("unknown peer"),
            version,
            events,
            refusals,
        };
        if let Some(listen) = listen {
            log(&listen.told());
            let host = Host { guard: Some(Arc::new(listen.guard)), ..host.clone() };
            match listen.port.door() {
                Ok(door) => drop(tasks.spawn(serve(door, host, JoinSet::new()))),
                Err(error) => log(&format!("the control API has no port: {error}")),
            }
        }
        // Bound before a command is told that all is set up: the next one looks for the socket.
        if let Some(folders) = folders
            && let Some(socket) = folders.listen(log)
        {
            let mut connections = JoinSet::new();
            connections.spawn(sweep(folders));
            tasks.spawn(serve(Door::Socket(socket), host, connections));
        }
        Self { asks, about, closing, tasks, stopped: BTreeSet::new() }
    }

    /// The next question. Cancel safe.
    pub(crate) async fn next(&mut self) -> LoopRequest {
        match self.asks.recv().await {
            Some(ask) => ask,
            None => std::future::pending().await,
        }
    }

    /// Answers a question.
    pub(crate) async fn answer(&mut self, supervise: &mut Supervisor, ask: LoopRequest) {
        if let LoopRequest::Change { name, what, .. } = &ask {
            let id = supervise.services.named(name);
            match what {
                Change::Stop => self.stopped.extend(id),
                Change::Start | Change::Restart => self.stopped.retain(|its| Some(*its) != id),
            }
        }
        self.about.answer(supervise, ask).await;
    }

    /// Whether a service is down only because a client stopped it over the API, and may start it again.
    pub(crate) fn holds(&self, supervise: &Supervisor) -> bool {
        let is_down = |id: &ServiceId| {
            supervise.fleet.service(*id).is_some_and(|its| its.rest() == Some(&Rest::Stopped))
        };
        self.stopped.iter().any(is_down)
    }

    /// Removes the socket; those who follow get the last lines.
    pub(crate) async fn close(mut self) {
        drop(self.asks);
        self.closing.send_replace(true);
        let served = async { while self.tasks.join_next().await.is_some() {} };
        timeout(CONTROL_CLOSE_WAIT, served).await.ok();
        self.tasks.shutdown().await;
    }
}

/// What a connection is given.
#[derive(Clone)]
pub(super) struct Host {
    pub(super) asks: mpsc::Sender<LoopRequest>,
    /// Turns true when afresh ends.
    pub(super) closing: watch::Receiver<bool>,
    pub(super) followers: Arc<Semaphore>,
    /// The check of every client; none where the kernel has said which user it is.
    pub(super) guard: Option<Arc<Guard>>,
    /// The other end of the connection.
    pub(super) peer: Actor,
    pub(super) events: Events,
    pub(super) version: Arc<VersionAnswer>,
    pub(super) refusals: Refusals,
}

impl Host {
    /// The client of a request that was admitted, for the trail.
    pub(super) fn caller(&self) -> Actor {
        match self.guard {
            Some(_) => Actor::Token("control".to_owned()),
            None => self.peer.clone(),
        }
    }
}

/// Each door has connections of its own: a flood of the one does not close the other.
async fn serve(door: Door, host: Host, mut connections: JoinSet<()>) {
    let mut closing = host.closing.clone();
    loop {
        tokio::select! {
            _ = closing.changed() => break,
            accepted = door.accept(), if connections.len() < CONTROL_CONNECTIONS_MAX => {
                match accepted {
                    Ok(Ok(entered)) => drop(connections.spawn(converse(entered, host.clone()))),
                    Ok(Err(Foreign(by))) => {
                        let reason = "the control socket is for its user alone".to_owned();
                        let (status, request) = (None, String::new());
                        host.refusals.note(Refusal { by, status, request, reason });
                    }
                    // Out of descriptors, say: it may pass.
                    Err(_) => sleep(OUTPUT_RETRY_PAUSE * 20).await,
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop(door);
    drop(host);
    while connections.join_next().await.is_some() {}
}

/// Removes the sockets of processes that are gone.
async fn sweep(folders: RuntimeFolders) {
    folders.remove_leftovers();
    let own = Some(std::process::id());
    for socket in folders.sockets().into_iter().filter(|socket| owner_of(socket) != own) {
        is_dead(&socket).await;
    }
}

/// Serves one connection, for as long as it may take.
async fn converse(entered: Entered, host: Host) {
    let peer = entered.peer.clone();
    let wire = entered.wire();
    let host = Host { peer, ..host };
    let (deadline, mut changes) = watch::channel(Some(Instant::now() + CONTROL_HEADER_WAIT));
    let service = service_fn(|request: Request<Incoming>| {
        deadline.send_replace(Some(Instant::now() + CONTROL_REQUEST_WAIT));
        let (host, deadline) = (&host, &deadline);
        async move {
            let (answer, has_end) = route(request, host).await;
            if !has_end {
                deadline.send_replace(None);
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(CONTROL_BUFFER_BYTES)
        .serve_connection(wire, service);
    let mut connection = std::pin::pin!(connection);
    loop {
        let until = *changes.borrow_and_update();
        tokio::select! {
            // An end by the client needs no word.
            _ = &mut connection => return,
            _ = changes.changed() => {}
            () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => return,
        }
    }
}
