//! Owns the bodies of HTTP messages: a [`MessageBody`] to send, and bounded reads of those that come in.
//! Used by clients and servers alike. Never reads beyond the bound of its caller.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{HeaderMap, HeaderName};

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
