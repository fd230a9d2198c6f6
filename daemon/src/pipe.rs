//! Bounded byte pumps between our own stdio and an instance's. Driven by the loop that starts the instance.
//! Never drops a byte of a raw stream.

use std::io::{self, IsTerminal, Read};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use afresh_core::limits::{LINE_BYTES_MAX, PIPE_CHUNK_BYTES, STDIN_CHUNKS_MAX, STDIN_RETRY_PAUSE};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::os::{PipeReader, PipeWriter, wait_for_stdin};
use crate::output::{Output, WriteCallback};
use crate::process::SpoolReader;
use crate::recent_lines::MemoryTee;
use crate::store::service_log::LogTee;
use crate::stream::{Pipe, ReadStream};

/// The form of the bytes of a service in our own stream.
#[derive(Clone, Debug, Default)]
pub(crate) enum OutputForm {
    /// Just as they come.
    #[default]
    Raw,
    /// Whole lines, each with this in front: several services share the stream.
    Lines(String),
    /// The same, as far as they are read: all of them are in the log of the service, and the pump does
    /// not wait for a reader.
    Offered(String),
    /// Not at all: they are kept in the log of the service.
    Silent,
}

/// The other receivers of the bytes of a stream.
#[derive(Debug)]
pub(crate) struct Taps {
    /// The last lines, in memory.
    pub(crate) memory: MemoryTee,
    /// The log on disk.
    pub(crate) log: Option<LogTee>,
}

/// The source of one stream of an instance.
pub(crate) struct Flow {
    pub(crate) pipe: PipeReader,
    /// Its spooled output.
    pub(crate) earlier: Option<SpoolReader>,
}

impl From<PipeReader> for Flow {
    fn from(pipe: PipeReader) -> Self {
        Self { pipe, earlier: None }
    }
}

/// The pumps of one instance's output.
pub(crate) struct Pumps {
    gone: watch::Sender<bool>,
    pub(crate) tasks: JoinSet<()>,
}

impl Pumps {
    /// Starts them; nothing flows before those of earlier instances are done.
    pub(crate) fn start(
        flows: Vec<(Flow, Output, Taps)>,
        form: &OutputForm,
        mut earlier: JoinSet<()>,
    ) -> Self {
        let (gone, watch) = watch::channel(false);
        let (open, gate) = watch::channel(());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while earlier.join_next().await.is_some() {}
            drop(open);
        });
        for (flow, output, taps) in flows {
            let mut gate = gate.clone();
            let pump = forward(flow, output, taps, form.clone(), watch.clone());
            tasks.spawn(async move {
                while gate.changed().await.is_ok() {}
                pump.await;
            });
        }
        Self { gone, tasks }
    }

    /// The instance is gone: takes what is left in its pipes.
    pub(crate) async fn drain(&mut self) {
        self.gone.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Copies an instance's output to ours until its end.
///
/// When the instance is gone, what is still in the pipe is taken, and no more is waited for: a
/// process that could not be killed may hold the other end for ever.
async fn forward(
    Flow { pipe, mut earlier }: Flow,
    output: Output,
    mut taps: Taps,
    form: OutputForm,
    mut gone: watch::Receiver<bool>,
) {
    let mut lines = Vec::new();
    let mut missed = 0;
    loop {
        let ended = *gone.borrow_and_update();
        let (chunk, then) = match earlier.as_mut().and_then(SpoolReader::next) {
            Some((bytes, note_progress)) => (Ok(bytes), Some(note_progress)),
            None => {
                // All that was written down is passed on.
                earlier = None;
                (read_chunk(&pipe), None)
            }
        };
        match chunk {
            Ok(bytes) if bytes.is_empty() => break,
            Ok(bytes) => {
                taps.memory.take(&bytes);
                if let Some(log) = &mut taps.log {
                    log.take(bytes.clone()).await;
                }
                let bytes = match &form {
                    OutputForm::Silent => Vec::new(),
                    OutputForm::Raw => bytes,
                    OutputForm::Lines(prefix) | OutputForm::Offered(prefix) => {
                        lines.extend_from_slice(&bytes);
                        whole_lines(&mut lines, prefix)
                    }
                };
                if !bytes.is_empty() || then.is_some() {
                    print(&output, &form, bytes, then, &mut missed).await;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !ended => {
                tokio::select! {
                    ready = pipe.readable() => if ready.is_err() { break },
                    changed = gone.changed() => if changed.is_err() { break },
                }
            }
            Err(_) => break,
        }
    }
    taps.memory.end();
    if let Some(log) = &mut taps.log {
        log.end().await;
    }
    if let OutputForm::Lines(prefix) | OutputForm::Offered(prefix) = &form
        && !lines.is_empty()
    {
        lines.push(b'\n');
        print(&output, &form, whole_lines(&mut lines, prefix), None, &mut missed).await;
    }
}

/// Puts bytes into our stream; those that are offered have a note before them, where others had to be passed over.
async fn print(
    output: &Output,
    form: &OutputForm,
    bytes: Vec<u8>,
    then: Option<WriteCallback>,
    missed: &mut u64,
) {
    let OutputForm::Offered(prefix) = form else { return output.pass(bytes, then).await };
    let bytes = match std::mem::take(missed) {
        0 => bytes,
        missed => {
            let note =
                format!("{prefix}[{missed} bytes are only in the log: they were not read here]\n");
            [note.into_bytes(), bytes].concat()
        }
    };
    output.offer(bytes, then, missed).await;
}

/// Reads what is there into a buffer of just that size: a thousand idle pipes hold none.
pub(crate) fn read_chunk(pipe: &PipeReader) -> io::Result<Vec<u8>> {
    let mut buffer = [0_u8; PIPE_CHUNK_BYTES];
    let length = pipe.try_read(&mut buffer)?;
    Ok(buffer[..length].to_vec())
}

/// Takes the lines that are whole, each with the prefix in front.
fn whole_lines(pending: &mut Vec<u8>, prefix: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = pending.as_slice();
    loop {
        let end = match rest.iter().position(|byte| *byte == b'\n') {
            Some(end) if end < LINE_BYTES_MAX => end,
            Some(_) => LINE_BYTES_MAX,
            None if rest.len() >= LINE_BYTES_MAX => LINE_BYTES_MAX,
            None => break,
        };
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(&rest[..end]);
        out.push(b'\n');
        rest = &rest[end..];
        rest = rest.strip_prefix(b"\n").unwrap_or(rest);
    }
    *pending = rest.to_vec();
    out
}

/// Reads our stdin in a thread of its own: it may be a terminal, a pipe or a file, and its flags
/// are shared with others, so it is read as it is, blocking.
pub(crate) fn read_stdin() -> io::Result<mpsc::Receiver<Vec<u8>>> {
    let (sender, chunks) = mpsc::channel(STDIN_CHUNKS_MAX);
    let read = move || {
        let mut buffer = vec![0; PIPE_CHUNK_BYTES];
        loop {
            match io::stdin().read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => {
                    if sender.blocking_send(buffer[..length].to_vec()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait_for_stdin(),
                // A job in the background may not read the terminal: its service has a stdin that
                // is silent meanwhile, not one that has ended.
                Err(_) if io::stdin().is_terminal() => std::thread::sleep(STDIN_RETRY_PAUSE),
                // A folder, say: there is nothing to read.
                Err(_) => return,
            }
        }
    };
    std::thread::Builder::new().name("stdin".to_owned()).stack_size(64 * 1024).spawn(read)?;
    Ok(chunks)
}

/// The same, for who reads by polling.
pub(crate) fn read_stdin_in_thread() -> io::Result<impl ReadStream> {
    Ok(ReadByThread { chunks: read_stdin()?, rest: Vec::new() })
}

struct ReadByThread {
    chunks: mpsc::Receiver<Vec<u8>>,
    /// What the last reader had no room for.
    rest: Vec<u8>,
}

impl Pipe for ReadByThread {}

impl AsyncRead for ReadByThread {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            // At the end it stays empty.
            self.rest = ready!(self.chunks.poll_recv(context)).unwrap_or_default();
        }
        let length = into.remaining().min(self.rest.len());
        into.put_slice(&self.rest[..length]);
        self.rest.drain(..length);
        Poll::Ready(Ok(()))
    }
}

/// Gives what arrives on our stdin to the instance of the moment. Bytes that one instance has not
/// taken go to the next; after our stdin has ended, theirs ends too.
pub(crate) async fn feed(
    mut chunks: mpsc::Receiver<Vec<u8>>,
    mut instances: mpsc::Receiver<Option<PipeWriter>>,
) {
    let mut instance: Option<PipeWriter> = None;
    let mut pending: Vec<u8> = Vec::new();
    let mut ended = false;
    loop {
        if ended && pending.is_empty() {
            instance = None;
        }
        let may_read = pending.is_empty() && !ended;
        tokio::select! {
            biased;
            next = instances.recv() => match next {
                Some(next) => instance = next,
                None => return,
            },
            written = write_some(instance.as_mut(), &pending), if instance.is_some() && !pending.is_empty() => {
                match written {
                    Ok(length) => drop(pending.drain(..length)),
                    Err(_) => instance = None,
                }
            }
            chunk = chunks.recv(), if may_read => match chunk {
                Some(chunk) => pending = chunk,
                None => ended = true,
            },
        }
    }
}

async fn write_some(instance: Option<&mut PipeWriter>, bytes: &[u8]) -> io::Result<usize> {
    match instance {
        Some(instance) => instance.write(bytes).await,
        None => Ok(0),
    }
}
