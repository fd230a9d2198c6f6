//! What hyper needs to speak over a stream, whichever it is.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Frame, Incoming};
use hyper::rt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection, secured or not.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection, as hyper wants it.
pub(super) struct Wire(pub(super) Box<dyn Stream>);

impl rt::Read for Wire {
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

impl rt::Write for Wire {
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

/// A body, up to so many bytes; the rest is left.
pub(super) async fn read_body(mut body: Incoming, bytes_max: usize) -> hyper::Result<Vec<u8>> {
    let mut all = Vec::new();
    while all.len() < bytes_max {
        let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let Some(frame) = frame.transpose()? else { break };
        // Trailers say nothing to us.
        if let Ok(bytes) = Frame::into_data(frame) {
            all.extend_from_slice(&bytes[..bytes.len().min(bytes_max - all.len())]);
        }
    }
    Ok(all)
}
