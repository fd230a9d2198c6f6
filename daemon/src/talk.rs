//! Lines to and from one instance of an MCP server: bounded, and never half a line.

use std::io;

use afresh_core::id::Generation;
use afresh_core::limits::{PIPE_CHUNK_BYTES, TALK_LINES_MAX};
use afresh_core::mcp::frame::{Frame, Lines};
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, watch};

use crate::os::{PipeReader, PipeWriter};

/// What an instance says.
pub(crate) enum Word {
    Frame(Generation, Frame),
    /// Its output has ended, and all of it was told.
    End(Generation),
}

/// Waits until an instance has taken half of what waits for it, or is gone.
pub(crate) async fn until_room(lines: Option<&mpsc::Sender<Vec<u8>>>) {
    if let Some(lines) = lines {
        lines.reserve_many(TALK_LINES_MAX / 2 + 1).await.ok();
    }
}

/// Writes lines to an instance, several at once when they wait.
pub(crate) async fn speak(mut stdin: PipeWriter, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(mut bytes) = lines.recv().await {
        while bytes.len() < PIPE_CHUNK_BYTES
            && let Ok(more) = lines.try_recv()
        {
            bytes.extend_from_slice(&more);
        }
        if stdin.write_all(&bytes).await.is_err() {
            // Its end is told elsewhere; what is meant for it is settled by the conversation.
            return;
        }
    }
}

/// Reads an instance's lines until its output ends, or the instance is gone and the pipe is empty.
pub(crate) async fn listen(
    generation: Generation,
    stdout: PipeReader,
    mut gone: watch::Receiver<bool>,
    words: mpsc::Sender<Word>,
) {
    let mut lines = Lines::default();
    let mut buffer = vec![0; PIPE_CHUNK_BYTES * 4];
    loop {
        let ended = *gone.borrow_and_update();
        match stdout.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                for frame in lines.push(&buffer[..length]) {
                    if words.send(Word::Frame(generation, frame)).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !ended => {
                tokio::select! {
                    ready = stdout.readable() => if ready.is_err() { break },
                    changed = gone.changed() => if changed.is_err() { break },
                }
            }
            Err(_) => break,
        }
    }
    // Half a line of an instance that is gone is nobody's.
    words.send(Word::End(generation)).await.ok();
}
