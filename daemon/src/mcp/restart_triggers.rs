//! What restarts a server without anybody asking: files that changed, too much memory, and silence
//! where an answer is owed.

use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use afresh_core::id::Generation;
use afresh_core::limits::MEMORY_LOOK_INTERVAL;
use afresh_core::mcp::Input;
use afresh_core::memory::weigh;
use afresh_core::service::Input as ServiceInput;
use afresh_core::watch::{Echoes, reason};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};

use super::server::Seat;
use crate::process::{cpu_time_of_tree, memory_of_tree};
use crate::watch::{Watch, WatchError};

/// What is looked at.
pub(crate) struct Guard {
    /// The wait for the next change, with what is waited for.
    watching: Option<Watching>,
    base: PathBuf,
    /// Files that we write ourselves.
    ours: Vec<PathBuf>,
    echoes: Echoes,
    /// A restart that waits, and why it is to be.
    held: Option<(Instant, String)>,
    memory_bytes_max: Option<u64>,
    memory_at: Instant,
    /// A run longer than this was fine.
    stable_after: Duration,
    /// When the server was last restarted for its memory.
    memory_restart: Option<Instant>,
    /// Looks that are under way; each reads files of the kernel's, in a thread of its own.
    memory: Option<JoinHandle<(Generation, Option<u64>)>>,
    processor: Option<JoinHandle<(Generation, Option<Duration>)>>,
}

/// See [`Guard`].
type Watching = Pin<Box<dyn Future<Output = (Watch, Vec<PathBuf>)> + Send>>;

/// What was found.
pub(crate) enum Found {
    Changed(Vec<PathBuf>),
    /// The restart that had to wait is due.
    HeldDue,
    /// It is time to look at the memory.
    MemoryDue,
    Memory(Generation, Option<u64>),
    Processor(Generation, Option<Duration>),
}

impl Guard {
    pub(crate) fn new(
        watched: &[PathBuf],
        base: &Path,
        debounce: Duration,
        memory_bytes_max: Option<u64>,
        stable_after: Duration,
        ours: Vec<PathBuf>,
        say: impl Fn(&str) + Send + 'static,
    ) -> Result<Self, WatchError> {
        for path in watched.iter().filter(|path| !base.join(path).exists()) {
            say(&format!("`{}` is not there yet; it is watched from when it is", path.display()));
        }
        let watching = match watched {
            [] => None,
            watched => Some(next_change(Watch::start(watched, base, debounce, say)?)),
        };
        Ok(Self {
            watching,
            base: base.to_owned(),
            ours,
            echoes: Echoes::default(),
            held: None,
            memory_bytes_max,
            memory_at: Instant::now() + MEMORY_LOOK_INTERVAL,
            stable_after,
            memory_restart: None,
            memory: None,
            processor: None,
        })
    }

    /// Waits for something to act on. Cancel safe.
    pub(super) async fn next(&mut self) -> Found {
        loop {
            let wakeup = self.next_wakeup();
            tokio::select! {
                biased;
                found = poll_fn(|context| self.poll_found(context)) => return found,
                () = until(wakeup) => {}
            }
        }
    }

    /// Ready when there is something to act on. It wakes nobody when its moment comes: see
    /// [`Guard::next_wakeup`].
    pub(super) fn poll_found(&mut self, context: &mut Context<'_>) -> Poll<Found> {
        if let Some(watching) = &mut self.watching
            && let Poll::Ready((watch, changed)) = watching.as_mut().poll(context)
        {
            self.watching = Some(next_change(watch));
            return Poll::Ready(Found::Changed(changed));
        }
        if let Some((generation, bytes)) = looked(&mut self.memory, context) {
            return Poll::Ready(Found::Memory(generation, bytes));
        }
        if let Some((generation, time)) = looked(&mut self.processor, context) {
            return Poll::Ready(Found::Processor(generation, time));
        }
        let now = Instant::now();
        match (self.held_until(), self.memory_due()) {
            (Some(at), _) if at <= now => Poll::Ready(Found::HeldDue),
            (_, Some(at)) if at <= now => Poll::Ready(Found::MemoryDue),
            _ => Poll::Pending,
        }
    }

    /// When it is to be polled if nothing wakes it before.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.held_until().into_iter().chain(self.memory_due()).min()
    }

    fn held_until(&self) -> Option<Instant> {
        self.held.as_ref().map(|(at, _)| *at)
    }

    fn memory_due(&self) -> Option<Instant> {
        let looks_at_memory = self.memory_bytes_max.is_some() && self.memory.is_none();
        looks_at_memory.then_some(self.memory_at)
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Owns what it waits for, so that it need not begin anew when something else comes first.
fn next_change(mut watch: Watch) -> Watching {
    Box::pin(async move {
        let changed = watch.changed().await;
        (watch, changed)
    })
}

/// What a look has found, once; one that came to grief finds nothing, and is not waited for again.
fn looked<T>(
    look: &mut Option<JoinHandle<(Generation, Option<T>)>>,
    context: &mut Context<'_>,
) -> Option<(Generation, Option<T>)> {
    let Poll::Ready(found) = Pin::new(look.as_mut()?).poll(context) else { return None };
    *look = None;
    found.ok()
}

impl Seat<'_> {
    pub(super) async fn found(&mut self, found: Found) {
        match found {
            Found::Changed(paths) => self.changed(paths).await,
            Found::HeldDue => {
                if let Some((_, reason)) = self.server.guard.held.take() {
                    self.tell_service(ServiceInput::Restart { reason }).await;
                }
            }
            Found::MemoryDue => {
                self.server.guard.memory_at = Instant::now() + MEMORY_LOOK_INTERVAL;
                if let Some((generation, pid)) = self.current() {
                    let look = spawn_blocking(move || (generation, memory_of_tree(pid)));
                    self.server.guard.memory = Some(look);
                }
            }
            Found::Memory(generation, bytes) => self.weighed(generation, bytes).await,
            Found::Processor(generation, time) => {
                self.converse(Input::Worked { generation, time }).await;
            }
        }
    }

    async fn changed(&mut self, mut paths: Vec<PathBuf>) {
        paths.retain(|path| !self.server.guard.ours.contains(path));
        if paths.is_empty() {
            return;
        }
        let uptime =
            self.supervise.snapshot(self.server.service).and_then(|snapshot| snapshot.uptime_ms);
        let uptime = Duration::from_millis(uptime.unwrap_or(u64::MAX));
        let reason = reason(&paths, &self.server.guard.base);
        let delay = self.server.guard.echoes.next(paths, uptime);
        if delay.is_zero() {
            self.server.guard.held = None;
            return self.tell_service(ServiceInput::Restart { reason }).await;
        }
        if self.server.guard.echoes.have_begun() {
            self.log(&format!(
                "{reason}, again right after a restart: if the server writes it, watch less or name it \
                 in .gitignore; restarts for it wait longer and longer now"
            ));
        }
        let at = self.server.guard.held.take().map_or(Instant::now() + delay, |(at, _)| at);
        self.server.guard.held = Some((at, reason));
    }

    /// Begins to find out how much an instance works.
    pub(super) fn sample(&mut self, generation: Generation) {
        if let Some((current, pid)) = self.current()
            && current == generation
        {
            let look = spawn_blocking(move || (generation, cpu_time_of_tree(pid)));
            self.server.guard.processor = Some(look);
        }
    }

    async fn weighed(&mut self, generation: Generation, bytes: Option<u64>) {
        let (Some(bytes), Some(bytes_max)) = (bytes, self.server.guard.memory_bytes_max) else {
            return;
        };
        let snapshot = self.supervise.snapshot(self.server.service);
        let Some(snapshot) = snapshot.filter(|s| s.generation == Some(generation.0)) else {
            return;
        };
        let last = self.server.guard.memory_restart.map(|last| last.elapsed());
        let over = weigh(bytes, bytes_max, last, self.server.guard.stable_after);
        let Some(over) = over.filter(|_| snapshot.candidate_pid.is_none()) else { return };
        self.server.guard.memory_restart = Some(Instant::now());
        let reason = over.reason;
        if over.is_again {
            self.note_end(generation, &reason);
            self.tell_service(ServiceInput::Unhealthy { generation, why: reason }).await;
        } else {
            self.tell_service(ServiceInput::Restart { reason }).await;
        }
    }

    fn current(&self) -> Option<(Generation, u32)> {
        let snapshot = self.supervise.snapshot(self.server.service)?;
        Some((Generation(snapshot.generation?), snapshot.pid?))
    }
}
