//! Owns the bodies of responses: whole, or events as they come. Driven by hyper. Never blocks the loop.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use afresh_core::limits::{FRONT_UNREAD_BYTES_MAX, FRONT_UNREAD_MAX};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::mpsc;

use super::exchange::Presence;
use super::server::Busy;

/// What both ends of a stream know.
#[derive(Default)]
pub(super) struct Written {
    unread_bytes: AtomicUsize,
    has_ended: AtomicBool,
}

impl Written {
    /// Whether so much more may wait; a single event always may.
    pub(super) fn admits(&self, bytes: usize) -> bool {
        let unread = self.unread_bytes.load(Ordering::Relaxed);
        unread == 0 || unread + bytes <= FRONT_UNREAD_BYTES_MAX
    }

    pub(super) fn note_added(&self, bytes: usize) {
        self.unread_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// It is over when all is read, and was not just broken off.
    pub(super) fn note_end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

/// The end of a stream that is read from.
pub(super) struct Events {
    events: mpsc::Receiver<Bytes>,
    written: Arc<Written>,
}

impl Events {
    /// Both ends.
    pub(super) fn new() -> (mpsc::Sender<Bytes>, Arc<Written>, Self) {
        let (sender, events) = mpsc::channel(FRONT_UNREAD_MAX);
        let written = Arc::new(Written::default());
        (sender, Arc::clone(&written), Self { events, written })
    }
}

/// A body; while it is there, its connection is busy.
pub(super) struct ResponseBody {
    content: Content,
    _busy: Option<Busy>,
}

enum Content {
    Whole(Bytes),
    /// Events, and the word that the connection is gone.
    Events(Box<(Events, Presence)>),
}

impl ResponseBody {
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { content: Content::Whole(bytes.into()), _busy: None }
    }

    pub(super) fn events(events: Events, presence: Presence) -> Self {
        Self { content: Content::Events(Box::new((events, presence))), _busy: None }
    }

    pub(super) fn holding(self, busy: Busy) -> Self {
        Self { _busy: Some(busy), ..self }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let bytes = match &mut self.content {
            Content::Whole(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Content::Whole(bytes) => std::mem::take(bytes),
            Content::Events(both) => {
                let (events, presence) = &mut **both;
                match ready!(events.events.poll_recv(context)) {
                    Some(bytes) => {
                        events.written.unread_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
                        bytes
                    }
                    None if events.written.has_ended.load(Ordering::Relaxed) => {
                        presence.is_over();
                        return Poll::Ready(None);
                    }
                    None => return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into()))),
                }
            }
        };
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.content, Content::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Events(_) => SizeHint::default(),
        }
    }
}
