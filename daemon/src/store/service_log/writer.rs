//! The thread that owns the log files: takes what is queued, writes it, and reports losses. Driven by its
//! queue. Never blocks a pump.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use afresh_core::control::LogStream;
use afresh_core::definition::LogLimits;
use afresh_core::limits::{
    LOSS_NOTICE_INTERVAL, SERVICE_LOG_RETRY_INTERVAL, SERVICE_LOG_WRITE_BYTES,
};
use afresh_core::log_line::{LogHead, loss_note};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::file::LogFile;
use super::{LogBlock, LogJob, LogTarget};
use crate::clock::now;
use crate::error_chain::chain;
use crate::store::{counted, locked};

pub(super) struct LogWriter {
    pub(super) jobs: mpsc::Receiver<LogJob>,
    pub(super) notify: Box<dyn Fn(&str) + Send>,
    /// Lines of one log that are to be written next.
    pub(super) page: Vec<u8>,
    /// The log of these lines, and the generation of the last of them.
    pub(super) target: Option<(Arc<LogTarget>, u64)>,
    /// Logs that lack lines which they do not speak of yet.
    pub(super) troubled: Vec<Arc<LogTarget>>,
}

/// The file of a log, and what has become of it.
#[derive(Debug, Default)]
pub(super) struct TargetState {
    pub(super) file: LogFile,
    /// Lines that are missing since the last note.
    lost: u64,
    why: String,
    /// Left alone until then.
    retry_at: Option<Instant>,
    /// When it was last said that lines are lost.
    told_at: Option<Instant>,
    /// It was said that lines are lost, and not yet that it works again.
    is_told: bool,
}

impl TargetState {
    /// Writes lines, after a note of those that are missing in front of them.
    fn write(&mut self, limits: LogLimits, generation: u64, page: &[u8], notify: &dyn Fn(&str)) {
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            self.lost += lines_in(page);
            return;
        }
        let (now, mut note) = (now(), Vec::new());
        if self.lost > 0 {
            let head =
                LogHead { time: now, stream: LogStream::Afresh, generation, continues: false };
            head.write_lines(loss_note(self.lost, &self.why).as_bytes(), &mut note);
        }
        let told = self.lost;
        let (mut written, mut result) = self.file.append(now, limits, &note);
        if written == note.len() {
            self.lost = 0;
            (written, result) = self.file.append(now, limits, page);
        } else {
            written = 0;
        }
        self.retry_at = None;
        if let Err(error) = result {
            self.retry_at = Some(Instant::now() + SERVICE_LOG_RETRY_INTERVAL);
            self.lose(lines_in(&page[written..]), chain(&error), notify);
        } else if self.is_told {
            self.is_told = false;
            let path = self.file.path.path().display();
            notify(&format!("log: `{path}` is written again, and lacks {}", counted(told, "line")));
        }
    }

    fn lose(&mut self, count: u64, why: String, notify: &dyn Fn(&str)) {
        self.lost += count;
        self.why = why;
        let is_due = self.told_at.is_none_or(|at| at.elapsed() >= LOSS_NOTICE_INTERVAL);
        if is_due && !self.is_told {
            self.told_at = Some(Instant::now());
            self.is_told = true;
            let (path, why) = (self.file.path.path().display(), &self.why);
            notify(&format!(
                "log: `{path}` cannot be written: {why}; the service goes on, and what is lost is counted"
            ));
        }
    }
}

impl LogWriter {
    /// Writes until the last sender is gone.
    pub(super) fn run(mut self) {
        while let Some(job) = self.jobs.blocking_recv() {
            self.perform(job);
            while let Ok(job) = self.jobs.try_recv() {
                self.perform(job);
            }
            self.flush();
            self.target = None;
            // Many empty lines take more room with their heads than without.
            self.page.shrink_to(2 * SERVICE_LOG_WRITE_BYTES);
        }
        self.flush();
        self.settle();
    }

    fn perform(&mut self, job: LogJob) {
        match job {
            LogJob::Write(block) => self.take(block),
            LogJob::Tell(waiting) => {
                self.flush();
                self.settle();
                // The caller may have given up.
                waiting.send(()).ok();
            }
        }
    }

    /// Tries once more to put on record what is missing; nothing may come any more that would.
    fn settle(&mut self) {
        self.troubled.retain(|target| {
            let mut state = locked(&target.state);
            state.retry_at = None;
            state.write(*locked(&target.limits), 0, &[], &*self.notify);
            if state.lost > 0 {
                let path = state.file.path.path().display();
                (self.notify)(&format!("log: `{path}` lacks {}", counted(state.lost, "line")));
            }
            state.lost > 0
        });
    }

    fn take(&mut self, block: LogBlock) {
        let LogBlock { target, head, lines, lost, .. } = block;
        let is_same = self.target.as_ref().is_some_and(|(last, _)| Arc::ptr_eq(last, &target));
        if !is_same || lost > 0 {
            self.flush();
        }
        if lost > 0 {
            let why = "the disk was too slow".to_owned();
            locked(&target.state).lose(lost, why, &*self.notify);
        }
        self.target = Some((target, head.generation));
        if let Some(lines) = lines {
            head.write_lines(&lines, &mut self.page);
        }
        if self.page.len() >= SERVICE_LOG_WRITE_BYTES || lost > 0 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let Some((target, generation)) = &self.target else { return };
        let mut state = locked(&target.state);
        let own_lost = target.own_lost.swap(0, Ordering::Relaxed);
        if own_lost > 0 {
            state.lose(own_lost, "too much was to be said at once".to_owned(), &*self.notify);
        }
        if !self.page.is_empty() || state.lost > 0 {
            state.write(*locked(&target.limits), *generation, &self.page, &*self.notify);
        }
        self.page.clear();
        self.troubled.retain(|other| !Arc::ptr_eq(other, target));
        if state.lost > 0 {
            self.troubled.push(Arc::clone(target));
        }
    }
}

fn lines_in(page: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', page).count() as u64
}
