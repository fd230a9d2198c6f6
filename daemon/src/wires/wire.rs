//! Owns the pipes of one peer: bounded reads, and writes that never wait. Driven by [`Wires`](super::Wires).

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use afresh_core::limits::{LONG_LINE_BYTES, TALK_CHUNK_BYTES};
use afresh_core::mcp::frame::{Frame, LineSplitter};
use tokio::io::{AsyncReadExt, AsyncWrite};

use super::memory::{Buffers, WriteQueue};
use super::sent_lines::SentLines;
use crate::stream::{Completion, Pipe, StreamReader, StreamWriter};

/// The pipes of one peer.
pub(super) struct PeerWire {
    /// None after its end.
    pub(super) reader: Option<StreamReader>,
    pub(super) lines: LineSplitter,
    /// None after its end, and when the peer does not take anything any more.
    pub(super) writer: Option<StreamWriter>,
    /// Completes when the peer closes its end; goes with the writer, as it holds the same
    /// pipe.
    closed: Option<Completion>,
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
        Self {
            reader: Some(reader),
            lines: LineSplitter::default(),
            writer: Some(writer),
            closed: None,
            waiting: WriteQueue::default(),
            is_ending: false,
            sent: SentLines::default(),
            far_end: None,
            unread: None,
            lost: 0,
            is_wide_in: false,
            is_wide_out: false,
        }
    }

    /// Looks out for a peer that closes its end while nothing is written to it.
    pub(super) fn watch(&mut self) {
        self.closed = self.writer.as_ref().and_then(|writer| writer.closed());
    }

    /// Asks to be woken when the peer closes its end.
    pub(super) fn look_whether_closed(&mut self, context: &mut Context<'_>) {
        if let Some(closed) = &mut self.closed
            && closed.as_mut().poll(context).is_ready()
        {
            self.break_off();
        }
    }

    /// Whether the peer has closed its end, by no will of ours.
    pub(super) fn is_deaf(&self) -> bool {
        self.writer.is_none() && !self.is_ending
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

    pub(super) fn is_broken(&self) -> bool {
        self.writer.is_none()
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
