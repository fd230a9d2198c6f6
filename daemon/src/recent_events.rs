//! Owns the last events of this process, for the control API. Bounded, in memory only; a writer never waits
//! for a reader.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use afresh_core::audit::Record;
use afresh_core::control::EventRing;
use tokio::sync::watch;

use crate::clock::now;

/// The last events of this process. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Events(Arc<SharedEvents>);

#[derive(Debug)]
struct SharedEvents {
    ring: Mutex<EventRing>,
    /// The number of the newest event.
    newest: watch::Sender<u64>,
}

impl Events {
    /// Nothing has happened yet. The name of the run is of the time and the process: no two are alike.
    pub(crate) fn new() -> Self {
        let millis = (now().unix_seconds() * 1e3) as u64;
        let run = format!("{millis:x}{:x}", std::process::id());
        let newest = watch::Sender::new(0);
        Self(Arc::new(SharedEvents { ring: Mutex::new(EventRing::new(run)), newest }))
    }

    /// Remembers a record.
    pub(crate) fn push(&self, record: &Record) {
        let newest = self.ring().push(record, now());
        self.0.newest.send_replace(newest);
    }

    /// The number of the newest event; changes when there is a newer one.
    pub(crate) fn newest(&self) -> watch::Receiver<u64> {
        self.0.newest.subscribe()
    }

    /// The events themselves. Not to be held over an await.
    pub(crate) fn ring(&self) -> MutexGuard<'_, EventRing> {
        // Nothing in here can be left half done.
        self.0.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
