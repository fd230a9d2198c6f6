//! The trail: what happened, appended to `audit.jsonl`, one record a line.
//!
//! # Theory of operation
//!
//! A [`Trail`] is a handle; a thread owns the file. Records are stamped as they are handed in and
//! wait in a bounded queue. The thread takes what has queued up, appends each record with one
//! `write` under the file's lock, and syncs once. A caller never waits for the disk unless by
//! [`Trail::announce`], and then not for long. What can't be written is counted, told, and put on
//! record when the file works again.

mod file;
mod losses;
#[cfg(test)]
pub(super) mod tests;
mod writer;

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use afresh_core::audit::Record;
use afresh_core::limits::{
    TRAIL_FILE_BYTES_MAX, TRAIL_FILES_KEPT, TRAIL_QUEUE_LEN_MAX, TRAIL_SYNC_WAIT,
};
use afresh_core::time::{Stamp, show_duration};
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::file::TrailFile;
pub use self::file::WriteTrailError;
use self::losses::Losses;
use self::writer::{TrailJob, TrailWriter};
use super::Notice;
use crate::clock::now;

/// The path of the trail, and its limits.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file, such as `.afresh/audit.jsonl`.
    pub path: PathBuf,
    /// The file is rotated before it is longer than this.
    pub file_bytes_max: u64,
    /// Rotated files that are kept, one at least.
    pub files_kept: u32,
}

impl Settings {
    /// The usual limits.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            file_bytes_max: TRAIL_FILE_BYTES_MAX,
            files_kept: TRAIL_FILES_KEPT,
        }
    }
}

/// A handle to the trail; clones write to the same one.
#[derive(Clone)]
pub struct Trail {
    shared: Arc<TrailState>,
}

struct TrailState {
    queue: Mutex<TrailQueue>,
    losses: Arc<Losses>,
    done: Mutex<Receiver<()>>,
}

struct TrailQueue {
    /// None after the trail was closed.
    jobs: Option<SyncSender<TrailJob>>,
    /// The clock may be set back; the stamps of a trail are not.
    last_stamp: Stamp,
}

type Acknowledgement = Box<dyn FnOnce(Result<(), AnnounceError>) + Send>;

/// Why an announced record is not known to be on disk.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AnnounceError {
    /// It could not be written.
    #[error("the record could not be written to the trail")]
    Write(#[source] Arc<WriteTrailError>),
    /// The disk is slow; the record may still get there.
    #[error("the record was not on disk within {}", show_duration(TRAIL_SYNC_WAIT))]
    TimedOut,
    /// The disk is stuck, and too many records wait for it already.
    #[error("the record is lost: {TRAIL_QUEUE_LEN_MAX} others wait for the disk")]
    QueueFull,
    /// The trail was closed before.
    #[error("the trail is closed")]
    Closed,
}

/// Why a closed trail may be incomplete.
#[derive(Debug, thiserror::Error)]
pub enum CloseTrailError {
    /// The disk is slow; what was queued may still get there.
    #[error("the trail was not on disk within {}", show_duration(*.0))]
    TimedOut(Duration),
    /// Records are missing, and the trail does not say so.
    #[error("{0} records could not be written to the trail")]
    Lost(u64),
}

impl Trail {
    /// Starts the writer. The file is opened with the first record, and again when it went away;
    /// `notify` is told what a person should know, from any thread, and must not block.
    pub fn open(settings: Settings, notify: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        let Settings { path, file_bytes_max, files_kept } = settings;
        let losses = Arc::new(Losses::new(path.clone(), Box::new(notify)));
        let (sender, jobs) = mpsc::sync_channel(TRAIL_QUEUE_LEN_MAX);
        let (done_sender, done) = mpsc::sync_channel(1);
        let writer = TrailWriter {
            file: TrailFile::new(path, file_bytes_max, files_kept),
            losses: losses.clone(),
            jobs,
            _done: done_sender,
        };
        // Without a thread the queue has no receiver: each record counts as lost, and is told.
        std::thread::Builder::new()
            .name("afresh-trail".to_owned())
            .spawn(move || writer.run())
            .ok();
        let queue = TrailQueue { jobs: Some(sender), last_stamp: Stamp::default() };
        let shared = TrailState { queue: queue.into(), losses, done: done.into() };
        Self { shared: Arc::new(shared) }
    }

    /// Hands in a fact. Never waits and never fails: see the module about losses.
    pub fn append(&self, record: Record) {
        self.push(record, None);
    }

    /// Hands in what is about to happen, at once. The future is ready when the record is on disk,
    /// or after [`TRAIL_SYNC_WAIT`]; it may be dropped.
    pub fn announce(
        &self,
        record: Record,
    ) -> impl Future<Output = Result<(), AnnounceError>> + Send + use<> {
        let (sender, receiver) = oneshot::channel();
        // The caller may be gone.
        self.push(record, Some(Box::new(|result| drop(sender.send(result)))));
        let deadline = Instant::now() + TRAIL_SYNC_WAIT;
        async move {
            match tokio::time::timeout_at(deadline, receiver).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(AnnounceError::Closed),
                Err(_) => Err(AnnounceError::TimedOut),
            }
        }
    }

    /// Like [`announce`](Self::announce), for threads.
    pub fn announce_blocking(&self, record: Record) -> Result<(), AnnounceError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.push(record, Some(Box::new(move |result| drop(sender.send(result)))));
        receiver.recv_timeout(TRAIL_SYNC_WAIT).unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => Err(AnnounceError::TimedOut),
            RecvTimeoutError::Disconnected => Err(AnnounceError::Closed),
        })
    }

    /// Writes what is queued, for no longer than `deadline`. Records handed in later are lost.
    pub fn close(&self, deadline: Duration) -> Result<(), CloseTrailError> {
        drop(self.queue().jobs.take());
        let done = self.shared.done.lock().unwrap_or_else(PoisonError::into_inner);
        if done.recv_timeout(deadline) == Err(RecvTimeoutError::Timeout) {
            return Err(CloseTrailError::TimedOut(deadline));
        }
        match self.shared.losses.count() {
            0 => Ok(()),
            count => Err(CloseTrailError::Lost(count)),
        }
    }

    fn push(&self, record: Record, answer: Option<Acknowledgement>) {
        let mut queue = self.queue();
        // Stamped and queued under one lock, so that the stamps are in order.
        let stamp = now().max(queue.last_stamp);
        queue.last_stamp = stamp;
        let job = TrailJob { record, stamp, answer };
        let (job, error) = match &queue.jobs {
            None => (job, AnnounceError::Closed),
            Some(jobs) => match jobs.try_send(job) {
                Ok(()) => return,
                Err(TrySendError::Full(job)) => (job, AnnounceError::QueueFull),
                Err(TrySendError::Disconnected(job)) => (job, AnnounceError::Closed),
            },
        };
        drop(queue);
        self.shared.losses.add(1, stamp, error.to_string());
        if let Some(answer) = job.answer {
            answer(Err(error));
        }
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, TrailQueue> {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
