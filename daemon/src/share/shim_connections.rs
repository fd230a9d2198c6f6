//! Owns the connections of shims to the hub: their first lines, their lines, and what waits for them. Driven by the hub's
//! loop, which it never blocks.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use afresh_core::limits::{
    OUTPUT_RETRY_PAUSE, SHARE_CHUNK_BYTES, SHARE_HELLO_BYTES_MAX, SHARE_HELLO_WAIT,
    SHARE_SESSIONS_MAX, SHARE_UNREAD_BYTES_MAX, TALK_CHUNK_BYTES,
};
use afresh_core::mcp::frame::{Frame, LineSplitter};
use afresh_core::share::SessionId;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::mcp::{ReadyFlag, ReadyQueue};
use crate::os::{SocketListener, SocketReader, SocketWriter, halves, is_own_peer};

/// A shim that has connected.
pub(super) struct NewShim {
    pub(super) id: SessionId,
    /// Its first line.
    pub(super) hello: Frame,
    pub(super) reader: ShimReader,
    pub(super) writer: ShimWriter,
}

/// What a shim says.
pub(super) struct ShimReader {
    reader: SocketReader,
    lines: LineSplitter,
    /// Read, and not looked at yet: no more is read before they are.
    frames: VecDeque<Frame>,
}

/// Takes connections, and waits for their first lines.
pub(super) struct ShimListener {
    listener: Option<SocketListener>,
    greetings: JoinSet<Option<NewShim>>,
    writers: JoinSet<()>,
    last: u64,
}

/// Reads what shims say after their first lines. Only those that were woken are read, each in its turn.
pub(super) struct ShimReaders {
    all: BTreeMap<SessionId, PolledShim>,
    ready: Arc<ReadyQueue<SessionId>>,
    /// The shims that still have their turn in this round, in this order.
    round: VecDeque<SessionId>,
    buffer: Vec<u8>,
}

struct PolledShim {
    reader: ShimReader,
    flag: Arc<ReadyFlag<SessionId>>,
    waker: Waker,
}

/// Writes to a shim: at once what it takes, and the rest by a task.
pub(super) struct ShimWriter {
    writer: Arc<SocketWriter>,
    rest: mpsc::Sender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
}

/// Lines that may wait for a shim beside [`SHARE_UNREAD_BYTES_MAX`]: the shortest has 20 bytes or more.
const REST_MAX: usize = 64 * 1024;

/// Connections that are open at once, with those whose sessions are over and that have not ended yet.
const CONNECTIONS_MAX: usize = 2 * SHARE_SESSIONS_MAX;

impl ShimListener {
    pub(super) fn new(listener: SocketListener) -> Self {
        let (greetings, writers) = (JoinSet::new(), JoinSet::new());
        Self { listener: Some(listener), greetings, writers, last: 0 }
    }

    /// The next shim that says its first line, while there are so many others. Cancel safe.
    pub(super) async fn next(&mut self, others: usize) -> NewShim {
        loop {
            let has_room = self.greetings.len() + others < CONNECTIONS_MAX;
            tokio::select! {
                biased;
                Some(greeted) = self.greetings.join_next() => {
                    if let Ok(Some(shim)) = greeted {
                        return shim;
                    }
                }
                Some(_) = self.writers.join_next() => {}
                stream = accept(self.listener.as_ref()), if has_room => {
                    let Ok(stream) = stream else {
                        // Out of descriptors, say: it may pass.
                        sleep(OUTPUT_RETRY_PAUSE * 20).await;
                        continue;
                    };
                    if !is_own_peer(&stream) {
                        continue;
                    }
                    let Ok((reader, writer)) = halves(stream) else { continue };
                    self.last += 1;
                    let id = SessionId(self.last);
                    let writer = self.writer(writer);
                    self.greetings.spawn(async move {
                        timeout(SHARE_HELLO_WAIT, greet(id, reader, writer)).await.ok().flatten()
                    });
                }
            }
        }
    }

    fn writer(&mut self, writer: SocketWriter) -> ShimWriter {
        let writer = Arc::new(writer);
        let (rest, queue) = mpsc::channel(REST_MAX);
        let waiting = Arc::new(AtomicUsize::new(0));
        self.writers.spawn(write_rest(Arc::clone(&writer), queue, Arc::clone(&waiting)));
        ShimWriter { writer, rest, waiting }
    }

    /// Takes no more connections: the socket is gone.
    pub(super) fn stop_listening(&mut self) {
        self.listener = None;
    }

    /// Waits until what waits for shims is written.
    pub(super) async fn close(mut self) {
        self.greetings.shutdown().await;
        while self.writers.join_next().await.is_some() {}
    }
}

impl ShimReaders {
    pub(super) fn new() -> Self {
        Self {
            all: BTreeMap::new(),
            ready: ReadyQueue::new(),
            round: VecDeque::new(),
            buffer: vec![0; TALK_CHUNK_BYTES],
        }
    }

    /// Reads a shim from now on.
    pub(super) fn insert(&mut self, id: SessionId, reader: ShimReader) {
        let flag = ReadyFlag::new(id, &self.ready);
        flag.set_by_task();
        let waker = Arc::clone(&flag).into();
        self.all.insert(id, PolledShim { reader, flag, waker });
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// The next shim that was woken. Where there is none, the task is woken by the next.
    pub(super) fn next_ready(&mut self, context: &Context<'_>) -> Option<SessionId> {
        if self.round.is_empty() {
            self.ready.take(context.waker(), &mut self.round);
        }
        let id = self.round.pop_front()?;
        if let Some(shim) = self.all.get(&id) {
            shim.flag.clear();
        }
        Some(id)
    }

    /// The next line of a shim; none at its end, which is told once. It is woken for more.
    pub(super) fn poll_line(&mut self, id: SessionId) -> Poll<Option<Frame>> {
        let Some(PolledShim { reader, flag, waker }) = self.all.get_mut(&id) else {
            return Poll::Pending;
        };
        let ShimReader { reader, lines, frames } = reader;
        if let Some(frame) = frames.pop_front() {
            return Poll::Ready(Some(frame));
        }
        match reader.poll_read(&mut Context::from_waker(waker), &mut self.buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(length @ 1..)) => {
                lines.push(&self.buffer[..length], |frame| frames.push_back(frame));
                match frames.pop_front() {
                    Some(frame) => Poll::Ready(Some(frame)),
                    // A long line is not waited for: others have their turn.
                    None => {
                        flag.set();
                        Poll::Pending
                    }
                }
            }
            Poll::Ready(Ok(0) | Err(_)) => {
                self.all.remove(&id);
                Poll::Ready(None)
            }
        }
    }

    /// There may be more of a shim: it has another turn after the others.
    pub(super) fn poll_again(&self, id: SessionId) {
        if let Some(shim) = self.all.get(&id) {
            shim.flag.set();
        }
    }
}

async fn accept(listener: Option<&SocketListener>) -> io::Result<crate::os::SocketStream> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

impl ShimWriter {
    /// Sends a line. Says whether the shim is still worth it.
    pub(super) fn send(&self, mut line: Vec<u8>) -> bool {
        line.push(b'\n');
        let waiting = self.waiting.load(Ordering::Relaxed);
        let mut written = 0;
        if waiting == 0 {
            match self.writer.try_write(&line) {
                Ok(count) => written = count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
        if written == line.len() {
            return true;
        }
        let rest = line.split_off(written);
        if waiting > 0 && waiting + rest.len() > SHARE_UNREAD_BYTES_MAX {
            return false;
        }
        self.waiting.fetch_add(rest.len(), Ordering::Relaxed);
        self.rest.try_send(rest).is_ok()
    }
}

async fn write_rest(
    writer: Arc<SocketWriter>,
    mut queue: mpsc::Receiver<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
) {
    while let Some(bytes) = queue.recv().await {
        let mut written = 0;
        while written < bytes.len() {
            if writer.writable().await.is_err() {
                return;
            }
            match writer.try_write(&bytes[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
        waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
    }
}

/// Reads the first line.
async fn greet(id: SessionId, mut reader: SocketReader, writer: ShimWriter) -> Option<NewShim> {
    let mut lines = LineSplitter::default();
    let mut frames = VecDeque::new();
    let mut buffer = vec![0; SHARE_CHUNK_BYTES];
    while lines.unfinished() <= SHARE_HELLO_BYTES_MAX {
        let Ok(length @ 1..) = reader.read(&mut buffer).await else { break };
        lines.push(&buffer[..length], |frame| frames.push_back(frame));
        if let Some(hello) = frames.pop_front() {
            let reader = ShimReader { reader, lines, frames };
            return Some(NewShim { id, hello, reader, writer });
        }
    }
    None
}

#[cfg(all(test, unix))]
mod tests {
    use std::future::poll_fn;
    use std::path::PathBuf;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;

    /// What the next shim that has something to say says.
    async fn next_line(readers: &mut ShimReaders) -> Option<Frame> {
        let next = poll_fn(|context| {
            while let Some(id) = readers.next_ready(context) {
                if let Poll::Ready(frame) = readers.poll_line(id) {
                    readers.poll_again(id);
                    return Poll::Ready(frame);
                }
            }
            Poll::Pending
        });
        timeout(Duration::from_secs(20), next).await.expect("it says something")
    }

    async fn connected(name: &str) -> (UnixStream, NewShim, ShimListener) {
        let name = format!("afresh-shims-{name}-{}", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let unnamed = PathBuf::from(format!("{}.new", socket.display()));
        let mut listener =
            ShimListener::new(SocketListener::bind(&socket, &unnamed).expect("a free name"));
        let mut shim = UnixStream::connect(&socket).await.expect("it listens");
        std::fs::remove_file(&socket).expect("ours");
        shim.write_all(b"hello\n").await.expect("it is open");
        let new = timeout(Duration::from_secs(20), listener.next(0)).await.expect("it says hello");
        (shim, new, listener)
    }

    #[tokio::test]
    async fn a_shim_whose_session_is_over_sees_the_end_behind_the_last_line() {
        let (mut shim, NewShim { id, hello, reader, writer }, listener) = connected("end").await;
        assert_eq!(hello, Frame::Line(b"hello".to_vec()));
        let mut readers = ShimReaders::new();
        readers.insert(id, reader);
        assert!(writer.send(b"leave".to_vec()));
        // The session is dropped; the shim may still write, and is read.
        drop(writer);
        timeout(Duration::from_secs(20), listener.close()).await.expect("all is written");
        let mut read = String::new();
        let end = timeout(Duration::from_secs(20), shim.read_to_string(&mut read));
        end.await.expect("the connection ends").expect("text");
        assert_eq!(read, "leave\n");
        shim.write_all(b"more\n").await.expect("it is read");
        assert_eq!(next_line(&mut readers).await, Some(Frame::Line(b"more".to_vec())));
        drop(shim);
        assert_eq!(next_line(&mut readers).await, None);
        assert_eq!(readers.count(), 0);
    }

    #[tokio::test]
    async fn a_shim_with_many_lines_lets_others_have_their_turns() {
        let mut readers = ShimReaders::new();
        let (mut shims, mut kept) = (Vec::new(), Vec::new());
        for (number, name) in ["many", "few"].into_iter().enumerate() {
            let (shim, NewShim { reader, writer, .. }, listener) = connected(name).await;
            readers.insert(SessionId(number as u64), reader);
            shims.push(shim);
            kept.push((writer, listener));
        }
        // More than one read takes.
        shims[0].write_all(&b"many\n".repeat(1_000)).await.expect("it has room");
        shims[1].write_all(b"few\n").await.expect("it has room");
        let mut seen = Vec::new();
        while seen.len() < 1_001 {
            seen.push(next_line(&mut readers).await.expect("both are open"));
        }
        let few = Frame::Line(b"few".to_vec());
        let place = seen.iter().position(|frame| *frame == few);
        assert!(place.is_some_and(|place| place <= 2), "{place:?}");
        assert_eq!(seen.iter().filter(|frame| **frame != few).count(), 1_000);
        // A line that is not whole says nothing, and its rest is heard.
        shims[0].write_all(b"a half").await.expect("it has room");
        shims[1].write_all(b"few\n").await.expect("it has room");
        assert_eq!(next_line(&mut readers).await, Some(few));
        shims[0].write_all(b" line\n").await.expect("it has room");
        assert_eq!(next_line(&mut readers).await, Some(Frame::Line(b"a half line".to_vec())));
    }
}
