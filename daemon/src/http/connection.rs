//! Owns one HTTP/1.1 client connection over any stream: TCP, TLS or a Unix socket. Driven by the future that
//! waits for its response, so an idle connection costs no task and no wake-up. Never reconnects or redirects.
//!
//! Shared with the servers are the bodies of messages, a [`MessageBody`] to send and bounded reads of those that come
//! in, and the timeout of writes to a peer that does not read.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use afresh_core::limits::CONTROL_STALL_MAX;
use hyper::Request;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::header::{HeaderMap, HeaderName};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream that is read from and written to.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

type Driver = Pin<Box<http1::Connection<TokioIo<Box<dyn Duplex>>, MessageBody>>>;

/// A connection that carries one exchange at a time.
pub(crate) struct Connection {
    sender: http1::SendRequest<MessageBody>,
    /// None once the connection is closed.
    driver: Option<Driver>,
}

/// A request without a response.
pub(crate) struct ExchangeError {
    pub(crate) source: hyper::Error,
    /// The request, where no byte of it was sent.
    pub(crate) unsent: Option<Request<MessageBody>>,
}

/// A response whose body is still to be read.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    connection: Connection,
    is_over: bool,
}

impl Connection {
    /// `header_bytes_max` bounds the head of a response; without it hyper's bound holds.
    pub(crate) async fn open(
        stream: Box<dyn Duplex>,
        header_bytes_max: Option<usize>,
    ) -> hyper::Result<Self> {
        let mut builder = http1::Builder::new();
        if let Some(max) = header_bytes_max {
            builder.max_buf_size(max);
        }
        let (sender, driver) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver: Some(Box::pin(driver)) })
    }

    /// Sends a request and returns the head of the response.
    pub(crate) async fn send(
        mut self,
        request: Request<MessageBody>,
    ) -> Result<Response, ExchangeError> {
        let sending = self.sender.try_send_request(request);
        match drive(&mut self.driver, sending).await {
            Ok(response) => {
                let (head, body) = response.into_parts();
                let (status, headers) = (head.status.as_u16(), head.headers);
                Ok(Response { status, headers, body, connection: self, is_over: false })
            }
            Err(mut error) => {
                let unsent = error.take_message();
                Err(ExchangeError { source: error.into_error(), unsent })
            }
        }
    }

    /// Whether a request can be sent, as far as is known now.
    pub(super) async fn is_ready(&mut self) -> bool {
        poll_fn(|context| {
            let Some(driver) = &mut self.driver else { return Poll::Ready(false) };
            if driver.as_mut().poll(context).is_ready() {
                self.driver = None;
                return Poll::Ready(false);
            }
            Poll::Ready(self.sender.is_ready())
        })
        .await
    }
}

impl Response {
    /// A header as text; none where it is missing or not ASCII.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The next piece of the body; none when it is over.
    pub(crate) async fn next(&mut self) -> Option<hyper::Result<Bytes>> {
        let next = drive(&mut self.connection.driver, next_bytes(&mut self.body)).await;
        self.is_over |= next.is_none();
        next
    }

    /// All of the body; `None` where it is longer than allowed.
    pub(crate) async fn all(&mut self, bytes_max: usize) -> hyper::Result<Option<Vec<u8>>> {
        drive(&mut self.connection.driver, all_bytes(&mut self.body, bytes_max)).await
    }

    /// The body up to `bytes_max` bytes; the rest is left unread.
    pub(crate) async fn beginning(&mut self, bytes_max: usize) -> hyper::Result<Vec<u8>> {
        let mut all = Vec::new();
        while all.len() < bytes_max {
            let Some(bytes) = self.next().await.transpose()? else { break };
            all.extend_from_slice(&bytes[..bytes.len().min(bytes_max - all.len())]);
        }
        Ok(all)
    }

    /// The connection, if all of the body has been read and another request may follow.
    pub(super) async fn into_connection(mut self) -> Option<Connection> {
        (self.is_over && self.connection.is_ready().await).then_some(self.connection)
    }
}

/// Waits for a future that the connection brings forward.
async fn drive<T>(driver: &mut Option<Driver>, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    poll_fn(|context| {
        if let Some(driven) = driver
            && driven.as_mut().poll(context).is_ready()
        {
            // Bytes that it has read are already with the future.
            *driver = None;
        }
        future.as_mut().poll(context)
    })
    .await
}

/// The body of a request or a response that is sent.
pub(crate) enum MessageBody {
    /// All of it is there.
    Whole(Bytes),
    /// It comes in pieces.
    Pieces(Pieces),
}

/// The next piece and the pieces after it; none at the end.
pub(crate) type Pieces = Pin<Box<dyn Future<Output = Option<(Bytes, NextPieces)>> + Send>>;

/// The pieces that follow one.
pub(crate) struct NextPieces(pub(crate) Pieces);

impl<B: Into<Bytes>> From<B> for MessageBody {
    fn from(bytes: B) -> Self {
        Self::Whole(bytes.into())
    }
}

impl Body for MessageBody {
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
                Some((bytes, NextPieces(rest))) => {
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

/// The next bytes of a body; none at its end. Trailers are skipped.
pub(crate) async fn next_bytes(body: &mut Incoming) -> Option<hyper::Result<Bytes>> {
    loop {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
        match frame.map(Frame::into_data) {
            Ok(Ok(bytes)) => return Some(Ok(bytes)),
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

/// Reads some of the rest of a rejected body: a client that cannot send it does not read the rejection.
pub(crate) async fn drain(body: &mut Incoming, max: usize) {
    let mut read = 0;
    while let Some(Ok(bytes)) = next_bytes(body).await {
        read += bytes.len();
        if read > max {
            return;
        }
    }
}

/// The value of a header that is there exactly once.
pub(crate) fn single_header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok();
    first.filter(|_| values.next().is_none())
}

/// A stream whose writes fail once the peer has not read for [`CONTROL_STALL_MAX`].
pub(crate) struct WriteTimeout {
    stream: Box<dyn Duplex>,
    limit: Duration,
    /// Runs while a write is pending.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl WriteTimeout {
    pub(crate) fn new(stream: impl Duplex + 'static) -> Self {
        Self { stream: Box::new(stream), limit: CONTROL_STALL_MAX, stalled: None }
    }

    /// The same, for a server of hyper.
    pub(crate) fn served(stream: impl Duplex + 'static) -> TokioIo<Self> {
        TokioIo::new(Self::new(stream))
    }

    fn timed<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        ready!(stalled.as_mut().poll(context));
        // A later poll fails in the same way.
        stalled.as_mut().reset(Instant::now());
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for WriteTimeout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for WriteTimeout {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        all: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, all);
        self.timed(context, written)
    }

    /// Then hyper keeps what is to be written in the buffers that it got, and makes no copy.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.timed(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_peer_that_does_not_read_breaks_the_connection() {
        let (near, mut far) = duplex(8);
        let limit = Duration::from_millis(20);
        let mut near = WriteTimeout { limit, ..WriteTimeout::new(near) };
        far.write_all(b"hi").await.unwrap();
        near.write_all(b"12345678").await.unwrap();
        let begun = Instant::now();
        let error = near.write_all(b"9").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= limit);
        assert!(near.write_all(b"9").await.is_err());
        let mut read = [0; 8];
        near.read_exact(&mut read[..2]).await.unwrap();
        // Once it reads again, writes go on.
        far.read_exact(&mut read).await.unwrap();
        near.write_all(b"9").await.unwrap();
    }
}
