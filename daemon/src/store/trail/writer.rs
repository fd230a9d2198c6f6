//! The thread that owns the trail's file: takes what is queued, writes it, syncs once, and acknowledges.
//! Driven by its queue.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};

use afresh_core::audit::Record;
use afresh_core::limits::TRAIL_QUEUE_LEN_MAX;
use afresh_core::time::Stamp;

use super::file::TrailFile;
use super::losses::Losses;
use super::{Acknowledgement, AnnounceError};
use crate::clock::now;
use crate::error_chain::chain;

/// A record on its way to disk.
pub(super) struct TrailJob {
    pub(super) record: Record,
    pub(super) stamp: Stamp,
    pub(super) answer: Option<Acknowledgement>,
}

pub(super) struct TrailWriter {
    pub(super) file: TrailFile,
    pub(super) losses: Arc<Losses>,
    pub(super) jobs: Receiver<TrailJob>,
    /// Dropped at the end, which tells [`Trail::close`](super::Trail::close).
    pub(super) _done: SyncSender<()>,
}

impl TrailWriter {
    /// Writes until the last sender is gone.
    pub(super) fn run(mut self) {
        loop {
            let first = match self.losses.next_wakeup() {
                Some(wait) => self.jobs.recv_timeout(wait),
                None => self.jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match first {
                Ok(job) => {
                    let mut batch = vec![job];
                    batch.extend(self.jobs.try_iter().take(TRAIL_QUEUE_LEN_MAX));
                    self.write(batch);
                }
                Err(RecvTimeoutError::Timeout) => self.losses.tell_if_due(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if self.losses.count() > 0 {
            self.write(Vec::new());
        }
    }

    fn write(&mut self, batch: Vec<TrailJob>) {
        // A record of the trail's own goes first; its stamp must not be later than what follows.
        let stamp = batch.first().map_or_else(now, |job| job.stamp);
        let lost = self.losses.record();
        let mut lines: Vec<String> =
            lost.iter().map(|(record, _)| record.to_safe_line(stamp)).collect();
        let own = lines.len();
        lines.extend(batch.iter().map(|job| job.record.to_safe_line(job.stamp)));

        let (written, appended) = self.file.append(stamp, &lines);
        let synced = self.file.sync();
        if let Some(error) = self.file.rotate_error.take() {
            self.losses.tell_unrotated(&error);
        }
        if let Some((_, count)) = lost
            && written > 0
        {
            self.losses.settle(count);
        }
        let written = if synced.is_ok() { written.saturating_sub(own) } else { 0 };
        let error = appended.and(synced).err().map(Arc::new);
        let failed = &batch[written..];
        if let (Some(error), Some(first)) = (&error, failed.first()) {
            self.losses.add(failed.len() as u64, first.stamp, chain(error));
        }
        for (index, job) in batch.into_iter().enumerate() {
            let result = match &error {
                Some(error) if index >= written => Err(AnnounceError::Write(error.clone())),
                _ => Ok(()),
            };
            if let Some(answer) = job.answer {
                answer(result);
            }
        }
    }
}
