//! What hyper needs to speak over our sockets: bytes in and out, bodies, names in paths.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::rt;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection, as hyper wants it.
pub(crate) struct Wire<S>(pub(crate) S);

impl<S: AsyncRead + Unpin> rt::Read for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut into: rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0_u8; 4096];
        let room = into.remaining().min(bytes.len());
        let mut read = ReadBuf::new(&mut bytes[..room]);
        ready!(Pin::new(&mut self.0).poll_read(context, &mut read))?;
        into.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> rt::Write for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// The body of an answer.
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
pub(crate) async fn all_bytes(mut body: Incoming, max: usize) -> hyper::Result<Option<Vec<u8>>> {
    let mut all = Vec::new();
    while let Some(bytes) = next_bytes(&mut body).await {
        all.extend_from_slice(&bytes?);
        if all.len() > max {
            return Ok(None);
        }
    }
    Ok(Some(all))
}

/// A name as one part of a path.
pub(super) fn escape(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let part = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.bytes().map(part).collect()
}

/// The name that one part of a path stands for; `None` where it stands for none.
pub(super) fn unescape(part: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = part.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_survives_a_path() {
        for name in ["web", "a/b", "50%", "ü ö", "", "..", "a?b#c", "%2F", "\u{7f}\n"] {
            let part = escape(name);
            assert!(!part.contains(['/', '?', '#', ' ', '\n']), "{part}");
            assert_eq!(unescape(&part).as_deref(), Some(name));
        }
        for broken in ["%", "%2", "%zz", "%+1", "%ff"] {
            assert_eq!(unescape(broken), None, "{broken}");
        }
    }
}
