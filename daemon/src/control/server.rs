//! Takes connections to the control socket and serves them, each in a task of its own. One request a
//! connection: whoever wants more connects again.

use std::convert::Infallible;
use std::sync::Arc;

use afresh_core::limits::{
    CONTROL_ASKS_MAX, CONTROL_BUFFER_BYTES, CONTROL_CLOSE_WAIT, CONTROL_CONNECTIONS_MAX,
    CONTROL_FOLLOWERS_MAX, CONTROL_HEADER_WAIT, CONTROL_REQUEST_WAIT, OUTPUT_RETRY_PAUSE,
};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::answer::{About, Ask};
use super::client::is_dead;
use super::place::{RuntimeFolders, owner_of};
use super::route::route;
use super::wire::Wire;
use crate::os::{SocketStream, is_own_peer};
use crate::output::Output;
use crate::supervise::Supervise;

/// The control socket of this process, and what the loop is asked over it.
pub(crate) struct Control {
    asks: mpsc::Receiver<Ask>,
    about: About,
    closing: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Control {
    /// Starts it; without folders nobody can ask anything. The socket is made when the loop first
    /// waits for something: nothing waits for it, and nothing fails with it.
    pub(crate) fn start(folders: Option<RuntimeFolders>, about: About, log: Output) -> Self {
        let (sender, asks) = mpsc::channel(CONTROL_ASKS_MAX);
        let (closing, watch) = watch::channel(false);
        let mut tasks = JoinSet::new();
        if let Some(folders) = folders {
            let followers = Arc::new(Semaphore::new(CONTROL_FOLLOWERS_MAX));
            let host = Host { asks: sender, closing: watch, followers };
            tasks.spawn(serve(folders, host, log));
        }
        Self { asks, about, closing, tasks }
    }

    /// The next question. Cancel safe.
    pub(crate) async fn next(&mut self) -> Ask {
        match self.asks.recv().await {
            Some(ask) => ask,
            None => std::future::pending().await,
        }
    }

    /// Answers a question.
    pub(crate) async fn answer(&self, supervise: &mut Supervise, ask: Ask) {
        self.about.answer(supervise, ask).await;
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
    pub(super) asks: mpsc::Sender<Ask>,
    /// Turns true when afresh ends.
    pub(super) closing: watch::Receiver<bool>,
    pub(super) followers: Arc<Semaphore>,
}

async fn serve(folders: RuntimeFolders, host: Host, log: Output) {
    let Some(socket) = folders.listen(|text| log.log(text)) else { return };
    // Held no longer than needed: it keeps the stream of the log open.
    drop(log);
    let mut closing = host.closing.clone();
    let mut connections = JoinSet::new();
    connections.spawn(sweep(folders));
    loop {
        tokio::select! {
            _ = closing.changed() => break,
            accepted = socket.accept(), if connections.len() < CONTROL_CONNECTIONS_MAX => {
                match accepted {
                    Ok(stream) if is_own_peer(&stream) => {
                        connections.spawn(converse(stream, host.clone()));
                    }
                    Ok(_) => {}
                    // Out of descriptors, say: it may pass.
                    Err(_) => sleep(OUTPUT_RETRY_PAUSE * 20).await,
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop(socket);
    drop(host);
    while connections.join_next().await.is_some() {}
}

/// Removes the sockets that nobody listens to any more.
async fn sweep(folders: RuntimeFolders) {
    folders.remove_leftovers();
    let own = Some(std::process::id());
    for socket in folders.sockets().into_iter().filter(|socket| owner_of(socket) != own) {
        is_dead(&socket).await;
    }
}

/// Serves one connection, for as long as it may take.
async fn converse(stream: SocketStream, host: Host) {
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
        .serve_connection(Wire(stream), service);
    let mut connection = std::pin::pin!(connection);
    loop {
        let until = *changes.borrow_and_update();
        tokio::select! {
            // However it ended: whoever broke it knows.
            _ = &mut connection => return,
            _ = changes.changed() => {}
            () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => return,
        }
    }
}
