//! Owns our stdout and stderr: a thread each, so that a reader that does not read stops neither the loop nor
//! the other stream, and whole lines in the log for any output of a service. A terminal is not given escape sequences of
//! services that could do harm: they are printed as text. A file or a pipe gets the bytes.

use std::io::{self, IsTerminal, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use afresh_core::audit::redact::redact_text;
use afresh_core::limits::{
    LINE_BYTES_MAX, LINE_PATIENCE, LOG_LINE_CHARS_MAX, LOG_LINES_MAX, LOSS_NOTICE_INTERVAL,
    OFFER_PATIENCE, OUTPUT_CHUNKS_MAX, OUTPUT_RETRY_PAUSE, PIPE_CHUNK_BYTES,
};
use afresh_core::text::{TerminalFilter, harmless, head, tame};
use tokio::io::AsyncWrite;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::clock::now;
use crate::stream::{Pipe, WriteStream};

/// One of our output streams.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    /// Each with what is done when it is written.
    chunks: mpsc::Sender<(Chunk, Option<WriteCallback>)>,
    /// Places in the queue for bytes of services; the others are for our own lines, so that a
    /// flood does not crowd them out.
    places: Arc<Semaphore>,
    /// Log lines that were dropped since the last one that was not.
    dropped: Arc<AtomicU64>,
    /// A pump waited in vain for a place, and there has been none since.
    is_stuck: Arc<AtomicBool>,
}

/// The signals of a stream's thread.
pub(crate) struct OutputThread {
    /// Resolves when the reader of the stream is gone.
    pub(crate) broken: oneshot::Receiver<()>,
    /// Resolves when every `Output` is dropped and all is written.
    pub(crate) done: oneshot::Receiver<()>,
}

enum Chunk {
    /// Bytes of a service, as they came, and their place in the queue.
    Bytes { bytes: Vec<u8>, _place: Option<OwnedSemaphorePermit> },
    /// A line of our own.
    Line(String),
}

/// Called when a chunk is written.
pub(crate) type WriteCallback = Box<dyn FnOnce() + Send>;

impl Output {
    /// Starts the thread that writes to `stream`; `complain` is told of what could not be written.
    pub(crate) fn start(
        name: &str,
        stream: impl Write + Send + 'static,
        complain: impl Fn(&str) + Send + 'static,
    ) -> io::Result<(Self, OutputThread)> {
        let (chunks, queue) = mpsc::channel(OUTPUT_CHUNKS_MAX + LOG_LINES_MAX);
        let (broken_sender, broken) = oneshot::channel();
        let (done_sender, done) = oneshot::channel::<()>();
        let writer =
            StreamThread { stream, complain, broken: Some(broken_sender), lost: 0, told_at: None };
        std::thread::Builder::new().name(name.to_owned()).stack_size(64 * 1024).spawn(
            move || {
                write_all(writer, queue);
                drop(done_sender);
            },
        )?;
        let places = Arc::new(Semaphore::new(OUTPUT_CHUNKS_MAX));
        let output = Self { chunks, places, dropped: Arc::default(), is_stuck: Arc::default() };
        Ok((output, OutputThread { broken, done }))
    }

    /// Passes bytes on, waiting while the queue is full: the service then waits too, as it would
    /// without us. `then` is done as soon as they are written, by the thread that has written them.
    pub(crate) async fn pass(&self, bytes: Vec<u8>, then: Option<WriteCallback>) {
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        // The thread ends only after its last sender.
        self.chunks.send((Chunk::Bytes { bytes, _place: place }, then)).await.ok();
    }

    /// Passes bytes on to a reader who may be slow, but is not waited for when he does not read at all:
    /// then they are counted.
    pub(crate) async fn offer(
        &self,
        bytes: Vec<u8>,
        then: Option<WriteCallback>,
        missed: &mut u64,
    ) {
        let places = Arc::clone(&self.places);
        let place = match places.clone().try_acquire_owned() {
            Ok(place) => Some(place),
            Err(_) if self.is_stuck.load(Ordering::Relaxed) => None,
            Err(_) => {
                timeout(OFFER_PATIENCE, places.acquire_owned()).await.ok().and_then(Result::ok)
            }
        };
        self.is_stuck.store(place.is_none(), Ordering::Relaxed);
        match place {
            // The thread ends only after its last sender.
            Some(place) => {
                let chunk = Chunk::Bytes { bytes, _place: Some(place) };
                self.chunks.send((chunk, then)).await.ok();
            }
            None => *missed += bytes.len() as u64,
        }
    }

    /// The same, for who writes by polling.
    pub(crate) fn into_writer(self) -> impl WriteStream {
        WriteByThread { output: self, passing: None }
    }

    /// Writes a line of the log. Never waits: without a reader, lines are dropped and counted.
    pub(crate) fn log(&self, message: &str) {
        let lost = self.dropped.swap(0, Ordering::Relaxed);
        let note = match lost {
            0 => String::new(),
            1 => " [the line before this one was dropped: the output is not read]".to_owned(),
            lost => format!(" [{lost} lines before this one were dropped: the output is not read]"),
        };
        let line = format!("[{}] [SUPERVISOR] {}{note}\n", now(), presentable(message));
        if self.chunks.try_send((Chunk::Line(line), None)).is_err() {
            self.dropped.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

struct WriteByThread {
    output: Output,
    /// Bytes on their way into the queue.
    passing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Pipe for WriteByThread {}

impl AsyncWrite for WriteByThread {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.as_mut().poll_flush(context))?;
        let bytes = bytes[..bytes.len().min(PIPE_CHUNK_BYTES)].to_vec();
        let (length, output) = (bytes.len(), self.output.clone());
        self.passing = Some(Box::pin(async move { output.pass(bytes, None).await }));
        // Begins at once; what has no place yet is waited for before the next.
        drop(self.poll_flush(context));
        Poll::Ready(Ok(length))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(passing) = &mut self.passing {
            ready!(passing.as_mut().poll(context));
            self.passing = None;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

/// A message as one line without terminal sequences and secrets, of limited length.
pub(crate) fn presentable(message: &str) -> String {
    let message = redact_text(message).replace('\n', " | ");
    let kept = head(&message, LOG_LINE_CHARS_MAX);
    let mark = if kept.len() < message.len() { "… [cut]" } else { "" };
    harmless(kept) + mark
}

fn write_all<S: Write, C: Fn(&str)>(
    mut writer: StreamThread<S, C>,
    mut queue: mpsc::Receiver<(Chunk, Option<WriteCallback>)>,
) {
    let mut merger = LineMerger::default();
    loop {
        let (bytes, then) = match next(&mut queue, merger.waiting_since) {
            Some(Some((chunk, then))) => (merger.add(chunk), then),
            Some(None) => (merger.give_up_waiting(), None),
            None => break,
        };
        writer.write(&bytes);
        if let Some(act) = then {
            act();
        }
    }
    writer.write(&merger.give_up_waiting());
    // What was held back; a reader that is gone is told of nothing more.
    writer.stream.flush().ok();
}

/// A stream, and its losses. The queue is emptied in any case, so that no pump waits for a reader that is
/// gone.
struct StreamThread<S, C> {
    stream: S,
    complain: C,
    broken: Option<oneshot::Sender<()>>,
    /// Bytes that could not be written since the last complaint.
    lost: usize,
    told_at: Option<Instant>,
}

impl<S: Write, C: Fn(&str)> StreamThread<S, C> {
    fn write(&mut self, bytes: &[u8]) {
        let Err((left, error)) = write_whole(&mut self.stream, bytes) else { return };
        match error.kind() {
            io::ErrorKind::BrokenPipe => {
                self.broken.take().and_then(|broken| broken.send(()).ok());
            }
            io::ErrorKind::WriteZero => self.lose(left, "it takes nothing"),
            _ => self.lose(left, &error.to_string()),
        }
    }

    fn lose(&mut self, bytes: usize, why: &str) {
        self.lost += bytes;
        if self.told_at.is_none_or(|at| at.elapsed() > LOSS_NOTICE_INTERVAL) {
            self.told_at = Some(Instant::now());
            let lost = std::mem::take(&mut self.lost);
            (self.complain)(&format!("{lost} bytes of output could not be written: {why}"));
        }
    }
}

/// Writes all of it. An error comes with the number of bytes that are left.
fn write_whole(stream: &mut impl Write, mut bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return Err((bytes.len(), io::ErrorKind::WriteZero.into())),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Another process that shares the stream has set it not to block.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(OUTPUT_RETRY_PAUSE);
            }
            Err(error) => return Err((bytes.len(), error)),
        }
    }
    Ok(())
}

/// The next chunk; `Some(None)` when the patience for the rest of a line is over.
fn next<T>(queue: &mut mpsc::Receiver<T>, since: Option<Instant>) -> Option<Option<T>> {
    let Some(since) = since else {
        return queue.blocking_recv().map(Some);
    };
    let deadline = since + LINE_PATIENCE;
    while Instant::now() < deadline {
        match queue.try_recv() {
            Ok(chunk) => return Some(Some(chunk)),
            Err(mpsc::error::TryRecvError::Disconnected) => return None,
            Err(mpsc::error::TryRecvError::Empty) => {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    Some(None)
}

/// Puts lines of our own between the lines of a service, not into them.
#[derive(Default)]
struct LineMerger {
    /// A line of the service has begun and not ended.
    in_line: bool,
    /// Our lines that wait for its end, and since when.
    waiting: String,
    waiting_since: Option<Instant>,
}

impl LineMerger {
    /// The bytes to write now.
    fn add(&mut self, chunk: Chunk) -> Vec<u8> {
        match chunk {
            Chunk::Line(line) if self.in_line => {
                self.waiting.push_str(&line);
                self.waiting_since.get_or_insert_with(Instant::now);
                Vec::new()
            }
            Chunk::Line(line) => line.into_bytes(),
            Chunk::Bytes { bytes, .. } if bytes.is_empty() => bytes,
            Chunk::Bytes { mut bytes, .. } => {
                self.in_line = bytes.last().is_none_or(|byte| *byte != b'\n');
                if !self.waiting.is_empty()
                    && let Some(end) = bytes.iter().position(|byte| *byte == b'\n')
                {
                    self.waiting_since = None;
                    let waiting = std::mem::take(&mut self.waiting).into_bytes();
                    bytes.splice(end + 1..end + 1, waiting);
                }
                bytes
            }
        }
    }

    /// The line does not end: ends it, and writes what waits.
    fn give_up_waiting(&mut self) -> Vec<u8> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        self.in_line = false;
        self.waiting_since = None;
        let waiting = std::mem::take(&mut self.waiting);
        [b"\n", waiting.as_bytes()].concat()
    }
}

/// A stream of ours. One that is no terminal gets all bytes as they are.
pub(crate) struct SanitizedStream<S> {
    stream: S,
    /// None where it is no terminal.
    sanitizer: Option<Sanitizer>,
}

/// How the output of services is made fit for a terminal.
pub(crate) enum Sanitizer {
    /// By whole lines, of which only colours are left: several services write, or none that draws.
    Lines {
        wants_colours: bool,
        /// A line that has not ended yet.
        rest: Vec<u8>,
    },
    /// As it comes, with its colours and moves of the cursor: one program has the terminal.
    Program(TerminalFilter),
}

impl Sanitizer {
    pub(crate) const fn lines(wants_colours: bool) -> Self {
        Self::Lines { wants_colours, rest: Vec::new() }
    }

    pub(crate) fn program() -> Self {
        Self::Program(TerminalFilter::default())
    }

    /// What may be written of the output so far.
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Program(filter) => filter.pass(bytes),
            Self::Lines { wants_colours, rest } => {
                rest.extend_from_slice(bytes);
                let end = rest.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
                let whole = match end {
                    None if rest.len() > LINE_BYTES_MAX => rest.len(),
                    None => return Vec::new(),
                    Some(end) => end,
                };
                let lines: Vec<u8> = rest.drain(..whole).collect();
                tame(&lines, *wants_colours).into_bytes()
            }
        }
    }

    /// The rest: no more will come.
    fn finish(&mut self) -> Vec<u8> {
        match self {
            Self::Program(filter) => filter.finish(),
            Self::Lines { wants_colours, rest } => {
                tame(&std::mem::take(rest), *wants_colours).into_bytes()
            }
        }
    }
}

impl<S: Write + IsTerminal> SanitizedStream<S> {
    pub(crate) fn new(stream: S, sanitizer: Sanitizer) -> Self {
        let sanitizer = stream.is_terminal().then_some(sanitizer);
        Self { stream, sanitizer }
    }
}

impl<S: Write> Write for SanitizedStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(sanitizer) = &mut self.sanitizer else { return self.stream.write(bytes) };
        // Not given back in part: a caller that tried again would write the same bytes twice.
        let fit = sanitizer.take(bytes);
        write_whole(&mut self.stream, &fit).map_err(|(_, error)| error)?;
        Ok(bytes.len())
    }

    /// Writes what was held back, too.
    fn flush(&mut self) -> io::Result<()> {
        if let Some(sanitizer) = &mut self.sanitizer {
            let rest = sanitizer.finish();
            write_whole(&mut self.stream, &rest).map_err(|(_, error)| error)?;
        }
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_is_one_line_without_secrets() {
        assert_eq!(presentable("a\nb\x1b[31m"), "a | b\u{fffd}[31m".replace('\u{fffd}', "␛"));
        let token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
        assert!(!presentable(&format!("no such file: `./{token}`")).contains(token));
        assert!(presentable(&"x".repeat(1_000_000)).len() < 10_000);
    }

    #[test]
    fn our_lines_stand_between_those_of_the_service() {
        let mut merger = LineMerger::default();
        let bytes = |text: &str| Chunk::Bytes { bytes: text.as_bytes().to_vec(), _place: None };
        let line = |text: &str| Chunk::Line(text.to_owned());
        let steps = [
            (line("A\n"), "A\n"),
            (bytes("one\ntw"), "one\ntw"),
            (line("B\n"), ""),
            (line("C\n"), ""),
            (bytes("o, an"), "o, an"),
            (bytes("d more\nthree"), "d more\nB\nC\nthree"),
            (bytes("\n"), "\n"),
            (line("D\n"), "D\n"),
            (bytes("four"), "four"),
            (line("E\n"), ""),
        ];
        for (chunk, expected) in steps {
            assert_eq!(String::from_utf8(merger.add(chunk)).unwrap(), expected);
        }
        assert_eq!(merger.give_up_waiting(), b"\nE\n");
        assert!(merger.give_up_waiting().is_empty());
    }
}
