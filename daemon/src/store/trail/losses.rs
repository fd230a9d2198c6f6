//! Counts the records that could not be written, and reports them: at once, and then not too often. Driven by
//! the writer.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use afresh_core::audit::{EventType, Level, Record};
use afresh_core::limits::TRAIL_NOTICE_INTERVAL;
use afresh_core::time::Stamp;
use tokio::time::Instant;

use crate::store::Notice;

pub(super) struct Losses {
    path: PathBuf,
    notify: Box<dyn Fn(Notice) + Send + Sync>,
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
    fn untold_for(&self, now: Instant) -> Option<Duration> {
        let due = self.told_at.map_or(now, |at| at + TRAIL_NOTICE_INTERVAL);
        (self.count > self.told).then(|| due.duration_since(now))
    }
}

impl Losses {
    pub(super) fn new(path: PathBuf, notify: Box<dyn Fn(Notice) + Send + Sync>) -> Self {
        let state = Mutex::default();
        Self { path, notify, state }
    }

    pub(super) fn add(&self, count: u64, since: Stamp, error: String) {
        let mut state = self.state();
        if state.count == 0 {
            state.since = since;
        }
        state.count += count;
        state.error = error;
        drop(state);
        self.tell_if_due();
    }

    /// The number of those that are not on record yet.
    pub(super) fn count(&self) -> u64 {
        self.state().count
    }

    /// The time until the next report.
    pub(super) fn next_wakeup(&self) -> Option<Duration> {
        self.state().untold_for(Instant::now())
    }

    pub(super) fn tell_if_due(&self) {
        let mut state = self.state();
        let now = Instant::now();
        if state.untold_for(now) != Some(Duration::ZERO) {
            return;
        }
        state.told = state.count;
        state.told_at = Some(now);
        let text = format!(
            "trail: {} could not be written to `{}`: {}; supervision goes on, and each new record tries again",
            records(state.count),
            self.path.display(),
            state.error
        );
        drop(state);
        (self.notify)(Notice { level: Level::Error, text });
    }

    /// Tells that the file can't be rotated. Nothing is lost by that yet.
    pub(super) fn tell_unrotated(&self, error: &io::Error) {
        let now = Instant::now();
        let told_at = self.state().unrotated_told_at.replace(now);
        if told_at.is_some_and(|at| now < at + TRAIL_NOTICE_INTERVAL) {
            self.state().unrotated_told_at = told_at;
            return;
        }
        let path = self.path.display();
        let text = format!("trail: `{path}` cannot be rotated, and grows: {error}");
        (self.notify)(Notice { level: Level::Warning, text });
    }

    /// The record of the losses, and how many it speaks of.
    pub(super) fn record(&self) -> Option<(Record, u64)> {
        let state = self.state();
        let record = Record {
            level: Level::Error,
            logger: "afresh.trail".to_owned(),
            message: format!("{} could not be written to the trail", records(state.count)),
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
    pub(super) fn settle(&self, count: u64) {
        let mut state = self.state();
        let was_told = state.told > 0;
        state.count -= count;
        state.told = 0;
        drop(state);
        if was_told {
            let path = self.path.display();
            let text =
                format!("trail: `{path}` can be written again; {} were lost", records(count));
            (self.notify)(Notice { level: Level::Info, text });
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, LossCount> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn records(count: u64) -> String {
    match count {
        1 => "1 record".to_owned(),
        _ => format!("{count} records"),
    }
}
