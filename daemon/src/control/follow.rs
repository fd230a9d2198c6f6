//! The lines of a service as server-sent events, from one that the client knows on.

use afresh_core::control::LogLine;
use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::wire::{Pieces, Rest, json};
use crate::logs::Logs;

/// Lines that make one piece of an answer: nothing is gained by more at once.
const LINES_AT_ONCE: usize = 64;

/// A client that follows. It gets what it takes: lines that are forgotten meanwhile are a gap in the
/// numbers.
pub(super) struct Following {
    pub(super) logs: Logs,
    /// The number of the last line that was sent.
    pub(super) at: u64,
    /// Turns true when afresh ends.
    pub(super) closing: watch::Receiver<bool>,
    /// Its place among those who follow.
    pub(super) _place: OwnedSemaphorePermit,
}

impl Following {
    /// The events, as they come; they end with afresh.
    pub(super) fn pieces(mut self) -> Pieces {
        Box::pin(async move {
            let lines = self.next().await?;
            self.at = lines.last().map_or(self.at, |line| line.number);
            let text: String = lines.iter().map(event).collect();
            Some((Bytes::from(text), Rest(self.pieces())))
        })
    }

    async fn next(&mut self) -> Option<Vec<LogLine>> {
        let mut newest = self.logs.follow();
        loop {
            newest.mark_unchanged();
            let closing = *self.closing.borrow();
            let lines = self.logs.since(self.at, LINES_AT_ONCE);
            if !lines.is_empty() {
                return Some(lines);
            }
            if closing {
                return None;
            }
            tokio::select! {
                changed = newest.changed() => changed.ok()?,
                changed = self.closing.changed() => changed.ok()?,
            }
        }
    }
}

/// A line as an event. JSON has no bare newline, so it is one line.
fn event(line: &LogLine) -> String {
    format!("id: {}\ndata: {}\n\n", line.number, json(line))
}
