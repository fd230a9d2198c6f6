//! Owns what restarts a server without a request: files that changed, and the measurement of processor
//! time for a server that owes an answer. Driven by the loop that polls it; the limit of its memory is in
//! `supervise/memory_limit.rs`. Never restarts a server itself.

use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use afresh_core::id::Generation;
use afresh_core::watch::{SelfChanges, reason};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;

use crate::clock::sleep_until;
use crate::process::usage_of_tree;
use crate::watch::{Watch, WatchError};

/// The watch over one server.
pub(crate) struct RestartTriggers {
    /// The wait for the next change, with the watch that it waits on.
    watching: Option<Watching>,
    base: PathBuf,
    /// Files that afresh writes itself.
    own_files: Vec<PathBuf>,
    echoes: SelfChanges,
    /// A restart that is delayed, and its reason.
    delayed: Option<(Instant, String)>,
    /// A measurement that is under way; it reads files of the kernel, in a thread of its own.
    processor_time: Option<JoinHandle<(Generation, Option<Duration>)>>,
}

/// See [`RestartTriggers`].
type Watching = Pin<Box<dyn Future<Output = (Watch, Vec<PathBuf>)> + Send>>;

/// Something that the driver has to act on.
pub(crate) enum Trigger {
    Changed(Vec<PathBuf>),
    /// The delayed restart is due, for this reason.
    Delayed(String),
    ProcessorTime(Generation, Option<Duration>),
}

impl RestartTriggers {
    pub(crate) fn new(
        watched: &[PathBuf],
        base: &Path,
        debounce: Duration,
        own_files: Vec<PathBuf>,
        log: impl Fn(&str) + Send + 'static,
    ) -> Result<Self, WatchError> {
        for path in watched.iter().filter(|path| !base.join(path).exists()) {
            log(&format!("`{}` is not there yet; it is watched from when it is", path.display()));
        }
        let watching = match watched {
            [] => None,
            watched => Some(next_change(Watch::start(watched, base, debounce, log)?)),
        };
        Ok(Self {
            watching,
            base: base.to_owned(),
            own_files,
            echoes: SelfChanges::default(),
            delayed: None,
            processor_time: None,
        })
    }

    /// Waits for something to act on. Cancel safe.
    pub(super) async fn next(&mut self) -> Trigger {
        loop {
            let wakeup = self.next_wakeup();
            tokio::select! {
                biased;
                trigger = poll_fn(|context| self.poll_trigger(context)) => return trigger,
                () = sleep_until(wakeup) => {}
            }
        }
    }

    /// Ready when there is something to act on. It does not wake the task at its own deadline: see
    /// [`RestartTriggers::next_wakeup`].
    pub(super) fn poll_trigger(&mut self, context: &mut Context<'_>) -> Poll<Trigger> {
        if let Some(watching) = &mut self.watching
            && let Poll::Ready((watch, changed)) = watching.as_mut().poll(context)
        {
            self.watching = Some(next_change(watch));
            return Poll::Ready(Trigger::Changed(changed));
        }
        if let Some(measuring) = &mut self.processor_time
            && let Poll::Ready(measured) = Pin::new(measuring).poll(context)
        {
            self.processor_time = None;
            // One that panicked has no result, and is not waited for again.
            if let Ok((generation, time)) = measured {
                return Poll::Ready(Trigger::ProcessorTime(generation, time));
            }
        }
        match self.delayed.take_if(|(at, _)| *at <= Instant::now()) {
            Some((_, reason)) => Poll::Ready(Trigger::Delayed(reason)),
            None => Poll::Pending,
        }
    }

    /// When it is to be polled if nothing wakes it before.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.delayed.as_ref().map(|(at, _)| *at)
    }

    /// Decides on changed files, by how long the instance has run: the reason of a restart at once, and a warning to be
    /// logged.
    pub(super) fn note_change(
        &mut self,
        mut paths: Vec<PathBuf>,
        uptime_ms: Option<u64>,
    ) -> (Option<String>, Option<String>) {
        paths.retain(|path| !self.own_files.contains(path));
        if paths.is_empty() {
            return (None, None);
        }
        let reason = reason(&paths, &self.base);
        let delay = self.echoes.next(paths, Duration::from_millis(uptime_ms.unwrap_or(u64::MAX)));
        if delay.is_zero() {
            self.delayed = None;
            return (Some(reason), None);
        }
        let warning = self.echoes.have_begun().then(|| {
            format!(
                "{reason}, again right after a restart: if the server writes it, watch less or name it \
                 in .gitignore; restarts for it wait longer and longer now"
            )
        });
        let at = self.delayed.take().map_or(Instant::now() + delay, |(at, _)| at);
        self.delayed = Some((at, reason));
        (None, warning)
    }

    /// Begins to measure the processor time of an instance.
    pub(super) fn measure_processor_time(&mut self, generation: Generation, pid: u32) {
        self.processor_time = Some(spawn_blocking(move || {
            (generation, usage_of_tree(pid).map(|usage| usage.cpu_time))
        }));
    }
}

/// Owns the watch, so that a wait need not begin anew when something else comes first.
fn next_change(mut watch: Watch) -> Watching {
    Box::pin(async move {
        let changed = watch.changed().await;
        (watch, changed)
    })
}
