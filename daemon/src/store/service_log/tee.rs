//! Splits the bytes of one stream of one instance into lines for the log of its service. Driven by a pump.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use afresh_core::control::LogStream;
use afresh_core::id::Generation;
use afresh_core::limits::{
    LINE_BYTES_MAX, LOGS_LINE_COST, SERVICE_LOG_PATIENCE, SERVICE_LOG_QUEUE_BYTES_MAX,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::{ServiceLog, head};

/// See the module.
#[derive(Debug)]
pub(crate) struct LogTee {
    log: ServiceLog,
    generation: Generation,
    stream: LogStream,
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
    /// Lines that were dropped since the last that was not.
    lost: u64,
}

impl LogTee {
    pub(super) fn new(log: ServiceLog, generation: Generation, stream: LogStream) -> Self {
        Self { log, generation, stream, begun: Vec::new(), lost: 0 }
    }

    /// Takes the next bytes. Waits for room in front of a slow disk, but not for long.
    pub(crate) async fn take(&mut self, mut bytes: Vec<u8>) {
        if let Some(last) = memchr::memrchr(b'\n', &bytes) {
            let rest = bytes.split_off(last + 1);
            bytes.pop();
            if !self.begun.is_empty() {
                self.begun.append(&mut bytes);
                bytes = std::mem::take(&mut self.begun);
            }
            self.begun = rest;
            self.send(bytes, false).await;
        } else {
            self.begun.append(&mut bytes);
        }
        if self.begun.len() >= LINE_BYTES_MAX {
            let begun = std::mem::take(&mut self.begun);
            self.send(begun, true).await;
        }
    }

    /// The stream has ended; so has the line that was begun.
    pub(crate) async fn end(&mut self) {
        if !self.begun.is_empty() {
            let begun = std::mem::take(&mut self.begun);
            self.send(begun, false).await;
        }
        if self.lost > 0
            && let Some(room) = self.room(LOGS_LINE_COST).await
        {
            let head = head(self.generation, self.stream, false);
            self.log.put(head, None, std::mem::take(&mut self.lost), Some(room));
        }
    }

    async fn send(&mut self, lines: Vec<u8>, continues: bool) {
        // By the time when they were read, not when the disk had room.
        let head = head(self.generation, self.stream, continues);
        match self.room(lines.len() + LOGS_LINE_COST).await {
            Some(room) => {
                self.log.put(head, Some(lines), std::mem::take(&mut self.lost), Some(room));
            }
            None => self.lost += 1 + memchr::memchr_iter(b'\n', &lines).count() as u64,
        }
    }

    async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let queue = &self.log.queue;
        let bytes = u32::try_from(bytes.min(SERVICE_LOG_QUEUE_BYTES_MAX)).unwrap_or(u32::MAX);
        if let Ok(room) = Arc::clone(&queue.room).try_acquire_many_owned(bytes) {
            queue.is_stuck.store(false, Ordering::Relaxed);
            return Some(room);
        }
        if queue.is_stuck.load(Ordering::Relaxed) {
            return None;
        }
        let waited =
            timeout(SERVICE_LOG_PATIENCE, Arc::clone(&queue.room).acquire_many_owned(bytes));
        let room = waited.await.ok().and_then(Result::ok);
        queue.is_stuck.store(room.is_none(), Ordering::Relaxed);
        room
    }
}
