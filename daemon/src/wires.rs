//! The pipes of a conversation, read and written in the loop's own thread: a message goes from one
//! peer to another without waking anybody in between.
//!
//! Nothing here waits for a peer. What one does not take stands in a line of its own, and while that
//! is over its bound, whoever causes it is not read from; the bounds are in `limits.rs`.

use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use afresh_core::id::Generation;
use afresh_core::limits::{
    JOINED_BYTES_MAX, LAST_WORDS_BYTES_MAX, OUTBOX_BYTES_MAX, TALK_BYTES_MAX, TALK_CHUNK_BYTES,
};
use afresh_core::mcp::frame::{Frame, Lines};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use crate::definition::Talker;

/// Where a peer's bytes come from.
pub(crate) type Reader = Box<dyn AsyncRead + Send + Unpin>;

/// Where bytes for a peer go.
pub(crate) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Something that happens once.
pub(crate) type Moment = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What came over the wires.
pub(crate) enum Heard {
    Client(Frame),
    /// The client says nothing more, or cannot be told anything any more.
    ClientGone,
    Instance(Generation, Frame),
    /// The output of an instance has ended, and all of it was told.
    InstanceEnded {
        generation: Generation,
        is_alive: bool,
    },
}

/// All pipes of one conversation.
pub(crate) struct Wires {
    client: Wire,
    /// There are few: the one that serves, one that comes, some that go.
    instances: Vec<Instance>,
    buffer: Vec<u8>,
}

struct Instance {
    generation: Generation,
    wire: Wire,
    /// Comes when the process is gone.
    gone: Option<Moment>,
    /// How much of its last words may still be taken; set when the process is gone.
    last_words: Option<usize>,
}

impl Wires {
    /// The client's wire, and none yet of an instance.
    pub(crate) fn new(input: Reader, output: Writer) -> Self {
        let buffer = Vec::with_capacity(TALK_CHUNK_BYTES);
        Self { client: Wire::new(input, output), instances: Vec::new(), buffer }
    }

    /// An instance can be talked to.
    pub(crate) fn welcome(&mut self, talker: Talker) {
        let Talker { generation, stdin, stdout, mut gone } = talker;
        let gone: Moment = Box::pin(async move {
            // Whoever would say it lives as long as the instance.
            gone.wait_for(|gone| *gone).await.ok();
        });
        let wire = Wire::new(Box::new(stdout), Box::new(stdin));
        self.instances.push(Instance { generation, wire, gone: Some(gone), last_words: None });
    }

    /// Whether an instance may still have something to say.
    pub(crate) fn has(&self, generation: Generation) -> bool {
        self.instances.iter().any(|instance| instance.generation == generation)
    }

    /// Puts a line in front of the client.
    pub(crate) fn to_client(&mut self, line: Vec<u8>) {
        self.client.send(line);
    }

    /// Puts a line in front of an instance; one that is gone gets nothing.
    pub(crate) fn to_instance(&mut self, generation: Generation, line: Vec<u8>) {
        if let Some(instance) = self.instances.iter_mut().find(|i| i.generation == generation) {
            instance.wire.send(line);
        }
    }

    /// The client is not listened to any more, and each instance's input ends after what waits for
    /// it.
    pub(crate) fn leave(&mut self) {
        self.client.reader = None;
        for instance in &mut self.instances {
            instance.wire.end();
        }
    }

    /// Writes what waits, as far as it is taken, and reads each pipe once, as far as there is
    /// something and room for it. Ready when something was read, be it only a part of a line.
    pub(crate) fn poll_heard(
        &mut self,
        context: &mut Context<'_>,
        heard: &mut Vec<Heard>,
    ) -> Poll<()> {
        let was_broken = self.client.is_broken();
        self.client.write(context);
        if self.client.is_broken() && !was_broken {
            heard.push(Heard::ClientGone);
        }
        for instance in &mut self.instances {
            instance.wire.write(context);
        }
        let mut was_read = !heard.is_empty();
        if self.instances.iter().all(|instance| instance.wire.waiting.bytes < TALK_BYTES_MAX) {
            let give = |frame| heard.push(Heard::Client(frame));
            match self.client.read(context, &mut self.buffer, give) {
                Poll::Pending => {}
                Poll::Ready(0) => {
                    was_read = true;
                    heard.push(Heard::ClientGone);
                }
                Poll::Ready(_) => was_read = true,
            }
        }
        if self.client.waiting.bytes < OUTBOX_BYTES_MAX {
            for instance in &mut self.instances {
                was_read |= instance.read(context, &mut self.buffer, heard);
            }
            self.instances.retain(|instance| instance.wire.reader.is_some());
        }
        if was_read { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits until the client has taken all, or is gone.
    pub(crate) async fn flush(&mut self) {
        std::future::poll_fn(|context| {
            self.client.write(context);
            match &mut self.client.writer {
                Some(writer) if self.client.waiting.bytes == 0 => {
                    Pin::new(writer).poll_flush(context).map(drop)
                }
                Some(_) => Poll::Pending,
                None => Poll::Ready(()),
            }
        })
        .await;
    }
}

impl Instance {
    /// Returns whether there was something, be it the end.
    fn read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Vec<u8>,
        heard: &mut Vec<Heard>,
    ) -> bool {
        if let Some(gone) = &mut self.gone
            && gone.as_mut().poll(context).is_ready()
        {
            self.gone = None;
            self.last_words = Some(LAST_WORDS_BYTES_MAX);
            // Nobody is there to read it.
            self.wire.break_off();
        }
        let generation = self.generation;
        let give = |frame| heard.push(Heard::Instance(generation, frame));
        let ended = match (self.wire.read(context, buffer, give), &mut self.last_words) {
            (Poll::Ready(length), Some(left)) => {
                *left = left.saturating_sub(length);
                length == 0 || *left == 0
            }
            (Poll::Ready(length), None) => length == 0,
            // A process that could not be killed may hold the other end for ever.
            (Poll::Pending, Some(_)) => true,
            (Poll::Pending, None) => return false,
        };
        if ended {
            // Half a line of an instance that is gone is nobody's.
            self.wire.reader = None;
            let is_alive = self.gone.is_some();
            heard.push(Heard::InstanceEnded { generation, is_alive });
        }
        true
    }
}

/// The pipes of one peer.
struct Wire {
    /// None after its end.
    reader: Option<Reader>,
    lines: Lines,
    /// None after its end, and when the peer does not take anything any more.
    writer: Option<Writer>,
    waiting: Waiting,
    /// Nothing more will be written than what waits.
    is_ending: bool,
}

impl Wire {
    fn new(reader: Reader, writer: Writer) -> Self {
        Self {
            reader: Some(reader),
            lines: Lines::default(),
            writer: Some(writer),
            waiting: Waiting::default(),
            is_ending: false,
        }
    }

    fn send(&mut self, line: Vec<u8>) {
        if self.writer.is_some() && !self.is_ending {
            self.waiting.push(line);
        }
    }

    fn end(&mut self) {
        self.is_ending = true;
        if self.waiting.bytes == 0 {
            self.writer = None;
        }
    }

    fn break_off(&mut self) {
        self.writer = None;
        self.waiting = Waiting::default();
    }

    fn is_broken(&self) -> bool {
        self.writer.is_none()
    }

    /// Writes as much as is taken, and asks to be woken for the rest.
    fn write(&mut self, context: &mut Context<'_>) {
        while let Some(writer) = &mut self.writer
            && let Some(bytes) = self.waiting.next()
        {
            match Pin::new(writer).poll_write(context, bytes) {
                Poll::Pending => return,
                Poll::Ready(Ok(written)) if written > 0 => self.waiting.advance(written),
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                // What is meant for it is settled by the conversation.
                Poll::Ready(_) => return self.break_off(),
            }
        }
        if self.is_ending {
            self.writer = None;
        }
    }

    /// Reads once, and gives the lines that are complete. Ready with the number of bytes; with 0 at
    /// the end, once. Asks to be woken where there is nothing.
    fn read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Vec<u8>,
        give: impl FnMut(Frame),
    ) -> Poll<usize> {
        let Some(reader) = &mut self.reader else { return Poll::Pending };
        let long = self.lines.long();
        let is_long = long.is_some();
        let place = match long {
            Some(line) => line,
            None => {
                buffer.clear();
                &mut *buffer
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
        match is_long {
            _ if length == 0 => self.reader = None,
            true => self.lines.pushed(before, give),
            false => self.lines.push(buffer, give),
        }
        Poll::Ready(length)
    }
}

/// Lines that a peer has not taken yet.
#[derive(Default)]
struct Waiting {
    parts: VecDeque<Vec<u8>>,
    /// How much of the first part is taken.
    taken: usize,
    /// How much waits in all.
    bytes: usize,
}

impl Waiting {
    fn push(&mut self, mut line: Vec<u8>) {
        self.bytes += line.len() + 1;
        match self.parts.back_mut() {
            Some(last) if last.len() + line.len() < JOINED_BYTES_MAX => {
                last.extend_from_slice(&line);
                last.push(b'\n');
            }
            _ => {
                line.push(b'\n');
                self.parts.push_back(line);
            }
        }
    }

    fn next(&self) -> Option<&[u8]> {
        self.parts.front().map(|part| &part[self.taken..])
    }

    fn advance(&mut self, written: usize) {
        self.bytes -= written;
        self.taken += written;
        if self.parts.front().is_some_and(|part| self.taken == part.len()) {
            self.parts.pop_front();
            self.taken = 0;
        }
    }
}
