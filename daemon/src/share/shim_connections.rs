//! Owns the connections of shims to the hub: their first lines, their lines, and what waits for them. Driven by the hub's
//! loop, which it never blocks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use afresh_core::limits::{
    OUTPUT_RETRY_PAUSE, SHARE_HELLO_BYTES_MAX, SHARE_HELLO_WAIT, SHARE_LINES_MAX,
    SHARE_SESSIONS_MAX, SHARE_UNREAD_BYTES_MAX, TALK_CHUNK_BYTES,
};
use afresh_core::mcp::frame::{Frame, LineSplitter};
use afresh_core::share::SessionId;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::os::{SocketListener, SocketReader, SocketWriter, halves, is_own_peer};

/// What a shim does.
pub(super) enum ShimEvent {
    /// It has connected, and this is its first line.
    Hello(Frame, ShimWriter),
    Line(Frame),
    Gone,
}

/// All connections.
pub(super) struct ShimConnections {
    listener: Option<SocketListener>,
    events: mpsc::Receiver<(SessionId, ShimEvent)>,
    sender: mpsc::Sender<(SessionId, ShimEvent)>,
    tasks: JoinSet<()>,
    last: u64,
}

/// Writes to a shim: at once what it takes, and the rest by a task.
pub(super) struct ShimWriter {
    writer: Arc<SocketWriter>,
    rest: mpsc::Sender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
}

/// Lines that may wait for a shim beside [`SHARE_UNREAD_BYTES_MAX`]: the shortest has 20 bytes or more.
const REST_MAX: usize = 64 * 1024;

impl ShimConnections {
    pub(super) fn new(listener: SocketListener) -> Self {
        let (sender, events) = mpsc::channel(SHARE_LINES_MAX);
        Self { listener: Some(listener), events, sender, tasks: JoinSet::new(), last: 0 }
    }

    /// What a shim does next. Cancel safe.
    pub(super) async fn next(&mut self) -> (SessionId, ShimEvent) {
        loop {
            // Two tasks each; those that have not said hello count, too.
            let has_room = self.tasks.len() < SHARE_SESSIONS_MAX * 4;
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => return event,
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
                    let writer = Arc::new(writer);
                    let (rest, queue) = mpsc::channel(REST_MAX);
                    let waiting = Arc::new(AtomicUsize::new(0));
                    self.tasks.spawn(write_rest(Arc::clone(&writer), queue, Arc::clone(&waiting)));
                    let writer = ShimWriter { writer, rest, waiting };
                    self.tasks.spawn(read(id, reader, writer, self.sender.clone()));
                }
                Some(_) = self.tasks.join_next() => {}
            }
        }
    }

    /// Takes no more connections: the socket is gone.
    pub(super) fn stop_listening(&mut self) {
        self.listener = None;
    }

    /// Waits until what waits for shims is written.
    pub(super) async fn close(mut self) {
        drop((self.events, self.sender));
        while self.tasks.join_next().await.is_some() {}
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

/// Reads the first line, in time, and then all others.
async fn read(
    id: SessionId,
    mut reader: SocketReader,
    writer: ShimWriter,
    events: mpsc::Sender<(SessionId, ShimEvent)>,
) {
    let mut lines = LineSplitter::default();
    let mut frames = Vec::new();
    let mut buffer = vec![0; TALK_CHUNK_BYTES];
    let mut writer = Some(writer);
    loop {
        let read = reader.read(&mut buffer);
        let read = match writer {
            Some(_) => timeout(SHARE_HELLO_WAIT, read).await.unwrap_or(Ok(0)),
            None => read.await,
        };
        let Ok(length @ 1..) = read else { break };
        lines.push(&buffer[..length], |frame| frames.push(frame));
        if writer.is_some() && lines.unfinished() > SHARE_HELLO_BYTES_MAX {
            break;
        }
        for frame in frames.drain(..) {
            let event = match writer.take() {
                Some(writer) => ShimEvent::Hello(frame, writer),
                None => ShimEvent::Line(frame),
            };
            if events.send((id, event)).await.is_err() {
                return;
            }
        }
    }
    if writer.is_none() {
        events.send((id, ShimEvent::Gone)).await.ok();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn a_shim_whose_session_is_over_sees_the_end_behind_the_last_line() {
        let socket = std::env::temp_dir().join(format!("afresh-shims-{}", std::process::id()));
        let unnamed = PathBuf::from(format!("{}.new", socket.display()));
        let listener = SocketListener::bind(&socket, &unnamed).expect("a free name");
        let mut connections = ShimConnections::new(listener);
        let mut shim = UnixStream::connect(&socket).await.expect("it listens");
        std::fs::remove_file(&socket).expect("ours");
        shim.write_all(b"hello\n").await.expect("it is open");
        let (_, ShimEvent::Hello(_, writer)) = connections.next().await else {
            panic!("a shim says hello first")
        };
        assert!(writer.send(b"leave".to_vec()));
        // The session is dropped; the shim may still write, and is read.
        drop(writer);
        let mut read = String::new();
        let end = timeout(Duration::from_secs(20), shim.read_to_string(&mut read));
        end.await.expect("the connection ends").expect("text");
        assert_eq!(read, "leave\n");
        shim.write_all(b"more\n").await.expect("it is read");
        assert!(matches!(connections.next().await, (_, ShimEvent::Line(_))));
        drop(shim);
        assert!(matches!(connections.next().await, (_, ShimEvent::Gone)));
    }
}
