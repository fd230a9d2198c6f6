//! Owns the pipes of one peer: bounded reads, writes that never wait, the lines that wait for the peer, and the
//! buffers that are used again. Driven by [`Wires`](super::Wires).

use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use afresh_core::limits::{
    JOINED_BYTES_MAX, LONG_LINE_BYTES, PIPE_BYTES_MAX, SPARE_BYTES_MAX, TALK_CHUNK_BYTES,
};
use afresh_core::mcp::frame::{Frame, LineSplitter};
use tokio::io::{AsyncReadExt, AsyncWrite};

use crate::stream::{Completion, Pipe, StreamReader, StreamWriter};

/// The pipes of one peer.
#[derive(Default)]
pub(super) struct PeerWire {
    /// None after its end.
    pub(super) reader: Option<StreamReader>,
    pub(super) lines: LineSplitter,
    /// None after its end, and when the peer does not take anything any more.
    pub(super) writer: Option<StreamWriter>,
    /// Completes when the peer closes its end; goes with the writer, as it holds the same
    /// pipe.
    pub(super) closed: Option<Completion>,
    pub(super) waiting: WriteQueue,
    /// Nothing more will be written than what waits.
    pub(super) is_ending: bool,
    sent: SentLines,
    /// A handle to the pipe after the end of the writer.
    far_end: Option<Box<dyn Pipe + Send>>,
    /// The unread bytes in the pipe when the peer had closed its end.
    unread: Option<usize>,
    /// Bytes that could not be written after that.
    lost: usize,
    /// Long lines come, or go.
    is_wide_in: bool,
    is_wide_out: bool,
}

impl PeerWire {
    pub(super) fn new(reader: StreamReader, writer: StreamWriter) -> Self {
        Self { reader: Some(reader), writer: Some(writer), ..Self::default() }
    }

    /// Asks to be woken when the peer closes its end.
    pub(super) fn look_whether_closed(&mut self, context: &mut Context<'_>) {
        if let Some(closed) = &mut self.closed
            && closed.as_mut().poll(context).is_ready()
        {
            self.break_off();
        }
    }

    fn take_writer(&mut self) -> Option<StreamWriter> {
        self.closed = None;
        self.writer.take()
    }

    pub(super) fn send(&mut self, line: Vec<u8>) {
        if !self.is_ending {
            self.sent.push(line.len() + 1, self.waiting.bytes);
            if self.writer.is_some() {
                self.waiting.push(line);
            } else {
                self.lost += line.len() + 1;
            }
        }
    }

    /// The number of lines that the peer has read.
    pub(super) fn lines_read(&self) -> Option<u64> {
        let in_pipe = match (&self.writer, &self.far_end) {
            (Some(writer), _) => writer.unread()?,
            (None, Some(far_end)) => far_end.unread()?,
            (None, None) => self.unread?,
        };
        Some(self.sent.read(in_pipe + self.waiting.bytes + self.lost))
    }

    pub(super) fn end(&mut self) {
        self.is_ending = true;
        if self.waiting.bytes == 0 {
            self.close();
        }
    }

    /// The peer sees the end of its input; it may never read what is before it.
    fn close(&mut self) {
        if let Some(writer) = self.take_writer() {
            self.far_end = writer.far_end();
        }
    }

    pub(super) fn break_off(&mut self) {
        if let Some(writer) = self.take_writer() {
            self.unread = writer.unread();
        }
        self.lost += self.waiting.bytes;
        self.waiting = WriteQueue::default();
    }

    /// Writes as much as is taken, and asks to be woken for the rest.
    pub(super) fn write(&mut self, context: &mut Context<'_>, buffers: &mut Buffers) {
        while let Some(writer) = &mut self.writer
            && let Some(bytes) = self.waiting.next()
        {
            if bytes.len() > LONG_LINE_BYTES && !std::mem::replace(&mut self.is_wide_out, true) {
                writer.widen();
            }
            match Pin::new(writer).poll_write(context, bytes) {
                Poll::Pending => return,
                Poll::Ready(Ok(written)) if written > 0 => {
                    buffers.keep(self.waiting.advance(written));
                }
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                // What is meant for it is settled by the conversation.
                Poll::Ready(_) => return self.break_off(),
            }
        }
        if self.is_ending {
            self.close();
        }
    }

    /// Reads once, and gives the lines that are complete. Ready with the number of bytes; with 0 at
    /// the end, once. Asks to be woken where there is nothing.
    pub(super) fn read(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut Buffers,
        give: impl FnMut(Frame),
    ) -> Poll<usize> {
        let Some(reader) = &mut self.reader else { return Poll::Pending };
        let long = self.lines.long();
        let is_long = long.is_some();
        let place = match long {
            Some(line) => {
                buffers.give_spare(line);
                line
            }
            None => {
                buffers.chunk.clear();
                &mut buffers.chunk
            }
        };
        let before = place.len();
        place.reserve(TALK_CHUNK_BYTES);
        let length = loop {
            match pin!(reader.read_buf(place)).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(length)) => break length,
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Poll::Ready(Err(_)) => break 0,
            }
        };
        if length >= LONG_LINE_BYTES && !std::mem::replace(&mut self.is_wide_in, true) {
            reader.widen();
        }
        match is_long {
            _ if length == 0 => self.reader = None,
            true => self.lines.pushed(before, give),
            false => self.lines.push(&buffers.chunk, give),
        }
        Poll::Ready(length)
    }
}

/// A line of less is copied to where others are joined to it; a longer one is moved.
const SHORT_LINE_BYTES: usize = 4 * 1024;

/// Memory that all wires share.
#[derive(Default)]
pub(super) struct Buffers {
    /// The bytes of the last read.
    pub(super) chunk: Vec<u8>,
    /// That of the last long line, for the next one.
    pub(super) spare: Vec<u8>,
}

impl Buffers {
    pub(super) fn keep(&mut self, part: Option<Vec<u8>>) {
        let fits = LONG_LINE_BYTES + 1..=SPARE_BYTES_MAX;
        if let Some(part) = part.filter(|part| fits.contains(&part.capacity()))
            && part.capacity() > self.spare.capacity()
        {
            self.spare = part;
        }
    }

    /// Lets a long line grow in memory that is there already.
    pub(super) fn give_spare(&mut self, line: &mut Vec<u8>) {
        if line.capacity() < self.spare.capacity() {
            self.spare.clear();
            self.spare.extend_from_slice(line);
            std::mem::swap(line, &mut self.spare);
            self.spare = Vec::new();
        }
    }
}

/// Lines that a peer has not taken yet.
#[derive(Default)]
pub(super) struct WriteQueue {
    parts: VecDeque<Vec<u8>>,
    /// The bytes of the first part that are written.
    taken: usize,
    /// The bytes of all parts.
    pub(super) bytes: usize,
    /// Where short lines are joined; used again when all of them are taken.
    joined: Vec<u8>,
}

impl WriteQueue {
    pub(super) fn push(&mut self, mut line: Vec<u8>) {
        self.bytes += line.len() + 1;
        match self.parts.back_mut() {
            Some(last) if last.len() + line.len() < JOINED_BYTES_MAX => {
                last.extend_from_slice(&line);
                last.push(b'\n');
            }
            // Others may follow before this one is written.
            None if line.len() < SHORT_LINE_BYTES => {
                let mut joined = std::mem::take(&mut self.joined);
                joined.extend_from_slice(&line);
                joined.push(b'\n');
                self.parts.push_back(joined);
            }
            _ => {
                line.push(b'\n');
                self.parts.push_back(line);
            }
        }
    }

    pub(super) fn next(&self) -> Option<&[u8]> {
        self.parts.front().map(|part| &part[self.taken..])
    }

    /// Returns the long part that is taken whole by that.
    pub(super) fn advance(&mut self, written: usize) -> Option<Vec<u8>> {
        self.bytes -= written;
        self.taken += written;
        let is_taken = self.parts.front().is_some_and(|part| self.taken == part.len());
        if !is_taken {
            return None;
        }
        self.taken = 0;
        let mut part = self.parts.pop_front()?;
        if part.capacity() > JOINED_BYTES_MAX * 2 {
            return Some(part);
        }
        if part.capacity() > self.joined.capacity() {
            part.clear();
            self.joined = part;
        }
        None
    }
}

/// Lines for a client that has no pipe.
#[derive(Default)]
pub(super) struct ClientOutbox {
    pub(super) lines: VecDeque<Vec<u8>>,
    /// How much that is, with the ends that they would have in a pipe.
    pub(super) bytes: usize,
}

impl ClientOutbox {
    pub(super) fn push(&mut self, line: Vec<u8>) {
        self.bytes += line.len() + 1;
        self.lines.push_back(line);
    }

    pub(super) fn take(&mut self, lines_max: usize) -> VecDeque<Vec<u8>> {
        if self.lines.len() <= lines_max {
            self.bytes = 0;
            return std::mem::take(&mut self.lines);
        }
        let taken: VecDeque<Vec<u8>> = self.lines.drain(..lines_max).collect();
        self.bytes -= taken.iter().map(|line| line.len() + 1).sum::<usize>();
        taken
    }
}

/// The lines that were sent, by their ends.
#[derive(Default)]
pub(super) struct SentLines {
    lines: u64,
    bytes: u64,
    /// The end of each line that may be unread, the oldest first.
    ends: VecDeque<u64>,
}

impl SentLines {
    pub(super) fn push(&mut self, bytes: usize, waiting: usize) {
        self.lines += 1;
        self.bytes += bytes as u64;
        self.ends.push_back(self.bytes);
        // What is further back than the pipe is long has been read.
        let surely_read = self.bytes.saturating_sub((waiting + bytes + PIPE_BYTES_MAX) as u64);
        while self.ends.front().is_some_and(|end| *end <= surely_read) {
            self.ends.pop_front();
        }
    }

    /// The number of lines that were read, if so many of the last bytes were not.
    pub(super) fn read(&self, unread: usize) -> u64 {
        let read_to = self.bytes.saturating_sub(unread as u64);
        self.lines - self.ends.iter().filter(|end| **end > read_to).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lines_are_joined_and_long_ones_are_moved() {
        let mut waiting = WriteQueue::default();
        let mut long = Vec::with_capacity(JOINED_BYTES_MAX + 1);
        long.resize(JOINED_BYTES_MAX, b'x');
        let place = long.as_ptr();
        for line in [b"one".to_vec(), b"two".to_vec(), long, b"three".to_vec()] {
            waiting.push(line);
        }
        assert_eq!(waiting.bytes, 4 + 4 + JOINED_BYTES_MAX + 1 + 6);
        assert_eq!(waiting.next(), Some(&b"one\ntwo\n"[..]));
        assert_eq!(waiting.advance(5), None);
        assert_eq!(waiting.next(), Some(&b"wo\n"[..]));
        assert_eq!(waiting.advance(3), None);
        let part = waiting.next().expect("it follows");
        assert_eq!(part.len(), JOINED_BYTES_MAX + 1);
        // With room for the end of the line, it has not moved.
        assert_eq!(part.as_ptr(), place);
        waiting.advance(JOINED_BYTES_MAX + 1);
        assert_eq!(waiting.next(), Some(&b"three\n"[..]));
        waiting.advance(6);
        assert!(waiting.next().is_none() && waiting.bytes == 0);
    }

    #[test]
    fn the_memory_of_a_long_line_is_used_for_the_next_one() {
        let mut buffers = Buffers::default();
        buffers.keep(Some(vec![0; 10]));
        buffers.keep(Some(Vec::with_capacity(SPARE_BYTES_MAX * 2)));
        assert_eq!(buffers.spare.capacity(), 0);
        buffers.keep(Some(vec![0; LONG_LINE_BYTES * 3]));
        let mut line = vec![b'y'; LONG_LINE_BYTES];
        buffers.give_spare(&mut line);
        assert!(line.capacity() >= LONG_LINE_BYTES * 3 && line == vec![b'y'; LONG_LINE_BYTES]);
        assert_eq!(buffers.spare.capacity(), 0);
    }

    #[test]
    fn lines_are_read_when_their_last_byte_is() {
        let mut sent = SentLines::default();
        for _ in 0..3 {
            sent.push(10, 0);
        }
        for (unread, read) in [(0, 3), (1, 2), (10, 2), (11, 1), (29, 0), (30, 0), (99, 0)] {
            assert_eq!(sent.read(unread), read, "{unread}");
        }
        // What cannot be in the pipe any more is not remembered.
        for _ in 0..3 * PIPE_BYTES_MAX / 1_000 {
            sent.push(1_000, 0);
        }
        assert!(sent.ends.len() <= PIPE_BYTES_MAX / 1_000 + 2);
        assert_eq!(sent.read(1_500), sent.lines - 2);
    }
}
