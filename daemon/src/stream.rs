//! The byte streams between processes, as the loops see them: what can be read or written, and what
//! else a pipe can do. Implemented by `os/` for the pipes and sockets of each system. Holds no state.

use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

/// A stream that a peer's bytes come from.
pub(crate) type StreamReader = Box<dyn ReadStream>;

/// A stream that bytes for a peer go to.
pub(crate) type StreamWriter = Box<dyn WriteStream>;

/// See [`StreamReader`].
pub(crate) trait ReadStream: AsyncRead + Pipe + Send + Unpin {}

impl<S: AsyncRead + Pipe + Send + Unpin> ReadStream for S {}

/// See [`StreamWriter`].
pub(crate) trait WriteStream: AsyncWrite + Pipe + Send + Unpin {}

impl<S: AsyncWrite + Pipe + Send + Unpin> WriteStream for S {}

/// Operations of a pipe besides reading and writing; each is optional.
pub(crate) trait Pipe {
    /// Makes it hold more at once where that can be: fewer and larger steps take a long line through.
    fn widen(&self) {}

    /// Bytes in it that were written and not read; `None` where that cannot be known.
    fn unread(&self) -> Option<usize> {
        None
    }

    /// A handle that answers [`Self::unread`] after the pipe is closed on our side; `None` where there
    /// is no such handle.
    fn far_end(&self) -> Option<Box<dyn Pipe + Send>> {
        None
    }

    /// Completes when the reading end is closed; `None` where only a write can tell. It holds the pipe
    /// open.
    fn closed(&self) -> Option<Completion> {
        None
    }
}

/// Something that happens once.
pub(crate) type Completion = Pin<Box<dyn Future<Output = ()> + Send>>;
