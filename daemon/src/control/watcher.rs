//! Owns the wait for changes of services, for commands that show them again and again. Never reads their states.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use afresh_core::control::{EventPage, Position};
use afresh_core::limits::{CONTROL_ANSWER_WAIT, CONTROL_ASKS_MAX, VIEW_INTERVAL};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout_at};

use super::client::{ControlError, ask};
use super::follower::{Received, listen, stream};
use crate::os::{SignalRequest, Signals};

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
    sender: mpsc::Sender<Received<()>>,
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
                    follow(&socket, &sender).await.ok();
                    socket
                });
            }
            followed.extend(sockets.iter().cloned());
            let deadline = tokio::time::Instant::now() + wait_max;
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
async fn follow(socket: &Path, found: &mpsc::Sender<Received<()>>) -> Result<(), ControlError> {
    // Only the position is wanted, and no event is so late.
    let path = format!("/v1/events?since={}", u32::MAX);
    let page: EventPage = ask(socket, "GET", &path, Vec::new(), CONTROL_ANSWER_WAIT).await?;
    let known = Position { run: Some(page.run), number: page.newest };
    found.send((0, Ok(()))).await.ok();
    let known = [("last-event-id", known.to_string())];
    let asked = (socket, "/v1/events?follow=true", &known[..]);
    stream(asked, (0, found), |_| Ok(())).await
}
