//! Owns the way back of messages that were handed to connections: each says by its drop that it was written, or that its
//! connection is gone. Driven by hyper, which drops bytes when the kernel has taken them. Never decides what is too much.

use std::sync::{Arc, Mutex, PoisonError};

use afresh_core::gateway::http::SentMessage;
use hyper::body::Bytes;

/// Messages that have left memory. There are no more of them than `core/src/gateway/http/unread_budget.rs` lets wait.
/// Clones are the same.
#[derive(Clone, Default)]
pub(super) struct WrittenMessages(Arc<Mutex<Vec<SentMessage>>>);

impl WrittenMessages {
    /// The bytes of a message, which report their end.
    pub(super) fn bytes_of(
        &self,
        message: impl AsRef<[u8]> + Send + 'static,
        sent: SentMessage,
    ) -> Bytes {
        Bytes::from_owner(Tracked { message, sent, written: self.clone() })
    }

    /// Those since the last time.
    pub(super) fn take(&self) -> Vec<SentMessage> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A message in memory.
struct Tracked<T> {
    message: T,
    sent: SentMessage,
    written: WrittenMessages,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Tracked<T> {
    fn as_ref(&self) -> &[u8] {
        self.message.as_ref()
    }
}

impl<T> Drop for Tracked<T> {
    fn drop(&mut self) {
        self.written.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.sent);
    }
}
