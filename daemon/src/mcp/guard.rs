//! What restarts a server without anybody asking: files that changed, too much memory, and silence
//! where an answer is owed.

use std::path::{Path, PathBuf};
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
pub(super) struct Guard {
    watch: Option<Watch>,
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

/// What was found.
pub(super) enum Found {
    Changed(Vec<PathBuf>),
    /// The restart that had to wait is due.
    HeldDue,
    /// It is time to look at the memory.
    MemoryDue,
    Memory(Generation, Option<u64>),
    Processor(Generation, Option<Duration>),
}

impl Guard {
    pub(super) fn new(
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
        let watch = match watched {
            [] => None,
            watched => Some(Watch::start(watched, base, debounce, say)?),
        };
        Ok(Self {
            watch,
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
        let Self { watch, memory, processor, .. } = self;
        let looks_at_memory = self.memory_bytes_max.is_some() && memory.is_none();
        tokio::select! {
            changed = changed(watch) => Found::Changed(changed),
            () = due(&self.held) => Found::HeldDue,
            (generation, bytes) = looked(memory) => Found::Memory(generation, bytes),
            (generation, time) = looked(processor) => Found::Processor(generation, time),
            () = sleep_until(self.memory_at), if looks_at_memory => Found::MemoryDue,
        }
    }
}

async fn due(held: &Option<(Instant, String)>) {
    match held {
        Some((at, _)) => sleep_until(*at).await,
        None => std::future::pending().await,
    }
}

async fn changed(watch: &mut Option<Watch>) -> Vec<PathBuf> {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

/// What a look has found, once; one that came to grief finds nothing, and is not waited for again.
async fn looked<T>(
    look: &mut Option<JoinHandle<(Generation, Option<T>)>>,
) -> (Generation, Option<T>) {
    let Some(handle) = look else { return std::future::pending().await };
    let found = handle.await;
    *look = None;
    match found {
        Ok(found) => found,
        Err(_) => std::future::pending().await,
    }
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
            self.supervise.log(&format!(
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
