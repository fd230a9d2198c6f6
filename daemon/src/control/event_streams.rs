//! Owns the streams of server-sent events: lines of a service, or events, from the position of the client on. Driven by
//! the connection that sends them. Never holds up the loop.

use afresh_core::control::{Gap, LogLine, LogStream, Position};
use afresh_core::limits::CONTROL_PING_INTERVAL;
use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::sleep;

use super::json;
use crate::http::{NextPieces, Pieces};
use crate::recent_events::Events;
use crate::recent_lines::Logs;

/// What makes one piece of an answer: nothing is gained by more at once.
const AT_ONCE: usize = 64;

/// A sign of life, which clients pass over.
const PING: &str = ": still here\n\n";

/// What can be followed.
pub(super) trait FollowSource: Send + 'static {
    /// Changes when there is something new.
    fn newest(&self) -> watch::Receiver<u64>;

    /// What is new, as events; none where nothing is.
    fn next(&mut self) -> Option<String>;
}

/// A client that follows. It gets what it takes: what is forgotten meanwhile is missing.
pub(super) struct Following<S> {
    pub(super) source: S,
    /// Turns true when afresh ends.
    pub(super) closing: watch::Receiver<bool>,
    /// Its place among those who follow.
    pub(super) _place: OwnedSemaphorePermit,
}

impl<S: FollowSource> Following<S> {
    /// The events, as they come; they end with afresh.
    pub(super) fn pieces(mut self) -> Pieces {
        Box::pin(async move {
            let text = self.next().await?;
            Some((Bytes::from(text), NextPieces(self.pieces())))
        })
    }

    async fn next(&mut self) -> Option<String> {
        let mut newest = self.source.newest();
        loop {
            newest.mark_unchanged();
            let closing = *self.closing.borrow();
            if let Some(text) = self.source.next() {
                return Some(text);
            }
            if closing {
                return None;
            }
            tokio::select! {
                changed = newest.changed() => changed.ok()?,
                changed = self.closing.changed() => changed.ok()?,
                () = sleep(CONTROL_PING_INTERVAL) => return Some(PING.to_owned()),
            }
        }
    }
}

/// The lines of a service.
pub(super) struct FollowedLines {
    pub(super) logs: Logs,
    /// The number of the last line that was looked at.
    pub(super) at: u64,
    pub(super) wanted: LineFilter,
}

impl FollowSource for FollowedLines {
    fn newest(&self) -> watch::Receiver<u64> {
        self.logs.follow()
    }

    fn next(&mut self) -> Option<String> {
        loop {
            let lines = self.logs.since(self.at, AT_ONCE);
            self.at = lines.last()?.number;
            // JSON has no bare newline, so it is one line.
            let event = |line: &LogLine| format!("id: {}\ndata: {}\n\n", line.number, json(line));
            let text: String =
                lines.iter().filter(|line| self.wanted.has(line)).map(event).collect();
            if !text.is_empty() {
                return Some(text);
            }
        }
    }
}

/// Which lines are wanted.
#[derive(Clone, Debug, Default)]
pub(super) struct LineFilter {
    pub(super) stream: Option<LogStream>,
    pub(super) text: Option<String>,
}

impl LineFilter {
    pub(super) fn has(&self, line: &LogLine) -> bool {
        self.stream.is_none_or(|stream| line.stream == stream)
            && self.text.as_ref().is_none_or(|text| line.text.contains(text))
    }
}

/// What has happened.
pub(super) struct FollowedEvents {
    pub(super) events: Events,
    /// The last event that was looked at.
    pub(super) at: Position,
    pub(super) service: Option<String>,
}

impl FollowSource for FollowedEvents {
    fn newest(&self) -> watch::Receiver<u64> {
        self.events.newest()
    }

    fn next(&mut self) -> Option<String> {
        let taken = self.events.ring().after(&self.at, self.service.as_deref(), AT_ONCE);
        let run = self.at.run.insert(self.events.ring().run.clone());
        let mut text = match taken.gap.is_none() {
            true => String::new(),
            false => gap(taken.gap),
        };
        for (number, json) in &taken.events {
            text.push_str(&format!("id: {run}-{number}\ndata: {json}\n\n"));
        }
        self.at.number = taken.at;
        (!text.is_empty()).then_some(text)
    }
}

fn gap(gap: Gap) -> String {
    format!("event: gap\ndata: {}\n\n", json(&gap))
}
