//! Following from the other end: server-sent events of running afresh processes, as they come.

use std::io;
use std::path::{Path, PathBuf};

use afresh_core::control::{Gap, LogLine, NumberedEvent, Position};
use afresh_core::limits::{
    CONTROL_ANSWER_BYTES_MAX, CONTROL_ASKS_MAX, FOLLOW_POLL_INTERVAL, FOLLOW_TRIES_MAX,
};
use afresh_core::sse::{SseEvent, SseParser};
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::client::{ControlError, ServiceAddress, broken, is_gone, refused, request, strange};
use crate::os::{SignalRequest, Signals, Sink};

/// What is heard of an afresh that is followed.
#[derive(Clone, Debug, PartialEq)]
pub enum Followed {
    /// Something has happened.
    Event(NumberedEvent),
    /// Some of what has happened is missing here.
    Gap(Gap),
}

/// What was found, and whose it is.
pub(super) type Received<T> = (usize, Result<T, ControlError>);

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
        self.runtime.block_on(async {
            let (sender, found) = mpsc::channel(CONTROL_ASKS_MAX);
            let mut followers = JoinSet::new();
            for (at, (target, since)) in targets.into_iter().enumerate() {
                let sender = sender.clone();
                followers.spawn(async move {
                    let ended = follow_lines(at, &target, since, &sender).await;
                    tell_end(at, ended, &sender).await;
                });
            }
            drop(sender);
            pass_on(&mut self.signals, found, at_end, print).await
        })
    }

    /// Follows what happens in afresh processes, each from a position on. A connection that breaks is
    /// made again, and goes on where it was, for as long as its receiver is there.
    pub fn events(
        mut self,
        from: Vec<(PathBuf, Position)>,
        print: impl FnMut(usize, Followed) -> io::Result<()>,
    ) -> Result<(), ControlError> {
        self.runtime.block_on(async {
            let (sender, found) = mpsc::channel(CONTROL_ASKS_MAX);
            let mut followers = JoinSet::new();
            for (at, (socket, position)) in from.into_iter().enumerate() {
                let sender = sender.clone();
                followers.spawn(async move {
                    let ended = follow_told(at, &socket, position, &sender).await;
                    tell_end(at, ended, &sender).await;
                });
            }
            drop(sender);
            pass_on(&mut self.signals, found, AtEnd::Leave, print).await.map(|_| ())
        })
    }
}

/// The signals that tell us to end, taken from now on, and the event loop that they belong to.
pub(super) fn listen() -> Result<(Signals, Runtime), ControlError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ControlError::Runtime)?;
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
    found: &mpsc::Sender<Received<LogLine>>,
) -> Result<(), ControlError> {
    let path = target.path(&format!("logs?follow=true&since={since}"));
    stream((&target.socket, &path, &[]), (at, found), |event| read(event, &target.socket)).await
}

async fn follow_told(
    at: usize,
    socket: &Path,
    mut position: Position,
    found: &mpsc::Sender<Received<Followed>>,
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
async fn tell_end<T>(
    at: usize,
    ended: Result<(), ControlError>,
    found: &mpsc::Sender<Received<T>>,
) {
    match ended {
        Ok(()) | Err(ControlError::Broken { .. }) => {}
        // It was there when it was found.
        Err(ControlError::Connect { source, .. }) if is_gone(&source) => {}
        Err(error) => drop(found.send((at, Err(error))).await),
    }
}

/// Hands on what comes.
async fn pass_on<T>(
    signals: &mut Signals,
    mut found: mpsc::Receiver<Received<T>>,
    at_end: AtEnd,
    mut print: impl FnMut(usize, T) -> io::Result<()>,
) -> Result<Parted, ControlError> {
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
pub(super) async fn stream<T>(
    (socket, path, headers): (&Path, &str, &[(&str, String)]),
    (at, found): (usize, &mpsc::Sender<Received<T>>),
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
