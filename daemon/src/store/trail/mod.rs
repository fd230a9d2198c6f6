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
mod repair;
#[cfg(test)]
pub(super) mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use afresh_core::audit::{EventType, Level, Record};
use afresh_core::config::TrailSettings;
use afresh_core::duration::show_duration;
use afresh_core::limits::{TRAIL_NOTICE_INTERVAL, TRAIL_QUEUE_LEN_MAX, TRAIL_SYNC_WAIT};
use afresh_core::time::Stamp;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::file::TrailFile;
pub use self::file::WriteTrailError;
use super::workspace::{TrailFiles, Workspace};
use super::{counted, locked};
use crate::clock::now;
use crate::error_chain::chain;
use crate::write_path::WritePath;

/// The path of the trail, and its limits.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file, such as `.afresh/audit.jsonl`.
    pub path: WritePath,
    /// The file is rotated before it is longer than this.
    pub file_bytes_max: u64,
    /// Rotated files that are kept, one at least.
    pub files_kept: u32,
}

/// A handle to the trail; clones write to the same one.
#[derive(Clone)]
pub struct Trail(Arc<TrailState>);

struct TrailState {
    /// The wall clock.
    clock: Box<dyn Fn() -> Stamp + Send + Sync>,
    queue: Mutex<TrailQueue>,
    losses: Arc<Losses>,
    done: Mutex<Receiver<()>>,
}

struct TrailQueue {
    /// None after the trail was closed.
    jobs: Option<SyncSender<TrailJob>>,
}

/// A record on its way to disk.
struct TrailJob {
    record: Record,
    stamp: Stamp,
    answer: Option<Acknowledgement>,
}

type Acknowledgement = oneshot::Sender<Result<(), AnnounceError>>;

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
    pub fn open(settings: Settings, notify: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self::open_with_clock(settings, now, notify)
    }

    fn open_with_clock(
        settings: Settings,
        clock: impl Fn() -> Stamp + Send + Sync + 'static,
        notify: impl Fn(String) + Send + Sync + 'static,
    ) -> Self {
        let (path, notify) = (settings.path.path().to_owned(), Box::new(notify));
        let losses = Arc::new(Losses { path, notify, state: Mutex::default() });
        let (sender, jobs) = mpsc::sync_channel(TRAIL_QUEUE_LEN_MAX);
        let (done_sender, done) = mpsc::sync_channel(1);
        let writer = TrailWriter {
            file: TrailFile::new(settings),
            losses: losses.clone(),
            jobs,
            _done: done_sender,
        };
        // Without a thread the queue has no receiver: each record counts as lost, and is told.
        std::thread::Builder::new()
            .name("afresh-trail".to_owned())
            .spawn(move || writer.run())
            .ok();
        let queue = TrailQueue { jobs: Some(sender) }.into();
        let shared = TrailState { clock: Box::new(clock), queue, losses, done: done.into() };
        Self(Arc::new(shared))
    }

    /// Writes one record to the trail of a workspace, for a command that does nothing else with it.
    pub fn write_one(
        workspace: &mut Workspace,
        settings: &TrailSettings,
        record: Record,
    ) -> Result<(), String> {
        workspace.prepare().map_err(|error| chain(&error))?;
        let settings = Settings {
            path: TrailFiles::of(workspace, settings).audit,
            file_bytes_max: settings.file_bytes_max,
            files_kept: settings.files_kept,
        };
        let trail = Self::open(settings, |_| {});
        trail.append(record);
        trail.close(TRAIL_SYNC_WAIT).map_err(|error| chain(&error))
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
        self.push(record, Some(sender));
        let deadline = Instant::now() + TRAIL_SYNC_WAIT;
        async move {
            match tokio::time::timeout_at(deadline, receiver).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(AnnounceError::Closed),
                Err(_) => Err(AnnounceError::TimedOut),
            }
        }
    }

    /// Writes what is queued, for no longer than `deadline`. Records handed in later are lost.
    pub fn close(&self, deadline: Duration) -> Result<(), CloseTrailError> {
        drop(locked(&self.0.queue).jobs.take());
        if locked(&self.0.done).recv_timeout(deadline) == Err(RecvTimeoutError::Timeout) {
            return Err(CloseTrailError::TimedOut(deadline));
        }
        match locked(&self.0.losses.state).count {
            0 => Ok(()),
            count => Err(CloseTrailError::Lost(count)),
        }
    }

    fn push(&self, record: Record, answer: Option<Acknowledgement>) {
        let queue = locked(&self.0.queue);
        // Stamped and queued under one lock, so that the stamps are in order as long as the clock is not set back. Where
        // it is, the stamps go back with it: the order of records is that of their lines.
        let stamp = (self.0.clock)();
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
        self.0.losses.add(1, stamp, error.to_string());
        // The caller may be gone.
        job.answer.map(|answer| answer.send(Err(error)));
    }
}

/// The thread that owns the file: takes what is queued, writes it, syncs once, and acknowledges.
struct TrailWriter {
    file: TrailFile,
    losses: Arc<Losses>,
    jobs: Receiver<TrailJob>,
    /// Dropped at the end, which tells [`Trail::close`](Trail::close).
    _done: SyncSender<()>,
}

impl TrailWriter {
    /// Writes until the last sender is gone.
    fn run(mut self) {
        loop {
            let wait = locked(&self.losses.state).untold_for(Instant::now());
            let first = match wait {
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
        if locked(&self.losses.state).count > 0 {
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
            job.answer.map(|answer| answer.send(result));
        }
    }
}

/// Counts the records that could not be written, and reports them: at once, and then not too often.
struct Losses {
    path: PathBuf,
    notify: Box<dyn Fn(String) + Send + Sync>,
    state: Mutex<LossCount>,
}

#[derive(Default)]
struct LossCount {
    /// Lost since the last record of losses.
    count: u64,
    /// The number of those that were reported.
    told: u64,
    since: Stamp,
    error: String,
    told_at: Option<Instant>,
    unrotated_told_at: Option<Instant>,
}

impl LossCount {
    /// The time until the next report.
    fn untold_for(&self, now: Instant) -> Option<Duration> {
        let due = self.told_at.map_or(now, |at| at + TRAIL_NOTICE_INTERVAL);
        (self.count > self.told).then(|| due.duration_since(now))
    }
}

impl Losses {
    fn add(&self, count: u64, since: Stamp, error: String) {
        let mut state = locked(&self.state);
        if state.count == 0 {
            state.since = since;
        }
        state.count += count;
        state.error = error;
        drop(state);
        self.tell_if_due();
    }

    fn tell_if_due(&self) {
        let mut state = locked(&self.state);
        let now = Instant::now();
        if state.untold_for(now) != Some(Duration::ZERO) {
            return;
        }
        state.told = state.count;
        state.told_at = Some(now);
        let text = format!(
            "trail: {} could not be written to `{}`: {}; supervision goes on, and each new record tries again",
            counted(state.count, "record"),
            self.path.display(),
            state.error
        );
        drop(state);
        (self.notify)(text);
    }

    /// Tells that the file can't be rotated. Nothing is lost by that yet.
    fn tell_unrotated(&self, error: &io::Error) {
        let now = Instant::now();
        let told_at = locked(&self.state).unrotated_told_at.replace(now);
        if told_at.is_some_and(|at| now < at + TRAIL_NOTICE_INTERVAL) {
            locked(&self.state).unrotated_told_at = told_at;
            return;
        }
        let path = self.path.display();
        let text = format!("trail: `{path}` cannot be rotated, and grows: {error}");
        (self.notify)(text);
    }

    /// The record of the losses, and how many it speaks of.
    fn record(&self) -> Option<(Record, u64)> {
        let state = locked(&self.state);
        let record = Record {
            level: Level::Error,
            logger: "afresh.trail".to_owned(),
            message: format!(
                "{} could not be written to the trail",
                counted(state.count, "record")
            ),
            event_type: EventType::TrailRecordsLost,
            props: vec![
                ("count", state.count.into()),
                ("since", state.since.to_string().into()),
                ("error", state.error.as_str().into()),
            ],
        };
        (state.count > 0).then_some((record, state.count))
    }

    /// Forgets losses that are on record. Who was told of them is told of the end of them.
    fn settle(&self, count: u64) {
        let mut state = locked(&self.state);
        let was_told = state.told > 0;
        state.count -= count;
        state.told = 0;
        drop(state);
        if was_told {
            let path = self.path.display();
            let text = format!(
                "trail: `{path}` can be written again; {} were lost",
                counted(count, "record")
            );
            (self.notify)(text);
        }
    }
}
