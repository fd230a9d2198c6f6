//! What hyper needs to speak over our sockets: bytes in and out, and bodies.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use afresh_core::limits::CONTROL_STALL_MAX;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{HeaderMap, HeaderName};
use hyper::rt;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Something to read from and to write to.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection, as hyper wants it. It breaks when the other end does not read for too long.
pub(crate) struct Wire {
    stream: Box<dyn Duplex>,
    /// Until when something has to be read there.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Wire {
    pub(crate) fn new(stream: impl Duplex + 'static) -> Self {
        Self { stream: Box::new(stream), stalled: None }
    }

    /// Looks at the clock where something could not be written.
    fn timed<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.stalled.get_or_insert_with(|| Box::pin(sleep(CONTROL_STALL_MAX)));
        ready!(limit.as_mut().poll(context));
        // Whoever polls this again after its end gets the same.
        limit.as_mut().reset(Instant::now());
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl rt::Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut into: rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0_u8; 4096];
        let room = into.remaining().min(bytes.len());
        let mut read = ReadBuf::new(&mut bytes[..room]);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
        into.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl rt::Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.timed(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The body of an answer, or of a request.
pub(super) enum Answer {
    /// All of it is there.
    Whole(Bytes),
    /// It comes in pieces.
    Pieces(Pieces),
}

/// The next piece, and all that follow it; none at the end.
pub(super) type Pieces = Pin<Box<dyn Future<Output = Option<(Bytes, Rest)>> + Send>>;

/// What follows a piece.
pub(super) struct Rest(pub(super) Pieces);

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Self::Whole(bytes) => std::mem::take(bytes),
            Self::Pieces(next) => match ready!(next.as_mut().poll(context)) {
                Some((bytes, Rest(rest))) => {
                    *next = rest;
                    bytes
                }
                None => {
                    *self = Self::Whole(Bytes::new());
                    return Poll::Ready(None);
                }
            },
        };
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Pieces(_) => SizeHint::default(),
        }
    }
}

/// A value as JSON. Ours have no keys that are not text, so it cannot fail.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The next bytes of a body; none at its end.
pub(crate) async fn next_bytes(body: &mut Incoming) -> Option<hyper::Result<Bytes>> {
    loop {
        let frame =
            std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
        match frame.map(Frame::into_data) {
            Ok(Ok(bytes)) => return Some(Ok(bytes)),
            // Trailers say nothing to us.
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(error)),
        }
    }
}

/// All of a body; `None` where it is longer than allowed.
pub(crate) async fn all_bytes(body: &mut Incoming, max: usize) -> hyper::Result<Option<Vec<u8>>> {
    let mut all = Vec::new();
    while let Some(bytes) = next_bytes(body).await {
        all.extend_from_slice(&bytes?);
        if all.len() > max {
            return Ok(None);
        }
    }
    Ok(Some(all))
}

/// Reads some of what is left of a body that is refused: whoever cannot send it does not read why.
pub(crate) async fn drain(body: &mut Incoming, max: usize) {
    let mut read = 0;
    while let Some(Ok(bytes)) = next_bytes(body).await {
        read += bytes.len();
        if read > max {
            return;
        }
    }
}

/// The value of a header that is there once.
pub(crate) fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok();
    first.filter(|_| values.next().is_none())
}
