//! Owns the queue of connections that wait for a request, in the order in which they make room for new ones. Driven by
//! `connections_and_bodies.rs`. Never closes a connection that is served.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Ends a connection where it is set to now.
type Until = Arc<watch::Sender<Option<Instant>>>;

/// All that wait. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct WaitingConnections {
    queue: Arc<Mutex<Queue>>,
    /// Told whenever one more waits, or none any more.
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Queue {
    /// By their ranks, and since when they wait.
    waiting: BTreeMap<(Rank, u64), Until>,
    last: u64,
}

/// What a connection has shown of itself: those of the first rank make room first, and in each rank the one that has waited
/// for longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It has sent requests, of which none was let in: health checks, say. Whoever reaches the port can have many of these,
    /// and they must not push out a client whose first request was not read yet.
    Stranger,
    /// It has not sent a whole head.
    New,
    /// A request of it was let in.
    Client,
}

/// The place of one connection; it has none while it is served.
pub(super) struct WaitingPlace {
    queue: WaitingConnections,
    key: Mutex<Option<(Rank, u64)>>,
    is_client: AtomicBool,
}

impl WaitingConnections {
    /// A new connection waits for its first request.
    pub(super) fn enter(&self, until: &Until) -> WaitingPlace {
        let (queue, key, is_client) = (self.clone(), Mutex::new(None), AtomicBool::new(false));
        let place = WaitingPlace { queue, key, is_client };
        place.enter(Rank::New, until);
        place
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue().waiting.is_empty()
    }

    /// Waits until one more waits, or none any more. Cancel safe.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Ends the connection that makes room first; false where all are served.
    pub(super) fn end_first(&self) -> bool {
        let first = self.queue().waiting.pop_first();
        if let Some((_, until)) = &first {
            until.send_replace(Some(Instant::now()));
        }
        first.is_some()
    }

    /// Nothing in there can panic halfway.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitingPlace {
    /// A request of the connection was let in.
    pub(super) fn note_client(&self) {
        self.is_client.store(true, Ordering::Relaxed);
    }

    /// A request was served, and the next one is waited for.
    pub(super) fn enter_again(&self, until: &Until) {
        let is_client = self.is_client.load(Ordering::Relaxed);
        self.enter(if is_client { Rank::Client } else { Rank::Stranger }, until);
    }

    fn enter(&self, rank: Rank, until: &Until) {
        let mut queue = self.queue.queue();
        queue.last += 1;
        let key = (rank, queue.last);
        queue.waiting.insert(key, Arc::clone(until));
        *self.key.lock().unwrap_or_else(PoisonError::into_inner) = Some(key);
        self.queue.changed.notify_one();
    }

    /// The connection is served, or gone.
    pub(super) fn leave(&self) {
        let key = self.key.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(key) = key else { return };
        let mut queue = self.queue.queue();
        queue.waiting.remove(&key);
        if queue.waiting.is_empty() {
            self.queue.changed.notify_one();
        }
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.leave();
    }
}
