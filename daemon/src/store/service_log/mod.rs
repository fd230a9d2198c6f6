//! The logs of services on disk: `.afresh/logs/NAME.log`, in the form of [`afresh_core::log_line`].
//!
//! # Theory of operation
//!
//! One thread writes the files of all services. The pumps hand it blocks of whole lines, in the order in
//! which they were read, over one queue; it takes what has queued up, writes once for each run of blocks
//! of one service, and sleeps. The queue is bounded in bytes: in front of a slow disk a pump waits for a
//! while, and then drops lines and counts them, so that no service hangs on our disk.
//!
//! What could not be written, be it for a full disk or a folder that is gone, is counted too. It is said
//! once, tried again, and when the file works again the count is written into it where the lines are
//! missing. Nothing is synced: what was written survives us, but not the machine.
//!
//! A file is rotated between two lines, never in one. Readers go from the oldest to the newest,
//! and know files by their number on the disk, not by their name: see [`read`].

mod file;
pub mod read;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use afresh_core::control::LogStream;
use afresh_core::definition::LogLimits;
use afresh_core::id::Generation;
use afresh_core::limits::{
    LINE_BYTES_MAX, LOGS_LINE_COST, SERVICE_LOG_FLUSH_MAX, SERVICE_LOG_OWN_LINES_MAX,
    SERVICE_LOG_PATIENCE, SERVICE_LOG_QUEUE_BYTES_MAX,
};
use afresh_core::log_line::LogHead;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use self::writer::{LogWriter, TargetState};
use crate::clock::now;
use crate::store::locked;
use crate::write_path::{WritePath, suffixed};

/// The writer of all logs of one afresh. Its thread ends when this and every log and tee are dropped.
#[derive(Debug)]
pub(crate) struct ServiceLogs {
    queue: Arc<LogQueue>,
    /// Those that are in use, by their path.
    targets: Mutex<BTreeMap<PathBuf, Weak<LogTarget>>>,
}

/// The log of one service. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct ServiceLog {
    queue: Arc<LogQueue>,
    target: Arc<LogTarget>,
}

#[derive(Debug)]
struct LogQueue {
    jobs: mpsc::Sender<LogJob>,
    /// Room for bytes of services.
    room: Arc<Semaphore>,
    /// Room for lines of our own, which a flood does not crowd out.
    own_room: Arc<Semaphore>,
    /// A pump waited for room in vain, and there has been none since.
    is_stuck: AtomicBool,
}

#[derive(Debug)]
enum LogJob {
    Write(LogBlock),
    /// To say when all before it is written.
    Tell(oneshot::Sender<()>),
}

/// The file of a log, as the pumps see it.
#[derive(Debug, Default)]
struct LogTarget {
    /// Only the writer looks at it.
    state: Mutex<TargetState>,
    limits: Mutex<LogLimits>,
    /// Lines of our own that found no room.
    own_lost: AtomicU64,
}

/// Lines on their way to the disk.
#[derive(Debug)]
struct LogBlock {
    target: Arc<LogTarget>,
    head: LogHead,
    /// With a newline between two of them.
    lines: Option<Vec<u8>>,
    /// How many were dropped in front of them.
    lost: u64,
    _room: OwnedSemaphorePermit,
}

impl ServiceLogs {
    /// Starts the thread. `notify` is told what a person should know, and must not block.
    pub(crate) fn start(notify: impl Fn(&str) + Send + 'static) -> io::Result<Self> {
        let jobs_max = SERVICE_LOG_QUEUE_BYTES_MAX / LOGS_LINE_COST + SERVICE_LOG_OWN_LINES_MAX;
        // One more for who waits.
        let (sender, jobs) = mpsc::channel(jobs_max + 1);
        let (notify, page) = (Box::new(notify), Vec::new());
        let writer = LogWriter { jobs, notify, page, target: None, troubled: Vec::new() };
        std::thread::Builder::new()
            .name("afresh-logs".to_owned())
            .stack_size(128 * 1024)
            .spawn(move || writer.run())?;
        let queue = LogQueue {
            jobs: sender,
            room: Arc::new(Semaphore::new(SERVICE_LOG_QUEUE_BYTES_MAX)),
            own_room: Arc::new(Semaphore::new(SERVICE_LOG_OWN_LINES_MAX)),
            is_stuck: AtomicBool::new(false),
        };
        Ok(Self { queue: Arc::new(queue), targets: Mutex::default() })
    }

    /// The log of a service. Its file is opened with the first line, and again when it went away. One
    /// that is open already, as an instance of an earlier definition may have it, is the same, with
    /// the new limits.
    pub(crate) fn open(&self, path: WritePath, limits: LogLimits) -> ServiceLog {
        let mut targets = locked(&self.targets);
        targets.retain(|_, target| target.strong_count() > 0);
        let known = targets.get(path.path()).and_then(Weak::upgrade);
        let target = known.unwrap_or_else(|| {
            let target = LogTarget::default();
            locked(&target.state).file.path.clone_from(&path);
            Arc::new(target)
        });
        *locked(&target.limits) = limits;
        targets.insert(path.path().to_owned(), Arc::downgrade(&target));
        ServiceLog { queue: Arc::clone(&self.queue), target }
    }

    /// Waits until all that was handed in is written, though not for ever. Whether it is.
    pub(crate) async fn flush(&self) -> bool {
        let (sender, told) = oneshot::channel();
        let flushed = async {
            // Both fail only without a thread.
            self.queue.jobs.send(LogJob::Tell(sender)).await.ok();
            told.await.ok();
        };
        timeout(SERVICE_LOG_FLUSH_MAX, flushed).await.is_ok()
    }
}

impl ServiceLog {
    /// Takes the output of one stream of an instance.
    pub(crate) fn tee(&self, generation: Generation, stream: LogStream) -> LogTee {
        LogTee { log: self.clone(), generation, stream, begun: Vec::new(), lost: 0 }
    }

    /// Writes a line of ours about the service. Never waits.
    pub(crate) fn say(&self, generation: Generation, text: &str) {
        let Ok(room) = Arc::clone(&self.queue.own_room).try_acquire_owned() else {
            self.target.own_lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let head = head(generation, LogStream::Afresh, false);
        self.put(head, Some(text.as_bytes().to_vec()), 0, room);
    }

    fn put(&self, head: LogHead, lines: Option<Vec<u8>>, lost: u64, room: OwnedSemaphorePermit) {
        let target = Arc::clone(&self.target);
        // A block with room always fits; without a thread, it is dropped.
        let block = LogBlock { target, head, lines, lost, _room: room };
        self.queue.jobs.try_send(LogJob::Write(block)).ok();
    }
}

/// Splits the bytes of one stream of one instance into lines for the log of its service.
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
            self.log.put(head, None, std::mem::take(&mut self.lost), room);
        }
    }

    async fn send(&mut self, lines: Vec<u8>, continues: bool) {
        // By the time when they were read, not when the disk had room.
        let head = head(self.generation, self.stream, continues);
        match self.room(lines.len() + LOGS_LINE_COST).await {
            Some(room) => {
                self.log.put(head, Some(lines), std::mem::take(&mut self.lost), room);
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

fn head(generation: Generation, stream: LogStream, continues: bool) -> LogHead {
    LogHead { time: now(), stream, generation: generation.0, continues }
}

/// The path of the log of a service, in the folder for logs. Names that are no names of files are written
/// with `%`; the system refuses one that is too long, and that is said.
pub fn file_of(folder: &Path, service: &str) -> PathBuf {
    folder.join(file_name(service))
}

/// The name of the log of a service.
pub(crate) fn file_name(service: &str) -> String {
    let mut name = String::new();
    for (at, c) in service.char_indices() {
        let is_plain = match c {
            '.' => at > 0,
            '/' | '\\' | '%' | ':' | '*' | '?' | '"' | '<' | '>' | '|' => false,
            c => !c.is_control(),
        };
        if is_plain {
            name.push(c);
        } else {
            let mut bytes = [0; 4];
            let escaped = c.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}"));
            name.extend(escaped);
        }
    }
    name + ".log"
}

/// The service whose log has this name.
fn service_of(file_name: &str) -> Option<String> {
    let name = file_name.strip_suffix(".log")?;
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let escaped = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let escaped = escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        rest = match (byte, escaped) {
            (b'%', Some(escaped)) => {
                bytes.push(escaped);
                &after[2..]
            }
            (b'%', None) => return None,
            _ => {
                bytes.push(*byte);
                after
            }
        };
    }
    String::from_utf8(bytes).ok().filter(|service| !service.is_empty())
}

/// The services that have a log in a folder, by name.
pub fn services(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| service_of(&entry.file_name().into_string().ok()?)).collect();
    names.sort();
    names
}

/// Whether an afresh writes this log now.
pub fn is_written(path: &Path) -> bool {
    let lock = crate::os::open_to_read(suffixed(path.as_os_str(), LOCK).as_ref());
    // A lock that we get is given back when the file is closed.
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)))
}

/// The end of the name of the file whose lock the writer of a log holds.
const LOCK: &str = ".lock";
