//! Our stdout and stderr: a thread each, so that a reader who does not read stops neither the loop
//! nor the other stream, and whole lines in the log, whatever the service prints.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use afresh_core::limits::OUTPUT_CHUNKS_MAX;
use afresh_core::time::Stamp;
use tokio::sync::{mpsc, oneshot};

/// One of our output streams.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    chunks: mpsc::Sender<Chunk>,
    /// Log lines that were dropped since the last one that was not.
    dropped: Arc<AtomicU64>,
}

/// What waits for the end of a stream's thread.
pub(crate) struct OutputThread {
    pub(crate) thread: JoinHandle<()>,
    /// Resolves when the reader of the stream is gone.
    pub(crate) broken: oneshot::Receiver<()>,
}

enum Chunk {
    /// Bytes of a service, as they came.
    Bytes(Vec<u8>),
    /// A line of our own.
    Line(String),
}

impl Output {
    /// Starts the thread that writes to `stream`.
    pub(crate) fn start(
        name: &str,
        stream: impl Write + Send + 'static,
    ) -> io::Result<(Self, OutputThread)> {
        let (chunks, queue) = mpsc::channel(OUTPUT_CHUNKS_MAX);
        let (broken_sender, broken) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .stack_size(64 * 1024)
            .spawn(move || write_all(stream, queue, broken_sender))?;
        Ok((
            Self {
                chunks,
                dropped: Arc::default(),
            },
            OutputThread { thread, broken },
        ))
    }

    /// Passes bytes on, waiting while the queue is full: the service then waits too, as it would
    /// without us.
    pub(crate) async fn pass(&self, bytes: Vec<u8>) {
        // The thread ends only after its last sender.
        self.chunks.send(Chunk::Bytes(bytes)).await.ok();
    }

    /// Writes a line of the log. Never waits: when nobody reads, lines are dropped and counted.
    pub(crate) fn log(&self, message: &str) {
        let lost = self.dropped.swap(0, Ordering::Relaxed);
        let note = match lost {
            0 => String::new(),
            lost => format!(" [{lost} lines before this one were dropped: nobody read them]"),
        };
        // One message is one line, whatever was quoted in it.
        let message = message.replace('\n', " | ");
        let line = format!("[{}] [SUPERVISOR] {message}{note}\n", now());
        if self.chunks.try_send(Chunk::Line(line)).is_err() {
            self.dropped.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

/// Waits until a stream's thread has written everything, or the patience is over. Every `Output`
/// of it must be dropped.
pub(crate) fn finish(thread: JoinHandle<()>, patience: Duration) {
    let deadline = tokio::time::Instant::now() + patience;
    // The queue is short: this is over at once, or the reader does not read at all.
    while !thread.is_finished() && tokio::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The time by the wall clock.
pub(crate) fn now() -> Stamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Stamp::since_unix_epoch(since.unwrap_or_default())
}

fn write_all(
    mut stream: impl Write,
    mut queue: mpsc::Receiver<Chunk>,
    broken: oneshot::Sender<()>,
) {
    let mut broken = Some(broken);
    let mut at_line_start = true;
    while let Some(chunk) = queue.blocking_recv() {
        let result = match &chunk {
            Chunk::Bytes(bytes) => {
                at_line_start = bytes.last().is_none_or(|byte| *byte == b'\n');
                stream.write_all(bytes)
            }
            Chunk::Line(line) => {
                let fresh = if at_line_start {
                    Ok(())
                } else {
                    stream.write_all(b"\n")
                };
                at_line_start = true;
                fresh.and_then(|()| stream.write_all(line.as_bytes()))
            }
        };
        // The queue is emptied all the same, so that nobody waits for a reader who is gone.
        if result.and_then(|()| stream.flush()).is_err()
            && let Some(broken) = broken.take()
        {
            broken.send(()).ok();
        }
    }
}
