//! Owns the commands' end of streams of server-sent events: follows the lines and the events of running afresh
//! processes, or only waits for changes. Driven by the commands. Never reads the states of services.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use afresh_core::control::{EventPage, Gap, LogLine, NumberedEvent, Position};
use afresh_core::limits::{
    CONTROL_ANSWER_BYTES_MAX, CONTROL_ASKS_MAX, FOLLOW_POLL_INTERVAL, FOLLOW_TRIES_MAX,
    VIEW_INTERVAL,
};
use afresh_core::sse::{SseEvent, SseParser};
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::client::{
    ControlError, ServiceAddress, broken, get, is_gone, new_runtime, refused, request, strange,
};
use crate::os::{SignalRequest, Signals, Sink};

/// What is heard of an afresh that is followed.
#[derive(Clone, Debug, PartialEq)]
pub enum Followed {
    /// Something has happened.
    Event(NumberedEvent),
    /// Some of what has happened is missing here.
    Gap(Gap),
}

/// Where followers hand on what comes.
type Sender<T> = mpsc::Sender<Received<T>>;

/// What was found, and whose it is.
type Received<T> = (usize, Result<T, ControlError>);

/// What a follower does when all services have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// It ends too.
    Leave,
    /// It waits until it is told to end.
    Stay,
}

/// Why following is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parted {
    /// All that was followed has ended.
    Ended,
    /// A signal wants us to end, or the reader of our stdout has gone.
    Told,
}

/// Follows running afresh processes. A signal that comes before it has begun to follow is not lost.
pub struct Follower {
    // Before the runtime that it belongs to.
    signals: Signals,
    runtime: Runtime,
}

impl Follower {
    /// One that follows no service yet, and takes the signals that tell us to end from now on.
    pub fn new() -> Result<Self, ControlError> {
        let (signals, runtime) = listen()?;
        Ok(Self { signals, runtime })
    }

    /// Follows the lines of services, each from a number on, until all of them have ended, the reader
    /// of our stdout has gone, or a signal wants us to end.
    pub fn lines(
        mut self,
        targets: Vec<(ServiceAddress, u64)>,
        at_end: AtEnd,
        print: impl FnMut(usize, LogLine) -> io::Result<()>,
    ) -> Result<Parted, ControlError> {
        let follow = |at, (address, since): (ServiceAddress, u64), sender: Sender<_>| async move {
            follow_lines(at, &address, since, &sender).await
        };
        self.runtime.block_on(pass_on(&mut self.signals, targets, follow, at_end, print))
    }

    /// Follows what happens in afresh processes, each from a position on. A connection that breaks is
    /// made again, and goes on where it was, for as long as its receiver is there.
    pub fn events(
        mut self,
        from: Vec<(PathBuf, Position)>,
        print: impl FnMut(usize, Followed) -> io::Result<()>,
    ) -> Result<(), ControlError> {
        let follow = |at, (socket, position): (PathBuf, Position), sender: Sender<_>| async move {
            follow_told(at, &socket, position, &sender).await
        };
        let followed = pass_on(&mut self.signals, from, follow, AtEnd::Leave, print);
        self.runtime.block_on(followed).map(|_| ())
    }
}

/// The signals that tell us to end, taken from now on, and the event loop that they belong to.
fn listen() -> Result<(Signals, Runtime), ControlError> {
    let runtime = new_runtime()?;
    let signals = {
        let _entered = runtime.enter();
        Signals::listen().map_err(ControlError::Runtime)?
    };
    Ok((signals, runtime))
}

async fn follow_lines(
    at: usize,
    target: &ServiceAddress,
    since: u64,
    found: &Sender<LogLine>,
) -> Result<(), ControlError> {
    let path = target.path(&format!("logs?follow=true&since={since}"));
    stream((&target.socket, &path, &[]), (at, found), |event| read(event, &target.socket)).await
}

async fn follow_told(
    at: usize,
    socket: &Path,
    mut position: Position,
    found: &Sender<Followed>,
) -> Result<(), ControlError> {
    let mut tries = 0;
    loop {
        let known = [("last-event-id", position.to_string())];
        let asked = (socket, "/v1/events?follow=true", &known[..]);
        let ended = stream(asked, (at, found), |event| {
            if let Some(known) = event.id.as_deref().and_then(Position::parse) {
                position = known;
                tries = 0;
            }
            Ok(match event.name.as_str() {
                "gap" => Followed::Gap(read(event, socket)?),
                _ => Followed::Event(read(event, socket)?),
            })
        })
        .await;
        match ended {
            Err(ControlError::Broken { .. }) if tries < FOLLOW_TRIES_MAX => tries += 1,
            // It has gone meanwhile.
            Err(ControlError::Connect { source, .. }) if tries > 0 && is_gone(&source) => {
                return Ok(());
            }
            ended => return ended,
        }
        sleep(FOLLOW_POLL_INTERVAL).await;
    }
}

/// The end of an afresh is the end of what it tells, however it ended.
async fn tell_end<T>(at: usize, ended: Result<(), ControlError>, found: &Sender<T>) {
    match ended {
        Ok(()) | Err(ControlError::Broken { .. }) => {}
        // It was there when it was found.
        Err(ControlError::Connect { source, .. }) if is_gone(&source) => {}
        Err(error) => drop(found.send((at, Err(error))).await),
    }
}

/// Follows each of these, and hands on what comes.
async fn pass_on<
    S,
    T: Send + 'static,
    F: Future<Output = Result<(), ControlError>> + Send + 'static,
>(
    signals: &mut Signals,
    sources: Vec<S>,
    follow: impl Fn(usize, S, Sender<T>) -> F,
    at_end: AtEnd,
    mut print: impl FnMut(usize, T) -> io::Result<()>,
) -> Result<Parted, ControlError> {
    let (sender, mut found) = mpsc::channel(CONTROL_ASKS_MAX);
    let mut followers = JoinSet::new();
    for (at, source) in sources.into_iter().enumerate() {
        let (following, sender) = (follow(at, source, sender.clone()), sender.clone());
        followers.spawn(async move { tell_end(at, following.await, &sender).await });
    }
    drop(sender);
    let sink = Sink::stdout();
    let mut goes_on = true;
    loop {
        tokio::select! {
            next = found.recv(), if goes_on => match next {
                None if at_end == AtEnd::Leave => return Ok(Parted::Ended),
                None => goes_on = false,
                Some((at, Ok(it))) => print(at, it).map_err(ControlError::Print)?,
                Some((_, Err(error))) => return Err(error),
            },
            asked = signals.next() => if !matches!(asked, SignalRequest::Restart(_)) {
                return Ok(Parted::Told);
            },
            // Nothing tells us that the reader of what is quiet has gone.
            () = sleep(FOLLOW_POLL_INTERVAL) => {
                if sink.as_ref().is_none_or(Sink::is_closed) {
                    return Ok(Parted::Told);
                }
            }
        }
    }
}

/// The value in the data of an event.
fn read<T: DeserializeOwned>(event: &SseEvent, socket: &Path) -> Result<T, ControlError> {
    serde_json::from_slice(&event.data).map_err(|_| strange(socket))
}

/// Asks for events, and hands on the value of each, until the receiver has gone or the stream ends.
async fn stream<T>(
    (socket, path, headers): (&Path, &str, &[(&str, String)]),
    (at, found): (usize, &Sender<T>),
    mut read: impl FnMut(&SseEvent) -> Result<T, ControlError>,
) -> Result<(), ControlError> {
    let mut response = request(socket, ("GET", path), headers, Vec::new()).await?;
    if !response.is_success() {
        return Err(refused(socket, response).await);
    }
    let mut parser = SseParser::new(CONTROL_ANSWER_BYTES_MAX);
    while let Some(bytes) = response.next().await {
        for event in parser.push(&bytes.map_err(|source| broken(socket, source))?) {
            if event.is_too_long {
                return Err(strange(socket));
            }
            if event.data.is_empty() {
                continue;
            }
            if found.send((at, Ok(read(&event)?))).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Something has happened, or the time is over.
    Look,
    /// A signal wants us to end.
    End,
}

/// Listens to afresh processes between one look and the next. A signal that comes during a look is not lost.
pub struct Watcher {
    // Before the runtime that it belongs to.
    signals: Signals,
    followers: JoinSet<PathBuf>,
    followed: BTreeSet<PathBuf>,
    sender: Sender<()>,
    told: mpsc::Receiver<Received<()>>,
    runtime: Runtime,
}

impl Watcher {
    /// One that follows no afresh yet.
    pub fn new() -> Result<Self, ControlError> {
        let (signals, runtime) = listen()?;
        let (sender, told) = mpsc::channel(CONTROL_ASKS_MAX);
        let (followers, followed) = (JoinSet::new(), BTreeSet::new());
        Ok(Self { signals, followers, followed, sender, told, runtime })
    }

    /// Waits until something happens in one of these, one of them ends, or the time is over.
    pub fn wait(&mut self, sockets: &[PathBuf], wait_max: Duration) -> Woken {
        let Self { signals, followers, followed, sender, told, runtime } = self;
        runtime.block_on(async {
            for socket in sockets.iter().filter(|socket| !followed.contains(*socket)) {
                let (socket, sender) = (socket.clone(), sender.clone());
                followers.spawn(async move {
                    // Who cannot be followed is looked at from time to time.
                    follow_changes(&socket, &sender).await.ok();
                    socket
                });
            }
            followed.extend(sockets.iter().cloned());
            let deadline = Instant::now() + wait_max;
            let happened = async {
                tokio::select! {
                    // It has a sender of ours, and goes on.
                    _ = told.recv() => {}
                    Some(ended) = followers.join_next() => {
                        if let Ok(socket) = ended {
                            followed.remove(&socket);
                        }
                    }
                }
                // What happens together is shown together.
                sleep(VIEW_INTERVAL).await;
                while told.try_recv().is_ok() {}
            };
            let mut happened = std::pin::pin!(timeout_at(deadline, happened));
            loop {
                tokio::select! {
                    _ = &mut happened => return Woken::Look,
                    asked = signals.next() => if !matches!(asked, SignalRequest::Restart(_)) {
                        return Woken::End;
                    },
                }
            }
        })
    }
}

/// Says whenever something happens, and once when it has begun to listen: until then it was deaf.
async fn follow_changes(socket: &Path, found: &Sender<()>) -> Result<(), ControlError> {
    // Only the position is wanted, and no event is so late.
    let path = format!("/v1/events?since={}", u32::MAX);
    let page: EventPage = get(socket, &path).await?;
    let known = Position { run: Some(page.run), number: page.newest };
    found.send((0, Ok(()))).await.ok();
    let known = [("last-event-id", known.to_string())];
    let asked = (socket, "/v1/events?follow=true", &known[..]);
    stream(asked, (0, found), |_| Ok(())).await
}
