//! Owns the timeout of writes to a peer that does not read. Wraps the streams of the control socket and of
//! HTTP servers. Never limits reads.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use afresh_core::limits::CONTROL_STALL_MAX;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::connection::Duplex;

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
