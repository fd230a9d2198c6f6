//! Owns the pipes of a conversation, read and written in the loop's own thread: a message goes from one
//! peer to another without waking another thread. Driven by the MCP fast path.
//!
//! Nothing here waits for a peer. Lines that a peer does not take are queued, and while such a queue
//! is over its bound, the peer that fills it is not read from; the bounds are in `limits.rs`.
//!
//! A client can be in the same loop, without a pipe: its lines then wait in an outbox for its owner.

mod wire;

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use afresh_core::id::Generation;
use afresh_core::limits::{
    CLIENT_BYTES_MAX, LAST_WORDS_BYTES_MAX, OUTBOX_BYTES_MAX, TALK_BYTES_MAX,
};
use afresh_core::mcp::EndCause;
use afresh_core::mcp::frame::Frame;
use tokio::io::AsyncWrite;

use self::wire::{Buffers, ClientOutbox, PeerWire};
use crate::os::{PipeReader, PipeWriter};
use crate::stream::{StreamReader, StreamWriter};

/// A line or an event of a peer.
pub(crate) enum WireInput {
    Client(Frame),
    Instance(Generation, Frame),
    Event(WireEvent),
}

/// A change of a peer.
pub(crate) enum WireEvent {
    /// The client says nothing more, or cannot be told anything any more.
    ClientGone,
    /// An instance that lives has closed its output, and all of it was told.
    InstanceSilent(Generation),
    /// An instance that lives does not take anything any more.
    InstanceDeaf(Generation),
    /// An instance is gone, and all of its output was told; with how many of its lines it has read, `None` where
    /// that cannot be known.
    InstanceGone { generation: Generation, read: Option<u64>, end: InstanceEnd },
}

/// The pipes of a new instance that speaks a protocol.
pub(crate) struct InstancePipes {
    pub(crate) generation: Generation,
    pub(crate) stdin: PipeWriter,
    pub(crate) stdout: PipeReader,
}

/// The end of an instance's process, as clients are told of it.
#[derive(Debug, Default)]
pub(crate) struct InstanceEnd {
    pub(crate) how: String,
    pub(crate) cause: EndCause,
}

/// All pipes of one conversation.
#[derive(Default)]
pub(crate) struct Wires {
    /// None where the client has no pipe.
    client: Option<PeerWire>,
    /// The lines for such a client.
    outbox: ClientOutbox,
    /// There are few: the one that serves, one that comes, some that go.
    instances: Vec<InstanceWire>,
    buffers: Buffers,
    /// Bytes that wait for the client before nothing more is read from it, where that is another bound.
    client_bytes_max: Option<usize>,
}

#[derive(Default)]
struct InstanceWire {
    generation: Generation,
    wire: PeerWire,
    /// It is known to run: nothing of it is told before that.
    has_begun: bool,
    /// It does not take anything any more, and that was told.
    is_deaf: bool,
    /// Set when the process is gone, until the news of it.
    end: Option<InstanceEnd>,
    /// The bytes of its last output that may still be read; set when the process is gone.
    last_words: Option<usize>,
    /// How many lines it had read when it was gone.
    read: Option<u64>,
}

impl Wires {
    /// The client's wire, and none yet of an instance.
    pub(crate) fn new(input: StreamReader, output: StreamWriter) -> Self {
        Self { client: Some(PeerWire::new(input, output)), ..Self::default() }
    }

    /// The same wires, with another bound of the bytes that wait for the client.
    pub(crate) fn bounded(self, client_bytes_max: usize) -> Self {
        Self { client_bytes_max: Some(client_bytes_max), ..self }
    }

    /// For a client that has no pipe: what it is told is taken from the outbox, and it is never gone.
    pub(crate) fn without_client() -> Self {
        Self::default()
    }

    /// Whether there are pipes to the client.
    pub(crate) fn have_client(&self) -> bool {
        self.client.is_some()
    }

    /// What the client was told since the last time, where it has no pipe, up to so many lines. Instances
    /// are not read from while there is too much of it, so that the wires have to be polled after that.
    pub(crate) fn take_outbox(&mut self, lines_max: usize) -> VecDeque<Vec<u8>> {
        self.outbox.take(lines_max)
    }

    /// The bytes that wait for the client.
    pub(crate) fn client_waiting(&self) -> usize {
        self.client.as_ref().map_or(self.outbox.bytes, |client| client.waiting.bytes)
    }

    /// Whether there is room for more of the client's.
    pub(crate) fn have_room(&self) -> bool {
        let has_room = |instance: &InstanceWire| instance.wire.waiting.bytes < TALK_BYTES_MAX;
        let client_bytes_max = self.client_bytes_max.unwrap_or(CLIENT_BYTES_MAX);
        self.instances.iter().all(has_room) && self.client_waiting() < client_bytes_max
    }

    /// The pipes of an instance that is being started.
    pub(crate) fn welcome(&mut self, pipes: InstancePipes) {
        let InstancePipes { generation, stdin, stdout } = pipes;
        let mut wire = PeerWire::new(Box::new(stdout), Box::new(stdin));
        // It may close its end while nothing is written to it.
        wire.closed = wire.writer.as_ref().and_then(|writer| writer.closed());
        self.instances.push(InstanceWire { generation, wire, ..InstanceWire::default() });
    }

    fn instance(&mut self, generation: Generation) -> Option<&mut InstanceWire> {
        self.instances.iter_mut().find(|instance| instance.generation == generation)
    }

    /// The instance runs.
    pub(crate) fn begin(&mut self, generation: Generation) {
        self.instance(generation).into_iter().for_each(|instance| instance.has_begun = true);
    }

    /// The process of an instance has ended. The news of it follows the last output; an instance without
    /// pipes has none, and its end is returned.
    pub(crate) fn process_ended(
        &mut self,
        generation: Generation,
        end: InstanceEnd,
    ) -> Option<InstanceEnd> {
        let Some(instance) = self.instance(generation) else { return Some(end) };
        instance.end = Some(end);
        instance.last_words = Some(LAST_WORDS_BYTES_MAX);
        instance.read = instance.wire.lines_read();
        // There is no reader any more.
        instance.wire.break_off();
        None
    }

    /// Whether no instance has anything left to say.
    pub(crate) fn are_alone(&self) -> bool {
        self.instances.is_empty()
    }

    /// Puts a line in front of the client.
    pub(crate) fn tell_client(&mut self, line: Vec<u8>) {
        match &mut self.client {
            Some(client) => client.send(line),
            None => self.outbox.push(line),
        }
    }

    /// Puts a line in front of an instance; one that is gone gets nothing.
    pub(crate) fn tell_instance(&mut self, generation: Generation, line: Vec<u8>) {
        if let Some(instance) = self.instance(generation) {
            instance.wire.send(line);
        }
    }

    /// An instance is told nothing more than what waits for it; then its input ends.
    pub(crate) fn end(&mut self, generation: Generation) {
        self.instance(generation).into_iter().for_each(|instance| instance.wire.end());
    }

    /// The client is not listened to any more, and each instance's input ends after what waits for
    /// it.
    pub(crate) fn leave(&mut self) {
        if let Some(client) = &mut self.client {
            client.reader = None;
        }
        for instance in &mut self.instances {
            instance.wire.end();
        }
    }

    /// Looks for instances that have closed their end, and asks to be woken when one does:
    /// only then it has to be called again.
    pub(crate) fn look_for_ends(&mut self, context: &mut Context<'_>) {
        for instance in &mut self.instances {
            instance.wire.look_whether_closed(context);
        }
    }

    /// Writes what waits, as far as it is taken, and reads each pipe once, as far as there is
    /// something and room for it. Ready when something was read, be it only a part of a line.
    pub(crate) fn poll_heard(
        &mut self,
        context: &mut Context<'_>,
        heard: &mut VecDeque<WireInput>,
    ) -> Poll<()> {
        if let Some(client) = &mut self.client {
            let was_broken = client.writer.is_none();
            client.write(context, &mut self.buffers);
            if client.writer.is_none() && !was_broken {
                heard.push_back(WireInput::Event(WireEvent::ClientGone));
            }
        }
        for instance in &mut self.instances {
            instance.wire.write(context, &mut self.buffers);
        }
        let mut was_read = !heard.is_empty();
        let have_room = self.have_room();
        if let Some(client) = self.client.as_mut().filter(|_| have_room) {
            let give = |frame| heard.push_back(WireInput::Client(frame));
            match client.read(context, &mut self.buffers, give) {
                Poll::Pending => {}
                Poll::Ready(0) => {
                    was_read = true;
                    heard.push_back(WireInput::Event(WireEvent::ClientGone));
                }
                Poll::Ready(_) => was_read = true,
            }
        }
        if self.client_waiting() < OUTBOX_BYTES_MAX {
            for instance in &mut self.instances {
                was_read |= instance.read(context, &mut self.buffers, heard);
            }
            self.instances.retain(|instance| instance.wire.reader.is_some() || instance.is_alive());
        }
        if was_read { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Whether the memory of a long line is kept for the next one.
    pub(crate) fn has_spare(&self) -> bool {
        self.buffers.spare.capacity() > 0
    }

    /// Gives that memory back.
    pub(crate) fn drop_spare(&mut self) {
        self.buffers.spare = Vec::new();
    }

    /// Waits until the client has taken all, or is gone.
    pub(crate) async fn flush(&mut self) {
        let Some(client) = &mut self.client else { return };
        std::future::poll_fn(|context| {
            client.write(context, &mut self.buffers);
            match &mut client.writer {
                Some(writer) if client.waiting.bytes == 0 => {
                    Pin::new(writer).poll_flush(context).map(drop)
                }
                Some(_) => Poll::Pending,
                None => Poll::Ready(()),
            }
        })
        .await;
    }
}

impl InstanceWire {
    fn is_alive(&self) -> bool {
        self.last_words.is_none()
    }

    /// The news of its end.
    fn gone(&mut self) -> WireInput {
        let (generation, read) = (self.generation, self.read);
        let end = self.end.take().unwrap_or_default();
        WireInput::Event(WireEvent::InstanceGone { generation, read, end })
    }

    /// Returns whether there was something, be it the end.
    fn read(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut Buffers,
        heard: &mut VecDeque<WireInput>,
    ) -> bool {
        if !self.has_begun && self.last_words.is_none() {
            return false;
        }
        let generation = self.generation;
        let give = |frame| heard.push_back(WireInput::Instance(generation, frame));
        let ended = match (self.wire.read(context, buffers, give), &mut self.last_words) {
            (Poll::Ready(length), Some(left)) => {
                *left = left.saturating_sub(length);
                length == 0 || *left == 0
            }
            (Poll::Ready(length), None) => length == 0,
            // It said nothing more since it was silent.
            (Poll::Pending, Some(_)) if self.wire.reader.is_none() => {
                heard.push_back(self.gone());
                return true;
            }
            // A process that could not be killed may hold the other end for ever.
            (Poll::Pending, Some(_)) => true,
            // What it said before that comes first.
            (Poll::Pending, None) => {
                // It has closed its end, by no will of ours.
                let is_deaf = self.wire.writer.is_none() && !self.wire.is_ending && !self.is_deaf;
                if is_deaf {
                    self.is_deaf = true;
                    heard.push_back(WireInput::Event(WireEvent::InstanceDeaf(generation)));
                }
                return is_deaf;
            }
        };
        if ended {
            // Half a line of an instance that is gone is dropped.
            self.wire.reader = None;
            heard.push_back(match self.is_alive() {
                true => WireInput::Event(WireEvent::InstanceSilent(generation)),
                false => self.gone(),
            });
        }
        true
    }
}
